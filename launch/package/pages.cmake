# Run by the installation: writes manual pages, completion and the version's file to ${pages}, as below share/. Given: source (the source
# tree), version, program_tessera and program_tsrun. Nothing of it depends on the date.
file(REMOVE_RECURSE ${pages})
set(bash ${pages}/bash-completion/completions)
set(zsh ${pages}/zsh/vendor-completions)
set(fish ${pages}/fish/vendor_completions.d)
file(MAKE_DIRECTORY ${pages}/man/man1 ${pages}/man/man5 ${pages}/tessera ${bash} ${zsh} ${fish})

execute_process(COMMAND ${program_tessera} man --output-dir ${pages}/man/man1 COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${program_tsrun} --man OUTPUT_FILE ${pages}/man/man1/tsrun.1 COMMAND_ERROR_IS_FATAL ANY)
file(RENAME ${pages}/man/man1/tessera-recipe.5 ${pages}/man/man5/tessera-recipe.5)
file(GLOB manual ${pages}/man/*/*)
execute_process(COMMAND gzip -9n ${manual} COMMAND_ERROR_IS_FATAL ANY)

foreach(shell bash zsh fish)
  set(name_bash ${bash}/)
  set(name_zsh ${zsh}/_)
  set(name_fish ${fish}/)
  set(end_fish .fish)
  execute_process(COMMAND ${program_tessera} completion ${shell} OUTPUT_FILE ${name_${shell}}tessera${end_${shell}} COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${program_tsrun} --completion ${shell} OUTPUT_FILE ${name_${shell}}tsrun${end_${shell}} COMMAND_ERROR_IS_FATAL ANY)
endforeach()

# "0.1.0 COMMIT", by which launch/quickstart.sh knows whether an installed program is that of its source tree. Without a commit if the
# source tree has none, or changes since it.
execute_process(COMMAND git -C ${source} rev-parse HEAD OUTPUT_VARIABLE commit RESULT_VARIABLE no_commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
execute_process(COMMAND git -C ${source} status --porcelain OUTPUT_VARIABLE changes ERROR_QUIET)
if(no_commit)
  set(commit "")
elseif(changes)
  set(commit " ${commit}-modified")
else()
  set(commit " ${commit}")
endif()
file(WRITE ${pages}/tessera/version "${version}${commit}\n")

# Run by the installation: writes manual pages, completion and the version's file. Given: source (the source tree), version, share (the folder
# of data, relative to the prefix), program_tessera and program_tsrun. Nothing of it depends on the date.
set(pages $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/${share})
set(bash ${pages}/bash-completion/completions)
set(zsh ${pages}/zsh/vendor-completions)
set(fish ${pages}/fish/vendor_completions.d)
file(MAKE_DIRECTORY ${pages}/man/man1 ${pages}/man/man5 ${pages}/tessera ${bash} ${zsh} ${fish})

execute_process(COMMAND ${program_tessera} man --output-dir ${pages}/man/man1 COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${program_tsrun} --man OUTPUT_FILE ${pages}/man/man1/tsrun.1 COMMAND_ERROR_IS_FATAL ANY)
file(RENAME ${pages}/man/man1/tessera-recipe.5 ${pages}/man/man5/tessera-recipe.5)
# By these names alone: a prefix like /usr/local may have the pages of other programs, such as tesseract.1.
file(GLOB written ${pages}/man/man1/tessera.1 ${pages}/man/man1/tessera-*.1 ${pages}/man/man1/tsrun.1 ${pages}/man/man5/tessera-*.5)
execute_process(COMMAND gzip -9nf ${written} COMMAND_ERROR_IS_FATAL ANY)
list(TRANSFORM written APPEND .gz)

foreach(shell bash zsh fish)
  set(name_bash ${bash}/)
  set(name_zsh ${zsh}/_)
  set(name_fish ${fish}/)
  set(end_fish .fish)
  execute_process(COMMAND ${program_tessera} completion ${shell} OUTPUT_FILE ${name_${shell}}tessera${end_${shell}} COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${program_tsrun} --completion ${shell} OUTPUT_FILE ${name_${shell}}tsrun${end_${shell}} COMMAND_ERROR_IS_FATAL ANY)
  list(APPEND written ${name_${shell}}tessera${end_${shell}} ${name_${shell}}tsrun${end_${shell}})
endforeach()

# "0.1.0 COMMIT", by which launch/quickstart.sh knows whether an installed program is that of its source tree; without COMMIT if the source
# tree has no commit, with "-modified" behind it if files have changed since.
execute_process(COMMAND git -c safe.directory=* -C ${source} rev-parse HEAD OUTPUT_VARIABLE commit RESULT_VARIABLE no_commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
execute_process(COMMAND git -c safe.directory=* -C ${source} status --porcelain OUTPUT_VARIABLE changes ERROR_QUIET)
if(no_commit)
  set(commit "")
elseif(changes)
  set(commit " ${commit}-modified")
else()
  set(commit " ${commit}")
endif()
file(WRITE ${pages}/tessera/version "${version}${commit}\n")
file(CHMOD ${written} ${pages}/tessera/version PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
foreach(name ${written} ${pages}/tessera/version)
  cmake_path(RELATIVE_PATH name BASE_DIRECTORY ${pages})
  list(APPEND CMAKE_INSTALL_MANIFEST_FILES ${CMAKE_INSTALL_PREFIX}/${share}/${name})
endforeach()

# mappings/ and configs/ go into the program as text: see embedded.h.
function(embed name folder)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${folder}/*.yaml)
  set(embedded ${PROJECT_BINARY_DIR}/embedded_${name}.cpp)
  add_custom_command(OUTPUT ${embedded}
    COMMAND ${CMAKE_COMMAND} -DFOLDER=${folder} -DNAME=embedded_${name} -DOUT=${embedded} -P ${PROJECT_SOURCE_DIR}/framework/options/embed.cmake
    DEPENDS ${files} ${PROJECT_SOURCE_DIR}/framework/options/embed.cmake)
  target_sources(options PRIVATE ${embedded})
endfunction()
embed(mappings ${PROJECT_SOURCE_DIR}/mappings)
embed(configs ${PROJECT_SOURCE_DIR}/configs)

# mappings/ and configs/ go into the program as text: see embedded.h.
foreach(folder mappings configs)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.yaml)
  set(embedded ${PROJECT_BINARY_DIR}/embedded_${folder}.cpp)
  add_custom_command(OUTPUT ${embedded}
    COMMAND ${CMAKE_COMMAND} -DFOLDER=${PROJECT_SOURCE_DIR}/${folder} -DNAME=embedded_${folder} -DOUT=${embedded}
      -P ${CMAKE_CURRENT_LIST_DIR}/embed.cmake
    DEPENDS ${files} ${CMAKE_CURRENT_LIST_DIR}/embed.cmake)
  target_sources(options PRIVATE ${embedded})
endforeach()

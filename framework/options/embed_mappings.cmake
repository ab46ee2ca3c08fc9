# mappings/ goes into the program as text: see embedded.h.
file(GLOB_RECURSE mappings CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/mappings/*.yaml)
set(embedded ${PROJECT_BINARY_DIR}/embedded_mappings.cpp)
add_custom_command(OUTPUT ${embedded}
  COMMAND ${CMAKE_COMMAND} -DFOLDER=${PROJECT_SOURCE_DIR}/mappings -DOUT=${embedded} -P ${CMAKE_CURRENT_LIST_DIR}/embed.cmake
  DEPENDS ${mappings} ${CMAKE_CURRENT_LIST_DIR}/embed.cmake)
target_sources(options PRIVATE ${embedded})

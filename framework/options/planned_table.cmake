# recipe/planned.yaml goes into the program as constants: see options/planned_source.h. A malformed row ends the build with its line.
add_executable(planned_table options/planned_table/main.cpp)
target_link_libraries(planned_table options)
target_compile_options(planned_table PRIVATE -Wall -Wextra -Wshadow -Werror)
set(generated ${PROJECT_BINARY_DIR}/planned_table.cpp)
add_custom_command(OUTPUT ${generated}
  COMMAND planned_table recipe/planned.yaml ${generated} framework/recipe/planned.yaml
  WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}
  DEPENDS planned_table recipe/planned.yaml)
set_source_files_properties(${generated} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
target_sources(recipe PRIVATE ${generated})

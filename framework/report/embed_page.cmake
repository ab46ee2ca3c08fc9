# page.css and the scripts go into the program as text: see page_files.h.
set(page_source ${PROJECT_BINARY_DIR}/embedded_page.cpp)
set(page_folder ${PROJECT_SOURCE_DIR}/framework/report)
add_custom_command(OUTPUT ${page_source}
  COMMAND ${CMAKE_COMMAND} -DFOLDER=${page_folder} -DNAME=page_files -DOUT=${page_source} "-DPATTERNS=*.css *.js" -DNAMESPACE=report
    -DHEADER=framework/report/page_files.h -P ${PROJECT_SOURCE_DIR}/framework/options/embed.cmake
  DEPENDS ${page_folder}/page.css ${page_folder}/curves.js ${page_folder}/page.js ${page_folder}/live.js ${PROJECT_SOURCE_DIR}/framework/options/embed.cmake VERBATIM)
target_sources(report PRIVATE ${page_source})

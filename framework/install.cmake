# The files that `cmake --install` installs, and the package that find_package(tessera) finds: one target, tessera::tessera, with all components.
# Components of the installation, each a Debian package (launch/package/packages.cmake): tessera, dev, doc.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(components GLOBAL PROPERTY components)
string(REPLACE "/" "_" components "${components}")
set(header_folder ${CMAKE_INSTALL_INCLUDEDIR}/tessera)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)

add_library(all_components INTERFACE)
add_library(tessera::tessera ALIAS all_components)
set_target_properties(all_components PROPERTIES EXPORT_NAME tessera)
target_link_libraries(all_components INTERFACE ${components})
target_compile_features(all_components INTERFACE cxx_std_20)

foreach(component ${components})
  get_target_property(kind ${component} TYPE)
  if(NOT kind STREQUAL "INTERFACE_LIBRARY")
    set_target_properties(${component} PROPERTIES OUTPUT_NAME tessera_${component})
  endif()
  target_include_directories(${component} INTERFACE $<INSTALL_INTERFACE:${header_folder}>)
endforeach()
install(TARGETS all_components ${components} EXPORT tessera
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/tessera COMPONENT dev)
install(EXPORT tessera NAMESPACE tessera:: FILE tesseraTargets.cmake DESTINATION ${package_folder} COMPONENT dev)

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/tesseraConfig.cmake.in ${PROJECT_BINARY_DIR}/tesseraConfig.cmake
  INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tesseraConfig.cmake ${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake
  DESTINATION ${package_folder} COMPONENT dev)
include(${CMAKE_CURRENT_LIST_DIR}/public_headers.cmake)
foreach(header ${installed_headers})
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${CMAKE_CURRENT_LIST_DIR}/${header} DESTINATION ${header_folder}/framework/${folder} COMPONENT dev)
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/mappings ${PROJECT_SOURCE_DIR}/configs
  DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera COMPONENT tessera)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/tessera-doc COMPONENT doc
  PATTERN "gallery" EXCLUDE PATTERN "theme" EXCLUDE PATTERN "site.css" EXCLUDE PATTERN "mkdocs.yml" EXCLUDE)  # of launch/site.sh

# Manual pages and completion are what the installed programs themselves print, so they are written at the installation.
if(TARGET tessera)
  install(TARGETS tessera tsrun RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tessera)
  install(CODE "set(source \"${PROJECT_SOURCE_DIR}\")\nset(version \"${PROJECT_VERSION}\")\nset(share \"${CMAKE_INSTALL_DATADIR}\")\n\
set(program_tessera \"$<TARGET_FILE:tessera>\")\nset(program_tsrun \"$<TARGET_FILE:tsrun>\")\n\
include(\"${PROJECT_SOURCE_DIR}/launch/package/pages.cmake\")" COMPONENT tessera)
endif()

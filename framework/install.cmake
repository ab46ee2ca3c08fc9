# The files that `cmake --install` installs, and the package that find_package(tessera) finds: one target, tessera::tessera, with all components.
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
install(TARGETS all_components ${components} EXPORT tessera ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT tessera NAMESPACE tessera:: FILE tesseraTargets.cmake DESTINATION ${package_folder})

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/tesseraConfig.cmake.in ${PROJECT_BINARY_DIR}/tesseraConfig.cmake
  INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tesseraConfig.cmake ${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake DESTINATION ${package_folder})

if(TARGET tessera)
  install(TARGETS tessera tsrun RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/framework DESTINATION ${header_folder} FILES_MATCHING PATTERN "*.h")
install(DIRECTORY ${PROJECT_SOURCE_DIR}/mappings ${PROJECT_SOURCE_DIR}/configs DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera)

# What `cmake --install` puts where, and the package that find_package(tessera) finds: one target, tessera::tessera, with all rooms.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(rooms GLOBAL PROPERTY rooms)
set(header_folder ${CMAKE_INSTALL_INCLUDEDIR}/tessera)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)

add_library(all_rooms INTERFACE)
add_library(tessera::tessera ALIAS all_rooms)
set_target_properties(all_rooms PROPERTIES EXPORT_NAME tessera)
target_link_libraries(all_rooms INTERFACE ${rooms})
target_compile_features(all_rooms INTERFACE cxx_std_20)

foreach(room ${rooms})
  get_target_property(kind ${room} TYPE)
  if(NOT kind STREQUAL "INTERFACE_LIBRARY")
    set_target_properties(${room} PROPERTIES OUTPUT_NAME tessera_${room})
  endif()
  target_include_directories(${room} INTERFACE $<INSTALL_INTERFACE:${header_folder}>)
endforeach()
install(TARGETS all_rooms ${rooms} EXPORT tessera ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
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

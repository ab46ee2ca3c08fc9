# The Debian packages that launch/package.sh makes with CPack, one for each component of the installation (framework/install.cmake).
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tessera)
set(CPACK_PACKAGE_CONTACT "Tessera developers <tessera@tessera.invalid>")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL tessera dev doc)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/finish.cmake)
set(CPACK_TESSERA_PACKAGE_NAMES "tessera=tessera;dev=libtessera-dev;doc=tessera-doc")
set(CPACK_TESSERA_FOLDER ${CMAKE_CURRENT_LIST_DIR})
set(CPACK_TESSERA_PACKAGE_VERSION ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})

set(CPACK_COMPONENT_TESSERA_DESCRIPTION "trains large language models from a recipe
Tessera trains models of the GPT family on CPUs, on one or many hosts, from a
YAML recipe. It reads data, launch scripts and checkpoints of Megatron-LM and
of Transformers, and resumes with bit-identical results.

This package contains the programs tessera and tsrun, their manual pages and
completion, and recipes of published models.")
set(CPACK_DEBIAN_TESSERA_PACKAGE_NAME tessera)
set(CPACK_DEBIAN_TESSERA_PACKAGE_SECTION science)
set(CPACK_DEBIAN_TESSERA_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_TESSERA_PACKAGE_DEPENDS "openmpi-bin, libopenblas0")  # tsrun starts mpirun; kernels/gemm_blas.cpp loads OpenBLAS when it needs it
set(CPACK_DEBIAN_TESSERA_PACKAGE_SUGGESTS "openssh-client, tessera-doc")  # tsrun --hosts

# The libraries that the build needs, of which the headers and libraries of this package need most.
execute_process(COMMAND ${PROJECT_SOURCE_DIR}/launch/install_dependencies.sh --list build OUTPUT_VARIABLE libraries
  COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[a-z0-9.+-]+-dev" libraries "${libraries}")
string(JOIN ", " libraries ${libraries})
set(CPACK_COMPONENT_DEV_DESCRIPTION "headers and libraries of Tessera
Tessera trains language models from a recipe. With the headers, static
libraries and the CMake package in this package you build a program that is
tessera with your own model, optimizer, schedule or dataset.")
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libtessera-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "pkg-config, ${libraries}")
set(CPACK_DEBIAN_DEV_PACKAGE_SUGGESTS "cmake, g++, tessera-doc")

set(CPACK_COMPONENT_DOC_DESCRIPTION "documentation of Tessera
Tessera trains language models from a recipe. This package contains its
documentation: the first hour, recipes and all options, data, parallelism,
converting from other programs, and how to add a model of one's own.")
set(CPACK_DEBIAN_DOC_PACKAGE_NAME tessera-doc)
set(CPACK_DEBIAN_DOC_PACKAGE_SECTION doc)
set(CPACK_DEBIAN_DOC_PACKAGE_ARCHITECTURE all)

foreach(pair ${CPACK_TESSERA_PACKAGE_NAMES})
  string(REPLACE "=" ";" pair ${pair})
  list(GET pair 0 component)
  list(GET pair 1 package)
  install(FILES ${CMAKE_CURRENT_LIST_DIR}/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component})
endforeach()
set(TESSERA_SITE "" CACHE PATH "Folder of the documentation as HTML, installed with the component doc; empty: none")
if(TESSERA_SITE)
  install(DIRECTORY ${TESSERA_SITE}/ DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/tessera-doc/html COMPONENT doc)
endif()
include(CPack)

# Installation: libraries, public headers, generated register headers, platforms, ahbm-vp, and what CMake's
# find_package and pkg-config need. docs/install.md describes the result.
include(CMakePackageConfigHelpers)

set(_include ${CMAKE_INSTALL_INCLUDEDIR}/ahbm)
set(_package ${CMAKE_INSTALL_LIBDIR}/cmake/ahbm)
set(_data ${CMAKE_INSTALL_DATADIR}/ahbm)
set(_bin ${CMAKE_INSTALL_BINDIR})

# The layers that a user's program can name. The command line (cli, platform) is a program, not an interface.
set(_layers core tl layout ccl kernels models runtime)
foreach(_layer IN LISTS _layers)
  list(APPEND _targets ahbm_${_layer})
endforeach()
install(TARGETS ${_targets} EXPORT ahbm ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS ahbm-vp RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

# Headers keep their paths: #include "models/system/system.h". How files are read and code is generated is not public.
foreach(_folder models ccl runtime)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${_folder} DESTINATION ${_include} FILES_MATCHING PATTERN "*.h"
          PATTERN "generator" EXCLUDE PATTERN "raw_config.h" EXCLUDE PATTERN "yaml_reader.h" EXCLUDE
          PATTERN "tile_storage.h" EXCLUDE PATTERN "internal.h" EXCLUDE)
endforeach()
install(DIRECTORY ${PROJECT_BINARY_DIR}/generated/ahbm ${PROJECT_BINARY_DIR}/generated/sw DESTINATION ${_include}
        FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_BINARY_DIR}/generated/registers.md DESTINATION ${_data})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs DESTINATION ${_data} FILES_MATCHING PATTERN "*.yaml")

install(EXPORT ahbm NAMESPACE ahbm:: FILE ahbmTargets.cmake DESTINATION ${_package})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/ahbmConfig.cmake.in ${PROJECT_BINARY_DIR}/ahbmConfig.cmake
                              INSTALL_DESTINATION ${_package} PATH_VARS _data _bin)
# Before 1.0 every minor version may break its users.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ahbmConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ahbmConfig.cmake ${PROJECT_BINARY_DIR}/ahbmConfigVersion.cmake
        DESTINATION ${_package})

# The prefix is found from where the file lies, so that an installation can be moved.
file(RELATIVE_PATH _to_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file(${CMAKE_CURRENT_LIST_DIR}/ahbm.pc.in ${PROJECT_BINARY_DIR}/ahbm.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ahbm.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

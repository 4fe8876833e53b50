# SPDX-License-Identifier: Apache-2.0
# cmake --install: headers, library, the octavo command, and what find_package(octavo) reads.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(OCTAVO_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/octavo)

install(DIRECTORY include/octavo TYPE INCLUDE FILES_MATCHING PATTERN "*.hpp")
install(TARGETS octavo EXPORT octavo-targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT octavo-targets NAMESPACE octavo:: DESTINATION ${OCTAVO_CMAKE_DIR})
if(TARGET octavo_cli)
  install(TARGETS octavo_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/octavo-config.cmake.in
  ${PROJECT_BINARY_DIR}/octavo-config.cmake
  INSTALL_DESTINATION ${OCTAVO_CMAKE_DIR} NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change the API.
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/octavo-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/octavo-config.cmake
              ${PROJECT_BINARY_DIR}/octavo-config-version.cmake
        DESTINATION ${OCTAVO_CMAKE_DIR})

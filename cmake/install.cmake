# Installation: headers, libraries, pkg-config files, a CMake package, the masks.
include(CMakePackageConfigHelpers)

set(targets flymask_runtime_shared flymask_runtime_static)
if(FLYMASK_COMPILER)
  list(APPEND targets flymask_shared flymask_static)
endif()
install(TARGETS ${targets} EXPORT flymask
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET flymask)
  install(TARGETS flymask DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY include/flymask DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY masks/ DESTINATION ${CMAKE_INSTALL_DATADIR}/flymask/masks FILES_MATCHING PATTERN "*.c")
install(DIRECTORY scores/ DESTINATION ${CMAKE_INSTALL_DATADIR}/flymask/scores FILES_MATCHING PATTERN "*.c")

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/flymask)
install(EXPORT flymask NAMESPACE flymask:: DESTINATION ${package} FILE flymask-targets.cmake)
configure_package_config_file(cmake/flymask-config.cmake.in flymask-config.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(flymask-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/flymask-config.cmake ${PROJECT_BINARY_DIR}/flymask-config-version.cmake DESTINATION ${package})

# Relative to the file itself: an installation can be moved.
file(RELATIVE_PATH FLYMASK_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
foreach(name flymask flymask_runtime)
  configure_file(cmake/${name}.pc.in ${name}.pc @ONLY)
  if(name STREQUAL flymask_runtime OR FLYMASK_COMPILER)
    install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  endif()
endforeach()

# cmake --install: programs, libraries, headers under include/ckpt, the CMake package and ckpt.pc.
include(CMakePackageConfigHelpers)
get_property(targets GLOBAL PROPERTY CKPT_TARGETS)
get_property(programs GLOBAL PROPERTY CKPT_PROGRAMS)
install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS ${targets} EXPORT ckpt ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ckpt)
install(EXPORT ckpt NAMESPACE ckpt:: FILE ckptTargets.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ckpt)
install(DIRECTORY models schema DESTINATION ${CMAKE_INSTALL_DATADIR}/ckpt)
configure_package_config_file(cmake/ckptConfig.cmake.in ckptConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ckpt)
write_basic_package_version_file(ckptConfigVersion.cmake COMPATIBILITY SameMajorVersion)
# Found from where it lies, so that `cmake --install --prefix` and moved trees work.
file(RELATIVE_PATH CKPT_PC_TO_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/ckpt.pc.in ckpt.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ckptConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/ckptConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ckpt)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ckpt.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

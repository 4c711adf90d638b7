# cmake --install: programs with their man pages and completions; libckpt.so with ckpt.h, the CMake package and ckpt.pc.
# cpack makes Debian packages of it: ckpt, libckpt0, and libckpt-dev with what programs are built against.
get_property(programs GLOBAL PROPERTY CKPT_PROGRAMS)
if(CKPT_WHEEL) # whose programs pip puts beside its own
  set_target_properties(ckpt_shared PROPERTIES VERSION ${PROJECT_VERSION_MAJOR}) # one file: a wheel has no links
  install(TARGETS ckpt_shared LIBRARY DESTINATION lib NAMELINK_SKIP)
  install(TARGETS ${programs} RUNTIME DESTINATION ${SKBUILD_SCRIPTS_DIR})
  return()
endif()
include(CMakePackageConfigHelpers)

# Every program writes its own, from the same table as its --help.
find_program(GZIP_PROGRAM gzip)
set(written "")
function(ckpt_written program form folder name)
  set(file ${CMAKE_BINARY_DIR}/share/${folder}/${name})
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/share/${folder})
  if(form STREQUAL man AND GZIP_PROGRAM) # as Debian's policy wants them
    add_custom_command(OUTPUT ${file}.gz COMMAND ${program} --help-as=${form} > ${file}
      COMMAND ${GZIP_PROGRAM} -9nf ${file} DEPENDS ${program} VERBATIM)
    set(file ${file}.gz)
  else()
    add_custom_command(OUTPUT ${file} COMMAND ${program} --help-as=${form} > ${file} DEPENDS ${program} VERBATIM)
  endif()
  install(FILES ${file} DESTINATION ${CMAKE_INSTALL_DATADIR}/${folder} COMPONENT ckpt)
  set(written ${written} ${file} PARENT_SCOPE)
endfunction()
foreach(program IN LISTS programs)
  ckpt_written(${program} man man/man1 ${program}.1)
  ckpt_written(${program} bash bash-completion/completions ${program})
  ckpt_written(${program} zsh zsh/site-functions _${program})
  ckpt_written(${program} fish fish/vendor_completions.d ${program}.fish)
endforeach()
add_custom_target(ckpt_manuals ALL DEPENDS ${written})

if(programs)
  install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ckpt)
  install(DIRECTORY models schema DESTINATION ${CMAKE_INSTALL_DATADIR}/ckpt COMPONENT ckpt)
endif()
install(TARGETS ckpt_shared EXPORT ckpt LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libckpt0
  NAMELINK_COMPONENT libckpt-dev)
install(FILES include/ckpt.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT libckpt-dev)
install(EXPORT ckpt NAMESPACE ckpt:: FILE ckptTargets.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ckpt
  COMPONENT libckpt-dev)
configure_package_config_file(cmake/ckptConfig.cmake.in ckptConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ckpt)
write_basic_package_version_file(ckptConfigVersion.cmake COMPATIBILITY SameMajorVersion)
# Found from where it lies, so that `cmake --install --prefix` and moved trees work.
file(RELATIVE_PATH CKPT_PC_TO_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/ckpt.pc.in ckpt.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ckptConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/ckptConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ckpt COMPONENT libckpt-dev)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ckpt.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT libckpt-dev)
include(ckpt_package)

# Debian packages: `cmake --workflow --preset package` leaves them in build/package. What a program links is looked up
# by dpkg-shlibdeps; the CUDA device, whose libraries are in no Debian package, is a package of its own without that.
set(CKPT_MAINTAINER "ckpt maintainers <ckpt@ckpt.invalid>" CACHE STRING "Who a Debian package says to write to")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ckpt)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT ${CKPT_MAINTAINER})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "memory planning for neural-network training")
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_COMPONENTS_ALL ckpt libckpt0 libckpt-dev)
set(CPACK_DEBIAN_CKPT_PACKAGE_NAME ckpt)
set(CPACK_DEBIAN_CKPT_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_CKPT_DESCRIPTION "Given a network and a budget in bytes, ckpt decides which activations of a
training step to keep, recompute or move to the host, proves how far from
optimal that can be, trains by exactly that plan, and draws it.")
set(CPACK_DEBIAN_LIBCKPT0_PACKAGE_NAME libckpt0)
set(CPACK_DEBIAN_LIBCKPT0_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBCKPT0_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_LIBCKPT0_PACKAGE_CONTROL_EXTRA ${CMAKE_BINARY_DIR}/debian/triggers ${CMAKE_BINARY_DIR}/debian/shlibs)
set(CPACK_DEBIAN_LIBCKPT0_DESCRIPTION "The planner as a C library, libckpt.so. The package ckpt brings its solver.")
file(WRITE ${CMAKE_BINARY_DIR}/debian/shlibs "libckpt ${PROJECT_VERSION_MAJOR} libckpt0 (>= ${PROJECT_VERSION})\n")
file(WRITE ${CMAKE_BINARY_DIR}/debian/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_LIBCKPT-DEV_PACKAGE_NAME libckpt-dev)
set(CPACK_DEBIAN_LIBCKPT-DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBCKPT-DEV_PACKAGE_DEPENDS "libckpt0 (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_LIBCKPT-DEV_DESCRIPTION "Header, CMake package and pkg-config file of libckpt.")
if(CKPT_HAVE_CUDA)
  list(APPEND CPACK_COMPONENTS_ALL ckpt-cuda)
  set(CPACK_DEBIAN_CKPT-CUDA_PACKAGE_NAME ckpt-cuda)
  set(CPACK_DEBIAN_CKPT-CUDA_DESCRIPTION "The CUDA device of ckpt-profile and ckpt-train. Wants the libraries of CUDA
and cuDNN that it was built with.")
endif()
if(CKPT_HAVE_MPI) # a package of its own: who plans, or trains alone, has no use for Open MPI
  list(APPEND CPACK_COMPONENTS_ALL ckpt-mpi)
  set(CPACK_DEBIAN_CKPT-MPI_PACKAGE_NAME ckpt-mpi)
  set(CPACK_DEBIAN_CKPT-MPI_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_CKPT-MPI_PACKAGE_RECOMMENDS openmpi-bin)
  set(CPACK_DEBIAN_CKPT-MPI_DESCRIPTION "Several ranks for ckpt-train: mpirun -n 4 ckpt-train. What carries its messages,
by the MPI that it was built with.")
endif()

# What Debian policy wants to find in every package.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/debian/copyright @ONLY CONTENT
"Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: ckpt

Files: *
Copyright: 2026 the ckpt authors
License: Apache-2.0
 On Debian systems the text of the license is in
 /usr/share/common-licenses/Apache-2.0.
")
set(documents ${CMAKE_BINARY_DIR}/debian/copyright)
if(GZIP_PROGRAM)
  file(WRITE ${CMAKE_BINARY_DIR}/debian/changelog "ckpt (${PROJECT_VERSION}) unstable; urgency=medium

  * What is new: CHANGELOG.md of the sources.

 -- ${CKPT_MAINTAINER}  Fri, 20 Nov 2026 12:00:00 +0000
")
  execute_process(COMMAND ${GZIP_PROGRAM} -9nf ${CMAKE_BINARY_DIR}/debian/changelog)
  list(APPEND documents ${CMAKE_BINARY_DIR}/debian/changelog.gz)
endif()
foreach(package IN LISTS CPACK_COMPONENTS_ALL)
  install(FILES ${documents} DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${package})
endforeach()
include(CPack)

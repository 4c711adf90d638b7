# Compilations come from ccache where it is installed and the user named no launcher. Its results must not depend on where
# the sources lie: ccache makes paths below them relative to the build folder, and CKPT_SOURCE_PREFIX is what __FILE__
# then begins with. Ninja alone compiles everything from one folder.
set(CKPT_SOURCE_PREFIX ${PROJECT_SOURCE_DIR}/)
find_program(CCACHE_PROGRAM ccache)
find_program(ENV_PROGRAM env)
if(CCACHE_PROGRAM AND ENV_PROGRAM AND CMAKE_GENERATOR MATCHES "Ninja" AND NOT DEFINED CMAKE_C_COMPILER_LAUNCHER)
  foreach(language C CXX CUDA)
    if(NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER ${ENV_PROGRAM} CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
        ${CCACHE_PROGRAM})
    endif()
  endforeach()
  file(RELATIVE_PATH relative ${CMAKE_BINARY_DIR} ${PROJECT_SOURCE_DIR})
  string(REGEX REPLACE "([^/])$" "\\1/" CKPT_SOURCE_PREFIX "${relative}")
endif()

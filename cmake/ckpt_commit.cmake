# cmake -DSOURCE_DIR=... -DOUTPUT=commit.c -P ckpt_commit.cmake: the commit that is being built, as a C text. Run at every
# build, because a commit or an edit reconfigures nothing; written only when it is another one.
execute_process(COMMAND git --no-optional-locks describe --always --dirty --abbrev=12 WORKING_DIRECTORY ${SOURCE_DIR}
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit unknown)
endif()
set(text "/* Written by the build. */\n#include \"core/core_impl.h\"\n\nconst char ckpt_commit[] = \"${commit}\";\n")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT text STREQUAL old)
  file(WRITE ${OUTPUT} "${text}")
endif()

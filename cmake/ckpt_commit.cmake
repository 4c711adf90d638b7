# cmake -DSOURCE_DIR=... -DOUTPUT=commit.c -P ckpt_commit.cmake: the commit that is being built, as a C text. Run at every
# build, because a commit or an edit reconfigures nothing; written only when it is another one. A copy without .git is
# told by CKPT_COMMIT, a bundle (scripts/gpu_bundle) by prebuilt/commit.
set(commit "")
if(EXISTS ${SOURCE_DIR}/.git)
  execute_process(COMMAND git --no-optional-locks describe --always --dirty --abbrev=12 WORKING_DIRECTORY ${SOURCE_DIR}
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
elseif(DEFINED ENV{CKPT_COMMIT})
  set(commit $ENV{CKPT_COMMIT})
elseif(EXISTS ${SOURCE_DIR}/prebuilt/commit)
  file(STRINGS ${SOURCE_DIR}/prebuilt/commit commit LIMIT_COUNT 1)
endif()
if(NOT commit)
  set(commit unknown)
endif()
set(text "/* Written by the build. */\n#include \"core/formats/machine_impl.h\"\n\nconst char ckpt_commit[] = \"${commit}\";\n")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT text STREQUAL old)
  file(WRITE ${OUTPUT} "${text}")
endif()

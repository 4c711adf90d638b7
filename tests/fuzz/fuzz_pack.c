/* Problems of MiniMalloc: what is to be packed, as commas separate it. */
#include "tests/fuzz/fuzz.h"

#include "planner/placement/pack.h"

static ckpt_code read_pack(const char *path, ckpt_arena *arena, ckpt_text *written, ckpt_err *err)
{
    ckpt_pack *pack = NULL;
    CKPT_TRY(ckpt_pack_read(path, arena, &pack, err));
    return CKPT_OK;
}

const fuzz_reader fuzz_the_reader = {.name = "pack", .split = fuzz_split_text, .read = read_pack};

/* A device's figures. */
#include "tests/fuzz/fuzz.h"

#include "core/json/json.h"
#include "ops/device_model.h"

static ckpt_code read_device(const char *path, ckpt_arena *arena, ckpt_text *written, ckpt_err *err)
{
    const ckpt_device_model *device = NULL;
    CKPT_TRY(ckpt_device_model_find(path, arena, &device, err));
    FUZZ_CHECK(ckpt_roofline_ns(device, "gelu", CKPT_DIRECTION_FORWARD, CKPT_FLOAT32, 1000000, 1000000) >= 0,
               "a time below 0");
    return CKPT_OK;
}

const fuzz_reader fuzz_the_reader = {.name = "device", .split = fuzz_split_text, .placed = true, .read = read_device};

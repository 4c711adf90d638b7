/* Opening the device's recorder for a profile.
 *
 * The device is open already, so that what its memory lacks afterwards is the recorder's: CUPTI takes its buffers when
 * the first kind of activity is enabled, or at the first kernel. */
#include "profiler/profiler_impl.h"

enum { FIRST_TAG = 1, FIRST_BYTES = 4096 };

/* One piece of work under a tag, collected. */
static ckpt_code first_use(ckpt_device *device, ckpt_recorder *recorder, void *block, ckpt_err *err)
{
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    const ckpt_activity *activity = NULL;
    int count = 0;
    CKPT_TRY(ckpt_recorder_push(recorder, FIRST_TAG, err));
    ckpt_code code = device->api->fill(device, block, 0, FIRST_BYTES, err);
    const ckpt_code popped = ckpt_recorder_pop(recorder, code == CKPT_OK ? err : NULL);
    code = code != CKPT_OK ? code : popped;
    code = code != CKPT_OK ? code : device->api->finish(device, err);
    code = code != CKPT_OK ? code : ckpt_recorder_collect(recorder, &scratch, &activity, &count, err);
    ckpt_arena_fini(&scratch);
    return code;
}

static ckpt_code open_and_use(ckpt_device *device, void *block, ckpt_recorder **recorder, ckpt_bytes *device_bytes,
                              ckpt_err *err)
{
    ckpt_device_memory before = {0}, after = {0};
    CKPT_TRY(device->api->memory(device, &before, err));
    CKPT_TRY(ckpt_recorder_open(&(ckpt_recorder_options){0}, recorder, err));
    CKPT_TRY(first_use(device, *recorder, block, err));
    CKPT_TRY(device->api->memory(device, &after, err));
    const ckpt_bytes less = before.free - after.free;
    *device_bytes = before.total == 0 ? -1 : less > 0 ? less : 0;
    return CKPT_OK;
}

ckpt_code ckpt_profile_record(ckpt_device *device, ckpt_recorder **recorder, ckpt_bytes *device_bytes, ckpt_err *err)
{
    void *block = NULL;
    ckpt_recorder *opened = NULL;
    ckpt_bytes taken = -1;
    CKPT_TRY(device->api->reserve(device, FIRST_BYTES, &block, err));
    const ckpt_code code = open_and_use(device, block, &opened, &taken, err);
    device->api->release(device, block, FIRST_BYTES);
    if (code != CKPT_OK) {
        ckpt_recorder_close(opened);
        return code;
    }
    *recorder = opened;
    *device_bytes = taken;
    return CKPT_OK;
}

/* Reserving and releasing all memory of a training. */
#include "executor/setup/memory_impl.h"

ckpt_code ckpt_reserve_host(ckpt_device *device, ckpt_bytes bytes, const char *what, ckpt_reserved *reserved,
                            ckpt_err *err)
{
    void *base = NULL;
    if (bytes == 0) {
        return CKPT_OK;
    }
    CKPT_TRY_WHILE(err, device->api->reserve_host(device, bytes, &base, err), "reserving the host's %lld bytes for %s",
                   (long long)bytes, what);
    *reserved = (ckpt_reserved){base, bytes};
    return CKPT_OK;
}

ckpt_code ckpt_reserve_device(ckpt_program *program, ckpt_err *err)
{
    ckpt_device *const device = program->device;
    const ckpt_bytes static_bytes = program->layout.total, arena_bytes = program->plan->arena_bytes;
    char static_text[CKPT_UNITS_TEXT], arena_text[CKPT_UNITS_TEXT];
    void *base = NULL;
    ckpt_bytes_show(static_bytes, static_text);
    CKPT_TRY_WHILE(err, device->api->reserve(device, static_bytes, &base, err), "reserving the static block of %s",
                   static_text);
    program->memory.statics = (ckpt_reserved){base, static_bytes};
    CKPT_TRY_WHILE(err, device->api->reserve(device, arena_bytes, &base, err),
                   "reserving the arena of %s beside the static block of %s", ckpt_bytes_show(arena_bytes, arena_text),
                   static_text);
    program->memory.arena = (ckpt_reserved){base, arena_bytes};
    return CKPT_OK;
}

static void release_host(ckpt_device *device, const ckpt_reserved *reserved)
{
    if (reserved->at != NULL) {
        device->api->release_host(device, reserved->at, reserved->bytes);
    }
}

static void release(ckpt_device *device, const ckpt_reserved *reserved)
{
    if (reserved->at != NULL) {
        device->api->release(device, reserved->at, reserved->bytes);
    }
}

void ckpt_release(ckpt_device *device, const ckpt_blocks *memory)
{
    release(device, &memory->arena);
    release(device, &memory->statics);
    release_host(device, &memory->slab);
    release_host(device, &memory->feed);
    release_host(device, &memory->post);
}

/* The link between device and host, as offload uses it: page-locked memory, the stream of the direction, one direction
 * at a time. 16 MiB take a third of a millisecond at 50 GB/s, so that what starting a copy costs is a percent of it. */
#include <stdlib.h>

#include "profiler/profiler_impl.h"

enum { LINK_BYTES = 1 << 24, LINK_REPEATS = 5 };

static ckpt_code copy_once(ckpt_device *device, ckpt_stream stream, void *block, void *host, ckpt_ns *time,
                           ckpt_err *err)
{
    const ckpt_device_api *const api = device->api;
    CKPT_TRY(api->stamp(device, 0, stream, err));
    CKPT_TRY(stream == CKPT_STREAM_D2H ? api->offload(device, host, block, LINK_BYTES, err)
                                       : api->fetch(device, block, host, LINK_BYTES, err));
    CKPT_TRY(api->stamp(device, 1, stream, err));
    CKPT_TRY(api->finish(device, err));
    return api->stamp_ns(device, 1, time, err);
}

static int compare_ns(const void *a, const void *b)
{
    const ckpt_ns x = *(const ckpt_ns *)a, y = *(const ckpt_ns *)b;
    return (x > y) - (x < y);
}

/* The median of some copies, after one that warms up. */
static ckpt_code measure(ckpt_device *device, ckpt_stream stream, void *block, void *host, int64_t *bytes_per_s,
                         ckpt_err *err)
{
    ckpt_ns time[LINK_REPEATS];
    CKPT_TRY(copy_once(device, stream, block, host, &time[0], err));
    for (int i = 0; i < LINK_REPEATS; i++) {
        CKPT_TRY(copy_once(device, stream, block, host, &time[i], err));
    }
    qsort(time, LINK_REPEATS, sizeof time[0], compare_ns);
    const ckpt_ns median = time[LINK_REPEATS / 2];
    *bytes_per_s = LINK_BYTES * INT64_C(1000000000) / (median > 0 ? median : 1);
    return CKPT_OK;
}

ckpt_code ckpt_profile_link(ckpt_device *device, ckpt_profile *profile, ckpt_err *err)
{
    const ckpt_device_api *const api = device->api;
    if (api->stamps == NULL) {
        return CKPT_OK;
    }
    void *block = NULL, *host = NULL;
    CKPT_TRY(api->reserve(device, LINK_BYTES, &block, err));
    ckpt_code code = api->reserve_host(device, LINK_BYTES, &host, err);
    if (code == CKPT_OK) {
        code = measure(device, CKPT_STREAM_D2H, block, host, &profile->d2h_bytes_per_s, err);
        code = code != CKPT_OK ? code : measure(device, CKPT_STREAM_H2D, block, host, &profile->h2d_bytes_per_s, err);
        (void)api->finish(device, NULL); /* a copy that failed may have left another behind */
        api->release_host(device, host, LINK_BYTES);
    }
    api->release(device, block, LINK_BYTES);
    return code;
}

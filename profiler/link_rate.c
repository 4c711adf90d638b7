/* The link between device and host, as offload uses it: page-locked memory, the stream of the direction. 16 MiB take a
 * third of a millisecond at 50 GB/s, of which starting the copy is one percent.
 *
 * Each direction is measured alone, and under the heaviest load it has in a step: beside kernels that keep the device's
 * memory busy, and beside copies the other way. The load must outlast the copy that is measured. The device's clock
 * tells whether it did; if not, the next try has more of it. */
#include "profiler/profiler_impl.h"

enum {
    COPY_BYTES = 1 << 24,
    OPERAND_BYTES = 1 << 16, /* of a kernel, at least; the size of the cache where that is known */
    REPEATS = 5,
    TRIES = 6,
    FIRST_KERNELS = 4, /* before the copy */
    MORE_KERNELS = 8,  /* beside it, in the first try; twice as many in every further one */
    MORE_COPIES = 2,
    COMPUTING = 0, /* signal: kernels have begun */
};

enum { COPY_START, COPY_END, KERNELS_END, OTHERS_END, STAMP_COUNT };

typedef struct link_bench {
    ckpt_device *device;
    void *block[2], *host[2]; /* of the copy that is measured, and of those the other way */
    void *operand[2];
    ckpt_bytes operand_bytes;
} link_bench;

static ckpt_stream other_way(ckpt_stream way)
{
    return way == CKPT_STREAM_D2H ? CKPT_STREAM_H2D : CKPT_STREAM_D2H;
}

static ckpt_code copy(const link_bench *bench, ckpt_stream way, int place, ckpt_err *err)
{
    const ckpt_device_api *const api = bench->device->api;
    return way == CKPT_STREAM_D2H
               ? api->offload(bench->device, bench->host[place], bench->block[place], COPY_BYTES, err)
               : api->fetch(bench->device, bench->block[place], bench->host[place], COPY_BYTES, err);
}

static ckpt_code copy_alone(const link_bench *bench, ckpt_stream way, ckpt_ns *time, ckpt_err *err)
{
    ckpt_device *const device = bench->device;
    CKPT_TRY(device->api->stamp(device, COPY_START, way, err));
    CKPT_TRY(copy(bench, way, 0, err));
    CKPT_TRY(device->api->stamp(device, COPY_END, way, err));
    CKPT_TRY(device->api->finish(device, err));
    return device->api->stamp_ns(device, COPY_END, time, err);
}

/* Sums of two blocks larger than the device's cache: two reads and a write of memory, and nearly no arithmetic. */
static ckpt_code add_kernels(const link_bench *bench, int count, ckpt_err *err)
{
    const int64_t numbers = bench->operand_bytes / (ckpt_bytes)sizeof(float);
    for (int i = 0; i < count; i++) {
        CKPT_TRY(
            bench->device->api->add(bench->device, CKPT_FLOAT32, bench->operand[0], bench->operand[1], numbers, err));
    }
    return CKPT_OK;
}

static ckpt_code start_busy(const link_bench *bench, ckpt_stream way, int times, ckpt_err *err)
{
    ckpt_device *const device = bench->device;
    const ckpt_device_api *const api = device->api;
    const ckpt_stream other = other_way(way);
    CKPT_TRY(add_kernels(bench, 1, err));
    CKPT_TRY(api->record(device, COMPUTING, CKPT_STREAM_COMPUTE, err));
    CKPT_TRY(add_kernels(bench, FIRST_KERNELS * times, err));
    CKPT_TRY(api->wait(device, COMPUTING, other, err));
    CKPT_TRY(copy(bench, other, 1, err));
    CKPT_TRY(api->wait(device, COMPUTING, way, err));
    CKPT_TRY(api->stamp(device, COPY_START, way, err));
    CKPT_TRY(copy(bench, way, 0, err));
    CKPT_TRY(api->stamp(device, COPY_END, way, err));
    for (int i = 0; i < MORE_COPIES * times; i++) {
        CKPT_TRY(copy(bench, other, 1, err));
    }
    CKPT_TRY(api->stamp(device, OTHERS_END, other, err));
    CKPT_TRY(add_kernels(bench, MORE_KERNELS * times, err));
    return api->stamp(device, KERNELS_END, CKPT_STREAM_COMPUTE, err);
}

/* 0 when the load never outlasted the copy. */
static ckpt_code copy_busy(const link_bench *bench, ckpt_stream way, ckpt_ns *time, ckpt_err *err)
{
    ckpt_device *const device = bench->device;
    *time = 0;
    for (int t = 0; t < TRIES; t++) {
        ckpt_ns copied = 0, computed = 0, others = 0;
        CKPT_TRY(start_busy(bench, way, 1 << t, err));
        CKPT_TRY(device->api->finish(device, err));
        CKPT_TRY(device->api->stamp_ns(device, COPY_END, &copied, err));
        CKPT_TRY(device->api->stamp_ns(device, KERNELS_END, &computed, err));
        CKPT_TRY(device->api->stamp_ns(device, OTHERS_END, &others, err));
        if (computed >= copied && others >= copied) {
            *time = copied;
            return CKPT_OK;
        }
    }
    return CKPT_OK;
}

/* The median of some copies, after one that warms up; 0 when one of them could not be measured. */
static ckpt_code measure(const link_bench *bench, ckpt_stream way, bool busy, int64_t *bytes_per_s, ckpt_err *err)
{
    int64_t time[REPEATS];
    for (int i = -1; i < REPEATS; i++) {
        int64_t *const to = &time[i < 0 ? 0 : i];
        CKPT_TRY(busy ? copy_busy(bench, way, to, err) : copy_alone(bench, way, to, err));
        if (busy && *to == 0) {
            return CKPT_OK;
        }
    }
    const ckpt_ns median = ckpt_median(time, REPEATS, NULL);
    *bytes_per_s = COPY_BYTES * INT64_C(1000000000) / (median > 0 ? median : 1);
    return CKPT_OK;
}

static ckpt_code measure_all(link_bench *bench, ckpt_profile *profile, ckpt_err *err)
{
    ckpt_device *const device = bench->device;
    const ckpt_device_api *const api = device->api;
    int64_t d2h_busy = 0, h2d_busy = 0;
    CKPT_TRY(api->stamps(device, STAMP_COUNT, err));
    CKPT_TRY(api->signals(device, COMPUTING + 1, err));
    for (int i = 0; i < 2; i++) {
        CKPT_TRY(api->reserve(device, COPY_BYTES, &bench->block[i], err));
        CKPT_TRY(api->reserve_host(device, COPY_BYTES, &bench->host[i], err));
        CKPT_TRY(api->reserve(device, bench->operand_bytes, &bench->operand[i], err));
    }
    CKPT_TRY(measure(bench, CKPT_STREAM_D2H, false, &profile->d2h_bytes_per_s, err));
    CKPT_TRY(measure(bench, CKPT_STREAM_H2D, false, &profile->h2d_bytes_per_s, err));
    CKPT_TRY(measure(bench, CKPT_STREAM_D2H, true, &d2h_busy, err));
    CKPT_TRY(measure(bench, CKPT_STREAM_H2D, true, &h2d_busy, err));
    if (d2h_busy > 0 && h2d_busy > 0) {
        profile->d2h_busy_bytes_per_s = d2h_busy;
        profile->h2d_busy_bytes_per_s = h2d_busy;
    }
    return CKPT_OK;
}

ckpt_code ckpt_profile_link(ckpt_device *device, ckpt_profile *profile, ckpt_err *err)
{
    const ckpt_device_api *const api = device->api;
    if (api->stamps == NULL) {
        return CKPT_OK;
    }
    link_bench bench = {.device = device, .operand_bytes = OPERAND_BYTES};
    if (bench.operand_bytes < device->cache_bytes) {
        bench.operand_bytes = ckpt_round_up(device->cache_bytes, OPERAND_BYTES);
    }
    const ckpt_code code = measure_all(&bench, profile, err);
    (void)api->finish(device, NULL); /* what failed may have left work behind */
    for (int i = 0; i < 2; i++) {
        api->release(device, bench.operand[i], bench.operand_bytes);
        api->release_host(device, bench.host[i], COPY_BYTES);
        api->release(device, bench.block[i], COPY_BYTES);
    }
    return code;
}

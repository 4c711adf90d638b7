/* Timing the directions of one layer.
 *
 * With a recorder a run lasts from the first start to the last end of what the device did for it. The device's stamps
 * around the same run also contain the host's time to start the first kernel, when the device waits for it. A step that
 * is recorded once and replayed, or whose host runs ahead, pays no such time. So plans are made from the kernels' own
 * times, and the stamps are compared with them. */
#include <string.h>

#include "core/base/clock.h"
#include "cupti/demangle.h"
#include "profiler/profiler_impl.h"

uint64_t ckpt_profile_tag(int row, ckpt_direction direction, int repeat)
{
    const uint64_t run = ((uint64_t)row * CKPT_DIRECTION_COUNT + direction) * CKPT_PROFILE_REPEATS_MAX;
    return 1 + run + (uint64_t)repeat;
}

/* Recording ends where CUPTI says so, and profiling goes on by the device's stamps. */
static ckpt_code stop_recording(ckpt_profiling *profiling, ckpt_code code, const ckpt_err *why, ckpt_err *err)
{
    if (code == CKPT_DEVICE) {
        profiling->recording = false;
        ckpt_profile_note(profiling, "recording ends, times from here on are between stamps of the device: %s",
                          why->msg);
        return CKPT_OK;
    }
    if (code != CKPT_OK && err != NULL) {
        *err = *why;
    }
    return code;
}

static ckpt_code start_tagged(ckpt_profiling *profiling, ckpt_bench *bench, ckpt_direction direction, uint64_t tag,
                              ckpt_err *err)
{
    ckpt_recorder *const recorder = profiling->options.recorder;
    ckpt_err why = {0};
    if (profiling->recording) {
        CKPT_TRY(stop_recording(profiling, ckpt_recorder_push(recorder, tag, &why), &why, err));
    }
    const bool pushed = profiling->recording;
    const ckpt_code code = ckpt_bench_start(bench, direction, err);
    const ckpt_code popped = pushed ? ckpt_recorder_pop(recorder, &why) : CKPT_OK;
    CKPT_TRY(code);
    return stop_recording(profiling, popped, &why, err);
}

/* Overwrite the cache, often enough to keep the device busy until the host has started all of the run that follows: for
 * twice the time that the last run took to start. So no kernel waits for the host, as none does in a step. */
static ckpt_code flush(const ckpt_profiling *profiling, ckpt_err *err)
{
    enum { MOST = 32 };
    ckpt_device *const device = profiling->device;
    const ckpt_ns wanted = profiling->flush != NULL ? 1 + 2 * profiling->start_ns / profiling->flush_ns : 0;
    for (ckpt_ns i = 0; i < wanted && i < MOST; i++) {
        CKPT_TRY(device->api->fill(device, profiling->flush, 0, profiling->flush_bytes, err));
    }
    return CKPT_OK;
}

/* Work between two stamps of the device: the host's time to start and to wait is not in it. Without stamps the host's
 * clock; there calls return when the work is done. */
static ckpt_code run_once(ckpt_profiling *profiling, ckpt_bench *bench, ckpt_direction direction, uint64_t tag,
                          ckpt_ns *time, ckpt_err *err)
{
    ckpt_device *const device = bench->device;
    const bool stamps = device->api->stamps != NULL;
    CKPT_TRY(flush(profiling, err));
    const ckpt_ns start = ckpt_clock_ns();
    if (stamps) {
        CKPT_TRY(device->api->stamp(device, 0, CKPT_STREAM_COMPUTE, err));
    }
    CKPT_TRY(start_tagged(profiling, bench, direction, tag, err));
    if (stamps) {
        CKPT_TRY(device->api->stamp(device, 1, CKPT_STREAM_COMPUTE, err));
    }
    profiling->start_ns = ckpt_clock_ns() - start;
    CKPT_TRY(device->api->finish(device, err));
    *time = ckpt_clock_ns() - start;
    return stamps ? device->api->stamp_ns(device, 1, time, err) : CKPT_OK;
}

/* What the processor counts, in runs of its own: reading the counters takes so long that threads fall asleep, which
 * would show in the time of the next run. */
static ckpt_code count_runs(ckpt_profiling *profiling, ckpt_bench *bench, ckpt_direction direction, ckpt_err *err)
{
    ckpt_ns time = 0;
    for (int i = 0; profiling->counters != NULL && i < CKPT_PROFILE_REPEATS_MIN; i++) {
        ckpt_counters_start(profiling->counters);
        CKPT_TRY(run_once(profiling, bench, direction, 0, &time, err));
        ckpt_counters_stop(profiling->counters, &profiling->counts[i]);
    }
    return CKPT_OK;
}

/* Until a number of runs are done and `min_ns` are spent: sleeping threads and a sleeping processor make the first runs
 * of a short layer several times slower than those in a step. */
static ckpt_code warm_up(ckpt_profiling *profiling, ckpt_bench *bench, ckpt_direction direction, ckpt_err *err)
{
    const ckpt_ns start = ckpt_clock_ns();
    ckpt_ns time = 0;
    for (int i = 0;
         i < CKPT_PROFILE_REPEATS_MAX && (i < profiling->options.warmup || ckpt_clock_ns() - start < profiling->min_ns);
         i++) {
        CKPT_TRY(run_once(profiling, bench, direction, 0, &time, err));
    }
    return CKPT_OK;
}

/* The runs of one direction, into profiling->sample and counts. */
static ckpt_code run_all(ckpt_profiling *profiling, ckpt_bench *bench, ckpt_direction direction, uint64_t first,
                         int *count, ckpt_err *err)
{
    const ckpt_profiler_options *const options = &profiling->options;
    const bool recording = profiling->recording;
    profiling->recording = false;
    CKPT_TRY(warm_up(profiling, bench, direction, err));
    profiling->recording = recording;
    const ckpt_ns start = ckpt_clock_ns();
    ckpt_ns spent = 0;
    int done = 0;
    while (done < CKPT_PROFILE_REPEATS_MAX && (done < options->repeats || spent < profiling->min_ns) &&
           (done < CKPT_PROFILE_REPEATS_MIN || spent < options->spend_ns)) {
        CKPT_TRY(run_once(profiling, bench, direction, first + (uint64_t)done, &profiling->sample[done], err));
        spent = ckpt_clock_ns() - start;
        done++;
    }
    *count = done;
    return count_runs(profiling, bench, direction, err);
}

static void take_counts(const ckpt_profiling *profiling, ckpt_timing *timing)
{
    int64_t *const of[] = {&timing->cycles, &timing->instructions, &timing->cache_misses};
    for (int k = 0; k < 3 && profiling->counters != NULL; k++) {
        int64_t sample[CKPT_PROFILE_REPEATS_MIN];
        for (int i = 0; i < CKPT_PROFILE_REPEATS_MIN; i++) {
            const ckpt_counts *const c = &profiling->counts[i];
            sample[i] = k == 0 ? c->cycles : k == 1 ? c->instructions : c->cache_misses;
        }
        *of[k] = ckpt_median(sample, CKPT_PROFILE_REPEATS_MIN, NULL);
    }
}

/* The stamps lie around the kernels on the same device. What is more between them than kernels and two stamps need, the
 * host has caused; less cannot be. */
static void compare_clocks(ckpt_profiling *profiling, const char *layer, ckpt_direction direction, ckpt_ns stamps_ns,
                           ckpt_ns span_ns)
{
    enum { STAMPS_NS = 20000, QUARTER = 4 };
    ckpt_profile_tally *const tally = &profiling->tally;
    const ckpt_ns apart = stamps_ns > span_ns ? stamps_ns - span_ns : span_ns - stamps_ns;
    const ckpt_ns worst =
        tally->stamps_ns > tally->span_ns ? tally->stamps_ns - tally->span_ns : tally->span_ns - tally->stamps_ns;
    if (apart <= STAMPS_NS || apart <= span_ns / QUARTER) {
        return;
    }
    tally->apart++;
    if (tally->layer == NULL || apart > worst) {
        tally->layer = layer;
        tally->direction = direction;
        tally->stamps_ns = stamps_ns;
        tally->span_ns = span_ns;
    }
}

/* The recorder's times instead of the stamps', where it saw enough whole runs. */
static ckpt_code join_runs(ckpt_profiling *profiling, const ckpt_bench *bench, ckpt_direction direction, uint64_t first,
                           ckpt_joined *joined, ckpt_timing *timing, ckpt_ns *sample, ckpt_err *err)
{
    const ckpt_activity *activity = NULL;
    ckpt_err why = {0};
    int count = 0;
    const ckpt_code code =
        ckpt_recorder_collect(profiling->options.recorder, profiling->scratch, &activity, &count, &why);
    CKPT_TRY(stop_recording(profiling, code, &why, err));
    if (!profiling->recording) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_profile_join(activity, count, first, timing->repeats, direction, profiling->scratch, joined, err));
    profiling->tally.lost_runs += joined->launches > 0 ? timing->repeats - joined->whole : 0;
    if (joined->launches == 0 || joined->whole < CKPT_PROFILE_REPEATS_MIN) {
        joined->kernel_count = 0;
        profiling->tally.by_stamps++;
        return CKPT_OK;
    }
    compare_clocks(profiling, bench->node->name, direction, timing->median_ns, joined->span_ns);
    timing->median_ns = joined->span_ns;
    timing->spread_ns = joined->spread_ns;
    timing->repeats = joined->whole;
    memcpy(sample, joined->sample_ns, (size_t)joined->whole * sizeof sample[0]);
    timing->kernel_ns = joined->kernel_ns;
    timing->gap_ns = joined->gap_ns;
    timing->launches = joined->launches;
    return CKPT_OK;
}

/* What a run computes and moves by the op table, and how near its time is to the data sheet's limit. The optimizer
 * computes in float32 whatever the network's type. */
static void rate(const ckpt_profiling *profiling, const ckpt_op_role *role, ckpt_direction direction,
                 ckpt_timing *timing)
{
    timing->flop = role->flop;
    timing->moved_bytes = role->moved_bytes;
    const ckpt_ns took = timing->kernel_ns > 0 ? timing->kernel_ns : timing->median_ns;
    if (profiling->options.roofline != NULL && took > 0) {
        const ckpt_dtype dtype =
            direction == CKPT_DIRECTION_UPDATE ? CKPT_FLOAT32 : profiling->lowered->network->model->dtype;
        timing->roofline =
            ckpt_sheet_ns(profiling->options.roofline, dtype, role->flop, role->moved_bytes) / (double)took;
    }
}

static ckpt_code time_direction(ckpt_profiling *profiling, ckpt_bench *bench, int row, ckpt_direction direction,
                                ckpt_joined *joined, ckpt_timing *timing, ckpt_err *err)
{
    const uint64_t first = ckpt_profile_tag(row, direction, 0);
    int count = 0;
    CKPT_TRY(run_all(profiling, bench, direction, first, &count, err));
    ckpt_ns *const sample = CKPT_NEW(profiling->out, ckpt_ns, count);
    if (sample == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d times", count);
    }
    memcpy(sample, profiling->sample, (size_t)count * sizeof sample[0]); /* sorted for the median */
    *timing = (ckpt_timing){.repeats = count, .sample_ns = sample};
    timing->median_ns = ckpt_median(profiling->sample, count, &timing->spread_ns);
    take_counts(profiling, timing);
    profiling->tally.directions++;
    if (profiling->recording) {
        CKPT_TRY(join_runs(profiling, bench, direction, first, joined, timing, sample, err));
    }
    ckpt_op_role role = *profiling->role[bench->node->index].op[direction];
    if (bench->args.way != NULL) {
        role.flop = bench->args.way->flop;
        role.moved_bytes = bench->args.way->moved_bytes;
    }
    rate(profiling, &role, direction, timing);
    return CKPT_OK;
}

/* The other ways of one direction. All forward ways together leave what any backward way reads. */
static ckpt_code time_ways(ckpt_profiling *profiling, ckpt_bench *bench, int index, ckpt_direction direction,
                           ckpt_profile_row *row, ckpt_err *err)
{
    const ckpt_node *const node = bench->node;
    for (int i = 0; i < node->way_count && direction != CKPT_DIRECTION_UPDATE; i++) {
        if (node->way[i].backward != (direction == CKPT_DIRECTION_BACKWARD)) {
            continue;
        }
        const ckpt_bytes workspace = ckpt_bench_way_workspace(bench, &node->way[i]);
        if (workspace == CKPT_WAY_ABSENT) {
            continue;
        }
        ckpt_profile_way *const way = &row->way[row->way_count++];
        ckpt_joined joined = {0};
        bench->args.way = &node->way[i];
        *way = (ckpt_profile_way){.direction = direction, .name = node->way[i].name, .workspace_bytes = workspace};
        CKPT_TRY(time_direction(profiling, bench, index, direction, &joined, &way->timing, err));
    }
    bench->args.way = NULL;
    return CKPT_OK;
}

/* One direction in the layer's own way, and in the others where backward may read what they save. */
static ckpt_code time_all_ways(ckpt_profiling *profiling, ckpt_bench *bench, int index, ckpt_direction direction,
                               ckpt_joined *joined, ckpt_timing *timing, ckpt_profile_row *row, ckpt_err *err)
{
    CKPT_TRY(time_direction(profiling, bench, index, direction, joined, timing, err));
    return profiling->role[bench->node->index].backward ? time_ways(profiling, bench, index, direction, row, err)
                                                        : CKPT_OK;
}

/* The kernels of all directions, in the row's own memory. */
static ckpt_code keep_kernels(const ckpt_profiling *profiling, const ckpt_joined *joined, ckpt_profile_row *row,
                              ckpt_err *err)
{
    int count = 0;
    for (int d = 0; d < CKPT_DIRECTION_COUNT; d++) {
        count += joined[d].kernel_count;
    }
    ckpt_profile_kernel *const kernel = CKPT_NEW(profiling->out, ckpt_profile_kernel, count);
    if (kernel == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d kernels", count);
    }
    count = 0;
    for (int d = 0; d < CKPT_DIRECTION_COUNT; d++) {
        for (int k = 0; k < joined[d].kernel_count; k++) {
            const char *const name = ckpt_demangle(joined[d].kernel[k].name, profiling->scratch);
            kernel[count] = joined[d].kernel[k];
            kernel[count].name = name != NULL ? ckpt_arena_text(profiling->out, name) : NULL;
            if (kernel[count++].name == NULL) {
                return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a kernel's name");
            }
        }
    }
    row->kernel = kernel;
    row->kernel_count = count;
    return CKPT_OK;
}

ckpt_code ckpt_profile_time(ckpt_profiling *profiling, ckpt_bench *bench, int index, ckpt_profile_row *row,
                            ckpt_err *err)
{
    ckpt_timing *const timing[] = {&row->forward, &row->backward, &row->update};
    const ckpt_node_role *const role = &profiling->role[bench->node->index];
    const ckpt_mark mark = ckpt_arena_mark(profiling->scratch);
    row->way = CKPT_NEW(profiling->out, ckpt_profile_way, bench->node->way_count);
    if (row->way == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d variants", bench->node->way_count);
    }
    ckpt_joined joined[CKPT_DIRECTION_COUNT] = {{0}};
    for (int d = 0; d < CKPT_DIRECTION_COUNT; d++) {
        if (role->op[d] != NULL) {
            CKPT_TRY(time_all_ways(profiling, bench, index, (ckpt_direction)d, &joined[d], timing[d], row, err));
        }
    }
    CKPT_TRY(keep_kernels(profiling, joined, row, err));
    ckpt_arena_rewind(profiling->scratch, mark);
    return CKPT_OK;
}

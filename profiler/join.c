/* What the device's recorder saw, joined to the runs of one direction of a layer. Every run starts the same work, so
 * the runs with the most activities are whole. A run with fewer has lost records and is left out: its times would be
 * too short. */
#include <string.h>

#include "profiler/profiler_impl.h"

/* What happened in one run, in order of start. */
typedef struct run {
    ckpt_ns start_ns, end_ns; /* first and last */
    ckpt_ns busy_ns;          /* with something running: what overlaps counts once */
    int count;
} run;

typedef struct joining {
    const ckpt_activity *activity;
    int count;
    uint64_t first;
    int repeats;
    run *run;
    int64_t *sample; /* repeats */
    ckpt_joined *joined;
} joining;

/* The run an activity belongs to; NULL: none, or it did nothing on the device. */
static run *run_of(const joining *j, const ckpt_activity *a)
{
    return ckpt_activity_ran(a) && a->tag >= j->first && a->tag - j->first < (uint64_t)j->repeats
               ? &j->run[a->tag - j->first]
               : NULL;
}

static void add_up(const joining *j)
{
    for (int i = 0; i < j->count; i++) {
        const ckpt_activity *const a = &j->activity[i];
        run *const r = run_of(j, a);
        if (r == NULL) {
            continue;
        }
        if (r->count == 0) {
            r->start_ns = r->end_ns = a->start_ns;
        }
        if (a->end_ns > r->end_ns) {
            r->busy_ns += a->end_ns - (a->start_ns > r->end_ns ? a->start_ns : r->end_ns);
            r->end_ns = a->end_ns;
        }
        r->count++;
        j->joined->launches = r->count > j->joined->launches ? r->count : j->joined->launches;
    }
}

static bool is_whole(const joining *j, const run *r)
{
    return r->count == j->joined->launches;
}

static ckpt_ns span_of(const run *r)
{
    return r->end_ns - r->start_ns;
}

static ckpt_ns busy_of(const run *r)
{
    return r->busy_ns;
}

static ckpt_ns gap_of(const run *r)
{
    return r->end_ns - r->start_ns - r->busy_ns;
}

/* The whole runs, in their order. */
static int gather(const joining *j, ckpt_ns (*of)(const run *r), int64_t *sample)
{
    int whole = 0;
    for (int r = 0; r < j->repeats; r++) {
        if (is_whole(j, &j->run[r])) {
            sample[whole++] = of(&j->run[r]);
        }
    }
    return whole;
}

static int64_t median_of(const joining *j, ckpt_ns (*of)(const run *r), int64_t *spread)
{
    j->joined->whole = gather(j, of, j->sample);
    return ckpt_median(j->sample, j->joined->whole, spread);
}

static const char *name_of(const ckpt_activity *a)
{
    static const char *const way[] = {"copy", "copy to host", "copy to device", "copy on device"};
    return a->kind == CKPT_ACTIVITY_KERNEL && a->name[0] != '\0' ? a->name
           : a->kind == CKPT_ACTIVITY_KERNEL                     ? "kernel"
           : a->kind == CKPT_ACTIVITY_COPY                       ? way[a->way]
                                                                 : "fill";
}

/* How often a kernel ran in a run, and its time in it: medians over the whole runs, so that one run with another
 * algorithm changes nothing. */
static void measure_kernel(const joining *j, ckpt_profile_kernel *kernel)
{
    for (int times = 0; times < 2; times++) {
        int whole = 0;
        for (int r = 0; r < j->repeats; r++) {
            j->sample[r] = 0;
        }
        for (int i = 0; i < j->count; i++) {
            const ckpt_activity *const a = &j->activity[i];
            const run *const r = run_of(j, a);
            if (r != NULL && is_whole(j, r) && strcmp(name_of(a), kernel->name) == 0) {
                j->sample[r - j->run] += times == 1 ? a->end_ns - a->start_ns : 1;
            }
        }
        for (int r = 0; r < j->repeats; r++) {
            if (is_whole(j, &j->run[r])) {
                j->sample[whole++] = j->sample[r];
            }
        }
        const int64_t median = ckpt_median(j->sample, whole, NULL);
        if (times == 1) {
            kernel->median_ns = median;
        } else {
            kernel->count = (int)median;
        }
    }
}

/* A kernel of the list is in more than half of the runs, so the list has at most twice the launches of one. */
static ckpt_code list_kernels(const joining *j, ckpt_direction direction, ckpt_arena *out, ckpt_err *err)
{
    ckpt_joined *const joined = j->joined;
    joined->kernel = CKPT_NEW(out, ckpt_profile_kernel, 2 * (size_t)joined->launches + 1);
    if (joined->kernel == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d kernels", joined->launches);
    }
    for (int i = 0; i < j->count; i++) {
        const run *const r = run_of(j, &j->activity[i]);
        bool known = r == NULL || !is_whole(j, r);
        const char *const name = known ? "" : name_of(&j->activity[i]);
        for (int k = 0; k < joined->kernel_count && !known; k++) {
            known = strcmp(joined->kernel[k].name, name) == 0;
        }
        if (!known) {
            ckpt_profile_kernel *const kernel = &joined->kernel[joined->kernel_count];
            *kernel = (ckpt_profile_kernel){.direction = direction, .name = name};
            measure_kernel(j, kernel);
            joined->kernel_count += kernel->count > 0;
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_profile_join(const ckpt_activity *activity, int count, uint64_t first, int repeats,
                            ckpt_direction direction, ckpt_arena *out, ckpt_joined *joined, ckpt_err *err)
{
    const joining j = {
        .activity = activity,
        .count = count,
        .first = first,
        .repeats = repeats,
        .run = CKPT_NEW(out, run, repeats),
        .sample = CKPT_NEW(out, int64_t, repeats),
        .joined = joined,
    };
    ckpt_ns *const span = CKPT_NEW(out, ckpt_ns, repeats);
    if (j.run == NULL || j.sample == NULL || span == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d runs", repeats);
    }
    *joined = (ckpt_joined){0};
    add_up(&j);
    if (joined->launches == 0) {
        return CKPT_OK;
    }
    joined->span_ns = median_of(&j, span_of, &joined->spread_ns);
    gather(&j, span_of, span);
    joined->sample_ns = span;
    joined->kernel_ns = median_of(&j, busy_of, NULL);
    joined->gap_ns = median_of(&j, gap_of, NULL);
    return list_kernels(&j, direction, out, err);
}

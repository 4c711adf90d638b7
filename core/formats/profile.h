/* ckpt-profile/1: what was measured, one row per layer. */
#ifndef CKPT_CORE_FORMATS_PROFILE_H
#define CKPT_CORE_FORMATS_PROFILE_H

#include "core/base/units.h"
#include "core/formats/machine.h"
#include "core/json/json.h"

/* A time: median over `repeats` runs after warm-up, and the distance from the first to the third quartile. The
 * counters are medians too, and 0 if the device or the processor does not have them. */
typedef struct ckpt_timing {
    ckpt_ns median_ns, spread_ns;
    int repeats;
    const ckpt_ns *sample_ns;  /* the `repeats` times in the order measured, for a twin those of its same_as; NULL: an
                                  older file */
    int64_t flop, moved_bytes; /* by the op's formula, for the roofline */
    /* minimum time for those by the device's data sheet, divided by the time taken; above 1 if a cache had what the
     * formula counts as moved */
    double roofline;
    ckpt_ns kernel_ns;                          /* in kernels, copies and fills */
    ckpt_ns gap_ns;                             /* between the first and the last of them, while none ran */
    int launches;                               /* how many those were */
    int64_t cycles, instructions, cache_misses; /* of the processor, all threads; last level */
    /* of a time taken in the step: the median of the layer alone, which kernels and counters are of; 0: no such time */
    ckpt_ns alone_ns;
} ckpt_timing;

typedef enum ckpt_direction {
    CKPT_DIRECTION_FORWARD,
    CKPT_DIRECTION_BACKWARD,
    CKPT_DIRECTION_UPDATE,
    CKPT_DIRECTION_COUNT
} ckpt_direction;

/* A kernel (or copy, or fill) that a layer started: `count` times in one run, `median_ns` together. */
typedef struct ckpt_profile_kernel {
    ckpt_direction direction;
    const char *name; /* demangled if the device can */
    int count;
    ckpt_ns median_ns;
} ckpt_profile_kernel;

/* Another way of a layer than its own (ckpt_way in ops/op.h). */
typedef struct ckpt_profile_way {
    ckpt_direction direction; /* forward or backward */
    const char *name;
    ckpt_timing timing;
    ckpt_bytes workspace_bytes;
} ckpt_profile_way;

typedef struct ckpt_profile_row {
    const char *layer;
    const char *op;
    const char *same_as; /* layer that was measured in its place; "" when this one was */
    ckpt_timing forward, backward, update;
    ckpt_timing recompute; /* forward, run again in a step; no repeats: never was */
    ckpt_bytes output_bytes, saved_bytes;
    ckpt_bytes forward_workspace_bytes, backward_workspace_bytes;
    ckpt_bytes parameter_bytes, gradient_bytes, optimizer_bytes;
    const char *algorithms; /* that were measured, as the device names them (ckpt_device_choice); "": no choice */
    const ckpt_profile_kernel *kernel; /* by direction, then in order of their start */
    int kernel_count;                  /* 0: the device does not tell */
    ckpt_profile_way *way;             /* other ways that were measured */
    int way_count;
} ckpt_profile_row;

/* A whole training step that the times of layers were taken in. The times of all its runs and the overhead add up to
 * time.median_ns. */
typedef struct ckpt_profile_step {
    ckpt_timing time;    /* no repeats: layers were measured alone */
    ckpt_ns overhead_ns; /* what no run of a layer accounts for: loop, inputs, what lies between runs */
    const char *plan;    /* the strategy it ran by: "keep-all" where there was memory for it */
} ckpt_profile_step;

typedef struct ckpt_profile {
    const char *source;
    const char *model; /* name of the model */
    ckpt_machine machine;
    const char *recorder;                               /* what recorded the device; "": nothing did */
    bool flushed;                                       /* caches were flushed between runs */
    int64_t d2h_bytes_per_s, h2d_bytes_per_s;           /* alone; 0: not measured */
    int64_t d2h_busy_bytes_per_s, h2d_busy_bytes_per_s; /* while the device computes; 0: not measured */
    ckpt_profile_step step;
    const ckpt_profile_row *row;
    int row_count;
} ckpt_profile;

CKPT_MUST_USE ckpt_code ckpt_profile_read(const char *path, ckpt_arena *out, const ckpt_profile **profile,
                                          ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_profile_item(const ckpt_item *root, ckpt_arena *out, const ckpt_profile **profile,
                                          ckpt_err *err);
void ckpt_profile_write(const ckpt_profile *profile, ckpt_text *text);

/* Were times taken in the step? Else each layer was measured alone. */
bool ckpt_profile_is_in_step(const ckpt_profile *profile);

/* The row of that layer; NULL when there is none. Cost: O(rows). */
const ckpt_profile_row *ckpt_profile_find(const ckpt_profile *profile, const char *layer);

#endif

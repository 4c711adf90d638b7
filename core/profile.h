/* ckpt-profile/1: what was measured, one row per layer. */
#ifndef CKPT_CORE_PROFILE_H
#define CKPT_CORE_PROFILE_H

#include "core/machine.h"
#include "core/units.h"

/* A time: median over `repeats` runs after warm-up, and the distance from the first to the third quartile. */
typedef struct ckpt_timing {
    ckpt_ns median_ns, spread_ns;
    int repeats;
} ckpt_timing;

typedef struct ckpt_profile_row {
    const char *layer;
    const char *op;
    const char *same_as; /* layer that was measured in its place; "" when this one was */
    ckpt_timing forward, backward, update;
    ckpt_bytes output_bytes, saved_bytes;
    ckpt_bytes forward_workspace_bytes, backward_workspace_bytes;
    ckpt_bytes parameter_bytes, gradient_bytes, optimizer_bytes;
    const char *forward_kernels, *backward_kernels; /* names, comma separated; "" unknown */
} ckpt_profile_row;

typedef struct ckpt_profile {
    const char *source;
    const char *model; /* name of the model */
    ckpt_machine machine;
    int64_t d2h_bytes_per_s, h2d_bytes_per_s; /* 0: not measured */
    const ckpt_profile_row *row;
    int row_count;
} ckpt_profile;

CKPT_MUST_USE ckpt_code ckpt_profile_read(const char *path, ckpt_arena *out, const ckpt_profile **profile,
                                          ckpt_err *err);
void ckpt_profile_write(const ckpt_profile *profile, ckpt_text *text);

/* The row of that layer; NULL when there is none. Cost: O(rows). */
const ckpt_profile_row *ckpt_profile_find(const ckpt_profile *profile, const char *layer);

#endif

/* Step functions that fall: the least time as a function of the bytes that there are.
 *
 *     x |--.           at[0] = (m0, x0), at[1] = (m1, x1), ...: bytes rise, times fall; below m0 nothing is possible,
 *       |  `----.      from at[k].bytes on the value is at[k].time, until the next
 *       |       `---
 *       +--m0---m1---> bytes
 */
#ifndef CKPT_PLANNER_CHAIN_STEP_FUNCTION_IMPL_H
#define CKPT_PLANNER_CHAIN_STEP_FUNCTION_IMPL_H

#include "core/base/memory.h"
#include "core/base/units.h"

typedef struct ckpt_stepfn_point {
    ckpt_bytes bytes;
    ckpt_ns time;
} ckpt_stepfn_point;

typedef struct ckpt_stepfn {
    const ckpt_stepfn_point *at;
    int count;
} ckpt_stepfn;

/* The index of the step at `bytes`, -1 when nothing is possible. Cost: O(log count). */
int ckpt_stepfn_find(const ckpt_stepfn *fn, ckpt_bytes bytes);

/* The least of several functions, being made. */
typedef struct ckpt_stepfn_maker {
    ckpt_stepfn_point *at, *found, *merged;
    int count, room;
    ckpt_bytes bytes_min, bytes_max; /* what is beyond does not matter */
    ckpt_ns time_max;
    int64_t work; /* steps looked at */
    bool failed;  /* no memory; reported by ckpt_stepfn_take */
} ckpt_stepfn_maker;

void ckpt_stepfn_begin(ckpt_stepfn_maker *maker, ckpt_bytes bytes_min, ckpt_bytes bytes_max, ckpt_ns time_max);
void ckpt_stepfn_end(ckpt_stepfn_maker *maker); /* gives the memory back */

/* From `bytes` on `time` will do. */
void ckpt_stepfn_add_point(ckpt_stepfn_maker *maker, ckpt_bytes bytes, ckpt_ns time);

/* From `from` on the sum a(m - shift) + b(m) + plus will do; b may be NULL. Cost: O(log) when that is nowhere less,
 * else O(steps). */
void ckpt_stepfn_add_sum(ckpt_stepfn_maker *maker, const ckpt_stepfn *a, ckpt_bytes shift, const ckpt_stepfn *b,
                         ckpt_ns plus, ckpt_bytes from);

typedef enum ckpt_thinning {
    CKPT_THIN_UP,  /* steps are left out: nowhere less than before */
    CKPT_THIN_DOWN /* steps are put together at the lesser bytes and the lesser time: nowhere more than before */
} ckpt_thinning;

/* A copy with at most `most` >= 2 steps; `thinned` is set when that is fewer. Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_stepfn_take(ckpt_stepfn_maker *maker, int most, ckpt_thinning thinning, ckpt_arena *out,
                                         ckpt_stepfn *fn, bool *thinned, ckpt_err *err);

#endif

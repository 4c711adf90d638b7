/* Slices of a tensor by number. Backward adds the gradient of each to its place, in the order of the ids. Every thread
 * owns a range of the other dims: nothing is locked, and the order is the same for any number of threads. */
#include "ops/gather.h"

#include <string.h>

#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

enum { STRIP = 64 }; /* elements that a thread takes at a time in backward: a few cache lines */

static ckpt_code check_ids(const ckpt_gather *g, const int32_t *id, ckpt_err *err)
{
    int64_t wrong = 0;
    for (int64_t i = 0; i < g->count; i++) {
        wrong += (int64_t)(id[i] < 0 || id[i] >= g->rows);
    }
    for (int64_t i = 0; i < g->count && wrong > 0; i++) {
        if (id[i] < 0 || id[i] >= g->rows) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "id %lld: found %ld, wanted 0..%lld", (long long)i, (long)id[i],
                             (long long)g->rows - 1);
        }
    }
    return CKPT_OK;
}

/* Offsets of the number-th index of `count` axes. */
static ckpt_gather_axis offsets_of(const ckpt_gather_axis *axis, int count, int64_t number)
{
    ckpt_gather_axis at = {0};
    for (int i = count - 1; i >= 0; i--) {
        const int64_t index = number % axis[i].dim;
        number /= axis[i].dim;
        at.x += index * axis[i].x;
        at.y += index * axis[i].y;
        at.id += index * axis[i].id;
    }
    return at;
}

static int64_t index_count(const ckpt_gather_axis *axis, int count)
{
    int64_t product = 1;
    for (int i = 0; i < count; i++) {
        product *= axis[i].dim;
    }
    return product;
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_gather g = ckpt_gather_of(args->node);
    const float *const x = args->in[0];
    const int32_t *const id = args->in[1];
    float *const y = args->out[0];
    const ckpt_gather_axis *const last = &g.out[g.out_count - 1];
    const int64_t rows = index_count(g.out, g.out_count - 1), length = last->dim;
    CKPT_TRY(check_ids(&g, id, err));
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (rows * length > CKPT_PARALLEL)
    for (int64_t row = 0; row < rows; row++) {
        const ckpt_gather_axis at = offsets_of(g.out, g.out_count - 1, row);
        float *const to = y + row * length;
        if (last->id == 0 && last->x == 1) {
            memcpy(to, x + at.x + id[at.id] * g.row, (size_t)length * sizeof *to);
            continue;
        }
        for (int64_t i = 0; i < length; i++) {
            to[i] = x[at.x + i * last->x + id[at.id + i * last->id] * g.row];
        }
    }
    return CKPT_OK;
}

/* Adds n elements, each side with its own distance between them. */
static void add(int64_t n, const float *from, int64_t from_step, float *to, int64_t to_step)
{
    if (from_step == 1 && to_step == 1) {
        ckpt_vector_add(n, from, to);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        to[i * to_step] += from[i * from_step];
    }
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_gather g = ckpt_gather_of(args->node);
    const int32_t *const id = args->in[1];
    const float *const dy = args->grad_out[0];
    float *const dx = args->grad_in[0];
    const ckpt_gather_axis *const last = &g.kept[g.kept_count - 1];
    const int64_t outer = index_count(g.kept, g.kept_count - 1), strips = (last->dim + STRIP - 1) / STRIP;
    CKPT_TRY(check_ids(&g, id, err));
#pragma omp parallel for schedule(static)                                                                              \
    num_threads(args->node->threads) if (outer * last->dim * (g.count + g.rows) > CKPT_PARALLEL)
    for (int64_t piece = 0; piece < outer * strips; piece++) {
        const ckpt_gather_axis at = offsets_of(g.kept, g.kept_count - 1, piece / strips);
        const int64_t first = piece % strips * STRIP, n = last->dim - first < STRIP ? last->dim - first : STRIP;
        float *const to = dx + at.x + first * last->x;
        const float *const from = dy + at.y + first * last->y;
        for (int64_t row = 0; row < g.rows && (args->grad_in_adds & 1) == 0; row++) {
            for (int64_t i = 0; i < n; i++) {
                to[row * g.row + i * last->x] = 0;
            }
        }
        for (int64_t i = 0; i < g.count; i++) {
            add(n, from + offsets_of(g.ids, g.id_count, i).y, last->y, to + id[i] * g.row, last->x);
        }
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_gather = {
    .op = "gather",
    .forward = forward,
    .backward = backward,
};

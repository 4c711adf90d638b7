/* Running sums along a dim; those of backward run from the end. A thread has a strip of columns, or one row. */
#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

enum { STRIP = 256 };

/* to[i] = or += the sum of from[0..i], of from[i..n-1] with `back`; i counts rows of `columns`, of which `width` are
 * summed. */
static void run_sums(int64_t n, int64_t columns, int width, bool back, const float *from, bool adds, float *to)
{
    double sum[STRIP] = {0}; /* a small result may be the difference of long sums */
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = (back ? n - 1 - i : i) * columns;
#pragma omp simd
        for (int c = 0; c < width; c++) {
            sum[c] += (double)from[at + c];
            to[at + c] = adds ? to[at + c] + (float)sum[c] : (float)sum[c];
        }
    }
}

static void run(const ckpt_node *node, bool back, const float *from, bool adds, float *to)
{
    const ckpt_shape *const x = &node->in[0].shape;
    const int64_t axis = ckpt_node_int(node, "axis"), d = axis < 0 ? axis + x->rank : axis;
    int64_t stride[CKPT_RANK_MAX];
    ckpt_shape_strides(x, stride);
    const int64_t n = x->dim[d], columns = stride[d], strips = (columns + STRIP - 1) / STRIP;
    const int64_t count = ckpt_shape_count(x), outer = count / (n * columns);
#pragma omp parallel for schedule(static) num_threads(node->threads) if (count > CKPT_PARALLEL)
    for (int64_t piece = 0; piece < outer * strips; piece++) {
        const int64_t first = piece % strips * STRIP, at = piece / strips * n * columns + first;
        const int64_t rest = columns - first;
        run_sums(n, columns, (int)(rest < STRIP ? rest : STRIP), back, from + at, adds, to + at);
    }
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    run(args->node, false, args->in[0], false, args->out[0]);
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    run(args->node, true, args->grad_out[0], (args->grad_in_adds & 1) != 0, args->grad_in[0]);
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_cumsum = {
    .op = "cumsum",
    .forward = forward,
    .backward = backward,
};

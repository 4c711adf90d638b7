/* Which tokens of a shifted window may see each other: those of the same part of the image, which has up to three parts
 * down and three across. */
#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

/* The part in which a token at `at` of `length` lies after the roll: before the last window, or in it on either side of
 * where the image's first row or column has come to. */
static int part(int64_t at, int64_t length, int64_t window, int64_t shift)
{
    return at < length - window ? 0 : at < length - shift ? 1 : 2;
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    const ckpt_node *const node = args->node;
    const int64_t height = ckpt_node_int(node, "height"), width = ckpt_node_int(node, "width");
    const int64_t w = ckpt_node_int(node, "window"), across = width / w, tokens = w * w;
    const int64_t down_shift = ckpt_node_int_at(node, "shift", 0), right_shift = ckpt_node_int_at(node, "shift", 1);
    const int64_t rows = height / w * across * tokens;
    int32_t *const y = args->out[0];
#pragma omp parallel for schedule(static) num_threads(node->threads) if (rows * tokens > CKPT_PARALLEL)
    for (int64_t row = 0; row < rows; row++) {
        const int64_t top = row / tokens / across * w, left = row / tokens % across * w, i = row % tokens;
        const int down = part(top + i / w, height, w, down_shift), right = part(left + i % w, width, w, right_shift);
        for (int64_t j = 0; j < tokens; j++) {
            y[row * tokens + j] =
                down == part(top + j / w, height, w, down_shift) && right == part(left + j % w, width, w, right_shift);
        }
    }
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_window_mask = {
    .op = "window_mask",
    .forward = forward,
};

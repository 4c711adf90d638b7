/* swiglu and geglu, tile by tile: the activation and its slope fill tiles in the first-level cache, and a second pass
 * multiplies. The halves of one input lie side by side in each row; two inputs are rows of any length. */
#include "core/formats/tensor.h"
#include "kernels/cpu/gelu.h"
#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

enum { TILE = CKPT_GELU_TILE };

/* Value and slope of the gate's activation, of n <= TILE numbers; slope may be NULL. */
typedef void activation(const ckpt_node *node, int64_t n, const float *x, float *y, float *slope);

static void silu_tile(const ckpt_node *node, int64_t n, const float *x, float *y, float *slope)
{
    (void)node;
    float s[TILE];
    ckpt_vector_sigmoid(n, x, s);
    if (slope != NULL) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            slope[i] = s[i] * (1.0f + x[i] * (1.0f - s[i]));
        }
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[i] * s[i];
    }
}

static void gelu_tile(const ckpt_node *node, int64_t n, const float *x, float *y, float *slope)
{
    ckpt_gelu_tile(ckpt_gelu_form_of(node), n, x, y, slope);
}

/* `rows` rows of `width` outputs; a row of an input or of its gradient starts `step` elements behind the one before. */
typedef struct sizes {
    int64_t rows, width, step, tiles; /* tiles: of a row */
} sizes;

static sizes sizes_of(const ckpt_node *node)
{
    const ckpt_shape *const y = &node->out[0].shape;
    const int64_t count = ckpt_shape_count(y);
    sizes s = {1, count, count, 0};
    if (node->in_count == 1) {
        s.width = y->dim[y->rank - 1];
        s.rows = count / s.width;
        s.step = 2 * s.width;
    }
    s.tiles = (s.width + TILE - 1) / TILE;
    return s;
}

static ckpt_code glu_forward(const ckpt_kernel_args *args, activation *function)
{
    const sizes s = sizes_of(args->node);
    const float *const gate = args->in[0], *const up = args->node->in_count == 2 ? args->in[1] : gate + s.width;
    float *const y = args->out[0];
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (s.rows * s.width > CKPT_PARALLEL)
    for (int64_t t = 0; t < s.rows * s.tiles; t++) {
        const int64_t row = t / s.tiles, start = t % s.tiles * TILE, at = row * s.step + start;
        const int64_t n = s.width - start < TILE ? s.width - start : TILE;
        float *const to = y + row * s.width + start;
        float value[TILE];
        function(args->node, n, gate + at, value, NULL);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            to[i] = value[i] * up[at + i];
        }
    }
    return CKPT_OK;
}

static void put(int64_t n, const float *from, bool adds, float *to)
{
    if (adds) {
        ckpt_vector_add(n, from, to);
    } else {
        memcpy(to, from, (size_t)n * sizeof *to);
    }
}

/* value = dy silu(gate), slope = dy up silu'(gate), before either gradient is written: it may lie where an input does. */
static ckpt_code glu_backward(const ckpt_kernel_args *args, activation *function)
{
    const sizes s = sizes_of(args->node);
    const bool halves = args->node->in_count == 1;
    const float *const gate = args->in[0], *const up = halves ? gate + s.width : args->in[1];
    const float *const dy = args->grad_out[0];
    float *const dgate = args->grad_in[0], *const dup = halves ? dgate + s.width : args->grad_in[1];
    const bool gate_adds = (args->grad_in_adds & 1) != 0, up_adds = halves ? gate_adds : (args->grad_in_adds & 2) != 0;
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (s.rows * s.width > CKPT_PARALLEL)
    for (int64_t t = 0; t < s.rows * s.tiles; t++) {
        const int64_t row = t / s.tiles, start = t % s.tiles * TILE, at = row * s.step + start;
        const int64_t n = s.width - start < TILE ? s.width - start : TILE;
        const float *const slant = dy + row * s.width + start;
        float value[TILE], slope[TILE];
        function(args->node, n, gate + at, value, slope);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            value[i] *= slant[i];
            slope[i] *= slant[i] * up[at + i];
        }
        if (dgate != NULL) {
            put(n, slope, gate_adds, dgate + at);
        }
        if (dup != NULL) {
            put(n, value, up_adds, dup + at);
        }
    }
    return CKPT_OK;
}

static ckpt_code swiglu_forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    return glu_forward(args, silu_tile);
}

static ckpt_code swiglu_backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    return glu_backward(args, silu_tile);
}

static ckpt_code geglu_forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    return glu_forward(args, gelu_tile);
}

static ckpt_code geglu_backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    (void)err;
    return glu_backward(args, gelu_tile);
}

const ckpt_kernel ckpt_cpu_swiglu = {
    .op = "swiglu",
    .forward = swiglu_forward,
    .backward = swiglu_backward,
};

const ckpt_kernel ckpt_cpu_geglu = {
    .op = "geglu",
    .forward = geglu_forward,
    .backward = geglu_backward,
};

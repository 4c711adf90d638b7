/* swiglu and geglu: y = f(gate) up, f(x) being SiLU or GELU. Gate and up are two tensors, or the halves of each row of
 * one. Forward reads both and writes y; backward reads both and dy, and writes both gradients (and reads those it adds
 * to). About 8 FLOP an element and the exponential of f, in the exact form of GELU its erff: bound by memory but for
 * that form in bfloat16. */
#include "kernels/cuda/gelu.cuh"
#include "kernels/cuda/silu.cuh"
#include "kernels/cuda/wide.cuh"

namespace
{
/* Value and, times dy, slope. */
template <typename VALUE, typename SLOPE> struct glu_function {
    __device__ float operator()(float x) const
    {
        return VALUE()(x);
    }
    __device__ float operator()(float x, float dy) const
    {
        return SLOPE()(x, dy);
    }
};

/* Accesses of N elements: `row` in a row of the output, `step` from one row of an input to the next. */
struct glu_shape {
    int64_t row, step;
    bool gate_adds, up_adds;
};
} // namespace

/* y may be gate or up. */
template <typename T, int N, typename F>
__global__ void __launch_bounds__(ITEM_THREADS)
    glu_forward(int64_t items, glu_shape shape, F f, const T *gate, const T *up, T *y)
{
    for (int64_t item = first_item(); item < items; item += item_step()) {
        const quotient place = divide(item, shape.row);
        const int64_t at = (place.whole * shape.step + place.rest) * N;
        const wide<float, N> g = load_floats<N>(gate + at), u = load_floats<N>(up + at);
        wide<float, N> value;
        for (int j = 0; j < N; j++) {
            value.at[j] = f(g.at[j]) * u.at[j];
        }
        put_wide<N>(y + item * N, value, false);
    }
}

/* dgate and dup may be NULL, one and the same, or what was read. */
template <typename T, int N, typename F>
__global__ void __launch_bounds__(ITEM_THREADS)
    glu_backward(int64_t items, glu_shape shape, F f, const T *gate, const T *up, const T *dy, T *dgate, T *dup)
{
    for (int64_t item = first_item(); item < items; item += item_step()) {
        const quotient place = divide(item, shape.row);
        const int64_t at = (place.whole * shape.step + place.rest) * N;
        const wide<float, N> g = load_floats<N>(gate + at), u = load_floats<N>(up + at);
        const wide<float, N> slant = load_floats<N>(dy + item * N);
        wide<float, N> value, slope;
        for (int j = 0; j < N; j++) {
            value.at[j] = f(g.at[j]) * slant.at[j];
            slope.at[j] = f(g.at[j], slant.at[j] * u.at[j]);
        }
        if (dgate != NULL) {
            put_wide<N>(dgate + at, slope, shape.gate_adds);
        }
        if (dup != NULL) {
            put_wide<N>(dup + at, value, shape.up_adds);
        }
    }
}

template <typename T, int N, bool BACKWARD, typename F> static void start_with(const ckpt_kernel_args *args, F f)
{
    const ckpt_node *const node = args->node;
    const ckpt_shape *const y = &node->out[0].shape;
    const bool halves = node->in_count == 1;
    const int64_t count = ckpt_shape_count(y), width = halves ? y->dim[y->rank - 1] : count;
    const T *const gate = (const T *)args->in[0], *const up = halves ? gate + width : (const T *)args->in[1];
    const int64_t items = (count + N - 1) / N;
    glu_shape shape = {};
    shape.row = halves ? width / N : items;
    shape.step = halves ? 2 * shape.row : items;
    if constexpr (BACKWARD) {
        T *const dgate = (T *)args->grad_in[0], *const dup = halves ? dgate + width : (T *)args->grad_in[1];
        shape.gate_adds = (args->grad_in_adds & 1) != 0;
        shape.up_adds = halves ? shape.gate_adds : (args->grad_in_adds & 2) != 0;
        CKPT_LAUNCH_ITEMS(cuda_of(args), (glu_backward<T, N, F>), items, shape, f, gate, up,
                          (const T *)args->grad_out[0], dgate, dup);
    } else {
        CKPT_LAUNCH_ITEMS(cuda_of(args), (glu_forward<T, N, F>), items, shape, f, gate, up, (T *)args->out[0]);
    }
}

template <typename T, int N, bool BACKWARD> static void start_gelu(const ckpt_kernel_args *args)
{
    if (strcmp(ckpt_node_string(args->node, "approximate"), "tanh") == 0) {
        start_with<T, N, BACKWARD>(args, glu_function<gelu_tanh<T>, gelu_tanh_slope<T>>());
    } else {
        start_with<T, N, BACKWARD>(args, glu_function<gelu_exact, gelu_exact_slope>());
    }
}

template <typename T, int N> static void start_swiglu_forward(const ckpt_kernel_args *args)
{
    start_with<T, N, false>(args, glu_function<silu_value<T>, silu_slope<T>>());
}
template <typename T, int N> static void start_swiglu_backward(const ckpt_kernel_args *args)
{
    start_with<T, N, true>(args, glu_function<silu_value<T>, silu_slope<T>>());
}
template <typename T, int N> static void start_geglu_forward(const ckpt_kernel_args *args)
{
    start_gelu<T, N, false>(args);
}
template <typename T, int N> static void start_geglu_backward(const ckpt_kernel_args *args)
{
    start_gelu<T, N, true>(args);
}

/* Halves must start at packs; two inputs do, and may be read and written behind their ends. */
static int64_t pack_length(const ckpt_node *node)
{
    return node->in_count == 1 ? node->out[0].shape.dim[node->out[0].shape.rank - 1] : 8;
}

extern "C" const ckpt_kernel ckpt_cuda_swiglu = {
    .op = "swiglu",
    .forward = CKPT_WIDE(pack_length, start_swiglu_forward),
    .backward = CKPT_WIDE(pack_length, start_swiglu_backward),
};

extern "C" const ckpt_kernel ckpt_cuda_geglu = {
    .op = "geglu",
    .forward = CKPT_WIDE(pack_length, start_geglu_forward),
    .backward = CKPT_WIDE(pack_length, start_geglu_backward),
};

/* Slices of a tensor by number. A number outside of it is an error in the data, which the CPU refuses; here it gives NaN,
 * so that the loss shows it, and its gradient goes nowhere.
 *
 * Forward moves each slice once in and once out. Backward sorts the ids (sort.cuh); a thread then has N neighbours of the
 * gradient and adds up those that its own number gave, in the order of the ids: dy is read once, dx written once, without
 * atomics. Bound by memory, or by latency where one number is many of the ids. */
#include "kernels/cuda/sort.cuh"
#include "kernels/cuda/wide.cuh"

extern "C" {
#include "ops/gather.h"
}

/* Offsets of the number-th index of `count` axes. */
__device__ static inline ckpt_gather_axis gather_offsets(const ckpt_gather_axis *axis, int count, int64_t number)
{
    ckpt_gather_axis at = {};
    for (int i = count - 1; i >= 0; i--) {
        const quotient q = i > 0 ? divide(number, axis[i].dim) : quotient{0, number};
        at.x += q.rest * axis[i].x;
        at.y += q.rest * axis[i].y;
        at.id += q.rest * axis[i].id;
        number = q.whole;
    }
    return at;
}

template <typename T, int N>
__global__ void gather_forward(int64_t items, ckpt_gather g, const T *x, const int32_t *ids, T *y)
{
    for (int64_t item = first_item(); item < items; item += item_step()) {
        const ckpt_gather_axis at = gather_offsets(g.out, g.out_count, item * N);
        const int64_t id = ids[at.id];
        wide<T, N> value;
        if (id >= 0 && id < g.rows) {
            value = load_wide<N>(x + at.x + id * g.row);
        } else {
            for (int j = 0; j < N; j++) {
                value.at[j] = from_float<T>(NAN);
            }
        }
        store_wide<N>(y + item * N, value);
    }
}

/* The first place in the sorted ids whose id is not below `id`. */
__device__ static inline int64_t gather_find(const sort_tokens &tokens, int64_t id)
{
    int64_t low = 0, high = tokens.count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (sort_key_at(tokens, middle) < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Items count packs of the last kept axis, then numbers, then the other kept axes. */
template <typename T, int N>
__global__ void gather_backward(int64_t items, ckpt_gather g, sort_tokens tokens, bool adds, const T *dy, T *dx)
{
    const ckpt_gather_axis last = g.kept[g.kept_count - 1];
    for (int64_t item = first_item(); item < items; item += item_step()) {
        const quotient in_row = divide(item, last.dim / N), row = divide(in_row.whole, g.rows);
        const ckpt_gather_axis at = gather_offsets(g.kept, g.kept_count - 1, row.whole);
        const T *const from = dy + at.y + in_row.rest * N * last.y;
        wide<float, N> sum = {};
        for (int64_t i = gather_find(tokens, row.rest); i < tokens.count; i++) {
            const int32_t place = sort_token_at(tokens, i);
            if (sort_key_of(tokens, place) != row.rest) {
                break;
            }
            const wide<float, N> v = load_floats<N>(from + gather_offsets(g.ids, g.id_count, place).y);
            for (int j = 0; j < N; j++) {
                sum.at[j] += v.at[j];
            }
        }
        put_wide<N>(dx + at.x + row.rest * g.row + in_row.rest * N * last.x, sum, adds);
    }
}

/* May N neighbours of `axis` move at once? */
static bool gather_packs(const ckpt_gather *g, const ckpt_gather_axis *axis, int64_t width)
{
    bool packs = axis->x == 1 && axis->y == 1 && axis->id == 0 && axis->dim % width == 0 && g->row % width == 0;
    for (int i = 0; i < g->out_count; i++) {
        packs = packs && (g->out[i].y == 1 || (g->out[i].x % width == 0 && g->out[i].y % width == 0));
    }
    for (int i = 0; i < g->kept_count; i++) {
        packs = packs &&
                (&g->kept[i] == axis || g->kept[i].x == 1 || (g->kept[i].x % width == 0 && g->kept[i].y % width == 0));
    }
    return packs;
}

template <typename T, int N> static void launch_forward(const ckpt_kernel_args *args, const ckpt_gather *g)
{
    CKPT_LAUNCH_ITEMS(cuda_of(args), (gather_forward<T, N>), ckpt_shape_count(&args->node->out[0].shape) / N, *g,
                      (const T *)args->in[0], (const int32_t *)args->in[1], (T *)args->out[0]);
}

template <typename T> static void start_forward(const ckpt_kernel_args *args)
{
    enum { WIDTH = pack<T>::count };
    const ckpt_gather g = ckpt_gather_of(args->node);
    gather_packs(&g, &g.out[g.out_count - 1], WIDTH) ? launch_forward<T, WIDTH>(args, &g)
                                                     : launch_forward<T, 1>(args, &g);
}

template <typename T, int N>
static void launch_backward(const ckpt_kernel_args *args, const ckpt_gather *g, const sort_tokens *tokens)
{
    CKPT_LAUNCH_ITEMS(cuda_of(args), (gather_backward<T, N>), ckpt_shape_count(&args->node->in[0].shape) / N, *g,
                      *tokens, (args->grad_in_adds & 1) != 0, (const T *)args->grad_out[0], (T *)args->grad_in[0]);
}

template <typename T> static void start_backward(const ckpt_kernel_args *args)
{
    enum { WIDTH = pack<T>::count };
    const ckpt_gather g = ckpt_gather_of(args->node);
    sort_tokens tokens = {};
    tokens.ids = (const int32_t *)args->in[1];
    tokens.count = g.count;
    tokens.rows = g.rows;
    (void)sort_by_id(cuda_of(args), &tokens, args->workspace);
    gather_packs(&g, &g.kept[g.kept_count - 1], WIDTH) ? launch_backward<T, WIDTH>(args, &g, &tokens)
                                                       : launch_backward<T, 1>(args, &g, &tokens);
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const int64_t ids = ckpt_shape_count(&args->node->in[1].shape);
    if (ids > INT32_MAX) {
        return CKPT_FAIL(err, CKPT_DEVICE, "found %lld ids, wanted at most %d", (long long)ids, INT32_MAX);
    }
    CKPT_BY_DTYPE(args->node->in[0].dtype, start_backward, args);
    return ckpt_cuda_launched("gather backward", err);
}

extern "C" const ckpt_kernel ckpt_cuda_gather = {
    .op = "gather",
    .workspace = op_workspace,
    .forward = CKPT_TYPED(start_forward),
    .backward = backward,
};

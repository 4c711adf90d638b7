/* Reshape and flatten where they are no alias: a tensor of rank 4 lies channels last, so that its elements change
 * places. The order of the elements as written is common to both sides. Between a tensor of rank 4 and another this is
 * a permutation (permute.cuh, with what it costs). Between two of rank 4 every element's place is worked out: the
 * tensor once in and once out, in element by element: bound by memory, or by some 10 divisions for each element. */
#include "kernels/cuda/permute.cuh"

enum { THREADS = 256 };

struct reshape_image {
    int64_t dim[4]; /* N, C, H, W; in memory N, H, W, C */
};

/* In the order of the destination's memory. */
template <typename T>
__global__ void reshape_image_to_image(int64_t count, reshape_image x, reshape_image y, bool adds, const T *from, T *to)
{
    for (int64_t item = first_item(); item < count; item += item_step()) {
        const quotient c = divide(item, y.dim[1]), w = divide(c.whole, y.dim[3]), h = divide(w.whole, y.dim[2]);
        const int64_t number = ((h.whole * y.dim[1] + c.rest) * y.dim[2] + h.rest) * y.dim[3] + w.rest;
        const quotient v = divide(number, x.dim[3]), u = divide(v.whole, x.dim[2]), k = divide(u.whole, x.dim[1]);
        const T value = from[((k.whole * x.dim[2] + u.rest) * x.dim[3] + v.rest) * x.dim[1] + k.rest];
        to[item] = adds ? from_float<T>(to_float(to[item]) + to_float(value)) : value;
    }
}

template <typename T>
static void start(const ckpt_kernel_args *args, const ckpt_shape *from_shape, const ckpt_shape *to_shape, bool adds,
                  const void *from, void *to)
{
    const ckpt_cuda *const cuda = (const ckpt_cuda *)args->context;
    if (from_shape->rank == 4 && to_shape->rank == 4) {
        reshape_image x = {}, y = {};
        memcpy(x.dim, from_shape->dim, sizeof x.dim);
        memcpy(y.dim, to_shape->dim, sizeof y.dim);
        const int64_t count = ckpt_shape_count(to_shape);
        CKPT_LAUNCH(cuda, reshape_image_to_image<T>, grid_for(cuda, count, THREADS), THREADS, 0, count, x, y, adds,
                    (const T *)from, (T *)to);
        return;
    }
    /* Where one side is of rank 4, the other lies as written, which is plain strides over the rank-4 dimensions. */
    const ckpt_shape *const shape = to_shape->rank == 4 ? to_shape : from_shape;
    int64_t plain[CKPT_RANK_MAX], own[CKPT_RANK_MAX], step = 1;
    ckpt_shape_strides(shape, own);
    for (int d = shape->rank - 1; d >= 0; d--) {
        plain[d] = step;
        step *= shape->dim[d];
    }
    const ckpt_walk walk = ckpt_walk_strided(shape->rank, shape->dim, from_shape->rank == 4 ? own : plain,
                                             to_shape->rank == 4 ? own : plain);
    permute_start<T>(cuda, &walk, adds, from, to);
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_node *const node = args->node;
    CKPT_BY_DTYPE(node->in[0].dtype, start, args, &node->in[0].shape, &node->out[0].shape, false, args->in[0],
                  args->out[0]);
    return ckpt_cuda_launched("reshape", err);
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_node *const node = args->node;
    CKPT_BY_DTYPE(node->in[0].dtype, start, args, &node->out[0].shape, &node->in[0].shape,
                  (args->grad_in_adds & 1) != 0, args->grad_out[0], args->grad_in[0]);
    return ckpt_cuda_launched("reshape backward", err);
}

extern "C" const ckpt_kernel ckpt_cuda_reshape = {
    .op = "reshape",
    .forward = forward,
    .backward = backward,
};

extern "C" const ckpt_kernel ckpt_cuda_flatten = {
    .op = "flatten",
    .forward = forward,
    .backward = backward,
};

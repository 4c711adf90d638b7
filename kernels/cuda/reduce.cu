/* sum, mean and max over dims. How, and at what cost: reduce.cuh; backward of sums is a copy, permute.cuh. Backward of max
 * writes zeros and one element for each output. */
#include "kernels/cuda/permute.cuh"
#include "kernels/cuda/reduce.cuh"

template <typename T, bool MEAN> static void start_sum(const ckpt_kernel_args *args)
{
    const ckpt_reduction r = ckpt_reduction_of_axes(args->node);
    reduce_to<T, reduce_sum> to = {};
    to.y = (T *)args->out[0];
    to.divisor = MEAN ? (float)r.terms : 1;
    reduce_start<T, reduce_sum>(cuda_of(args), &r, args->in[0], args->workspace, to);
}

template <typename T, bool MEAN> static void start_spread(const ckpt_kernel_args *args)
{
    permute_backward<T>(args, ckpt_walk_spread(args->node, MEAN));
}

template <typename T> static void start_max(const ckpt_kernel_args *args)
{
    const ckpt_reduction r = ckpt_reduction_of_axes(args->node);
    reduce_to<T, reduce_max> to = {};
    to.y = (T *)args->out[0];
    to.index = (int32_t *)args->saved[0];
    reduce_start<T, reduce_max>(cuda_of(args), &r, args->in[0], args->workspace, to);
}

template <typename T>
__global__ void max_backward(int64_t outputs, ckpt_reduction r, const T *dy, const int32_t *index, T *dx)
{
    for (int64_t output = first_item(); output < outputs; output += item_step()) {
        const int64_t at = reduce_offset<true>(r.kept, r.kept_count, output);
        T *const to = dx + reduce_offset<false>(r.kept, r.kept_count, output) +
                      reduce_offset<false>(r.reduced, r.reduced_count, index[at]);
        *to = from_float<T>(to_float(*to) + to_float(dy[at]));
    }
}

template <typename T> static void start_max_backward(const ckpt_kernel_args *args)
{
    const ckpt_reduction r = ckpt_reduction_of_axes(args->node);
    CKPT_LAUNCH_ITEMS(cuda_of(args), max_backward<T>, r.outputs, r, (const T *)args->grad_out[0],
                      (const int32_t *)args->saved[0], (T *)args->grad_in[0]);
}

static ckpt_code max_backward_all(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_cuda *const cuda = cuda_of(args);
    const ckpt_tensor *const x = &args->node->in[0];
    if ((args->grad_in_adds & 1) == 0) {
        const cudaError_t cleared =
            cudaMemsetAsync(args->grad_in[0], 0, (size_t)ckpt_tensor_bytes(x), cuda->stream[CKPT_STREAM_COMPUTE]);
        cuda->launched->copies++;
        CKPT_TRY(ckpt_cuda_check(cleared, "clearing the gradient", err));
    }
    CKPT_BY_DTYPE(x->dtype, start_max_backward, args);
    return ckpt_cuda_launched("max backward", err);
}

#define SUM(start, mean) run_typed<start<float, mean>, start<bf16, mean>>

extern "C" const ckpt_kernel ckpt_cuda_sum = {
    .op = "sum",
    .workspace = op_workspace,
    .forward = SUM(start_sum, false),
    .backward = SUM(start_spread, false),
};

extern "C" const ckpt_kernel ckpt_cuda_mean = {
    .op = "mean",
    .workspace = op_workspace,
    .forward = SUM(start_sum, true),
    .backward = SUM(start_spread, true),
};

extern "C" const ckpt_kernel ckpt_cuda_max = {
    .op = "max",
    .workspace = op_workspace,
    .forward = CKPT_TYPED(start_max),
    .backward = max_backward_all,
};

/* Linear: three products by cuBLASLt (blas.c), the bias in the forward product's epilogue, its gradient by column sums.
 * A bfloat16 model multiplies bfloat16 copies of the weights and gets its weight gradient in float32. A product of
 * [rows x in] [in x out] is 2 rows in out FLOP and moves each matrix once: bound by arithmetic from a few hundred rows
 * on, by memory below. The products that add exist beside those that overwrite, as on the CPU. */
#include "kernels/cuda/blas_layer.cuh"

namespace
{

/* [adds] */
struct linear_state {
    ckpt_blas_product *forward, *input[2], *weight[2];
};

struct linear_sizes {
    int64_t rows, in, out;
};

/* The features that fill the gap between rows of y count as the layer's own, in all three products (ckpt_node_pitch):
 * y and dy lie along the features, and with a stride alone that dimension would stay odd. */
linear_sizes linear_sizes_of(const ckpt_node *node)
{
    const int64_t in = node->param[0].tensor.shape.dim[1], rows = ckpt_shape_count(&node->in[0].shape) / in;
    return {rows, in, ckpt_tensor_room(&node->out[0]) / rows};
}

ckpt_code linear_fill(linear_state *state, ckpt_cuda *cuda, const ckpt_node *node, ckpt_bytes forward,
                      ckpt_bytes backward, ckpt_err *err)
{
    const linear_sizes s = linear_sizes_of(node);
    const ckpt_dtype dtype = node->in[0].dtype;
    const bool bias = node->param_count > 1;
    const ckpt_blas_shape y = blas_of(s.rows, s.out, s.in, false, true, dtype, dtype, bias, false);
    CKPT_TRY(ckpt_blas_product_create(cuda, &y, forward, &state->forward, err));
    for (int adds = 0; adds < 2; adds++) {
        const ckpt_blas_shape dw = blas_of(s.out, s.in, s.rows, true, false, dtype, CKPT_FLOAT32, false, adds == 1);
        const ckpt_blas_shape dx = blas_of(s.rows, s.in, s.out, false, false, dtype, dtype, false, adds == 1);
        CKPT_TRY(ckpt_blas_product_create(cuda, &dw, backward, &state->weight[adds], err));
        if ((node->grad_in & 1) != 0) {
            CKPT_TRY(ckpt_blas_product_create(cuda, &dx, backward, &state->input[adds], err));
        }
    }
    return CKPT_OK;
}

void linear_release(void *state)
{
    linear_state *const l = (linear_state *)state;
    if (l == NULL) {
        return;
    }
    ckpt_blas_product_destroy(l->forward);
    for (int adds = 0; adds < 2; adds++) {
        ckpt_blas_product_destroy(l->input[adds]);
        ckpt_blas_product_destroy(l->weight[adds]);
    }
    ckpt_memory_put(l);
}

ckpt_code linear_prepare(void *context, const ckpt_node *node, ckpt_bytes forward, ckpt_bytes backward, void **state,
                         ckpt_err *err)
{
    linear_state *const l = (linear_state *)ckpt_memory_get(sizeof *l);
    if (l == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%zu bytes for layer %s", sizeof *l, node->name);
    }
    /* The allowance is cuBLAS's own recommendation, less where the matrices are small: more brings nothing. */
    const ckpt_code code =
        linear_fill(l, (ckpt_cuda *)context, node, forward < 0 ? node->forward_workspace_bytes : forward,
                    backward < 0 ? node->backward_workspace_bytes : backward, err);
    if (code != CKPT_OK) {
        linear_release(l);
        return code;
    }
    *state = l;
    return CKPT_OK;
}

void linear_workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const linear_state *const l = (const linear_state *)state;
    const linear_sizes s = linear_sizes_of(node);
    *forward = ckpt_blas_product_workspace(l->forward);
    *backward = node->param_count > 1 ? ckpt_gpu_column_sums_workspace(s.rows, s.out) : 0;
    for (int adds = 0; adds < 2; adds++) {
        *backward = blas_most(*backward, l->weight[adds]);
        *backward = blas_most(*backward, l->input[adds]);
    }
}

ckpt_code linear_forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const linear_state *const l = (const linear_state *)args->state;
    const void *const bias = args->node->param_count > 1 ? blas_param(args, 1) : NULL;
    return ckpt_blas_product_run(l->forward, args->in[0], blas_param(args, 0), args->out[0], bias, args->workspace,
                                 err);
}

/* One after the other on one stream, so they share the workspace. */
ckpt_code linear_backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const linear_state *const l = (const linear_state *)args->state;
    const ckpt_node *const node = args->node;
    const void *const dy = args->grad_out[0];
    const int weight_adds = (int)(args->grad_param_adds & 1), input_adds = (int)(args->grad_in_adds & 1);
    CKPT_TRY(ckpt_blas_product_run(l->weight[weight_adds], dy, args->in[0], args->grad_param[0], NULL, args->workspace,
                                   err));
    if (node->param_count > 1) {
        const linear_sizes s = linear_sizes_of(node);
        CKPT_TRY(ckpt_cuda_column_sums((ckpt_cuda *)args->context, node->in[0].dtype, s.rows, s.out, dy,
                                       args->grad_param[1], (args->grad_param_adds & 2) != 0, args->workspace, err));
    }
    if (args->grad_in[0] != NULL) {
        CKPT_TRY(ckpt_blas_product_run(l->input[input_adds], dy, blas_param(args, 0), args->grad_in[0], NULL,
                                       args->workspace, err));
    }
    return CKPT_OK;
}

} // namespace

CKPT_TABLE_ENTRY const ckpt_kernel ckpt_cuda_linear;
const ckpt_kernel ckpt_cuda_linear = {
    .op = "linear",
    .prepare = linear_prepare,
    .release = linear_release,
    .workspace = linear_workspace,
    .forward = linear_forward,
    .backward = linear_backward,
};

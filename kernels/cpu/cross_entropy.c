/* Softmax and negative log-likelihood in one, over rows of contiguous classes. Forward saves log-sum-exp of each row
 * and the number of rows that count, so that backward needs one pass: (softmax - one hot) / count. */
#include "kernels/cpu/class_rows.h"
#include "kernels/kernel.h"

static ckpt_class_rows find_rows(const ckpt_kernel_args *args)
{
    const ckpt_shape *const shape = &args->node->in[0].shape;
    const int64_t classes = shape->rank == 4 ? shape->dim[1] : shape->dim[shape->rank - 1]; /* contiguous either way */
    return (ckpt_class_rows){.count = ckpt_shape_count(shape) / classes,
                             .classes = classes,
                             .target = args->in[1],
                             .ignore = ckpt_node_int(args->node, "ignore_index"),
                             .smoothing = ckpt_node_float(args->node, "label_smoothing"),
                             .dtype = args->node->in[0].dtype,
                             .threads = args->node->threads};
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_class_rows rows = find_rows(args);
    int64_t counted = 0;
    CKPT_TRY(ckpt_class_rows_check(&rows, &counted, err));
    const double total = ckpt_class_rows_loss(&rows, args->in[0], args->saved[0]);
    *(float *)args->saved[1] = (float)counted;
    *(float *)args->out[0] = (float)(total / (double)counted); /* no row counts: NaN, as in PyTorch */
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_class_rows rows = find_rows(args);
    int64_t now = 0; /* not used: forward has counted; the check guards the write to dx[target] */
    CKPT_TRY(ckpt_class_rows_check(&rows, &now, err));
    const float counted = *(const float *)args->saved[1];
    const float scale = (args->grad_out[0] != NULL ? *(const float *)args->grad_out[0] : 1.0f) / counted;
    ckpt_class_rows_gradient(&rows, args->in[0], args->saved[0], scale, args->grad_in[0]);
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_cross_entropy = {
    .op = "cross_entropy",
    .forward = forward,
    .backward = backward,
};

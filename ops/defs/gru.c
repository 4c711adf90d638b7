/* gru: a gated recurrent unit over whole sequences. It keeps the three gates after their nonlinearities, and what the
 * state contributes to the third before its gate. */
#include "ops/ops_impl.h"

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    return ckpt_recurrent_infer(node, 3, 1, err);
}

const ckpt_op ckpt_op_gru = {
    .name = "gru",
    .formula =
        "r,z = sigmoid of (x_t W_ih^T + b_ih + h W_hh^T + b_hh), n = tanh(x_t W_in^T + b_in + r (h W_hn^T + b_hn)), "
        "in the order r,z,n; h = (1 - z) n + z h; y_t = h",
    .source = "Cho et al. 2014, arXiv:1406.1078, in the form of torch.nn.GRU, one layer, batch_first",
    .attrs = ckpt_recurrent_attrs,
    .in_min = 1,
    .in_max = 2,
    .param16 = 1u << 0 | 1u << 1,
    .infer = infer,
    .gpu_workspace = ckpt_recurrent_gpu_workspace,
};

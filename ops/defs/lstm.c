/* lstm: a long short-term memory over whole sequences. It keeps the four gates after their nonlinearities and the cell
 * states; backward goes through time from the other end and recomputes tanh of the cell states alone. */
#include "ops/ops_impl.h"

static ckpt_code infer(ckpt_node *node, ckpt_arena *arena, ckpt_err *err)
{
    (void)arena;
    return ckpt_recurrent_infer(node, 4, 2, err);
}

const ckpt_op ckpt_op_lstm = {
    .name = "lstm",
    .formula = "i,f,o = sigmoid, g = tanh of (x_t W_ih^T + b_ih + h W_hh^T + b_hh), in the order i,f,g,o; "
               "c = f c + i g; h = o tanh(c); y_t = h",
    .source = "Hochreiter & Schmidhuber, Neural Computation 9(8), 1997; torch.nn.LSTM, one layer, batch_first",
    .attrs = ckpt_recurrent_attrs,
    .in_min = 1,
    .in_max = 3,
    .param16 = 1u << 0 | 1u << 1,
    .infer = infer,
    .gpu_workspace = ckpt_recurrent_gpu_workspace,
};

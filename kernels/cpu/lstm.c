/* LSTM over sequences: recurrent.c with the rows of lstm_cell. The cell states are kept; tanh of them is made again. */
#include <string.h>

#include "kernels/cpu/lstm_rows.h"
#include "kernels/cpu/recurrent.h"
#include "kernels/cpu/vector.h"

static void forward_row(const ckpt_recurrent_row *row)
{
    ckpt_lstm_forward_row(row->H, row->hidden, row->kept_before, row->gates, row->h, row->h, row->kept);
}

static void backward_row(const ckpt_recurrent_back *row)
{
    ckpt_vector_tanh(row->H, row->kept, row->scratch);
    const ckpt_lstm_back back = {.gates = row->gates,
                                 .tanh_c = row->scratch,
                                 .c = row->kept_before,
                                 .dy = row->dy,
                                 .dh = row->dh,
                                 .dc = row->dc,
                                 .dgates = row->dgates,
                                 .dc_before = row->dc};
    ckpt_lstm_backward_row(row->H, &back);
    memset(row->dh, 0, (size_t)row->H * sizeof(float)); /* all of it goes through the gates */
}

static const ckpt_recurrent_cell cell = {.forward = forward_row, .backward = backward_row};

CKPT_RECURRENT_KERNEL(cell)

const ckpt_kernel ckpt_cpu_lstm = {
    .op = "lstm",
    .state_bytes = sizeof(ckpt_recurrent_state),
    .prepare = prepare,
    .release = ckpt_recurrent_release,
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
};

/* One row's pass over the gates of an LSTM, in the order i, f, g, o, for lstm_cell and lstm. */
#ifndef CKPT_KERNELS_CPU_LSTM_ROWS_H
#define CKPT_KERNELS_CPU_LSTM_ROWS_H

#include <stdint.h>

/* Adds `late` to the gates, unless it is NULL, applies their nonlinearities and makes the new state. c is the cell state
 * before, NULL: zeros. tanh_c and new_h may be one place. */
void ckpt_lstm_forward_row(int64_t H, const float *late, const float *c, float *gates, float *tanh_c, float *new_h,
                           float *new_c);

/* The pointers of one row; dy, dh, dc, c and dc_before may be NULL. What comes to the state is dy + dh. dc_before may be
 * dc. */
typedef struct ckpt_lstm_back {
    const float *gates, *tanh_c, *c, *dy, *dh, *dc;
    float *dgates, *dc_before;
} ckpt_lstm_back;
void ckpt_lstm_backward_row(int64_t H, const ckpt_lstm_back *row);

#endif

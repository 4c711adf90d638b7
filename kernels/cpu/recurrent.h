/* lstm and gru over sequences: products and the walk through time; the ops give one row's pass over its gates, in each
 * direction. */
#ifndef CKPT_KERNELS_CPU_RECURRENT_H
#define CKPT_KERNELS_CPU_RECURRENT_H

#include "kernels/kernel.h"

/* A sequence at a time step, forward. Pointers that may be NULL stand for zeros. */
typedef struct ckpt_recurrent_row {
    int64_t H;
    const float *hidden;      /* what the state before contributes to the gates, and its bias; may be NULL */
    const float *h_before;    /* may be NULL */
    const float *kept_before; /* of lstm: the cell state before; may be NULL */
    float *gates;             /* in: what the input contributes; out: after the nonlinearities */
    float *kept, *h;          /* out: for backward, and the new state */
} ckpt_recurrent_row;

/* The same backward. */
typedef struct ckpt_recurrent_back {
    int64_t H;
    const float *gates, *kept, *kept_before, *h_before; /* the last two may be NULL */
    const float *dy;                                    /* may be NULL */
    float *dh;      /* in: from later steps; out: what goes to the state before past the product of the gates */
    float *dc;      /* in and out, of lstm */
    float *scratch; /* H numbers */
    float *dgates;  /* out: the gradient of what the input contributes */
    float *dhidden; /* out: of what the state contributes; where not `apart`, dgates */
} ckpt_recurrent_back;

typedef struct ckpt_recurrent_cell {
    bool apart; /* the two gradients of the gates differ */
    void (*forward)(const ckpt_recurrent_row *row);
    void (*backward)(const ckpt_recurrent_back *row);
} ckpt_recurrent_cell;

enum { CKPT_RECURRENT_CALLS = 6 };

struct ckpt_dnn;
typedef struct ckpt_recurrent_state {
    struct ckpt_dnn *call[CKPT_RECURRENT_CALLS]; /* NULL: not needed */
    ckpt_bytes forward_bytes, backward_bytes;    /* of the products */
} ckpt_recurrent_state;

CKPT_MUST_USE ckpt_code ckpt_recurrent_prepare(ckpt_recurrent_state *state, const ckpt_recurrent_cell *cell,
                                               const ckpt_node *node, ckpt_bytes forward, ckpt_bytes backward,
                                               ckpt_err *err);
void ckpt_recurrent_release(void *state);
void ckpt_recurrent_workspace(const ckpt_recurrent_state *state, const ckpt_recurrent_cell *cell, const ckpt_node *node,
                              ckpt_bytes *forward, ckpt_bytes *backward);
CKPT_MUST_USE ckpt_code ckpt_recurrent_forward(const ckpt_recurrent_cell *cell, const ckpt_kernel_args *args,
                                               ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_recurrent_backward(const ckpt_recurrent_cell *cell, const ckpt_kernel_args *args,
                                                ckpt_err *err);

/* The functions of an op with that cell. */
#define CKPT_RECURRENT_KERNEL(cell)                                                                                    \
    static ckpt_code prepare(void *state, void *context, const ckpt_node *node, ckpt_bytes forward_workspace,          \
                             ckpt_bytes backward_workspace, const char *choice, ckpt_err *err)                         \
    {                                                                                                                  \
        (void)choice; /* none on a CPU */                                                                              \
        (void)context;                                                                                                 \
        return ckpt_recurrent_prepare(state, &(cell), node, forward_workspace, backward_workspace, err);               \
    }                                                                                                                  \
    static void workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward_bytes,                         \
                          ckpt_bytes *backward_bytes)                                                                  \
    {                                                                                                                  \
        ckpt_recurrent_workspace(state, &(cell), node, forward_bytes, backward_bytes);                                 \
    }                                                                                                                  \
    static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)                                              \
    {                                                                                                                  \
        return ckpt_recurrent_forward(&(cell), args, err);                                                             \
    }                                                                                                                  \
    static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)                                             \
    {                                                                                                                  \
        return ckpt_recurrent_backward(&(cell), args, err);                                                            \
    }

#endif

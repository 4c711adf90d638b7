/* One product for the inputs at all times, written to where the gates are saved; then for each time step the product of
 * the state before, and one pass over the gates. Backward goes the other way, leaves the gradients of the gates at all
 * times in workspace, and multiplies those once. A step's product reads them from a matrix without gaps: with gaps oneDNN
 * takes a kernel that packs on the heap. */
#include "kernels/cpu/recurrent.h"

#include <string.h>

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/vector.h"

enum { X_GATES, H_GATES, DX, DH, DW_X, DW_H };

typedef struct sequence {
    int64_t B, T, C, H, G;
    bool given, bias, reverse; /* given: h0, and of lstm c0 */
} sequence;

static sequence describe(const ckpt_node *node)
{
    const ckpt_shape *const x = &node->in[0].shape, *const w = &node->param[1].tensor.shape;
    return (sequence){.B = x->dim[0],
                      .T = x->dim[1],
                      .C = x->dim[2],
                      .H = w->dim[1],
                      .G = w->dim[0],
                      .given = node->in_count > 1,
                      .bias = node->param_count > 2,
                      .reverse = ckpt_node_bool(node, "reverse")};
}

/* The position of step s. */
static int64_t time_of(const sequence *q, int64_t s)
{
    return q->reverse ? q->T - 1 - s : s;
}

static ckpt_bytes floats(int64_t count)
{
    return ckpt_round_up(count * (ckpt_bytes)sizeof(float), CKPT_ALIGN);
}

/* Where everything is in the workspace of one direction; `own` bytes in all, products' behind. */
typedef struct room {
    ckpt_bytes hidden, h; /* forward: [B, G], [B, H] */
    /* backward: [B, T, G] twice, [B, T, H], [B, G], [B, H] three times */
    ckpt_bytes dgates, dhidden, before, step, dh, dc, scratch;
    ckpt_bytes own;
} room;

static ckpt_bytes take(room *r, int64_t count)
{
    const ckpt_bytes at = r->own;
    r->own += floats(count);
    return at;
}

static room forward_room(const sequence *q)
{
    room r = {0};
    r.hidden = take(&r, q->B * q->G);
    r.h = take(&r, q->B * q->H);
    return r;
}

static room backward_room(const ckpt_recurrent_cell *cell, const sequence *q)
{
    room r = {0};
    r.dgates = take(&r, q->B * q->T * q->G);
    r.dhidden = cell->apart ? take(&r, q->B * q->T * q->G) : r.dgates;
    r.before = take(&r, q->B * q->T * q->H);
    r.step = take(&r, q->B * q->G);
    r.dh = take(&r, q->B * q->H);
    r.dc = take(&r, q->B * q->H);
    r.scratch = take(&r, q->B * q->H);
    return r;
}

static ckpt_code make(ckpt_recurrent_state *state, int which, ckpt_dnn_matrix x, ckpt_dnn_matrix w, ckpt_dnn_matrix y,
                      bool bias, int threads, ckpt_bytes limit, ckpt_err *err)
{
    CKPT_TRY(ckpt_dnn_matmul(&x, &w, &y, bias, which == DH, threads, limit, &state->call[which], err));
    const ckpt_bytes used = ckpt_dnn_workspace(state->call[which]);
    ckpt_bytes *const most = which <= H_GATES ? &state->forward_bytes : &state->backward_bytes;
    *most = used > *most ? used : *most;
    return CKPT_OK;
}

/* What is left for products of `given` bytes; -1 stays -1, no limit. */
static ckpt_bytes rest_of(ckpt_bytes given, ckpt_bytes own)
{
    return given < 0 ? -1 : given > own ? given - own : 0;
}

ckpt_code ckpt_recurrent_prepare(ckpt_recurrent_state *state, const ckpt_recurrent_cell *cell, const ckpt_node *node,
                                 ckpt_bytes forward, ckpt_bytes backward, ckpt_err *err)
{
    const sequence q = describe(node);
    const int64_t B = q.B, C = q.C, H = q.H, G = q.G, rows = q.B * q.T;
    const int threads = node->threads;
    const ckpt_bytes ahead = rest_of(forward, forward_room(&q).own),
                     back = rest_of(backward, backward_room(cell, &q).own);
    CKPT_TRY(make(state, X_GATES, ckpt_dnn_plain(rows, C, CKPT_FLOAT32), ckpt_dnn_turned(G, C, CKPT_FLOAT32),
                  ckpt_dnn_plain(rows, G, CKPT_FLOAT32), q.bias, threads, ahead, err));
    CKPT_TRY(make(state, H_GATES, ckpt_dnn_plain(B, H, CKPT_FLOAT32), ckpt_dnn_turned(G, H, CKPT_FLOAT32),
                  ckpt_dnn_plain(B, G, CKPT_FLOAT32), q.bias, threads, ahead, err));
    CKPT_TRY(make(state, DW_X, ckpt_dnn_turned(rows, G, CKPT_FLOAT32), ckpt_dnn_plain(rows, C, CKPT_FLOAT32),
                  ckpt_dnn_plain(G, C, CKPT_FLOAT32), false, threads, back, err));
    CKPT_TRY(make(state, DW_H, ckpt_dnn_turned(rows, G, CKPT_FLOAT32), ckpt_dnn_plain(rows, H, CKPT_FLOAT32),
                  ckpt_dnn_plain(G, H, CKPT_FLOAT32), false, threads, back, err));
    CKPT_TRY(make(state, DH, ckpt_dnn_plain(B, G, CKPT_FLOAT32), ckpt_dnn_plain(G, H, CKPT_FLOAT32),
                  ckpt_dnn_plain(B, H, CKPT_FLOAT32), false, threads, back, err));
    return (node->grad_in & 1) == 0
               ? CKPT_OK
               : make(state, DX, ckpt_dnn_plain(rows, G, CKPT_FLOAT32), ckpt_dnn_plain(G, C, CKPT_FLOAT32),
                      ckpt_dnn_plain(rows, C, CKPT_FLOAT32), false, threads, back, err);
}

void ckpt_recurrent_release(void *memory)
{
    const ckpt_recurrent_state *const state = memory;
    for (int i = 0; i < CKPT_RECURRENT_CALLS; i++) {
        ckpt_dnn_destroy(state->call[i]);
    }
}

void ckpt_recurrent_workspace(const ckpt_recurrent_state *state, const ckpt_recurrent_cell *cell, const ckpt_node *node,
                              ckpt_bytes *forward, ckpt_bytes *backward)
{
    const sequence q = describe(node);
    *forward = forward_room(&q).own + state->forward_bytes;
    *backward = backward_room(cell, &q).own + state->backward_bytes;
}

static ckpt_code product(const ckpt_kernel_args *args, int which, const void *x, const void *w, void *y,
                         const void *bias, ckpt_bytes own, ckpt_err *err)
{
    const ckpt_recurrent_state *const state = args->state;
    const void *const pointer[4] = {x, w, y, bias};
    return ckpt_dnn_run(state->call[which], pointer, (char *)args->workspace + own, err);
}

static float *at(const ckpt_kernel_args *args, ckpt_bytes offset)
{
    return (float *)(void *)((char *)args->workspace + offset);
}

/* Row n of a state [B, H]; NULL stays NULL. */
static const float *state_row(const float *state, int64_t n, int64_t H)
{
    return state != NULL ? state + n * H : NULL;
}

/* The pass over one time step: step s at time t, behind the one at `past` (s > 0). */
static void forward_step(const ckpt_recurrent_cell *cell, const ckpt_kernel_args *args, const sequence *q, int64_t s,
                         const float *hidden, const float *bias, float *h)
{
    const int64_t H = q->H, t = time_of(q, s), past = s > 0 ? time_of(q, s - 1) : 0;
    float *const gates = args->saved[0], *const kept = args->saved[1], *const y = args->out[0];
    const float *const h0 = q->given ? args->in[1] : NULL;
    const float *const c0 = args->node->in_count > 2 ? args->in[2] : NULL;
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (q->B * H > CKPT_PARALLEL / 8)
    for (int64_t n = 0; n < q->B; n++) {
        const int64_t row = n * q->T + t, row_before = n * q->T + past;
        const ckpt_recurrent_row one = {
            .H = H,
            .hidden = hidden != NULL ? hidden + n * q->G : bias,
            .h_before = s > 0 ? y + row_before * H : state_row(h0, n, H),
            .kept_before = s > 0 ? kept + row_before * H : state_row(c0, n, H),
            .gates = gates + row * q->G,
            .kept = kept + row * H,
            .h = y + row * H,
        };
        cell->forward(&one);
        memcpy(h + n * H, one.h, (size_t)H * sizeof(float));
        if (s == q->T - 1) {
            memcpy((float *)args->out[1] + n * H, one.h, (size_t)H * sizeof(float));
        }
        if (s == q->T - 1 && args->node->out_count > 2) {
            memcpy((float *)args->out[2] + n * H, one.kept, (size_t)H * sizeof(float));
        }
    }
}

ckpt_code ckpt_recurrent_forward(const ckpt_recurrent_cell *cell, const ckpt_kernel_args *args, ckpt_err *err)
{
    const sequence q = describe(args->node);
    const room r = forward_room(&q);
    float *const hidden = at(args, r.hidden), *const h = at(args, r.h);
    const float *const bias_ih = q.bias ? args->param[2] : NULL, *const bias_hh = q.bias ? args->param[3] : NULL;
    CKPT_TRY(product(args, X_GATES, args->in[0], args->param[0], args->saved[0], bias_ih, r.own, err));
    for (int64_t s = 0; s < q.T; s++) {
        const void *const before = s > 0 ? h : q.given ? args->in[1] : NULL;
        if (before != NULL) {
            CKPT_TRY(product(args, H_GATES, before, args->param[1], hidden, bias_hh, r.own, err));
        }
        forward_step(cell, args, &q, s, before != NULL ? hidden : NULL, bias_hh, h);
    }
    return CKPT_OK;
}

static void backward_step(const ckpt_recurrent_cell *cell, const ckpt_kernel_args *args, const sequence *q,
                          const room *r, int64_t s)
{
    const int64_t H = q->H, t = time_of(q, s), past = s > 0 ? time_of(q, s - 1) : 0;
    const float *const gates = args->saved[0], *const kept = args->saved[1], *const y = args->out[0];
    const float *const dy = args->grad_out[0], *const h0 = q->given ? args->in[1] : NULL;
    const float *const c0 = args->node->in_count > 2 ? args->in[2] : NULL;
#pragma omp parallel for schedule(static) num_threads(args->node->threads) if (q->B * H > CKPT_PARALLEL / 8)
    for (int64_t n = 0; n < q->B; n++) {
        const int64_t row = n * q->T + t, row_before = n * q->T + past;
        float *const before = at(args, r->before) + row * H;
        const ckpt_recurrent_back one = {
            .H = H,
            .gates = gates + row * q->G,
            .kept = kept + row * H,
            .kept_before = s > 0 ? kept + row_before * H : state_row(c0, n, H),
            .h_before = s > 0 ? y + row_before * H : state_row(h0, n, H),
            .dy = dy != NULL ? dy + row * H : NULL,
            .dh = at(args, r->dh) + n * H,
            .dc = at(args, r->dc) + n * H,
            .scratch = at(args, r->scratch) + n * H,
            .dgates = at(args, r->dgates) + row * q->G,
            .dhidden = at(args, r->dhidden) + row * q->G,
        };
        cell->backward(&one);
        memcpy(at(args, r->step) + n * q->G, one.dhidden, (size_t)q->G * sizeof(float));
        if (one.h_before != NULL) {
            memcpy(before, one.h_before, (size_t)H * sizeof(float));
        } else {
            memset(before, 0, (size_t)H * sizeof(float));
        }
    }
}

/* What comes from behind the sequence; output k's gradient may be absent. */
static void start_carry(const ckpt_kernel_args *args, int k, int64_t count, float *carry)
{
    const void *const from = k < args->node->out_count ? args->grad_out[k] : NULL;
    if (from != NULL) {
        memcpy(carry, from, (size_t)count * sizeof(float));
    } else {
        memset(carry, 0, (size_t)count * sizeof(float));
    }
}

static void end_carry(const ckpt_kernel_args *args, int k, int64_t count, const float *carry)
{
    if (k < args->node->in_count && args->grad_in[k] != NULL) {
        memcpy(args->grad_in[k], carry, (size_t)count * sizeof(float));
    }
}

ckpt_code ckpt_recurrent_backward(const ckpt_recurrent_cell *cell, const ckpt_kernel_args *args, ckpt_err *err)
{
    const sequence q = describe(args->node);
    const room r = backward_room(cell, &q);
    float *const dh = at(args, r.dh), *const dc = at(args, r.dc), *const dgates = at(args, r.dgates);
    float *const dhidden = at(args, r.dhidden);
    start_carry(args, 1, q.B * q.H, dh);
    start_carry(args, 2, q.B * q.H, dc);
    for (int64_t s = q.T - 1; s >= 0; s--) {
        backward_step(cell, args, &q, &r, s);
        if (s > 0 || q.given) {
            CKPT_TRY(product(args, DH, at(args, r.step), args->param[1], dh, NULL, r.own, err));
        }
    }
    end_carry(args, 1, q.B * q.H, dh);
    end_carry(args, 2, q.B * q.H, dc);
    if (args->grad_in[0] != NULL) {
        CKPT_TRY(product(args, DX, dgates, args->param[0], args->grad_in[0], NULL, r.own, err));
    }
    CKPT_TRY(product(args, DW_X, dgates, args->in[0], args->grad_param[0], NULL, r.own, err));
    CKPT_TRY(product(args, DW_H, dhidden, at(args, r.before), args->grad_param[1], NULL, r.own, err));
    if (q.bias) {
        ckpt_column_sums(CKPT_FLOAT32, q.B * q.T, q.G, dgates, args->grad_param[2], false, args->node->threads);
        ckpt_column_sums(CKPT_FLOAT32, q.B * q.T, q.G, dhidden, args->grad_param[3], false, args->node->threads);
    }
    return CKPT_OK;
}

/* Attention on a GPU: chooses cuDNN or our own kernels, and among the latter; and computes delta = rowsum(dO o), which
 * backward needs first (reads 2 tensors for 2 FLOP per element: bound by memory). Our kernels make no T x T matrix;
 * their workspace is delta, float32 [B, heads, T].
 *
 * Forward and backward of a layer use the same side. Without a measured choice (ckpt-profile) this is cuDNN on compute
 * capability 9.0, where its kernels use warp-group products and ours do not, and our own kernels elsewhere. On 8.x, and
 * for the reproducible backward on 10.0, cuDNN's heuristics choose kernels like ours (mma.sync, sm_80 in their names),
 * which also write dS to memory. CKPT_ATTENTION=own or cudnn overrides this. */
#include "kernels/cuda/attention.cuh"

#include <cstdlib>

extern "C" {
#include "kernels/cuda/choice.h"
#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/trial.h"
}

namespace
{

enum { THREADS = 256, GROUP = 8 /* lanes per row of a head */ };

template <typename E> __global__ void attention_delta(attention_call c)
{
    const int64_t item = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / GROUP; /* (b T + i) heads + h */
    const int lane = (int)threadIdx.x % GROUP;
    const int64_t row = item / c.heads, h = item % c.heads, at = row * c.C + h * c.D;
    const bool inside = row < c.B * c.T;
    const E *const o = (const E *)c.o + at, *const dO = (const E *)c.dO + at;
    float sum = 0;
    if (inside && c.D % pack<E>::count == 0) {
        for (int64_t d = lane * pack<E>::count; d < c.D; d += GROUP * pack<E>::count) {
            const pack<E> a = load16(o + d), b = load16(dO + d);
            for (int i = 0; i < pack<E>::count; i++) {
                sum += to_float(a.at[i]) * to_float(b.at[i]);
            }
        }
    } else if (inside) {
        for (int64_t d = lane; d < c.D; d += GROUP) {
            sum += to_float(o[d]) * to_float(dO[d]);
        }
    }
    for (int step = GROUP / 2; step > 0; step /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    }
    if (inside && lane == 0) {
        c.delta[(row / c.T * c.heads + h) * c.T + row % c.T] = sum;
    }
}

template <typename E> void start_delta(const ckpt_cuda *cuda, const attention_call *call)
{
    const int64_t blocks = (call->B * call->T * call->heads * GROUP + THREADS - 1) / THREADS;
    CKPT_LAUNCH(cuda, attention_delta<E>, (unsigned)blocks, THREADS, 0, *call);
}

/* q, k and v side by side in one tensor, or each in its own. */
void *part_of(void *fused, void *own, const ckpt_node *node, int64_t at)
{
    if (at == 0 || fused == NULL) {
        return own;
    }
    return (unsigned char *)fused + at * ckpt_dtype_bytes(node->in[0].dtype);
}

attention_call open_call(const ckpt_kernel_args *args)
{
    const ckpt_node *const node = args->node;
    const ckpt_attention_sizes z = ckpt_attention_sizes_of(node);
    const double drop = args->evaluating ? 0 : ckpt_node_float(node, "dropout");
    attention_call c = {};
    c.B = z.B;
    c.T = z.T;
    c.S = z.S;
    c.C = z.heads * z.D;
    c.heads = z.heads;
    c.group = z.heads / z.kv_heads;
    c.D = z.D;
    c.q_row = z.q_row;
    c.kv_row = z.kv_row;
    c.window = z.window;
    c.causal = z.causal;
    c.drops = drop > 0;
    c.scale = (float)z.scale;
    c.log2_scale = (float)(1.4426950408889634 * z.scale);
    c.keep = (float)(1 / (1 - drop));
    c.threshold = drop > 0 ? (uint32_t)ckpt_philox_threshold(drop) : 0;
    c.layer = (uint32_t)node->index;
    c.counters = ((const ckpt_cuda *)args->context)->counters;
    c.q = args->in[0];
    c.k = part_of((void *)args->in[0], z.fused ? NULL : (void *)args->in[1], node, z.k_at);
    c.v = part_of((void *)args->in[0], z.fused ? NULL : (void *)args->in[2], node, z.v_at);
    c.bias = z.bias < 0 ? NULL : args->in[z.bias];
    c.mask = z.mask < 0 ? NULL : (const int32_t *)args->in[z.mask];
    c.mask_count = z.mask_count;
    c.mask_step = z.mask_step;
    c.mask_row = z.mask_row;
    c.o = args->out[0];
    c.lse = (float *)args->saved[0];
    return c;
}

/* True if rows are multiples of 16 bytes, a head fits the registers, and there is neither bias nor mask. */
bool is_tiled(const attention_call *call, ckpt_dtype dtype)
{
    return call->D <= 128 && call->D * ckpt_dtype_bytes(dtype) % 16 == 0 && call->bias == NULL && call->mask == NULL;
}

/* ------------------------------------------------------------------------------------------------- cuDNN */

enum { OWN, LIBRARY, SIDES };

struct attention_state {
    bool possible;                                  /* cuDNN can compute it; else there is no choice */
    int side;                                       /* in use */
    const ckpt_cudnn_attention *forward, *backward; /* cuDNN's, if tried; backward if a gradient is wanted */
    int64_t at_once;                                /* of batch * heads: how many backward takes at once */
    ckpt_ns took[SIDES];                            /* measured by tuning so far; -1: wrong results */
    char choice[CKPT_CHOICE_TEXT];
    char remark[sizeof(((ckpt_err *)0)->msg)];
};

ckpt_bytes delta_bytes(int64_t queries)
{
    return ckpt_round_up(4 * queries, 256);
}

ckpt_bytes library_bytes(const attention_state *state, int64_t tokens)
{
    return state->backward == NULL
               ? 0
               : delta_bytes(state->at_once * tokens) + ckpt_cudnn_attention_workspace(state->backward);
}

ckpt_code get_library(attention_state *state, ckpt_cuda *cuda, const ckpt_node *node, ckpt_err *err)
{
    const ckpt_shape *const y = &node->out[0].shape;
    ckpt_cudnn_attention_shape s = {};
    s.batch = y->dim[0];
    s.heads = ckpt_node_int(node, "heads");
    s.tokens = y->dim[1];
    s.size = y->dim[2] / s.heads;
    s.in_row = node->in[0].shape.dim[2];
    s.out_row = y->dim[2];
    s.causal = ckpt_node_bool(node, "causal");
    CKPT_TRY(ckpt_cudnn_attention_get(cuda, &s, &state->forward, err));
    state->at_once = ckpt_gpu_attention_heads(s.batch, s.heads, s.tokens);
    s.batch = state->at_once > s.heads ? state->at_once / s.heads : 1;
    s.heads = state->at_once > s.heads ? s.heads : state->at_once;
    s.backward = true;
    return node->grad_in == 0 ? CKPT_OK : ckpt_cudnn_attention_get(cuda, &s, &state->backward, err);
}

/* cuDNN writes all three gradients. */
bool wants_all_or_none(const ckpt_node *node)
{
    const uint64_t all = ((uint64_t)1 << node->in_count) - 1;
    return node->grad_in == 0 || node->grad_in == all;
}

bool is_possible(const ckpt_node *node)
{
    return ckpt_gpu_attention_library(node) && wants_all_or_none(node);
}

/* CKPT_DEVICE: cuDNN cannot compute it, or not in this workspace; `err` has the reason. */
ckpt_code try_library(attention_state *state, ckpt_cuda *cuda, const ckpt_node *node, ckpt_bytes forward,
                      ckpt_bytes backward, ckpt_err *err)
{
    if (!state->possible) {
        return CKPT_FAIL(err, CKPT_DEVICE,
                         "cuDNN is for bfloat16 without dropout, heads of 8, 16, ... 128, and all "
                         "gradients wanted or none");
    }
    CKPT_TRY(get_library(state, cuda, node, err));
    const ckpt_bytes first = ckpt_cudnn_attention_workspace(state->forward);
    const ckpt_bytes second = library_bytes(state, node->out[0].shape.dim[1]);
    if ((forward >= 0 && first > forward) || (backward >= 0 && second > backward)) {
        return CKPT_FAIL(err, CKPT_DEVICE, "cuDNN wants %lld and %lld bytes of workspace, %lld and %lld are planned",
                         (long long)first, (long long)second, (long long)forward, (long long)backward);
    }
    return CKPT_OK;
}

void use_side(attention_state *state, int side)
{
    char heads[32];
    state->side = side;
    state->choice[0] = '\0';
    if (side == OWN) {
        snprintf(state->choice, sizeof state->choice, "%s", state->possible ? "own" : "");
        return;
    }
    ckpt_choice_add(state->choice, "forward", ckpt_cudnn_attention_engine(state->forward));
    if (state->backward != NULL) {
        snprintf(heads, sizeof heads, "%lld", (long long)state->at_once);
        ckpt_choice_add(state->choice, "backward", ckpt_cudnn_attention_engine(state->backward));
        ckpt_choice_add(state->choice, "heads", heads);
    }
}

ckpt_code prefers_library(const ckpt_cuda *cuda, const ckpt_node *node, bool *library, ckpt_err *err)
{
    const char *const asked = getenv("CKPT_ATTENTION");
    *library = asked != NULL ? strcmp(asked, "cudnn") == 0 : cuda->capability == 90 && is_possible(node);
    if (asked != NULL && !*library && strcmp(asked, "own") != 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "CKPT_ATTENTION is \"%.40s\", wanted own or cudnn", asked);
    }
    return CKPT_OK;
}

ckpt_code prepare(void *memory, void *context, const ckpt_node *node, ckpt_bytes forward, ckpt_bytes backward,
                  const char *choice, ckpt_err *err)
{
    attention_state *const state = (attention_state *)memory;
    ckpt_err refusal = {};
    bool library = choice != NULL && strcmp(choice, "own") != 0;
    state->possible = is_possible(node);
    if (choice == NULL) {
        CKPT_TRY(prefers_library((ckpt_cuda *)context, node, &library, err));
    }
    if (library) {
        const ckpt_code code = try_library(state, (ckpt_cuda *)context, node, forward, backward, &refusal);
        if (code == CKPT_OK) {
            use_side(state, LIBRARY);
            return CKPT_OK;
        }
        if (code == CKPT_NO_MEMORY || choice != NULL) {
            return CKPT_FAIL(err, code, "%s", refusal.msg);
        }
        snprintf(state->remark, sizeof state->remark, "own kernels: %.480s", refusal.msg);
    }
    use_side(state, OWN);
    return CKPT_OK;
}

const char *remark(const void *state)
{
    return ((const attention_state *)state)->remark;
}

const char *choice(const void *state)
{
    return ((const attention_state *)state)->choice;
}

/* The tensors from head h of sequence b on. */
ckpt_cudnn_attention_tensors tensors_from(const attention_call *c, int64_t b, int64_t h)
{
    const int64_t in = 2 * (b * c->T * c->q_row + h * c->D), out = 2 * (b * c->T * c->C + h * c->D);
    ckpt_cudnn_attention_tensors t = {};
    t.q = (const char *)c->q + in;
    t.k = (const char *)c->k + in;
    t.v = (const char *)c->v + in;
    t.o = (char *)c->o + out;
    t.lse = c->lse + (b * c->heads + h) * c->T;
    if (c->dO != NULL) {
        t.dO = (const char *)c->dO + out;
        t.dq = (char *)c->dq + in;
        t.dk = (char *)c->dk + in;
        t.dv = (char *)c->dv + in;
        t.delta = c->delta;
    }
    return t;
}

ckpt_code library_backward(const attention_state *state, const attention_call *c, void *workspace, ckpt_err *err)
{
    char *const rest = (char *)workspace + delta_bytes(state->at_once * c->T);
    for (int64_t first = 0; first < c->B * c->heads; first += state->at_once) {
        const ckpt_cudnn_attention_tensors t = tensors_from(c, first / c->heads, first % c->heads);
        CKPT_TRY(ckpt_cudnn_attention_run(state->backward, &t, rest, err));
    }
    return CKPT_OK;
}

/* ----------------------------------------------------------------------------------------------- directions */

ckpt_code own_forward(const ckpt_kernel_args *args, const attention_call *call, ckpt_err *err)
{
    const ckpt_cuda *const cuda = (const ckpt_cuda *)args->context;
    const ckpt_dtype dtype = args->node->in[0].dtype;
    if (!is_tiled(call, dtype) || !ckpt_attention_forward(cuda, dtype, call)) {
        ckpt_attention_plain_forward(cuda, dtype, call);
    }
    return ckpt_cuda_launched("attention", err);
}

/* The plain kernels take what the tiled ones do not. */
ckpt_code own_backward(const ckpt_kernel_args *args, const attention_call *call, ckpt_err *err)
{
    const ckpt_cuda *const cuda = (const ckpt_cuda *)args->context;
    const ckpt_dtype dtype = args->node->in[0].dtype;
    const bool tiled = is_tiled(call, dtype);
    attention_call rest = *call;
    CKPT_BY_DTYPE(dtype, start_delta, cuda, call);
    if (tiled && (call->dk != NULL || call->dv != NULL) && ckpt_attention_key_gradients(cuda, dtype, call)) {
        rest.dk = rest.dv = NULL;
    }
    if (tiled && call->dq != NULL && ckpt_attention_query_gradients(cuda, dtype, call)) {
        rest.dq = NULL;
    }
    ckpt_attention_plain_backward(cuda, dtype, &rest);
    return ckpt_cuda_launched("attention backward", err);
}

ckpt_code forward_by(const ckpt_kernel_args *args, int side, ckpt_err *err)
{
    const attention_state *const state = (const attention_state *)args->state;
    const attention_call call = open_call(args);
    if (side == OWN) {
        return own_forward(args, &call, err);
    }
    const ckpt_cudnn_attention_tensors all = tensors_from(&call, 0, 0);
    return ckpt_cudnn_attention_run(state->forward, &all, args->workspace, err);
}

ckpt_code backward_by(const ckpt_kernel_args *args, int side, ckpt_err *err)
{
    const ckpt_node *const node = args->node;
    const ckpt_attention_sizes z = ckpt_attention_sizes_of(node);
    attention_call call = open_call(args);
    call.dO = args->grad_out[0];
    call.dq = args->grad_in[0];
    call.dk = part_of(call.dq, z.fused ? NULL : args->grad_in[1], node, z.k_at);
    call.dv = part_of(call.dq, z.fused ? NULL : args->grad_in[2], node, z.v_at);
    call.dbias = z.bias < 0 ? NULL : args->grad_in[z.bias];
    call.delta = (float *)args->workspace;
    return side == OWN ? own_backward(args, &call, err)
                       : library_backward((const attention_state *)args->state, &call, args->workspace, err);
}

ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    return forward_by(args, ((const attention_state *)args->state)->side, err);
}

ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    return backward_by(args, ((const attention_state *)args->state)->side, err);
}

void side_workspace(const ckpt_node *node, const attention_state *state, int side, ckpt_bytes *forward,
                    ckpt_bytes *backward)
{
    const ckpt_shape *const y = &node->out[0].shape;
    *forward = side == LIBRARY ? ckpt_cudnn_attention_workspace(state->forward) : 0;
    *backward = side == LIBRARY ? library_bytes(state, y->dim[1])
                                : delta_bytes(y->dim[0] * ckpt_node_int(node, "heads") * y->dim[1]);
}

void workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const attention_state *const made = (const attention_state *)state;
    side_workspace(node, made, made->side, forward, backward);
}

/* -------------------------------------------------------------------------------------------------- timing */

struct attention_trial {
    const ckpt_kernel_args *args;
    bool backward;
    int side[SIDES]; /* of the candidates; the first is in use */
};

ckpt_code run_candidate(void *self, int candidate, ckpt_err *err)
{
    const attention_trial *const t = (const attention_trial *)self;
    return t->backward ? backward_by(t->args, t->side[candidate], err) : forward_by(t->args, t->side[candidate], err);
}

void set_results(ckpt_trial *trial, const ckpt_kernel_args *args, bool backward)
{
    const ckpt_node *const node = args->node;
    const ckpt_shape *const y = &node->out[0].shape;
    const int64_t rows = y->dim[0] * y->dim[1], C = y->dim[2], in = node->in[0].shape.dim[2];
    const ckpt_dtype dtype = node->out[0].dtype;
    if (backward) {
        trial->result[0] = ckpt_trial_result{args->grad_in[0], dtype, rows, in, in};
        trial->result[1] = ckpt_trial_result{node->in_count == 3 ? args->grad_in[1] : NULL, dtype, rows, in, in};
    } else {
        trial->result[0] = ckpt_trial_result{args->out[0], dtype, rows, C, C};
        trial->result[1] = ckpt_trial_result{args->saved[0], CKPT_FLOAT32, 1, rows * ckpt_node_int(node, "heads"),
                                             rows * ckpt_node_int(node, "heads")};
    }
}

/* Times one direction on both sides. The faster side is used for both directions: by the time of forward until backward
 * is timed too, then by the sum. */
ckpt_code time_sides(attention_state *state, const ckpt_kernel_args *args, bool backward, ckpt_tuning *tuning,
                     ckpt_err *err)
{
    attention_trial self = {args, backward, {state->side, 1 - state->side}};
    ckpt_trial trial = {};
    trial.cuda = (ckpt_cuda *)args->context;
    trial.what = "attention";
    trial.count = SIDES;
    trial.self = &self;
    trial.run = run_candidate;
    trial.terms = args->node->out[0].shape.dim[1];
    trial.inside = 1.0 / 64; /* each side rounds P and dS to bfloat16 for products in its own way */
    set_results(&trial, args, backward);
    const int refused = tuning->refused;
    int fastest = 0;
    ckpt_ns took = 0;
    CKPT_TRY(ckpt_trial_run(&trial, tuning, &fastest, &took, err));
    if (tuning->refused != refused) {
        state->took[self.side[1 - fastest]] = -1;
        state->took[self.side[fastest]] = took < 0 ? -1 : 0;
        use_side(state, self.side[fastest]);
        return CKPT_OK;
    }
    for (int k = 0; k < SIDES; k++) {
        CKPT_TRY(ckpt_trial_time(&trial, tuning, k, &took, err));
        state->took[self.side[k]] += took;
    }
    const ckpt_ns here = state->took[state->side], there = state->took[1 - state->side];
    if (there < here - here / 100) {
        use_side(state, 1 - state->side);
    }
    return CKPT_OK;
}

ckpt_code tune(const ckpt_kernel_args *args, bool backward, ckpt_tuning *tuning, ckpt_err *err)
{
    attention_state *const state = (attention_state *)args->state;
    ckpt_err refusal = {};
    ckpt_bytes room[2] = {}, forward_bytes = 0, backward_bytes = 0;
    if (getenv("CKPT_ATTENTION") != NULL || state->took[OWN] < 0 || state->took[LIBRARY] < 0) {
        return CKPT_OK;
    }
    if (state->forward == NULL) {
        const ckpt_code code = try_library(state, (ckpt_cuda *)args->context, args->node, -1, -1, &refusal);
        if (code != CKPT_OK) {
            return code == CKPT_NO_MEMORY ? CKPT_FAIL(err, code, "%s", refusal.msg) : CKPT_OK;
        }
    }
    for (int side = 0; side < SIDES; side++) {
        side_workspace(args->node, state, side, &forward_bytes, &backward_bytes);
        room[0] = forward_bytes > room[0] ? forward_bytes : room[0];
        room[1] = backward_bytes > room[1] ? backward_bytes : room[1];
    }
    return room[backward ? 1 : 0] <= args->workspace_bytes ? time_sides(state, args, backward, tuning, err) : CKPT_OK;
}

} // namespace

extern "C" const ckpt_kernel ckpt_cuda_attention = {
    .op = "attention",
    .state_bytes = sizeof(attention_state),
    .prepare = prepare,
    .workspace = workspace,
    .remark = remark,
    .choice = choice,
    .tune = tune,
    .forward = forward,
    .backward = backward,
};

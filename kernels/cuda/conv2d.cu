/* conv2d is computed in one of three ways, chosen when the layer is bound. 1 x 1 filters without stride and padding are
 * a matrix product over pixels, by cuBLASLt: it adds the bias, reads the filters as they lie and gives their gradient
 * in float32. Depthwise filters have our own kernels (conv2d_direct.cu). Everything else is cuDNN's: filters are
 * transposed to [out, height, width, in / groups] in the workspace and their gradient is transposed back, which moves
 * the filters twice. Where cuDNN has nothing that fits the workspace, our own kernels compute it. A direction is 2
 * pixels (in / groups) taps out FLOP: bound by arithmetic from a few dozen channels on.
 *
 * With cuDNN the bias is added after y is rounded to its type; the bias gradient is a column sum (sum.cu). */
#include "kernels/cuda/blas_layer.cuh"
#include "kernels/cuda/conv2d_direct.cuh"
#include "kernels/cuda/wide.cuh"

namespace
{

enum conv2d_direction { FORWARD, INPUT, WEIGHT, DIRECTIONS }; /* like ckpt_cudnn_direction */

/* Each direction has a product, or a library call, or neither: then our own kernels compute it. */
struct conv2d_state {
    ckpt_blas_product *product[DIRECTIONS];
    ckpt_cudnn_convolution *library[DIRECTIONS];
    char remark[sizeof(((ckpt_err *)0)->msg)]; /* why our own kernels replace the library, or "" */
    bool own[DIRECTIONS];                      /* our own kernels replace the library */
    char choice[CKPT_CHOICE_TEXT];
};
const char *const conv2d_key[DIRECTIONS] = {"forward", "input", "weight"};

/* To be called after algorithms have changed. */
void conv2d_name(conv2d_state *c)
{
    c->choice[0] = '\0';
    for (int k = 0; k < DIRECTIONS; k++) {
        if (c->product[k] != NULL) {
            ckpt_choice_add(c->choice, conv2d_key[k], ckpt_blas_product_choice(c->product[k]));
        } else if (c->library[k] != NULL) {
            ckpt_choice_add(c->choice, conv2d_key[k], ckpt_cudnn_convolution_choice(c->library[k]));
        } else if (c->own[k]) {
            ckpt_choice_add(c->choice, conv2d_key[k], "own");
        }
    }
}

/* to[o][tap][c] = from[o][c][tap] */
template <typename T> __global__ void conv2d_turn(int64_t count, int64_t channels, int64_t taps, const T *from, T *to)
{
    for (int64_t k = first_item(); k < count; k += item_step()) {
        const quotient at = divide(k, channels), tap = divide(at.whole, taps);
        to[k] = from[(tap.whole * channels + at.rest) * taps + tap.rest];
    }
}

/* to[o][c][tap] = from[o][tap][c], in float32 */
template <typename T>
__global__ void conv2d_turn_back(int64_t count, int64_t channels, int64_t taps, const T *from, float *to)
{
    for (int64_t k = first_item(); k < count; k += item_step()) {
        const quotient at = divide(k, taps), channel = divide(at.whole, channels);
        to[k] = to_float(from[(channel.whole * taps + at.rest) * channels + channel.rest]);
    }
}

template <typename T, int N> __global__ void conv2d_add_bias(int64_t count, int64_t across, const float *bias, T *y)
{
    for (int64_t k = first_item(); k < count; k += item_step()) {
        const int64_t c = divide(k, across).rest * N;
        wide<float, N> value;
        for (int j = 0; j < N; j++) {
            value.at[j] = bias[c + j];
        }
        put_wide<N>(y + k * N, value, true);
    }
}

ckpt_cudnn_shape conv2d_shape_of(const ckpt_node *node)
{
    const ckpt_shape *const x = &node->in[0].shape, *const y = &node->out[0].shape;
    ckpt_cudnn_shape s = {};
    s.batch = x->dim[0];
    s.in_channels = x->dim[1];
    s.out_channels = y->dim[1];
    s.groups = ckpt_node_int(node, "groups");
    s.dtype = node->in[0].dtype;
    for (int d = 0; d < 2; d++) {
        s.in[d] = x->dim[2 + d];
        s.out[d] = y->dim[2 + d];
        s.kernel[d] = ckpt_node_int_at(node, "kernel_size", d);
        s.stride[d] = ckpt_node_int_at(node, "stride", d);
        s.padding[d] = ckpt_node_int_at(node, "padding", d);
    }
    return s;
}

int64_t conv2d_rows(const ckpt_cudnn_shape &s)
{
    return s.batch * s.out[0] * s.out[1];
}

int64_t conv2d_taps(const ckpt_cudnn_shape &s)
{
    return s.kernel[0] * s.kernel[1];
}

bool conv2d_is_product(const ckpt_cudnn_shape &s)
{
    return s.groups == 1 && conv2d_taps(s) == 1 && s.stride[0] == 1 && s.stride[1] == 1 && s.padding[0] == 0 &&
           s.padding[1] == 0;
}

/* True if filters are stored in another order than cuDNN wants. */
bool conv2d_turns(const ckpt_cudnn_shape &s)
{
    return conv2d_taps(s) > 1 && s.in_channels > s.groups;
}

/* Bytes before the library's own workspace: transposed filters, or their gradient before it is converted to float32 or
 * transposed back. */
ckpt_bytes conv2d_piece(const ckpt_cudnn_shape &s, int direction)
{
    const bool needed = conv2d_turns(s) || (direction == WEIGHT && s.dtype == CKPT_BFLOAT16);
    const int64_t count = s.out_channels * (s.in_channels / s.groups) * conv2d_taps(s);
    return needed ? ckpt_round_up(count * ckpt_dtype_bytes(s.dtype), CKPT_ALIGN) : 0;
}

ckpt_code conv2d_make_product(conv2d_state *state, ckpt_cuda *cuda, const ckpt_node *node, const ckpt_cudnn_shape &s,
                              ckpt_bytes forward, ckpt_bytes backward, const char *choice, ckpt_err *err)
{
    char piece[CKPT_PIECE_TEXT];
    const int64_t rows = conv2d_rows(s), in = s.in_channels, out = s.out_channels;
    /* As in linear.cu. */
    forward = forward < 0 ? node->forward_workspace_bytes : forward;
    backward = backward < 0 ? node->backward_workspace_bytes : backward;
    const ckpt_blas_shape shape[DIRECTIONS] = {
        /* forward, input, weight */
        blas_of(rows, out, in, false, true, s.dtype, s.dtype, node->param_count > 1, false),
        blas_of(rows, in, out, false, false, s.dtype, s.dtype, false, false),
        blas_of(out, in, rows, true, false, s.dtype, CKPT_FLOAT32, false, false),
    };
    for (int k = 0; k < DIRECTIONS; k++) {
        if (k != INPUT || (node->grad_in & 1) != 0) {
            CKPT_TRY(ckpt_blas_product_create(cuda, &shape[k], k == FORWARD ? forward : backward,
                                              ckpt_choice_get(choice, conv2d_key[k], piece), &state->product[k], err));
        }
    }
    return CKPT_OK;
}

/* Takes cuDNN if it has something within `limit`; else leaves library[direction] NULL, for our own kernels, with a
 * remark. A choice is followed. */
ckpt_code conv2d_make_library(conv2d_state *state, ckpt_cuda *cuda, const ckpt_cudnn_shape &s, int direction,
                              ckpt_bytes limit, const char *choice, ckpt_err *err)
{
    char text[CKPT_PIECE_TEXT];
    ckpt_err refusal = {};
    const char *const piece = ckpt_choice_get(choice, conv2d_key[direction], text);
    const bool own_wanted = piece != NULL && strcmp(piece, "own") == 0;
    const ckpt_bytes room = limit < 0 ? -1 : limit - conv2d_piece(s, direction);
    ckpt_code code = CKPT_DEVICE;
    if (own_wanted) {
        (void)CKPT_FAIL(&refusal, CKPT_DEVICE, "the plan wants them");
    } else if (limit < 0 || room >= 0) {
        CKPT_TRY(ckpt_cudnn_open(cuda, err));
        code = ckpt_cudnn_convolution_create(cuda, &s, (ckpt_cudnn_direction)direction, room, piece,
                                             &state->library[direction], &refusal);
    }
    if (code == CKPT_NO_MEMORY || (code != CKPT_OK && piece != NULL && !own_wanted)) {
        return CKPT_FAIL(err, code, "%s", refusal.msg);
    }
    if (code == CKPT_OK) {
        const char *const slow = ckpt_cudnn_convolution_remark(state->library[direction]);
        if (state->remark[0] == '\0') {
            snprintf(state->remark, sizeof state->remark, "%s", slow);
        }
        return CKPT_OK;
    }
    const char *const why = refusal.msg[0] != '\0' ? refusal.msg : "no room to turn the filters for cuDNN";
    const ckpt_bytes own = direction == WEIGHT ? ckpt_conv2d_direct_workspace(s) : 0;
    if (limit >= 0 && own > limit) {
        return CKPT_FAIL(err, CKPT_DEVICE, "%lld bytes of workspace given, own kernels want %lld; %s", (long long)limit,
                         (long long)own, why);
    }
    if (state->remark[0] == '\0') {
        snprintf(state->remark, sizeof state->remark, "own kernels: %.480s", why);
    }
    state->own[direction] = true;
    return CKPT_OK;
}

ckpt_code conv2d_fill(conv2d_state *state, ckpt_cuda *cuda, const ckpt_node *node, ckpt_bytes forward,
                      ckpt_bytes backward, const char *choice, ckpt_err *err)
{
    const ckpt_cudnn_shape s = conv2d_shape_of(node);
    if (conv2d_is_product(s)) {
        return conv2d_make_product(state, cuda, node, s, forward, backward, choice, err);
    }
    if (conv2d_is_depthwise(s)) {
        return CKPT_OK;
    }
    CKPT_TRY(conv2d_make_library(state, cuda, s, FORWARD, forward, choice, err));
    CKPT_TRY(conv2d_make_library(state, cuda, s, WEIGHT, backward, choice, err));
    return (node->grad_in & 1) == 0 ? CKPT_OK : conv2d_make_library(state, cuda, s, INPUT, backward, choice, err);
}

void conv2d_release(void *state)
{
    const conv2d_state *const c = (conv2d_state *)state;
    for (int direction = 0; direction < DIRECTIONS; direction++) {
        ckpt_blas_product_destroy(c->product[direction]);
        ckpt_cudnn_convolution_destroy(c->library[direction]);
    }
}

ckpt_code conv2d_prepare(void *memory, void *context, const ckpt_node *node, ckpt_bytes forward, ckpt_bytes backward,
                         const char *choice, ckpt_err *err)
{
    conv2d_state *const c = (conv2d_state *)memory;
    CKPT_TRY(conv2d_fill(c, (ckpt_cuda *)context, node, forward, backward, choice, err));
    conv2d_name(c);
    return CKPT_OK;
}

ckpt_bytes conv2d_bytes(const conv2d_state *c, const ckpt_cudnn_shape &s, int direction)
{
    if (c->product[direction] != NULL) {
        return ckpt_blas_product_workspace(c->product[direction]);
    }
    if (c->library[direction] != NULL) {
        return conv2d_piece(s, direction) + ckpt_cudnn_convolution_workspace(c->library[direction]);
    }
    return direction == WEIGHT && !conv2d_is_product(s) ? ckpt_conv2d_direct_workspace(s) : 0;
}

void conv2d_workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const conv2d_state *const c = (const conv2d_state *)state;
    const ckpt_cudnn_shape s = conv2d_shape_of(node);
    const ckpt_bytes input = conv2d_bytes(c, s, INPUT), weight = conv2d_bytes(c, s, WEIGHT);
    const ckpt_bytes sums = node->param_count > 1 ? ckpt_gpu_column_sums_workspace(conv2d_rows(s), s.out_channels) : 0;
    *forward = conv2d_bytes(c, s, FORWARD);
    *backward = weight > input ? weight : input;
    *backward = sums > *backward ? sums : *backward;
}

const char *conv2d_remark(const void *state)
{
    return ((const conv2d_state *)state)->remark;
}

const char *conv2d_choice(const void *state)
{
    return ((const conv2d_state *)state)->choice;
}

template <typename T> void start_turn(const ckpt_cuda *cuda, const ckpt_cudnn_shape &s, const void *from, void *to)
{
    const int64_t channels = s.in_channels / s.groups, taps = conv2d_taps(s);
    CKPT_LAUNCH_ITEMS(cuda, conv2d_turn<T>, s.out_channels * channels * taps, channels, taps, (const T *)from, (T *)to);
}

template <typename T>
void start_turn_back(const ckpt_cuda *cuda, const ckpt_cudnn_shape &s, const void *from, float *to)
{
    const int64_t channels = s.in_channels / s.groups, taps = conv2d_taps(s);
    CKPT_LAUNCH_ITEMS(cuda, conv2d_turn_back<T>, s.out_channels * channels * taps, channels, taps, (const T *)from, to);
}

template <typename T, int N>
void start_bias(const ckpt_cuda *cuda, const ckpt_cudnn_shape &s, const float *bias, void *y)
{
    const int64_t across = s.out_channels / N;
    CKPT_LAUNCH_ITEMS(cuda, (conv2d_add_bias<T, N>), conv2d_rows(s) * across, across, bias, (T *)y);
}

/* The filters as cuDNN reads them: in place, or transposed at the start of the workspace. */
const void *conv2d_filters(const ckpt_kernel_args *args, const ckpt_cudnn_shape &s)
{
    const void *const w = blas_param(args, 0);
    if (!conv2d_turns(s)) {
        return w;
    }
    CKPT_BY_DTYPE(s.dtype, start_turn, cuda_of(args), s, w, args->workspace);
    return args->workspace;
}

void *conv2d_scratch(const ckpt_kernel_args *args, const ckpt_cudnn_shape &s, int direction)
{
    return (char *)args->workspace + conv2d_piece(s, direction);
}

ckpt_code conv2d_forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const conv2d_state *const c = (const conv2d_state *)args->state;
    const ckpt_cuda *const cuda = cuda_of(args);
    const ckpt_cudnn_shape s = conv2d_shape_of(args->node);
    const bool bias = args->node->param_count > 1;
    if (c->product[FORWARD] != NULL) {
        return ckpt_blas_product_run(c->product[FORWARD], args->in[0], blas_param(args, 0), args->out[0],
                                     bias ? (void *)blas_param(args, 1) : NULL, args->workspace, err);
    }
    if (c->library[FORWARD] == NULL) {
        ckpt_conv2d_direct_forward(cuda, s, args->in[0], blas_param(args, 0), bias ? args->param[1] : NULL,
                                   args->out[0]);
        return ckpt_cuda_launched("conv2d", err);
    }
    CKPT_TRY(ckpt_cudnn_convolution_run(c->library[FORWARD], args->in[0], conv2d_filters(args, s), args->out[0],
                                        conv2d_scratch(args, s, FORWARD), err));
    if (bias) {
        CKPT_BY_WIDTH(s.dtype, s.out_channels, start_bias, cuda, s, args->param[1], args->out[0]);
    }
    return ckpt_cuda_launched("conv2d", err);
}

ckpt_code conv2d_weight(const ckpt_kernel_args *args, const ckpt_cudnn_shape &s, ckpt_err *err)
{
    const conv2d_state *const c = (const conv2d_state *)args->state;
    const ckpt_cuda *const cuda = cuda_of(args);
    const void *const x = args->in[0], *const dy = args->grad_out[0];
    if (c->product[WEIGHT] != NULL) {
        return ckpt_blas_product_run(c->product[WEIGHT], dy, x, args->grad_param[0], NULL, args->workspace, err);
    }
    if (c->library[WEIGHT] == NULL) {
        ckpt_conv2d_direct_weight(cuda, s, x, dy, args->grad_param[0], args->workspace);
        return ckpt_cuda_launched("conv2d weight gradient", err);
    }
    const bool aside = conv2d_piece(s, WEIGHT) > 0;
    CKPT_TRY(ckpt_cudnn_convolution_run(c->library[WEIGHT], x, dy,
                                        aside ? args->workspace : (void *)args->grad_param[0],
                                        conv2d_scratch(args, s, WEIGHT), err));
    if (aside) {
        CKPT_BY_DTYPE(s.dtype, start_turn_back, cuda, s, args->workspace, args->grad_param[0]);
    }
    return ckpt_cuda_launched("conv2d weight gradient", err);
}

ckpt_code conv2d_input(const ckpt_kernel_args *args, const ckpt_cudnn_shape &s, ckpt_err *err)
{
    const conv2d_state *const c = (const conv2d_state *)args->state;
    const void *const dy = args->grad_out[0];
    if (c->product[INPUT] != NULL) {
        return ckpt_blas_product_run(c->product[INPUT], dy, blas_param(args, 0), args->grad_in[0], NULL,
                                     args->workspace, err);
    }
    if (c->library[INPUT] == NULL) {
        ckpt_conv2d_direct_input(cuda_of(args), s, dy, blas_param(args, 0), args->grad_in[0]);
        return ckpt_cuda_launched("conv2d input gradient", err);
    }
    CKPT_TRY(ckpt_cudnn_convolution_run(c->library[INPUT], dy, conv2d_filters(args, s), args->grad_in[0],
                                        conv2d_scratch(args, s, INPUT), err));
    return ckpt_cuda_launched("conv2d input gradient", err);
}

/* Both run one after the other on one stream, so they share the workspace. */
ckpt_code conv2d_backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_cudnn_shape s = conv2d_shape_of(args->node);
    CKPT_TRY(conv2d_weight(args, s, err));
    if (args->node->param_count > 1) {
        CKPT_TRY(ckpt_cuda_column_sums((ckpt_cuda *)args->context, s.dtype, conv2d_rows(s), s.out_channels,
                                       args->grad_out[0], args->grad_param[1], false, args->workspace, err));
    }
    return args->grad_in[0] == NULL ? CKPT_OK : conv2d_input(args, s, err);
}

/* One direction: c from a and b, with filters in cuDNN's order. */
ckpt_code conv2d_tune_one(const ckpt_kernel_args *args, int direction, const void *a, const void *b, void *c,
                          ckpt_tuning *tuning, ckpt_err *err)
{
    const conv2d_state *const state = (const conv2d_state *)args->state;
    const ckpt_cudnn_shape s = conv2d_shape_of(args->node);
    const bool bias = direction == FORWARD && args->node->param_count > 1;
    ckpt_ns took = 0;
    if (state->product[direction] != NULL) {
        return ckpt_blas_product_tune(state->product[direction], a, b, c, bias ? (void *)blas_param(args, 1) : NULL,
                                      args->workspace, args->workspace_bytes, tuning, &took, err);
    }
    const ckpt_bytes piece = conv2d_piece(s, direction);
    if (state->library[direction] == NULL) {
        return CKPT_OK;
    }
    return ckpt_cudnn_convolution_tune(state->library[direction], a, b,
                                       direction == WEIGHT && piece > 0 ? args->workspace : c,
                                       conv2d_scratch(args, s, direction), args->workspace_bytes - piece, tuning, err);
}

ckpt_code conv2d_tune(const ckpt_kernel_args *args, bool backward, ckpt_tuning *tuning, ckpt_err *err)
{
    conv2d_state *const c = (conv2d_state *)args->state;
    const ckpt_cudnn_shape s = conv2d_shape_of(args->node);
    const void *const x = args->in[0], *const dy = backward ? args->grad_out[0] : NULL;
    const bool product = c->product[FORWARD] != NULL;
    if (backward) {
        CKPT_TRY(conv2d_tune_one(args, WEIGHT, product ? dy : x, product ? x : dy, args->grad_param[0], tuning, err));
    }
    if (!backward || args->grad_in[0] != NULL) {
        const void *const w = product ? blas_param(args, 0) : conv2d_filters(args, s);
        CKPT_TRY(backward ? conv2d_tune_one(args, INPUT, dy, w, args->grad_in[0], tuning, err)
                          : conv2d_tune_one(args, FORWARD, x, w, args->out[0], tuning, err));
    }
    conv2d_name(c);
    return CKPT_OK;
}

} // namespace

extern "C" const ckpt_kernel ckpt_cuda_conv2d = {
    .op = "conv2d",
    .state_bytes = sizeof(conv2d_state),
    .prepare = conv2d_prepare,
    .release = conv2d_release,
    .workspace = conv2d_workspace,
    .remark = conv2d_remark,
    .choice = conv2d_choice,
    .tune = conv2d_tune,
    .forward = conv2d_forward,
    .backward = conv2d_backward,
};

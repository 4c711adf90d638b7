/* All convolutions are one of three computations on x, w and y (ops/convolution.h); a transposed layer runs the gradient
 * by the input forward. Each is done in one of three ways, chosen when the layer is bound. Filters of one tap without
 * stride and padding are a matrix product over pixels, by cuBLASLt: it adds the bias, reads the filters as they lie and
 * gives their gradient in float32. Depthwise filters have our own kernels (convolution_direct.cu). Everything else is
 * cuDNN's: filters are transposed to [out, depth, height, width, in / groups] in the workspace and their gradient is
 * transposed back, which moves the filters twice. Where cuDNN has nothing that fits the workspace, our own kernels
 * compute it. A direction is 2 pixels (in / groups) taps out FLOP: bound by arithmetic from a few dozen channels on.
 *
 * With cuDNN, and in a transposed layer of our own kernels, the bias is added after y is rounded to its type; the bias
 * gradient is a column sum (sum.cu). */
#include "kernels/cuda/blas_layer.cuh"
#include "kernels/cuda/convolution_direct.cuh"
#include "kernels/cuda/wide.cuh"

namespace
{

enum convolution_direction { FORWARD, INPUT, WEIGHT, DIRECTIONS }; /* like ckpt_cudnn_direction */

/* Each direction has a product, or a library call, or neither: then our own kernels compute it. */
struct convolution_state {
    ckpt_blas_product *product[DIRECTIONS];
    ckpt_cudnn_convolution *library[DIRECTIONS];
    char remark[sizeof(((ckpt_err *)0)->msg)]; /* why our own kernels replace the library, or "" */
    bool own[DIRECTIONS];                      /* our own kernels replace the library */
    char choice[CKPT_CHOICE_TEXT];
};
const char *const convolution_key[DIRECTIONS] = {"forward", "input", "weight"};

/* To be called after algorithms have changed. */
void convolution_name(convolution_state *c)
{
    c->choice[0] = '\0';
    for (int k = 0; k < DIRECTIONS; k++) {
        if (c->product[k] != NULL) {
            ckpt_choice_add(c->choice, convolution_key[k], ckpt_blas_product_choice(c->product[k]));
        } else if (c->library[k] != NULL) {
            ckpt_choice_add(c->choice, convolution_key[k], ckpt_cudnn_convolution_choice(c->library[k]));
        } else if (c->own[k]) {
            ckpt_choice_add(c->choice, convolution_key[k], "own");
        }
    }
}

/* to[o][tap][c] = from[o][c][tap] */
template <typename T>
__global__ void convolution_turn(int64_t count, int64_t channels, int64_t taps, const T *from, T *to)
{
    for (int64_t k = first_item(); k < count; k += item_step()) {
        const quotient at = divide(k, channels), tap = divide(at.whole, taps);
        to[k] = from[(tap.whole * channels + at.rest) * taps + tap.rest];
    }
}

/* to[o][c][tap] = from[o][tap][c], in float32 */
template <typename T>
__global__ void convolution_turn_back(int64_t count, int64_t channels, int64_t taps, const T *from, float *to)
{
    for (int64_t k = first_item(); k < count; k += item_step()) {
        const quotient at = divide(k, taps), channel = divide(at.whole, channels);
        to[k] = to_float(from[(channel.whole * taps + at.rest) * channels + channel.rest]);
    }
}

template <typename T, int N>
__global__ void convolution_add_bias(int64_t count, int64_t across, const float *bias, T *y)
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

/* The direction that computes the layer's output, and the one that computes its input's gradient. */
int output_direction(const ckpt_convolution &s)
{
    return s.transposed ? INPUT : FORWARD;
}

int gradient_direction(const ckpt_convolution &s)
{
    return s.transposed ? FORWARD : INPUT;
}

bool is_wanted(const ckpt_node *node, const ckpt_convolution &s, int direction)
{
    return direction != gradient_direction(s) || (node->grad_in & 1) != 0;
}

/* Rows and columns of the layer's output. */
int64_t output_rows(const ckpt_convolution &s)
{
    return s.transposed ? ckpt_convolution_in_rows(&s) : ckpt_convolution_out_rows(&s);
}

int64_t output_channels(const ckpt_convolution &s)
{
    return s.transposed ? s.in_channels : s.out_channels;
}

/* True if filters are stored in another order than cuDNN wants. */
bool convolution_turns(const ckpt_convolution &s)
{
    return ckpt_convolution_taps(&s) > 1 && s.in_channels > s.groups;
}

/* Bytes before the library's own workspace: transposed filters, or their gradient before it is converted to float32 or
 * transposed back. */
ckpt_bytes convolution_piece(const ckpt_convolution &s, int direction)
{
    const bool needed = convolution_turns(s) || (direction == WEIGHT && s.dtype == CKPT_BFLOAT16);
    const int64_t count = s.out_channels * (s.in_channels / s.groups) * ckpt_convolution_taps(&s);
    return needed ? ckpt_round_up(count * ckpt_dtype_bytes(s.dtype), CKPT_ALIGN) : 0;
}

ckpt_code convolution_make_product(convolution_state *state, ckpt_cuda *cuda, const ckpt_node *node,
                                   const ckpt_convolution &s, ckpt_bytes forward, ckpt_bytes backward,
                                   const char *choice, ckpt_err *err)
{
    char piece[CKPT_PIECE_TEXT];
    const int64_t rows = ckpt_convolution_out_rows(&s), in = s.in_channels, out = s.out_channels;
    const bool bias = node->param_count > 1;
    /* As in linear.cu. */
    forward = forward < 0 ? node->forward_workspace_bytes : forward;
    backward = backward < 0 ? node->backward_workspace_bytes : backward;
    const ckpt_blas_shape shape[DIRECTIONS] = {
        /* forward, input, weight */
        blas_of(rows, out, in, false, true, s.dtype, s.dtype, bias && !s.transposed, false),
        blas_of(rows, in, out, false, false, s.dtype, s.dtype, bias && s.transposed, false),
        blas_of(out, in, rows, true, false, s.dtype, CKPT_FLOAT32, false, false),
    };
    for (int k = 0; k < DIRECTIONS; k++) {
        if (is_wanted(node, s, k)) {
            CKPT_TRY(ckpt_blas_product_create(cuda, &shape[k], k == output_direction(s) ? forward : backward,
                                              ckpt_choice_get(choice, convolution_key[k], piece), &state->product[k],
                                              err));
        }
    }
    return CKPT_OK;
}

/* Takes cuDNN if it has something within `limit`; else leaves library[direction] NULL, for our own kernels, with a
 * remark. A choice is followed. */
ckpt_code convolution_make_library(convolution_state *state, ckpt_cuda *cuda, const ckpt_convolution &s, int direction,
                                   ckpt_bytes limit, const char *choice, ckpt_err *err)
{
    char text[CKPT_PIECE_TEXT];
    ckpt_err refusal = {};
    const char *const piece = ckpt_choice_get(choice, convolution_key[direction], text);
    const bool own_wanted = piece != NULL && strcmp(piece, "own") == 0;
    const ckpt_bytes room = limit < 0 ? -1 : limit - convolution_piece(s, direction);
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
    const ckpt_bytes own = direction == WEIGHT ? ckpt_convolution_direct_workspace(s) : 0;
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

ckpt_code convolution_fill(convolution_state *state, ckpt_cuda *cuda, const ckpt_node *node, ckpt_bytes forward,
                           ckpt_bytes backward, const char *choice, ckpt_err *err)
{
    static const int order[DIRECTIONS] = {FORWARD, WEIGHT, INPUT};
    const ckpt_convolution s = ckpt_convolution_of(node);
    if (ckpt_convolution_is_product(&s, true)) {
        return convolution_make_product(state, cuda, node, s, forward, backward, choice, err);
    }
    for (int k = 0; k < DIRECTIONS && !convolution_is_depthwise(s); k++) {
        if (is_wanted(node, s, order[k])) {
            CKPT_TRY(convolution_make_library(state, cuda, s, order[k],
                                              order[k] == output_direction(s) ? forward : backward, choice, err));
        }
    }
    return CKPT_OK;
}

void convolution_release(void *state)
{
    const convolution_state *const c = (convolution_state *)state;
    for (int direction = 0; direction < DIRECTIONS; direction++) {
        ckpt_blas_product_destroy(c->product[direction]);
        ckpt_cudnn_convolution_destroy(c->library[direction]);
    }
}

ckpt_code convolution_prepare(void *memory, void *context, const ckpt_node *node, ckpt_bytes forward,
                              ckpt_bytes backward, const char *choice, ckpt_err *err)
{
    convolution_state *const c = (convolution_state *)memory;
    CKPT_TRY(convolution_fill(c, (ckpt_cuda *)context, node, forward, backward, choice, err));
    convolution_name(c);
    return CKPT_OK;
}

ckpt_bytes convolution_bytes(const convolution_state *c, const ckpt_convolution &s, int direction)
{
    if (c->product[direction] != NULL) {
        return ckpt_blas_product_workspace(c->product[direction]);
    }
    if (c->library[direction] != NULL) {
        return convolution_piece(s, direction) + ckpt_cudnn_convolution_workspace(c->library[direction]);
    }
    return direction == WEIGHT && !ckpt_convolution_is_product(&s, true) ? ckpt_convolution_direct_workspace(s) : 0;
}

void convolution_workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const convolution_state *const c = (const convolution_state *)state;
    const ckpt_convolution s = ckpt_convolution_of(node);
    const ckpt_bytes input = convolution_bytes(c, s, gradient_direction(s)), weight = convolution_bytes(c, s, WEIGHT);
    const ckpt_bytes sums =
        node->param_count > 1 ? ckpt_gpu_column_sums_workspace(output_rows(s), output_channels(s)) : 0;
    *forward = convolution_bytes(c, s, output_direction(s));
    *backward = weight > input ? weight : input;
    *backward = sums > *backward ? sums : *backward;
}

const char *convolution_remark(const void *state)
{
    return ((const convolution_state *)state)->remark;
}

const char *convolution_choice(const void *state)
{
    return ((const convolution_state *)state)->choice;
}

template <typename T> void start_turn(const ckpt_cuda *cuda, const ckpt_convolution &s, const void *from, void *to)
{
    const int64_t channels = s.in_channels / s.groups, taps = ckpt_convolution_taps(&s);
    CKPT_LAUNCH_ITEMS(cuda, convolution_turn<T>, s.out_channels * channels * taps, channels, taps, (const T *)from,
                      (T *)to);
}

template <typename T>
void start_turn_back(const ckpt_cuda *cuda, const ckpt_convolution &s, const void *from, float *to)
{
    const int64_t channels = s.in_channels / s.groups, taps = ckpt_convolution_taps(&s);
    CKPT_LAUNCH_ITEMS(cuda, convolution_turn_back<T>, s.out_channels * channels * taps, channels, taps, (const T *)from,
                      to);
}

template <typename T, int N>
void start_bias(const ckpt_cuda *cuda, const ckpt_convolution &s, const float *bias, void *y)
{
    const int64_t across = output_channels(s) / N;
    CKPT_LAUNCH_ITEMS(cuda, (convolution_add_bias<T, N>), output_rows(s) * across, across, bias, (T *)y);
}

/* The filters as cuDNN reads them: in place, or transposed at the start of the workspace. */
const void *convolution_filters(const ckpt_kernel_args *args, const ckpt_convolution &s)
{
    const void *const w = ckpt_product_param(args, 0);
    if (!convolution_turns(s)) {
        return w;
    }
    CKPT_BY_DTYPE(s.dtype, start_turn, cuda_of(args), s, w, args->workspace);
    return args->workspace;
}

void *convolution_scratch(const ckpt_kernel_args *args, const ckpt_convolution &s, int direction)
{
    return (char *)args->workspace + convolution_piece(s, direction);
}

/* y or dx by FORWARD or INPUT from `from`. `is_output`: it is the layer's output, and gets the bias. */
ckpt_code convolution_image(const ckpt_kernel_args *args, const ckpt_convolution &s, int direction, const void *from,
                            void *to, bool is_output, ckpt_err *err)
{
    const convolution_state *const c = (const convolution_state *)args->state;
    const ckpt_cuda *const cuda = cuda_of(args);
    const float *bias = is_output && args->node->param_count > 1 ? args->param[1] : NULL;
    if (c->product[direction] != NULL) {
        return ckpt_blas_product_run(c->product[direction], from, ckpt_product_param(args, 0), to,
                                     bias != NULL ? (void *)ckpt_product_param(args, 1) : NULL, args->workspace, err);
    }
    if (c->library[direction] != NULL) {
        CKPT_TRY(ckpt_cudnn_convolution_run(c->library[direction], from, convolution_filters(args, s), to,
                                            convolution_scratch(args, s, direction), err));
    } else if (direction == FORWARD) {
        ckpt_convolution_direct_forward(cuda, s, from, ckpt_product_param(args, 0), bias, to);
        bias = NULL;
    } else {
        ckpt_convolution_direct_input(cuda, s, from, ckpt_product_param(args, 0), to);
    }
    if (bias != NULL) {
        CKPT_BY_WIDTH(s.dtype, output_channels(s), start_bias, cuda, s, bias, to);
    }
    return ckpt_cuda_launched(args->node->op->name, err);
}

ckpt_code convolution_forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_convolution s = ckpt_convolution_of(args->node);
    return convolution_image(args, s, output_direction(s), args->in[0], args->out[0], true, err);
}

ckpt_code convolution_weight(const ckpt_kernel_args *args, const ckpt_convolution &s, const void *x, const void *dy,
                             ckpt_err *err)
{
    const convolution_state *const c = (const convolution_state *)args->state;
    const ckpt_cuda *const cuda = cuda_of(args);
    if (c->product[WEIGHT] != NULL) {
        return ckpt_blas_product_run(c->product[WEIGHT], dy, x, args->grad_param[0], NULL, args->workspace, err);
    }
    if (c->library[WEIGHT] == NULL) {
        ckpt_convolution_direct_weight(cuda, s, x, dy, args->grad_param[0], args->workspace);
        return ckpt_cuda_launched("a convolution's weight gradient", err);
    }
    const bool aside = convolution_piece(s, WEIGHT) > 0;
    CKPT_TRY(ckpt_cudnn_convolution_run(c->library[WEIGHT], x, dy,
                                        aside ? args->workspace : (void *)args->grad_param[0],
                                        convolution_scratch(args, s, WEIGHT), err));
    if (aside) {
        CKPT_BY_DTYPE(s.dtype, start_turn_back, cuda, s, args->workspace, args->grad_param[0]);
    }
    return ckpt_cuda_launched("a convolution's weight gradient", err);
}

/* All run one after the other on one stream, so they share the workspace. */
ckpt_code convolution_backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_convolution s = ckpt_convolution_of(args->node);
    const void *const in = args->in[0], *const dy = args->grad_out[0];
    CKPT_TRY(convolution_weight(args, s, s.transposed ? dy : in, s.transposed ? in : dy, err));
    if (args->node->param_count > 1) {
        CKPT_TRY(ckpt_cuda_column_sums((ckpt_cuda *)args->context, s.dtype, output_rows(s), output_channels(s), dy,
                                       args->grad_param[1], false, args->workspace, err));
    }
    return args->grad_in[0] == NULL
               ? CKPT_OK
               : convolution_image(args, s, gradient_direction(s), dy, args->grad_in[0], false, err);
}

/* One direction: c from a and b, with filters in cuDNN's order. */
ckpt_code convolution_tune_one(const ckpt_kernel_args *args, int direction, const void *a, const void *b, void *c,
                               ckpt_tuning *tuning, ckpt_err *err)
{
    const convolution_state *const state = (const convolution_state *)args->state;
    const ckpt_convolution s = ckpt_convolution_of(args->node);
    const bool bias = direction == output_direction(s) && args->node->param_count > 1;
    ckpt_ns took = 0;
    if (state->product[direction] != NULL) {
        return ckpt_blas_product_tune(state->product[direction], a, b, c,
                                      bias ? (void *)ckpt_product_param(args, 1) : NULL, args->workspace,
                                      args->workspace_bytes, tuning, &took, err);
    }
    const ckpt_bytes piece = convolution_piece(s, direction);
    if (state->library[direction] == NULL) {
        return CKPT_OK;
    }
    return ckpt_cudnn_convolution_tune(
        state->library[direction], a, b, direction == WEIGHT && piece > 0 ? args->workspace : c,
        convolution_scratch(args, s, direction), args->workspace_bytes - piece, tuning, err);
}

ckpt_code convolution_tune(const ckpt_kernel_args *args, bool backward, ckpt_tuning *tuning, ckpt_err *err)
{
    convolution_state *const c = (convolution_state *)args->state;
    const ckpt_convolution s = ckpt_convolution_of(args->node);
    const void *const in = args->in[0], *const dy = backward ? args->grad_out[0] : NULL;
    const int direction = backward ? gradient_direction(s) : output_direction(s);
    const bool product = c->product[output_direction(s)] != NULL;
    if (backward) {
        const void *const x = s.transposed ? dy : in, *const y = s.transposed ? in : dy;
        CKPT_TRY(
            convolution_tune_one(args, WEIGHT, product ? y : x, product ? x : y, args->grad_param[0], tuning, err));
    }
    if (!backward || args->grad_in[0] != NULL) {
        const void *const w = product ? ckpt_product_param(args, 0) : convolution_filters(args, s);
        CKPT_TRY(convolution_tune_one(args, direction, backward ? dy : in, w,
                                      backward ? args->grad_in[0] : args->out[0], tuning, err));
    }
    convolution_name(c);
    return CKPT_OK;
}

} // namespace

/* clang-format off */
#define CONVOLUTION(name) \
    .op = (name), .state_bytes = sizeof(convolution_state), .prepare = convolution_prepare, .release = convolution_release, \
    .workspace = convolution_workspace, .remark = convolution_remark, .choice = convolution_choice, .tune = convolution_tune, \
    .forward = convolution_forward, .backward = convolution_backward
/* clang-format on */

extern "C" const ckpt_kernel ckpt_cuda_conv1d = {CONVOLUTION("conv1d")};
extern "C" const ckpt_kernel ckpt_cuda_conv2d = {CONVOLUTION("conv2d")};
extern "C" const ckpt_kernel ckpt_cuda_conv3d = {CONVOLUTION("conv3d")};
extern "C" const ckpt_kernel ckpt_cuda_conv_transpose1d = {CONVOLUTION("conv_transpose1d")};
extern "C" const ckpt_kernel ckpt_cuda_conv_transpose2d = {CONVOLUTION("conv_transpose2d")};

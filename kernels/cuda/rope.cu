/* Rotary position embedding. A thread has N neighbouring pairs at one position, whose sines and cosines it makes once
 * and uses for HEADS heads; the next threads have the other pairs of a head, then other heads. It reads x and writes y
 * once (dx twice where it adds), 3 FLOP an element and about 12 for sine and cosine: bound by memory. The angle is
 * reduced to a part of a turn in double: float32 would be off by hundredths at position 100,000. */
#include "kernels/cuda/turns.cuh"
#include "kernels/cuda/wide.cuh"

namespace
{
enum { HEADS = 4 };

/* Passed by value: the GPU keeps a kernel's arguments in constant memory. */
struct rope_shape {
    int64_t tokens, heads, head, pairs;
    int64_t groups; /* of N pairs in a head, then of N features that do not turn */
    int64_t teams;  /* threads that share the heads of a row */
    bool interleaved, adds;
    double turns[CKPT_ROPE_MAX / 2];
};
} // namespace

/* The features at `low` and `high` of a head, N each, hold N pairs. */
template <int N>
__device__ inline void rope_turn(bool interleaved, const float2 angle[N], wide<float, N> &low, wide<float, N> &high)
{
    wide<float, N> a = low, b = high;
    if (interleaved && N > 1) {
        for (int j = 0; j < N; j++) {
            a.at[j] = 2 * j < N ? low.at[2 * j % N] : high.at[2 * j % N];
            b.at[j] = 2 * j < N ? low.at[(2 * j + 1) % N] : high.at[(2 * j + 1) % N];
        }
    }
    for (int j = 0; j < N; j++) {
        const float x = a.at[j] * angle[j].x - b.at[j] * angle[j].y;
        const float y = b.at[j] * angle[j].x + a.at[j] * angle[j].y;
        a.at[j] = x;
        b.at[j] = y;
    }
    if (interleaved && N > 1) {
        for (int j = 0; j < N; j++) {
            low.at[j] = j % 2 == 0 ? a.at[j / 2] : b.at[j / 2];
            high.at[j] = j % 2 == 0 ? a.at[(N + j) / 2] : b.at[(N + j) / 2];
        }
    } else {
        low = a;
        high = b;
    }
}

/* x and y may be one tensor: a thread has read what it writes. */
template <typename T, int N>
__global__ void __launch_bounds__(ITEM_THREADS) rope_rows(int64_t items, rope_shape s, const T *x, T *y)
{
    const int64_t row = s.heads * s.head, turning = s.pairs / N;
    for (int64_t item = first_item(); item < items; item += item_step()) {
        const quotient by_group = divide(item, s.groups), by_team = divide(by_group.whole, s.teams);
        const int64_t group = by_group.rest, t = divide(by_team.whole, s.tokens).rest;
        const bool turns = group < turning;
        /* Of the features that do not turn, `low` is all. */
        const int64_t pair = group * N;
        const int64_t low = !turns ? 2 * s.pairs + (group - turning) * N : s.interleaved ? 2 * pair : pair;
        const int64_t high = !turns ? low : s.interleaved ? low + N : low + s.pairs;
        float2 angle[N];
        for (int j = 0; j < N; j++) {
            angle[j] = turns ? turned_by((double)t * s.turns[pair + j]) : make_float2(1.0f, 0.0f);
        }
        wide<float, N> a[HEADS], b[HEADS];
        for (int h = 0; h < HEADS; h++) {
            const int64_t head = by_team.rest + h * s.teams;
            if (head < s.heads) {
                const T *const from = x + by_team.whole * row + head * s.head;
                a[h] = load_floats<N>(from + low);
                b[h] = load_floats<N>(from + high);
            }
        }
        for (int h = 0; h < HEADS; h++) {
            const int64_t head = by_team.rest + h * s.teams;
            if (head < s.heads) {
                T *const to = y + by_team.whole * row + head * s.head;
                if (turns) {
                    rope_turn<N>(s.interleaved, angle, a[h], b[h]);
                    put_wide<N>(to + high, b[h], s.adds);
                }
                put_wide<N>(to + low, a[h], s.adds);
            }
        }
    }
}

/* `sign`: -1 turns back. */
template <typename T, int N>
static void start_turn(const ckpt_kernel_args *args, double sign, const void *x, bool adds, void *y)
{
    const int64_t *const dim = args->node->in[0].shape.dim;
    rope_shape s = {};
    s.tokens = dim[1];
    s.heads = ckpt_node_int(args->node, "heads");
    s.head = dim[2] / s.heads;
    s.pairs = ckpt_rope_rotary(args->node) / 2;
    s.groups = (s.pairs + s.head - 2 * s.pairs) / N;
    s.teams = (s.heads + HEADS - 1) / HEADS;
    s.interleaved = strcmp(ckpt_node_string(args->node, "layout"), "interleaved") == 0;
    s.adds = adds;
    for (int64_t i = 0; i < s.pairs; i++) {
        s.turns[i] = sign * ckpt_rope_turns(args->node, i);
    }
    CKPT_LAUNCH_ITEMS(cuda_of(args), (rope_rows<T, N>), dim[0] * dim[1] * s.teams * s.groups, s, (const T *)x, (T *)y);
}

template <typename T, int N> static void start_forward(const ckpt_kernel_args *args)
{
    start_turn<T, N>(args, 1, args->in[0], false, args->out[0]);
}

template <typename T, int N> static void start_backward(const ckpt_kernel_args *args)
{
    start_turn<T, N>(args, -1, args->grad_out[0], (args->grad_in_adds & 1) != 0, args->grad_in[0]);
}

/* Packs need every head, and the second half of what turns in it, to start at a pack. */
static int64_t pack_length(const ckpt_node *node)
{
    return node->in[0].shape.dim[2] / ckpt_node_int(node, "heads") | ckpt_rope_rotary(node) / 2;
}

extern "C" const ckpt_kernel ckpt_cuda_rope = {
    .op = "rope",
    .forward = CKPT_WIDE(pack_length, start_forward),
    .backward = CKPT_WIDE(pack_length, start_backward),
};

/* Mixture of experts (ops/defs/moe.c). The router's product is cuBLASLt's, in float32; softmax and the choice are a
 * thread a token. A counting sort in two kernels, a block an expert, finds the rows: every block reads all choices, in
 * order, so that nothing depends on the order of threads. Tokens are gathered, and the experts' products go over their
 * rows (grouped.cuh); the host never learns how many there are.
 *
 * Forward: 6 FLOP for each weight of the chosen experts and token; backward twice that. Around them each row of the inner
 * width is read and written about 3 times forward and 7 backward. */
#include "kernels/cuda/blas_layer.cuh"
#include "kernels/cuda/fast.cuh"
#include "kernels/cuda/grouped.cuh"
#include "kernels/cuda/wide.cuh"

namespace
{
enum { PROBABILITIES, ROUTES, GATES, UPS }; /* saved */
enum { ROUTER, GATE, UP, DOWN };            /* parameters */
enum { LOGITS, DROUTER, DX, CALLS };
enum { MOE_THREADS = 256, MOE_EACH = 8 /* assignments of a thread at a time */ };
const char *const moe_key[CALLS] = {"logits", "drouter", "dx"};

struct moe_state {
    ckpt_blas_product *call[CALLS]; /* NULL: not needed */
    ckpt_bytes forward_bytes, backward_bytes;
    char choice[CKPT_CHOICE_TEXT];
};

/* Places in the workspace; the products' is behind `own`. Forward: rows of tokens, which the experts' outputs take, inner
 * values, sums of probabilities. Backward: rows of tokens, rows of dy, which the gradients of tokens take, three of the
 * inner width, gradients of weights and logits. */
struct moe_room {
    ckpt_bytes x, dy, inner[3], sums, dweights, dlogits, own;
};

ckpt_bytes moe_take(moe_room *r, int64_t count, ckpt_bytes size)
{
    const ckpt_bytes at = r->own;
    r->own += ckpt_round_up(count * size, CKPT_ALIGN);
    return at;
}

moe_room moe_room_of(const ckpt_moe &m, ckpt_dtype dtype, bool backward)
{
    const ckpt_bytes size = ckpt_dtype_bytes(dtype);
    moe_room r = {};
    r.x = moe_take(&r, m.rows * m.width, size);
    r.inner[0] = moe_take(&r, m.rows * m.hidden, size);
    if (!backward) {
        r.sums = moe_take(&r, m.experts, 4);
        return r;
    }
    r.dy = moe_take(&r, m.rows * m.width, size);
    r.inner[1] = moe_take(&r, m.rows * m.hidden, size);
    r.inner[2] = moe_take(&r, m.rows * m.hidden, size);
    r.dweights = moe_take(&r, m.tokens * m.top, 4);
    r.dlogits = moe_take(&r, m.tokens * m.experts, size);
    return r;
}

/* ---- the router's products ---- */

ckpt_code moe_prepare(void *memory, void *context, const ckpt_node *node, ckpt_bytes forward, ckpt_bytes backward,
                      const char *choice, ckpt_err *err)
{
    moe_state *const state = (moe_state *)memory;
    const ckpt_moe m = ckpt_moe_of(node);
    const ckpt_dtype own = node->dtype, wide = CKPT_FLOAT32;
    const int64_t N = m.tokens, C = m.width, E = m.experts;
    const ckpt_blas_shape shape[CALLS] = {blas_of(N, E, C, false, true, own, wide, false, false),
                                          blas_of(E, C, N, true, false, own, wide, false, false),
                                          blas_of(N, C, E, false, false, own, own, false, false)};
    for (int k = 0; k < CALLS; k++) {
        const ckpt_bytes limit = blas_rest(k == LOGITS ? forward : backward, moe_room_of(m, own, k != LOGITS).own);
        char piece[CKPT_PIECE_TEXT];
        if (k == DX && (node->grad_in & 1) == 0) {
            continue;
        }
        CKPT_TRY(ckpt_blas_product_create((ckpt_cuda *)context, &shape[k], limit,
                                          ckpt_choice_get(choice, moe_key[k], piece), &state->call[k], err));
        ckpt_bytes *const most = k == LOGITS ? &state->forward_bytes : &state->backward_bytes;
        *most = blas_most(*most, state->call[k]);
        ckpt_choice_add(state->choice, moe_key[k], ckpt_blas_product_choice(state->call[k]));
    }
    return CKPT_OK;
}

void moe_release(void *memory)
{
    for (ckpt_blas_product *const call : ((moe_state *)memory)->call) {
        ckpt_blas_product_destroy(call);
    }
}

void moe_workspace(const ckpt_node *node, const void *memory, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const moe_state *const state = (const moe_state *)memory;
    const ckpt_moe m = ckpt_moe_of(node);
    const ckpt_bytes parts = ckpt_gpu_column_sums_workspace(m.tokens, m.experts);
    *forward = moe_room_of(m, node->dtype, false).own + (parts > state->forward_bytes ? parts : state->forward_bytes);
    *backward = moe_room_of(m, node->dtype, true).own + state->backward_bytes;
}

const char *moe_choice(const void *memory)
{
    return ((const moe_state *)memory)->choice;
}

/* A kernel's call at hand. */
struct moe_call {
    const ckpt_kernel_args *args;
    const ckpt_cuda *cuda;
    ckpt_moe m;
    moe_room room;
    int32_t *routes;
    float *probabilities;
};

moe_call moe_open(const ckpt_kernel_args *args, bool backward)
{
    moe_call q = {};
    q.args = args;
    q.cuda = cuda_of(args);
    q.m = ckpt_moe_of(args->node);
    q.room = moe_room_of(q.m, args->node->dtype, backward);
    q.routes = (int32_t *)args->saved[ROUTES];
    q.probabilities = (float *)args->saved[PROBABILITIES];
    return q;
}

void *moe_at(const moe_call &q, ckpt_bytes offset)
{
    return (char *)q.args->workspace + offset;
}

ckpt_code moe_product(const moe_call &q, int which, const void *x, const void *w, void *y, ckpt_err *err)
{
    return ckpt_blas_product_run(((const moe_state *)q.args->state)->call[which], x, w, y, NULL, moe_at(q, q.room.own),
                                 err);
}
} // namespace

/* ---- routing ---- */

/* Logits become probabilities; then the choice, of equals the first. */
static __global__ void moe_choose(int64_t tokens, ckpt_moe m, float *probabilities, int32_t *choice)
{
    for (int64_t n = first_item(); n < tokens; n += item_step()) {
        float *const p = probabilities + n * m.experts;
        float most = p[0], sum = 0;
        for (int64_t e = 1; e < m.experts; e++) {
            most = fmaxf(most, p[e]);
        }
        for (int64_t e = 0; e < m.experts; e++) {
            p[e] = expf(p[e] - most);
            sum += p[e];
        }
        for (int64_t e = 0; e < m.experts; e++) {
            p[e] /= sum;
        }
        for (int64_t j = 0; j < m.top; j++) {
            int best = -1;
            for (int e = 0; e < (int)m.experts; e++) {
                bool taken = false;
                for (int64_t i = 0; i < j; i++) {
                    taken = taken || choice[n * m.top + i] == e;
                }
                best = !taken && (best < 0 || p[e] > p[best]) ? e : best;
            }
            choice[n * m.top + j] = best;
        }
    }
}

/* The sum of `own` over the threads before this one, and in *all over all threads. */
__device__ static int moe_scan(int own, int *shared, int *all)
{
    const int mine = (int)threadIdx.x;
    int sum = own;
    shared[mine] = own;
    __syncthreads();
    for (int step = 1; step < MOE_THREADS; step *= 2) {
        const int before = mine >= step ? shared[mine - step] : 0;
        __syncthreads();
        sum += before;
        shared[mine] = sum;
        __syncthreads();
    }
    *all = shared[MOE_THREADS - 1];
    __syncthreads();
    return sum - own;
}

/* A block an expert: how many chose it. */
static __global__ void __launch_bounds__(MOE_THREADS) moe_count(ckpt_moe m, int32_t *routes)
{
    __shared__ int shared[MOE_THREADS];
    const int expert = (int)blockIdx.x;
    int own = 0, all = 0;
    for (int64_t a = threadIdx.x; a < m.slot; a += MOE_THREADS) {
        own += routes[a] == expert;
    }
    (void)moe_scan(own, shared, &all);
    if (threadIdx.x == 0) {
        routes[m.count + expert] = all;
    }
}

/* Rows of an expert, with those of no token. */
__device__ static int64_t moe_rows_of(const ckpt_moe &m, int64_t count)
{
    const int64_t rows = count < m.places ? count : m.places;
    return (rows + CKPT_MOE_ROWS - 1) / CKPT_MOE_ROWS * CKPT_MOE_ROWS;
}

/* A block an expert: places for those who chose it, in order. The last one also ends the table. */
static __global__ void __launch_bounds__(MOE_THREADS) moe_place(ckpt_moe m, int32_t *routes)
{
    __shared__ int shared[MOE_THREADS];
    const int64_t expert = blockIdx.x, count = routes[m.count + expert];
    int64_t start = 0, taken = 0;
    for (int64_t e = 0; e < expert; e++) {
        start += moe_rows_of(m, routes[m.count + e]);
    }
    for (int64_t base = 0; base < m.slot; base += MOE_THREADS * MOE_EACH) {
        const int64_t from = base + threadIdx.x * MOE_EACH;
        int own = 0, all = 0;
        for (int64_t a = from; a < from + MOE_EACH && a < m.slot; a++) {
            own += routes[a] == expert;
        }
        int64_t place = taken + moe_scan(own, shared, &all);
        for (int64_t a = from; a < from + MOE_EACH && a < m.slot; a++) {
            if (routes[a] == expert) {
                const bool fits = place < m.places;
                routes[m.slot + a] = fits ? (int32_t)(start + place) : -1;
                if (fits) {
                    routes[m.source + start + place] = (int32_t)a;
                }
                place++;
            }
        }
        taken += all;
    }
    const bool last = expert == m.experts - 1;
    const int64_t used = start + (count < m.places ? count : m.places), end = start + moe_rows_of(m, count);
    for (int64_t r = used + threadIdx.x; r < (last ? m.rows : end); r += MOE_THREADS) {
        routes[m.source + r] = -1;
    }
    if (threadIdx.x == 0) {
        routes[m.first + expert] = (int32_t)start;
    }
    if (threadIdx.x == 0 && last) {
        routes[m.first + m.experts] = (int32_t)end;
    }
}

/* The weight of assignment a: its share of the chosen experts' probabilities, or the probability. */
__device__ static float moe_weight(const ckpt_moe &m, const float *probabilities, const int32_t *routes, int64_t a,
                                   float *share)
{
    const int64_t n = divide(a, m.top).whole;
    const float *const p = probabilities + n * m.experts;
    float sum = 0;
    for (int64_t j = 0; j < m.top; j++) {
        sum += p[routes[n * m.top + j]];
    }
    *share = m.normalize ? sum : 1.0f;
    return p[routes[a]] / *share;
}

/* Rows of tokens in the order of experts; zeros where there is no token. */
template <typename T, int N>
__global__ void moe_gather(int64_t items, ckpt_moe m, const int32_t *routes, const T *from, T *to)
{
    for (int64_t item = first_item(); item < items; item += item_step()) {
        const quotient row = divide(item, m.width / N);
        const int32_t a = routes[m.source + row.whole];
        wide<T, N> value = {};
        if (a >= 0) {
            value = load_wide<N>(from + divide(a, m.top).whole * m.width + row.rest * N);
        }
        store_wide<N>(to + row.whole * m.width + row.rest * N, value);
    }
}

/* ---- forward ---- */

/* inner = silu(gate) up; gates and ups of rows behind the last expert's become 0. */
template <typename T, int N>
__global__ void moe_activate(int64_t items, ckpt_moe m, const int32_t *routes, T *gates, T *ups, T *inner)
{
    const int64_t used = (int64_t)routes[m.first + m.experts] * m.hidden;
    for (int64_t item = first_item(); item < items; item += item_step()) {
        const int64_t at = item * N;
        wide<float, N> value = {};
        if (at >= used) {
            put_wide<N>(gates + at, value, false);
            put_wide<N>(ups + at, value, false);
            continue;
        }
        const wide<float, N> gate = load_floats<N>(gates + at), up = load_floats<N>(ups + at);
        for (int j = 0; j < N; j++) {
            value.at[j] = logistic<float>(gate.at[j]) * gate.at[j] * up.at[j];
        }
        put_wide<N>(inner + at, value, false);
    }
}

/* y of each token: its rows by weight, in the order of its choices; or, backward, their sum, added to what is there. */
template <typename T, int N>
__global__ void moe_combine(int64_t items, ckpt_moe m, bool weighted, const float *probabilities, const int32_t *routes,
                            const T *rows, T *y)
{
    for (int64_t item = first_item(); item < items; item += item_step()) {
        const quotient token = divide(item, m.width / N);
        const int64_t k = token.rest * N;
        wide<float, N> sum = {};
        if (!weighted) {
            sum = load_floats<N>(y + token.whole * m.width + k);
        }
        for (int64_t a = token.whole * m.top; a < (token.whole + 1) * m.top; a++) {
            const int64_t slot = routes[m.slot + a];
            float share = 1.0f;
            const float weight = weighted ? moe_weight(m, probabilities, routes, a, &share) : 1.0f;
            if (slot >= 0) {
                const wide<float, N> value = load_floats<N>(rows + slot * m.width + k);
                for (int j = 0; j < N; j++) {
                    sum.at[j] += weight * value.at[j];
                }
            }
        }
        put_wide<N>(y + token.whole * m.width + k, sum, false);
    }
}

/* One thread. */
static __global__ void moe_balance(ckpt_moe m, const int32_t *routes, const float *sums, float *loss)
{
    double sum = 0;
    for (int64_t e = 0; e < m.experts; e++) {
        sum += (double)routes[m.count + e] / (double)m.tokens * ((double)sums[e] / (double)m.tokens);
    }
    *loss = (float)((double)m.experts * sum);
}

template <typename T> static const T *moe_param(const moe_call &q, int k)
{
    return (const T *)ckpt_product_param(q.args, k);
}

/* y = x W, or x0 W0 + x1 W1, over the rows of each expert. */
template <typename T, bool TURNED>
static void moe_rows(const moe_call &q, int64_t columns, int64_t inner, const T *x0, const T *w0, const T *x1,
                     const T *w1, T *y)
{
    grouped_rows_args<T> a = {};
    a.columns = columns;
    a.inner = inner;
    a.groups = (int)q.m.experts;
    a.first = q.routes + q.m.first;
    a.x[0] = x0;
    a.w[0] = w0;
    a.x[1] = x1;
    a.w[1] = w1;
    a.y = y;
    start_grouped_rows<T, TURNED>(q.cuda, q.m.rows, a);
}

/* Kernels over rows of N neighbours: widths that are whole packs take packs. */
template <typename T, int N> static void moe_start_gather(const moe_call &q, const void *from, void *to)
{
    CKPT_LAUNCH_ITEMS(q.cuda, (moe_gather<T, N>), q.m.rows * q.m.width / N, q.m, (const int32_t *)q.routes,
                      (const T *)from, (T *)to);
}
template <typename T, int N> static void moe_start_activate(const moe_call &q)
{
    CKPT_LAUNCH_ITEMS(q.cuda, (moe_activate<T, N>), q.m.rows * q.m.hidden / N, q.m, (const int32_t *)q.routes,
                      (T *)q.args->saved[GATES], (T *)q.args->saved[UPS], (T *)moe_at(q, q.room.inner[0]));
}
template <typename T, int N> static void moe_start_combine(const moe_call &q, bool weighted, const void *rows, void *y)
{
    CKPT_LAUNCH_ITEMS(q.cuda, (moe_combine<T, N>), q.m.tokens * q.m.width / N, q.m, weighted,
                      (const float *)q.probabilities, (const int32_t *)q.routes, (const T *)rows, (T *)y);
}

template <typename T> static void moe_start_experts(const moe_call &q)
{
    const int64_t C = q.m.width, F = q.m.hidden;
    T *const x = (T *)moe_at(q, q.room.x), *const inner = (T *)moe_at(q, q.room.inner[0]);
    T *const gates = (T *)q.args->saved[GATES], *const ups = (T *)q.args->saved[UPS];
    moe_rows<T, false>(q, F, C, x, moe_param<T>(q, GATE), NULL, NULL, gates);
    moe_rows<T, false>(q, F, C, x, moe_param<T>(q, UP), NULL, NULL, ups);
    CKPT_BY_WIDTH(q.args->node->dtype, F, moe_start_activate, q);
    moe_rows<T, false>(q, C, F, inner, moe_param<T>(q, DOWN), NULL, NULL, x);
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const moe_call q = moe_open(args, false);
    const ckpt_dtype dtype = args->node->dtype;
    const int64_t C = q.m.width;
    float *const sums = (float *)moe_at(q, q.room.sums);
    CKPT_TRY(moe_product(q, LOGITS, args->in[0], ckpt_product_param(args, ROUTER), q.probabilities, err));
    CKPT_LAUNCH_ITEMS(q.cuda, moe_choose, q.m.tokens, q.m, q.probabilities, q.routes);
    CKPT_LAUNCH(q.cuda, moe_count, (unsigned)q.m.experts, MOE_THREADS, 0, q.m, q.routes);
    CKPT_LAUNCH(q.cuda, moe_place, (unsigned)q.m.experts, MOE_THREADS, 0, q.m, q.routes);
    CKPT_BY_WIDTH(dtype, C, moe_start_gather, q, args->in[0], moe_at(q, q.room.x));
    CKPT_BY_DTYPE(dtype, moe_start_experts, q);
    CKPT_BY_WIDTH(dtype, C, moe_start_combine, q, true, moe_at(q, q.room.x), args->out[0]);
    CKPT_TRY(ckpt_cuda_column_sums((ckpt_cuda *)args->context, CKPT_FLOAT32, q.m.tokens, q.m.experts, q.probabilities,
                                   sums, false, moe_at(q, q.room.own), err));
    CKPT_LAUNCH(q.cuda, moe_balance, 1, 1, 0, q.m, (const int32_t *)q.routes, (const float *)sums,
                (float *)args->out[1]);
    return ckpt_cuda_launched("moe", err);
}

/* ---- backward ---- */

/* A block a row: from the gradient of its inner values as if every weight were 1, in `dup`, to the gradient of its
 * weight, weighted inner values, and the gradients of gate and up. */
template <typename T>
__global__ void __launch_bounds__(MOE_THREADS)
    moe_inner(ckpt_moe m, const float *probabilities, const int32_t *routes, const T *gates, const T *ups, T *inner,
              T *dgate, T *dup, float *dweights)
{
    __shared__ float shared[32];
    const int64_t used = routes[m.first + m.experts];
    for (int64_t row = blockIdx.x; row < used; row += gridDim.x) {
        const int64_t a = routes[m.source + row], start = row * m.hidden;
        float share = 1.0f, dot = 0;
        const float weight = a >= 0 ? moe_weight(m, probabilities, routes, a, &share) : 0.0f;
        for (int64_t i = start + threadIdx.x; i < start + m.hidden; i += MOE_THREADS) {
            const float g = to_float(gates[i]), u = to_float(ups[i]), du = to_float(dup[i]), s = logistic<float>(g);
            const float own = s * g * u, d = weight * du;
            dot += du * own;
            inner[i] = from_float<T>(weight * own);
            dgate[i] = from_float<T>(d * u * (s * (1.0f + g * (1.0f - s))));
            dup[i] = from_float<T>(d * (g * s));
        }
        const float sum = block_sum(dot, shared);
        if (threadIdx.x == 0 && a >= 0) {
            dweights[a] = sum;
        }
    }
}

/* From the gradients of a token's weights (NULL: zeros) and of the balancing loss (NULL: 0) to those of its logits. An
 * assignment without a row has no gradient. */
template <typename T>
__global__ void moe_logits(int64_t tokens, ckpt_moe m, const float *probabilities, const int32_t *routes,
                           const float *dweights, const float *balancing, T *dlogits)
{
    const double loss = balancing != NULL ? (double)*balancing : 0;
    const double scale = loss * (double)m.experts / ((double)m.tokens * (double)m.tokens);
    for (int64_t n = first_item(); n < tokens; n += item_step()) {
        const float *const p = probabilities + n * m.experts;
        float mean = 0, whole = 0, share = 1;
        for (int64_t a = n * m.top; a < (n + 1) * m.top; a++) {
            const float weight = moe_weight(m, probabilities, routes, a, &share);
            const bool counts = dweights != NULL && routes[m.slot + a] >= 0;
            mean += m.normalize && counts ? weight * dweights[a] : 0.0f;
        }
        for (int pass = 0; pass < 2; pass++) {
            for (int64_t e = 0; e < m.experts; e++) {
                float d = (float)(scale * (double)routes[m.count + e]);
                for (int64_t a = n * m.top; a < (n + 1) * m.top; a++) {
                    const bool counts = dweights != NULL && routes[m.slot + a] >= 0;
                    d += routes[a] == e ? ((counts ? dweights[a] : 0.0f) - mean) / share : 0.0f;
                }
                if (pass == 0) {
                    whole += p[e] * d;
                } else {
                    dlogits[n * m.experts + e] = from_float<T>(p[e] * (d - whole));
                }
            }
        }
    }
}

template <typename T> static void moe_start_gradients(const moe_call &q)
{
    const ckpt_kernel_args *const args = q.args;
    const int64_t C = q.m.width, F = q.m.hidden;
    const int groups = (int)q.m.experts;
    const int32_t *const first = q.routes + q.m.first;
    const T *const x = (const T *)moe_at(q, q.room.x);
    T *const dy = (T *)moe_at(q, q.room.dy), *const inner = (T *)moe_at(q, q.room.inner[0]);
    T *const dgate = (T *)moe_at(q, q.room.inner[1]), *const dup = (T *)moe_at(q, q.room.inner[2]);
    moe_rows<T, true>(q, F, C, dy, moe_param<T>(q, DOWN), NULL, NULL, dup);
    CKPT_LAUNCH(q.cuda, moe_inner<T>, grid_for(q.cuda, q.m.rows, 1), MOE_THREADS, 0, q.m,
                (const float *)q.probabilities, (const int32_t *)q.routes, (const T *)args->saved[GATES],
                (const T *)args->saved[UPS], inner, dgate, dup, (float *)moe_at(q, q.room.dweights));
    start_grouped_weights<T>(q.cuda, groups, C, F, first, dy, inner, args->grad_param[DOWN]);
    start_grouped_weights<T>(q.cuda, groups, F, C, first, dgate, x, args->grad_param[GATE]);
    start_grouped_weights<T>(q.cuda, groups, F, C, first, dup, x, args->grad_param[UP]);
    if (args->grad_in[0] != NULL) {
        moe_rows<T, true>(q, C, F, dgate, moe_param<T>(q, GATE), dup, moe_param<T>(q, UP), dy);
    }
}

template <typename T> static void moe_start_logits(const moe_call &q)
{
    const float *const dweights = q.args->grad_out[0] != NULL ? (const float *)moe_at(q, q.room.dweights) : NULL;
    CKPT_LAUNCH_ITEMS(q.cuda, moe_logits<T>, q.m.tokens, q.m, (const float *)q.probabilities, (const int32_t *)q.routes,
                      dweights, (const float *)q.args->grad_out[1], (T *)moe_at(q, q.room.dlogits));
}

/* Nothing reads y. */
static ckpt_code no_expert_gradients(const moe_call &q, ckpt_err *err)
{
    const cudaStream_t compute = q.cuda->stream[CKPT_STREAM_COMPUTE];
    const size_t bytes = (size_t)(q.m.experts * q.m.width * q.m.hidden) * sizeof(float);
    for (int k = GATE; k <= DOWN; k++) {
        CKPT_TRY(ckpt_cuda_check(cudaMemsetAsync(q.args->grad_param[k], 0, bytes, compute), "experts", err));
        q.cuda->launched->copies++;
    }
    return CKPT_OK;
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const moe_call q = moe_open(args, true);
    const ckpt_dtype dtype = args->node->dtype;
    const int64_t C = q.m.width;
    void *const dlogits = moe_at(q, q.room.dlogits);
    if (args->grad_out[0] != NULL) {
        CKPT_BY_WIDTH(dtype, C, moe_start_gather, q, args->in[0], moe_at(q, q.room.x));
        CKPT_BY_WIDTH(dtype, C, moe_start_gather, q, args->grad_out[0], moe_at(q, q.room.dy));
        CKPT_BY_DTYPE(dtype, moe_start_gradients, q);
    } else {
        CKPT_TRY(no_expert_gradients(q, err));
    }
    CKPT_BY_DTYPE(dtype, moe_start_logits, q);
    CKPT_TRY(moe_product(q, DROUTER, dlogits, args->in[0], args->grad_param[ROUTER], err));
    if (args->grad_in[0] != NULL) {
        CKPT_TRY(moe_product(q, DX, dlogits, ckpt_product_param(args, ROUTER), args->grad_in[0], err));
    }
    if (args->grad_in[0] != NULL && args->grad_out[0] != NULL) {
        CKPT_BY_WIDTH(dtype, C, moe_start_combine, q, false, moe_at(q, q.room.dy), args->grad_in[0]);
    }
    return ckpt_cuda_launched("moe backward", err);
}

extern "C" const ckpt_kernel ckpt_cuda_moe = {
    .op = "moe",
    .state_bytes = sizeof(moe_state),
    .prepare = moe_prepare,
    .release = moe_release,
    .workspace = moe_workspace,
    .choice = moe_choice,
    .forward = forward,
    .backward = backward,
};

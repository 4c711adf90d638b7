/* Mixture of experts (ops/defs/moe.c). The rows of an expert go through oneDNN's products in chunks of CKPT_MOE_CHUNK
 * and then of CKPT_MOE_ROWS rows, so that two prepared sizes do for any number of rows. Rows of no token are zeros and
 * add nothing to a gradient. Every sum's order follows from the shape and the routes, not from the threads.
 *
 * All of it is float32. Of bfloat16 the tokens, the router and the weights of the expert at hand are widened into the
 * workspace: an expert without tokens costs nothing. */
#include <string.h>

#include "core/formats/tensor.h"
#include "kernels/cpu/bfloat16.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

enum { PROBABILITIES, ROUTES, GATES, UPS };                                         /* saved */
enum { ROUTER, GATE, UP, DOWN };                                                    /* parameters */
enum { LOGITS, DROUTER, DX, ROUTER_CALLS };                                         /* products of the router */
enum { IN, OUT, DINNER, DOUT, DOUT_ADDS, DIN, DIN_ADDS, DROWS, DROWS_ADDS, CALLS }; /* of a chunk of rows */
enum { CHUNK, PIECE, SIZES };

typedef struct moe_state {
    ckpt_dnn *router[ROUTER_CALLS];
    ckpt_dnn *call[SIZES][CALLS]; /* NULL: not needed */
    ckpt_bytes forward_bytes, backward_bytes;
} moe_state;

static const int64_t size_rows[SIZES] = {CKPT_MOE_CHUNK, CKPT_MOE_ROWS};

/* ---- workspace ---- */

/* Forward: rows of tokens, which become the experts' outputs, and a chunk's inner values. Backward: rows of tokens, rows
 * of dy, which become the gradients of those tokens, a chunk's inner gradients, those of weights and logits. Of bfloat16:
 * all tokens, which become the outputs, backward their gradients, the router, an expert's weights, a chunk's gates and
 * ups. */
typedef struct room {
    ckpt_bytes x, dy, inner[3], dweights, dlogits, tokens, dtokens, weights[4], gates, ups, own;
} room;

static ckpt_bytes take(room *r, int64_t count)
{
    const ckpt_bytes at = r->own;
    r->own += ckpt_round_up(count * (ckpt_bytes)sizeof(float), CKPT_ALIGN);
    return at;
}

static room room_of(const ckpt_moe *m, bool narrow, bool backward)
{
    room r = {0};
    r.x = take(&r, m->rows * m->width);
    r.inner[0] = take(&r, CKPT_MOE_CHUNK * m->hidden);
    if (backward) {
        r.dy = take(&r, m->rows * m->width);
        r.inner[1] = take(&r, CKPT_MOE_CHUNK * m->hidden);
        r.inner[2] = take(&r, CKPT_MOE_CHUNK * m->hidden);
        r.dweights = take(&r, m->tokens * m->top);
        r.dlogits = take(&r, m->tokens * m->experts);
    }
    if (narrow) {
        r.tokens = take(&r, m->tokens * m->width);
        r.dtokens = backward ? take(&r, m->tokens * m->width) : 0;
        r.weights[ROUTER] = take(&r, m->experts * m->width);
        for (int k = GATE; k <= DOWN; k++) {
            r.weights[k] = take(&r, m->width * m->hidden);
        }
        r.gates = take(&r, CKPT_MOE_CHUNK * m->hidden);
        r.ups = take(&r, CKPT_MOE_CHUNK * m->hidden);
    }
    return r;
}

static float *at(const ckpt_kernel_args *args, ckpt_bytes offset)
{
    return (float *)(void *)((char *)args->workspace + offset);
}

/* ---- products ---- */

/* Where it goes, what it multiplies, whether it adds. */
typedef struct wanted {
    ckpt_dnn **to;
    ckpt_dnn_matrix x, w, y;
    bool adds, backward;
} wanted;

static ckpt_dnn_matrix plain(int64_t rows, int64_t columns)
{
    return ckpt_dnn_plain(rows, columns, CKPT_FLOAT32);
}

static ckpt_dnn_matrix turned(int64_t rows, int64_t columns)
{
    return ckpt_dnn_turned(rows, columns, CKPT_FLOAT32);
}

static ckpt_code make(moe_state *state, const wanted *w, int count, int threads, const ckpt_bytes limit[2],
                      ckpt_err *err)
{
    for (int i = 0; i < count; i++) {
        CKPT_TRY(
            ckpt_dnn_matmul(&w[i].x, &w[i].w, &w[i].y, false, w[i].adds, threads, limit[w[i].backward], w[i].to, err));
        ckpt_bytes *const most = w[i].backward ? &state->backward_bytes : &state->forward_bytes;
        const ckpt_bytes used = ckpt_dnn_workspace(*w[i].to);
        *most = used > *most ? used : *most;
    }
    return CKPT_OK;
}

static ckpt_code make_chunk(moe_state *state, const ckpt_node *node, const ckpt_moe *m, int size,
                            const ckpt_bytes limit[2], ckpt_err *err)
{
    const int64_t R = size_rows[size], C = m->width, F = m->hidden;
    ckpt_dnn **const call = state->call[size];
    const wanted w[] = {
        {&call[IN], plain(R, C), turned(F, C), plain(R, F), false, false},
        {&call[OUT], plain(R, F), turned(C, F), plain(R, C), false, false},
        {&call[DINNER], plain(R, C), plain(C, F), plain(R, F), false, true},
        {&call[DOUT], turned(R, C), plain(R, F), plain(C, F), false, true},
        {&call[DOUT_ADDS], turned(R, C), plain(R, F), plain(C, F), true, true},
        {&call[DIN], turned(R, F), plain(R, C), plain(F, C), false, true},
        {&call[DIN_ADDS], turned(R, F), plain(R, C), plain(F, C), true, true},
        {&call[DROWS], plain(R, F), plain(F, C), plain(R, C), false, true},
        {&call[DROWS_ADDS], plain(R, F), plain(F, C), plain(R, C), true, true},
    };
    return make(state, w, (node->grad_in & 1) != 0 ? CALLS : DROWS, node->threads, limit, err);
}

static ckpt_code prepare(void *memory, void *context, const ckpt_node *node, ckpt_bytes forward, ckpt_bytes backward,
                         const char *choice, ckpt_err *err)
{
    moe_state *const state = memory;
    const ckpt_moe m = ckpt_moe_of(node);
    const int64_t N = m.tokens, C = m.width, E = m.experts;
    const bool narrow = node->dtype == CKPT_BFLOAT16;
    const ckpt_bytes own[2] = {room_of(&m, narrow, false).own, room_of(&m, narrow, true).own},
                     given[2] = {forward, backward};
    ckpt_bytes limit[2];
    (void)choice; /* none on a CPU */
    (void)context;
    for (int k = 0; k < 2; k++) {
        limit[k] = given[k] < 0 ? -1 : given[k] > own[k] ? given[k] - own[k] : 0;
    }
    const wanted router[] = {
        {&state->router[LOGITS], plain(N, C), turned(E, C), plain(N, E), false, false},
        {&state->router[DROUTER], turned(N, E), plain(N, C), plain(E, C), false, true},
        {&state->router[DX], plain(N, E), plain(E, C), plain(N, C), false, true},
    };
    CKPT_TRY(make(state, router, (node->grad_in & 1) != 0 ? ROUTER_CALLS : DX, node->threads, limit, err));
    for (int size = m.rows >= CKPT_MOE_CHUNK ? CHUNK : PIECE; size < SIZES; size++) {
        CKPT_TRY(make_chunk(state, node, &m, size, limit, err));
    }
    return CKPT_OK;
}

static void release(void *memory)
{
    const moe_state *const state = memory;
    for (int k = 0; k < ROUTER_CALLS; k++) {
        ckpt_dnn_destroy(state->router[k]);
    }
    for (int k = 0; k < SIZES * CALLS; k++) {
        ckpt_dnn_destroy(state->call[k / CALLS][k % CALLS]);
    }
}

static void workspace(const ckpt_node *node, const void *memory, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const moe_state *const state = memory;
    const ckpt_moe m = ckpt_moe_of(node);
    const bool narrow = node->dtype == CKPT_BFLOAT16;
    *forward = room_of(&m, narrow, false).own + state->forward_bytes;
    *backward = room_of(&m, narrow, true).own + state->backward_bytes;
}

/* A kernel's call at hand. */
typedef struct moe {
    const ckpt_kernel_args *args;
    ckpt_moe m;
    bool narrow;
    room room;
    int32_t *routes;
    const float *probabilities;
} moe;

static moe open(const ckpt_kernel_args *args, bool backward)
{
    moe q = {.args = args,
             .m = ckpt_moe_of(args->node),
             .narrow = args->node->dtype == CKPT_BFLOAT16,
             .routes = args->saved[ROUTES]};
    q.room = room_of(&q.m, q.narrow, backward);
    q.probabilities = args->saved[PROBABILITIES];
    return q;
}

/* `count` elements from element `first` on: in `from` itself, or widened into the workspace. */
static const float *widened(const moe *q, const void *from, int64_t first, int64_t count, ckpt_bytes offset)
{
    if (!q->narrow) {
        return (const float *)from + first;
    }
    ckpt_widen_all(count, (const uint16_t *)from + first, at(q->args, offset), q->args->node->threads);
    return at(q->args, offset);
}

/* Where they are to be written; and then back. */
static float *opened(const moe *q, void *to, int64_t first, ckpt_bytes offset)
{
    return q->narrow ? at(q->args, offset) : (float *)to + first;
}

static void rounded(const moe *q, const float *from, int64_t count, void *to, int64_t first)
{
    if (q->narrow) {
        ckpt_narrow_all(count, from, (uint16_t *)to + first, q->args->node->threads);
    }
}

/* Of an expert's weights those of parameter k, and the router. */
static const float *weights_of(const moe *q, int k, int64_t expert)
{
    const int64_t count = q->m.width * (k == ROUTER ? q->m.experts : q->m.hidden);
    return widened(q, ckpt_product_param(q->args, k), expert * count, count, q->room.weights[k]);
}

static ckpt_code product(const moe *q, const ckpt_dnn *call, const float *x, const float *w, float *y, ckpt_err *err)
{
    return ckpt_dnn_run(call, (const void *const[4]){x, w, y, NULL}, at(q->args, q->room.own), err);
}

/* An expert's weights. */
typedef struct expert {
    int64_t number;
    const float *weights[4];
} expert;

static expert expert_at(const moe *q, int64_t number)
{
    expert e = {.number = number};
    for (int k = GATE; k <= DOWN && q->routes[q->m.first + number] < q->routes[q->m.first + number + 1]; k++) {
        e.weights[k] = weights_of(q, k, number);
    }
    return e;
}

/* Rows of an expert that one set of products takes. */
typedef struct chunk {
    const expert *expert;
    int64_t first, rows; /* first: row */
    ckpt_dnn *const *call;
    bool later; /* not the expert's first */
} chunk;

/* The chunk at row `first`, which is an expert's: rows < its end. */
static chunk chunk_at(const moe *q, const expert *e, int64_t first)
{
    const moe_state *const state = q->args->state;
    const int64_t start = q->routes[q->m.first + e->number], end = q->routes[q->m.first + e->number + 1];
    const int size = end - first >= CKPT_MOE_CHUNK ? CHUNK : PIECE;
    return (chunk){e, first, size_rows[size], state->call[size], first > start};
}

/* ---- routing ---- */

/* The weight of assignment a: its share of the chosen experts' probabilities, or the probability. */
static float weight_of(const moe *q, int64_t a, float *share)
{
    const int64_t n = a / q->m.top;
    const float *const p = q->probabilities + n * q->m.experts;
    float sum = 0.0f;
    for (int64_t j = 0; j < q->m.top; j++) {
        sum += p[q->routes[n * q->m.top + j]];
    }
    *share = q->m.normalize ? sum : 1.0f;
    return p[q->routes[a]] / *share;
}

static void choose(const moe *q, float *probabilities)
{
    const int64_t E = q->m.experts, K = q->m.top;
#pragma omp parallel for schedule(static) num_threads(q->args->node->threads) if (q->m.tokens * E > CKPT_PARALLEL)
    for (int64_t n = 0; n < q->m.tokens; n++) {
        float *const p = probabilities + n * E;
        const float most = ckpt_vector_max(E, p), sum = ckpt_vector_exp_sum(E, p, most);
        ckpt_vector_exp(E, p, most, 1.0f / sum, p);
        for (int64_t j = 0; j < K; j++) {
            int64_t best = -1;
            for (int64_t e = 0; e < E; e++) {
                bool taken = false;
                for (int64_t i = 0; i < j; i++) {
                    taken = taken || q->routes[n * K + i] == e;
                }
                best = !taken && (best < 0 || p[e] > p[best]) ? e : best;
            }
            q->routes[n * K + j] = (int32_t)best;
        }
    }
}

/* Counting sort of the assignments by expert. */
static void sort(const moe *q)
{
    const ckpt_moe *const m = &q->m;
    int32_t *const slot = q->routes + m->slot, *const source = q->routes + m->source,
                   *const count = q->routes + m->count;
    int32_t *const first = q->routes + m->first;
    memset(count, 0, (size_t)m->experts * sizeof *count);
    for (int64_t a = 0; a < m->slot; a++) {
        count[q->routes[a]]++;
    }
    first[0] = 0;
    for (int64_t e = 0; e < m->experts; e++) {
        const int64_t rows = count[e] < m->places ? count[e] : m->places;
        first[e + 1] = first[e] + (int32_t)((rows + CKPT_MOE_ROWS - 1) / CKPT_MOE_ROWS * CKPT_MOE_ROWS);
    }
    for (int64_t r = 0; r < m->rows; r++) {
        source[r] = -1;
    }
    /* count[e] counts again, up to where it was, and says how many rows of e are taken. */
    memset(count, 0, (size_t)m->experts * sizeof *count);
    for (int64_t a = 0; a < m->slot; a++) {
        const int64_t e = q->routes[a], place = count[e]++;
        slot[a] = place < m->places ? first[e] + (int32_t)place : -1;
        if (place < m->places) {
            source[slot[a]] = (int32_t)a;
        }
    }
}

/* Rows of tokens in the order of experts; zeros where there is no token. */
static void gather(const moe *q, const void *from, float *to)
{
    const int64_t C = q->m.width, rows = q->routes[q->m.first + q->m.experts];
#pragma omp parallel for schedule(static) num_threads(q->args->node->threads) if (rows * C > CKPT_PARALLEL)
    for (int64_t r = 0; r < rows; r++) {
        const int32_t a = q->routes[q->m.source + r];
        float *const row = to + r * C;
        if (a < 0) {
            memset(row, 0, (size_t)C * sizeof *row);
        } else if (q->narrow) {
            ckpt_widen(C, (const uint16_t *)from + a / q->m.top * C, row);
        } else {
            memcpy(row, (const float *)from + a / q->m.top * C, (size_t)C * sizeof *row);
        }
    }
}

/* ---- forward ---- */

/* The chunk's silu(gate) up. */
static void activate(const moe *q, const chunk *c, const float *gate, const float *up, float *to)
{
    const int64_t count = c->rows * q->m.hidden, blocks = CKPT_BLOCKS(count);
#pragma omp parallel for schedule(static) num_threads(q->args->node->threads) if (count > CKPT_PARALLEL)
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t from = b * CKPT_BLOCK, n = CKPT_IN_BLOCK(count, b);
        ckpt_vector_sigmoid(n, gate + from, to + from);
#pragma omp simd
        for (int64_t i = from; i < from + n; i++) {
            to[i] = to[i] * gate[i] * up[i];
        }
    }
}

/* Both products into an expert, and the one out of it, which overwrites the tokens. */
static ckpt_code run_chunk(const moe *q, const chunk *c, ckpt_err *err)
{
    const ckpt_kernel_args *const args = q->args;
    const int64_t first = c->first * q->m.hidden, count = c->rows * q->m.hidden;
    float *const rows = at(args, q->room.x) + c->first * q->m.width, *const inner = at(args, q->room.inner[0]);
    float *const gate = opened(q, args->saved[GATES], first, q->room.gates);
    float *const up = opened(q, args->saved[UPS], first, q->room.ups);
    CKPT_TRY(product(q, c->call[IN], rows, c->expert->weights[GATE], gate, err));
    CKPT_TRY(product(q, c->call[IN], rows, c->expert->weights[UP], up, err));
    activate(q, c, gate, up, inner);
    rounded(q, gate, count, args->saved[GATES], first);
    rounded(q, up, count, args->saved[UPS], first);
    return product(q, c->call[OUT], inner, c->expert->weights[DOWN], rows, err);
}

/* y of each token: its experts' outputs by weight, in the order of its choices; or, backward, the sum of the gradients
 * of its rows, added to what is there. */
static void combine(const moe *q, const float *rows, bool weighted, float *y)
{
    const int64_t C = q->m.width, K = q->m.top;
#pragma omp parallel for schedule(static) num_threads(q->args->node->threads) if (q->m.tokens * C > CKPT_PARALLEL)
    for (int64_t n = 0; n < q->m.tokens; n++) {
        float *const to = y + n * C;
        if (weighted) {
            memset(to, 0, (size_t)C * sizeof *to);
        }
        for (int64_t a = n * K; a < (n + 1) * K; a++) {
            const int32_t slot = q->routes[q->m.slot + a];
            float share = 1.0f;
            const float weight = weighted ? weight_of(q, a, &share) : 1.0f;
            if (slot >= 0) {
                const float *const from = rows + slot * C;
#pragma omp simd
                for (int64_t i = 0; i < C; i++) {
                    to[i] += weight * from[i];
                }
            }
        }
    }
}

/* experts sum_e count_e / tokens * mean(p_e) */
static float balance(const moe *q)
{
    const ckpt_moe *const m = &q->m;
    double sum = 0.0;
    for (int64_t e = 0; e < m->experts; e++) {
        double probability = 0.0;
        for (int64_t n = 0; n < m->tokens; n++) {
            probability += (double)q->probabilities[n * m->experts + e];
        }
        sum += (double)q->routes[m->count + e] / (double)m->tokens * (probability / (double)m->tokens);
    }
    return (float)((double)m->experts * sum);
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const moe q = open(args, false);
    const moe_state *const state = args->state;
    const int64_t tokens = q.m.tokens * q.m.width;
    CKPT_TRY(product(&q, state->router[LOGITS], widened(&q, args->in[0], 0, tokens, q.room.tokens),
                     weights_of(&q, ROUTER, 0), args->saved[PROBABILITIES], err));
    choose(&q, args->saved[PROBABILITIES]);
    sort(&q);
    gather(&q, args->in[0], at(args, q.room.x));
    for (int64_t n = 0; n < q.m.experts; n++) {
        const expert e = expert_at(&q, n);
        for (int64_t r = q.routes[q.m.first + n]; r < q.routes[q.m.first + n + 1];) {
            const chunk c = chunk_at(&q, &e, r);
            CKPT_TRY(run_chunk(&q, &c, err));
            r += c.rows;
        }
    }
    for (int k = GATES; k <= UPS; k++) {
        const int64_t row = q.m.hidden * ckpt_dtype_bytes(args->node->dtype), used = q.routes[q.m.first + q.m.experts];
        memset((char *)args->saved[k] + used * row, 0, (size_t)((q.m.rows - used) * row));
    }
    float *const y = opened(&q, args->out[0], 0, q.room.tokens);
    combine(&q, at(args, q.room.x), true, y);
    rounded(&q, y, tokens, args->out[0], 0);
    *(float *)args->out[1] = balance(&q);
    return CKPT_OK;
}

/* ---- backward ---- */

/* Of a chunk: from the gradient of its inner values as if every weight were 1, `dinner`, to the gradients of weights,
 * weighted inner values in `inner`, the gradient of gates in `dgate` and of ups in `dinner`. */
static void inner_gradients(const moe *q, const chunk *c, float *inner, float *dgate, float *dinner)
{
    const int64_t F = q->m.hidden, first = c->first * F, count = c->rows * F;
    const float *const gates = widened(q, q->args->saved[GATES], first, count, q->room.gates);
    const float *const ups = widened(q, q->args->saved[UPS], first, count, q->room.ups);
    activate(q, c, gates, ups, inner);
#pragma omp parallel for schedule(static) num_threads(q->args->node->threads) if (count > CKPT_PARALLEL)
    for (int64_t r = 0; r < c->rows; r++) {
        const int32_t a = q->routes[q->m.source + c->first + r];
        const float *const g = gates + r * F, *const u = ups + r * F;
        float *const own = inner + r * F, *const dg = dgate + r * F, *const du = dinner + r * F;
        float share = 1.0f;
        const float weight = a >= 0 ? weight_of(q, a, &share) : 0.0f;
        if (a >= 0) {
            at(q->args, q->room.dweights)[a] = ckpt_vector_dot(F, du, own);
        }
        ckpt_vector_sigmoid(F, g, dg);
#pragma omp simd
        for (int64_t i = 0; i < F; i++) {
            const float s = dg[i], d = weight * du[i];
            own[i] *= weight;
            dg[i] = d * u[i] * (s * (1.0f + g[i] * (1.0f - s)));
            du[i] = d * (g[i] * s);
        }
    }
}

static ckpt_code chunk_gradients(const moe *q, const chunk *c, ckpt_err *err)
{
    const ckpt_kernel_args *const args = q->args;
    const int64_t C = q->m.width, weight = c->expert->number * C * q->m.hidden;
    const float *const *const weights = c->expert->weights;
    const float *const x = at(args, q->room.x) + c->first * C;
    float *const dy = at(args, q->room.dy) + c->first * C, *const inner = at(args, q->room.inner[0]);
    float *const dgate = at(args, q->room.inner[1]), *const dup = at(args, q->room.inner[2]);
    const int out = c->later ? DOUT_ADDS : DOUT, in = c->later ? DIN_ADDS : DIN;
    CKPT_TRY(product(q, c->call[DINNER], dy, weights[DOWN], dup, err));
    inner_gradients(q, c, inner, dgate, dup);
    CKPT_TRY(product(q, c->call[out], dy, inner, args->grad_param[DOWN] + weight, err));
    CKPT_TRY(product(q, c->call[in], dgate, x, args->grad_param[GATE] + weight, err));
    CKPT_TRY(product(q, c->call[in], dup, x, args->grad_param[UP] + weight, err));
    if (args->grad_in[0] == NULL) {
        return CKPT_OK;
    }
    CKPT_TRY(product(q, c->call[DROWS], dgate, weights[GATE], dy, err));
    return product(q, c->call[DROWS_ADDS], dup, weights[UP], dy, err);
}

static ckpt_code expert_gradients(const moe *q, ckpt_err *err)
{
    const ckpt_kernel_args *const args = q->args;
    const size_t weights = (size_t)(q->m.width * q->m.hidden);
    gather(q, args->in[0], at(args, q->room.x));
    gather(q, args->grad_out[0], at(args, q->room.dy));
    for (int64_t n = 0; n < q->m.experts; n++) {
        const int64_t start = q->routes[q->m.first + n], end = q->routes[q->m.first + n + 1];
        const expert e = expert_at(q, n);
        for (int k = GATE; k <= DOWN && start == end; k++) {
            memset(args->grad_param[k] + (size_t)n * weights, 0, weights * sizeof(float));
        }
        for (int64_t r = start; r < end;) {
            const chunk c = chunk_at(q, &e, r);
            CKPT_TRY(chunk_gradients(q, &c, err));
            r += c.rows;
        }
    }
    return CKPT_OK;
}

/* From the gradients of a token's weights and of the balancing loss to those of its logits. */
static void logit_gradients(const moe *q, float balancing)
{
    const ckpt_moe *const m = &q->m;
    const int64_t E = m->experts, K = m->top;
    const float *const dweights = at(q->args, q->room.dweights);
    const double scale = (double)balancing * (double)E / ((double)m->tokens * (double)m->tokens);
#pragma omp parallel for schedule(static) num_threads(q->args->node->threads) if (m->tokens * E > CKPT_PARALLEL)
    for (int64_t n = 0; n < m->tokens; n++) {
        const float *const p = q->probabilities + n * E;
        float *const d = at(q->args, q->room.dlogits) + n * E;
        float mean = 0.0f;
        for (int64_t e = 0; e < E; e++) {
            d[e] = (float)(scale * (double)q->routes[m->count + e]);
        }
        for (int64_t a = n * K; a < (n + 1) * K && m->normalize; a++) {
            float share = 1.0f;
            mean += weight_of(q, a, &share) * dweights[a];
        }
        for (int64_t a = n * K; a < (n + 1) * K; a++) {
            float share = 1.0f;
            (void)weight_of(q, a, &share);
            d[q->routes[a]] += (dweights[a] - mean) / share;
        }
        const float whole = ckpt_vector_dot(E, p, d);
        for (int64_t e = 0; e < E; e++) {
            d[e] = p[e] * (d[e] - whole);
        }
    }
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const moe q = open(args, true);
    const moe_state *const state = args->state;
    const size_t weights = (size_t)(q.m.experts * q.m.width * q.m.hidden);
    const int64_t tokens = q.m.tokens * q.m.width;
    memset(at(args, q.room.dweights), 0, (size_t)q.m.slot * sizeof(float)); /* of assignments without a row */
    if (args->grad_out[0] != NULL) {
        CKPT_TRY(expert_gradients(&q, err));
    }
    for (int k = GATE; k <= DOWN && args->grad_out[0] == NULL; k++) {
        memset(args->grad_param[k], 0, weights * sizeof(float));
    }
    logit_gradients(&q, args->grad_out[1] != NULL ? *(const float *)args->grad_out[1] : 0.0f);
    const float *const dlogits = at(args, q.room.dlogits);
    CKPT_TRY(product(&q, state->router[DROUTER], dlogits, widened(&q, args->in[0], 0, tokens, q.room.tokens),
                     args->grad_param[ROUTER], err));
    if (args->grad_in[0] == NULL) {
        return CKPT_OK;
    }
    float *const dx = opened(&q, args->grad_in[0], 0, q.room.dtokens);
    CKPT_TRY(product(&q, state->router[DX], dlogits, weights_of(&q, ROUTER, 0), dx, err));
    if (args->grad_out[0] != NULL) {
        combine(&q, at(args, q.room.dy), false, dx);
    }
    rounded(&q, dx, tokens, args->grad_in[0], 0);
    return CKPT_OK;
}

const ckpt_kernel ckpt_cpu_moe = {
    .op = "moe",
    .state_bytes = sizeof(moe_state),
    .prepare = prepare,
    .release = release,
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
};

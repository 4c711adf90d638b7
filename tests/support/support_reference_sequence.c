/* Reference: linear and layernorm, softmaxes, attention, lstm cell, embeddings, losses. */
#include <math.h>
#include <string.h>

#include "tests/support/support_reference.h"

void ckpt_reference_linear(const ckpt_reference *r)
{
    const ckpt_shape *const w = &r->node->param[0].tensor.shape;
    const int64_t O = w->dim[0], I = w->dim[1], rows = ckpt_shape_count(&r->node->in[0].shape) / I;
    for (int64_t n = 0; n < rows; n++) {
        for (int64_t o = 0; o < O; o++) {
            double sum = r->node->param_count > 1 ? r->param[1][o] : 0;
            for (int64_t i = 0; i < I; i++) {
                sum += r->in[0][n * I + i] * r->param[0][o * I + i];
            }
            r->out[0][n * O + o] = sum;
        }
    }
}

void ckpt_reference_matmul(const ckpt_reference *r)
{
    const ckpt_shape *const x = &r->node->in[0].shape, *const z = &r->node->out[0].shape;
    const int64_t K = x->dim[x->rank - 1], M = x->dim[x->rank - 2], N = z->dim[z->rank - 1];
    const int64_t matrices = ckpt_shape_count(x) / (M * K);
    const bool turned = ckpt_node_bool(r->node, "transpose_y");
    for (int64_t b = 0; b < matrices; b++) {
        for (int64_t i = 0; i < M * N; i++) {
            double sum = 0;
            for (int64_t k = 0; k < K; k++) {
                const int64_t at = turned ? i % N * K + k : k * N + i % N;
                sum += r->in[0][(b * M + i / N) * K + k] * r->in[1][b * K * N + at];
            }
            r->out[0][b * M * N + i] = sum;
        }
    }
}

void ckpt_reference_layernorm(const ckpt_reference *r)
{
    const ckpt_shape *const x = &r->node->in[0].shape;
    const int64_t H = x->dim[x->rank - 1], rows = ckpt_shape_count(x) / H;
    for (int64_t n = 0; n < rows; n++) {
        double mean = 0, variance = 0;
        for (int64_t h = 0; h < H; h++) {
            mean += r->in[0][n * H + h] / (double)H;
        }
        for (int64_t h = 0; h < H; h++) {
            variance += pow(r->in[0][n * H + h] - mean, 2) / (double)H;
        }
        const double rstd = 1 / sqrt(variance + ckpt_node_float(r->node, "eps"));
        r->saved[0][n] = mean;
        r->saved[1][n] = rstd;
        for (int64_t h = 0; h < H; h++) {
            r->out[0][n * H + h] = r->param[0][h] * (r->in[0][n * H + h] - mean) * rstd + r->param[1][h];
        }
    }
}

/* log sum exp of `count` numbers that stand `step` apart. */
static double log_sum_exp(const double *x, int64_t count, int64_t step)
{
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < count; i++) {
        most = fmax(most, x[i * step]);
    }
    for (int64_t i = 0; i < count; i++) {
        sum += exp(x[i * step] - most);
    }
    return most + log(sum);
}

void ckpt_reference_log_softmax(const ckpt_reference *r)
{
    const ckpt_shape *const x = &r->node->in[0].shape;
    const int64_t given = ckpt_node_int(r->node, "axis");
    const int axis = (int)(given < 0 ? given + x->rank : given);
    int64_t step = 1;
    for (int d = axis + 1; d < x->rank; d++) {
        step *= x->dim[d];
    }
    const int64_t K = x->dim[axis];
    for (int64_t outer = 0; outer < ckpt_shape_count(x) / (K * step); outer++) {
        for (int64_t inner = 0; inner < step; inner++) {
            const int64_t start = outer * K * step + inner;
            const double lse = log_sum_exp(r->in[0] + start, K, step);
            for (int64_t k = 0; k < K; k++) {
                r->out[0][start + k * step] = r->in[0][start + k * step] - lse;
            }
        }
    }
}

void ckpt_reference_softmax(const ckpt_reference *r)
{
    ckpt_reference_log_softmax(r);
    for (int64_t i = 0; i < ckpt_shape_count(&r->node->out[0].shape); i++) {
        r->out[0][i] = exp(r->out[0][i]);
    }
}

enum { LONGEST = 1100 }; /* positions a test case may have */

/* Is key j hidden from query i of sequence b? */
static bool hides(const ckpt_reference *r, int64_t b, int64_t i, int64_t j)
{
    const ckpt_node *const node = r->node;
    const int64_t window = ckpt_node_int(node, "window");
    if (ckpt_node_bool(node, "causal") && (j > i || (window > 0 && j <= i - window))) {
        return true;
    }
    if (!ckpt_node_bool(node, "mask")) {
        return false;
    }
    const double *const mask = r->in[node->in_count - 1];
    const ckpt_shape *const shape = &node->in[node->in_count - 1].shape;
    return shape->rank == 2 ? mask[b * shape->dim[1] + j] == 0
                            : mask[(b % shape->dim[0] * shape->dim[1] + i) * shape->dim[2] + j] == 0;
}

void ckpt_reference_attention(const ckpt_reference *r)
{
    const ckpt_node *const node = r->node;
    const ckpt_shape *const y = &node->out[0].shape;
    const int64_t B = y->dim[0], T = y->dim[1], C = y->dim[2], heads = ckpt_node_int(node, "heads"), D = C / heads;
    const int64_t given = ckpt_node_int(node, "kv_heads"), kv_heads = given == 0 ? heads : given, KV = kv_heads * D;
    const double p = ckpt_node_float(node, "dropout"), scale = ckpt_node_float(node, "scale");
    const bool bias = ckpt_node_bool(node, "bias"), packed = node->in_count - bias - ckpt_node_bool(node, "mask") == 1;
    const int64_t S = packed ? T : node->in[1].shape.dim[1];
    /* numbers between one position and the next */
    const int64_t q_row = packed ? C + 2 * KV : C, row = packed ? C + 2 * KV : KV;
    const double *const q = r->in[0], *const k = packed ? q + C : r->in[1], *const v = packed ? q + C + KV : r->in[2];
    for (int64_t b = 0; b < B; b++) {
        for (int64_t h = 0; h < heads; h++) {
            const int64_t kv = h / (heads / kv_heads);
            for (int64_t i = 0; i < T; i++) {
                double score[LONGEST];
                bool any = false;
                for (int64_t j = 0; j < S; j++) {
                    score[j] = 0;
                    for (int64_t d = 0; d < D; d++) {
                        score[j] += q[(b * T + i) * q_row + h * D + d] * k[(b * S + j) * row + kv * D + d];
                    }
                    score[j] = scale == 0 ? score[j] / sqrt((double)D) : score[j] * scale;
                    score[j] += bias ? r->in[packed ? 1 : 3][(h * T + i) * S + j] : 0;
                    score[j] = hides(r, b, i, j) ? -INFINITY : score[j];
                    any = any || score[j] > -INFINITY;
                }
                const double lse = any ? log_sum_exp(score, S, 1) : 0;
                r->saved[0][(b * heads + h) * T + i] = lse;
                for (int64_t j = 0; j < S; j++) {
                    const uint64_t element = (uint64_t)(((b * heads + h) * T + i) * S + j);
                    const uint32_t word = ckpt_reference_philox(r->seed, r->step, (uint32_t)node->index, 1, element);
                    score[j] = exp(score[j] - lse);
                    if (p > 0 && !r->evaluating) {
                        score[j] = ckpt_reference_keeps(word, p) ? score[j] / (1 - p) : 0;
                    }
                }
                for (int64_t d = 0; d < D; d++) {
                    double sum = 0;
                    for (int64_t j = 0; j < S; j++) {
                        sum += score[j] * v[(b * S + j) * row + kv * D + d];
                    }
                    r->out[0][(b * T + i) * C + h * D + d] = sum;
                }
            }
        }
    }
}

/* The row of T5's table for a key so far behind its query; < 0: before it. As in its code. */
static int64_t bucket(int64_t relative, int64_t buckets, int64_t max_distance, bool bidirectional)
{
    int64_t row = 0;
    if (bidirectional) {
        buckets /= 2;
        row = relative > 0 ? buckets : 0;
        relative = relative < 0 ? -relative : relative;
    } else {
        relative = relative < 0 ? -relative : 0;
    }
    const int64_t exact = buckets / 2;
    if (relative < exact) {
        return row + relative;
    }
    const double share = log((double)relative / (double)exact) / log((double)max_distance / (double)exact);
    const int64_t large = exact + (int64_t)floor(share * (double)(buckets - exact) + 1e-9);
    return row + (large < buckets ? large : buckets - 1);
}

void ckpt_reference_relative_bias(const ckpt_reference *r)
{
    const ckpt_node *const node = r->node;
    const int64_t *const dim = node->out[0].shape.dim;
    const int64_t w = ckpt_node_int(node, "window");
    for (int64_t i = 0; i < dim[1]; i++) {
        for (int64_t j = 0; j < dim[2]; j++) {
            const int64_t row = w > 0
                                    ? (i / w - j / w + w - 1) * (2 * w - 1) + i % w - j % w + w - 1
                                    : bucket(j - i, ckpt_node_int(node, "buckets"), ckpt_node_int(node, "max_distance"),
                                             ckpt_node_bool(node, "bidirectional"));
            for (int64_t h = 0; h < dim[0]; h++) {
                r->out[0][(h * dim[1] + i) * dim[2] + j] = r->param[0][row * dim[0] + h];
            }
        }
    }
}

/* Two tokens of a window may see each other if no border of the image lies between the pixels that were rolled to their
 * places. */
void ckpt_reference_window_mask(const ckpt_reference *r)
{
    const ckpt_node *const node = r->node;
    const int64_t size[2] = {ckpt_node_int(node, "height"), ckpt_node_int(node, "width")};
    const int64_t w = ckpt_node_int(node, "window"), across = size[1] / w, tokens = w * w;
    for (int64_t at = 0; at < ckpt_shape_count(&node->out[0].shape); at++) {
        const int64_t group = at / tokens / tokens, i = at / tokens % tokens, j = at % tokens;
        const int64_t a[2] = {group / across * w + i / w, group % across * w + i % w};
        const int64_t b[2] = {group / across * w + j / w, group % across * w + j % w};
        bool sees = true;
        for (int d = 0; d < 2; d++) {
            const int64_t shift = ckpt_node_int_at(node, "shift", d);
            sees = sees && (a[d] + shift >= size[d]) == (b[d] + shift >= size[d]);
        }
        r->out[0][at] = sees;
    }
}

static double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

void ckpt_reference_lstm_cell(const ckpt_reference *r)
{
    const ckpt_node *const node = r->node;
    const int64_t N = node->in[0].shape.dim[0], I = node->in[0].shape.dim[1], H = node->out[0].shape.dim[1];
    const bool first = node->in_count == 1;
    for (int64_t n = 0; n < N; n++) {
        for (int64_t j = 0; j < H; j++) {
            double gate[4];
            for (int g = 0; g < 4; g++) {
                const int64_t row = g * H + j;
                gate[g] = r->param[2][row] + r->param[3][row];
                for (int64_t i = 0; i < I; i++) {
                    gate[g] += r->param[0][row * I + i] * r->in[0][n * I + i];
                }
                for (int64_t i = 0; !first && i < H; i++) {
                    gate[g] += r->param[1][row * H + i] * r->in[1][n * H + i];
                }
                gate[g] = g == 2 ? tanh(gate[g]) : logistic(gate[g]);
                r->saved[0][n * 4 * H + row] = gate[g];
            }
            const double c = (first ? 0 : gate[1] * r->in[2][n * H + j]) + gate[0] * gate[2];
            r->saved[1][n * H + j] = tanh(c);
            r->out[0][n * H + j] = gate[3] * tanh(c);
            r->out[1][n * H + j] = c;
        }
    }
}

/* The sum over i of w[row, i] x[i], and a bias where there is one. */
static double gate_sum(const ckpt_reference *r, int k, int64_t row, const double *x)
{
    const int64_t width = r->node->param[k].tensor.shape.dim[1];
    double sum = r->node->param_count > 2 ? r->param[k + 2][row] : 0;
    for (int64_t i = 0; x != NULL && i < width; i++) {
        sum += r->param[k][row * width + i] * x[i];
    }
    return sum;
}

/* One sequence's step at time t, from the state before (NULL: zeros): y[t], and what is saved. */
static void recurrent_step(const ckpt_reference *r, int64_t n, int64_t t, const double *h, const double *c)
{
    const ckpt_node *const node = r->node;
    const int64_t T = node->in[0].shape.dim[1], C = node->in[0].shape.dim[2], H = node->out[0].shape.dim[2];
    const bool is_lstm = node->out_count == 3;
    const int gates = is_lstm ? 4 : 3;
    const double *const x = r->in[0] + (n * T + t) * C;
    for (int64_t j = 0; j < H; j++) {
        double in[4], state[4], *const saved = r->saved[0] + (n * T + t) * gates * H + j;
        for (int g = 0; g < gates; g++) {
            in[g] = gate_sum(r, 0, g * H + j, x);
            state[g] = gate_sum(r, 1, g * H + j, h);
        }
        double *const kept = r->saved[1] + (n * T + t) * H + j, *const y = r->out[0] + (n * T + t) * H + j;
        if (is_lstm) {
            for (int g = 0; g < 4; g++) {
                saved[g * H] = g == 2 ? tanh(in[g] + state[g]) : logistic(in[g] + state[g]);
            }
            *kept = saved[0] * saved[2 * H] + (c != NULL ? saved[H] * c[j] : 0);
            *y = saved[3 * H] * tanh(*kept);
        } else {
            saved[0] = logistic(in[0] + state[0]);
            saved[H] = logistic(in[1] + state[1]);
            *kept = state[2];
            saved[2 * H] = tanh(in[2] + saved[0] * state[2]);
            *y = (1 - saved[H]) * saved[2 * H] + saved[H] * (h != NULL ? h[j] : 0);
        }
    }
}

void ckpt_reference_recurrent(const ckpt_reference *r)
{
    const ckpt_node *const node = r->node;
    const int64_t B = node->in[0].shape.dim[0], T = node->in[0].shape.dim[1], H = node->out[0].shape.dim[2];
    for (int64_t n = 0; n < B; n++) {
        const double *h = node->in_count > 1 ? r->in[1] + n * H : NULL;
        const double *c = node->in_count > 2 ? r->in[2] + n * H : NULL;
        for (int64_t s = 0; s < T; s++) {
            const int64_t t = ckpt_node_bool(node, "reverse") ? T - 1 - s : s;
            recurrent_step(r, n, t, h, c);
            h = r->out[0] + (n * T + t) * H;
            c = r->saved[1] + (n * T + t) * H;
        }
        memcpy(r->out[1] + n * H, h, (size_t)H * sizeof(double));
        if (node->out_count > 2) {
            memcpy(r->out[2] + n * H, c, (size_t)H * sizeof(double));
        }
    }
}

void ckpt_reference_embedding(const ckpt_reference *r)
{
    const int64_t F = r->node->param[0].tensor.shape.dim[1];
    for (int64_t i = 0; i < ckpt_shape_count(&r->node->in[0].shape); i++) {
        memcpy(r->out[0] + i * F, r->param[0] + (int64_t)r->in[0][i] * F, (size_t)F * sizeof(double));
    }
}

void ckpt_reference_positional_embedding(const ckpt_reference *r)
{
    const ckpt_shape *const x = &r->node->in[0].shape;
    for (int64_t i = 0; i < ckpt_shape_count(x); i++) {
        r->out[0][i] = r->in[0][i] + r->param[0][i % (x->dim[1] * x->dim[2])];
    }
}

void ckpt_reference_cross_entropy(const ckpt_reference *r)
{
    const ckpt_shape *const x = &r->node->in[0].shape;
    const int64_t K = x->rank == 4 ? x->dim[1] : x->dim[x->rank - 1];
    const int64_t step = x->rank == 4 ? x->dim[2] * x->dim[3] : 1; /* between a row's classes */
    const int64_t rows = ckpt_shape_count(x) / K;
    double sum = 0, count = 0;
    for (int64_t row = 0; row < rows; row++) {
        const double *const logits = r->in[0] + row / step * K * step + row % step;
        const int64_t target = (int64_t)r->in[1][row];
        r->saved[0][row] = log_sum_exp(logits, K, step);
        if (target != ckpt_node_int(r->node, "ignore_index")) {
            const double smoothing = ckpt_node_float(r->node, "label_smoothing");
            for (int64_t k = 0; k < K; k++) { /* against a distribution: 1 - s at the target, s / K everywhere */
                const double share = smoothing / (double)K + (k == target ? 1 - smoothing : 0);
                sum += share * (r->saved[0][row] - logits[k * step]);
            }
            count += 1;
        }
    }
    r->saved[1][0] = count;
    r->out[0][0] = sum / count;
}

void ckpt_reference_linear_cross_entropy(const ckpt_reference *r)
{
    const ckpt_shape *const w = &r->node->param[0].tensor.shape;
    const int64_t K = w->dim[0], I = w->dim[1], rows = ckpt_shape_count(&r->node->in[1].shape);
    double sum = 0, count = 0;
    for (int64_t row = 0; row < rows; row++) {
        const double *const x = r->in[0] + row * I;
        const double smoothing = ckpt_node_float(r->node, "label_smoothing");
        double most = -INFINITY, total = 0, hit = 0;
        for (int pass = 0; pass < 2; pass++) {
            for (int64_t k = 0; k < K; k++) {
                double logit = r->node->param_count > 1 ? r->param[1][k] : 0;
                for (int64_t i = 0; i < I; i++) {
                    logit += x[i] * r->param[0][k * I + i];
                }
                total += pass == 1 ? exp(logit - most) : 0;
                most = pass == 0 ? fmax(most, logit) : most;
                hit += pass == 1 ? logit * (smoothing / (double)K) : 0;
                hit += pass == 1 && k == (int64_t)r->in[1][row] ? logit * (1 - smoothing) : 0;
            }
        }
        r->saved[0][row] = most + log(total);
        if ((int64_t)r->in[1][row] != ckpt_node_int(r->node, "ignore_index")) {
            sum += r->saved[0][row] - hit;
            count += 1;
        }
    }
    r->saved[1][0] = count;
    r->out[0][0] = sum / count;
}

void ckpt_reference_nll_loss(const ckpt_reference *r)
{
    const int64_t N = r->node->in[0].shape.dim[0], K = r->node->in[0].shape.dim[1];
    r->out[0][0] = 0;
    for (int64_t n = 0; n < N; n++) {
        r->out[0][0] -= r->in[0][n * K + (int64_t)r->in[1][n]] / (double)N;
    }
}

void ckpt_reference_mse(const ckpt_reference *r)
{
    const int64_t count = ckpt_shape_count(&r->node->in[0].shape);
    r->out[0][0] = 0;
    for (int64_t i = 0; i < count; i++) {
        r->out[0][0] += pow(r->in[0][i] - r->in[1][i], 2) / (double)count;
    }
}

void ckpt_reference_l1(const ckpt_reference *r)
{
    const int64_t count = ckpt_shape_count(&r->node->in[0].shape);
    r->out[0][0] = 0;
    for (int64_t i = 0; i < count; i++) {
        r->out[0][0] += fabs(r->in[0][i] - r->in[1][i]) / (double)count;
    }
}

void ckpt_reference_huber(const ckpt_reference *r)
{
    const int64_t count = ckpt_shape_count(&r->node->in[0].shape);
    const double delta = ckpt_node_float(r->node, "delta");
    r->out[0][0] = 0;
    for (int64_t i = 0; i < count; i++) {
        const double e = fabs(r->in[0][i] - r->in[1][i]);
        r->out[0][0] += (e < delta ? e * e / 2 : delta * (e - delta / 2)) / (double)count;
    }
}

/* - t log p - (1 - t) log(1 - p), p = 1 / (1 + exp(-x)) */
void ckpt_reference_bce(const ckpt_reference *r)
{
    const int64_t count = ckpt_shape_count(&r->node->in[0].shape);
    r->out[0][0] = 0;
    for (int64_t i = 0; i < count; i++) {
        const double p = logistic(r->in[0][i]), rest = logistic(-r->in[0][i]), t = r->in[1][i];
        r->out[0][0] -= (t * log(p) + (1 - t) * log(rest)) / (double)count;
    }
}

void ckpt_reference_kl(const ckpt_reference *r)
{
    const ckpt_shape *const x = &r->node->in[0].shape;
    r->out[0][0] = 0;
    for (int64_t i = 0; i < ckpt_shape_count(x); i++) {
        r->out[0][0] += r->in[1][i] * (log(r->in[1][i]) - r->in[0][i]) / (double)x->dim[0];
    }
}

void ckpt_reference_total(const ckpt_reference *r)
{
    r->out[0][0] = 0;
    for (int k = 0; k < r->node->in_count; k++) {
        r->out[0][0] += r->in[k][0];
    }
}

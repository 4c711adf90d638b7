/* Reference: mixture of experts. Each token is routed and computed by itself; only what is saved needs the rows. */
#include <math.h>
#include <string.h>

#include "tests/support/support_reference.h"

enum { TOP_MAX = 8, WIDTH_MAX = 512 };

/* softmax(router x) of token n into saved[0], and its choices into saved[1]. */
static void route(const ckpt_reference *r, const ckpt_moe *m, int64_t n)
{
    double *const p = r->saved[0] + n * m->experts, *const choice = r->saved[1] + n * m->top;
    double sum = 0;
    for (int64_t e = 0; e < m->experts; e++) {
        double logit = 0;
        for (int64_t c = 0; c < m->width; c++) {
            logit += r->param[0][e * m->width + c] * r->in[0][n * m->width + c];
        }
        p[e] = exp(logit);
        sum += p[e];
    }
    for (int64_t e = 0; e < m->experts; e++) {
        p[e] /= sum;
    }
    double limit = INFINITY; /* of probabilities not chosen yet */
    for (int64_t j = 0; j < m->top; j++) {
        int64_t best = 0;
        for (int64_t e = 0; e < m->experts; e++) {
            const bool open = p[e] < limit;
            best = open && (!(p[best] < limit) || p[e] > p[best]) ? e : best;
        }
        choice[j] = (double)best;
        limit = p[best];
    }
}

/* y += weight * expert(x), and the inner values of that row into saved[2] and saved[3]. */
static void visit(const ckpt_reference *r, const ckpt_moe *m, int64_t expert, const double *x, double weight,
                  int64_t row, double *y)
{
    const int64_t C = m->width, F = m->hidden, at = expert * C * F;
    double inner[WIDTH_MAX];
    for (int64_t f = 0; f < F; f++) {
        double gate = 0, up = 0;
        for (int64_t c = 0; c < C; c++) {
            gate += r->param[1][at + f * C + c] * x[c];
            up += r->param[2][at + f * C + c] * x[c];
        }
        r->saved[2][row * F + f] = gate;
        r->saved[3][row * F + f] = up;
        inner[f] = gate / (1 + exp(-gate)) * up;
    }
    for (int64_t c = 0; c < C; c++) {
        for (int64_t f = 0; f < F; f++) {
            y[c] += weight * r->param[3][at + c * F + f] * inner[f];
        }
    }
}

void ckpt_reference_moe(const ckpt_reference *r)
{
    const ckpt_moe m = ckpt_moe_of(r->node);
    double *const routes = r->saved[1];
    for (int64_t n = 0; n < m.tokens; n++) {
        route(r, &m, n);
    }
    memset(routes + m.slot, 0, (size_t)(m.numbers - m.slot) * sizeof *routes);
    memset(r->saved[2], 0, (size_t)(m.rows * m.hidden) * sizeof(double));
    memset(r->saved[3], 0, (size_t)(m.rows * m.hidden) * sizeof(double));
    memset(r->out[0], 0, (size_t)(m.tokens * m.width) * sizeof(double));
    for (int64_t row = 0; row < m.rows; row++) {
        routes[m.source + row] = -1;
    }
    int64_t row = 0;
    r->out[1][0] = 0;
    for (int64_t e = 0; e < m.experts; e++) { /* expert by expert, token by token */
        double mean = 0, chosen = 0;
        routes[m.first + e] = (double)row;
        for (int64_t n = 0; n < m.tokens; n++) {
            const double *const p = r->saved[0] + n * m.experts;
            double share = 0;
            mean += p[e] / (double)m.tokens;
            for (int64_t j = 0; j < m.top; j++) {
                share += p[(int64_t)routes[n * m.top + j]];
            }
            for (int64_t j = 0; j < m.top; j++) {
                const int64_t a = n * m.top + j;
                if ((int64_t)routes[a] != e) {
                    continue;
                }
                const bool fits = chosen < (double)m.places;
                chosen += 1;
                routes[m.slot + a] = fits ? (double)row : -1;
                if (fits) {
                    routes[m.source + row] = (double)a;
                    visit(r, &m, e, r->in[0] + n * m.width, p[e] / (m.normalize ? share : 1), row,
                          r->out[0] + n * m.width);
                    row++;
                }
            }
        }
        routes[m.count + e] = chosen;
        r->out[1][0] += (double)m.experts * chosen / (double)m.tokens * mean;
        row = (row + CKPT_MOE_ROWS - 1) / CKPT_MOE_ROWS * CKPT_MOE_ROWS;
    }
    routes[m.first + m.experts] = (double)row;
}

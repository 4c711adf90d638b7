/* Reference: rmsnorm, groupnorm, rope, timestep_embedding, gated linear units. */
#include <math.h>
#include <string.h>

#include "tests/support/support_reference.h"

static const double pi = 3.14159265358979323846;

void ckpt_reference_rmsnorm(const ckpt_reference *r)
{
    const ckpt_shape *const x = &r->node->in[0].shape;
    const int64_t H = x->dim[x->rank - 1], rows = ckpt_shape_count(x) / H;
    for (int64_t n = 0; n < rows; n++) {
        double square = 0;
        for (int64_t h = 0; h < H; h++) {
            square += pow(r->in[0][n * H + h], 2) / (double)H;
        }
        r->saved[0][n] = 1 / sqrt(square + ckpt_node_float(r->node, "eps"));
        for (int64_t h = 0; h < H; h++) {
            r->out[0][n * H + h] = r->param[0][h] * r->in[0][n * H + h] * r->saved[0][n];
        }
    }
}

/* An element's image, channel and pixel follow from its number in written order. */
void ckpt_reference_groupnorm(const ckpt_reference *r)
{
    const ckpt_shape *const x = &r->node->in[0].shape;
    const int64_t count = ckpt_shape_count(x), C = x->dim[x->rank == 4 ? 1 : x->rank - 1], image = count / x->dim[0];
    const int64_t groups = strcmp(r->node->op->name, "groupnorm") == 0 ? ckpt_node_int(r->node, "groups") : C;
    const int64_t step = x->rank == 4 ? x->dim[2] * x->dim[3] : 1; /* from one channel to the next */
    double *const mean = r->saved[0], *const rstd = r->saved[1];
    for (int pass = 0; pass < 3; pass++) {
        for (int64_t i = 0; pass < 2 && i < x->dim[0] * groups; i++) {
            *(pass == 0 ? &mean[i] : &rstd[i]) = 0;
        }
        for (int64_t i = 0; i < count; i++) {
            const int64_t c = i / step % C, at = i / image * groups + c / (C / groups);
            const double share = (double)groups / (double)image;
            if (pass == 0) {
                mean[at] += r->in[0][i] * share;
            } else if (pass == 1) {
                rstd[at] += pow(r->in[0][i] - mean[at], 2) * share;
            } else {
                const double xhat = (r->in[0][i] - mean[at]) * rstd[at];
                r->out[0][i] = r->node->param_count > 0 ? r->param[0][c] * xhat + r->param[1][c] : xhat;
            }
        }
        for (int64_t i = 0; pass == 1 && i < x->dim[0] * groups; i++) {
            rstd[i] = 1 / sqrt(rstd[i] + ckpt_node_float(r->node, "eps"));
        }
    }
}

void ckpt_reference_timestep_embedding(const ckpt_reference *r)
{
    const int64_t B = r->node->in[0].shape.dim[0], F = ckpt_node_int(r->node, "features"), half = F / 2;
    const double period = ckpt_node_float(r->node, "max_period"), shift = ckpt_node_float(r->node, "shift");
    for (int64_t b = 0; b < B; b++) {
        for (int64_t k = 0; k < F; k++) {
            const double angle = r->in[0][b] * pow(period, -(double)(k % half) / ((double)half - shift));
            const bool sine = (k < half) != ckpt_node_bool(r->node, "flip");
            r->out[0][b * F + k] = k >= 2 * half ? 0 : sine ? sin(angle) : cos(angle);
        }
    }
}

/* Radians per position of pair i of R / 2. Scaling as transformers does it, by wave lengths in positions. */
static double rope_frequency(const ckpt_node *node, int64_t i, int64_t R)
{
    const char *const scaling = ckpt_node_string(node, "scaling");
    const double frequency = 1 / pow(ckpt_node_float(node, "base"), (double)(2 * i) / (double)R);
    const double factor = ckpt_node_float(node, "factor"), wave = 2 * pi / frequency;
    if (strcmp(scaling, "linear") == 0) {
        return frequency / factor;
    }
    if (strcmp(scaling, "llama3") == 0) {
        const double original = (double)ckpt_node_int(node, "original");
        const double low = ckpt_node_float(node, "low_freq_factor"), high = ckpt_node_float(node, "high_freq_factor");
        if (wave > original / low) {
            return frequency / factor;
        }
        if (wave >= original / high) {
            const double smooth = (original / wave - low) / (high - low);
            return (1 - smooth) * frequency / factor + smooth * frequency;
        }
    }
    return frequency;
}

void ckpt_reference_rope(const ckpt_reference *r)
{
    const int64_t *const dim = r->node->in[0].shape.dim;
    const int64_t heads = ckpt_node_int(r->node, "heads"), D = dim[2] / heads, given = ckpt_node_int(r->node, "rotary");
    const int64_t R = given > 0 ? given : D;
    const bool half = strcmp(ckpt_node_string(r->node, "layout"), "half") == 0;
    for (int64_t head = 0; head < dim[0] * dim[1] * heads; head++) {
        const double *const x = r->in[0] + head * D;
        double *const y = r->out[0] + head * D;
        memcpy(y, x, (size_t)D * sizeof *y);
        for (int64_t i = 0; i < R / 2; i++) {
            const double angle = (double)(head / heads % dim[1]) * rope_frequency(r->node, i, R);
            const int64_t a = half ? i : 2 * i, b = half ? i + R / 2 : 2 * i + 1;
            y[a] = x[a] * cos(angle) - x[b] * sin(angle);
            y[b] = x[a] * sin(angle) + x[b] * cos(angle);
        }
    }
}

static void gated(const ckpt_reference *r, double (*function)(const ckpt_node *node, double x))
{
    const ckpt_shape *const y = &r->node->out[0].shape;
    for (int64_t i = 0; i < ckpt_shape_count(y); i++) {
        int64_t gate = i, up = i;
        if (r->node->in_count == 1) {
            const int64_t F = y->dim[y->rank - 1];
            gate = i / F * 2 * F + i % F;
            up = gate + F;
        }
        r->out[0][i] = function(r->node, r->in[0][gate]) * r->in[r->node->in_count - 1][up];
    }
}

static double silu_of(const ckpt_node *node, double x)
{
    (void)node;
    return x / (1 + exp(-x));
}

static double gelu_of(const ckpt_node *node, double x)
{
    const bool exact = strcmp(ckpt_node_string(node, "approximate"), "none") == 0;
    return 0.5 * x * (1 + (exact ? erf(x / sqrt(2)) : tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x))));
}

void ckpt_reference_swiglu(const ckpt_reference *r)
{
    gated(r, silu_of);
}

void ckpt_reference_geglu(const ckpt_reference *r)
{
    gated(r, gelu_of);
}

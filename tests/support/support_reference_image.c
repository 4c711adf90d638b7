/* Reference: ops on images [N, C, H, W], and batchnorm. */
#include <math.h>
#include <string.h>

#include "tests/support/support_reference.h"

static int64_t at4(const ckpt_shape *s, int64_t n, int64_t c, int64_t i, int64_t j)
{
    return ((n * s->dim[1] + c) * s->dim[2] + i) * s->dim[3] + j;
}

/* x[n, c, i, j], or 0 in the padding. */
static double pixel(const double *x, const ckpt_shape *s, int64_t n, int64_t c, int64_t i, int64_t j)
{
    return i < 0 || j < 0 || i >= s->dim[2] || j >= s->dim[3] ? 0 : x[at4(s, n, c, i, j)];
}

typedef struct window {
    int64_t kernel[2], stride[2], padding[2];
} window;

static window window_of(const ckpt_node *node)
{
    window w;
    for (int d = 0; d < 2; d++) {
        w.kernel[d] = ckpt_node_int_at(node, "kernel_size", d);
        w.stride[d] = ckpt_node_int_at(node, "stride", d);
        w.stride[d] = w.stride[d] == 0 ? w.kernel[d] : w.stride[d];
        w.padding[d] = ckpt_node_int_at(node, "padding", d);
    }
    return w;
}

void ckpt_reference_batchnorm(const ckpt_reference *r)
{
    const ckpt_shape *const x = &r->node->in[0].shape;
    const double eps = ckpt_node_float(r->node, "eps"), momentum = ckpt_node_float(r->node, "momentum");
    const int64_t N = x->dim[0], C = x->dim[1], P = x->rank == 4 ? x->dim[2] * x->dim[3] : 1;
    const double count = (double)(N * P);
    const bool frozen = ckpt_node_bool(r->node, "frozen"), learned = ckpt_node_bool(r->node, "learned");
    for (int64_t c = 0; c < C; c++) {
        const double weight = learned ? r->param[0][c] : r->stat[2][c], bias = learned ? r->param[1][c] : r->stat[3][c];
        double mean = 0, variance = 0;
        for (int64_t n = 0; n < N; n++) {
            for (int64_t p = 0; p < P; p++) {
                mean += r->in[0][(n * C + c) * P + p] / count;
            }
        }
        for (int64_t n = 0; n < N; n++) {
            for (int64_t p = 0; p < P; p++) {
                variance += pow(r->in[0][(n * C + c) * P + p] - mean, 2) / count;
            }
        }
        if (r->evaluating || frozen) {
            mean = r->stat[0][c];
            variance = r->stat[1][c];
        } else {
            r->stat[0][c] += momentum * (mean - r->stat[0][c]);
            r->stat[1][c] += momentum * (variance * count / (count - 1) - r->stat[1][c]);
        }
        const double rstd = 1 / sqrt(variance + eps);
        if (!frozen) {
            r->saved[0][c] = mean;
            r->saved[1][c] = rstd;
        }
        for (int64_t n = 0; n < N; n++) {
            for (int64_t p = 0; p < P; p++) {
                const int64_t i = (n * C + c) * P + p;
                r->out[0][i] = weight * (r->in[0][i] - mean) * rstd + bias;
            }
        }
    }
}

void ckpt_reference_maxpool2d(const ckpt_reference *r)
{
    const ckpt_shape *const x = &r->node->in[0].shape, *const y = &r->node->out[0].shape;
    const window w = window_of(r->node);
    for (int64_t n = 0; n < y->dim[0]; n++) {
        for (int64_t c = 0; c < y->dim[1]; c++) {
            for (int64_t i = 0; i < y->dim[2]; i++) {
                for (int64_t j = 0; j < y->dim[3]; j++) {
                    double best = -INFINITY;
                    int64_t where = 0;
                    for (int64_t u = 0; u < w.kernel[0]; u++) {
                        for (int64_t v = 0; v < w.kernel[1]; v++) {
                            const int64_t row = i * w.stride[0] + u - w.padding[0];
                            const int64_t column = j * w.stride[1] + v - w.padding[1];
                            if (row < 0 || column < 0 || row >= x->dim[2] || column >= x->dim[3]) {
                                continue;
                            }
                            const double value = r->in[0][at4(x, n, c, row, column)];
                            if (value > best) {
                                best = value;
                                where = u * w.kernel[1] + v;
                            }
                        }
                    }
                    r->out[0][at4(y, n, c, i, j)] = best;
                    /* in the memory order of the output: channels last */
                    r->saved[0][((n * y->dim[2] + i) * y->dim[3] + j) * y->dim[1] + c] = (double)where;
                }
            }
        }
    }
}

void ckpt_reference_avgpool2d(const ckpt_reference *r)
{
    const ckpt_shape *const x = &r->node->in[0].shape, *const y = &r->node->out[0].shape;
    const window w = window_of(r->node);
    for (int64_t n = 0; n < y->dim[0]; n++) {
        for (int64_t c = 0; c < y->dim[1]; c++) {
            for (int64_t i = 0; i < y->dim[2]; i++) {
                for (int64_t j = 0; j < y->dim[3]; j++) {
                    double sum = 0;
                    for (int64_t u = 0; u < w.kernel[0]; u++) {
                        for (int64_t v = 0; v < w.kernel[1]; v++) {
                            sum += pixel(r->in[0], x, n, c, i * w.stride[0] + u - w.padding[0],
                                         j * w.stride[1] + v - w.padding[1]);
                        }
                    }
                    r->out[0][at4(y, n, c, i, j)] = sum / (double)(w.kernel[0] * w.kernel[1]);
                }
            }
        }
    }
}

/* The largest, or the mean, of the pixels of every window of adaptive pooling. */
static void adaptive_pool(const ckpt_reference *r, bool max)
{
    const ckpt_shape *const x = &r->node->in[0].shape, *const y = &r->node->out[0].shape;
    for (int64_t n = 0; n < y->dim[0]; n++) {
        for (int64_t c = 0; c < y->dim[1]; c++) {
            for (int64_t i = 0; i < y->dim[2]; i++) {
                for (int64_t j = 0; j < y->dim[3]; j++) {
                    const int64_t top = i * x->dim[2] / y->dim[2], left = j * x->dim[3] / y->dim[3];
                    double best = -INFINITY, sum = 0;
                    int64_t where = 0, count = 0;
                    for (int64_t a = top; a * y->dim[2] < (i + 1) * x->dim[2]; a++) {
                        for (int64_t b = left; b * y->dim[3] < (j + 1) * x->dim[3]; b++) {
                            const double value = r->in[0][at4(x, n, c, a, b)];
                            where = value > best ? a * x->dim[3] + b : where;
                            best = fmax(best, value);
                            sum += value;
                            count++;
                        }
                    }
                    r->out[0][at4(y, n, c, i, j)] = max ? best : sum / (double)count;
                    if (max) { /* in the memory order of the output: channels last */
                        r->saved[0][((n * y->dim[2] + i) * y->dim[3] + j) * y->dim[1] + c] = (double)where;
                    }
                }
            }
        }
    }
}

void ckpt_reference_adaptive_maxpool2d(const ckpt_reference *r)
{
    adaptive_pool(r, true);
}

void ckpt_reference_adaptive_avgpool2d(const ckpt_reference *r)
{
    adaptive_pool(r, false);
}

void ckpt_reference_global_avgpool(const ckpt_reference *r)
{
    const ckpt_shape *const x = &r->node->in[0].shape;
    const int64_t pixels = x->dim[2] * x->dim[3];
    for (int64_t i = 0; i < x->dim[0] * x->dim[1]; i++) {
        double sum = 0;
        for (int64_t p = 0; p < pixels; p++) {
            sum += r->in[0][i * pixels + p];
        }
        r->out[0][i] = sum / (double)pixels;
    }
}

/* Value of a row of `size` pixels, `step` apart, at a place between pixel centres; the edge continues outside. */
static void weights_at(double allocation, int64_t size, int64_t index[2], double weight[2])
{
    const double inside = fmin(fmax(allocation, 0), (double)(size - 1));
    index[0] = (int64_t)floor(inside);
    index[1] = index[0] + 1 < size ? index[0] + 1 : index[0];
    weight[1] = inside - floor(inside);
    weight[0] = 1 - weight[1];
}

void ckpt_reference_upsample(const ckpt_reference *r)
{
    const ckpt_shape *const x = &r->node->in[0].shape, *const y = &r->node->out[0].shape;
    const int64_t scale = ckpt_node_int(r->node, "scale");
    const bool nearest = strcmp(ckpt_node_string(r->node, "mode"), "nearest") == 0;
    for (int64_t n = 0; n < y->dim[0]; n++) {
        for (int64_t c = 0; c < y->dim[1]; c++) {
            for (int64_t i = 0; i < y->dim[2]; i++) {
                for (int64_t j = 0; j < y->dim[3]; j++) {
                    double *const to = &r->out[0][at4(y, n, c, i, j)];
                    if (nearest) {
                        *to = r->in[0][at4(x, n, c, i / scale, j / scale)];
                        continue;
                    }
                    int64_t row[2], column[2];
                    double a[2], b[2];
                    weights_at(((double)i + 0.5) / (double)scale - 0.5, x->dim[2], row, a);
                    weights_at(((double)j + 0.5) / (double)scale - 0.5, x->dim[3], column, b);
                    *to = 0;
                    for (int u = 0; u < 2; u++) {
                        for (int v = 0; v < 2; v++) {
                            *to += a[u] * b[v] * r->in[0][at4(x, n, c, row[u], column[v])];
                        }
                    }
                }
            }
        }
    }
}

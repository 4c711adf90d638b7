/* Reference: convolutions of sequences [N, L, C], images [N, C, H, W] and volumes [N, D, H, W, C], and transposed ones,
 * which scatter every input value through the filters. */
#include "tests/support/support_reference.h"

typedef struct field {
    int dims, channel, first; /* spatial dims, the channels' dim, the first spatial dim */
    int64_t stride[3], padding[3], dilation[3];
} field;

static field field_of(const ckpt_node *node)
{
    const int rank = node->in[0].shape.rank;
    field f = {.dims = rank - 2, .channel = rank == 4 ? 1 : rank - 1, .first = rank == 4 ? 2 : 1};
    for (int d = 0; d < f.dims; d++) {
        f.stride[d] = ckpt_node_int_at(node, "stride", d);
        f.padding[d] = ckpt_node_int_at(node, "padding", d);
        f.dilation[d] = ckpt_node_int_at(node, "dilation", d);
    }
    return f;
}

/* Element number `index` of `shape` as one index for each dim. */
static void unravel(const ckpt_shape *shape, int64_t index, int64_t *at)
{
    for (int d = shape->rank - 1; d >= 0; d--) {
        at[d] = index % shape->dim[d];
        index /= shape->dim[d];
    }
}

static int64_t ravel(const ckpt_shape *shape, const int64_t *at)
{
    int64_t index = 0;
    for (int d = 0; d < shape->rank; d++) {
        index = index * shape->dim[d] + at[d];
    }
    return index;
}

/* The element of `wide`, whose windows are slid over, that position `at` of the other side touches through filter tap
 * `w`, in channel `c`; -1: it is padding. */
static int64_t touched(const field *f, const ckpt_shape *wide, const int64_t *at, const int64_t *w, int64_t c)
{
    int64_t to[CKPT_RANK_MAX] = {at[0]};
    to[f->channel] = c;
    for (int d = 0; d < f->dims; d++) {
        const int64_t place = at[f->first + d] * f->stride[d] + w[2 + d] * f->dilation[d] - f->padding[d];
        if (place < 0 || place >= wide->dim[f->first + d]) {
            return -1;
        }
        to[f->first + d] = place;
    }
    return ravel(wide, to);
}

void ckpt_reference_conv2d(const ckpt_reference *r)
{
    const ckpt_shape *const x = &r->node->in[0].shape, *const y = &r->node->out[0].shape;
    const ckpt_shape *const w = &r->node->param[0].tensor.shape;
    const field f = field_of(r->node);
    const int64_t per_group = y->dim[f.channel] / ckpt_node_int(r->node, "groups");
    const int64_t filter = ckpt_shape_count(w) / w->dim[0];
    for (int64_t i = 0; i < ckpt_shape_count(y); i++) {
        int64_t at[CKPT_RANK_MAX], tap[CKPT_RANK_MAX];
        unravel(y, i, at);
        const int64_t o = at[f.channel];
        r->out[0][i] = r->node->param_count > 1 ? r->param[1][o] : 0;
        for (int64_t k = 0; k < filter; k++) {
            unravel(w, o * filter + k, tap);
            const int64_t from = touched(&f, x, at, tap, o / per_group * w->dim[1] + tap[1]);
            r->out[0][i] += from < 0 ? 0 : r->param[0][o * filter + k] * r->in[0][from];
        }
    }
}

void ckpt_reference_conv_transpose(const ckpt_reference *r)
{
    const ckpt_shape *const x = &r->node->in[0].shape, *const y = &r->node->out[0].shape;
    const ckpt_shape *const w = &r->node->param[0].tensor.shape;
    const field f = field_of(r->node);
    const int64_t per_group = x->dim[f.channel] / ckpt_node_int(r->node, "groups");
    const int64_t filter = ckpt_shape_count(w) / w->dim[0];
    int64_t at[CKPT_RANK_MAX], tap[CKPT_RANK_MAX];
    for (int64_t i = 0; i < ckpt_shape_count(y); i++) {
        unravel(y, i, at);
        r->out[0][i] = r->node->param_count > 1 ? r->param[1][at[f.channel]] : 0;
    }
    for (int64_t i = 0; i < ckpt_shape_count(x); i++) {
        unravel(x, i, at);
        const int64_t c = at[f.channel];
        for (int64_t k = 0; k < filter; k++) {
            unravel(w, c * filter + k, tap);
            const int64_t to = touched(&f, y, at, tap, c / per_group * w->dim[1] + tap[1]);
            if (to >= 0) {
                r->out[0][to] += r->param[0][c * filter + k] * r->in[0][i];
            }
        }
    }
}

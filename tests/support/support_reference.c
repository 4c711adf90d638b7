/* Reference: the table, element-wise ops, ops that only move elements, optimizers, Philox. */
#include "tests/support/support_reference.h"

#include <math.h>
#include <string.h>

uint32_t ckpt_reference_philox(uint64_t seed, uint64_t step, uint32_t layer, uint32_t stream, uint64_t element)
{
    /* Salmon et al., SC 2011, table 2 and section 3.4: multipliers, Weyl constants, 10 rounds. */
    const uint64_t block = element / 4;
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = (uint32_t)step, c3 = (layer << 8) | stream;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        const uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0, n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    const uint32_t word[4] = {c0, c1, c2, c3};
    return word[element % 4];
}

bool ckpt_reference_keeps(uint32_t word, double p)
{
    const float uniform = (float)(((double)word + 1.0) / 4294967296.0);
    return uniform > (float)p;
}

/* Walks every index of `shape` in written order. */
typedef struct walk {
    const ckpt_shape *shape;
    int64_t at[CKPT_RANK_MAX];
} walk;

static void walk_next(walk *w)
{
    for (int d = w->shape->rank - 1; d >= 0; d--) {
        if (++w->at[d] < w->shape->dim[d]) {
            return;
        }
        w->at[d] = 0;
    }
}

/* Where an index lies when the last dimension is fastest. */
static int64_t position(const ckpt_shape *shape, const int64_t *at)
{
    int64_t index = 0;
    for (int d = 0; d < shape->rank; d++) {
        index = index * shape->dim[d] + at[d];
    }
    return index;
}

static void relu(const ckpt_reference *r)
{
    for (int64_t i = 0; i < ckpt_shape_count(&r->node->out[0].shape); i++) {
        r->out[0][i] = r->in[0][i] > 0 ? r->in[0][i] : 0;
    }
}

static void relu6(const ckpt_reference *r)
{
    for (int64_t i = 0; i < ckpt_shape_count(&r->node->out[0].shape); i++) {
        r->out[0][i] = fmin(fmax(r->in[0][i], 0), 6);
    }
}

static void gelu(const ckpt_reference *r)
{
    const double pi = 3.14159265358979323846;
    const char *const form = ckpt_node_string(r->node, "approximate");
    for (int64_t i = 0; i < ckpt_shape_count(&r->node->out[0].shape); i++) {
        const double x = r->in[0][i];
        const double gate = strcmp(form, "none") == 0   ? erf(x / sqrt(2))
                            : strcmp(form, "tanh") == 0 ? tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x))
                                                        : 2 / (1 + exp(-1.702 * x)) - 1;
        r->out[0][i] = 0.5 * x * (1 + gate);
    }
}

static void hyperbolic(const ckpt_reference *r)
{
    for (int64_t i = 0; i < ckpt_shape_count(&r->node->out[0].shape); i++) {
        r->out[0][i] = tanh(r->in[0][i]);
    }
}

static void sigmoid(const ckpt_reference *r)
{
    for (int64_t i = 0; i < ckpt_shape_count(&r->node->out[0].shape); i++) {
        r->out[0][i] = 1 / (1 + exp(-r->in[0][i]));
    }
}

static void silu(const ckpt_reference *r)
{
    for (int64_t i = 0; i < ckpt_shape_count(&r->node->out[0].shape); i++) {
        r->out[0][i] = r->in[0][i] / (1 + exp(-r->in[0][i]));
    }
}

static void dropout(const ckpt_reference *r)
{
    const ckpt_shape *const shape = &r->node->out[0].shape;
    const double p = ckpt_node_float(r->node, "p");
    int64_t stride[CKPT_RANK_MAX];
    ckpt_shape_strides(shape, stride); /* the mask belongs to places in memory */
    walk w = {shape, {0}};
    for (int64_t i = 0; i < ckpt_shape_count(shape); i++, walk_next(&w)) {
        int64_t element = 0;
        for (int d = 0; d < shape->rank; d++) {
            element += w.at[d] * stride[d];
        }
        const uint32_t word = ckpt_reference_philox(r->seed, r->step, (uint32_t)r->node->index, 0, (uint64_t)element);
        const bool keeps = r->evaluating || ckpt_reference_keeps(word, p);
        r->out[0][i] = keeps ? r->in[0][i] / (r->evaluating ? 1 : 1 - p) : 0;
    }
}

/* The element of input k that numpy's rule lays on this index of the output. */
static double stretched(const ckpt_reference *r, int k, const int64_t *at)
{
    const ckpt_shape *const x = &r->node->in[k].shape;
    int64_t own[CKPT_RANK_MAX] = {0};
    for (int d = 0; d < x->rank; d++) {
        own[d] = x->dim[d] == 1 ? 0 : at[r->node->out[0].shape.rank - x->rank + d];
    }
    return r->in[k][position(x, own)];
}

static void broadcast(const ckpt_reference *r, double (*combine)(double a, double b))
{
    walk w = {&r->node->out[0].shape, {0}};
    for (int64_t i = 0; i < ckpt_shape_count(w.shape); i++, walk_next(&w)) {
        r->out[0][i] = combine(stretched(r, 0, w.at), stretched(r, 1, w.at));
    }
}

static double sum_of(double a, double b)
{
    return a + b;
}

static double difference_of(double a, double b)
{
    return a - b;
}

static double product_of(double a, double b)
{
    return a * b;
}

static double quotient_of(double a, double b)
{
    return a / b;
}

static void sub(const ckpt_reference *r)
{
    broadcast(r, difference_of);
}

static void mul(const ckpt_reference *r)
{
    broadcast(r, product_of);
}

static void divide(const ckpt_reference *r)
{
    broadcast(r, quotient_of);
}

static void scale(const ckpt_reference *r)
{
    for (int64_t i = 0; i < ckpt_shape_count(&r->node->out[0].shape); i++) {
        r->out[0][i] = ckpt_node_float(r->node, "factor") * r->in[0][i] + ckpt_node_float(r->node, "offset");
    }
}

static double hardswish_of(const ckpt_node *node, double x)
{
    (void)node;
    return x * fmin(fmax(x + 3, 0), 6) / 6;
}

static double elu_of(const ckpt_node *node, double x)
{
    return x > 0 ? x : ckpt_node_float(node, "alpha") * (exp(x) - 1);
}

static double leaky_relu_of(const ckpt_node *node, double x)
{
    return x > 0 ? x : ckpt_node_float(node, "negative_slope") * x;
}

static double softplus_of(const ckpt_node *node, double x)
{
    const double beta = ckpt_node_float(node, "beta");
    return beta * x > ckpt_node_float(node, "threshold") ? x : log1p(exp(beta * x)) / beta;
}

static double exp_of(const ckpt_node *node, double x)
{
    (void)node;
    return exp(x);
}

static double pow_of(const ckpt_node *node, double x)
{
    return pow(x, ckpt_node_float(node, "exponent"));
}

static const struct {
    const char *op;
    double (*of)(const ckpt_node *node, double x);
} functions[] = {
    {"hardswish", hardswish_of}, {"elu", elu_of}, {"leaky_relu", leaky_relu_of},
    {"softplus", softplus_of},   {"exp", exp_of}, {"pow", pow_of},
};

static void function(const ckpt_reference *r)
{
    size_t f = 0;
    while (strcmp(functions[f].op, r->node->op->name) != 0) {
        f++;
    }
    for (int64_t i = 0; i < ckpt_shape_count(&r->node->out[0].shape); i++) {
        r->out[0][i] = functions[f].of(r->node, r->in[0][i]);
    }
}

static void drop_path(const ckpt_reference *r)
{
    const ckpt_shape *const shape = &r->node->out[0].shape;
    const int64_t each = ckpt_shape_count(shape) / shape->dim[0];
    const double p = ckpt_node_float(r->node, "p");
    for (int64_t i = 0; i < ckpt_shape_count(shape); i++) {
        const uint64_t example = (uint64_t)(i / each);
        const uint32_t word = ckpt_reference_philox(r->seed, r->step, (uint32_t)r->node->index, 0, example);
        const double factor = r->evaluating ? 1 : ckpt_reference_keeps(word, p) ? 1 / (1 - p) : 0;
        r->out[0][i] = factor * r->in[0][i];
    }
}

static void parameter(const ckpt_reference *r)
{
    memcpy(r->out[0], r->param[0], (size_t)ckpt_shape_count(&r->node->out[0].shape) * sizeof(double));
}

static void add(const ckpt_reference *r)
{
    if (r->node->in_count == 2) {
        broadcast(r, sum_of);
        return;
    }
    for (int64_t i = 0; i < ckpt_shape_count(&r->node->out[0].shape); i++) {
        r->out[0][i] = 0;
        for (int k = 0; k < r->node->in_count; k++) {
            r->out[0][i] += r->in[k][i];
        }
    }
}

static void concat(const ckpt_reference *r)
{
    const ckpt_shape *const y = &r->node->out[0].shape;
    const int64_t given = ckpt_node_int(r->node, "axis");
    const int axis = (int)(given < 0 ? given + y->rank : given);
    int64_t start = 0;
    for (int k = 0; k < r->node->in_count; k++) {
        const ckpt_shape *const x = &r->node->in[k].shape;
        walk w = {x, {0}};
        for (int64_t i = 0; i < ckpt_shape_count(x); i++, walk_next(&w)) {
            int64_t at[CKPT_RANK_MAX];
            memcpy(at, w.at, sizeof at);
            at[axis] += start;
            r->out[0][position(y, at)] = r->in[k][i];
        }
        start += x->dim[axis];
    }
}

static void split(const ckpt_reference *r)
{
    const ckpt_shape *const x = &r->node->in[0].shape;
    const int64_t given = ckpt_node_int(r->node, "axis");
    const int axis = (int)(given < 0 ? given + x->rank : given);
    int64_t start = 0;
    for (int k = 0; k < r->node->out_count; k++) {
        const ckpt_shape *const y = &r->node->out[k].shape;
        walk w = {y, {0}};
        for (int64_t i = 0; i < ckpt_shape_count(y); i++, walk_next(&w)) {
            int64_t at[CKPT_RANK_MAX];
            memcpy(at, w.at, sizeof at);
            at[axis] += start;
            r->out[k][i] = r->in[0][position(x, at)];
        }
        start += y->dim[axis];
    }
}

static void reshape(const ckpt_reference *r)
{
    memcpy(r->out[0], r->in[0], (size_t)ckpt_shape_count(&r->node->in[0].shape) * sizeof(double));
}

static void transpose(const ckpt_reference *r)
{
    const ckpt_shape *const y = &r->node->out[0].shape;
    walk w = {y, {0}};
    for (int64_t i = 0; i < ckpt_shape_count(y); i++, walk_next(&w)) {
        int64_t at[CKPT_RANK_MAX] = {0};
        for (int d = 0; d < y->rank; d++) {
            at[ckpt_node_int_at(r->node, "perm", d)] = w.at[d];
        }
        r->out[0][i] = r->in[0][position(&r->node->in[0].shape, at)];
    }
}

static const struct {
    const char *op;
    ckpt_reference_op *forward;
} table[] = {
    {"linear", ckpt_reference_linear},
    {"matmul", ckpt_reference_matmul},
    {"conv1d", ckpt_reference_conv2d},
    {"conv2d", ckpt_reference_conv2d},
    {"conv3d", ckpt_reference_conv2d},
    {"conv_transpose1d", ckpt_reference_conv_transpose},
    {"conv_transpose2d", ckpt_reference_conv_transpose},
    {"batchnorm", ckpt_reference_batchnorm},
    {"layernorm", ckpt_reference_layernorm},
    {"rmsnorm", ckpt_reference_rmsnorm},
    {"groupnorm", ckpt_reference_groupnorm},
    {"instancenorm", ckpt_reference_groupnorm},
    {"rope", ckpt_reference_rope},
    {"timestep_embedding", ckpt_reference_timestep_embedding},
    {"swiglu", ckpt_reference_swiglu},
    {"geglu", ckpt_reference_geglu},
    {"relu", relu},
    {"relu6", relu6},
    {"gelu", gelu},
    {"tanh", hyperbolic},
    {"sigmoid", sigmoid},
    {"silu", silu},
    {"softmax", ckpt_reference_softmax},
    {"log_softmax", ckpt_reference_log_softmax},
    {"dropout", dropout},
    {"embedding", ckpt_reference_embedding},
    {"positional_embedding", ckpt_reference_positional_embedding},
    {"attention", ckpt_reference_attention},
    {"relative_bias", ckpt_reference_relative_bias},
    {"window_mask", ckpt_reference_window_mask},
    {"add", add},
    {"sub", sub},
    {"mul", mul},
    {"div", divide},
    {"scale", scale},
    {"parameter", parameter},
    {"hardswish", function},
    {"elu", function},
    {"leaky_relu", function},
    {"softplus", function},
    {"exp", function},
    {"pow", function},
    {"drop_path", drop_path},
    {"concat", concat},
    {"split", split},
    {"reshape", reshape},
    {"flatten", reshape},
    {"transpose", transpose},
    {"slice", ckpt_reference_slice},
    {"pad", ckpt_reference_pad},
    {"roll", ckpt_reference_roll},
    {"tile", ckpt_reference_tile},
    {"sum", ckpt_reference_sum},
    {"mean", ckpt_reference_mean},
    {"max", ckpt_reference_max},
    {"gather", ckpt_reference_gather},
    {"cumsum", ckpt_reference_cumsum},
    {"maxpool2d", ckpt_reference_maxpool2d},
    {"avgpool2d", ckpt_reference_avgpool2d},
    {"adaptive_maxpool2d", ckpt_reference_adaptive_maxpool2d},
    {"adaptive_avgpool2d", ckpt_reference_adaptive_avgpool2d},
    {"global_avgpool", ckpt_reference_global_avgpool},
    {"upsample", ckpt_reference_upsample},
    {"lstm_cell", ckpt_reference_lstm_cell},
    {"lstm", ckpt_reference_recurrent},
    {"gru", ckpt_reference_recurrent},
    {"moe", ckpt_reference_moe},
    {"cross_entropy", ckpt_reference_cross_entropy},
    {"linear_cross_entropy", ckpt_reference_linear_cross_entropy},
    {"nll_loss", ckpt_reference_nll_loss},
    {"mse", ckpt_reference_mse},
    {"l1", ckpt_reference_l1},
    {"huber", ckpt_reference_huber},
    {"bce", ckpt_reference_bce},
    {"kl", ckpt_reference_kl},
    {"total", ckpt_reference_total},
};

bool ckpt_reference_forward(const ckpt_reference *r)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strcmp(table[i].op, r->node->op->name) == 0) {
            table[i].forward(r);
            return true;
        }
    }
    return false;
}

/* Hyperparameter by name: hyper[] stands in the order of the optimizer's attributes. */
static double hyper_of(const ckpt_optimizer *optimizer, const double *hyper, const char *name)
{
    for (int i = 0; optimizer->attrs[i].name != NULL; i++) {
        if (strcmp(optimizer->attrs[i].name, name) == 0) {
            return hyper[i];
        }
    }
    return NAN;
}

/* sgd: lr, momentum, nesterov, weight_decay; adam, adamw: lr, beta1, beta2, eps, weight_decay; lion: lr, beta1, beta2,
 * weight_decay. */
const ckpt_setting ckpt_settings[] = {
    {"sgd", {0.01, 0, 0, 0}},
    {"sgd", {0.1, 0.9, 0, 0.01}},
    {"sgd", {0.05, 0.9, 1, 0.1}},
    {"sgd", {0.05, 0, 0, 0.1}},
    {"adam", {1e-3, 0.9, 0.999, 1e-8, 0}},
    {"adam", {1e-2, 0.8, 0.95, 1e-6, 0.1}},
    {"adamw", {1e-3, 0.9, 0.999, 1e-8, 0.01}},
    {"adamw", {1e-2, 0.8, 0.95, 1e-6, 0.1}},
    {"lion", {1e-4, 0.9, 0.99, 0}},
    {"lion", {1e-2, 0.95, 0.98, 0.1}},
};
const int ckpt_setting_count = (int)(sizeof ckpt_settings / sizeof ckpt_settings[0]);

bool ckpt_reference_update(const ckpt_optimizer *optimizer, const double *hyper, bool decay, uint64_t step,
                           double *param, double grad, double *slot)
{
    const double lr = hyper_of(optimizer, hyper, "lr");
    const double weight_decay = decay ? hyper_of(optimizer, hyper, "weight_decay") : 0;
    if (strcmp(optimizer->name, "sgd") == 0) { /* torch.optim.SGD, dampening 0 */
        const double momentum = hyper_of(optimizer, hyper, "momentum");
        double g = grad + weight_decay * *param;
        if (momentum != 0) {
            slot[0] = step == 1 ? g : momentum * slot[0] + g;
            g = hyper_of(optimizer, hyper, "nesterov") != 0 ? g + momentum * slot[0] : slot[0];
        }
        *param -= lr * g;
        return true;
    }
    if (strcmp(optimizer->name, "adam") == 0 || strcmp(optimizer->name, "adamw") == 0) {
        const double beta1 = hyper_of(optimizer, hyper, "beta1"), beta2 = hyper_of(optimizer, hyper, "beta2");
        const double eps = hyper_of(optimizer, hyper, "eps");
        const bool decoupled = strcmp(optimizer->name, "adamw") == 0;
        if (decoupled) {
            *param -= lr * weight_decay * *param;
        }
        const double g = decoupled ? grad : grad + weight_decay * *param;
        slot[0] = beta1 * slot[0] + (1 - beta1) * g;
        slot[1] = beta2 * slot[1] + (1 - beta2) * g * g;
        const double m = slot[0] / (1 - pow(beta1, (double)step)), v = slot[1] / (1 - pow(beta2, (double)step));
        *param -= lr * m / (sqrt(v) + eps);
        return true;
    }
    if (strcmp(optimizer->name, "lion") == 0) {
        const double beta1 = hyper_of(optimizer, hyper, "beta1"), beta2 = hyper_of(optimizer, hyper, "beta2");
        const double c = beta1 * slot[0] + (1 - beta1) * grad;
        *param -= lr * ((c > 0) - (c < 0) + weight_decay * *param);
        slot[0] = beta2 * slot[0] + (1 - beta2) * grad;
        return true;
    }
    return false;
}

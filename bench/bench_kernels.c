/* Times the CPU's heavy layers one by one: GPT-2 124M at 256 tokens and ResNet-50 at batch 4.
 *
 *     bench_kernels [threads] [milliseconds per measurement]
 *
 * Each line: median of forward and of backward (input gradient included), their spread (half the distance of the
 * quartiles, in percent), and GFLOP/s by the op's own count (ops/<op>.c: two per multiply-add); for ops that only move
 * memory GB/s by the bytes the op touches says more. The first line is the peak to compare with: a 1024 x 1024 x 1024
 * product. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "kernels/device.h"
#include "ops/lowering/network.h"
#include "programs/cli/settle.h"

enum { REPEATS_MAX = 400, WARMUP = 2 };

typedef struct bench_layer {
    const char *label;
    int count; /* how many of them the network has */
    const char *op;
    int rank;
    int64_t dim[4];
    ckpt_attr attr[5]; /* name NULL ends them */
    bool first;        /* no input gradient */
} bench_layer;

#define NUMBER(text, value)                                                                                            \
    {                                                                                                                  \
        .name = (text), .kind = CKPT_INT, .integer = (value)                                                           \
    }
#define CONV(C, H, O, K, S, P)                                                                                         \
    "conv2d", 4, {4, C, H, H},                                                                                         \
    {                                                                                                                  \
        NUMBER("out_channels", O), NUMBER("kernel_size", K), NUMBER("stride", S), NUMBER("padding", P),                \
        {                                                                                                              \
            .name = "bias", .kind = CKPT_BOOL                                                                          \
        }                                                                                                              \
    }

static const bench_layer layers[] = {
    {"peak: 1024 x 1024 x 1024", 0, "linear", 2, {1024, 1024}, {NUMBER("features", 1024)}, false},
    {"gpt2 qkv", 12, "linear", 3, {1, 256, 768}, {NUMBER("features", 2304)}, false},
    {"gpt2 attention",
     12,
     "attention",
     3,
     {1, 256, 2304},
     {NUMBER("heads", 12), {.name = "causal", .kind = CKPT_BOOL, .integer = 1}},
     false},
    {"gpt2 projection", 12, "linear", 3, {1, 256, 768}, {NUMBER("features", 768)}, false},
    {"gpt2 mlp up", 12, "linear", 3, {1, 256, 768}, {NUMBER("features", 3072)}, false},
    {"gpt2 gelu",
     12,
     "gelu",
     3,
     {1, 256, 3072},
     {{.name = "approximate", .kind = CKPT_STRING, .string = "tanh"}},
     false},
    {"gpt2 mlp down", 12, "linear", 3, {1, 256, 3072}, {NUMBER("features", 768)}, false},
    {"gpt2 layernorm", 25, "layernorm", 3, {1, 256, 768}, {{0}}, false},
    {"gpt2 head",
     1,
     "linear",
     3,
     {1, 256, 768},
     {NUMBER("features", 50257), {.name = "bias", .kind = CKPT_BOOL}},
     false},
    {"attention 1024 tokens",
     0,
     "attention",
     3,
     {1, 1024, 2304},
     {NUMBER("heads", 12), {.name = "causal", .kind = CKPT_BOOL, .integer = 1}},
     false},
    {"resnet50 stem", 1, CONV(3, 224, 64, 7, 2, 3), true},
    {"resnet50 stem batchnorm", 1, "batchnorm", 4, {4, 64, 112, 112}, {{0}}, false},
    {"resnet50 stem relu", 1, "relu", 4, {4, 64, 112, 112}, {{0}}, false},
    {"resnet50 maxpool",
     1,
     "maxpool2d",
     4,
     {4, 64, 112, 112},
     {NUMBER("kernel_size", 3), NUMBER("stride", 2), NUMBER("padding", 1)},
     false},
    {"resnet50 56 1x1 64-64", 1, CONV(64, 56, 64, 1, 1, 0), false},
    {"resnet50 56 3x3 64", 3, CONV(64, 56, 64, 3, 1, 1), false},
    {"resnet50 56 1x1 64-256", 4, CONV(64, 56, 256, 1, 1, 0), false},
    {"resnet50 56 1x1 256-64", 2, CONV(256, 56, 64, 1, 1, 0), false},
    {"resnet50 56 batchnorm 256", 4, "batchnorm", 4, {4, 256, 56, 56}, {{0}}, false},
    {"resnet50 56 relu 256", 3, "relu", 4, {4, 256, 56, 56}, {{0}}, false},
    {"resnet50 56 1x1 256-128", 1, CONV(256, 56, 128, 1, 1, 0), false},
    {"resnet50 56 3x3 128 s2", 1, CONV(128, 56, 128, 3, 2, 1), false},
    {"resnet50 56 1x1 256-512 s2", 1, CONV(256, 56, 512, 1, 2, 0), false},
    {"resnet50 28 1x1 128-512", 4, CONV(128, 28, 512, 1, 1, 0), false},
    {"resnet50 28 1x1 512-128", 3, CONV(512, 28, 128, 1, 1, 0), false},
    {"resnet50 28 3x3 128", 3, CONV(128, 28, 128, 3, 1, 1), false},
    {"resnet50 28 batchnorm 512", 5, "batchnorm", 4, {4, 512, 28, 28}, {{0}}, false},
    {"resnet50 28 1x1 512-1024 s2", 1, CONV(512, 28, 1024, 1, 2, 0), false},
    {"resnet50 14 1x1 256-1024", 6, CONV(256, 14, 1024, 1, 1, 0), false},
    {"resnet50 14 1x1 1024-256", 5, CONV(1024, 14, 256, 1, 1, 0), false},
    {"resnet50 14 3x3 256", 5, CONV(256, 14, 256, 3, 1, 1), false},
    {"resnet50 14 batchnorm 1024", 7, "batchnorm", 4, {4, 1024, 14, 14}, {{0}}, false},
    {"resnet50 14 3x3 512 s2", 1, CONV(512, 14, 512, 3, 2, 1), false},
    {"resnet50 14 1x1 1024-2048 s2", 1, CONV(1024, 14, 2048, 1, 2, 0), false},
    {"resnet50 7 1x1 512-2048", 3, CONV(512, 7, 2048, 1, 1, 0), false},
    {"resnet50 7 1x1 2048-512", 2, CONV(2048, 7, 512, 1, 1, 0), false},
    {"resnet50 7 3x3 512", 2, CONV(512, 7, 512, 3, 1, 1), false},
    {"mobilenet 56 depthwise 144",
     0,
     "conv2d",
     4,
     {4, 144, 56, 56},
     {NUMBER("out_channels", 144),
      NUMBER("kernel_size", 3),
      NUMBER("padding", 1),
      NUMBER("groups", 144),
      {.name = "bias", .kind = CKPT_BOOL}},
     false},
};

/* A node and all its memory, filled with small numbers that are no denormals. */
typedef struct bench_run {
    ckpt_node node;
    ckpt_bound_kernel bound;
    ckpt_kernel_args args;
    const void *in[1];
    void *out[1], *saved[CKPT_SAVED_MAX];
    const float *param[CKPT_PARAM_MAX];
    const void *grad_out[1];
    void *grad_in[1];
    float *grad_param[CKPT_PARAM_MAX], *stat[CKPT_STAT_MAX];
} bench_run;

static ckpt_code take(ckpt_device *device, ckpt_bytes bytes, void **at, ckpt_err *err)
{
    CKPT_TRY(device->api->reserve(device, bytes, at, err));
    float *values = *at;
    for (ckpt_bytes i = 0; i < bytes / 4; i++) {
        values[i] = (float)(i * 7919 % 1009) / 1009.0F - 0.5F;
    }
    return CKPT_OK;
}

static ckpt_code take_all(ckpt_device *device, bench_run *r, ckpt_err *err)
{
    const ckpt_node *n = &r->node;
    void *at = NULL;
    CKPT_TRY(take(device, ckpt_tensor_bytes(&n->in[0]), &at, err));
    r->in[0] = at;
    if ((n->grad_in & 1) != 0) {
        CKPT_TRY(take(device, ckpt_tensor_bytes(&n->in[0]), &at, err));
        r->grad_in[0] = at;
    }
    CKPT_TRY(take(device, ckpt_tensor_bytes(&n->out[0]), &r->out[0], err));
    CKPT_TRY(take(device, ckpt_tensor_bytes(&n->out[0]), &at, err));
    r->grad_out[0] = at;
    for (int k = 0; k < n->saved_count; k++) {
        CKPT_TRY(take(device, ckpt_tensor_bytes(&n->saved[k]), &r->saved[k], err));
    }
    for (int k = 0; k < n->param_count; k++) {
        CKPT_TRY(take(device, ckpt_tensor_bytes(&n->param[k].tensor), &at, err));
        r->param[k] = at;
        CKPT_TRY(take(device, ckpt_tensor_bytes(&n->param[k].tensor), &at, err));
        r->grad_param[k] = at;
    }
    for (int k = 0; k < n->stat_count; k++) {
        CKPT_TRY(take(device, ckpt_tensor_bytes(&n->stat[k].tensor), &at, err));
        r->stat[k] = at;
    }
    const ckpt_bytes forward = r->bound.forward_workspace_bytes, backward = r->bound.backward_workspace_bytes;
    return take(device, forward > backward ? forward : backward, &r->args.workspace, err);
}

static void give_all(ckpt_device *device, bench_run *r)
{
    const ckpt_node *n = &r->node;
    const ckpt_bytes in = ckpt_tensor_bytes(&n->in[0]), out = ckpt_tensor_bytes(&n->out[0]);
    const ckpt_bytes forward = r->bound.forward_workspace_bytes, backward = r->bound.backward_workspace_bytes;
    device->api->release(device, (void *)r->in[0], in);
    device->api->release(device, r->grad_in[0], in);
    device->api->release(device, r->out[0], out);
    device->api->release(device, (void *)r->grad_out[0], out);
    for (int k = 0; k < n->saved_count; k++) {
        device->api->release(device, r->saved[k], ckpt_tensor_bytes(&n->saved[k]));
    }
    for (int k = 0; k < n->param_count; k++) {
        device->api->release(device, (void *)r->param[k], ckpt_tensor_bytes(&n->param[k].tensor));
        device->api->release(device, r->grad_param[k], ckpt_tensor_bytes(&n->param[k].tensor));
    }
    for (int k = 0; k < n->stat_count; k++) {
        device->api->release(device, r->stat[k], ckpt_tensor_bytes(&n->stat[k].tensor));
    }
    device->api->release(device, r->args.workspace, forward > backward ? forward : backward);
}

typedef struct timing {
    double median_ns, spread_percent;
} timing;

static ckpt_code measure(ckpt_device *device, bench_run *r, bool backward, ckpt_ns spend, timing *t, ckpt_err *err)
{
    ckpt_ns sample[REPEATS_MAX];
    int count = 0;
    const ckpt_ns begin = ckpt_clock_ns();
    for (int i = 0; i < WARMUP + REPEATS_MAX; i++) {
        const ckpt_ns start = ckpt_clock_ns();
        CKPT_TRY(backward ? ckpt_device_backward(device, &r->bound, &r->args, err)
                          : ckpt_device_forward(device, &r->bound, &r->args, err));
        const ckpt_ns end = ckpt_clock_ns();
        if (i >= WARMUP) {
            sample[count++] = end - start;
        }
        if (count >= 5 && end - begin > spend) {
            break;
        }
    }
    int64_t spread = 0;
    t->median_ns = (double)ckpt_median(sample, count, &spread);
    t->spread_percent = 50 * (double)spread / t->median_ns;
    return CKPT_OK;
}

/* A network of this one layer. */
static ckpt_code infer(const bench_layer *layer, int threads, ckpt_arena *arena, ckpt_node *node, ckpt_err *err)
{
    const ckpt_ref ref = {.layer = -1, .output = 0};
    int attrs = 0;
    while (attrs < 5 && layer->attr[attrs].name != NULL) {
        attrs++;
    }
    ckpt_tensor *input = CKPT_NEW(arena, ckpt_tensor, 1);
    ckpt_layer *one = CKPT_NEW(arena, ckpt_layer, 1);
    ckpt_ref *in = CKPT_NEW(arena, ckpt_ref, 1);
    ckpt_model *model = CKPT_NEW(arena, ckpt_model, 1);
    if (input == NULL || one == NULL || in == NULL || model == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a model of one layer");
    }
    *in = ref;
    *input = (ckpt_tensor){.name = "x", .dtype = CKPT_FLOAT32, .shape = {.rank = layer->rank}};
    memcpy(input->shape.dim, layer->dim, (size_t)layer->rank * sizeof *layer->dim);
    *one = (ckpt_layer){.name = "it",
                        .op = layer->op,
                        .in = in,
                        .in_count = 1,
                        .attr = layer->attr,
                        .attr_count = attrs,
                        .tie = -1,
                        .stage = -1};
    *model = (ckpt_model){.source = "bench",
                          .name = layer->label,
                          .dtype = CKPT_FLOAT32,
                          .input = input,
                          .input_count = 1,
                          .layer = one,
                          .layer_count = 1,
                          .optimizer = "sgd"};
    const ckpt_network *network = NULL;
    CKPT_TRY(ckpt_network_infer(model, threads, arena, &network, err));
    *node = network->node[0];
    /* Inference sees a model input, whose gradient nobody wants: ask for it, and for its products. */
    if (!layer->first) {
        node->grad_in = 1;
        if (strcmp(layer->op, "linear") == 0 || strcmp(layer->op, "conv2d") == 0) {
            node->backward_flop = 2 * node->forward_flop;
        }
    }
    return CKPT_OK;
}

static ckpt_code bench(ckpt_device *device, const bench_layer *layer, ckpt_ns spend, double total_ns[2], ckpt_err *err)
{
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    bench_run r = {0};
    CKPT_TRY(infer(layer, device->threads, &arena, &r.node, err));
    CKPT_TRY(ckpt_device_bind(device, &r.node, -1, -1, NULL, &r.bound, err));
    CKPT_TRY(take_all(device, &r, err));
    void *const workspace = r.args.workspace;
    r.args = (ckpt_kernel_args){.node = &r.node,
                                .state = r.bound.state,
                                .in = r.in,
                                .out = r.out,
                                .saved = r.saved,
                                .param = r.param,
                                .stat = r.stat,
                                .grad_out = r.grad_out,
                                .grad_in = r.grad_in,
                                .grad_param = r.grad_param,
                                .workspace = workspace,
                                .workspace_bytes = r.bound.backward_workspace_bytes};
    timing t[2];
    CKPT_TRY(measure(device, &r, false, spend, &t[0], err));
    CKPT_TRY(measure(device, &r, true, spend, &t[1], err));
    const double flop[2] = {(double)r.node.forward_flop, (double)r.node.backward_flop};
    const double touched = (double)ckpt_node_touched_bytes(&r.node);
    printf("%-30s %3d  %9.3f ms %4.0f%% %7.1f GFLOP/s %6.1f GB/s   %9.3f ms %4.0f%% %7.1f GFLOP/s\n", layer->label,
           layer->count, t[0].median_ns / 1e6, t[0].spread_percent, flop[0] / t[0].median_ns, touched / t[0].median_ns,
           t[1].median_ns / 1e6, t[1].spread_percent, flop[1] / t[1].median_ns);
    fflush(stdout);
    total_ns[0] += layer->count * t[0].median_ns;
    total_ns[1] += layer->count * t[1].median_ns;
    give_all(device, &r);
    ckpt_device_unbind(&r.bound);
    ckpt_arena_fini(&arena);
    return CKPT_OK;
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 2;
    ckpt_cli_settle_threads(argv, threads, 0, 1);
    const ckpt_ns spend = (argc > 2 ? strtol(argv[2], NULL, 10) : 100) * 1000000L;
    ckpt_err err = {0};
    ckpt_device *device = NULL;
    ckpt_code code = ckpt_device_open("cpu", threads, &device, &err);
    if (code == CKPT_OK) {
        printf("%s, %s\n%-30s %3s  %s\n", device->api->describe(device), device->api->libraries(device), "layer", "n",
               "forward | backward");
    }
    double gpt2_ns[2] = {0}, resnet_ns[2] = {0};
    for (size_t i = 0; code == CKPT_OK && i < sizeof layers / sizeof *layers; i++) {
        double *total = strncmp(layers[i].label, "resnet", 6) == 0 ? resnet_ns : gpt2_ns;
        code = bench(device, &layers[i], spend, total, &err);
    }
    if (code != CKPT_OK) {
        fprintf(stderr, "bench_kernels: %s\n", err.msg);
        return ckpt_exit_code(code);
    }
    printf("sum of these layers, n times each: GPT-2 124M %.0f + %.0f ms, ResNet-50 %.0f + %.0f ms\n", gpt2_ns[0] / 1e6,
           gpt2_ns[1] / 1e6, resnet_ns[0] / 1e6, resnet_ns[1] / 1e6);
    ckpt_device_close(device);
    return 0;
}

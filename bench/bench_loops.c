/* Times the CPU's loop kernels and optimizers against copying memory.
 *
 *     bench_loops [threads] [elements]
 *
 * Each line: GB/s of forward and backward by the bytes that must be moved (what is read plus what is written, once),
 * and as a share of a memcpy with the same threads that is measured between the repeats, so that other work on the
 * machine slows both. Medians of 9. Elements default to 16 Mi: beyond every cache. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "kernels/device.h"
#include "programs/cli/settle.h"

enum { REPEATS = 9, COLUMNS = 4096, BUFFERS = 4 };

typedef struct bench_loop {
    const char *op;
    int in_count;
    const char *attr; /* one attribute that is not at its default; NULL: none */
    const char *word;
    double real;
} bench_loop;

static const bench_loop loops[] = {
    {.op = "relu", .in_count = 1},
    {.op = "gelu", .in_count = 1},
    {.op = "gelu", .in_count = 1, .attr = "approximate", .word = "tanh"},
    {.op = "tanh", .in_count = 1},
    {.op = "sigmoid", .in_count = 1},
    {.op = "silu", .in_count = 1},
    {.op = "dropout", .in_count = 1, .attr = "p", .real = 0.1},
    {.op = "softmax", .in_count = 1},
    {.op = "log_softmax", .in_count = 1},
    {.op = "add", .in_count = 2},
    {.op = "mul", .in_count = 2},
    {.op = "concat", .in_count = 2},
};

typedef struct bench {
    ckpt_device *device;
    ckpt_arena arena;
    int threads;
    int64_t count;
    float *buffer[BUFFERS]; /* two inputs and their gradients */
    float *wide[2];         /* output and its gradient: as long as two inputs */
} bench;

static ckpt_code take(bench *b, int64_t count, float **at, ckpt_err *err)
{
    void *base = NULL;
    CKPT_TRY(b->device->api->reserve(b->device, count * 4, &base, err));
    *at = base;
    for (int64_t i = 0; i < count; i++) {
        (*at)[i] = (float)(i % 1013) / 200.0F - 2.5F;
    }
    return CKPT_OK;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *sample)
{
    qsort(sample, REPEATS, sizeof *sample, compare);
    return sample[REPEATS / 2];
}

/* GB/s of one copy from input to gradient, read plus written. */
static double copy_rate(const bench *b)
{
    const ckpt_ns start = ckpt_clock_ns();
#pragma omp parallel for schedule(static) num_threads(b->threads)
    for (int t = 0; t < b->threads; t++) {
        const int64_t from = b->count * t / b->threads, to = b->count * (t + 1) / b->threads;
        memcpy(b->buffer[2] + from, b->buffer[0] + from, (size_t)(to - from) * sizeof(float));
    }
    return 8.0 * (double)b->count / (double)(ckpt_clock_ns() - start);
}

static ckpt_code make_node(bench *b, const bench_loop *loop, ckpt_tensor in[2], ckpt_node *node, ckpt_err *err)
{
    *node = (ckpt_node){.name = loop->op,
                        .op = ckpt_op_find(loop->op),
                        .threads = b->threads,
                        .in_count = loop->in_count,
                        .in = in,
                        .grad_in = 3};
    int count = 0;
    while (node->op->attrs != NULL && node->op->attrs[count].name != NULL) {
        count++;
    }
    ckpt_attr *const attr = CKPT_NEW(&b->arena, ckpt_attr, count);
    if (attr == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d attributes", count);
    }
    for (int i = 0; i < count; i++) {
        const ckpt_attr_spec *const spec = &node->op->attrs[i];
        const bool given = loop->attr != NULL && strcmp(loop->attr, spec->name) == 0;
        attr[i] = (ckpt_attr){.name = spec->name,
                              .kind = spec->kind,
                              .integer = spec->integer,
                              .real = given ? loop->real : spec->real,
                              .string = given ? loop->word : spec->string};
    }
    node->attr = attr;
    ckpt_node_room *const room = CKPT_NEW(&b->arena, ckpt_node_room, 1);
    if (room == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "tensors of a layer");
    }
    ckpt_node_open(node, room);
    return node->op->infer(node, &b->arena, err);
}

static double moved_bytes(const ckpt_node *node, bool backward)
{
    double bytes = (double)ckpt_tensor_bytes(&node->out[0]);
    for (int k = 0; k < node->in_count; k++) {
        bytes += (double)ckpt_tensor_bytes(&node->in[k]); /* backward: its gradient */
        bytes += backward && (node->backward_in >> k & 1) != 0 ? (double)ckpt_tensor_bytes(&node->in[k]) : 0.0;
    }
    return bytes + (backward && (node->backward_out & 1) != 0 ? (double)ckpt_tensor_bytes(&node->out[0]) : 0.0);
}

static ckpt_code run_loop(bench *b, const bench_loop *loop, ckpt_err *err)
{
    const ckpt_tensor one = {.dtype = CKPT_FLOAT32, .shape = {2, {b->count / COLUMNS, COLUMNS}}};
    ckpt_tensor in[2] = {one, one};
    ckpt_node node;
    ckpt_bound_kernel bound;
    CKPT_TRY(make_node(b, loop, in, &node, err));
    CKPT_TRY(ckpt_device_bind(b->device, &node, 0, 0, NULL, &bound, err));
    const void *const ins[] = {b->buffer[0], b->buffer[1]};
    void *const outs[] = {b->wide[0]};
    const void *const grad_out[] = {b->wide[1]};
    void *const grad_in[] = {b->buffer[2], b->buffer[3]};
    const ckpt_kernel_args args = {
        .in = ins, .out = outs, .grad_out = grad_out, .grad_in = grad_in, .seed = 1, .step = 1};
    double rate[2][REPEATS], copy[REPEATS];
    for (int r = -1; r < REPEATS; r++) {
        const double copied = copy_rate(b);
        const ckpt_ns start = ckpt_clock_ns();
        CKPT_TRY(ckpt_device_forward(b->device, &bound, &args, err));
        const ckpt_ns middle = ckpt_clock_ns();
        CKPT_TRY(ckpt_device_backward(b->device, &bound, &args, err));
        const ckpt_ns end = ckpt_clock_ns();
        if (r >= 0) {
            copy[r] = copied;
            rate[0][r] = moved_bytes(&node, false) / (double)(middle - start);
            rate[1][r] = moved_bytes(&node, true) / (double)(end - middle);
        }
    }
    ckpt_device_unbind(&bound);
    const double base = median(copy), forward = median(rate[0]), backward = median(rate[1]);
    printf("%-12s %-6s %8.1f %8.0f %% %10.1f %8.0f %% %10.1f\n", loop->op, loop->word != NULL ? loop->word : "",
           forward, 100.0 * forward / base, backward, 100.0 * backward / base, base);
    return CKPT_OK;
}

/* SGD with momentum reads three values and writes two; Adam four and three. */
static ckpt_code run_update(bench *b, const char *name, int values, ckpt_err *err)
{
    const double hyper[CKPT_HYPER_MAX] = {0.01, 0.9, 0.99, 1e-8};
    const ckpt_optimizer *const optimizer = ckpt_optimizer_find(name);
    const ckpt_numbers numbers = ckpt_numbers_plain(optimizer, hyper, 1);
    double rate[REPEATS], copy[REPEATS];
    float *const slot[2] = {b->buffer[2], b->buffer[3]};
    for (int64_t i = 0; i < b->count; i++) {
        slot[0][i] = slot[1][i] = 0.5F;
    }
    for (int r = -1; r < REPEATS; r++) {
        const double copied = copy_rate(b);
        const ckpt_ns start = ckpt_clock_ns();
        ckpt_update_args args = {.hyper = hyper,
                                 .decay = true,
                                 .count = b->count,
                                 .param = b->buffer[0],
                                 .grad = b->buffer[1],
                                 .slot = slot};
        CKPT_TRY(ckpt_device_update(b->device, optimizer, &numbers, &args, 1, err));
        if (r >= 0) {
            copy[r] = copied;
            rate[r] = 4.0 * values * (double)b->count / (double)(ckpt_clock_ns() - start);
        }
    }
    const double base = median(copy), update = median(rate);
    printf("%-12s %-6s %8.1f %8.0f %% %10s %10s %10.1f\n", name, "", update, 100.0 * update / base, "", "", base);
    return CKPT_OK;
}

static ckpt_code run(bench *b, ckpt_err *err)
{
    for (int i = 0; i < BUFFERS; i++) {
        CKPT_TRY(take(b, b->count, &b->buffer[i], err));
    }
    CKPT_TRY(take(b, 2 * b->count, &b->wide[0], err));
    CKPT_TRY(take(b, 2 * b->count, &b->wide[1], err));
    printf("%s, %lld elements\n", b->device->api->describe(b->device), (long long)b->count);
    printf("%-19s %8s %10s %10s %10s %10s\n", "", "forward", "of memcpy", "backward", "of memcpy", "memcpy GB/s");
    for (size_t i = 0; i < sizeof loops / sizeof *loops; i++) {
        CKPT_TRY(run_loop(b, &loops[i], err));
    }
    CKPT_TRY(run_update(b, "sgd", 5, err));
    return run_update(b, "adam", 7, err);
}

int main(int argc, char **argv)
{
    bench b = {.threads = argc > 1 ? atoi(argv[1]) : 2, .count = argc > 2 ? atoll(argv[2]) : (int64_t)1 << 24};
    ckpt_cli_settle_threads(argv, b.threads, 0, 1);
    ckpt_err err = {0};
    b.count = b.count / COLUMNS * COLUMNS;
    if (b.count < COLUMNS || b.count > (int64_t)1 << 32) {
        fprintf(stderr, "bench_loops: wanted %d elements to 4 Gi\n", COLUMNS);
        return 2;
    }
    ckpt_arena_init(&b.arena);
    ckpt_code code = ckpt_device_open("cpu", b.threads, &b.device, &err);
    if (code == CKPT_OK) {
        code = run(&b, &err); /* the process ends: its blocks go with it */
    }
    if (code != CKPT_OK) {
        fprintf(stderr, "bench_loops: %s\n", err.msg);
    }
    ckpt_device_close(b.device);
    ckpt_arena_fini(&b.arena);
    return ckpt_exit_code(code);
}

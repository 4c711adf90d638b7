/* The bench: see the header. The guard: a slab is filled with one byte, the kernel's buffers are cut out of it at the
 * planner's alignment with at least 64 bytes between them, and everything outside what the kernel may write must be
 * as it was afterwards. */
#include "tests/support/support_bench.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/onednn.h"
#include "tests/support/support_reference.h"
#include "tests/support/support_test.h"

enum { PIECE_MAX = 2 * (CKPT_IN_MAX + CKPT_OUT_MAX + CKPT_SAVED_MAX + CKPT_PARAM_MAX) + 2 };

/* ------------------------------------------------------------------------------------------------ data */

double ckpt_bench_random(ckpt_bench *bench)
{
    return ckpt_case_random(&bench->random);
}

/* Where element i of the written order lies in memory. */
static int64_t place_of(const ckpt_twin *twin, int64_t i)
{
    const ckpt_shape *const shape = &twin->tensor->shape;
    if (!twin->value) {
        return i;
    }
    int64_t stride[CKPT_RANK_MAX], allocation = 0;
    ckpt_shape_strides(shape, stride);
    for (int d = shape->rank - 1; d >= 0; d--) {
        allocation += i % shape->dim[d] * stride[d];
        i /= shape->dim[d];
    }
    return allocation;
}

double ckpt_twin_get(const ckpt_twin *twin, int64_t i)
{
    const int64_t allocation = place_of(twin, i);
    if (twin->tensor->dtype == CKPT_INT32) {
        int32_t number;
        memcpy(&number, twin->memory + 4 * allocation, 4);
        return number;
    }
    if (twin->tensor->dtype == CKPT_UINT8) {
        return twin->memory[allocation];
    }
    float number;
    memcpy(&number, twin->memory + 4 * allocation, 4);
    return (double)number;
}

/* Both sides of one element; the truth is what a float can hold. */
static void set(ckpt_twin *twin, int64_t i, double x)
{
    const int64_t allocation = place_of(twin, i);
    if (twin->tensor->dtype == CKPT_INT32) {
        const int32_t number = (int32_t)x;
        memcpy(twin->memory + 4 * allocation, &number, 4);
        twin->truth[i] = number;
        return;
    }
    const float number = (float)x;
    memcpy(twin->memory + 4 * allocation, &number, 4);
    twin->truth[i] = (double)number;
}

static ckpt_twin twin_of(ckpt_bench *bench, const ckpt_tensor *tensor, bool value)
{
    ckpt_twin twin = {.tensor = tensor, .value = value, .count = ckpt_shape_count(&tensor->shape)};
    twin.bytes = (size_t)ckpt_tensor_bytes(tensor);
    twin.truth = CKPT_NEW(&bench->arena, double, twin.count);
    twin.memory = CKPT_NEW(&bench->arena, unsigned char, twin.bytes);
    assert_true(twin.truth != NULL && twin.memory != NULL);
    return twin;
}

static void fill_input(ckpt_bench *bench, int k)
{
    ckpt_twin *const twin = &bench->in[k];
    ckpt_case_fill(bench->test, k, twin->count, &bench->random, twin->truth);
    for (int64_t i = 0; i < twin->count; i++) {
        set(twin, i, twin->truth[i]);
    }
}

void ckpt_bench_init(ckpt_bench *bench, const ckpt_case *test, int number, int threads, uint64_t seed)
{
    ckpt_err err = {0};
    *bench = (ckpt_bench){.test = test, .number = number, .seed = seed, .step = 3, .random = seed + (uint64_t)number};
    ckpt_arena_init(&bench->arena);
    ckpt_code code = ckpt_case_network(test, threads, &bench->arena, &bench->network, &bench->node, &err);
    CHECK(code == CKPT_OK, "case %d (%s): %s", number, test->op, err.msg);
    const ckpt_node *const node = bench->node;
    CHECK(!node->alias, "case %d (%s) is an alias: it tests no kernel", number, test->op);
    for (int k = 0; k < node->in_count; k++) {
        bench->in[k] = twin_of(bench, &node->in[k], true);
        bench->grad_in[k] = twin_of(bench, &node->in[k], true);
        fill_input(bench, k);
    }
    const ckpt_way *const undone = ckpt_node_find_way(node, "output", true);
    const bool divides = undone != NULL && undone->inexact; /* (y - b) / w is |b / w| <= 4 times less exact than y */
    for (int k = 0; k < node->param_count; k++) {
        bench->param[k] = twin_of(bench, &node->param[k].tensor, false);
        bench->grad_param[k] = twin_of(bench, &node->param[k].tensor, false);
        for (int64_t i = 0; i < bench->param[k].count; i++) {
            const double u = ckpt_bench_random(bench);
            set(&bench->param[k], i, k == 0 && divides ? copysign(0.25 + 0.75 * fabs(u), u) : u);
        }
    }
    for (int k = 0; k < node->out_count; k++) {
        bench->out[k] = twin_of(bench, &node->out[k], true);
        bench->grad_out[k] = twin_of(bench, &node->out[k], true);
        for (int64_t i = 0; i < bench->out[k].count; i++) {
            set(&bench->grad_out[k], i, node->op->loss ? 1 : ckpt_bench_random(bench));
        }
    }
    for (int k = 0; k < node->saved_count; k++) {
        bench->saved[k] = twin_of(bench, &node->saved[k], false);
    }
    for (int k = 0; k < node->stat_count; k++) {
        bench->stat[k] = twin_of(bench, &node->stat[k].tensor, false);
        bench->stat_before[k] = twin_of(bench, &node->stat[k].tensor, false);
        for (int64_t i = 0; i < bench->stat[k].count; i++) {
            set(&bench->stat_before[k], i, 1.5 + ckpt_bench_random(bench)); /* a variance is positive */
        }
    }
    code = ckpt_device_open("cpu", threads, &bench->device, &err);
    CHECK(code == CKPT_OK, "the CPU device: %s", err.msg);
    code = ckpt_device_bind(bench->device, node, node->forward_workspace_bytes, node->backward_workspace_bytes, NULL,
                            &bench->bound, &err);
    CHECK(code == CKPT_OK, "case %d (%s): %s", number, test->op, err.msg);
    CHECK(bench->bound.forward_workspace_bytes <= node->forward_workspace_bytes &&
              bench->bound.backward_workspace_bytes <= node->backward_workspace_bytes,
          "case %d (%s): uses workspaces of %lld and %lld bytes, was given %lld and %lld", number, test->op,
          (long long)bench->bound.forward_workspace_bytes, (long long)bench->bound.backward_workspace_bytes,
          (long long)node->forward_workspace_bytes, (long long)node->backward_workspace_bytes);
}

void ckpt_bench_fini(ckpt_bench *bench)
{
    ckpt_device_unbind(&bench->bound);
    ckpt_device_close(bench->device);
    ckpt_arena_fini(&bench->arena);
}

/* ------------------------------------------------------------------------------------------------ reference */

void ckpt_bench_reference(ckpt_bench *bench, bool evaluating)
{
    const double *in[CKPT_IN_MAX], *param[CKPT_PARAM_MAX];
    double *out[CKPT_OUT_MAX], *saved[CKPT_SAVED_MAX], *stat[CKPT_STAT_MAX];
    for (int k = 0; k < CKPT_IN_MAX; k++) {
        in[k] = bench->in[k].truth;
    }
    for (int k = 0; k < CKPT_PARAM_MAX; k++) {
        param[k] = bench->param[k].truth;
    }
    for (int k = 0; k < CKPT_OUT_MAX; k++) {
        out[k] = bench->out[k].truth;
    }
    for (int k = 0; k < CKPT_SAVED_MAX; k++) {
        saved[k] = bench->saved[k].truth;
    }
    for (int k = 0; k < bench->node->stat_count; k++) {
        stat[k] = bench->stat[k].truth;
        memcpy(stat[k], bench->stat_before[k].truth, (size_t)bench->stat[k].count * sizeof(double));
    }
    const ckpt_reference r = {.node = bench->node,
                              .in = in,
                              .param = param,
                              .out = out,
                              .saved = saved,
                              .stat = stat,
                              .seed = bench->seed,
                              .step = bench->step,
                              .evaluating = evaluating};
    CHECK(ckpt_reference_forward(&r), "op %s has no reference in tests/support/support_reference.c",
          bench->node->op->name);
}

/* The scalar whose gradient backward gives: outputs weighted with their gradients. */
static double projection(ckpt_bench *bench, uint64_t no_grad_out)
{
    double sum = 0;
    ckpt_bench_reference(bench, false);
    for (int k = 0; k < bench->node->out_count; k++) {
        for (int64_t i = 0; ((no_grad_out >> k) & 1) == 0 && i < bench->out[k].count; i++) {
            sum += bench->out[k].truth[i] * bench->grad_out[k].truth[i];
        }
    }
    return sum;
}

/* All elements of a short tensor, about six of a long one, by a hash of their number. */
static bool sampled(const ckpt_twin *twin, int64_t i)
{
    enum { SHORT = 250, SAMPLES = 6 };
    const uint32_t hash = (uint32_t)((uint64_t)i * 2654435761u) ^ (uint32_t)twin->count;
    return twin->count <= SHORT || i == twin->count / 2 || (double)hash < 4294967296.0 * SAMPLES / (double)twin->count;
}

static void differences_of(ckpt_bench *bench, const ckpt_twin *from, ckpt_twin *grad, uint64_t no_grad_out)
{
    const double h = 1e-4; /* h^2 times the third derivative, and 2^-53 / h, both below 1e-7 */
    for (int64_t i = 0; i < from->count; i++) {
        grad->truth[i] = NAN; /* unknown */
        if (!sampled(from, i)) {
            continue;
        }
        const double x = from->truth[i];
        from->truth[i] = x + h;
        const double above = projection(bench, no_grad_out);
        from->truth[i] = x - h;
        const double below = projection(bench, no_grad_out);
        from->truth[i] = x;
        grad->truth[i] = (above - below) / (2 * h);
    }
}

void ckpt_bench_differences(ckpt_bench *bench, uint64_t no_grad_out)
{
    for (int k = 0; k < bench->node->in_count; k++) {
        if ((bench->node->grad_in >> k) & 1) {
            differences_of(bench, &bench->in[k], &bench->grad_in[k], no_grad_out);
        }
    }
    for (int k = 0; k < bench->node->param_count; k++) {
        differences_of(bench, &bench->param[k], &bench->grad_param[k], no_grad_out);
    }
}

/* ------------------------------------------------------------------------------------------------ runs */

typedef struct piece {
    unsigned char *at;
    size_t bytes;
    const unsigned char *before; /* what it held; must still hold it unless `written` */
    unsigned char *after;        /* where to copy the result; NULL: nowhere */
    bool written;
} piece;

typedef struct slab {
    unsigned char *bytes;
    size_t length, used;
    piece piece[PIECE_MAX];
    int count, guard;
} slab;

static void slab_open(slab *s, const ckpt_bench *bench, const ckpt_run *run, ckpt_bytes workspace)
{
    size_t length = (size_t)workspace + 4096 + (size_t)run->shift * 64 * PIECE_MAX;
    const ckpt_node *const node = bench->node;
    for (int k = 0; k < node->in_count; k++) {
        length += 2 * bench->in[k].bytes + 512;
    }
    for (int k = 0; k < node->param_count; k++) {
        length += 2 * bench->param[k].bytes + 512;
    }
    for (int k = 0; k < node->out_count; k++) {
        length += 2 * bench->out[k].bytes + 512;
    }
    for (int k = 0; k < node->saved_count; k++) {
        length += bench->saved[k].bytes + 512;
    }
    for (int k = 0; k < node->stat_count; k++) {
        length += bench->stat[k].bytes + 512;
    }
    *s = (slab){.bytes = ckpt_memory_get(length), .length = length, .guard = run->guard_byte};
    assert_non_null(s->bytes);
    memset(s->bytes, s->guard, length);
}

static void *slab_cut(slab *s, const ckpt_run *run, size_t bytes, const unsigned char *before, unsigned char *after,
                      bool written)
{
    uintptr_t at = (uintptr_t)s->bytes + s->used + 64;
    at = (at + CKPT_ALIGN - 1) / CKPT_ALIGN * CKPT_ALIGN + (uintptr_t)run->shift * CKPT_ALIGN;
    piece *const p = &s->piece[s->count++];
    *p = (piece){(unsigned char *)at, bytes, before, after, written};
    s->used = (size_t)(at - (uintptr_t)s->bytes) + bytes;
    assert_true(s->count <= PIECE_MAX && s->used + 64 <= s->length);
    if (before != NULL) {
        memcpy(p->at, before, bytes);
    }
    return p->at;
}

/* Guards whole, inputs unchanged, results copied out. */
static void slab_close(slab *s, const ckpt_bench *bench, const char *what)
{
    size_t next = 0;
    for (int i = 0; i <= s->count; i++) {
        const size_t end = i < s->count ? (size_t)(s->piece[i].at - s->bytes) : s->length;
        for (size_t b = next; b < end; b++) {
            CHECK(s->bytes[b] == s->guard, "case %d (%s): %s writes %zu bytes behind its buffer %d", bench->number,
                  bench->test->op, what, b - next + 1, i - 1);
        }
        if (i < s->count) {
            const piece *const p = &s->piece[i];
            CHECK(p->written || memcmp(p->at, p->before, p->bytes) == 0,
                  "case %d (%s): %s changes a tensor it may only read (buffer %d)", bench->number, bench->test->op,
                  what, i);
            if (p->after != NULL) {
                memcpy(p->after, p->at, p->bytes);
            }
            next = end + p->bytes;
        }
    }
    ckpt_memory_put(s->bytes);
}

static void *slab_workspace(slab *s, const ckpt_run *run, ckpt_bytes bytes)
{
    void *const at = slab_cut(s, run, (size_t)bytes, NULL, NULL, true);
    memset(at, run->workspace_byte, (size_t)bytes);
    return at;
}

ckpt_reads test_way_reads(const ckpt_node *node, const ckpt_way *way)
{
    return way != NULL ? (ckpt_reads){way->in, way->out, way->saved}
                       : (ckpt_reads){node->backward_in, node->backward_out, node->backward_saved};
}

ckpt_bytes test_way_workspace(const ckpt_bound_kernel *bound, const ckpt_way *way, ckpt_bytes own)
{
    if (way != NULL && way->measured) {
        return bound->kernel->way_workspace(bound->node, bound->state, way);
    }
    return way != NULL && way->workspace_bytes >= 0 ? way->workspace_bytes : own;
}

void test_call(ckpt_device *device, const ckpt_bound_kernel *bound, const ckpt_kernel_args *args, bool backward)
{
    const ckpt_bytes own = backward ? bound->backward_workspace_bytes : bound->forward_workspace_bytes;
    ckpt_kernel_args full = *args;
    ckpt_err err = {0};
    full.workspace_bytes = test_way_workspace(bound, args->way, own);
    CHECK_OK(device->api->reserve(device, full.workspace_bytes, &full.workspace, &err), err);
    memset(full.workspace, 0xff, (size_t)full.workspace_bytes);
    CHECK_OK((backward ? ckpt_device_backward : ckpt_device_forward)(device, bound, &full, &err), err);
    device->api->release(device, full.workspace, full.workspace_bytes);
}

ckpt_code ckpt_bench_try(ckpt_bench *bench, const ckpt_run *run, ckpt_err *err)
{
    const ckpt_node *const node = bench->node;
    const void *in[CKPT_IN_MAX] = {0};
    const float *param[CKPT_PARAM_MAX] = {0};
    void *out[CKPT_OUT_MAX] = {0}, *saved[CKPT_SAVED_MAX] = {0};
    float *stat[CKPT_STAT_MAX] = {0};
    slab s;
    const ckpt_bytes workspace = test_way_workspace(&bench->bound, run->way, bench->bound.forward_workspace_bytes);
    slab_open(&s, bench, run, workspace);
    for (int k = 0; k < node->in_count; k++) {
        const bool taken = run->inplace == k + 1;
        void *const at =
            slab_cut(&s, run, bench->in[k].bytes, bench->in[k].memory, taken ? bench->out[0].memory : NULL, taken);
        in[k] = at;
        out[0] = taken ? at : out[0];
    }
    for (int k = 0; k < node->param_count; k++) {
        param[k] = slab_cut(&s, run, bench->param[k].bytes, bench->param[k].memory, NULL, false);
    }
    for (int k = run->inplace > 0 ? 1 : 0; k < node->out_count; k++) {
        out[k] = slab_cut(&s, run, bench->out[k].bytes, NULL, bench->out[k].memory, true);
        memset(out[k], 0xFF, bench->out[k].bytes); /* NaN: an element that is not written shows */
    }
    for (int k = 0; k < node->saved_count; k++) {
        if ((ckpt_node_saves(node, run->way) >> k & 1) == 0) {
            continue;
        }
        saved[k] = slab_cut(&s, run, bench->saved[k].bytes, NULL, bench->saved[k].memory, true);
        memset(saved[k], 0xFF, bench->saved[k].bytes);
    }
    const bool keeps = run->recomputed || run->evaluating; /* statistics must stay */
    for (int k = 0; k < node->stat_count; k++) {
        stat[k] = slab_cut(&s, run, bench->stat[k].bytes, bench->stat_before[k].memory,
                           keeps ? NULL : bench->stat[k].memory, !keeps);
    }
    const ckpt_kernel_args args = {.node = node,
                                   .way = run->way,
                                   .state = bench->bound.state,
                                   .in = in,
                                   .out = out,
                                   .saved = saved,
                                   .param = param,
                                   .stat = stat,
                                   .workspace = slab_workspace(&s, run, workspace),
                                   .workspace_bytes = workspace,
                                   .seed = bench->seed,
                                   .step = bench->step,
                                   .recomputed = run->recomputed,
                                   .evaluating = run->evaluating};
    const ckpt_code code = ckpt_device_forward(bench->device, &bench->bound, &args, err);
    slab_close(&s, bench, "forward");
    return code;
}

void ckpt_bench_forward(ckpt_bench *bench, const ckpt_run *run)
{
    ckpt_err err = {0};
    CHECK(ckpt_bench_try(bench, run, &err) == CKPT_OK, "case %d (%s) forward: %s", bench->number, bench->test->op,
          err.msg);
}

void ckpt_bench_prefill(ckpt_bench *bench)
{
    for (int k = 0; k < bench->node->in_count; k++) {
        for (int64_t i = 0; ((bench->node->grad_in >> k) & 1) != 0 && i < bench->grad_in[k].count; i++) {
            const float x = (float)ckpt_bench_random(bench);
            memcpy(bench->grad_in[k].memory + 4 * i, &x, 4);
        }
    }
    for (int k = 0; k < bench->node->param_count; k++) {
        for (int64_t i = 0; i < bench->grad_param[k].count; i++) {
            const float x = (float)ckpt_bench_random(bench);
            memcpy(bench->grad_param[k].memory + 4 * i, &x, 4);
        }
    }
}

/* A gradient buffer: what is in memory when it is added to, NaN when it is overwritten. */
static float *cut_gradient(slab *s, const ckpt_run *run, ckpt_twin *grad, bool adds)
{
    void *const at = slab_cut(s, run, grad->bytes, adds ? grad->memory : NULL, grad->memory, true);
    if (!adds) {
        memset(at, 0xFF, grad->bytes);
    }
    return at;
}

ckpt_code ckpt_bench_try_backward(ckpt_bench *bench, const ckpt_run *run, ckpt_err *err)
{
    const ckpt_node *const node = bench->node;
    const ckpt_reads reads = test_way_reads(node, run->way);
    const void *in[CKPT_IN_MAX] = {0};
    const float *param[CKPT_PARAM_MAX] = {0};
    const void *grad_out[CKPT_OUT_MAX] = {0};
    void *out[CKPT_OUT_MAX] = {0}, *saved[CKPT_SAVED_MAX] = {0};
    void *grad_in[CKPT_IN_MAX] = {0};
    float *grad_param[CKPT_PARAM_MAX] = {0}, *stat[CKPT_STAT_MAX] = {0};
    slab s;
    static const float quarter = 0.25f;
    uint64_t adds_in = run->adds_in;
    float *first = NULL;
    for (int k = 0; run->shared && k < node->in_count; k++) {
        const uint64_t earlier = node->grad_in & ((UINT64_C(1) << k) - 1);
        if (((node->grad_in >> k) & 1) != 0 && earlier != 0) {
            adds_in |= UINT64_C(1) << k;
        }
    }
    const ckpt_bytes workspace = test_way_workspace(&bench->bound, run->way, bench->bound.backward_workspace_bytes) +
                                 ckpt_staging_bytes(node, adds_in, run->adds_param);
    slab_open(&s, bench, run, workspace);
    for (int k = 0; k < node->in_count; k++) {
        if (run->grad_inplace == k + 1) {
            grad_in[k] = slab_cut(&s, run, bench->in[k].bytes, bench->in[k].memory, bench->grad_in[k].memory, true);
            in[k] = grad_in[k];
            continue;
        }
        if ((reads.in >> k) & 1) {
            in[k] = slab_cut(&s, run, bench->in[k].bytes, bench->in[k].memory, NULL, false);
        }
        if (((node->grad_in >> k) & 1) != 0 && run->shared && first != NULL) {
            grad_in[k] = first;
        } else if ((node->grad_in >> k) & 1) {
            grad_in[k] = cut_gradient(&s, run, &bench->grad_in[k], ((adds_in >> k) & 1) != 0);
            first = grad_in[k];
        }
    }
    for (int k = 0; k < node->param_count; k++) {
        param[k] = slab_cut(&s, run, bench->param[k].bytes, bench->param[k].memory, NULL, false);
        grad_param[k] = cut_gradient(&s, run, &bench->grad_param[k], ((run->adds_param >> k) & 1) != 0);
    }
    for (int k = 0; k < node->out_count; k++) {
        if ((reads.out >> k) & 1) {
            out[k] = slab_cut(&s, run, bench->out[k].bytes, bench->out[k].memory, NULL, false);
        }
        if (!node->op->loss && ((run->no_grad_out >> k) & 1) == 0) {
            grad_out[k] = slab_cut(&s, run, bench->grad_out[k].bytes, bench->grad_out[k].memory, NULL, false);
        } else if (run->arriving) {
            grad_out[k] = slab_cut(&s, run, sizeof quarter, (const unsigned char *)&quarter, NULL, false);
        }
    }
    for (int k = 0; k < node->saved_count; k++) {
        if ((reads.saved >> k) & 1) {
            saved[k] = slab_cut(&s, run, bench->saved[k].bytes, bench->saved[k].memory, NULL, false);
        }
    }
    for (int k = 0; k < node->stat_count; k++) { /* what forward changed backward may not read */
        const bool changed = memcmp(bench->stat[k].memory, bench->stat_before[k].memory, bench->stat[k].bytes) != 0;
        stat[k] = changed ? NULL : slab_cut(&s, run, bench->stat[k].bytes, bench->stat_before[k].memory, NULL, false);
    }
    const ckpt_kernel_args args = {.node = node,
                                   .way = run->way,
                                   .state = bench->bound.state,
                                   .in = in,
                                   .out = out,
                                   .saved = saved,
                                   .param = param,
                                   .stat = stat,
                                   .grad_out = grad_out,
                                   .grad_in = grad_in,
                                   .grad_param = grad_param,
                                   .grad_in_adds = adds_in,
                                   .grad_param_adds = run->adds_param,
                                   .workspace = slab_workspace(&s, run, workspace),
                                   .workspace_bytes = workspace,
                                   .seed = bench->seed,
                                   .step = bench->step};
    const ckpt_code code = ckpt_device_backward(bench->device, &bench->bound, &args, err);
    slab_close(&s, bench, "backward");
    return code;
}

void ckpt_bench_backward(ckpt_bench *bench, const ckpt_run *run)
{
    ckpt_err err = {0};
    CHECK(ckpt_bench_try_backward(bench, run, &err) == CKPT_OK, "case %d (%s) backward: %s", bench->number,
          bench->test->op, err.msg);
}

/* ------------------------------------------------------------------------------------------------ answers */

/* Elements of the largest tensor of the case. */
static int64_t largest(const ckpt_bench *bench)
{
    int64_t most = 1;
    for (int k = 0; k < bench->node->in_count; k++) {
        most = bench->in[k].count > most ? bench->in[k].count : most;
    }
    for (int k = 0; k < bench->node->out_count; k++) {
        most = bench->out[k].count > most ? bench->out[k].count : most;
    }
    for (int k = 0; k < bench->node->param_count; k++) {
        most = bench->param[k].count > most ? bench->param[k].count : most;
    }
    return most;
}

double ckpt_bench_rounding(const ckpt_bench *bench)
{
    return (8 * sqrt((double)largest(bench)) + 64) / 16777216.0;
}

void ckpt_bench_compare(const ckpt_bench *bench, const char *what, int k, const ckpt_twin *twin, double slack)
{
    double scale = 1;
    for (int64_t i = 0; i < twin->count; i++) {
        scale = fmax(scale, fabs(twin->truth[i])); /* fmax passes over what is unknown */
    }
    const double bound = (ckpt_bench_rounding(bench) + slack) * scale;
    for (int64_t i = 0; i < twin->count; i++) {
        const double got = ckpt_twin_get(twin, i), wanted = twin->truth[i];
        CHECK(isnan(wanted) ? isfinite(got) : fabs(got - wanted) <= bound,
              "case %d (%s): %s %d, element %lld is %.9g, wanted %.9g within %.2g", bench->number, bench->test->op,
              what, k, (long long)i, got, wanted, bound);
    }
}

unsigned char *ckpt_bench_snapshot(ckpt_bench *bench, bool backward, size_t *length)
{
    const ckpt_node *const node = bench->node;
    const ckpt_twin *twin[PIECE_MAX];
    int count = 0;
    for (int k = 0; backward && k < node->in_count; k++) {
        if ((node->grad_in >> k) & 1) {
            twin[count++] = &bench->grad_in[k];
        }
    }
    for (int k = 0; backward && k < node->param_count; k++) {
        twin[count++] = &bench->grad_param[k];
    }
    for (int k = 0; !backward && k < node->out_count; k++) {
        twin[count++] = &bench->out[k];
    }
    for (int k = 0; !backward && k < node->saved_count; k++) {
        if ((node->way_saved >> k & 1) == 0) {
            twin[count++] = &bench->saved[k];
        }
    }
    *length = 0;
    for (int i = 0; i < count; i++) {
        *length += twin[i]->bytes;
    }
    unsigned char *const copy = CKPT_NEW(&bench->arena, unsigned char, *length);
    size_t at = 0;
    assert_non_null(copy);
    for (int i = 0; i < count; i++) {
        memcpy(copy + at, twin[i]->memory, twin[i]->bytes);
        at += twin[i]->bytes;
    }
    return copy;
}

bool test_products_stay_in_workspace(void)
{
    const ckpt_dnn_matrix m = ckpt_dnn_plain(64, 64, CKPT_FLOAT32);
    ckpt_dnn *dnn = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_dnn_matmul(&m, &m, &m, false, false, 2, -1, &dnn, &err), err);
    const bool stay = strncmp(ckpt_dnn_algorithm(dnn), "gemm", 4) != 0;
    ckpt_dnn_destroy(dnn);
    return stay;
}

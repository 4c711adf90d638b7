/* The GPU's case: see the header. The guard: an image of a part of the device's memory is made on the host, buffers at
 * the planner's alignment with at least 64 bytes of guard between them, and goes to the device in one piece; after the
 * kernel it comes back, and everything outside what the kernel may write must be as it was. A buffer is as long as the
 * planner makes it, a multiple of 64 bytes: its writer may write behind the tensor's end. */
#include "tests/support/support_gpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/lowering/network.h"
#include "tests/emulation/emulation.h"
#include "tests/support/support_test.h"

/* ------------------------------------------------------------------------------------------------ devices */

int ckpt_gpu_open_all(ckpt_gpu gpu[CKPT_GPU_MAX])
{
    ckpt_err err = {0};
    const bool only_real = getenv("CKPT_TEST_DEVICE") != NULL;
    int count = 0;
    memset(gpu, 0, CKPT_GPU_MAX * sizeof *gpu);
    if (!only_real) {
        CHECK_OK(ckpt_device_emulated.open(0, 1, &gpu[count].device, &err), err);
        gpu[count++].name = "emulated";
    }
    const ckpt_code code = ckpt_device_open("cuda:0", 1, &gpu[count].device, &err);
    if (only_real) {
        CHECK_OK(code, err); /* a machine whose GPU does not answer must not pass */
    }
    if (code == CKPT_OK) {
        gpu[count++].name = "cuda:0";
    }
    return count;
}

void ckpt_gpu_put(ckpt_gpu *gpu)
{
    gpu->device->api->release(gpu->device, gpu->base, gpu->bytes);
    ckpt_memory_put(gpu->sent);
    ckpt_memory_put(gpu->received);
}

void ckpt_gpu_close(ckpt_gpu *gpu)
{
    ckpt_gpu_put(gpu);
    ckpt_device_close(gpu->device);
    *gpu = (ckpt_gpu){0};
}

ckpt_gpu ckpt_gpus[CKPT_GPU_MAX];
int ckpt_gpus_count;
ckpt_device *ckpt_gpus_cpu;

int ckpt_gpus_open(void **state)
{
    ckpt_err err = {0};
    CHECK_OK(ckpt_device_open("cpu", 1, &ckpt_gpus_cpu, &err), err);
    ckpt_gpus_count = ckpt_gpu_open_all(ckpt_gpus);
    return 0;
}

int ckpt_gpus_close(void **state)
{
    for (int g = 0; g < ckpt_gpus_count; g++) {
        ckpt_gpu_close(&ckpt_gpus[g]);
    }
    ckpt_device_close(ckpt_gpus_cpu);
    return 0;
}

bool ckpt_gpu_same_memory(const ckpt_device *device, const char *what, ckpt_bytes found, ckpt_bytes wanted)
{
    const ckpt_bytes apart = found > wanted ? found - wanted : wanted - found;
    if (apart != 0) {
        print_message("%s: %lld bytes, %lld from what was expected\n", what, (long long)found,
                      (long long)(found - wanted));
    }
    return apart <= (device->api == &ckpt_device_emulated ? 0 : CKPT_GPU_OTHERS);
}

static int reports;

int ckpt_gpu_reports(void)
{
    return reports;
}

void ckpt_gpu_report(ckpt_gpu_case *c, const char *format, ...)
{
    va_list rest;
    reports++;
    c->failed = true;
    (void)fprintf(stderr, "case %d (%s, %s, %s): ", c->number, c->test->op, ckpt_dtype_name(c->dtype), c->gpu->name);
    va_start(rest, format);
    (void)vfprintf(stderr, format, rest);
    va_end(rest);
    (void)fputc('\n', stderr);
}

/* ------------------------------------------------------------------------------------------------ data */

/* Where element i lies, gaps between rows counted. */
static int64_t place_of(const ckpt_gpu_tensor *t, int64_t i)
{
    const ckpt_shape *const shape = &t->tensor->shape;
    const int64_t row = t->tensor->pitch > 0 ? shape->dim[shape->rank - 1] : 1;
    return t->tensor->pitch > 0 ? i / row * t->tensor->pitch + i % row : i;
}

static void set(const ckpt_gpu_case *c, ckpt_gpu_tensor *t, int64_t i, double x)
{
    if (t->tensor->dtype == CKPT_INT32) {
        const int32_t number = (int32_t)x;
        memcpy(t->bits + 4 * i, &number, 4);
        memcpy(&t->value[i], &number, 4);
        return;
    }
    if (t->tensor->dtype == CKPT_UINT8) {
        t->bits[i] = (unsigned char)x;
        memcpy((unsigned char *)t->value + i, &t->bits[i], 1);
        return;
    }
    const int64_t at = place_of(t, i);
    const uint16_t half = ckpt_bfloat16_of((float)x);
    t->value[i] = c->dtype == CKPT_BFLOAT16 ? ckpt_bfloat16_value(half) : (float)x;
    if (t->tensor->dtype == CKPT_BFLOAT16) {
        memcpy(t->bits + 2 * at, &half, 2);
    } else {
        memcpy(t->bits + 4 * at, &t->value[i], 4);
    }
}

/* `bits` came from the device: the same numbers for the CPU. */
static void widen(ckpt_gpu_tensor *t)
{
    if (t->tensor->dtype == CKPT_UINT8) {
        memcpy(t->value, t->bits, (size_t)t->count);
        return;
    }
    for (int64_t i = 0; i < t->count; i++) {
        const int64_t at = place_of(t, i);
        if (t->tensor->dtype == CKPT_BFLOAT16) {
            uint16_t half;
            memcpy(&half, t->bits + 2 * at, 2);
            t->value[i] = ckpt_bfloat16_value(half);
        } else {
            memcpy(&t->value[i], t->bits + 4 * at, 4);
        }
    }
}

/* Everything in the gaps between rows, and behind the tensor, is 0. */
static bool gaps_are_zero(const ckpt_gpu_tensor *t)
{
    const size_t size = (size_t)ckpt_dtype_bytes(t->tensor->dtype);
    int64_t next = 0;
    for (size_t at = 0; at < t->bytes; at += size) {
        bool zero = true;
        for (size_t b = 0; b < size; b++) {
            zero = zero && t->bits[at + b] == 0;
        }
        if (next < t->count && (int64_t)(at / size) == place_of(t, next)) {
            next++;
        } else if (!zero) {
            return false;
        }
    }
    return true;
}

static ckpt_gpu_tensor tensor_of(ckpt_gpu_case *c, const ckpt_tensor *tensor)
{
    ckpt_gpu_tensor t = {.tensor = tensor, .count = ckpt_shape_count(&tensor->shape)};
    t.bytes = (size_t)ckpt_tensor_bytes(tensor);
    t.bits = CKPT_NEW(&c->arena, unsigned char, t.bytes);
    t.value = CKPT_NEW(&c->arena, float, t.count);
    t.want = CKPT_NEW(&c->arena, float, t.count);
    assert_true(t.bits != NULL && t.value != NULL && t.want != NULL);
    return t;
}

static ckpt_gpu_tensor param_of(ckpt_gpu_case *c, const ckpt_param *param)
{
    ckpt_gpu_tensor t = tensor_of(c, &param->tensor);
    t.bytes = (size_t)ckpt_param_bytes(param);
    t.bits = CKPT_NEW(&c->arena, unsigned char, t.bytes);
    assert_non_null(t.bits);
    return t;
}

static void fill_input(ckpt_gpu_case *c, int k)
{
    ckpt_gpu_tensor *const t = &c->in[k];
    const ckpt_mark mark = ckpt_arena_mark(&c->arena);
    double *const x = CKPT_NEW(&c->arena, double, t->count);
    assert_non_null(x);
    ckpt_case_fill(c->test, k, t->count, &c->random, x);
    memset(t->bits, 0xFF, t->bytes); /* gaps of values may hold anything, those of gradients hold 0 */
    for (int64_t i = 0; i < t->count; i++) {
        set(c, t, i, x[i]);
    }
    ckpt_arena_rewind(&c->arena, mark);
}

static void fill_random(ckpt_gpu_case *c, ckpt_gpu_tensor *t, double middle)
{
    for (int64_t i = 0; i < t->count; i++) {
        set(c, t, i, middle + ckpt_case_random(&c->random));
    }
}

static void make_tensors(ckpt_gpu_case *c)
{
    const ckpt_node *const node = c->node;
    for (int k = 0; k < node->in_count; k++) {
        c->in[k] = tensor_of(c, &node->in[k]);
        c->grad_in[k] = tensor_of(c, &node->in[k]);
        fill_input(c, k);
    }
    for (int k = 0; k < node->param_count; k++) {
        c->param[k] = param_of(c, &node->param[k]);
        c->grad_param[k] = param_of(c, &node->param[k]);
        fill_random(c, &c->param[k], 0);
    }
    for (int k = 0; k < node->out_count; k++) {
        c->out[k] = tensor_of(c, &node->out[k]);
        c->grad_out[k] = tensor_of(c, &node->out[k]);
        fill_random(c, &c->grad_out[k], 0);
    }
    for (int k = 0; k < node->saved_count; k++) {
        c->saved[k] = tensor_of(c, &node->saved[k]);
    }
    for (int k = 0; k < node->stat_count; k++) {
        c->stat[k] = tensor_of(c, &node->stat[k].tensor);
        c->stat_before[k] = tensor_of(c, &node->stat[k].tensor);
        fill_random(c, &c->stat_before[k], 1.5); /* a variance is positive */
    }
}

static bool bind_both(ckpt_gpu_case *c)
{
    ckpt_err err = {0};
    const ckpt_node *const node = c->node;
    CHECK_OK(ckpt_device_bind(c->cpu, c->cpu_node, c->cpu_node->forward_workspace_bytes,
                              c->cpu_node->backward_workspace_bytes, NULL, &c->cpu_bound, &err),
             err);
    if (ckpt_device_bind(c->gpu->device, node, node->forward_workspace_bytes, node->backward_workspace_bytes, NULL,
                         &c->bound, &err) != CKPT_OK) {
        ckpt_gpu_report(c, "%s", err.msg);
        return false;
    }
    return true;
}

/* The node with the case's pitch, which inference gives to rows of CKPT_PITCH_ROW_MIN elements or more alone. */
static const ckpt_node *with_pitch(ckpt_gpu_case *c)
{
    ckpt_node *const node = CKPT_NEW(&c->arena, ckpt_node, 1);
    ckpt_tensor *const in = CKPT_NEW(&c->arena, ckpt_tensor, c->node->in_count);
    assert_true(node != NULL && in != NULL);
    ckpt_err err = {0};
    *node = *c->node;
    CHECK_OK(ckpt_node_own(node, &c->arena, &err), err);
    memcpy(in, node->in, (size_t)node->in_count * sizeof *in);
    node->in = in;
    if (node->op->gpu_pitched_in & 1) {
        in[0].pitch = c->test->pitch;
    } else {
        const int64_t row = node->out[0].shape.dim[node->out[0].shape.rank - 1];
        node->out[0].pitch = c->test->pitch;
        for (int k = 0; k < node->param_count; k++) {
            ckpt_param *const param = &node->param[k];
            param->padding = ckpt_shape_count(&param->tensor.shape) / row * (c->test->pitch - row);
        }
    }
    node->op->gpu_workspace(node, &node->forward_workspace_bytes, &node->backward_workspace_bytes);
    return node;
}

bool ckpt_gpu_case_init(ckpt_gpu_case *c, const ckpt_case *test, int number, ckpt_dtype dtype, ckpt_gpu *gpu,
                        ckpt_device *cpu, uint64_t seed)
{
    ckpt_err err = {0};
    const ckpt_network *network = NULL;
    *c = (ckpt_gpu_case){.test = test,
                         .number = number,
                         .dtype = dtype,
                         .gpu = gpu,
                         .cpu = cpu,
                         .seed = seed,
                         .step = 3,
                         .random = seed + (uint64_t)number};
    ckpt_arena_init(&c->arena);
    CHECK_OK(ckpt_case_network(test, cpu->threads, &c->arena, &network, &c->cpu_node, &err), err);
    const bool on_gpu = gpu->device->api->gpu;
    const int threads = on_gpu ? CKPT_ON_GPU : gpu->device->threads;
    CHECK_OK(ckpt_case_network_as(test, dtype, threads, &c->arena, &network, &c->node, &err), err);
    if (test->pitch > 0 && on_gpu) {
        c->node = with_pitch(c);
    }
    if (!bind_both(c)) {
        return false;
    }
    make_tensors(c);
    CHECK_OK(gpu->device->api->begin(gpu->device, c->seed, c->step, NULL, &err), err);
    return true;
}

void ckpt_gpu_case_fini(ckpt_gpu_case *c)
{
    ckpt_device_unbind(&c->bound);
    ckpt_device_unbind(&c->cpu_bound);
    ckpt_arena_fini(&c->arena);
}

int ckpt_gpu_for_all(const ckpt_case *cases, int count, int first, unsigned dtypes, uint64_t seed,
                     void (*check)(ckpt_gpu_case *c))
{
    static const ckpt_dtype dtype[] = {CKPT_FLOAT32, CKPT_BFLOAT16};
    ckpt_gpu_case *const c = ckpt_memory_get(sizeof *c);
    const int before = reports;
    assert_non_null(c);
    for (int i = 0; i < count; i++) {
        for (int g = 0; g < ckpt_gpus_count; g++) {
            for (int d = ckpt_gpus[g].device->api->gpu ? 0 : 1; d < 2; d++) {
                if (ckpt_gpus[g].device->api->gpu && (dtypes >> d & 1) == 0) {
                    continue;
                }
                if (ckpt_gpu_case_init(c, &cases[i], first + i, dtype[d], &ckpt_gpus[g], ckpt_gpus_cpu, seed)) {
                    check(c);
                }
                ckpt_gpu_case_fini(c);
                ckpt_emulated_schedule(0);
            }
        }
    }
    ckpt_memory_put(c);
    return reports - before;
}

/* ------------------------------------------------------------------------------------------------ runs on the GPU */

enum { PIECE_MAX = 3 * (CKPT_IN_MAX + CKPT_OUT_MAX + CKPT_SAVED_MAX + CKPT_PARAM_MAX) };

typedef struct piece {
    size_t at, bytes, buffer_bytes;
    ckpt_gpu_tensor *result; /* its bits come from here; NULL: must stay as it is */
} piece;

/* The image, and where it lies on the device. */
typedef struct image {
    ckpt_gpu_case *c;
    ckpt_mark mark;
    unsigned char *host, *device;
    size_t used, room;
    piece piece[PIECE_MAX];
    int count;
} image;

static size_t room_of(const ckpt_gpu_tensor *t, int count, size_t guard)
{
    size_t sum = 0;
    for (int k = 0; k < count; k++) {
        sum += (size_t)ckpt_round_up((int64_t)t[k].bytes, CKPT_ALIGN) + guard;
    }
    return sum;
}

/* Large enough, but not far too large: the emulated device opens and closes all of it at every kernel. */
static void fit(ckpt_gpu *gpu, ckpt_bytes bytes)
{
    const ckpt_device_api *const api = gpu->device->api;
    ckpt_err err = {0};
    if (bytes <= gpu->bytes && gpu->bytes <= 16 * bytes + (1 << 20)) {
        return;
    }
    api->release(gpu->device, gpu->base, gpu->bytes);
    ckpt_memory_put(gpu->sent);
    ckpt_memory_put(gpu->received);
    gpu->bytes = bytes + (1 << 18);
    CHECK_OK(api->reserve(gpu->device, gpu->bytes, &gpu->base, &err), err);
    gpu->sent = ckpt_memory_get((size_t)gpu->bytes);
    gpu->received = ckpt_memory_get((size_t)gpu->bytes);
    assert_true(gpu->sent != NULL && gpu->received != NULL);
}

static void image_open(image *m, ckpt_gpu_case *c, const ckpt_run *run, ckpt_bytes workspace)
{
    const ckpt_node *const n = c->node;
    const size_t shift = (size_t)run->shift * CKPT_ALIGN, guard = 2 * CKPT_ALIGN + shift;
    *m = (image){.c = c, .mark = ckpt_arena_mark(&c->arena)};
    m->room = 4 * CKPT_ALIGN + shift + (size_t)workspace + guard + 2 * room_of(c->in, n->in_count, guard) +
              3 * room_of(c->param, n->param_count, guard) + 2 * room_of(c->out, n->out_count, guard) +
              room_of(c->saved, n->saved_count, guard) + room_of(c->stat, n->stat_count, guard);
    fit(c->gpu, (ckpt_bytes)m->room);
    m->host = c->gpu->sent;
    memset(m->host, run->guard_byte, m->room);
    m->device = c->gpu->base;
    m->used = CKPT_ALIGN + shift;
}

/* A buffer for `bytes`, with `content` or full of NaN; its device address. */
static void *image_cut(image *m, const ckpt_run *run, size_t bytes, const void *content, ckpt_gpu_tensor *result)
{
    const size_t length = (size_t)ckpt_round_up((int64_t)bytes, CKPT_ALIGN), at = m->used;
    assert_true(m->count < PIECE_MAX);
    memset(m->host + at, 0xFF, length);
    if (content != NULL) {
        memcpy(m->host + at, content, bytes);
    }
    m->piece[m->count++] = (piece){at, bytes, length, result};
    m->used = at + length + CKPT_ALIGN + (size_t)run->shift * CKPT_ALIGN;
    assert_true(m->used <= m->room);
    return m->device + at;
}

static void *image_workspace(image *m, const ckpt_run *run, ckpt_bytes bytes)
{
    static ckpt_gpu_tensor nobody; /* may be written, is not read */
    void *const at = image_cut(m, run, (size_t)bytes, NULL, &nobody);
    memset(m->host + m->piece[m->count - 1].at, run->workspace_byte, (size_t)bytes);
    return at;
}

/* Everything outside what may be written is as it was; results go where they belong. */
static void image_read(image *m, const char *direction)
{
    ckpt_gpu_case *const c = m->c;
    unsigned char *const after = c->gpu->received;
    ckpt_err err = {0};
    if (c->gpu->device->api->download(c->gpu->device, after, m->device, (ckpt_bytes)m->used, &err) != CKPT_OK) {
        ckpt_gpu_report(c, "%s: %s", direction, err.msg);
        return;
    }
    size_t at = 0;
    for (int i = 0; i <= m->count; i++) {
        const bool last = i == m->count;
        const size_t end = last ? m->used : m->piece[i].at;
        const bool written = !last && m->piece[i].result != NULL;
        for (; at < end; at++) {
            if (after[at] != m->host[at]) {
                ckpt_gpu_report(c, "%s writes outside its buffers: byte %zu, %zu behind buffer %d of %zu bytes",
                                direction, at, i > 0 ? at - m->piece[i - 1].at : at, i - 1,
                                i > 0 ? m->piece[i - 1].bytes : (size_t)0);
                return;
            }
        }
        if (written) {
            if (m->piece[i].result->bits != NULL) {
                memcpy(m->piece[i].result->bits, after + at, m->piece[i].bytes);
                widen(m->piece[i].result);
            }
            const ckpt_gpu_tensor *const result = m->piece[i].result; /* zeros between gradients are summed, squared */
            const bool exact = result >= c->grad_param && result < c->grad_param + CKPT_PARAM_MAX;
            if ((exact || (result >= c->grad_in && result < c->grad_in + CKPT_IN_MAX)) && !gaps_are_zero(result)) {
                ckpt_gpu_report(c, "%s leaves something else than 0 in a gap", direction);
                return;
            }
            at += exact ? m->piece[i].bytes : m->piece[i].buffer_bytes;
        }
    }
}

static void image_send(image *m)
{
    ckpt_err err = {0};
    CHECK_OK(m->c->gpu->device->api->upload(m->c->gpu->device, m->device, m->host, (ckpt_bytes)m->used, &err), err);
}

/* The master copies and the 16-bit ones. */
static void cut_params(image *m, const ckpt_run *run, const float **param, const void **param16)
{
    ckpt_gpu_case *const c = m->c;
    for (int k = 0; k < c->node->param_count; k++) {
        param[k] = image_cut(m, run, c->param[k].bytes, c->param[k].bits, NULL);
        if (c->dtype == CKPT_BFLOAT16) {
            const size_t bytes = c->param[k].bytes / 2;
            uint16_t *const half = CKPT_NEW(&c->arena, uint16_t, bytes / 2);
            assert_non_null(half);
            for (int64_t i = 0; i < c->param[k].count; i++) {
                half[i] = ckpt_bfloat16_of(c->param[k].value[i]);
            }
            param16[k] = image_cut(m, run, bytes, half, NULL);
        }
    }
}

void ckpt_gpu_forward(ckpt_gpu_case *c, const ckpt_run *run)
{
    const ckpt_node *const node = c->node;
    const void *in[CKPT_IN_MAX] = {0}, *param16[CKPT_PARAM_MAX] = {0};
    const float *param[CKPT_PARAM_MAX] = {0};
    float *stat[CKPT_STAT_MAX] = {0};
    void *out[CKPT_OUT_MAX] = {0}, *saved[CKPT_SAVED_MAX] = {0};
    image m;
    if (c->failed) {
        return;
    }
    const ckpt_bytes workspace = run->tuning != NULL
                                     ? node->forward_workspace_bytes
                                     : test_way_workspace(&c->bound, run->way, c->bound.forward_workspace_bytes);
    image_open(&m, c, run, workspace);
    for (int k = 0; k < node->in_count; k++) {
        const bool taken = run->inplace == 1 + k;
        in[k] = image_cut(&m, run, c->in[k].bytes, c->in[k].bits, taken ? &c->out[0] : NULL);
    }
    cut_params(&m, run, param, param16);
    for (int k = 0; k < node->out_count; k++) {
        out[k] = k == 0 && run->inplace > 0 ? (void *)in[run->inplace - 1]
                                            : image_cut(&m, run, c->out[k].bytes, NULL, &c->out[k]);
    }
    for (int k = 0; k < node->saved_count; k++) {
        if ((ckpt_node_saves(node, run->way) >> k & 1) != 0) {
            saved[k] = image_cut(&m, run, c->saved[k].bytes, NULL, &c->saved[k]);
        }
    }
    for (int k = 0; k < node->stat_count; k++) {
        const bool kept = run->recomputed || run->evaluating;
        stat[k] = image_cut(&m, run, c->stat[k].bytes, c->stat_before[k].bits, kept ? NULL : &c->stat[k]);
    }
    ckpt_kernel_args args = {.way = run->way,
                             .in = in,
                             .out = out,
                             .saved = saved,
                             .param = param,
                             .param16 = param16,
                             .stat = stat,
                             .workspace = image_workspace(&m, run, workspace),
                             .workspace_bytes = workspace,
                             .seed = c->seed,
                             .step = c->step,
                             .recomputed = run->recomputed,
                             .evaluating = run->evaluating};
    ckpt_err err = {0};
    image_send(&m);
    const ckpt_code code = run->tuning != NULL
                               ? ckpt_device_tune(c->gpu->device, &c->bound, &args, false, run->tuning, &err)
                               : ckpt_device_forward(c->gpu->device, &c->bound, &args, &err);
    if (code != CKPT_OK) {
        ckpt_gpu_report(c, "forward: %s", err.msg);
    }
    image_read(&m, "forward");
    ckpt_arena_rewind(&c->arena, m.mark);
}

void ckpt_gpu_backward(ckpt_gpu_case *c, const ckpt_run *run)
{
    const ckpt_node *const node = c->node;
    const ckpt_reads reads = test_way_reads(node, run->way);
    const void *in[CKPT_IN_MAX] = {0}, *grad_out[CKPT_OUT_MAX] = {0}, *param16[CKPT_PARAM_MAX] = {0};
    const float *param[CKPT_PARAM_MAX] = {0};
    void *out[CKPT_OUT_MAX] = {0}, *saved[CKPT_SAVED_MAX] = {0}, *grad_in[CKPT_IN_MAX] = {0}, *first = NULL;
    float *grad_param[CKPT_PARAM_MAX] = {0}, *stat[CKPT_STAT_MAX] = {0};
    uint64_t adds_in = run->adds_in;
    image m;
    if (c->failed) {
        return;
    }
    for (int k = 0; run->shared && k < node->in_count; k++) {
        adds_in |= node->grad_in & ((UINT64_C(1) << k) - 1) ? node->grad_in & UINT64_C(1) << k : 0;
    }
    const ckpt_bytes own = run->tuning != NULL
                               ? node->backward_workspace_bytes
                               : test_way_workspace(&c->bound, run->way, c->bound.backward_workspace_bytes);
    const ckpt_bytes workspace = own + ckpt_staging_bytes(node, adds_in, run->adds_param);
    image_open(&m, c, run, workspace);
    for (int k = 0; k < node->in_count; k++) {
        const bool taken = run->grad_inplace == 1 + k;
        if (reads.in >> k & 1) {
            in[k] = image_cut(&m, run, c->in[k].bytes, c->in[k].bits, taken ? &c->grad_in[k] : NULL);
        }
        if (taken) {
            grad_in[k] = (void *)in[k];
        } else if ((node->grad_in >> k & 1) != 0 && run->shared && first != NULL) {
            grad_in[k] = first;
        } else if (node->grad_in >> k & 1) {
            const bool adds = (adds_in >> k & 1) != 0;
            first = image_cut(&m, run, c->grad_in[k].bytes, adds ? c->grad_in[k].bits : NULL, &c->grad_in[k]);
            grad_in[k] = first;
        }
    }
    cut_params(&m, run, param, param16);
    for (int k = 0; k < node->param_count; k++) {
        const bool adds = (run->adds_param >> k & 1) != 0;
        grad_param[k] =
            image_cut(&m, run, c->grad_param[k].bytes, adds ? c->grad_param[k].bits : NULL, &c->grad_param[k]);
    }
    for (int k = 0; k < node->out_count; k++) {
        if (reads.out >> k & 1) {
            out[k] = image_cut(&m, run, c->out[k].bytes, c->out[k].bits, NULL);
        }
        if (!node->op->loss && (run->no_grad_out >> k & 1) == 0) {
            grad_out[k] = image_cut(&m, run, c->grad_out[k].bytes, c->grad_out[k].bits, NULL);
        }
    }
    for (int k = 0; k < node->saved_count; k++) {
        if (reads.saved >> k & 1) {
            saved[k] = image_cut(&m, run, c->saved[k].bytes, c->saved[k].bits, NULL);
        }
    }
    for (int k = 0; k < node->stat_count; k++) { /* what forward changed backward may not read */
        const bool changed = memcmp(c->stat[k].bits, c->stat_before[k].bits, c->stat[k].bytes) != 0;
        stat[k] = changed ? NULL : image_cut(&m, run, c->stat[k].bytes, c->stat_before[k].bits, NULL);
    }
    const ckpt_kernel_args args = {.way = run->way,
                                   .in = in,
                                   .out = out,
                                   .saved = saved,
                                   .param = param,
                                   .param16 = param16,
                                   .stat = stat,
                                   .grad_out = grad_out,
                                   .grad_in = grad_in,
                                   .grad_param = grad_param,
                                   .grad_in_adds = adds_in,
                                   .grad_param_adds = run->adds_param,
                                   .workspace = image_workspace(&m, run, workspace),
                                   .workspace_bytes = workspace,
                                   .seed = c->seed,
                                   .step = c->step};
    ckpt_err err = {0};
    image_send(&m);
    const ckpt_code code = run->tuning != NULL
                               ? ckpt_device_tune(c->gpu->device, &c->bound, &args, true, run->tuning, &err)
                               : ckpt_device_backward(c->gpu->device, &c->bound, &args, &err);
    if (code != CKPT_OK) {
        ckpt_gpu_report(c, "backward: %s", err.msg);
    }
    image_read(&m, "backward");
    ckpt_arena_rewind(&c->arena, m.mark);
}

/* ------------------------------------------------------------------------------------------------ runs on the CPU */

void ckpt_gpu_want_forward(ckpt_gpu_case *c, bool evaluating)
{
    const void *in[CKPT_IN_MAX] = {0};
    const float *param[CKPT_PARAM_MAX] = {0};
    float *stat[CKPT_STAT_MAX] = {0};
    void *out[CKPT_OUT_MAX] = {0}, *saved[CKPT_SAVED_MAX] = {0};
    ckpt_err err = {0};
    for (int k = 0; k < c->node->in_count; k++) {
        in[k] = c->in[k].value;
    }
    for (int k = 0; k < c->node->param_count; k++) {
        param[k] = c->param[k].value;
    }
    for (int k = 0; k < c->node->out_count; k++) {
        out[k] = c->out[k].want;
    }
    for (int k = 0; k < c->node->saved_count; k++) {
        saved[k] = (c->node->way_saved >> k & 1) == 0 ? c->saved[k].want : NULL;
    }
    for (int k = 0; k < c->node->stat_count; k++) {
        stat[k] = c->stat[k].want;
        memcpy(stat[k], c->stat_before[k].value, c->stat[k].bytes);
    }
    const ckpt_bytes bytes = c->cpu_bound.forward_workspace_bytes;
    const ckpt_kernel_args args = {.in = in,
                                   .out = out,
                                   .saved = saved,
                                   .param = param,
                                   .stat = stat,
                                   .workspace = ckpt_arena_take(&c->arena, 1, (size_t)bytes + CKPT_ALIGN),
                                   .workspace_bytes = bytes,
                                   .seed = c->seed,
                                   .step = c->step,
                                   .evaluating = evaluating};
    ckpt_kernel_args aligned = args;
    aligned.workspace = (void *)(((uintptr_t)args.workspace + CKPT_ALIGN - 1) / CKPT_ALIGN * CKPT_ALIGN);
    CHECK_OK(ckpt_device_forward(c->cpu, &c->cpu_bound, &aligned, &err), err);
}

void ckpt_gpu_want_backward(ckpt_gpu_case *c, uint64_t no_grad_out)
{
    ckpt_gpu_want_backward_by(c, NULL, no_grad_out);
}

void ckpt_gpu_want_backward_by(ckpt_gpu_case *c, const char *name, uint64_t no_grad_out)
{
    const ckpt_node *const node = c->cpu_node;
    const ckpt_way *const way = name == NULL ? NULL : ckpt_node_find_way(node, name, true);
    const ckpt_reads reads = test_way_reads(node, way);
    const void *in[CKPT_IN_MAX] = {0}, *grad_out[CKPT_OUT_MAX] = {0};
    const float *param[CKPT_PARAM_MAX] = {0};
    void *out[CKPT_OUT_MAX] = {0}, *saved[CKPT_SAVED_MAX] = {0}, *grad_in[CKPT_IN_MAX] = {0};
    float *grad_param[CKPT_PARAM_MAX] = {0}, *stat[CKPT_STAT_MAX] = {0};
    ckpt_err err = {0};
    for (int k = 0; k < node->in_count; k++) {
        in[k] = reads.in >> k & 1 ? c->in[k].value : NULL;
        grad_in[k] = node->grad_in >> k & 1 ? c->grad_in[k].want : NULL;
    }
    for (int k = 0; k < node->param_count; k++) {
        param[k] = c->param[k].value;
        grad_param[k] = c->grad_param[k].want;
    }
    for (int k = 0; k < node->out_count; k++) {
        out[k] = reads.out >> k & 1 ? c->out[k].value : NULL;
        grad_out[k] = node->op->loss || (no_grad_out >> k & 1) != 0 ? NULL : c->grad_out[k].value;
    }
    for (int k = 0; k < node->saved_count; k++) {
        saved[k] = reads.saved >> k & 1 ? c->saved[k].value : NULL;
    }
    for (int k = 0; k < node->stat_count; k++) {
        stat[k] = c->stat_before[k].value;
    }
    const ckpt_bytes bytes = test_way_workspace(&c->cpu_bound, way, c->cpu_bound.backward_workspace_bytes);
    char *const room = ckpt_arena_take(&c->arena, 1, (size_t)bytes + CKPT_ALIGN);
    assert_non_null(room);
    const ckpt_kernel_args args = {.way = way,
                                   .in = in,
                                   .out = out,
                                   .saved = saved,
                                   .param = param,
                                   .stat = stat,
                                   .grad_out = grad_out,
                                   .grad_in = grad_in,
                                   .grad_param = grad_param,
                                   .workspace = (void *)(((uintptr_t)room + CKPT_ALIGN - 1) / CKPT_ALIGN * CKPT_ALIGN),
                                   .workspace_bytes = bytes,
                                   .seed = c->seed,
                                   .step = c->step};
    CHECK_OK(ckpt_device_backward(c->cpu, &c->cpu_bound, &args, &err), err);
}

void ckpt_gpu_prefill(ckpt_gpu_case *c)
{
    for (int k = 0; k < c->node->in_count; k++) {
        if (c->node->grad_in >> k & 1) {
            fill_random(c, &c->grad_in[k], 0);
        }
    }
    for (int k = 0; k < c->node->param_count; k++) {
        fill_random(c, &c->grad_param[k], 0);
    }
}

/* ------------------------------------------------------------------------------------------------ answers */

/* Operands that an op rounds to bfloat16 inside, forward and backward, in a bfloat16 model. */
static const struct {
    const char *op;
    int forward, backward;
} roundings[] = {
    {"attention", 1, 3}, /* probabilities; backward also their gradients, before and after the product's sum */
    {"conv1d", 1, 1},    /* y before the bias is added; cuDNN's filter gradients are of the filters' type */
    {"conv2d", 1, 1},
    {"conv3d", 1, 1},
    {"conv_transpose1d", 1, 1},
    {"conv_transpose2d", 1, 1},
    {"linear_cross_entropy", 1, 4}, /* logits; one of 4 to 8 is off by 1/64, and its probability by 4/256 */
    {"moe", 2, 4},  /* inner values, weighted outputs; backward their gradients, and those of rows and logits */
    {"lstm", 4, 6}, /* what inputs contribute, and at every step the state, whose error goes on to the next */
    {"gru", 4, 6},
    {"lstm_cell", 1, 2}, /* pre-activations; backward their gradients, an operand of four products */
};

static int64_t largest(const ckpt_gpu_case *c)
{
    int64_t most = 1;
    for (int k = 0; k < c->node->in_count; k++) {
        most = c->in[k].count > most ? c->in[k].count : most;
    }
    for (int k = 0; k < c->node->out_count; k++) {
        most = c->out[k].count > most ? c->out[k].count : most;
    }
    for (int k = 0; k < c->node->param_count; k++) {
        most = c->param[k].count > most ? c->param[k].count : most;
    }
    return most;
}

double ckpt_gpu_bound(const ckpt_gpu_case *c, const ckpt_gpu_tensor *tensor, bool backward, double want, double most)
{
    const double scale = backward && c->node->op->loss ? most : fmax(most, 1);
    double bound = 2 * (64 + 8 * sqrt((double)largest(c))) / 16777216 * scale;
    if (tensor->tensor->dtype == CKPT_BFLOAT16) {
        bound += fabs(want) / 256;
    }
    for (size_t i = 0; c->dtype == CKPT_BFLOAT16 && i < sizeof roundings / sizeof roundings[0]; i++) {
        if (strcmp(roundings[i].op, c->node->op->name) == 0) {
            bound += (backward ? roundings[i].backward : roundings[i].forward) * scale / 256;
        }
    }
    return bound;
}

void ckpt_gpu_compare(ckpt_gpu_case *c, const char *what, int k, const ckpt_gpu_tensor *tensor, bool backward,
                      int extra)
{
    if (c->failed) {
        return;
    }
    if (!ckpt_dtype_is_float(tensor->tensor->dtype)) {
        if (memcmp(tensor->value, tensor->want, tensor->bytes) != 0) {
            ckpt_gpu_report(c, "%s %d: whole numbers differ from the CPU's", what, k);
        }
        return;
    }
    double most = 0;
    for (int64_t i = 0; i < tensor->count; i++) {
        most = fmax(most, fabs((double)tensor->want[i]));
    }
    for (int64_t i = 0; i < tensor->count; i++) {
        const double got = (double)tensor->value[i], want = (double)tensor->want[i];
        const double bound = ckpt_gpu_bound(c, tensor, backward, want, most) + extra * fmax(most, 1) / 256;
        if (!(fabs(got - want) <= bound)) {
            ckpt_gpu_report(c, "%s %d, element %lld of %lld is %.9g, the CPU's %.9g, bound %.2g", what, k, (long long)i,
                            (long long)tensor->count, got, want, bound);
            return;
        }
    }
}

unsigned char *ckpt_gpu_snapshot(ckpt_gpu_case *c, bool backward, size_t *length)
{
    const ckpt_gpu_tensor *tensor[CKPT_IN_MAX + CKPT_PARAM_MAX + CKPT_OUT_MAX + CKPT_SAVED_MAX];
    int count = 0;
    for (int k = 0; backward && k < c->node->in_count; k++) {
        if (c->node->grad_in >> k & 1) {
            tensor[count++] = &c->grad_in[k];
        }
    }
    for (int k = 0; backward && k < c->node->param_count; k++) {
        tensor[count++] = &c->grad_param[k];
    }
    for (int k = 0; !backward && k < c->node->out_count; k++) {
        tensor[count++] = &c->out[k];
    }
    for (int k = 0; !backward && k < c->node->saved_count; k++) {
        if ((c->node->way_saved >> k & 1) == 0) {
            tensor[count++] = &c->saved[k];
        }
    }
    *length = 0;
    for (int i = 0; i < count; i++) {
        *length += tensor[i]->bytes;
    }
    unsigned char *const copy = CKPT_NEW(&c->arena, unsigned char, *length);
    size_t at = 0;
    assert_non_null(copy);
    for (int i = 0; i < count; i++) {
        memcpy(copy + at, tensor[i]->bits, tensor[i]->bytes);
        at += tensor[i]->bytes;
    }
    return copy;
}

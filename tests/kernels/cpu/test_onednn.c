/* labels: unit */
/* The heavy CPU kernels at odd shapes. Compares forward with double-precision references, backward with their central
 * differences, and bits with a second run at other addresses and with other contents of the workspace. Measures their
 * use of the heap. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/onednn.h"
#include "kernels/device.h"
#include "tests/support/support_bench.h"
#include "tests/support/support_network.h"
#include "tests/support/support_reference.h"
#include "tests/support/support_test.h"

#if defined(__SANITIZE_ADDRESS__)
#define METERED 0
#else
#define METERED 1
#endif

/* Counts heap allocations while watching; glibc's functions do the work. */
static int64_t heap_blocks, heap_bytes;
static int heap_watch;

#if METERED
#include <malloc.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
void *malloc(size_t size);
void *calloc(size_t count, size_t size);
void *realloc(void *old, size_t size);
void *aligned_alloc(size_t alignment, size_t size);
int posix_memalign(void **block, size_t alignment, size_t size);

static void *seen_block(void *block)
{
    if (heap_watch != 0 && block != NULL) {
        __atomic_add_fetch(&heap_blocks, 1, __ATOMIC_SEQ_CST);
        __atomic_add_fetch(&heap_bytes, (int64_t)malloc_usable_size(block), __ATOMIC_SEQ_CST);
    }
    return block;
}

void *malloc(size_t size)
{
    return seen_block(__libc_malloc(size));
}

void *calloc(size_t count, size_t size)
{
    return seen_block(__libc_calloc(count, size));
}

void *realloc(void *old, size_t size)
{
    return seen_block(__libc_realloc(old, size));
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return seen_block(__libc_memalign(alignment, size));
}

int posix_memalign(void **block, size_t alignment, size_t size)
{
    *block = seen_block(__libc_memalign(alignment, size));
    return *block == NULL ? 12 : 0;
}
#endif

/* xorshift64*: Vigna 2016. */
static uint64_t random_state;

static double draw(void)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (double)((random_state * UINT64_C(2685821657736338717)) >> 11) * 0x1p-53;
}

enum { SEED = 7, STEP = 3 };

static int threads = 2;

/* One kernel with all its memory: tensors by role, in one list. */
typedef struct tensor {
    float *at, *base;
    int64_t count;
} tensor;

typedef struct rig {
    test_model model;
    ckpt_node node;
    const ckpt_kernel *kernel;
    void *state;
    ckpt_bytes forward_bytes, backward_bytes;
    tensor in[3], out, saved[2], param[2], stat[2], grad_out, grad_in[3], grad_param[2], workspace;
    bool evaluating, recomputed;
    uint64_t grad_in_adds, grad_param_adds;
} rig;

/* `shift` moves the tensor by whole cache lines; poisoned with NaN. */
static tensor take(int64_t count, int shift)
{
    tensor t = {.count = count};
    t.base = aligned_alloc(64, (size_t)((count + 63) / 16 * 64 + 64 * shift));
    assert_non_null(t.base);
    t.at = t.base + 16 * shift;
    for (int64_t i = 0; i < count; i++) {
        t.at[i] = NAN;
    }
    return t;
}

static tensor take_random(int64_t count, int shift)
{
    tensor t = take(count, shift);
    for (int64_t i = 0; i < count; i++) {
        t.at[i] = (float)(2 * draw() - 1);
    }
    return t;
}

static void rig_open(rig *r, int inputs, int rank, const int64_t *dim, const char *op, const char *attrs, int shift,
                     bool wants_input)
{
    static const char *const names[3] = {"x", "y", "z"};
    memset(r, 0, sizeof *r);
    test_model_init(&r->model);
    for (int i = 0; i < inputs; i++) {
        test_input(&r->model, names[i], CKPT_FLOAT32, rank, dim);
    }
    test_layer(&r->model, "it", op, inputs == 1 ? "x" : "x y z", attrs);
    const ckpt_network *network = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_network_infer(&r->model.model, threads, &r->model.arena, &network, &err), err);
    r->node = network->node[0];
    r->node.grad_in = wants_input ? (UINT64_C(1) << inputs) - 1 : 0;
    r->kernel = ckpt_device_find(&(ckpt_device){.api = &ckpt_device_cpu}, op);
    assert_non_null(r->kernel);
    CHECK_OK(ckpt_kernel_prepare(r->kernel, NULL, &r->node, -1, -1, NULL, &r->state, &err), err);
    if (r->kernel->workspace != NULL) {
        r->kernel->workspace(&r->node, r->state, &r->forward_bytes, &r->backward_bytes);
    }
    for (int i = 0; i < inputs; i++) {
        r->in[i] = take_random(ckpt_shape_count(&r->node.in[i].shape), shift);
        r->grad_in[i] = take(r->in[i].count, shift);
    }
    r->out = take(ckpt_shape_count(&r->node.out[0].shape), shift);
    r->grad_out = take_random(r->out.count, shift);
    for (int k = 0; k < r->node.saved_count; k++) {
        r->saved[k] = take(ckpt_shape_count(&r->node.saved[k].shape), shift);
    }
    for (int k = 0; k < r->node.param_count; k++) {
        r->param[k] = take_random(ckpt_shape_count(&r->node.param[k].tensor.shape), shift);
        r->grad_param[k] = take(r->param[k].count, shift);
    }
    for (int k = 0; k < r->node.stat_count; k++) {
        r->stat[k] = take(ckpt_shape_count(&r->node.stat[k].tensor.shape), shift);
        for (int64_t i = 0; i < r->stat[k].count; i++) {
            r->stat[k].at[i] = (float)k;
        }
    }
    const ckpt_bytes most = r->forward_bytes > r->backward_bytes ? r->forward_bytes : r->backward_bytes;
    r->workspace = take(most / 4, shift);
}

static void rig_close(rig *r)
{
    tensor *all[] = {&r->in[0],      &r->in[1],      &r->in[2],         &r->out,           &r->saved[0], &r->saved[1],
                     &r->param[0],   &r->param[1],   &r->stat[0],       &r->stat[1],       &r->grad_out, &r->grad_in[0],
                     &r->grad_in[1], &r->grad_in[2], &r->grad_param[0], &r->grad_param[1], &r->workspace};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]->base);
    }
    ckpt_kernel_release(r->kernel, r->state);
    test_model_fini(&r->model);
}

/* Runs one direction and counts heap allocations. Backward gets what the op declared, as from the executor. */
static void rig_run(rig *r, bool backward)
{
    const ckpt_node *n = &r->node;
    const void *in[3];
    void *out[1], *saved[2];
    void *grad_in[3];
    for (int k = 0; k < 3; k++) {
        in[k] = !backward || (n->backward_in >> k & 1) != 0 ? r->in[k].at : NULL;
        grad_in[k] = (n->grad_in >> k & 1) != 0 ? r->grad_in[k].at : NULL;
    }
    out[0] = !backward || (n->backward_out & 1) != 0 ? r->out.at : NULL;
    for (int k = 0; k < 2; k++) {
        saved[k] = !backward || (n->backward_saved >> k & 1) != 0 ? r->saved[k].at : NULL;
    }
    const ckpt_kernel_args args = {
        .node = n,
        .state = r->state,
        .in = in,
        .out = out,
        .saved = saved,
        .param = (const float *[]){r->param[0].at, r->param[1].at},
        .stat = (float *[]){r->stat[0].at, r->stat[1].at},
        .grad_out = (const void *[]){r->grad_out.at},
        .grad_in = grad_in,
        .grad_param = (float *[]){r->grad_param[0].at, r->grad_param[1].at},
        .grad_in_adds = r->grad_in_adds,
        .grad_param_adds = r->grad_param_adds,
        .workspace = r->workspace.at,
        .workspace_bytes = backward ? r->backward_bytes : r->forward_bytes,
        .seed = SEED,
        .step = STEP,
        .recomputed = r->recomputed,
        .evaluating = r->evaluating,
    };
    ckpt_err err = {0};
    heap_blocks = heap_bytes = 0;
    heap_watch = 1;
    const ckpt_code code = backward ? r->kernel->backward(&args, &err) : r->kernel->forward(&args, &err);
    heap_watch = 0;
    CHECK_OK(code, err);
}

/* The logical index of element `i` in memory (rank 4: channels last). */
static int64_t written(const ckpt_shape *s, int64_t i)
{
    if (s->rank != 4) {
        return i;
    }
    const int64_t C = s->dim[1], pixels = s->dim[2] * s->dim[3];
    return (i / C / pixels * C + i % C) * pixels + i / C % pixels;
}

static double *wide(int64_t count)
{
    double *made = calloc((size_t)count + 1, sizeof *made);
    assert_non_null(made);
    return made;
}

/* The input of the references: everything in double and in logical order. */
typedef struct mirror {
    double *in[3], *param[2], *out, *saved[2], *stat[2];
    ckpt_reference reference;
} mirror;

static void mirror_open(const rig *r, mirror *m)
{
    memset(m, 0, sizeof *m);
    const ckpt_node *n = &r->node;
    for (int k = 0; k < n->in_count; k++) {
        m->in[k] = wide(r->in[k].count);
        for (int64_t i = 0; i < r->in[k].count; i++) {
            m->in[k][written(&n->in[k].shape, i)] = (double)r->in[k].at[i];
        }
    }
    for (int k = 0; k < 2; k++) {
        m->param[k] = wide(r->param[k].count);
        for (int64_t i = 0; i < r->param[k].count; i++) {
            m->param[k][i] = (double)r->param[k].at[i];
        }
        m->saved[k] = wide(r->saved[k].count);
        m->stat[k] = wide(r->stat[k].count);
    }
    m->out = wide(r->out.count);
    m->reference = (ckpt_reference){.node = n,
                                    .in = (const double *const *)m->in,
                                    .param = (const double *const *)m->param,
                                    .out = &m->out,
                                    .saved = m->saved,
                                    .stat = m->stat,
                                    .seed = SEED,
                                    .step = STEP};
}

static void mirror_close(mirror *m)
{
    for (int k = 0; k < 3; k++) {
        free(m->in[k]);
    }
    for (int k = 0; k < 2; k++) {
        free(m->param[k]);
        free(m->saved[k]);
        free(m->stat[k]);
    }
    free(m->out);
}

static double loss(const rig *r, const mirror *m)
{
    assert_true(ckpt_reference_forward(&m->reference));
    double sum = 0;
    for (int64_t i = 0; i < r->out.count; i++) {
        sum += m->out[written(&r->node.out[0].shape, i)] * (double)r->grad_out.at[i];
    }
    return sum;
}

/* Central differences with h = 1e-5 have an error of h^2 times a third derivative, and 1e-16 |loss| / h of rounding:
 * both far below single precision. `before`: the old values if the kernel adds; `shape`: of a value; NULL: a parameter,
 * which is stored in logical order. */
static void check_gradient(const rig *r, const mirror *m, double *moved, const ckpt_shape *shape,
                           const tensor *gradient, const float *before)
{
    const int64_t probes = gradient->count < 6 ? gradient->count : 6;
    for (int64_t p = 0; p < probes; p++) {
        const int64_t i = (int64_t)(draw() * (double)gradient->count);
        double *const value = &moved[shape == NULL ? i : written(shape, i)];
        const double old = *value, h = 1e-5;
        *value = old + h;
        const double above = loss(r, m);
        *value = old - h;
        const double below = loss(r, m);
        *value = old;
        const double want = (above - below) / (2 * h) + (before == NULL ? 0 : (double)before[i]);
        const double got = (double)gradient->at[i];
        CHECK(fabs(got - want) < 3e-4 * (1 + fabs(want)), "%s: gradient of %s[%lld]: %.9g, wanted %.9g",
              r->node.op->name, shape == NULL ? "parameter" : "input", (long long)i, got, want);
    }
}

static void check_reference(const rig *r, const float *before_in, const float *const *before_param)
{
    mirror m;
    mirror_open(r, &m);
    assert_true(ckpt_reference_forward(&m.reference));
    for (int64_t i = 0; i < r->out.count; i++) {
        const double want = m.out[written(&r->node.out[0].shape, i)], got = (double)r->out.at[i];
        CHECK(fabs(got - want) < 5e-5 * (1 + fabs(want)), "%s: y[%lld] is %.9g, wanted %.9g", r->node.op->name,
              (long long)i, got, want);
    }
    for (int k = 0; k < r->node.in_count; k++) {
        if ((r->node.grad_in >> k & 1) != 0) {
            check_gradient(r, &m, m.in[k], &r->node.in[k].shape, &r->grad_in[k], before_in);
        }
    }
    for (int k = 0; k < r->node.param_count; k++) {
        check_gradient(r, &m, m.param[k], NULL, &r->grad_param[k], before_param == NULL ? NULL : before_param[k]);
    }
    mirror_close(&m);
}

static void check_same(const tensor *a, const tensor *b, const char *op, const char *what)
{
    CHECK(a->count == 0 || memcmp(a->at, b->at, (size_t)a->count * sizeof *a->at) == 0,
          "%s: other bits of %s at other addresses", op, what);
}

/* One run may allocate only oneDNN's tables of arguments, and a team of libgomp if the number of threads changes, freed
 * or not. Everything else must be in the workspace. */
enum { HEAP_ALLOWED = 8192 };

static void check_heap(const rig *r, bool backward, const char *attrs)
{
    CHECK(heap_bytes <= HEAP_ALLOWED || !test_products_stay_in_workspace(), "%s %s %s: %lld blocks, %lld bytes of heap",
          r->node.op->name, attrs, backward ? "backward" : "forward", (long long)heap_blocks, (long long)heap_bytes);
}

static void check(int inputs, int rank, const int64_t *dim, const char *op, const char *attrs, bool wants_input)
{
    const uint64_t seed = random_state;
    rig r, recomputed;
    rig_open(&r, inputs, rank, dim, op, attrs, 0, wants_input);
    random_state = seed;
    rig_open(&recomputed, inputs, rank, dim, op, attrs, 3, wants_input);
    memset(recomputed.workspace.at, 0x3e, (size_t)recomputed.workspace.count * sizeof(float));
    for (int backward = 0; backward < 2; backward++) {
        rig_run(&r, backward == 1); /* warms up thread teams */
        rig_run(&r, backward == 1);
        check_heap(&r, backward == 1, attrs);
        rig_run(&recomputed, backward == 1);
        CHECK(r.node.forward_workspace_bytes >= r.forward_bytes, "%s %s: forward takes %lld bytes, allowed %lld", op,
              attrs, (long long)r.forward_bytes, (long long)r.node.forward_workspace_bytes);
        CHECK(r.node.backward_workspace_bytes >= r.backward_bytes, "%s %s: backward takes %lld bytes, allowed %lld", op,
              attrs, (long long)r.backward_bytes, (long long)r.node.backward_workspace_bytes);
    }
    check_same(&r.out, &recomputed.out, op, "y");
    for (int k = 0; k < 3; k++) {
        check_same(&r.grad_in[k], &recomputed.grad_in[k], op, "an input gradient");
    }
    for (int k = 0; k < 2; k++) {
        check_same(&r.saved[k], &recomputed.saved[k], op, "a saved tensor");
        check_same(&r.grad_param[k], &recomputed.grad_param[k], op, "a parameter gradient");
    }
    check_reference(&r, NULL, NULL);
    rig_close(&r);
    rig_close(&recomputed);
}

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})

static void linear(void **unused)
{
    (void)unused;
    check(1, 2, DIMS(1, 1), "linear", "features=1", true);
    check(1, 2, DIMS(5, 3), "linear", "features=7", true);
    check(1, 3, DIMS(2, 9, 33), "linear", "features=65 bias=false", true);
    check(1, 2, DIMS(1, 100), "linear", "features=257", true);
    check(1, 2, DIMS(130, 64), "linear", "features=48", false);
    check(1, 2, DIMS(37, 513), "linear", "features=300", true);
    check(1, 1, DIMS(12), "linear", "features=10", true);
}

/* The workspace is enough for products that add, at every size class; otherwise prepare would refuse the shape. */
static void linear_allowances(void **unused)
{
    (void)unused;
    static const int64_t sizes[] = {1, 5, 64, 200, 257, 1024, 2304};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    const int before = threads;
    for (int i = 0; i < COUNT * COUNT * COUNT; i++) {
        threads = 1 + i % 3;
        char attrs[64];
        snprintf(attrs, sizeof attrs, "features=%lld", (long long)sizes[i / COUNT / COUNT]);
        test_model m;
        test_model_init(&m);
        test_input(&m, "x", CKPT_FLOAT32, 2, DIMS(sizes[i % COUNT], sizes[i / COUNT % COUNT]));
        test_layer(&m, "it", "linear", "x", attrs);
        const ckpt_network *network = NULL;
        ckpt_err err = {0};
        CHECK_OK(ckpt_network_infer(&m.model, threads, &m.arena, &network, &err), err);
        ckpt_node node = network->node[0];
        node.grad_in = 1;
        const ckpt_kernel *const kernel = ckpt_device_find(&(ckpt_device){.api = &ckpt_device_cpu}, "linear");
        void *state = NULL;
        CHECK_OK(ckpt_kernel_prepare(kernel, NULL, &node, node.forward_workspace_bytes, node.backward_workspace_bytes,
                                     NULL, &state, &err),
                 err);
        ckpt_kernel_release(kernel, state);
        test_model_fini(&m);
    }
    threads = before;
}

/* Gradients added to existing values. */
/* Products whose right matrix goes through the workspace in panels, and the same without memory for that. */
static void wide_rows(void **unused)
{
    (void)unused;
    static const struct {
        int64_t rows, inner, columns;
        bool bias, adds;
    } cases[] = {{70, 65, 1536, true, false}, {64, 130, 3072, false, true}, {65, 64, 2560, false, false}};
    const ckpt_bytes limits[] = {-1, 400 << 10, 256 << 10};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const int64_t M = cases[c].rows, K = cases[c].inner, N = cases[c].columns;
        const tensor x = take_random(M * K, 0), w = take_random(K * N, 0), bias = take_random(N, 0);
        const ckpt_dnn_matrix mx = ckpt_dnn_plain(M, K, CKPT_FLOAT32), mw = ckpt_dnn_plain(K, N, CKPT_FLOAT32),
                              my = ckpt_dnn_plain(M, N, CKPT_FLOAT32);
        for (size_t l = 0; l < sizeof limits / sizeof *limits; l++) {
            ckpt_dnn *dnn = NULL;
            ckpt_err err = {0};
            CHECK_OK(ckpt_dnn_matmul(&mx, &mw, &my, cases[c].bias, cases[c].adds, threads, limits[l], &dnn, &err), err);
            const ckpt_bytes bytes = ckpt_dnn_workspace(dnn);
            const ckpt_bytes panel = K * 128 * (ckpt_bytes)sizeof(float);
            assert_true(l == 2 ? bytes < panel : bytes >= panel);
            assert_true(limits[l] < 0 || bytes <= limits[l]);
            const tensor y = take_random(M * N, 1), scratch = take(bytes / 4 + 1, 0);
            float *const before = malloc((size_t)(M * N) * sizeof *before);
            assert_non_null(before);
            memcpy(before, y.at, (size_t)(M * N) * sizeof *before);
            CHECK_OK(ckpt_dnn_run(dnn, (const void *const[4]){x.at, w.at, y.at, cases[c].bias ? bias.at : NULL},
                                  scratch.at, &err),
                     err);
            for (int64_t i = 0; i < M * N; i++) {
                double sum = cases[c].bias ? (double)bias.at[i % N] : cases[c].adds ? (double)before[i] : 0;
                for (int64_t k = 0; k < K; k++) {
                    sum += (double)x.at[i / N * K + k] * (double)w.at[k * N + i % N];
                }
                CHECK(fabs(sum - (double)y.at[i]) < 1e-4, "case %zu, limit %zu, element %lld: %g, wanted %g", c, l,
                      (long long)i, (double)y.at[i], sum);
            }
            free(before);
            free(y.base);
            free(scratch.base);
            ckpt_dnn_destroy(dnn);
        }
        free(x.base);
        free(w.base);
        free(bias.base);
    }
}

static void linear_adds(void **unused)
{
    (void)unused;
    rig r;
    rig_open(&r, 1, 2, DIMS(19, 45), "linear", "features=70", 1, true);
    tensor before_in = take_random(r.grad_in[0].count, 0);
    tensor before_param[2] = {take_random(r.grad_param[0].count, 0), take_random(r.grad_param[1].count, 0)};
    memcpy(r.grad_in[0].at, before_in.at, (size_t)before_in.count * sizeof(float));
    for (int k = 0; k < 2; k++) {
        memcpy(r.grad_param[k].at, before_param[k].at, (size_t)before_param[k].count * sizeof(float));
    }
    r.grad_in_adds = 1;
    r.grad_param_adds = 3;
    rig_run(&r, false);
    rig_run(&r, true);
    check_reference(&r, before_in.at, (const float *[]){before_param[0].at, before_param[1].at});
    free(before_in.base);
    free(before_param[0].base);
    free(before_param[1].base);
    rig_close(&r);
}

static void conv2d(void **unused)
{
    (void)unused;
    static const struct {
        int64_t dim[4];
        const char *attrs;
        bool wants_input;
    } cases[] = {
        {{2, 3, 17, 19}, "out_channels=16 kernel_size=7 stride=2 padding=3", false},
        {{2, 3, 9, 9}, "out_channels=5 kernel_size=3", true},
        {{1, 1, 8, 8}, "out_channels=1 kernel_size=3 padding=1 bias=false", true},
        {{2, 1, 12, 12}, "out_channels=20 kernel_size=5", true},
        {{2, 20, 7, 6}, "out_channels=33 kernel_size=[3,1] padding=[1,0]", true},
        {{3, 17, 5, 5}, "out_channels=9 kernel_size=1", true},
        {{2, 24, 6, 6}, "out_channels=12 kernel_size=3 padding=1 bias=false", true},
        {{2, 64, 9, 9}, "out_channels=48 kernel_size=1 stride=2 bias=false", true},
        {{2, 24, 9, 9}, "out_channels=48 kernel_size=1 stride=2 bias=false", true},
        {{2, 5, 10, 8}, "out_channels=7 kernel_size=1 stride=[3,2]", true},
        {{1, 40, 8, 11}, "out_channels=24 kernel_size=1 stride=[1,4]", false},
        {{2, 32, 10, 10}, "out_channels=64 kernel_size=3 stride=2 padding=1", true},
        {{2, 48, 10, 10}, "out_channels=48 kernel_size=3 padding=1 groups=48 bias=false", true},
        {{2, 19, 10, 10}, "out_channels=19 kernel_size=3 padding=1 stride=2 groups=19", true},
        {{1, 40, 9, 11}, "out_channels=40 kernel_size=7 padding=3 groups=40", true},
        {{2, 18, 12, 9}, "out_channels=18 kernel_size=5 padding=2 stride=2 groups=18", true},
        {{2, 20, 9, 9}, "out_channels=20 kernel_size=3 padding=2 dilation=2 groups=20", true},
        {{3, 9, 4, 3}, "out_channels=9 kernel_size=[6,7] stride=[3,2] padding=[3,5] groups=9", true},
        {{2, 6, 10, 10}, "out_channels=8 kernel_size=3 padding=1 groups=2", true},
        {{2, 6, 10, 10}, "out_channels=12 kernel_size=3 padding=1 groups=6", true},
        {{2, 32, 6, 6}, "out_channels=32 kernel_size=3 padding=1 groups=2", true},
        {{1, 16, 1, 1}, "out_channels=16 kernel_size=1", true},
        {{1, 256, 1, 1}, "out_channels=10 kernel_size=1", true},
        {{2, 12, 4, 4}, "out_channels=3 kernel_size=2 stride=2", true},
        {{1, 8, 3, 3}, "out_channels=4 kernel_size=3 padding=2 stride=[2,3]", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        print_message("conv2d %s\n", cases[i].attrs);
        check(1, 4, cases[i].dim, "conv2d", cases[i].attrs, cases[i].wants_input);
    }
}

static void convolutions(void **unused)
{
    (void)unused;
    check(1, 4, DIMS(2, 16, 12, 11), "conv2d", "out_channels=24 kernel_size=3 padding=2 dilation=2", true);
    check(1, 3, DIMS(2, 50, 20), "conv1d", "out_channels=24 kernel_size=3 stride=2 padding=1", true);
    check(1, 3, DIMS(2, 9, 20), "conv1d", "out_channels=17 kernel_size=1 stride=2", true);
    check(1, 3, DIMS(1, 30, 16), "conv1d", "out_channels=16 kernel_size=4 padding=3 groups=16", false);
    check(1, 5, DIMS(2, 5, 7, 6, 16), "conv3d", "out_channels=24 kernel_size=3 padding=1", true);
    check(1, 5, DIMS(2, 5, 4, 6, 8), "conv3d", "out_channels=12 kernel_size=1 stride=2", true);
    check(1, 5, DIMS(1, 4, 5, 6, 16), "conv3d", "out_channels=16 kernel_size=3 stride=2 padding=1 groups=16", true);
    check(1, 3, DIMS(2, 21, 24), "conv_transpose1d", "out_channels=16 kernel_size=4 stride=2 padding=1", true);
    check(1, 3, DIMS(2, 9, 20), "conv_transpose1d", "out_channels=17 kernel_size=1 stride=2", true);
    /* By columns: the library would pack them into heap memory. */
    check(1, 3, DIMS(2, 21, 24), "conv_transpose1d", "out_channels=16 kernel_size=16 stride=8 padding=4", true);
    check(1, 4, DIMS(2, 5, 4, 6), "conv_transpose2d",
          "out_channels=7 kernel_size=5 stride=3 padding=1 output_padding=2", true);
    check(1, 4, DIMS(2, 8, 12, 11), "conv2d", "out_channels=8 kernel_size=3 stride=2 padding=2 dilation=2", true);
    check(1, 4, DIMS(2, 3, 16, 24), "conv2d", "out_channels=20 kernel_size=8 stride=8", true);
    check(1, 5, DIMS(2, 5, 7, 6, 8), "conv3d", "out_channels=9 kernel_size=3 padding=2 dilation=2", true);
    check(1, 4, DIMS(2, 32, 6, 7), "conv_transpose2d", "out_channels=16 kernel_size=2 stride=2", true);
    check(1, 4, DIMS(2, 19, 6, 7), "conv_transpose2d", "out_channels=19 kernel_size=3 stride=2 padding=1 groups=19",
          true);
    check(1, 4, DIMS(3, 17, 5, 5), "conv_transpose2d", "out_channels=9 kernel_size=1", true);
}

/* Filters that the library's best code lacks were once refused within their op's workspace. */
static void odd_convolutions_fit_their_allowance(void **unused)
{
    (void)unused;
    static const struct {
        const char *op;
        int rank;
        int64_t dim[5];
        const char *attrs;
    } odd[] = {
        {"conv2d", 4, {2, 40, 38, 31}, "out_channels=40 kernel_size=5 padding=2 groups=40"},
        {"conv2d", 4, {2, 96, 56, 56}, "out_channels=96 kernel_size=7 padding=3 groups=96"},
        {"conv2d", 4, {3, 20, 79, 82}, "out_channels=20 kernel_size=[6,4] stride=8 groups=20"},
        {"conv2d", 4, {1, 28, 105, 107}, "out_channels=34 kernel_size=2 stride=2 padding=2"},
        {"conv2d", 4, {1, 9, 108, 63}, "out_channels=9 kernel_size=[2,1] stride=6 padding=2 groups=9"},
        {"conv2d", 4, {3, 15, 104, 85}, "out_channels=17 kernel_size=9 stride=5"},
        {"conv2d", 4, {3, 12, 110, 59}, "out_channels=8 kernel_size=3 stride=5 padding=2 groups=4"},
        {"conv2d", 4, {2, 64, 28, 28}, "out_channels=64 kernel_size=3 padding=2 dilation=2 groups=64"},
        {"conv2d", 4, {2, 64, 28, 28}, "out_channels=64 kernel_size=3 padding=2 dilation=2 stride=2"},
        {"conv1d", 3, {2, 300, 64}, "out_channels=64 kernel_size=4 padding=3 groups=64"},
        {"conv1d", 3, {2, 300, 80}, "out_channels=384 kernel_size=3 padding=1"},
        {"conv3d", 5, {1, 8, 14, 14, 64}, "out_channels=64 kernel_size=3 padding=1 groups=64"},
        {"conv3d", 5, {1, 8, 14, 14, 32}, "out_channels=32 kernel_size=3 padding=2 dilation=2"},
        {"conv3d", 5, {2, 8, 14, 14, 3}, "out_channels=64 kernel_size=[3,7,7] stride=[1,2,2] padding=[1,3,3]"},
        {"conv_transpose1d", 3, {2, 160, 128}, "out_channels=64 kernel_size=16 stride=8 padding=4"},
        {"conv_transpose1d", 3, {2, 61, 20}, "out_channels=20 kernel_size=7 stride=3 dilation=2 groups=20"},
        {"conv_transpose2d", 4, {2, 64, 14, 14}, "out_channels=3 kernel_size=4 stride=2 padding=1"},
        {"conv_transpose2d", 4, {2, 24, 14, 9}, "out_channels=36 kernel_size=5 stride=3 padding=1 groups=12"},
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        for (int count = 1; count <= 8; count *= 2) {
            test_model m;
            test_model_init(&m);
            test_input(&m, "x", CKPT_FLOAT32, odd[i].rank, odd[i].dim);
            test_layer(&m, "it", odd[i].op, "x", odd[i].attrs);
            const ckpt_network *network = NULL;
            ckpt_device *device = NULL;
            ckpt_bound_kernel bound = {0};
            ckpt_err err = {0};
            CHECK_OK(ckpt_network_infer(&m.model, count, &m.arena, &network, &err), err);
            CHECK_OK(ckpt_device_open("cpu", count, &device, &err), err);
            ckpt_node node = network->node[0];
            node.grad_in = 1;
            CHECK_OK(ckpt_device_bind(device, &node, node.forward_workspace_bytes, node.backward_workspace_bytes, NULL,
                                      &bound, &err),
                     err);
            ckpt_device_unbind(&bound);
            ckpt_device_close(device);
            test_model_fini(&m);
        }
    }
}

static void norms(void **unused)
{
    (void)unused;
    check(1, 4, DIMS(2, 5, 7, 3), "batchnorm", "", true);
    check(1, 4, DIMS(3, 300, 11, 9), "batchnorm", "eps=0.001", true);
    check(1, 2, DIMS(9, 40), "batchnorm", "", true);
    check(1, 2, DIMS(2, 1), "batchnorm", "", false);
    check(1, 2, DIMS(70, 33), "layernorm", "", true);
    check(1, 3, DIMS(2, 100, 130), "layernorm", "eps=0.01", true);
    check(1, 1, DIMS(5), "layernorm", "", false);
}

/* Statistics are updated once, by PyTorch's formula (unbiased variance), and used in evaluation. */
static void running_statistics(void **unused)
{
    (void)unused;
    rig r;
    rig_open(&r, 1, 4, DIMS(2, 4, 3, 5), "batchnorm", "momentum=0.25", 0, true);
    rig_run(&r, false);
    const float once[2] = {r.stat[0].at[1], r.stat[1].at[1]};
    double mean = 0, var = 0;
    for (int64_t i = 0; i < 30; i++) {
        mean += (double)r.in[0].at[4 * i + 1] / 30;
    }
    for (int64_t i = 0; i < 30; i++) {
        var += pow((double)r.in[0].at[4 * i + 1] - mean, 2) / 29;
    }
    assert_true(fabs((double)once[0] - 0.25 * mean) < 1e-6);
    assert_true(fabs((double)once[1] - (0.75 + 0.25 * var)) < 1e-6);
    r.recomputed = true;
    rig_run(&r, false);
    assert_true(memcmp(&once[0], &r.stat[0].at[1], 4) == 0 && memcmp(&once[1], &r.stat[1].at[1], 4) == 0);
    r.recomputed = false;
    r.evaluating = true;
    rig_run(&r, false);
    assert_true(memcmp(&once[0], &r.stat[0].at[1], 4) == 0);
    const double want =
        ((double)r.in[0].at[1] - (double)once[0]) / sqrt((double)once[1] + 1e-5) * (double)r.param[0].at[1] +
        (double)r.param[1].at[1];
    assert_true(fabs((double)r.out.at[1] - want) < 1e-5);
    rig_close(&r);
}

/* The variance of such a channel once was 0, so that running_var looked healthy in a run that had diverged. */
static void infinity_shows_in_running_variance(void **unused)
{
    (void)unused;
    rig r;
    rig_open(&r, 1, 4, DIMS(2, 4, 3, 5), "batchnorm", "", 0, true);
    r.in[0].at[4 * 7 + 1] = INFINITY;
    rig_run(&r, false);
    assert_true(isnan(r.stat[1].at[1]));
    assert_true(isfinite(r.stat[1].at[0]) && isfinite(r.stat[1].at[2]));
    assert_true(isnan(r.out.at[1]));
    rig_close(&r);
}

static void pools(void **unused)
{
    (void)unused;
    for (int max = 0; max < 2; max++) {
        const char *op = max == 1 ? "maxpool2d" : "avgpool2d";
        check(1, 4, DIMS(2, 5, 9, 8), op, "kernel_size=2", true);
        check(1, 4, DIMS(2, 17, 11, 11), op, "kernel_size=3 stride=2 padding=1", true);
        check(1, 4, DIMS(1, 3, 7, 9), op, "kernel_size=[2,3] stride=[3,1] padding=[1,0]", true);
    }
    check(1, 4, DIMS(3, 300, 5, 7), "global_avgpool", "", true);
}

static void attention(void **unused)
{
    (void)unused;
    check(1, 3, DIMS(2, 5, 12), "attention", "heads=2", true);
    check(1, 3, DIMS(1, 1, 3), "attention", "heads=1 causal=true", true);
    check(1, 3, DIMS(2, 67, 24 * 3), "attention", "heads=3 causal=true", true);
    check(1, 3, DIMS(1, 130, 33 * 3), "attention", "heads=1", true);
    check(3, 3, DIMS(2, 19, 48), "attention", "heads=4 causal=true", true);
    check(1, 3, DIMS(2, 71, 24), "attention", "heads=2 causal=true dropout=0.2", true);
    check(3, 3, DIMS(1, 10, 8), "attention", "heads=2 dropout=0.5", true);
}

/* Fewer and more threads than work or processors. */
static void other_threads(void **unused)
{
    (void)unused;
    const int before = threads;
    for (threads = 1; threads <= 5; threads += 2) {
        check(1, 2, DIMS(3, 70), "linear", "features=130", true);
        check(1, 4, DIMS(2, 16, 9, 9), "conv2d", "out_channels=24 kernel_size=3 padding=1", true);
        check(1, 4, DIMS(1, 7, 1, 3), "batchnorm", "", true);
        check(1, 2, DIMS(2, 200), "layernorm", "", true);
        check(1, 4, DIMS(1, 7, 5, 3), "maxpool2d", "kernel_size=2", true);
        check(1, 3, DIMS(1, 9, 24), "attention", "heads=4 causal=true", true);
    }
    threads = before;
}

/* A workspace for one thread gives the bits of a workspace for two. */
static void attention_small_workspace(void **unused)
{
    (void)unused;
    const uint64_t seed = random_state;
    rig wide, narrow;
    rig_open(&wide, 1, 3, DIMS(2, 70, 48), "attention", "heads=2 causal=true", 0, true);
    random_state = seed;
    rig_open(&narrow, 1, 3, DIMS(2, 70, 48), "attention", "heads=2 causal=true", 0, true);
    ckpt_kernel_release(narrow.kernel, narrow.state);
    ckpt_err err = {0};
    CHECK_OK(ckpt_kernel_prepare(narrow.kernel, NULL, &narrow.node, wide.forward_bytes - 1, wide.backward_bytes - 1,
                                 NULL, &narrow.state, &err),
             err);
    narrow.kernel->workspace(&narrow.node, narrow.state, &narrow.forward_bytes, &narrow.backward_bytes);
    assert_int_equal(2 * narrow.forward_bytes, wide.forward_bytes);
    assert_int_equal(2 * narrow.backward_bytes, wide.backward_bytes);
    for (int backward = 0; backward < 2; backward++) {
        rig_run(&wide, backward == 1);
        rig_run(&narrow, backward == 1);
    }
    check_same(&wide.out, &narrow.out, "attention", "y");
    check_same(&wide.grad_in[0], &narrow.grad_in[0], "attention", "the input gradient");
    rig_close(&wide);
    rig_close(&narrow);
}

static ckpt_code make_calls(void *context, ckpt_err *err)
{
    (void)context;
    const ckpt_dnn_matrix m = ckpt_dnn_plain(8, 8, CKPT_FLOAT32);
    const ckpt_convolution shape = {.batch = 1,
                                    .in_channels = 16,
                                    .out_channels = 16,
                                    .groups = 1,
                                    .in = {1, 4, 4},
                                    .out = {1, 4, 4},
                                    .kernel = {1, 3, 3},
                                    .stride = {1, 1, 1},
                                    .padding = {0, 1, 1},
                                    .dilation = {1, 1, 1}};
    ckpt_dnn *product = NULL, *convolution = NULL;
    ckpt_code code = ckpt_dnn_matmul(&m, &m, &m, false, false, 2, -1, &product, err);
    if (code == CKPT_OK) {
        code = ckpt_dnn_convolution(&shape, CKPT_DNN_WEIGHT_GRADIENT, 2, -1, &convolution, err);
    }
    ckpt_dnn_destroy(product);
    ckpt_dnn_destroy(convolution);
    return code;
}

static void calls_without_memory(void **unused)
{
    (void)unused;
    assert_int_equal(ckpt_test_starve(make_calls, NULL), 4); /* two calls, each of which asks for room first */
}

/* The library takes int64_t sizes but counts in int: these sizes killed the process with a division by zero. */
static void sizes_beyond_int_do_not_divide_by_zero(void **unused)
{
    (void)unused;
    const struct {
        const char *op, *attrs;
        int rank;
        int64_t dim[4];
    } huge[] = {
        {"linear", "features=1", 2, {INT64_C(1) << 56, 1}},
        {"linear", "features=1", 2, {1, (INT64_C(1) << 32) + 1}},
        {"conv2d", "out_channels=1 kernel_size=3", 4, {1, 1, (INT64_C(1) << 32) + 1, 3}},
        {"conv2d", "out_channels=1 kernel_size=1 stride=2", 4, {1, 1, INT64_C(1) << 56, 1}},
        {"lstm_cell", "features=1", 2, {INT64_C(1) << 50, 1}},
    };
    ckpt_device *device = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_device_open("cpu", 2, &device, &err), err);
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        test_model m;
        test_model_init(&m);
        test_input(&m, "x", CKPT_FLOAT32, huge[i].rank, huge[i].dim);
        test_layer(&m, "it", huge[i].op, "x", huge[i].attrs);
        ckpt_bound_kernel bound = {0};
        assert_int_equal(ckpt_device_bind(device, &test_infer(&m)->node[0], -1, -1, NULL, &bound, &err), CKPT_DEVICE);
        CHECK(strstr(err.msg, "oneDNN takes sizes up to 2147483647") != NULL, "%s", err.msg);
        test_model_fini(&m);
    }
    ckpt_device_close(device);
}

/* Impossible calls are refused with a code, and a limit is kept. */
static void refusals(void **unused)
{
    (void)unused;
    ckpt_err err = {0};
    ckpt_dnn *dnn = NULL;
    const ckpt_dnn_matrix x = ckpt_dnn_plain(8, 8, CKPT_FLOAT32), w = ckpt_dnn_plain(9, 8, CKPT_FLOAT32);
    assert_int_equal(ckpt_dnn_matmul(&x, &w, &x, false, false, 2, -1, &dnn, &err), CKPT_DEVICE);
    assert_null(dnn);
    assert_non_null(strstr(err.msg, "oneDNN refuses"));
    const ckpt_convolution shape = {.batch = 2,
                                    .in_channels = 64,
                                    .out_channels = 64,
                                    .groups = 1,
                                    .in = {1, 9, 9},
                                    .out = {1, 9, 9},
                                    .kernel = {1, 3, 3},
                                    .stride = {1, 1, 1},
                                    .padding = {0, 1, 1},
                                    .dilation = {1, 1, 1}};
    assert_int_equal(ckpt_dnn_convolution(&shape, CKPT_DNN_FORWARD, 2, -1, &dnn, &err), CKPT_OK);
    const ckpt_bytes wanted = ckpt_dnn_workspace(dnn);
    ckpt_dnn_destroy(dnn);
    dnn = NULL;
    assert_int_equal(ckpt_dnn_convolution(&shape, CKPT_DNN_FORWARD, 2, wanted, &dnn, &err), CKPT_OK);
    assert_true(ckpt_dnn_workspace(dnn) <= wanted);
    ckpt_dnn_destroy(dnn);
    dnn = NULL;
    assert_int_equal(ckpt_dnn_convolution(&shape, CKPT_DNN_FORWARD, 2, 64, &dnn, &err), CKPT_DEVICE);
    assert_null(dnn);
    assert_non_null(strstr(err.msg, "nothing fits"));
}

int main(void)
{
    random_state = UINT64_C(20261120);
    print_message("seed %llu\n", (unsigned long long)random_state);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear),
        cmocka_unit_test(linear_allowances),
        cmocka_unit_test(wide_rows),
        cmocka_unit_test(linear_adds),
        cmocka_unit_test(conv2d),
        cmocka_unit_test(convolutions),
        cmocka_unit_test(odd_convolutions_fit_their_allowance),
        cmocka_unit_test(norms),
        cmocka_unit_test(running_statistics),
        cmocka_unit_test(infinity_shows_in_running_variance),
        cmocka_unit_test(pools),
        cmocka_unit_test(attention),
        cmocka_unit_test(other_threads),
        cmocka_unit_test(attention_small_workspace),
        cmocka_unit_test(calls_without_memory),
        cmocka_unit_test(sizes_beyond_int_do_not_divide_by_zero),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

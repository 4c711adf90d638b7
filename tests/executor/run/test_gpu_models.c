/* labels: contract gpu; long under sanitizers; takes 95 s; on a GPU: 100 s, alone */
/* Every file under models/ on every GPU there is (the emulated one always), found by listing the folder:
 *   - it trains, in float32 and bfloat16, by keep-all and by a plan with half of the memory: the same bits, the peak
 *     that was planned, and losses and gradients as near to the CPU's as the network's own sensitivity to rounding says;
 *   - at its published size every layer fits into the workspaces of a plan made without a profile.
 * Networks are made small by their vars and by numbers of channels divided by THIN: most so on the emulated device, but
 * on a real one too, because the CPU's sensitivity to rounding takes five trainings of each. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "executor/executor.h"
#include "ops/device_model.h"
#include "planner/api/planner.h"
#include "tests/emulation/emulation.h"
#include "tests/support/support_data.h"
#include "tests/support/support_gpu.h"
#include "tests/support/support_test.h"

enum {
    SEED = 20261121,
    STEPS = 3,
    INPUTS = 8,
    SECTIONS = 4,
    FILES = 128,
    SETS = 16,
    NUDGES = 2,
    THIN = 8,
    THIN_LARGE = 2
};

static ckpt_gpu gpus[CKPT_GPU_MAX];
static int gpu_count;

/* ------------------------------------------------------------------------------------------------ sizes */

/* What a var of that name becomes on the emulated device and on a real one; 0: as the file says. */
static const struct {
    const char *var;
    int small, large;
} sizes[] = {
    {"batch", 2, 4},     {"tokens", 16, 128}, {"positions", 24, 160}, {"hidden", 32, 256}, {"blocks", 2, 2},
    {"heads", 2, 4},     {"kv_heads", 1, 2},  {"head", 16, 64},       {"size", 32, 64},    {"feed_forward", 48, 1024},
    {"growth", 4, 0},    {"layers", 2, 4},    {"classes", 10, 100},   {"width", 40, 400},  {"vocabulary", 61, 1001},
    {"frames", 32, 256}, {"mels", 8, 80},     {"channels", 8, 64},    {"words", 5, 77},    {"groups", 4, 16},
};

/* Other values for one file; 0: as the file says. */
static const struct {
    const char *file, *var;
    int small, large;
} exceptions[] = {
    {"lstm.json", "tokens", 0, 0}, /* its list of layers depends on them */
    /* at 32 x 32 batch norm has two values a channel in the end, and what it says is a matter of rounding */
    {"resnet50.json", "size", 64, 96},
    {"mobilenetv2.json", "size", 64, 96},
    {"efficientnet-b0.json", "size", 64, 96},
    {"efficientnet-b0.json", "width", 8, 32},
    {"convnext-t.json", "width", 8, 48},
    {"swin-t.json", "width", 8, 48},
    {"swin-t.json", "size", 64, 224},
    {"swin-t.json", "window", 2, 0},
    {"sd-unet.json", "size", 8, 32},
};

/* What a var becomes; 0: as the file says. */
static int value_of(const char *file, const char *var, bool small)
{
    for (size_t i = 0; i < sizeof exceptions / sizeof *exceptions; i++) {
        if (strcmp(exceptions[i].file, file) == 0 && strcmp(exceptions[i].var, var) == 0) {
            return small ? exceptions[i].small : exceptions[i].large;
        }
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (strcmp(sizes[i].var, var) == 0) {
            return small ? sizes[i].small : sizes[i].large;
        }
    }
    return 0;
}

typedef struct network {
    ckpt_arena arena;
    ckpt_device *device;
    const ckpt_model *model;
    const ckpt_lowered *lowered;
    int64_t limit[INPUTS];
} network;

/* Channels and features that the file gives as numbers, divided where that leaves a whole one: the same layers in the
 * same order, with fewer numbers in each. */
static const ckpt_model *thinned(const ckpt_model *model, int by, ckpt_arena *arena)
{
    static const char *const divided[] = {"out_channels", "groups", "features"};
    ckpt_model *const thin = CKPT_NEW(arena, ckpt_model, 1);
    ckpt_layer *const layer = CKPT_NEW(arena, ckpt_layer, model->layer_count);
    assert_true(thin != NULL && layer != NULL);
    for (int i = 0; i < model->layer_count; i++) {
        layer[i] = model->layer[i];
        ckpt_attr *const attr = CKPT_NEW(arena, ckpt_attr, layer[i].attr_count + 1);
        assert_non_null(attr);
        for (int k = 0; k < layer[i].attr_count; k++) {
            attr[k] = layer[i].attr[k];
            for (size_t d = 0; d < sizeof divided / sizeof *divided; d++) {
                if (strcmp(attr[k].name, divided[d]) == 0 && attr[k].kind == CKPT_INT && attr[k].integer % by == 0) {
                    attr[k].integer /= by;
                    attr[k].real = (double)attr[k].integer;
                }
            }
        }
        layer[i].attr = attr;
    }
    *thin = *model;
    thin->layer = layer;
    return thin;
}

/* SGD at a sixteenth of the file's learning rate, which is for wider networks: small ones would tell more of rounding
 * than of kernels after a step or two. */
static const ckpt_model *calmed(const ckpt_model *model, ckpt_arena *arena)
{
    ckpt_model *const calm = CKPT_NEW(arena, ckpt_model, 1);
    ckpt_attr *const attr = CKPT_NEW(arena, ckpt_attr, model->optimizer_attr_count + 1);
    assert_true(calm != NULL && attr != NULL);
    for (int k = 0; k < model->optimizer_attr_count; k++) {
        attr[k] = model->optimizer_attr[k];
        if (strcmp(model->optimizer, "sgd") == 0 && strcmp(attr[k].name, "lr") == 0 && attr[k].kind == CKPT_FLOAT) {
            attr[k].real /= 16;
        }
    }
    *calm = *model;
    calm->optimizer_attr = attr;
    return calm;
}

/* The file's network in its published size, or shrunk for the emulated device or a real one. */
typedef enum network_size { PUBLISHED, SMALL, LARGE } network_size;

static void network_open(network *n, ckpt_device *device, const char *file, network_size size, const char *dtype)
{
    ckpt_err err = {0};
    const char *set[SETS] = {0};
    int count = 0;
    memset(n, 0, sizeof *n);
    ckpt_arena_init(&n->arena);
    n->device = device;
    const char *const path = ckpt_arena_format(&n->arena, "%s/models/%s", ckpt_source_dir(), file);
    CHECK_OK(ckpt_model_read(path, NULL, 0, &n->arena, &n->model, &err), err);
    for (int v = 0; v < n->model->var_count && size != PUBLISHED && count < SETS; v++) {
        const int value = value_of(file, n->model->var[v].name, size == SMALL);
        if (value > 0) {
            set[count++] = ckpt_arena_format(&n->arena, "%s=%d", n->model->var[v].name, value);
        }
    }
    CHECK_OK(ckpt_model_read(path, set, count, &n->arena, &n->model, &err), err);
    n->model = size == PUBLISHED ? n->model : thinned(n->model, size == SMALL ? THIN : THIN_LARGE, &n->arena);
    n->model = calmed(n->model, &n->arena);
    CHECK_OK(ckpt_model_with_dtype(n->model, dtype, &n->arena, &n->model, &err), err);
    const ckpt_network *inferred = NULL;
    CHECK_OK(ckpt_network_infer(n->model, device->threads, &n->arena, &inferred, &err), err);
    const ckpt_device_model *roofline = NULL;
    CHECK_OK(ckpt_device_model_find("h200", &n->arena, &roofline, &err), err);
    CHECK_OK(ckpt_network_lower(inferred, NULL, roofline, &n->arena, &n->lowered, &err), err);
    assert_true(n->model->input_count <= INPUTS);
    ckpt_data_class_limits(inferred, n->limit);
}

static void network_close(network *n)
{
    ckpt_arena_fini(&n->arena);
}

static const ckpt_plan *plan_for(network *n, const char *strategy, ckpt_bytes budget)
{
    ckpt_err err = {0};
    ckpt_plan *plan = NULL;
    ckpt_plan_options options = {.budget_bytes = budget, .effort = CKPT_EFFORT_LOW};
    CHECK_OK(ckpt_plan_make(n->lowered->graph, strategy, &options, &n->arena, &plan, &err), err);
    if (plan->verdict != CKPT_FITS) {
        options.budget_bytes = plan->min_budget_bytes;
        CHECK_OK(ckpt_plan_make(n->lowered->graph, strategy, &options, &n->arena, &plan, &err), err);
    }
    assert_int_equal(plan->verdict, CKPT_FITS);
    return plan;
}

/* ------------------------------------------------------------------------------------------------ training */

/* What a run leaves. `grad` is the gradient after the first step: of every parameter after the other. */
typedef struct record {
    float loss[STEPS];
    float *grad;
    char digest[SECTIONS][CKPT_DIGEST_TEXT];
} record;

/* Parameter `number` of those that layers own; NULL behind the last. */
static const ckpt_param *own_param(const ckpt_network *of, int number, int *node, int *k)
{
    for (*node = 0; *node < of->node_count; ++*node) {
        for (*k = 0; *k < of->node[*node].param_count; ++*k) {
            const ckpt_param *const param = &of->node[*node].param[*k];
            if (param->tied < 0 && number-- == 0) {
                return param;
            }
        }
    }
    return NULL;
}

static int64_t all_values(const ckpt_network *of)
{
    int64_t sum = 0;
    int node, k, number = 0;
    for (const ckpt_param *p = own_param(of, 0, &node, &k); p != NULL; p = own_param(of, ++number, &node, &k)) {
        sum += ckpt_shape_count(&p->tensor.shape);
    }
    return sum;
}

static float random_sign_and_size(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
    return (float)((double)(*state >> 11) / 4503599627370496.0 - 1);
}

/* Every weight times 1 + nudge u, u from -1 to 1. */
static void nudge_weights(const network *n, ckpt_executor *executor, double nudge, uint64_t seed, float *room)
{
    ckpt_err err = {0};
    int node, k, number = 0;
    for (const ckpt_param *p = own_param(n->lowered->network, 0, &node, &k); p != NULL;
         p = own_param(n->lowered->network, ++number, &node, &k)) {
        CHECK_OK(ckpt_executor_param(executor, node, k, room, &err), err);
        for (int64_t i = 0; i < ckpt_shape_count(&p->tensor.shape); i++) {
            room[i] *= 1 + (float)nudge * random_sign_and_size(&seed);
        }
        CHECK_OK(ckpt_executor_param_set(executor, node, k, room, &err), err);
    }
}

/* On a GPU attention is cuDNN's or own kernels': it is named wherever both may be. */
static void check_algorithms(const network *n, const ckpt_executor *executor)
{
    const char *layer = NULL, *which = NULL;
    int wanted = 0;
    for (int k = 0; k < n->lowered->network->node_count; k++) {
        const ckpt_node *const node = &n->lowered->network->node[k];
        wanted += node->threads == CKPT_ON_GPU && strcmp(node->op->name, "attention") == 0 &&
                  ckpt_gpu_attention_library(node);
    }
    const int named = ckpt_executor_algorithms(executor, "attention", &layer, &which);
    CHECK(named == wanted && (named == 0 || layer != NULL), "%s: algorithms of %d attentions, wanted %d",
          n->model->name, named, wanted);
    CHECK(named == 0 || strcmp(which, "own") == 0 || strncmp(which, "forward=", 8) == 0, "%s: %s", layer, which);
}

/* Train STEPS steps on one batch, so that the loss has a reason to fall. nudge: see nudge_weights; 0: as drawn. */
static void train(network *n, const ckpt_plan *plan, const ckpt_executor_options *options, double nudge,
                  uint64_t nudge_seed, record *r)
{
    ckpt_err err = {0};
    void *input[INPUTS];
    ckpt_executor *executor = NULL;
    ckpt_data *data = NULL;
    const ckpt_network *const inferred = n->lowered->network;
    memset(r, 0, sizeof *r);
    r->grad = CKPT_NEW(&n->arena, float, all_values(inferred));
    assert_non_null(r->grad);
    CHECK_OK(ckpt_executor_create(n->device, n->lowered, plan, options, &executor, &err), err);
    check_algorithms(n, executor);
    CHECK_OK(ckpt_data_open("synthetic", n->model, n->limit, options->seed, &data, &err), err);
    for (int i = 0; i < n->model->input_count; i++) {
        input[i] = ckpt_executor_input(executor, i);
    }
    if (nudge > 0) {
        nudge_weights(n, executor, nudge, nudge_seed, r->grad);
    }
    for (int s = 0; s < STEPS; s++) {
        ckpt_test_fill(data, 0, input);
        CHECK_OK(ckpt_executor_step(executor, &r->loss[s], NULL, &err), err);
        int node, k, number = 0;
        int64_t at = 0;
        for (const ckpt_param *p = own_param(inferred, 0, &node, &k); p != NULL && s == 0;
             p = own_param(inferred, ++number, &node, &k)) {
            CHECK_OK(ckpt_executor_grad(executor, node, k, r->grad + at, &err), err);
            at += ckpt_shape_count(&p->tensor.shape);
        }
    }
    CHECK(ckpt_executor_peak(executor) == plan->peak_bytes, "%s, %s: peak %lld, planned %lld", n->model->name,
          plan->solver, (long long)ckpt_executor_peak(executor), (long long)plan->peak_bytes);
    for (int i = 0; i < SECTIONS; i++) {
        CHECK_OK(ckpt_executor_digest(executor, (ckpt_section)i, r->digest[i], &err), err);
    }
    ckpt_data_close(data);
    ckpt_executor_destroy(executor);
}

static void same_bits(const network *n, const record *wanted, const record *found, const char *what)
{
    static const char *const section[SECTIONS] = {"weights", "gradients", "optimizer state", "statistics"};
    for (int s = 0; s < STEPS; s++) {
        CHECK(memcmp(&wanted->loss[s], &found->loss[s], sizeof found->loss[s]) == 0,
              "%s: loss of step %d is %a, by keep-all %a", what, s + 1, (double)found->loss[s],
              (double)wanted->loss[s]);
    }
    CHECK(memcmp(wanted->grad, found->grad, (size_t)all_values(n->lowered->network) * sizeof(float)) == 0,
          "%s: gradients of step 1 differ from keep-all's", what);
    for (int i = 0; i < SECTIONS; i++) {
        CHECK(strcmp(wanted->digest[i], found->digest[i]) == 0, "%s: %s differ from keep-all's", what, section[i]);
    }
}

/* ------------------------------------------------------------------------------------------------ nearness */

/* The CPU's float32 run, and how the network answers when its weights are moved a little. */
typedef struct standard {
    network of;
    const ckpt_plan *plan;
    record exact, nudged[2][NUDGES];
} standard;

/* By how much a dtype moves a value, relative to it: in float32 a sum of n terms by 2 (64 + 8 sqrt(n)) 2^-24 at most
 * (ckpt_gpu_bound), 2^-15 at the n = 4096 that matter here; in bfloat16 a weight when it is copied by 2^-9, and as much
 * again what is stored. */
static double nudge_of(ckpt_dtype dtype)
{
    return dtype == CKPT_BFLOAT16 ? 1.0 / 256 : 1.0 / 262144;
}

static void standard_open(standard *s, ckpt_device *cpu, const char *file, network_size size)
{
    network_open(&s->of, cpu, file, size, "float32");
    s->plan = plan_for(&s->of, "keep-all", 0);
    const ckpt_executor_options options = {.seed = SEED};
    train(&s->of, s->plan, &options, 0, 0, &s->exact);
    for (int d = 0; d < 2; d++) {
        for (int i = 0; i < NUDGES; i++) {
            train(&s->of, s->plan, &options, nudge_of(d == 0 ? CKPT_FLOAT32 : CKPT_BFLOAT16), (uint64_t)i + 1,
                  &s->nudged[d][i]);
        }
    }
}

static double distance(const float *a, const float *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        const double far = (double)a[i] - (b == NULL ? 0 : (double)b[i]);
        sum += far * far;
    }
    return sqrt(sum);
}

/* A run on a GPU rounds in every layer what the nudged runs moved in every layer, forward and backward, step after
 * step. So it may be as far from the CPU's as FACTOR times the farthest of those, and by that much again relative to
 * the loss (to the length of the whole gradient) where they happen to move nothing. */
enum { FACTOR = 8 };

/* The largest fraction of its bound that a loss takes. */
static double check_losses(const standard *s, const record *found, ckpt_dtype dtype, const char *what)
{
    double most = 0, candidates = 0;
    for (int step = 0; step < STEPS; step++) {
        const double cpu = (double)s->exact.loss[step], gpu = (double)found->loss[step];
        for (int i = 0; i < NUDGES; i++) {
            candidates = fmax(candidates, fabs((double)s->nudged[dtype == CKPT_BFLOAT16][i].loss[step] - cpu));
        }
        const double bound = FACTOR * candidates + nudge_of(dtype) * fabs(cpu);
        CHECK(fabs(gpu - cpu) <= bound, "%s: loss of step %d is %.9g, the CPU's %.9g, bound %.2g", what, step + 1, gpu,
              cpu, bound);
        most = fmax(most, fabs(gpu - cpu) / bound);
    }
    return most;
}

static double check_gradients(const standard *s, const record *found, ckpt_dtype dtype, const char *what)
{
    const ckpt_network *const of = s->of.lowered->network;
    const double whole = distance(s->exact.grad, NULL, all_values(of));
    double most = 0;
    int64_t at = 0;
    int node, k, number = 0;
    for (const ckpt_param *p = own_param(of, 0, &node, &k); p != NULL; p = own_param(of, ++number, &node, &k)) {
        const int64_t count = ckpt_shape_count(&p->tensor.shape);
        double candidates = 0;
        for (int i = 0; i < NUDGES; i++) {
            candidates =
                fmax(candidates, distance(s->nudged[dtype == CKPT_BFLOAT16][i].grad + at, s->exact.grad + at, count));
        }
        const double bound = FACTOR * candidates + nudge_of(dtype) * whole;
        const double far = distance(found->grad + at, s->exact.grad + at, count);
        CHECK(far <= bound, "%s: the gradient of %s of layer %s is %.3g from the CPU's, bound %.2g; the CPU's is %.3g",
              what, p->tensor.name, of->node[node].name, far, bound, distance(s->exact.grad + at, NULL, count));
        most = fmax(most, far / bound);
        at += count;
    }
    return most;
}

/* ------------------------------------------------------------------------------------------------ trains */

static void count_steps(const ckpt_plan *plan, int *recomputed, int *copies)
{
    *recomputed = *copies = 0;
    for (int s = 0; s < plan->step_count; s++) {
        *recomputed += plan->step[s].recomputed;
        *copies += plan->step[s].kind == CKPT_OFFLOAD || plan->step[s].kind == CKPT_FETCH;
    }
}

/* Half of keep-all's arena, or as little as there is. Few layers by `auto`; for many that takes longer than
 * their training here, so by copies to the host in float32 and by recomputation in bfloat16 (test_gpu_identity has
 * every strategy). Where nothing can be saved, because the workspace of one layer is nearly all of the arena, a plan
 * that recomputes something all the same. */
static const ckpt_plan *tight_plan(network *n, const ckpt_plan *keep_all, ckpt_dtype dtype, int *recomputed,
                                   int *copies)
{
    enum { FEW_LAYERS = 36 };
    const char *const strategy = n->model->layer_count < FEW_LAYERS ? "auto"
                                 : dtype == CKPT_FLOAT32            ? "offload-only"
                                                                    : "greedy";
    const ckpt_plan *const half = plan_for(n, strategy, keep_all->static_bytes + keep_all->arena_bytes / 2);
    count_steps(half, recomputed, copies);
    if (*recomputed + *copies > 0) {
        return half;
    }
    const ckpt_plan *any = plan_for(n, "recompute-all", 0);
    count_steps(any, recomputed, copies);
    if (*recomputed == 0) {
        any = plan_for(n, "sqrt", 0);
        count_steps(any, recomputed, copies);
    }
    return any;
}

static void train_in(const standard *s, const ckpt_gpu *gpu, const char *file, network_size size, ckpt_dtype dtype)
{
    network n;
    record all, tight;
    char what[160];
    int recomputed = 0, copies = 0;
    network_open(&n, gpu->device, file, size, ckpt_dtype_name(dtype));
    const ckpt_plan *const keep_all = plan_for(&n, "keep-all", 0);
    const ckpt_plan *const half = tight_plan(&n, keep_all, dtype, &recomputed, &copies);
    (void)snprintf(what, sizeof what, "%s, %s, %s", file, ckpt_dtype_name(dtype), gpu->name);
    if (recomputed + copies == 0) {
        print_message("  %s: nothing to run again or to copy: nearly all of the arena is one layer's workspace\n",
                      what);
    }

    train(&n, keep_all, &(ckpt_executor_options){.seed = SEED}, 0, 0, &all);
    ckpt_emulated_schedule(SEED); /* copies come late */
    train(&n, half, &(ckpt_executor_options){.seed = SEED, .poison = true, .record = true}, 0, 0, &tight);
    ckpt_emulated_schedule(0);
    same_bits(&n, &all, &tight, what);
    const double losses = check_losses(s, &all, dtype, what), gradients = check_gradients(s, &all, dtype, what);
    print_message(
        "  %-36s %-9s %s: %d layers, %s, arena %lld -> %lld, %d runs again, %d copies; loss %.5g -> %.5g (CPU "
        "%.5g -> %.5g), at most %.2g of its bound, gradients %.2g\n",
        file, ckpt_dtype_name(dtype), gpu->name, n.model->layer_count, half->solver, (long long)keep_all->arena_bytes,
        (long long)half->arena_bytes, recomputed, copies, (double)all.loss[0], (double)all.loss[STEPS - 1],
        (double)s->exact.loss[0], (double)s->exact.loss[STEPS - 1], losses, gradients);
    network_close(&n);
}

static void trains(void **state)
{
    const char *const file = *state;
    for (int g = 0; g < gpu_count; g++) {
        ckpt_err err = {0};
        ckpt_device *cpu = NULL;
        standard s;
        const network_size size = gpus[g].device->api == &ckpt_device_emulated ? SMALL : LARGE;
        CHECK_OK(ckpt_device_open("cpu", 2, &cpu, &err), err); /* other tests run beside this one */
        const clock_t before = clock();
        standard_open(&s, cpu, file, size);
        const double seconds = (double)(clock() - before) / CLOCKS_PER_SEC;
        print_message("  %-36s the CPU's answers took %.1f s of its time\n", file, seconds);
        const uint64_t dtypes = ckpt_test_rounds(2, 1);
        for (uint64_t d = 0; d < dtypes; d++) { /* of one, half of the files in each */
            train_in(&s, &gpus[g], file, size, (strlen(file) + d) % 2 == 0 ? CKPT_FLOAT32 : CKPT_BFLOAT16);
        }
        network_close(&s.of);
        ckpt_device_close(cpu);
    }
}

/* ------------------------------------------------------------------------------------------------ fits */

/* What a plan leaves each node, as the executor sees it; -1 where it never runs. */
static void given_workspaces(const network *n, const ckpt_plan *plan, ckpt_bytes *forward, ckpt_bytes *backward)
{
    const ckpt_network *const of = n->lowered->network;
    for (int i = 0; i < of->node_count; i++) {
        forward[i] = backward[i] = -1;
    }
    for (int s = 0; s < plan->step_count; s++) {
        const ckpt_op_role *const role =
            &n->lowered->op_role[plan->step[s].kind == CKPT_RUN ? plan->step[s].target : 0];
        if (plan->step[s].kind == CKPT_RUN && role->phase == CKPT_FORWARD) {
            forward[role->node] = 0;
        } else if (plan->step[s].kind == CKPT_RUN && role->phase == CKPT_BACKWARD) {
            backward[role->node] = 0;
        }
    }
    for (int i = 0; i < plan->allocation_count; i++) {
        const ckpt_allocation *const allocation = &plan->allocation[i];
        const ckpt_op_role *const role =
            &n->lowered->op_role[allocation->buffer < 0 ? plan->step[allocation->from].target : 0];
        if (allocation->buffer < 0 && role->phase == CKPT_FORWARD) {
            forward[role->node] = allocation->bytes;
        } else if (allocation->buffer < 0 && role->phase == CKPT_BACKWARD) {
            const ckpt_bytes staged =
                ckpt_staging_bytes(&of->node[role->node], role->grad_in_adds, role->grad_param_adds);
            backward[role->node] = allocation->bytes > staged ? allocation->bytes - staged : 0;
        }
    }
}

static int bind_all(const network *n, const ckpt_bytes *forward, const ckpt_bytes *backward, const char *what)
{
    int refused = 0;
    for (int i = 0; i < n->lowered->network->node_count; i++) {
        const ckpt_node *const node = &n->lowered->network->node[i];
        ckpt_bound_kernel bound = {0};
        ckpt_err err = {0};
        if (node->alias || (forward[i] < 0 && backward[i] < 0)) {
            continue;
        }
        if (ckpt_device_bind(n->device, node, forward[i], backward[i], NULL, &bound, &err) != CKPT_OK) {
            print_error("%s: %s\n", what, err.msg);
            refused++;
        }
        ckpt_device_unbind(&bound);
    }
    return refused;
}

static void fit_in(const ckpt_gpu *gpu, const char *file, ckpt_dtype dtype)
{
    network n;
    char what[160];
    network_open(&n, gpu->device, file, PUBLISHED, ckpt_dtype_name(dtype));
    const ckpt_network *const of = n.lowered->network;
    ckpt_bytes *const forward = CKPT_NEW(&n.arena, ckpt_bytes, of->node_count);
    ckpt_bytes *const backward = CKPT_NEW(&n.arena, ckpt_bytes, of->node_count);
    assert_true(forward != NULL && backward != NULL);
    (void)snprintf(what, sizeof what, "%s, %s, %s", file, ckpt_dtype_name(dtype), gpu->name);
    const ckpt_plan *const plan = plan_for(&n, "keep-all", 0);
    given_workspaces(&n, plan, forward, backward);
    int refused = bind_all(&n, forward, backward, what);
    ckpt_bytes most = 0;
    for (int i = 0; i < of->node_count; i++) {
        forward[i] = of->node[i].forward_workspace_bytes;
        backward[i] = of->node[i].backward_workspace_bytes;
        most = forward[i] > most ? forward[i] : most;
        most = backward[i] > most ? backward[i] : most;
    }
    refused += bind_all(&n, forward, backward, what);
    CHECK(refused == 0, "%s: %d layers are refused, listed above", what, refused);
    print_message("  %-36s %-9s %s: %d layers fit, largest workspace %lld of an arena of %lld bytes\n", file,
                  ckpt_dtype_name(dtype), gpu->name, of->node_count, (long long)most, (long long)plan->arena_bytes);
    network_close(&n);
}

static void fits(void **state)
{
    for (int g = 0; g < gpu_count; g++) {
        fit_in(&gpus[g], *state, CKPT_FLOAT32);
        fit_in(&gpus[g], *state, CKPT_BFLOAT16);
    }
}

/* ------------------------------------------------------------------------------------------------ the folder */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int list_models(ckpt_arena *arena, char *file[FILES])
{
    int count = 0;
    DIR *const folder = opendir(ckpt_source_file("models"));
    for (const struct dirent *entry = folder == NULL ? NULL : readdir(folder); entry != NULL && count < FILES;
         entry = readdir(folder)) {
        const size_t length = strlen(entry->d_name);
        if (length > 5 && strcmp(entry->d_name + length - 5, ".json") == 0) {
            file[count++] = ckpt_arena_text(arena, entry->d_name);
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    qsort(file, (size_t)count, sizeof *file, by_name);
    return count;
}

/* Arguments: the models to look at; none: all. */
int main(int argc, char **argv)
{
    ckpt_arena arena;
    char *file[FILES];
    struct CMUnitTest test[2 * FILES] = {0};
    ckpt_arena_init(&arena);
    int count = list_models(&arena, file);
    for (int i = 1; i < argc && i <= FILES; i++) {
        file[i - 1] = argv[i];
        count = i;
    }
    if (count == 0) {
        printf("no files under models/\n");
        return 1;
    }
    for (int i = 0; i < count; i++) {
        test[2 * i] = (struct CMUnitTest){
            .name = ckpt_arena_format(&arena, "fits: %s", file[i]), .test_func = fits, .initial_state = file[i]};
        test[2 * i + 1] = (struct CMUnitTest){
            .name = ckpt_arena_format(&arena, "trains: %s", file[i]), .test_func = trains, .initial_state = file[i]};
    }
    gpu_count = ckpt_gpu_open_all(gpus);
    const int failed = _cmocka_run_group_tests("gpu_models", test, (size_t)(2 * count), NULL, NULL);
    for (int g = 0; g < gpu_count; g++) {
        ckpt_gpu_close(&gpus[g]);
    }
    ckpt_arena_fini(&arena);
    return failed;
}

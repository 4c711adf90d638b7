/* Training in tests. */
#include "tests/support/support_data.h"
#include "tests/support/support_test.h"

#include "tests/support/support_train.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "ops/device_model.h"
#include "planner/api/planner.h"

static void open_model(test_train *t, const char *file, const char *set, const char *dtype)
{
    ckpt_err err = {0};
    const char *assignment[16] = {0};
    int count = 0;
    char *const copy = ckpt_arena_text(&t->arena, set);
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " ")) {
        assignment[count++] = word;
    }
    const char *const path = file[0] == '/' ? file : ckpt_arena_format(&t->arena, "%s/%s", ckpt_source_dir(), file);
    CHECK_OK(ckpt_model_read(path, assignment, count, &t->arena, &t->model, &err), err);
    CHECK_OK(ckpt_model_with_dtype(t->model, dtype, &t->arena, &t->model, &err), err);
    const ckpt_network *network = NULL;
    CHECK_OK(ckpt_network_infer(t->model, t->device->threads, &t->arena, &network, &err), err);
    t->network = network;
    const ckpt_device_model *roofline = NULL;
    CHECK_OK(ckpt_device_model_find("h200", &t->arena, &roofline, &err), err); /* a device with a link */
    CHECK_OK(ckpt_network_lower(network, NULL, roofline, &t->arena, &t->lowered, &err), err);
    assert_true(t->model->input_count <= TEST_TRAIN_INPUTS);
    ckpt_data_class_limits(network, t->limit);
}

void test_train_open(test_train *t, const char *file, const char *set)
{
    test_train_open_as(t, file, set, NULL);
}

void test_train_open_as(test_train *t, const char *file, const char *set, const char *dtype)
{
    memset(t, 0, sizeof *t);
    ckpt_arena_init(&t->arena);
    ckpt_err err = {0};
    CHECK_OK(ckpt_device_open("cpu", TEST_TRAIN_THREADS, &t->device, &err), err);
    open_model(t, file, set, dtype);
}

void test_train_open_on(test_train *t, ckpt_device *device, const char *file, const char *set, const char *dtype)
{
    memset(t, 0, sizeof *t);
    ckpt_arena_init(&t->arena);
    t->device = device;
    t->borrowed = true;
    open_model(t, file, set, dtype);
}

void test_train_close(test_train *t)
{
    if (!t->borrowed) {
        ckpt_device_close(t->device);
    }
    ckpt_arena_fini(&t->arena);
}

void test_train_spread(test_train *t, const ckpt_scheme *scheme, double clip_norm, double loss_scale)
{
    ckpt_err err = {0};
    ckpt_network *const network = CKPT_NEW(&t->arena, ckpt_network, 1);
    *network = *t->network;
    network->clip_norm = clip_norm;
    network->loss_scale = loss_scale;
    const ckpt_network *spread = NULL;
    CHECK_OK(ckpt_network_spread(network, scheme, &t->arena, &spread, &err), err);
    const ckpt_device_model *roofline = NULL;
    CHECK_OK(ckpt_device_model_find("h200", &t->arena, &roofline, &err), err);
    CHECK_OK(ckpt_network_lower(spread, NULL, roofline, &t->arena, &t->lowered, &err), err);
}

void test_train_feed(const test_train *t, const ckpt_data *data, ckpt_executor *executor)
{
    const int inputs = t->model->input_count;
    for (int j = 0; j < t->lowered->network->scheme.micro_batches; j++) {
        void *input[TEST_TRAIN_INPUTS];
        for (int i = 0; i < inputs; i++) {
            input[i] = ckpt_executor_input(executor, j * inputs + i);
        }
        ckpt_test_fill(data, ckpt_executor_batch(executor, j), input);
    }
}

ckpt_executor *test_train_executor(const test_train *t, const ckpt_plan *plan, const ckpt_executor_options *options)
{
    ckpt_err err = {0};
    ckpt_executor *executor = NULL;
    CHECK_OK(ckpt_executor_create(t->device, t->lowered, plan, options, &executor, &err), err);
    return executor;
}

ckpt_data *test_train_data(const test_train *t, uint64_t seed)
{
    ckpt_err err = {0};
    ckpt_data *data = NULL;
    CHECK_OK(ckpt_data_open("synthetic", t->model, t->limit, seed, &data, &err), err);
    return data;
}

float test_train_step(const test_train *t, const ckpt_data *data, ckpt_executor *executor)
{
    ckpt_err err = {0};
    float loss = 0;
    test_train_feed(t, data, executor);
    CHECK_OK(ckpt_executor_step(executor, &loss, NULL, &err), err);
    return loss;
}

int64_t test_train_get(const test_train *t, ckpt_executor *executor, test_getter get, float *to)
{
    const ckpt_network *const network = t->lowered->network;
    int64_t count = 0;
    ckpt_err err = {0};
    for (int n = 0; n < network->node_count; n++) {
        const ckpt_node *const node = &network->node[n];
        for (int k = 0; k < node->param_count; k++) {
            if (node->param[k].tied >= 0) {
                continue;
            }
            if (executor != NULL) {
                CHECK_OK(get(executor, n, k, to + count, &err), err);
            }
            count += ckpt_shape_count(&node->param[k].tensor.shape);
        }
    }
    return count;
}

void test_train_set(const test_train *t, ckpt_executor *executor, const float *from)
{
    const ckpt_network *const network = t->lowered->network;
    ckpt_err err = {0};
    for (int n = 0; n < network->node_count; n++) {
        const ckpt_node *const node = &network->node[n];
        for (int k = 0; k < node->param_count; k++) {
            if (node->param[k].tied < 0) {
                CHECK_OK(ckpt_executor_param_set(executor, n, k, from, &err), err);
                from += ckpt_shape_count(&node->param[k].tensor.shape);
            }
        }
    }
}

void test_optimizer_init(test_optimizer *o, test_train *t)
{
    o->count = test_train_get(t, NULL, NULL, NULL);
    o->param = CKPT_NEW(&t->arena, float, o->count);
    o->grad = CKPT_NEW(&t->arena, float, o->count);
    for (int i = 0; i < 4; i++) {
        o->slot[i] = CKPT_NEW(&t->arena, float, o->count);
    }
}

void test_optimizer_step(const test_optimizer *o, const test_train *t, uint64_t step)
{
    const ckpt_network *const network = t->lowered->network;
    ckpt_numbers numbers;
    ckpt_err err = {0};
    int64_t at = 0;
    ckpt_network_numbers(network, step, &numbers);
    for (int n = 0; n < network->node_count; n++) {
        const ckpt_node *const node = &network->node[n];
        for (int k = 0; k < node->param_count; k++) {
            if (node->param[k].tied >= 0) {
                continue;
            }
            float *const slot[4] = {o->slot[0] + at, o->slot[1] + at, o->slot[2] + at, o->slot[3] + at};
            ckpt_update_args args = {.hyper = network->hyper,
                                     .group = node->param[k].group,
                                     .decay = node->param[k].decay,
                                     .count = ckpt_shape_count(&node->param[k].tensor.shape),
                                     .param = o->param + at,
                                     .grad = o->grad + at,
                                     .slot = slot};
            CHECK_OK(ckpt_device_update(t->device, network->optimizer, &numbers, &args, 1, &err), err);
            at += args.count;
        }
    }
}

/* What the simulator takes for a part of forward, backward or a copy may be the start of a message or the
 * wait for one; a free that waits for the end of a copy is a free to the executor. */
static bool same_span(const test_train *t, const ckpt_plan *plan, int step, ckpt_span predicted, ckpt_span measured)
{
    const bool message =
        plan->step[step].kind == CKPT_RUN && t->lowered->op_role[plan->step[step].target].task != CKPT_TASK_LAYER;
    return predicted == measured || message || (predicted == CKPT_SPAN_WAIT && measured == CKPT_SPAN_FREE);
}

/* The simulator and the executor count on their own; they must agree at every step. */
static void compare_traces(const test_train *t, const ckpt_plan *plan, const ckpt_trace *predicted,
                           const ckpt_trace *measured)
{
    assert_int_equal(predicted->event_count, measured->event_count);
    for (int i = 0; i < measured->event_count; i++) {
        const ckpt_event *const p = &predicted->event[i], *const m = &measured->event[i];
        assert_int_equal(p->step, m->step);
        assert_true(same_span(t, plan, m->step, p->span, m->span));
        assert_string_equal(p->name, m->name);
        assert_string_equal(p->stream, m->stream);
        for (int c = 0; c < CKPT_CAT_OUTSIDE; c++) {
            CHECK(p->bytes[c] == m->bytes[c], "step %d (%s): %lld bytes of %s, predicted %lld", i, m->name,
                  (long long)m->bytes[c], ckpt_category_name((ckpt_category)c), (long long)p->bytes[c]);
        }
    }
}

static int compare_places(const void *a, const void *b)
{
    const ckpt_trace_allocation *const x = a;
    const ckpt_trace_allocation *const y = b;
    const int names = strcmp(x->name, y->name);
    return names != 0 ? names : x->from - y->from;
}

static ckpt_trace_allocation *sort_places(const ckpt_trace_allocation *allocation, int count, ckpt_arena *arena)
{
    ckpt_trace_allocation *const sorted = CKPT_NEW(arena, ckpt_trace_allocation, count);
    memcpy(sorted, allocation, (size_t)count * sizeof *allocation);
    qsort(sorted, (size_t)count, sizeof *sorted, compare_places);
    return sorted;
}

/* What the steps were given lies where the plan says, for as long. */
static void check_places(const test_train *t, const ckpt_plan *plan, const ckpt_trace *measured, ckpt_arena *arena)
{
    ckpt_trace_allocation *const wanted = CKPT_NEW(arena, ckpt_trace_allocation, plan->allocation_count);
    int count = 0;
    for (int i = 0; i < plan->allocation_count; i++) {
        const ckpt_allocation *const p = &plan->allocation[i];
        const bool scratch = p->buffer < 0;
        if (!scratch || p->bytes > 0) {
            wanted[count++] = (ckpt_trace_allocation){
                p->name,   scratch ? CKPT_CAT_WORKSPACE : ckpt_kind_category(t->lowered->graph->buffer[p->buffer].kind),
                p->from,   p->to,
                p->offset, p->bytes};
        }
    }
    assert_int_equal(measured->allocation_count, count);
    const ckpt_trace_allocation *const a = sort_places(wanted, count, arena);
    const ckpt_trace_allocation *const b = sort_places(measured->allocation, count, arena);
    for (int i = 0; i < count; i++) {
        CHECK(strcmp(a[i].name, b[i].name) == 0 && a[i].category == b[i].category && a[i].from == b[i].from &&
                  a[i].to == b[i].to && a[i].offset == b[i].offset && a[i].bytes == b[i].bytes,
              "%s: planned in steps %d to %d at %lld, found %s in %d to %d at %lld", a[i].name, a[i].from, a[i].to,
              (long long)a[i].offset, b[i].name, b[i].from, b[i].to, (long long)b[i].offset);
    }
}

void test_train_run(const test_train *t, const test_run *run, test_record *record)
{
    ckpt_err err = {0};
    CKPT_TEST_ARENA(arena);
    const ckpt_executor_options options = {
        .seed = run->seed, .ranks = run->ranks, .poison = run->poison, .record = run->record};
    ckpt_executor *const executor = test_train_executor(t, run->plan, &options);
    if (run->state_in != NULL) {
        CHECK_OK(ckpt_executor_state_read(executor, run->state_in, &err), err);
    }
    ckpt_data *const data = test_train_data(t, ckpt_executor_seed(executor));
    ckpt_trace *trace = NULL;
    CHECK_OK(ckpt_executor_trace_create(executor, &arena, &trace, &err), err);
    check_places(t, run->plan, trace, &arena);
    memset(record, 0, sizeof *record);
    const int steps = run->steps > 0 ? run->steps : TEST_TRAIN_STEPS;
    for (int s = (int)ckpt_executor_steps(executor); s < steps; s++) {
        test_train_feed(t, data, executor);
        const bool traced = !run->record && !run->untraced;
        CHECK_OK(ckpt_executor_step(executor, &record->loss[s], traced ? trace : NULL, &err), err);
        if (traced) {
            CHECK(trace->peak_bytes == ckpt_executor_peak(executor), "the trace's peak is %lld, the executor's %lld",
                  (long long)trace->peak_bytes, (long long)ckpt_executor_peak(executor));
        }
        if (traced && run->predicted != NULL) {
            compare_traces(t, run->plan, run->predicted, trace);
        }
        for (int section = 0; section < TEST_SECTIONS; section++) {
            if (t->lowered->network->scheme.fused && section == CKPT_SECTION_GRADIENTS) {
                continue; /* they are gone */
            }
            CHECK_OK(ckpt_executor_digest(executor, (ckpt_section)section, record->digest[s][section], &err), err);
        }
    }
    record->peak_bytes = ckpt_executor_peak(executor);
    record->outside_bytes = ckpt_executor_outside(executor);
    if (run->state_out != NULL) {
        CHECK_OK(ckpt_executor_state_write(executor, run->state_out, &err), err);
    }
    ckpt_data_close(data);
    ckpt_executor_destroy(executor);
}

void test_record_same(const test_record *wanted, const test_record *found, int first, const char *what)
{
    static const char *const section[TEST_SECTIONS] = {"weights", "gradients", "optimizer state", "statistics"};
    for (int s = first; s < TEST_TRAIN_STEPS; s++) {
        CHECK(memcmp(&wanted->loss[s], &found->loss[s], sizeof found->loss[s]) == 0,
              "%s: loss of step %d is %a, wanted %a", what, s + 1, (double)found->loss[s], (double)wanted->loss[s]);
        for (int i = 0; i < TEST_SECTIONS; i++) {
            const bool both = wanted->digest[s][i][0] != '\0' && found->digest[s][i][0] != '\0';
            CHECK(!both || strcmp(wanted->digest[s][i], found->digest[s][i]) == 0, "%s: %s after step %d differ", what,
                  section[i], s + 1);
        }
    }
}

/* --- plans by hand --- */

typedef struct hand {
    test_train *t;
    const ckpt_graph *graph;
    ckpt_step *step;
    ckpt_allocation *allocation;
    int step_count, allocation_count;
    int *place_of; /* per buffer: its open place; -1: not in memory */
    int *last;     /* per buffer: last op that uses it */
    bool *on_host;
    bool inplace, offload;
    ckpt_bytes arena_bytes, offload_bytes, host_bytes;
} hand;

static bool uses(const ckpt_graph_op *op, int buffer)
{
    const ckpt_list *const list[] = {&op->reads, &op->writes, &op->adds};
    for (int l = 0; l < 3; l++) {
        for (int i = 0; i < list[l]->count; i++) {
            if (list[l]->at[i] == buffer) {
                return true;
            }
        }
    }
    return false;
}

static int add_step(hand *h, ckpt_step_kind kind, int target)
{
    const char *const name = kind == CKPT_RUN ? h->graph->op[target].name : h->graph->buffer[target].name;
    h->step[h->step_count] = (ckpt_step){.kind = kind, .name = name, .target = target};
    return h->step_count++;
}

static void add_place(hand *h, const char *name, int buffer, int from, ckpt_bytes bytes, ckpt_bytes offset)
{
    if (offset < 0) {
        offset = h->arena_bytes;
        h->arena_bytes += bytes;
    }
    if (buffer >= 0) {
        h->place_of[buffer] = h->allocation_count;
    }
    h->allocation[h->allocation_count++] = (ckpt_allocation){name, buffer, from, from, offset, bytes};
}

static void leave(hand *h, int buffer)
{
    const int step = add_step(h, CKPT_FREE, buffer);
    h->allocation[h->place_of[buffer]].to = step;
    h->place_of[buffer] = -1;
}

static void bring_back(hand *h, const ckpt_list *list)
{
    for (int i = 0; i < list->count; i++) {
        const int b = list->at[i];
        if (h->place_of[b] < 0) {
            assert_true(h->on_host[b]);
            const int step = add_step(h, CKPT_FETCH, b);
            add_place(h, h->graph->buffer[b].name, b, step, h->graph->buffer[b].bytes, -1);
        }
    }
}

static bool takes_place(const hand *h, const ckpt_graph_op *op, int o)
{
    if (!h->inplace || op->inplace_count == 0) {
        return false;
    }
    for (int p = 0; p < op->inplace_count; p++) {
        if (h->last[op->inplace[p].in] != o || h->on_host[op->inplace[p].in]) {
            return false;
        }
    }
    return true;
}

static void run_op(hand *h, int o)
{
    const ckpt_graph_op *const op = &h->graph->op[o];
    bring_back(h, &op->reads);
    bring_back(h, &op->adds);
    const bool inplace = takes_place(h, op, o);
    const int step = add_step(h, CKPT_RUN, o);
    h->step[step].inplace = inplace;
    for (int i = 0; i < op->writes.count; i++) {
        const int b = op->writes.at[i];
        ckpt_bytes offset = -1;
        for (int p = 0; inplace && p < op->inplace_count; p++) {
            if (op->inplace[p].out == b) {
                ckpt_allocation *const taken = &h->allocation[h->place_of[op->inplace[p].in]];
                offset = taken->offset;
                taken->to = step - 1;
                h->place_of[op->inplace[p].in] = -1;
            }
        }
        add_place(h, h->graph->buffer[b].name, b, step, h->graph->buffer[b].bytes, offset);
    }
    if (op->workspace_bytes > 0) {
        add_place(h, "workspace", -1, step, op->workspace_bytes, -1);
    }
    for (int b = 0; b < h->graph->buffer_count; b++) {
        if (h->place_of[b] < 0) {
            continue;
        }
        if (h->last[b] == o) {
            leave(h, b);
        } else if (h->offload && op->phase == CKPT_FORWARD && h->graph->buffer[b].kind != CKPT_GRADIENT &&
                   h->last[b] < h->graph->op_count && uses(op, b)) {
            if (!h->on_host[b]) {
                add_step(h, CKPT_OFFLOAD, b);
                h->offload_bytes += h->graph->buffer[b].bytes;
                h->host_bytes += h->graph->buffer[b].bytes;
                h->on_host[b] = true;
            }
            leave(h, b);
        }
    }
}

static ckpt_bytes most_live(const hand *h)
{
    ckpt_bytes most = 0;
    for (int s = 0; s < h->step_count; s++) {
        ckpt_bytes live = 0;
        for (int p = 0; p < h->allocation_count; p++) {
            live += h->allocation[p].from <= s && s <= h->allocation[p].to ? h->allocation[p].bytes : 0;
        }
        most = live > most ? live : most;
    }
    return most;
}

ckpt_plan *test_train_plan(test_train *t, const char *strategy, ckpt_bytes budget)
{
    ckpt_plan *plan = NULL;
    ckpt_err err = {0};
    const ckpt_plan_options options = {.budget_bytes = budget};
    CHECK_OK(ckpt_plan_make(t->lowered->graph, strategy, &options, &t->arena, &plan, &err), err);
    return plan;
}

ckpt_plan *test_train_hand_plan(test_train *t, bool inplace, bool offload)
{
    const ckpt_graph *const graph = t->lowered->graph;
    const int room = 8 * (graph->op_count + graph->buffer_count) + 64;
    hand h = {.t = t, .graph = graph, .inplace = inplace, .offload = offload};
    h.step = CKPT_NEW(&t->arena, ckpt_step, 4 * room);
    h.allocation = CKPT_NEW(&t->arena, ckpt_allocation, 4 * room);
    h.place_of = CKPT_NEW(&t->arena, int, graph->buffer_count);
    h.last = CKPT_NEW(&t->arena, int, graph->buffer_count);
    h.on_host = CKPT_NEW(&t->arena, bool, graph->buffer_count);
    ckpt_plan *const plan = CKPT_NEW(&t->arena, ckpt_plan, 1);
    for (int b = 0; b < graph->buffer_count; b++) {
        h.place_of[b] = -1;
        for (int o = 0; o < graph->op_count; o++) {
            h.last[b] = uses(&graph->op[o], b) ? o : h.last[b];
        }
    }
    for (int i = 0; i < graph->outputs.count; i++) {
        h.last[graph->outputs.at[i]] = graph->op_count;
    }
    for (int o = 0; o < graph->op_count; o++) {
        run_op(&h, o);
    }
    for (int b = 0; b < graph->buffer_count; b++) {
        if (h.place_of[b] >= 0) {
            h.allocation[h.place_of[b]].to = h.step_count - 1;
        }
    }
    *plan = (ckpt_plan){
        .source = "a plan by hand",
        .graph_name = graph->name,
        .budget_bytes = graph->static_bytes + h.arena_bytes,
        .peak_bytes = graph->static_bytes + most_live(&h),
        .static_bytes = graph->static_bytes,
        .arena_bytes = h.arena_bytes,
        .offload_bytes = h.offload_bytes,
        .host_bytes = h.host_bytes,
        .solver = "hand",
        .costs = "",
        .bound_how = "",
        .bound_scope = "",
        .gpu = t->lowered->network->threads == CKPT_ON_GPU,
        .step = h.step,
        .step_count = h.step_count,
        .allocation = h.allocation,
        .allocation_count = h.allocation_count,
    };
    ckpt_err err = {0};
    CHECK_OK(ckpt_graph_digest(graph, plan->graph_sha256, &err), err);
    CHECK_OK(ckpt_plan_check_run(plan, graph, &err), err);
    return plan;
}

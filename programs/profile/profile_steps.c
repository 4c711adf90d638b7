/* Joins planner, executor and profiler, which do not know each other: plans are made of what the layers alone take,
 * training steps follow them, and the profiler reads the times. */
#include "programs/profile/profile_steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "cupti/recorder.h"
#include "executor/data/data.h"
#include "executor/executor.h"
#include "planner/api/planner.h"
#include "profiler/in_step.h"

enum {
    TURNS = 3,       /* of each plan; the first has one more, behind all */
    STEPS = 5,       /* timed of a plan, by default; */
    STEPS_LEAST = 3, /* so many of them take longer than LONG_NS; */
    STEPS_MOST = 50, /* fewer than so many take longer than SHORT_NS */
    WAYS_MOST = 4,   /* plans that choose other ways of layers */
    MS = 1000 * 1000,
};

#define SHORT_NS ((ckpt_ns)1000 * MS)
#define LONG_NS  ((ckpt_ns)10000 * MS)
/* A longer step leaves nothing of the one before it in the caches. */
#define COLD_NS ((ckpt_ns)100 * MS)

typedef struct training training;

typedef struct stepping {
    ckpt_device *device;
    const ckpt_profile_steps_options *options;
    ckpt_arena *out;
    const ckpt_profile *profile; /* of layers alone */
    const ckpt_lowered *lowered; /* with its times */
    const ckpt_layer_algorithms *algorithms;
    int algorithms_count;
    ckpt_bytes available; /* 0: unknown */
    ckpt_stepped *stepped;
    training *training; /* by each of them */
    int count;
    bool together;   /* they all find room at once */
    int done, total; /* turns */
    ckpt_ns start_ns;
} stepping;

static void say(const stepping *s, const char *why)
{
    char line[512];
    snprintf(line, sizeof line, "layers are measured alone, not in the step: %.400s", why);
    s->options->note(line);
}

/* ---- training by one plan ---- */

struct training {
    const stepping *s;
    ckpt_stepped *stepped;
    int turns;
    ckpt_arena arena;        /* of the trace, the tables here, and what is recorded */
    ckpt_executor *executor; /* NULL: not open */
    ckpt_data *data;
    void **input;
    ckpt_trace *trace;
    ckpt_recorder *recorder; /* during a turn */
    ckpt_ns step_ns;         /* the last step */
};

static ckpt_code open_data(training *t, ckpt_err *err)
{
    const ckpt_network *const network = t->s->lowered->network;
    const int inputs = network->model->input_count;
    int64_t *const limit = CKPT_NEW(&t->arena, int64_t, inputs);
    t->input = CKPT_NEW(&t->arena, void *, inputs);
    if (limit == NULL || t->input == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d inputs", inputs);
    }
    for (int i = 0; i < inputs; i++) {
        t->input[i] = ckpt_executor_input(t->executor, i);
    }
    ckpt_data_class_limits(network, limit);
    return ckpt_data_open("synthetic", network->model, limit, 0, &t->data, err);
}

static ckpt_code step(training *t, bool traced, ckpt_err *err)
{
    float loss = 0;
    CKPT_TRY(ckpt_data_fill(t->data, ckpt_executor_batch(t->executor, 0), t->input, err));
    const ckpt_ns start = ckpt_clock_ns();
    CKPT_TRY(ckpt_executor_step(t->executor, &loss, traced ? t->trace : NULL, err));
    t->step_ns = traced ? t->trace->time_ns : ckpt_clock_ns() - start;
    return CKPT_OK;
}

/* Of steps whose number is given, those of this turn; over all turns they are that number. */
static int share(const training *t, int turn)
{
    const int all = t->s->options->steps;
    return (all * (turn + 1) + t->turns - 1) / t->turns - (all * turn + t->turns - 1) / t->turns;
}

/* Where no number is given, as many as fill their time if all turns are like this one. */
static bool enough(const training *t, int done, ckpt_ns spent)
{
    if (t->s->options->steps > 0) {
        return done >= share(t, t->stepped->turn);
    }
    const int all = done * t->turns;
    const ckpt_ns all_ns = spent * t->turns;
    return all < STEPS_LEAST                        ? false
           : all >= STEPS_MOST || all_ns >= LONG_NS ? true
                                                    : all >= STEPS && all_ns >= SHORT_NS;
}

/* Steps as users run them: on a GPU replayed. */
static ckpt_code run_whole(training *t, ckpt_err *err)
{
    ckpt_ns all = 0;
    for (int done = 0; !enough(t, done, all); done++) {
        CKPT_TRY(step(t, false, err));
        ckpt_stepped_add_whole(t->stepped, t->step_ns);
        all += t->step_ns;
    }
    return CKPT_OK;
}

static ckpt_code run_traced(training *t, ckpt_err *err)
{
    ckpt_ns all = 0;
    for (int done = 0; !enough(t, done, all); done++) {
        CKPT_TRY(step(t, true, err));
        if (!t->s->device->api->gpu) { /* a traced step is one as users run it */
            ckpt_stepped_add_whole(t->stepped, t->step_ns);
        }
        ckpt_stepped_add(t->stepped, t->trace);
        all += t->step_ns;
    }
    return CKPT_OK;
}

/* Without a recorder times are those between stamps of the device. */
static ckpt_code run_recorded(training *t, ckpt_err *err)
{
    ckpt_err why = {0};
    if (t->s->device->api->gpu && t->s->options->record &&
        ckpt_recorder_open(&(ckpt_recorder_options){0}, &t->recorder, &why) != CKPT_OK) {
        t->recorder = NULL;
    }
    ckpt_executor_trace_record(t->trace, t->recorder);
    const ckpt_code code = run_traced(t, err);
    ckpt_executor_trace_record(t->trace, NULL);
    ckpt_recorder_close(t->recorder);
    t->recorder = NULL;
    return code;
}

static ckpt_code open_training(training *t, ckpt_err *err)
{
    CKPT_TRY(ckpt_executor_create(t->s->device, t->s->lowered, t->stepped->plan,
                                  &(ckpt_executor_options){.record = true}, &t->executor, err));
    CKPT_TRY(open_data(t, err));
    return ckpt_executor_trace_create(t->executor, &t->arena, &t->trace, err);
}

static void close_training(training *t)
{
    ckpt_executor_destroy(t->executor);
    ckpt_data_close(t->data);
    ckpt_arena_fini(&t->arena);
    *t = (training){.s = t->s, .stepped = t->stepped, .turns = t->turns};
    ckpt_arena_init(&t->arena);
}

/* Not timed: an executor's first step, which finds no memory mapped, and where steps are short one more in each turn. */
static ckpt_code take_turn(training *t, ckpt_err *err)
{
    const bool gpu = t->s->device->api->gpu;
    if (t->executor == NULL) {
        CKPT_TRY(open_training(t, err));
        CKPT_TRY(step(t, !gpu, err));
    }
    if (t->step_ns < COLD_NS) {
        CKPT_TRY(step(t, !gpu, err));
    }
    CKPT_TRY(gpu ? run_whole(t, err) : CKPT_OK);
    return run_recorded(t, err);
}

/* Plan p's turn. */
static ckpt_code train(stepping *s, int p, int turn, ckpt_err *err)
{
    training *const t = &s->training[p];
    t->stepped->turn = turn;
    const bool none = s->options->steps > 0 && share(t, turn) == 0;
    const ckpt_code code = none ? CKPT_OK : take_turn(t, err);
    if (code != CKPT_OK || !s->together) {
        close_training(t);
    }
    if (code == CKPT_OK && s->options->progress != NULL) {
        s->options->progress(++s->done, s->total, ckpt_clock_ns() - s->start_ns);
    }
    return code;
}

/* ---- the plans ---- */

/* By the times of `graph`, which may be changed ones. */
static ckpt_code make(const stepping *s, const ckpt_graph *graph, const char *strategy, ckpt_bytes budget,
                      bool allow_inexact, ckpt_plan **plan, ckpt_err *err)
{
    const ckpt_plan_options options = {.budget_bytes = budget, .allow_inexact = allow_inexact};
    CKPT_TRY(ckpt_plan_make(graph, strategy, &options, s->out, plan, err));
    if ((*plan)->verdict == CKPT_FITS) {
        (*plan)->algorithms = s->algorithms;
        (*plan)->algorithms_count = s->algorithms_count;
        CKPT_TRY(ckpt_plan_bind(*plan, s->lowered->graph, err));
    }
    return CKPT_OK;
}

static bool fits(const stepping *s, const ckpt_plan *plan)
{
    return plan->verdict == CKPT_FITS && (s->available == 0 || plan->static_bytes + plan->arena_bytes <= s->available);
}

/* Keep-all, or the lowest peak. */
static ckpt_code make_first(const stepping *s, ckpt_plan **plan, ckpt_err *err)
{
    CKPT_TRY(make(s, s->lowered->graph, "keep-all", 0, false, plan, err));
    if (!fits(s, *plan)) {
        CKPT_TRY(make(s, s->lowered->graph, "auto", 1, false, plan, err));
        CKPT_TRY(make(s, s->lowered->graph, "auto", (*plan)->min_budget_bytes, false, plan, err));
    }
    return CKPT_OK;
}

/* A variant that must be measured and was not is one that this device lacks. */
static bool is_there(const stepping *s, int op, int variant)
{
    const ckpt_way *const way = s->lowered->way[variant];
    const ckpt_direction direction = way->backward ? CKPT_DIRECTION_BACKWARD : CKPT_DIRECTION_FORWARD;
    const ckpt_profile_row *const row =
        ckpt_profile_find(s->profile, s->lowered->network->node[s->lowered->op_role[op].node].name);
    bool measured = false;
    for (int i = 0; row != NULL && i < row->way_count; i++) {
        measured = measured || (row->way[i].direction == direction && strcmp(row->way[i].name, way->name) == 0);
    }
    return measured || !way->measured;
}

/* The same graph, in which way number k of every op that has so many takes next to nothing, and every other than the own
 * way too long: the fastest plan runs it wherever something reads what it saves. */
static ckpt_code prefer_way(const stepping *s, int k, const ckpt_graph **preferring, ckpt_err *err)
{
    enum { OWN_NS = 1000, OTHERS_NS = 1000 * 1000 };
    const ckpt_graph *const graph = s->lowered->graph;
    ckpt_graph *const made = CKPT_NEW(s->out, ckpt_graph, 1);
    ckpt_graph_op *const op = ckpt_graph_copy_ops(graph, s->out);
    if (made == NULL || op == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a graph of %d ops", graph->op_count);
    }
    for (int o = 0; o < graph->op_count; o++) {
        op[o].time_ns = OWN_NS;
        for (int i = 0; i < op[o].variant_count; i++) {
            const int variant = op[o].first_variant + i;
            op[variant].time_ns = i == k && is_there(s, o, variant - graph->op_count) ? 1 : OTHERS_NS;
        }
    }
    *made = *graph;
    made->op = op;
    *preferring = made;
    return CKPT_OK;
}

/* The same graph, of which everything that may run again must: what recompute-all keeps, such as what leaves a block. */
static ckpt_code demand_again(const stepping *s, const ckpt_graph **demanding, ckpt_err *err)
{
    ckpt_graph *const made = CKPT_NEW(s->out, ckpt_graph, 1);
    ckpt_graph_op *const op = ckpt_graph_copy_ops(s->lowered->graph, s->out);
    if (made == NULL || op == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a graph of %d ops", s->lowered->graph->op_count);
    }
    for (int o = 0; o < s->lowered->graph->op_count; o++) {
        op[o].checkpoint = CKPT_UNSET;
        op[o].policy = op[o].recompute ? CKPT_MUST_RECOMPUTE : CKPT_NO_POLICY;
    }
    *made = *s->lowered->graph;
    made->op = op;
    *demanding = made;
    return CKPT_OK;
}

/* The plan will be trained by where there is memory for it. */
static ckpt_code add_plan(stepping *s, const ckpt_plan *plan, ckpt_err *err)
{
    const int steps = s->options->steps > 0 ? s->options->steps : STEPS_MOST;
    if (!fits(s, plan)) {
        return CKPT_OK;
    }
    return ckpt_stepped_init(&s->stepped[s->count++], plan, steps + TURNS, s->out, err); /* turns round up */
}

static int most_ways(const ckpt_graph *graph)
{
    int most = 0;
    for (int o = 0; o < graph->op_count; o++) {
        most = graph->op[o].variant_count > most ? graph->op[o].variant_count : most;
    }
    return most < WAYS_MOST ? most : WAYS_MOST;
}

static ckpt_code add_ways(stepping *s, ckpt_err *err)
{
    const int most = most_ways(s->lowered->graph);
    for (int k = 0; k < most; k++) {
        const ckpt_graph *preferring = NULL;
        ckpt_plan *plan = NULL;
        CKPT_TRY(prefer_way(s, k, &preferring, err));
        CKPT_TRY(make(s, preferring, "auto", 0, true, &plan, err));
        CKPT_TRY(add_plan(s, plan, err));
    }
    return CKPT_OK;
}

static ckpt_code add_again(stepping *s, ckpt_err *err)
{
    const ckpt_graph *demanding = NULL;
    ckpt_plan *again = NULL;
    CKPT_TRY(make(s, s->lowered->graph, "recompute-all", 0, false, &again, err));
    CKPT_TRY(add_plan(s, again, err));
    CKPT_TRY(demand_again(s, &demanding, err));
    CKPT_TRY(make(s, demanding, "flags", 0, false, &again, err));
    return add_plan(s, again, err);
}

/* In turns, and the first plan once more behind all: what the others took is compared with its steps before and behind,
 * so that a machine that becomes slower meanwhile is no price. */
static ckpt_code take_turns(stepping *s, ckpt_err *err)
{
    s->total = TURNS * s->count + 1;
    s->start_ns = ckpt_clock_ns();
    for (int turn = 0; turn < TURNS; turn++) {
        for (int p = 0; p < s->count; p++) {
            CKPT_TRY(train(s, p, turn, err));
        }
    }
    return train(s, 0, TURNS, err);
}

/* Executors stay from turn to turn where all of them take at most half of the memory. */
static ckpt_code train_all(stepping *s, ckpt_err *err)
{
    ckpt_bytes all = 0;
    s->training = CKPT_NEW(s->out, training, s->count);
    if (s->training == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory to train by %d plans", s->count);
    }
    for (int p = 0; p < s->count; p++) {
        s->training[p] = (training){.s = s, .stepped = &s->stepped[p], .turns = p == 0 ? TURNS + 1 : TURNS};
        ckpt_arena_init(&s->training[p].arena);
        all += s->stepped[p].plan->static_bytes + s->stepped[p].plan->arena_bytes;
    }
    s->together = all <= s->available / 2;
    const ckpt_code code = take_turns(s, err);
    for (int p = 0; p < s->count; p++) {
        close_training(&s->training[p]);
    }
    return code;
}

static ckpt_code try_all(stepping *s, ckpt_err *err)
{
    ckpt_plan *first = NULL;
    CKPT_TRY(make_first(s, &first, err));
    CKPT_TRY(add_plan(s, first, err));
    if (s->count == 0) {
        char wanted[CKPT_UNITS_TEXT], there[CKPT_UNITS_TEXT], why[160];
        snprintf(why, sizeof why, "its plan of the lowest peak takes %s of memory, %s are free",
                 ckpt_bytes_show(first->static_bytes + first->arena_bytes, wanted),
                 ckpt_bytes_show(s->available, there));
        say(s, why);
        return CKPT_OK;
    }
    CKPT_TRY(add_again(s, err));
    CKPT_TRY(add_ways(s, err));
    return train_all(s, err);
}

/* ---- what there is ---- */

/* Kilobytes behind a key of /proc/meminfo; 0: unknown. */
static ckpt_bytes meminfo(const char *key)
{
    char line[128];
    ckpt_bytes kilobytes = 0;
    FILE *const file = fopen("/proc/meminfo", "r");
    while (file != NULL && kilobytes == 0 && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) {
            kilobytes = strtoll(line + strlen(key), NULL, 10);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return kilobytes;
}

/* For a plan: nine tenths of what is free on the device; of a CPU three quarters of what the system would give. */
static ckpt_code find_memory(stepping *s, ckpt_err *err)
{
    ckpt_device_memory memory = {0};
    CKPT_TRY(s->device->api->memory(s->device, &memory, err));
    s->available = s->options->memory_bytes > 0 ? s->options->memory_bytes
                   : s->device->api->gpu        ? memory.free / 10 * 9
                                                : meminfo("MemAvailable:") / 4 * 3 * 1024;
    return CKPT_OK;
}

/* Why there is no training step of this model; NULL: there is. */
static const char *untrainable(const ckpt_network *network)
{
    for (int n = 0; n < network->node_count; n++) {
        if (network->node[n].op->planned_only) {
            return "an opaque layer cannot be run";
        }
    }
    return network->loss_node < 0 ? "the model has no loss" : NULL;
}

static ckpt_code take_algorithms(stepping *s, const ckpt_profile *profile, ckpt_err *err)
{
    ckpt_layer_algorithms *const at = CKPT_NEW(s->out, ckpt_layer_algorithms, profile->row_count);
    if (at == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "algorithms of %d layers", profile->row_count);
    }
    for (int i = 0; i < profile->row_count; i++) {
        if (profile->row[i].algorithms[0] != '\0') {
            at[s->algorithms_count++] = (ckpt_layer_algorithms){profile->row[i].layer, profile->row[i].algorithms};
        }
    }
    s->algorithms = at;
    return CKPT_OK;
}

ckpt_code ckpt_profile_steps(ckpt_device *device, const ckpt_network *network,
                             const ckpt_profile_steps_options *options, ckpt_arena *out, ckpt_profile *profile,
                             ckpt_err *err)
{
    enum { PLANS_MOST = 3 + WAYS_MOST };
    stepping s = {.device = device, .options = options, .out = out};
    const char *const why = untrainable(network);
    if (why != NULL) {
        say(&s, why);
        return CKPT_OK;
    }
    s.profile = profile;
    s.stepped = CKPT_NEW(out, ckpt_stepped, PLANS_MOST);
    if (s.stepped == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the times of training steps");
    }
    CKPT_TRY(ckpt_network_lower(network, profile, NULL, out, &s.lowered, err));
    CKPT_TRY(take_algorithms(&s, profile, err));
    CKPT_TRY(find_memory(&s, err));
    CKPT_TRY_WHILE(err, try_all(&s, err), "training to time layers in the step (--isolated does not)");
    return s.count == 0 ? CKPT_OK : ckpt_profile_in_step(s.lowered, s.stepped, s.count, out, profile, err);
}

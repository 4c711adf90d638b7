/* labels: unit */
/* The checker: a good plan, broken one way at a time, must be refused by a message that names what is wrong; and the
 * simulator on steps whose clock can be worked out by hand. */
#include <string.h>

#include "planner/replay/replay.h"
#include "tests/support/support_test.h"

/* Six ops in layers l0, l1, l2: f0 -> a, f1(a) -> b, f2(b, workspace) -> c in the place of b, b2(c, a) -> g adds, b1(g,
 * a) adds to g, b0(g). Static 100 bytes. Copies at 1 byte per ns. */
enum { A, B, C, G, BUFFERS };
enum { F0, F1, F2, B2, B1, B0, OPS };

static const int in_a[] = {A};
static const int in_b[] = {B};
static const int in_c[] = {C};
static const int in_g[] = {G};
static const int in_ca[] = {C, A};
static const ckpt_inplace c_on_b[] = {{C, B}};

typedef struct world {
    ckpt_arena arena;
    ckpt_static statics;
    ckpt_buffer buffer[BUFFERS];
    ckpt_graph_op op[OPS];
    ckpt_graph graph;
    ckpt_step step[24];
    ckpt_allocation allocation[24];
    ckpt_layer_decision layer[3];
    ckpt_plan plan;
} world;

static void make_graph(world *w)
{
    memset(w, 0, sizeof *w);
    ckpt_arena_init(&w->arena);
    w->statics = (ckpt_static){"weights", 100};
    w->buffer[A] = (ckpt_buffer){"a", 10, CKPT_ACTIVATION};
    w->buffer[B] = (ckpt_buffer){"b", 20, CKPT_ACTIVATION};
    w->buffer[C] = (ckpt_buffer){"c", 20, CKPT_ACTIVATION};
    w->buffer[G] = (ckpt_buffer){"g", 30, CKPT_GRADIENT};
    const char *const name[OPS] = {"f0", "f1", "f2", "b2", "b1", "b0"};
    const char *const layer[OPS] = {"l0", "l1", "l2", "l2", "l1", "l0"};
    for (int o = 0; o < OPS; o++) {
        w->op[o] = (ckpt_graph_op){.name = name[o],
                                   .layer = layer[o],
                                   .phase = o < B2 ? CKPT_FORWARD : CKPT_BACKWARD,
                                   .time_ns = 10 * (o + 1),
                                   .recompute = o < B2};
    }
    w->op[F0].writes = (ckpt_list){in_a, 1};
    w->op[F1].reads = (ckpt_list){in_a, 1};
    w->op[F1].writes = (ckpt_list){in_b, 1};
    w->op[F2].reads = (ckpt_list){in_b, 1};
    w->op[F2].writes = (ckpt_list){in_c, 1};
    w->op[F2].workspace_bytes = 5;
    w->op[F2].inplace = c_on_b;
    w->op[F2].inplace_count = 1;
    w->op[B2].reads = (ckpt_list){in_ca, 2};
    w->op[B2].writes = (ckpt_list){in_g, 1};
    w->op[B1].reads = (ckpt_list){in_a, 1};
    w->op[B1].adds = (ckpt_list){in_g, 1};
    w->op[B0].reads = (ckpt_list){in_g, 1};
    w->graph = (ckpt_graph){.source = "test",
                            .name = "six",
                            .statics = &w->statics,
                            .static_count = 1,
                            .buffer = w->buffer,
                            .buffer_count = BUFFERS,
                            .op = w->op,
                            .op_count = OPS,
                            .has_link = true,
                            .d2h_bytes_per_s = 1000000000,
                            .h2d_bytes_per_s = 1000000000};
    ckpt_err err = {0};
    CHECK_OK(ckpt_graph_check(&w->graph, &w->arena, &err), err);
}

static void add_step(world *w, ckpt_step_kind kind, int target, bool recomputed, bool inplace)
{
    const char *const name = kind == CKPT_RUN ? w->op[target].name : w->buffer[target].name;
    w->step[w->plan.step_count++] =
        (ckpt_step){.kind = kind, .name = name, .target = target, .recomputed = recomputed, .inplace = inplace};
}

static void run(world *w, int op)
{
    add_step(w, CKPT_RUN, op, false, false);
}

static void drop(world *w, int buffer)
{
    add_step(w, CKPT_FREE, buffer, false, false);
}

static void put(world *w, int buffer, int from, int to, ckpt_bytes offset)
{
    const ckpt_bytes bytes = buffer < 0 ? 5 : w->buffer[buffer].bytes;
    w->allocation[w->plan.allocation_count++] =
        (ckpt_allocation){buffer < 0 ? "workspace" : w->buffer[buffer].name, buffer, from, to, offset, bytes};
}

static void finish(world *w, ckpt_bytes arena, ckpt_bytes peak, ckpt_ns time, ckpt_ns recompute)
{
    ckpt_err err = {0};
    w->plan.source = w->plan.solver = w->plan.costs = w->plan.bound_how = w->plan.bound_scope = "";
    w->plan.step = w->step;
    w->plan.allocation = w->allocation;
    w->layer[0] = (ckpt_layer_decision){"l0", CKPT_KEEP};
    w->layer[1] = (ckpt_layer_decision){"l1", CKPT_KEEP};
    w->layer[2] = (ckpt_layer_decision){"l2", CKPT_KEEP};
    w->plan.layer = w->layer;
    w->plan.layer_count = 3;
    w->plan.arena_bytes = arena;
    w->plan.static_bytes = 100;
    w->plan.budget_bytes = 100 + arena;
    w->plan.peak_bytes = peak;
    w->plan.time_ns = time;
    w->plan.recompute_ns = recompute;
    CHECK_OK(ckpt_keep_all_measure(&w->graph, &w->arena, &w->plan.keep_all_peak_bytes, &w->plan.keep_all_time_ns, &err),
             err);
    assert_int_equal(w->plan.keep_all_peak_bytes, 160); /* a, c, g while b2 runs */
    assert_int_equal(w->plan.keep_all_time_ns, 210);
}

/* a is dropped after f1 and computed again for b2. Peak: a, c, g. */
static void recomputing(world *w)
{
    make_graph(w);
    run(w, F0);                             /* 0 */
    run(w, F1);                             /* 1 */
    drop(w, A);                             /* 2 */
    run(w, F2);                             /* 3: b, c, workspace */
    drop(w, B);                             /* 4 */
    add_step(w, CKPT_RUN, F0, true, false); /* 5 */
    run(w, B2);                             /* 6 */
    drop(w, C);                             /* 7 */
    run(w, B1);                             /* 8 */
    drop(w, A);                             /* 9 */
    run(w, B0);                             /* 10 */
    drop(w, G);                             /* 11 */
    put(w, A, 0, 2, 0);
    put(w, B, 1, 4, 10);
    put(w, C, 3, 7, 30);
    put(w, -1, 3, 3, 0);
    put(w, A, 5, 9, 50);
    put(w, G, 6, 11, 0);
    finish(w, 60, 160, 220, 10);
    w->layer[0].decision = CKPT_RECOMPUTE;
}

/* c takes the place of b. */
static void in_place(world *w)
{
    make_graph(w);
    run(w, F0);                             /* 0 */
    run(w, F1);                             /* 1 */
    add_step(w, CKPT_RUN, F2, false, true); /* 2: a, c, workspace */
    run(w, B2);                             /* 3: a, c, g */
    drop(w, C);                             /* 4 */
    run(w, B1);                             /* 5 */
    run(w, B0);                             /* 6 */
    drop(w, A);                             /* 7 */
    drop(w, G);                             /* 8 */
    put(w, A, 0, 7, 0);
    put(w, B, 1, 1, 10);
    put(w, C, 2, 4, 10);
    put(w, -1, 2, 2, 30);
    put(w, G, 3, 8, 30);
    finish(w, 60, 160, 210, 0);
}

/* a goes to the host while f1 runs and comes back while f2 runs, each copy 10 ns. */
static void offloading(world *w)
{
    make_graph(w);
    run(w, F0);                                 /* 0: 0..10 */
    add_step(w, CKPT_OFFLOAD, A, false, false); /* 1: 10..20 */
    run(w, F1);                                 /* 2: 10..30 */
    drop(w, A);                                 /* 3: arrived long ago */
    run(w, F2);                                 /* 4: 30..60 */
    drop(w, B);                                 /* 5 */
    add_step(w, CKPT_FETCH, A, false, false);   /* 6: 60..70 */
    run(w, B2);                                 /* 7: waits until 70, ends 110 */
    drop(w, C);                                 /* 8 */
    run(w, B1);                                 /* 9: 160 */
    drop(w, A);                                 /* 10 */
    run(w, B0);                                 /* 11: 220 */
    drop(w, G);                                 /* 12 */
    put(w, A, 0, 3, 0);
    put(w, B, 2, 5, 10);
    put(w, C, 4, 8, 30);
    put(w, -1, 4, 4, 0);
    put(w, A, 6, 10, 50);
    put(w, G, 7, 12, 0);
    finish(w, 60, 160, 220, 0);
    w->plan.offload_bytes = w->plan.host_bytes = 10;
    w->layer[0].decision = CKPT_OFFLOADED;
}

static void good_plans(void **state)
{
    void (*const make[])(world *) = {recomputing, in_place, offloading};
    for (size_t i = 0; i < sizeof make / sizeof *make; i++) {
        world w;
        make[i](&w);
        ckpt_err err = {0};
        CHECK_OK(ckpt_plan_check(&w.plan, &w.graph, &err), err);
        ckpt_arena_fini(&w.arena);
    }
}

/* Take out step i; places keep their numbers, so what follows is broken there and not by shifted lifetimes alone. */
static void remove_step(world *w, int i)
{
    memmove(&w->step[i], &w->step[i + 1], (size_t)(w->plan.step_count - i - 1) * sizeof *w->step);
    w->plan.step_count--;
}

static void swap_steps(world *w, int i, int j)
{
    const ckpt_step kept = w->step[i];
    w->step[i] = w->step[j];
    w->step[j] = kept;
}

static void break_unbound(world *w)
{
    w->step[3].target = -1;
}
static void break_target(world *w)
{
    w->step[3].target = OPS;
}
static void break_allocation_target(world *w)
{
    w->allocation[1].buffer = BUFFERS;
}
static void break_order(world *w)
{
    swap_steps(w, 0, 1);
}
static void break_recomputed_missing(world *w)
{
    w->step[5].recomputed = false;
}
static void break_recomputed_false(world *w)
{
    w->step[3].recomputed = true;
}
static void break_recomputed_forbidden(world *w)
{
    w->op[F0].recompute = false;
}
static void break_read(world *w)
{
    remove_step(w, 5);
}
static void break_write(world *w)
{
    remove_step(w, 2);
}
static void break_free(world *w)
{
    w->step[4].target = G;
    w->step[4].name = "g";
}
static void break_never(world *w)
{
    w->plan.step_count = 10;
}
static void break_adds(world *w)
{
    swap_steps(w, 8, 10);
}
static void break_allocation_missing(world *w)
{
    w->plan.allocation_count--;
}
static void break_allocation_extra(world *w)
{
    put(w, C, 9, 9, 0);
}
static void break_allocation_twice(world *w)
{
    put(w, C, 3, 7, 30);
}
static void break_workspace_missing(world *w)
{
    w->allocation[3] = w->allocation[--w->plan.allocation_count];
}
static void break_workspace_bytes(world *w)
{
    w->allocation[3].bytes = 4;
}
static void break_from(world *w)
{
    w->allocation[1].from = 2;
}
static void break_to(world *w)
{
    w->allocation[1].to = 3;
}
static void break_bytes(world *w)
{
    w->allocation[2].bytes = 19;
}
static void break_overlap(world *w)
{
    w->allocation[2].offset = 29;
}
static void break_overlap_workspace(world *w)
{
    w->allocation[3].offset = 27;
}
static void break_negative(world *w)
{
    w->allocation[0].offset = -1;
}
static void break_outside(world *w)
{
    w->allocation[4].offset = 51;
}
static void break_far(world *w)
{
    w->allocation[4].offset = INT64_MAX;
}
static void break_budget(world *w)
{
    w->plan.budget_bytes--;
}
static void break_static(world *w)
{
    w->plan.static_bytes++;
}
static void break_peak(world *w)
{
    w->plan.peak_bytes--;
}
static void break_time(world *w)
{
    w->plan.time_ns--;
}
static void break_recompute(world *w)
{
    w->plan.recompute_ns = 0;
}
static void break_offload(world *w)
{
    w->plan.offload_bytes = 1;
}
static void break_host(world *w)
{
    w->plan.host_bytes = 1;
}
static void break_keep_peak(world *w)
{
    w->plan.keep_all_peak_bytes++;
}
static void break_keep_time(world *w)
{
    w->plan.keep_all_time_ns++;
}
static void break_bound(world *w)
{
    w->plan.has_bound = true;
    w->plan.bound_ns = 221;
}
static void break_output(world *w)
{
    w->graph.outputs = (ckpt_list){in_c, 1};
}
static void break_verdict(world *w)
{
    w->plan.verdict = CKPT_INFEASIBLE;
}
static void break_not_inplace(world *w)
{
    w->step[3].inplace = true;
    w->op[F2].inplace_count = 0;
}

static void layer_kept(world *w)
{
    w->layer[0].decision = CKPT_KEEP;
}
static void layer_recomputed(world *w)
{
    w->layer[1].decision = CKPT_RECOMPUTE;
}
static void layer_missing(world *w)
{
    w->plan.layer_count = 2;
}
static void layer_twice(world *w)
{
    w->layer[2].layer = "l1";
}
static void layer_unknown(world *w)
{
    w->layer[2].layer = "l3";
}

static void inplace_gone(world *w)
{
    w->step[2].inplace = false;
}
static void inplace_other_allocation(world *w)
{
    w->allocation[2].offset = 30;
    w->allocation[3].offset = 10;
    w->allocation[4].offset = 50;
    w->plan.arena_bytes = 80;
    w->plan.budget_bytes = 180;
}
static void inplace_size(world *w)
{
    w->buffer[C].bytes = 19;
}
static void inplace_other_op(world *w)
{
    w->step[3].inplace = true;
}
static void inplace_overstays(world *w)
{
    w->allocation[1].to = 2;
}

static void offload_no_link(world *w)
{
    w->graph.has_link = false;
}
static void offload_absent(world *w)
{
    swap_steps(w, 1, 0);
}
static void offload_never(world *w)
{
    w->step[1].target = B;
    swap_steps(w, 1, 2);
}
static void fetch_present(world *w)
{
    w->step[3].target = B;
    swap_steps(w, 3, 6);
}
static void offload_time(world *w)
{
    w->graph.h2d_bytes_per_s = 500000000;
}
static void offload_stale(world *w)
{
    /* g goes to the host before b1 adds to it, and b0 reads the copy */
    w->plan.step_count = 8;
    add_step(w, CKPT_OFFLOAD, G, false, false);
    run(w, B1);
    drop(w, G);
    add_step(w, CKPT_FETCH, G, false, false);
    run(w, B0);
}

typedef struct mutation {
    void (*make)(world *);
    void (*change)(world *);
    const char *says; /* part of the message */
} mutation;

static const mutation mutations[] = {
    {recomputing, break_unbound, "step 3"},
    {recomputing, break_target, "step 3"},
    {recomputing, break_allocation_target, "allocation 1"},
    {recomputing, break_order, "first run of op f1 before"},
    {recomputing, break_recomputed_missing, "step 5: op f0 is recomputed without saying so"},
    {recomputing, break_recomputed_false, "step 3: op f2 says recomputed"},
    {recomputing, break_recomputed_forbidden, "step 5: op f0 must not be recomputed"},
    {recomputing, break_read, "op b2 reads buffer a"},
    {recomputing, break_write, "op f0 writes buffer a, which is in memory"},
    {recomputing, break_free, "step 4: free of buffer g"},
    {recomputing, break_never, "op b0 never runs"},
    {recomputing, break_adds, "first run of op b0 before the first run of op b1"},
    {recomputing, break_allocation_missing, "g, in memory from step 6 to 11, has no allocation"},
    {recomputing, break_allocation_extra, "allocation 6 (c from step 9)"},
    {recomputing, break_allocation_twice, "(c from step 3) belongs to nothing"},
    {recomputing, break_workspace_missing, "workspace, in memory from step 3"},
    {recomputing, break_workspace_bytes, "allocation 3 (workspace from step 3) has 4 bytes"},
    {recomputing, break_from, "b, in memory from step 1 to 4"},
    {recomputing, break_to, "allocation 1 (b from step 1) ends with step 3"},
    {recomputing, break_bytes, "allocation 2 (c from step 3) has 19 bytes"},
    {recomputing, break_overlap, "share a step and byte 29"},
    {recomputing, break_overlap_workspace, "share a step and byte"},
    {recomputing, break_negative, "allocation 0 (a): 10 bytes at offset -1"},
    {recomputing, break_outside, "allocation 4 (a)"},
    {recomputing, break_far, "allocation 4 (a)"},
    {recomputing, break_budget, "exceed the budget of 159"},
    {recomputing, break_static, "static_bytes"},
    {recomputing, break_peak, "peak_bytes"},
    {recomputing, break_time, "time_ns"},
    {recomputing, break_recompute, "recompute_ns"},
    {recomputing, break_offload, "offload_bytes"},
    {recomputing, break_host, "host_bytes"},
    {recomputing, break_keep_peak, "keep_all.peak_bytes"},
    {recomputing, break_keep_time, "keep_all.time_ns"},
    {recomputing, break_bound, "bound of 221"},
    {recomputing, break_output, "output c"},
    {recomputing, break_verdict, "infeasible plan has no steps"},
    {recomputing, break_not_inplace, "op f2 cannot run in place"},
    {recomputing, layer_kept, "l0 is said to be \"keep\", the steps make it \"recompute\""},
    {recomputing, layer_recomputed, "l1 is said to be \"recompute\", the steps make it \"keep\""},
    {recomputing, layer_missing, "l2 is missing"},
    {recomputing, layer_twice, "l1 stands there twice"},
    {recomputing, layer_unknown, "l2 is missing"},
    {offloading, layer_kept, "l0 is said to be \"keep\", the steps make it \"offload\""},
    {in_place, inplace_gone, "allocation 1 (b from step 1) ends with step 1"},
    {in_place, inplace_other_allocation, "in-place output lies where its input lay"},
    {in_place, inplace_size, "op f2 in place: c has 19 bytes"},
    {in_place, inplace_other_op, "op b2 cannot run in place"},
    {in_place, inplace_overstays, "allocation 1 (b from step 1) ends with step 2"},
    {offloading, offload_no_link, "no link"},
    {offloading, offload_absent, "offload of buffer a, which is not in memory"},
    {offloading, offload_never, "fetch of buffer a, which was never offloaded"},
    {offloading, fetch_present, "step 3: fetch of buffer a, which is in memory"},
    {offloading, offload_time, "time_ns"},
    {offloading, offload_stale, "op b0 reads buffer g after 0 additions"},
};

static void mutants_are_refused(void **state)
{
    for (size_t i = 0; i < sizeof mutations / sizeof *mutations; i++) {
        world w;
        mutations[i].make(&w);
        mutations[i].change(&w);
        ckpt_err err = {0};
        const ckpt_code code = ckpt_plan_check(&w.plan, &w.graph, &err);
        CHECK(code == CKPT_BAD_INPUT, "mutation %d (%s) gives code %d: %s", (int)i, mutations[i].says, (int)code,
              err.msg);
        CHECK(strstr(err.msg, mutations[i].says) != NULL, "mutation %d: '%s' does not say '%s'", (int)i, err.msg,
              mutations[i].says);
        ckpt_arena_fini(&w.arena);
    }
}

static void infeasible_form(void **state)
{
    world w;
    make_graph(&w);
    ckpt_err err = {0};
    w.plan = (ckpt_plan){.verdict = CKPT_INFEASIBLE, .budget_bytes = 120, .min_budget_bytes = 160};
    CHECK_OK(ckpt_plan_check(&w.plan, &w.graph, &err), err);
    w.plan.no_schedule_below_bytes = 160;
    CHECK_OK(ckpt_plan_check(&w.plan, &w.graph, &err), err);
    w.plan.no_schedule_below_bytes = 161;
    assert_int_equal(ckpt_plan_check(&w.plan, &w.graph, &err), CKPT_BAD_INPUT);
    w.plan.no_schedule_below_bytes = 0;
    w.plan.min_budget_bytes = 120;
    assert_int_equal(ckpt_plan_check(&w.plan, &w.graph, &err), CKPT_BAD_INPUT);
    ckpt_arena_fini(&w.arena);
}

/* Copies beside compute, worked out in the comments of offloading(). */
static void clock_by_hand(void **state)
{
    world w;
    offloading(&w);
    ckpt_err err = {0};
    const ckpt_trace *trace = NULL;
    CHECK_OK(ckpt_plan_simulate(&w.plan, &w.graph, &w.arena, &trace, &err), err);
    const struct {
        int step;
        ckpt_ns start, end;
        const char *stream;
        ckpt_span span;
        ckpt_bytes total;
    } want[] = {
        {0, 0, 10, "compute", CKPT_SPAN_FORWARD, 110},      {1, 10, 20, "d2h", CKPT_SPAN_COPY, 110},
        {2, 10, 30, "compute", CKPT_SPAN_FORWARD, 130},     {3, 30, 30, "compute", CKPT_SPAN_FREE, 120},
        {4, 30, 60, "compute", CKPT_SPAN_FORWARD, 145},     {6, 60, 70, "h2d", CKPT_SPAN_COPY, 130},
        {7, 70, 110, "compute", CKPT_SPAN_BACKWARD, 160},   {9, 110, 160, "compute", CKPT_SPAN_BACKWARD, 140},
        {11, 160, 220, "compute", CKPT_SPAN_BACKWARD, 130},
    };
    assert_int_equal(trace->event_count, 13);
    assert_int_equal(trace->peak_bytes, 160);
    assert_int_equal(trace->peak_event, 7);
    assert_int_equal(trace->time_ns, 220);
    assert_false(trace->measured);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const ckpt_event *const event = &trace->event[want[i].step];
        ckpt_bytes total = 0;
        for (int c = 0; c < CKPT_CATEGORY_COUNT; c++) {
            total += event->bytes[c];
        }
        CHECK(event->start_ns == want[i].start && event->end_ns == want[i].end, "step %d runs %lld to %lld",
              want[i].step, (long long)event->start_ns, (long long)event->end_ns);
        assert_string_equal(event->stream, want[i].stream);
        assert_int_equal(event->span, want[i].span);
        CHECK(total == want[i].total, "step %d: %lld bytes", want[i].step, (long long)total);
    }
    assert_int_equal(trace->event[4].bytes[CKPT_CAT_WORKSPACE], 5);
    assert_int_equal(trace->event[7].bytes[CKPT_CAT_GRADIENTS], 30);
    assert_int_equal(trace->allocation_count, w.plan.allocation_count);
    for (int i = 0; i < trace->allocation_count; i++) {
        const ckpt_trace_allocation *const found = &trace->allocation[i];
        const ckpt_allocation *const allocation = &w.plan.allocation[i];
        assert_string_equal(found->name, allocation->name);
        assert_true(found->from == allocation->from && found->to == allocation->to &&
                    found->offset == allocation->offset && found->bytes == allocation->bytes);
        assert_int_equal(found->category, allocation->buffer < 0
                                              ? CKPT_CAT_WORKSPACE
                                              : ckpt_kind_category(w.buffer[allocation->buffer].kind));
    }
    ckpt_arena_fini(&w.arena);
}

/* A slow link: the free must wait for the copy (100 ns at 0.1 byte per ns), and so does everything behind it. */
static void free_waits(void **state)
{
    world w;
    offloading(&w);
    w.graph.d2h_bytes_per_s = 100000000;
    ckpt_err err = {0};
    const ckpt_trace *trace = NULL;
    CHECK_OK(ckpt_plan_simulate(&w.plan, &w.graph, &w.arena, &trace, &err), err);
    assert_int_equal(trace->event[3].start_ns, 30);
    assert_int_equal(trace->event[3].end_ns, 110);
    assert_int_equal(trace->event[3].span, CKPT_SPAN_WAIT);
    assert_int_equal(trace->event[4].start_ns, 110);
    assert_int_equal(trace->time_ns, 300);
    w.plan.time_ns = 300;
    CHECK_OK(ckpt_plan_check(&w.plan, &w.graph, &err), err);
    ckpt_arena_fini(&w.arena);
}

static ckpt_code check_starved(void *context, ckpt_err *err)
{
    const world *const w = context;
    return ckpt_plan_check(&w->plan, &w->graph, err);
}

static ckpt_code simulate_starved(void *context, ckpt_arena *arena, ckpt_err *err)
{
    const world *const w = context;
    const ckpt_trace *trace = NULL;
    return ckpt_plan_simulate(&w->plan, &w->graph, arena, &trace, err);
}

static void no_memory(void **state)
{
    world w;
    offloading(&w);
    /* the world's own arena holds memory that is not the call's */
    ckpt_graph graph = w.graph;
    int writer[BUFFERS];
    memcpy(writer, w.graph.writer, sizeof writer);
    graph.writer = writer;
    ckpt_arena_fini(&w.arena);
    w.graph = graph;
    assert_true(ckpt_test_starve(check_starved, &w) > 0);
    assert_true(ckpt_test_starve_arena(simulate_starved, &w) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_plans),    cmocka_unit_test(mutants_are_refused), cmocka_unit_test(infeasible_form),
        cmocka_unit_test(clock_by_hand), cmocka_unit_test(free_waits),          cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

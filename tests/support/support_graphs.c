/* Random training steps, and a slow replay that anyone can check by eye. */
#include "tests/support/support_graphs.h"

#include <string.h>

#include "planner/replay/replay.h"
#include "tests/support/support_test.h"

int ckpt_dice_roll(ckpt_dice *dice, int sides)
{
    dice->state = dice->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((dice->state >> 33) % (uint64_t)sides);
}

/* Lists are built in fixed rooms: these graphs are small. */
enum { LIST_MAX = 40, OPS_MAX = 400, BUFFERS_MAX = 800 };

typedef struct build {
    ckpt_arena *arena;
    ckpt_graph_op *op;
    ckpt_buffer *buffer;
    int op_count, buffer_count;
} build;

static build build_start(ckpt_arena *arena)
{
    const build b = {arena, CKPT_NEW(arena, ckpt_graph_op, OPS_MAX), CKPT_NEW(arena, ckpt_buffer, BUFFERS_MAX), 0, 0};
    assert_true(b.op != NULL && b.buffer != NULL);
    return b;
}

static int add_buffer(build *b, const char *name, int number, ckpt_bytes bytes, ckpt_kind kind)
{
    assert_true(b->buffer_count < BUFFERS_MAX);
    b->buffer[b->buffer_count] = (ckpt_buffer){ckpt_arena_format(b->arena, "%s%d", name, number), bytes, kind};
    return b->buffer_count++;
}

static ckpt_graph_op *add_op(build *b, const char *name, int number, ckpt_phase phase, ckpt_ns time)
{
    assert_true(b->op_count < OPS_MAX);
    ckpt_graph_op *const op = &b->op[b->op_count++];
    *op = (ckpt_graph_op){.name = ckpt_arena_format(b->arena, "%s%d", name, number),
                          .phase = phase,
                          .layer = ckpt_arena_format(b->arena, "layer%d", number),
                          .time_ns = time,
                          .recompute = phase == CKPT_FORWARD};
    return op;
}

static void list_add(build *b, ckpt_list *list, int buffer)
{
    for (int i = 0; i < list->count; i++) {
        if (list->at[i] == buffer) {
            return;
        }
    }
    int *const grown = CKPT_NEW(b->arena, int, LIST_MAX);
    assert_true(grown != NULL && list->count < LIST_MAX);
    if (list->count > 0) {
        memcpy(grown, list->at, (size_t)list->count * sizeof *grown);
    }
    grown[list->count] = buffer;
    *list = (ckpt_list){grown, list->count + 1};
}

static ckpt_graph *build_end(build *b, ckpt_bytes static_bytes)
{
    ckpt_graph *const graph = CKPT_NEW(b->arena, ckpt_graph, 1);
    ckpt_static *const block = CKPT_NEW(b->arena, ckpt_static, 1);
    assert_true(graph != NULL && block != NULL);
    *block = (ckpt_static){"weights", static_bytes};
    *graph = (ckpt_graph){.source = "test",
                          .name = "test",
                          .statics = block,
                          .static_count = 1,
                          .buffer = b->buffer,
                          .buffer_count = b->buffer_count,
                          .op = b->op,
                          .op_count = b->op_count};
    return graph;
}

static void check_graph(build *b, ckpt_graph *graph)
{
    ckpt_err err = {0};
    CHECK_OK(ckpt_graph_check(graph, b->arena, &err), err);
}

ckpt_graph *ckpt_test_chain(ckpt_arena *arena, uint64_t seed, int n, int size_max, ckpt_bytes unit, int time_max)
{
    ckpt_dice dice = {seed};
    build b = build_start(arena);
    int a[64];
    int s[64];
    assert_true(n < 64);
    for (int i = 0; i < n; i++) {
        a[i] = add_buffer(&b, "a", i, unit * (1 + ckpt_dice_roll(&dice, size_max)), CKPT_ACTIVATION);
        s[i] = add_buffer(&b, "s", i, unit * (1 + ckpt_dice_roll(&dice, size_max)), CKPT_SAVED);
        ckpt_graph_op *const op = add_op(&b, "f", i, CKPT_FORWARD, 1 + ckpt_dice_roll(&dice, time_max));
        if (i > 0) {
            list_add(&b, &op->reads, a[i - 1]);
        }
        list_add(&b, &op->writes, a[i]);
        list_add(&b, &op->writes, s[i]);
        op->workspace_bytes = unit * ckpt_dice_roll(&dice, size_max);
    }
    int gradient = -1;
    for (int i = n - 1; i >= 0; i--) {
        ckpt_graph_op *const op = add_op(&b, "b", i, CKPT_BACKWARD, 1 + ckpt_dice_roll(&dice, time_max));
        if (gradient >= 0) {
            list_add(&b, &op->reads, gradient);
        }
        list_add(&b, &op->reads, s[i]);
        if (i > 0) {
            list_add(&b, &op->reads, a[i - 1]);
        }
        if (ckpt_dice_roll(&dice, 2) == 0) {
            list_add(&b, &op->reads, a[i]);
        }
        gradient = add_buffer(&b, "g", i, unit * (1 + ckpt_dice_roll(&dice, size_max)), CKPT_GRADIENT);
        list_add(&b, &op->writes, gradient);
        op->workspace_bytes = unit * ckpt_dice_roll(&dice, size_max);
    }
    ckpt_graph *const graph = build_end(&b, 7 * unit);
    check_graph(&b, graph);
    return graph;
}

ckpt_graph *ckpt_test_blocks(ckpt_arena *arena, uint64_t seed, int n, int size_max, int time_max, int *first)
{
    ckpt_dice dice = {seed};
    build b = build_start(arena);
    int value[64];
    int saved[64];
    int input[64];   /* per forward op: what enters its block; -1 */
    bool hidden[64]; /* per block: backward reads nothing that an op hands to an op inside it */
    int ops = 0;
    const bool forward_heavy = ckpt_dice_roll(&dice, 2) == 0; /* else what forward needs hides behind backward */
    const int forward_max = forward_heavy ? 8 * size_max : 2 * size_max;
    const int backward_max = forward_heavy ? 1 : 2 * size_max;
    assert_true(3 * n < 64);
    for (int k = 0; k < n; k++) {
        const int enters = ops - 1;
        const int length = k == 0 ? 1 : 1 + ckpt_dice_roll(&dice, 3);
        first[k] = ops;
        hidden[k] = ckpt_dice_roll(&dice, 2) == 0;
        for (int j = 0; j < length; j++, ops++) {
            ckpt_graph_op *const op = add_op(&b, "f", ops, CKPT_FORWARD, 1 + ckpt_dice_roll(&dice, time_max));
            input[ops] = enters >= 0 ? value[enters] : -1;
            if (ops > 0) {
                list_add(&b, &op->reads, value[ops - 1]);
            }
            if (j == length - 1 && j > 0 && !hidden[k]) {
                list_add(&b, &op->reads, input[ops]);
            }
            value[ops] = add_buffer(&b, "v", ops, 1 + ckpt_dice_roll(&dice, size_max), CKPT_ACTIVATION);
            list_add(&b, &op->writes, value[ops]);
            saved[ops] = -1;
            if (ops == 0 || ckpt_dice_roll(&dice, 2) == 0) {
                saved[ops] = add_buffer(&b, "s", ops, 1 + ckpt_dice_roll(&dice, size_max), CKPT_SAVED);
                list_add(&b, &op->writes, saved[ops]);
            }
            op->workspace_bytes = ckpt_dice_roll(&dice, forward_max);
        }
    }
    first[n] = ops;
    int leaving = -1; /* gradient of what entered the block behind, and inside a block of the op behind */
    int inner = -1;
    for (int k = n - 1; k >= 0; k--) {
        const int entered = leaving;
        leaving = -1;
        for (int o = first[k + 1] - 1; o >= first[k]; o--) {
            const bool is_last = o == first[k + 1] - 1;
            ckpt_graph_op *const op = add_op(&b, "b", o, CKPT_BACKWARD, 1 + ckpt_dice_roll(&dice, time_max));
            if ((is_last ? entered : inner) >= 0) {
                list_add(&b, &op->reads, is_last ? entered : inner);
            }
            if (saved[o] >= 0) {
                list_add(&b, &op->reads, saved[o]);
            }
            if ((is_last || !hidden[k]) && ckpt_dice_roll(&dice, 2) == 0) {
                list_add(&b, &op->reads, value[o]);
            }
            if (o > first[k] && !hidden[k] && ckpt_dice_roll(&dice, 2) == 0) {
                list_add(&b, &op->reads, value[o - 1]);
            }
            if (input[o] >= 0 && (o == first[k] || (is_last && saved[o] < 0))) {
                list_add(&b, &op->reads, input[o]);
            }
            if (o > first[k]) {
                inner = add_buffer(&b, "h", o, 1 + ckpt_dice_roll(&dice, size_max), CKPT_GRADIENT);
                list_add(&b, &op->writes, inner);
            }
            if (is_last && k > 0) {
                leaving = add_buffer(&b, "g", k, 1 + ckpt_dice_roll(&dice, size_max), CKPT_GRADIENT);
                list_add(&b, &op->writes, leaving);
            } else if (o == first[k] && k > 0) {
                list_add(&b, &op->adds, leaving);
            }
            op->workspace_bytes = ckpt_dice_roll(&dice, backward_max);
        }
    }
    ckpt_graph *const graph = build_end(&b, 7);
    check_graph(&b, graph);
    return graph;
}

ckpt_graph *ckpt_test_step(ckpt_arena *arena, uint64_t seed, int forward_ops)
{
    ckpt_dice dice = {seed};
    build b = build_start(arena);
    int value[OPS_MAX];    /* forward op -> its main output */
    int gradient[OPS_MAX]; /* its gradient, once written; -1 */
    int saved[OPS_MAX];
    int from[OPS_MAX][2]; /* the forward ops it reads; -1 */
    const int flags = ckpt_dice_roll(&dice, 2);
    for (int i = 0; i < forward_ops; i++) {
        ckpt_graph_op *const op = add_op(&b, "f", i, CKPT_FORWARD, ckpt_dice_roll(&dice, 100));
        from[i][0] = i - 1;
        from[i][1] = i > 2 && ckpt_dice_roll(&dice, 4) == 0 ? ckpt_dice_roll(&dice, i - 1) : -1;
        gradient[i] = saved[i] = -1;
        const ckpt_bytes bytes = ckpt_dice_roll(&dice, 12) == 0 ? 0 : 1 + ckpt_dice_roll(&dice, 1000);
        value[i] = add_buffer(&b, "v", i, bytes, CKPT_ACTIVATION);
        list_add(&b, &op->writes, value[i]);
        for (int k = 0; k < 2; k++) {
            if (from[i][k] >= 0) {
                list_add(&b, &op->reads, value[from[i][k]]);
            }
        }
        if (ckpt_dice_roll(&dice, 2) == 0) {
            saved[i] = add_buffer(&b, "s", i, 1 + ckpt_dice_roll(&dice, 500), CKPT_SAVED);
            list_add(&b, &op->writes, saved[i]);
        }
        if (ckpt_dice_roll(&dice, 6) == 0) { /* an output nobody reads */
            list_add(&b, &op->writes, add_buffer(&b, "u", i, 1 + ckpt_dice_roll(&dice, 50), CKPT_ACTIVATION));
        }
        op->workspace_bytes = ckpt_dice_roll(&dice, 3) == 0 ? ckpt_dice_roll(&dice, 800) : 0;
        op->recompute = ckpt_dice_roll(&dice, 15) != 0;
        if (flags == 1 && ckpt_dice_roll(&dice, 3) > 0) {
            op->checkpoint = CKPT_YES;
            op->segment = ckpt_arena_format(arena, "unit%d", i / 4);
        }
    }
    for (int i = forward_ops - 1; i >= 0; i--) {
        ckpt_graph_op *const op = add_op(&b, "b", i, CKPT_BACKWARD, ckpt_dice_roll(&dice, 100));
        if (gradient[i] >= 0) {
            list_add(&b, &op->reads, gradient[i]);
        }
        if (saved[i] >= 0) {
            list_add(&b, &op->reads, saved[i]);
        }
        if (ckpt_dice_roll(&dice, 3) == 0) {
            list_add(&b, &op->reads, value[i]);
        }
        for (int k = 0; k < 2; k++) {
            const int j = from[i][k];
            if (j < 0) {
                continue;
            }
            if (ckpt_dice_roll(&dice, 2) == 0) {
                list_add(&b, &op->reads, value[j]);
            }
            if (gradient[j] >= 0) {
                bool mine = false;
                for (int w = 0; w < op->writes.count; w++) {
                    mine = mine || op->writes.at[w] == gradient[j];
                }
                if (!mine) {
                    list_add(&b, &op->adds, gradient[j]);
                }
            } else {
                gradient[j] = add_buffer(&b, "g", j, 1 + ckpt_dice_roll(&dice, 1000), CKPT_GRADIENT);
                list_add(&b, &op->writes, gradient[j]);
            }
        }
        op->workspace_bytes = ckpt_dice_roll(&dice, 3) == 0 ? ckpt_dice_roll(&dice, 800) : 0;
    }
    for (int i = 0; i < forward_ops / 4; i++) {
        add_op(&b, "update", i, CKPT_UPDATE, 5);
    }
    ckpt_graph *const graph = build_end(&b, ckpt_dice_roll(&dice, 2000));
    list_add(&b, &graph->outputs, value[forward_ops - 1]);
    check_graph(&b, graph);
    return graph;
}

/* Buffer b, written at or before run t, is used by run `from` >= t or a later one before it is written again, or is
 * wanted at the end. */
static bool used_from(const ckpt_graph *graph, const int *order, int count, int b, int t, int from)
{
    int written = -1; /* last write up to t */
    for (int u = 0; u <= t; u++) {
        written = order[u] == graph->writer[b] ? u : written;
    }
    bool used = false;
    bool rewritten = false;
    for (int u = written + 1; written >= 0 && u < count && !rewritten; u++) {
        const ckpt_graph_op *const op = &graph->op[order[u]];
        rewritten = order[u] == graph->writer[b];
        for (int i = 0; u >= from && i < op->reads.count; i++) {
            used = used || op->reads.at[i] == b;
        }
        for (int i = 0; u >= from && i < op->adds.count; i++) {
            used = used || op->adds.at[i] == b;
        }
    }
    for (int i = 0; i < graph->outputs.count; i++) {
        used = used || (graph->outputs.at[i] == b && !rewritten);
    }
    return written >= 0 && used;
}

/* The bytes that run t saves by writing over inputs that nobody needs afterwards: all of its pairs or none. */
static ckpt_bytes inplace_bytes(const ckpt_graph *graph, const int *order, int count, int t)
{
    const ckpt_graph_op *const op = &graph->op[order[t]];
    ckpt_bytes bytes = 0;
    for (int p = 0; p < op->inplace_count; p++) {
        if (used_from(graph, order, count, op->inplace[p].in, t, t + 1)) {
            return 0;
        }
        bytes += graph->buffer[op->inplace[p].in].bytes;
    }
    return bytes;
}

void ckpt_test_measure(const ckpt_graph *graph, const int *order, int count, ckpt_bytes *peak, ckpt_ns *time)
{
    *peak = *time = 0;
    for (int t = 0; t < count; t++) {
        ckpt_bytes live = graph->op[order[t]].workspace_bytes - inplace_bytes(graph, order, count, t);
        *time += graph->op[order[t]].time_ns;
        for (int b = 0; b < graph->buffer_count; b++) {
            const bool used = order[t] == graph->writer[b] || used_from(graph, order, count, b, t, t);
            live += used ? graph->buffer[b].bytes : 0;
        }
        *peak = live > *peak ? live : *peak;
    }
}

static const ckpt_allocation *place_at(const ckpt_plan *plan, int buffer, int step)
{
    const ckpt_allocation *found = NULL;
    for (int i = 0; i < plan->allocation_count; i++) {
        const ckpt_allocation *const allocation = &plan->allocation[i];
        if (allocation->buffer == buffer && allocation->from <= step && step <= allocation->to) {
            CHECK(found == NULL, "two places for one buffer in step %d", step);
            found = allocation;
        }
    }
    return found;
}

void ckpt_test_replay(const ckpt_graph *graph, const ckpt_plan *plan, const char *what)
{
    bool in_memory[BUFFERS_MAX] = {false};
    bool on_host[BUFFERS_MAX] = {false};
    int runs[OPS_MAX] = {0};
    int next = 0;
    bool copies = false;
    ckpt_bytes live = 0;
    ckpt_bytes most = 0;
    ckpt_ns time = 0;
    for (int i = 0; i < plan->step_count; i++) {
        const ckpt_step *const step = &plan->step[i];
        int workspace = 0;
        if (step->kind == CKPT_RUN) {
            const ckpt_graph_op *const op = &graph->op[step->target];
            CHECK(runs[step->target] > 0 || step->target == next++, "%s: step %d out of order", what, i);
            CHECK(runs[step->target] == 0 || (op->recompute && op->adds.count == 0), "%s: step %d reruns", what, i);
            CHECK(step->recomputed == (runs[step->target] > 0), "%s: step %d: again", what, i);
            runs[step->target]++;
            for (int k = 0; k < op->reads.count; k++) {
                CHECK(in_memory[op->reads.at[k]], "%s: step %d reads %s", what, i, graph->buffer[op->reads.at[k]].name);
            }
            for (int k = 0; k < op->adds.count; k++) {
                CHECK(in_memory[op->adds.at[k]], "%s: step %d adds", what, i);
            }
            for (int k = 0; step->inplace && k < op->inplace_count; k++) {
                const ckpt_allocation *const in = place_at(plan, op->inplace[k].in, i - 1);
                const ckpt_allocation *const out = place_at(plan, op->inplace[k].out, i);
                CHECK(in != NULL && in->to == i - 1 && out != NULL && in->offset == out->offset &&
                          in->bytes == out->bytes,
                      "%s: step %d: place of an in-place output", what, i);
                in_memory[op->inplace[k].in] = false;
                live -= graph->buffer[op->inplace[k].in].bytes;
            }
            for (int k = 0; k < op->writes.count; k++) {
                CHECK(!in_memory[op->writes.at[k]], "%s: step %d writes", what, i);
                in_memory[op->writes.at[k]] = true;
                live += graph->buffer[op->writes.at[k]].bytes;
            }
            workspace = op->workspace_bytes > 0;
            most = live + op->workspace_bytes > most ? live + op->workspace_bytes : most;
            time += op->time_ns;
        } else if (step->kind == CKPT_FETCH) {
            CHECK(on_host[step->target] && !in_memory[step->target], "%s: step %d fetches", what, i);
            in_memory[step->target] = true;
            live += graph->buffer[step->target].bytes;
            most = live > most ? live : most;
        } else {
            CHECK(in_memory[step->target], "%s: step %d frees or offloads", what, i);
            CHECK(step->kind == CKPT_FREE || graph->has_link, "%s: step %d offloads without a link", what, i);
            on_host[step->target] = on_host[step->target] || step->kind == CKPT_OFFLOAD;
            copies = copies || step->kind == CKPT_OFFLOAD;
        }
        const ckpt_allocation *now[BUFFERS_MAX];
        int count = 0;
        for (int b = 0; b < graph->buffer_count; b++) {
            const ckpt_allocation *const allocation = place_at(plan, b, i);
            CHECK(in_memory[b] == (allocation != NULL), "%s: step %d: %s and its place", what, i,
                  graph->buffer[b].name);
            if (allocation != NULL) {
                CHECK(allocation->bytes == graph->buffer[b].bytes, "%s: step %d: bytes", what, i);
                now[count++] = allocation;
            }
        }
        const ckpt_allocation *const work = place_at(plan, -1, i);
        CHECK((work != NULL) == (workspace != 0), "%s: step %d: workspace", what, i);
        if (work != NULL) {
            CHECK(work->bytes == graph->op[step->target].workspace_bytes, "%s: step %d: workspace bytes", what, i);
            now[count++] = work;
        }
        for (int a = 0; a < count; a++) {
            CHECK(now[a]->offset >= 0 && now[a]->offset + now[a]->bytes <= plan->arena_bytes, "%s: arena", what);
            for (int b = 0; b < a; b++) {
                CHECK(now[a]->offset + now[a]->bytes <= now[b]->offset ||
                          now[b]->offset + now[b]->bytes <= now[a]->offset,
                      "%s: step %d: %s on %s", what, i, now[a]->name, now[b]->name);
            }
        }
        if (step->kind == CKPT_FREE) {
            in_memory[step->target] = false;
            live -= graph->buffer[step->target].bytes;
        }
    }
    CHECK(next == graph->op_count, "%s: %d of %d ops ran", what, next, graph->op_count);
    for (int i = 0; i < graph->outputs.count; i++) {
        CHECK(in_memory[graph->outputs.at[i]], "%s: output gone", what);
    }
    CHECK(plan->peak_bytes == most + graph->static_bytes, "%s: peak", what);
    CHECK(copies ? plan->time_ns >= time : plan->time_ns == time, "%s: time", what);
    CHECK(plan->static_bytes + plan->arena_bytes <= plan->budget_bytes, "%s: budget", what);
}

ckpt_bytes ckpt_test_keep_all(const ckpt_graph *graph, ckpt_arena *arena)
{
    ckpt_bytes peak = 0;
    ckpt_ns time = 0;
    ckpt_err err = {0};
    CHECK_OK(ckpt_keep_all_measure(graph, arena, &peak, &time, &err), err);
    return peak;
}

/* All schedules of a tiny graph, by Dijkstra's algorithm over states (first runs done, set of buffers in memory).
 *
 * Letting go of a buffer costs nothing and can wait, so it is only done when the next run has no room, and then no more
 * of it than needed: of the sets that could stay, those that no other one contains. First runs only become more, so the
 * states with k of them are one layer, done before the next. Additions happen on first runs alone, so how many a
 * gradient has follows from k (graphs in which what is added to can be written again are refused). */
#include "tests/support/support_brute.h"

#include <string.h>

#include "tests/support/support_graphs.h"
#include "tests/support/support_test.h"

typedef uint32_t set; /* of buffers */

typedef struct state {
    ckpt_ns time;
    set live;
} state;

typedef struct brute {
    const ckpt_graph *graph;
    int rounds; /* of reruns in reference order between two first runs; 0: any number in any order */
    ckpt_bytes limit;
    set reads[CKPT_BRUTE_OPS], writes[CKPT_BRUTE_OPS], needs[CKPT_BRUTE_OPS]; /* needs: reads and adds */
    set destroyed[CKPT_BRUTE_OPS];                                            /* inputs of its in-place pairs */
    set recomputed[CKPT_BRUTE_OPS + 1]; /* ops that may run again after k first runs */
    set useful[CKPT_BRUTE_OPS + 1];     /* buffers worth keeping after k first runs */
    ckpt_bytes bytes[CKPT_BRUTE_BUFFERS];
    ckpt_bytes *total; /* bytes of every set */
    ckpt_ns *best[2];  /* per set: least time in this layer and the next */
    state *heap;
    int heap_count, heap_room;
} brute;

static set set_of(const ckpt_list *list)
{
    set made = 0;
    for (int i = 0; i < list->count; i++) {
        made |= (set)1 << list->at[i];
    }
    return made;
}

/* Additions to b by ops before `end`. */
static int additions(const brute *u, int b, int end)
{
    int count = 0;
    for (int o = 0; o < end; o++) {
        count += (set_of(&u->graph->op[o].adds) >> b & 1) != 0;
    }
    return count;
}

/* Ops whose outputs op `done` needs, or the end, directly or through others. */
static set ancestors(const brute *u, int done)
{
    const ckpt_graph *const g = u->graph;
    set wanted = done < g->op_count ? u->needs[done] : set_of(&g->outputs), found = 0;
    for (int o = done - 1; o >= 0; o--) {
        if ((u->writes[o] & wanted) != 0 && g->op[o].recompute) {
            wanted |= u->needs[o];
            found |= (set)1 << o;
        }
    }
    return found;
}

static void find_again(brute *u, int done, ckpt_brute_class of)
{
    const ckpt_graph *const g = u->graph;
    const bool backward = of == CKPT_BRUTE_BACKWARD || of == CKPT_BRUTE_BACKWARD_STAGES;
    for (int o = 0; o < done; o++) {
        bool may = g->op[o].recompute;
        for (int i = 0; i < g->op[o].reads.count; i++) {
            const int b = g->op[o].reads.at[i];
            may = may && additions(u, b, o) == additions(u, b, done);
        }
        for (int later = done; later < g->op_count && backward; later++) {
            may = may && g->op[later].phase != CKPT_FORWARD;
        }
        u->recomputed[done] |= may ? (set)1 << o : 0;
    }
    u->recomputed[done] &= of == CKPT_BRUTE_BACKWARD_STAGES ? ancestors(u, done) : ~(set)0;
}

static void find_useful(brute *u, int done)
{
    const ckpt_graph *const g = u->graph;
    set useful = set_of(&g->outputs);
    for (int o = g->op_count - 1; o >= 0; o--) {
        if (o >= done || (g->op[o].recompute && (u->writes[o] & useful) != 0)) {
            useful |= u->needs[o];
        }
    }
    u->useful[done] = useful;
}

static void brute_init(brute *u, const ckpt_graph *graph, ckpt_brute_class of)
{
    *u = (brute){.graph = graph,
                 .rounds = of == CKPT_BRUTE_TWICE ? 2 : of == CKPT_BRUTE_STAGES || of == CKPT_BRUTE_BACKWARD_STAGES};
    assert_true(graph->buffer_count <= CKPT_BRUTE_BUFFERS && graph->op_count <= CKPT_BRUTE_OPS);
    for (int o = 0; o < graph->op_count; o++) {
        const ckpt_graph_op *const op = &graph->op[o];
        u->reads[o] = set_of(&op->reads);
        u->writes[o] = set_of(&op->writes);
        u->needs[o] = u->reads[o] | set_of(&op->adds);
        for (int i = 0; i < op->inplace_count; i++) {
            u->destroyed[o] |= (set)1 << op->inplace[i].in;
        }
        for (int i = 0; i < op->adds.count; i++) {
            assert_true(!graph->op[graph->writer[op->adds.at[i]]].recompute);
        }
    }
    for (int done = 0; done <= graph->op_count; done++) {
        find_again(u, done, of);
        find_useful(u, done);
    }
    const size_t sets = (size_t)1 << graph->buffer_count;
    u->total = ckpt_memory_get(sets * sizeof *u->total);
    u->best[0] = ckpt_memory_get(sets * sizeof *u->best[0]);
    u->best[1] = ckpt_memory_get(sets * sizeof *u->best[1]);
    assert_true(u->total != NULL && u->best[0] != NULL && u->best[1] != NULL);
    for (int b = 0; b < graph->buffer_count; b++) {
        u->bytes[b] = graph->buffer[b].bytes;
        for (size_t s = 0; s < (size_t)1 << b; s++) {
            u->total[s | (size_t)1 << b] = u->total[s] + u->bytes[b];
        }
    }
}

static void brute_fini(brute *u)
{
    ckpt_memory_put(u->total);
    ckpt_memory_put(u->best[0]);
    ckpt_memory_put(u->best[1]);
    ckpt_memory_put(u->heap);
}

static void push(brute *u, state added)
{
    if (u->heap_count == u->heap_room) {
        u->heap_room = u->heap_room > 0 ? 2 * u->heap_room : 1024;
        u->heap = ckpt_memory_resize(u->heap, (size_t)u->heap_room * sizeof *u->heap);
        assert_non_null(u->heap);
    }
    int at = u->heap_count++;
    for (; u->rounds == 0 && at > 0 && u->heap[(at - 1) / 2].time > added.time; at = (at - 1) / 2) {
        u->heap[at] = u->heap[(at - 1) / 2];
    }
    u->heap[at] = added;
}

static state pop(brute *u)
{
    const state first = u->heap[0], last = u->heap[--u->heap_count];
    int at = 0;
    for (;;) {
        int child = 2 * at + 1;
        if (child >= u->heap_count) {
            break;
        }
        child += child + 1 < u->heap_count && u->heap[child + 1].time < u->heap[child].time;
        if (u->heap[child].time >= last.time) {
            break;
        }
        u->heap[at] = u->heap[child];
        at = child;
    }
    u->heap[at] = last;
    return first;
}

/* One run from one state: what must stay, what the run makes of it, and for how much else there is room. */
typedef struct move {
    bool first;     /* a first run: leads to the next layer */
    set kept, made; /* after the run: kept | made, and what stays of the rest */
    set useful;
    ckpt_ns time;
} move;

static void arrive(brute *u, const move *m, set rest)
{
    const set live = (m->kept | m->made | rest) & m->useful;
    ckpt_ns *const best = &u->best[m->first ? 1 : 0][live];
    if (m->time < *best) {
        *best = m->time;
        if (!m->first) {
            push(u, (state){m->time, live});
        }
    }
}

/* Every way to let `choice` join `stays` within `room` that no other way contains; `refused` had to go. */
static void choose(brute *u, const move *m, set choice, set stays, set refused, ckpt_bytes room)
{
    if (choice == 0) {
        for (int b = 0; b < u->graph->buffer_count; b++) {
            if ((refused >> b & 1) != 0 && u->bytes[b] <= room) {
                return;
            }
        }
        arrive(u, m, stays);
        return;
    }
    const set lowest = choice & (~choice + 1);
    const ckpt_bytes bytes = u->total[lowest];
    if (u->total[choice] <= room) {
        choose(u, m, 0, stays | choice, refused, room - u->total[choice]);
        return;
    }
    if (bytes <= room) {
        choose(u, m, choice & ~lowest, stays | lowest, refused, room - bytes);
    }
    choose(u, m, choice & ~lowest, stays, refused | lowest, room);
}

static void run(brute *u, int done, state from, int o)
{
    const ckpt_graph_op *const op = &u->graph->op[o];
    const bool first = o == done;
    const int after = first ? done + 1 : done;
    if ((u->needs[o] & ~from.live) != 0 || (!first && (u->writes[o] & u->useful[done] & ~from.live) == 0)) {
        return;
    }
    const set rest = from.live & ~u->writes[o] & ~u->needs[o];
    move m = {first, u->needs[o], u->writes[o], u->useful[after], from.time + op->time_ns};
    const ckpt_bytes room = u->limit - u->total[u->needs[o]] - u->total[u->writes[o]] - op->workspace_bytes;
    if (room >= 0) {
        choose(u, &m, rest, 0, 0, room);
    }
    if (u->destroyed[o] != 0 && room < u->total[rest]) {
        m.kept &= ~u->destroyed[o];
        const ckpt_bytes more = room + u->total[u->destroyed[o]];
        if (more >= 0) {
            choose(u, &m, rest, 0, 0, more);
        }
    }
}

/* All states of a layer, the cheapest first, and from each every run. */
static ckpt_ns settle(brute *u, int done)
{
    const set outputs = set_of(&u->graph->outputs);
    while (u->heap_count > 0) {
        const state now = pop(u);
        if (now.time > u->best[0][now.live]) {
            continue;
        }
        if (done == u->graph->op_count && (outputs & ~now.live) == 0) {
            return now.time;
        }
        for (int o = 0; o <= done && o < u->graph->op_count; o++) {
            if (o == done || (u->recomputed[done] >> o & 1) != 0) {
                run(u, done, now, o);
            }
        }
    }
    return INT64_MAX;
}

/* The same with reruns in reference order only: op by op, each from every state that those before it led to. The heap
 * is a plain list here. */
static ckpt_ns settle_staged(brute *u, int done)
{
    const set outputs = set_of(&u->graph->outputs);
    for (int i = 0; i <= u->rounds * done && (i < u->rounds * done || done < u->graph->op_count); i++) {
        const int o = i < u->rounds * done ? i % done : done;
        if (o == done || (u->recomputed[done] >> o & 1) != 0) {
            const int count = u->heap_count; /* what this op leads to comes behind */
            for (int k = 0; k < count; k++) {
                const set live = u->heap[k].live;
                run(u, done, (state){u->best[0][live], live}, o);
            }
        }
    }
    ckpt_ns end = INT64_MAX;
    for (int i = 0; i < u->heap_count && done == u->graph->op_count; i++) {
        const set live = u->heap[i].live;
        end = (outputs & ~live) == 0 && u->best[0][live] < end ? u->best[0][live] : end;
    }
    return end;
}

static ckpt_ns solve(brute *u, ckpt_bytes limit)
{
    const size_t sets = (size_t)1 << u->graph->buffer_count;
    u->limit = limit;
    for (size_t s = 0; s < sets; s++) {
        u->best[0][s] = INT64_MAX;
    }
    u->best[0][0] = 0;
    ckpt_ns end = INT64_MAX;
    for (int done = 0; done <= u->graph->op_count; done++) {
        u->heap_count = 0;
        for (size_t s = 0; s < sets; s++) {
            u->best[1][s] = INT64_MAX;
            if (u->best[0][s] < INT64_MAX) {
                push(u, (state){u->best[0][s], (set)s});
            }
        }
        end = u->rounds > 0 ? settle_staged(u, done) : settle(u, done);
        ckpt_ns *const next = u->best[1];
        u->best[1] = u->best[0];
        u->best[0] = next;
    }
    return end;
}

ckpt_ns ckpt_brute_time(const ckpt_graph *graph, ckpt_bytes limit, ckpt_brute_class of)
{
    brute u;
    brute_init(&u, graph, of);
    const ckpt_ns time = solve(&u, limit);
    brute_fini(&u);
    return time;
}

ckpt_bytes ckpt_brute_peak(const ckpt_graph *graph, ckpt_brute_class of)
{
    brute u;
    brute_init(&u, graph, of);
    ckpt_bytes low = -1; /* there is no schedule */
    ckpt_bytes high = u.total[((size_t)1 << graph->buffer_count) - 1];
    for (int o = 0; o < graph->op_count; o++) {
        high += graph->op[o].workspace_bytes;
    }
    while (high - low > 1) {
        const ckpt_bytes middle = low + (high - low) / 2;
        *(solve(&u, middle) < INT64_MAX ? &high : &low) = middle;
    }
    brute_fini(&u);
    return high;
}

/* ---- graphs ---- */

enum { LIST_MAX = 8 };

typedef struct build {
    ckpt_arena *arena;
    ckpt_graph_op op[CKPT_BRUTE_OPS];
    ckpt_buffer buffer[2 * CKPT_BRUTE_BUFFERS];
    int op_count, buffer_count;
} build;

static int add_buffer(build *b, ckpt_bytes bytes, ckpt_kind kind)
{
    assert_true(b->buffer_count < 2 * CKPT_BRUTE_BUFFERS);
    b->buffer[b->buffer_count] = (ckpt_buffer){ckpt_arena_format(b->arena, "t%d", b->buffer_count), bytes, kind};
    return b->buffer_count++;
}

static ckpt_graph_op *add_op(build *b, ckpt_phase phase, ckpt_ns time, ckpt_bytes workspace)
{
    assert_true(b->op_count < CKPT_BRUTE_OPS);
    ckpt_graph_op *const op = &b->op[b->op_count];
    const char *const name = ckpt_arena_format(b->arena, "op%d", b->op_count++);
    *op = (ckpt_graph_op){.name = name,
                          .phase = phase,
                          .layer = name,
                          .time_ns = time,
                          .workspace_bytes = workspace,
                          .recompute = phase == CKPT_FORWARD};
    return op;
}

static void list_add(const build *b, ckpt_list *list, int buffer)
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

static void add_pair(const build *b, ckpt_graph_op *op, int out, int in)
{
    ckpt_inplace *const pair = CKPT_NEW(b->arena, ckpt_inplace, 1);
    assert_non_null(pair);
    *pair = (ckpt_inplace){out, in};
    op->inplace = pair;
    op->inplace_count = 1;
}

/* An elementwise layer may write its output over its input, forward and backward; a saved tensor, the input or the
 * output is what its backward reads. Now and then a layer adds an earlier value to its own: a residual connection. */
static void step_in_place(build *b, ckpt_dice *dice)
{
    enum { LAYERS_MAX = 5 };
    const int layers = 3 + ckpt_dice_roll(dice, LAYERS_MAX - 2);
    int value[LAYERS_MAX + 1], saved[LAYERS_MAX + 1], skip[LAYERS_MAX + 1], reads[LAYERS_MAX + 1];
    ckpt_bytes size = 1 + ckpt_dice_roll(dice, 40);
    for (int i = 0; i < layers; i++) {
        const bool same = i > 0 && ckpt_dice_roll(dice, 3) > 0;
        size = same ? size : 1 + ckpt_dice_roll(dice, 40);
        ckpt_graph_op *const op = add_op(b, CKPT_FORWARD, 1 + ckpt_dice_roll(dice, 50),
                                         ckpt_dice_roll(dice, 3) == 0 ? ckpt_dice_roll(dice, 20) : 0);
        value[i] = add_buffer(b, size, CKPT_ACTIVATION);
        list_add(b, &op->writes, value[i]);
        skip[i] = i > 1 && ckpt_dice_roll(dice, 3) == 0 ? ckpt_dice_roll(dice, i - 1) : -1;
        if (i > 0) {
            list_add(b, &op->reads, value[i - 1]);
        }
        if (skip[i] >= 0) {
            list_add(b, &op->reads, value[skip[i]]);
        }
        if (same) {
            add_pair(b, op, value[i], value[i - 1]);
        }
        reads[i] = ckpt_dice_roll(dice, 3); /* backward reads: saved tensor, input, output */
        saved[i] = -1;
        if (reads[i] == 0) {
            saved[i] = add_buffer(b, 1 + ckpt_dice_roll(dice, 20), CKPT_SAVED);
            list_add(b, &op->writes, saved[i]);
        }
    }
    int gradient[LAYERS_MAX + 1];
    for (int i = 0; i <= layers; i++) {
        gradient[i] = -1;
    }
    for (int i = layers - 1; i >= 0; i--) {
        ckpt_graph_op *const op = add_op(b, CKPT_BACKWARD, 1 + ckpt_dice_roll(dice, 50), 0);
        if (gradient[i] >= 0) {
            list_add(b, &op->reads, gradient[i]);
        }
        if (reads[i] == 0) {
            list_add(b, &op->reads, saved[i]);
        } else if (reads[i] == 1 && i > 0) {
            list_add(b, &op->reads, value[i - 1]);
        } else if (reads[i] == 2) {
            list_add(b, &op->reads, value[i]);
        }
        const int into[] = {i - 1, skip[i]};
        for (int k = 0; k < 2; k++) {
            const int j = into[k];
            if (j < 0) {
                continue;
            }
            if (gradient[j] < 0) {
                gradient[j] = add_buffer(b, b->buffer[value[j]].bytes, CKPT_GRADIENT);
                list_add(b, &op->writes, gradient[j]);
                if (k == 0 && gradient[i] >= 0 && b->buffer[gradient[i]].bytes == b->buffer[gradient[j]].bytes) {
                    add_pair(b, op, gradient[j], gradient[i]);
                }
            } else {
                list_add(b, &op->adds, gradient[j]);
            }
        }
    }
}

/* Any DAG at all: the first part is called forward. */
static void any_graph(build *b, ckpt_dice *dice)
{
    const int ops = 4 + ckpt_dice_roll(dice, 8);
    const int forward = 2 + ckpt_dice_roll(dice, ops - 2);
    for (int o = 0; o < ops; o++) {
        ckpt_graph_op *const op = add_op(b, o < forward ? CKPT_FORWARD : CKPT_BACKWARD, ckpt_dice_roll(dice, 60),
                                         ckpt_dice_roll(dice, 4) == 0 ? ckpt_dice_roll(dice, 40) : 0);
        op->recompute = ckpt_dice_roll(dice, o < forward ? 8 : 2) > 0;
        const int made = b->buffer_count;
        for (int reads = ckpt_dice_roll(dice, 3) + (o > 0); reads > 0 && made > 0; reads--) {
            const int near = made < 4 || ckpt_dice_roll(dice, 3) == 0 ? 0 : made - 4;
            list_add(b, &op->reads, near + ckpt_dice_roll(dice, made - near));
        }
        const ckpt_kind kind = o < forward ? CKPT_ACTIVATION : CKPT_GRADIENT;
        const int input = op->reads.count > 0 ? op->reads.at[0] : -1;
        const bool pair = input >= 0 && ckpt_dice_roll(dice, 4) == 0;
        const int out = add_buffer(b, pair ? b->buffer[input].bytes : ckpt_dice_roll(dice, 50), kind);
        list_add(b, &op->writes, out);
        if (pair) {
            add_pair(b, op, out, input);
        }
        if (ckpt_dice_roll(dice, 4) == 0) {
            list_add(b, &op->writes, add_buffer(b, ckpt_dice_roll(dice, 30), CKPT_SAVED));
        }
    }
}

static ckpt_graph *finish(build *b, bool any, ckpt_dice *dice)
{
    ckpt_graph *const graph = CKPT_NEW(b->arena, ckpt_graph, 1);
    ckpt_graph_op *const op = CKPT_NEW(b->arena, ckpt_graph_op, b->op_count);
    ckpt_buffer *const buffer = CKPT_NEW(b->arena, ckpt_buffer, b->buffer_count);
    assert_true(graph != NULL && op != NULL && buffer != NULL);
    memcpy(op, b->op, (size_t)b->op_count * sizeof *op);
    memcpy(buffer, b->buffer, (size_t)b->buffer_count * sizeof *buffer);
    *graph = (ckpt_graph){.source = "test",
                          .name = "small",
                          .buffer = buffer,
                          .buffer_count = b->buffer_count,
                          .op = op,
                          .op_count = b->op_count};
    if (any) {
        list_add(b, &graph->outputs, b->buffer_count - 1);
        list_add(b, &graph->outputs, ckpt_dice_roll(dice, b->buffer_count));
    }
    ckpt_err err = {0};
    CHECK_OK(ckpt_graph_check(graph, b->arena, &err), err);
    return graph;
}

ckpt_graph *ckpt_brute_graph(ckpt_arena *arena, uint64_t seed, bool *chain)
{
    ckpt_dice dice = {seed};
    const int kind = (int)(seed % 6);
    if (chain != NULL) {
        *chain = kind == 0;
    }
    ckpt_graph *graph = NULL;
    for (uint64_t recomputed = seed;; recomputed += 1000003) { /* until it is small enough */
        build b = {.arena = arena};
        int first[8];
        switch (kind) {
        case 0: graph = ckpt_test_chain(arena, recomputed, 2 + ckpt_dice_roll(&dice, 4), 30, 1, 50); break;
        case 1: graph = ckpt_test_blocks(arena, recomputed, 2 + ckpt_dice_roll(&dice, 2), 30, 50, first); break;
        case 2:
        case 3: graph = ckpt_test_step(arena, recomputed, 3 + ckpt_dice_roll(&dice, 3)); break;
        case 4:
            step_in_place(&b, &dice);
            graph = finish(&b, false, &dice);
            break;
        default:
            any_graph(&b, &dice);
            graph = finish(&b, true, &dice);
            break;
        }
        if (graph->buffer_count <= CKPT_BRUTE_BUFFERS && graph->op_count <= CKPT_BRUTE_OPS) {
            return graph;
        }
    }
}

/* Random plans full of copies. */
#include "tests/support/support_test.h"

#include "tests/support/support_copies.h"

#include <string.h>

#include "kernels/philox.h"

typedef struct stay {
    int allocation; /* open place; -1: not in memory */
    int added;      /* additions in what is in memory */
    int copied;     /* additions in the copy on the host; -1: none */
    int uses;       /* ops that still read it or add to it */
    bool kept;      /* an output: stays to the end */
} stay;

typedef struct maker {
    test_train *t;
    const ckpt_graph *graph;
    ckpt_plan *plan;
    ckpt_step *step;
    ckpt_allocation *allocation;
    stay *buffer;
    uint64_t seed;
    uint32_t drawn;
} maker;

static bool chance(maker *m, int percent)
{
    uint32_t word[4];
    ckpt_philox_block(m->seed, 0, 0, 9, m->drawn++, word);
    return word[0] % 100 < (uint32_t)percent;
}

static int add_step(maker *m, ckpt_step_kind kind, int target)
{
    const char *const name = kind == CKPT_RUN ? m->graph->op[target].name : m->graph->buffer[target].name;
    m->step[m->plan->step_count] = (ckpt_step){.kind = kind, .name = name, .target = target};
    return m->plan->step_count++;
}

/* The lowest offset at which no place that is still open at `step` lies. */
static ckpt_bytes find_room(const maker *m, int step, ckpt_bytes bytes)
{
    ckpt_bytes offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int p = 0; p < m->plan->allocation_count; p++) {
            const ckpt_allocation *const other = &m->allocation[p];
            if ((other->to < 0 || other->to >= step) && offset < other->offset + other->bytes &&
                other->offset < offset + bytes) {
                offset = other->offset + other->bytes;
                moved = true;
            }
        }
    }
    return offset;
}

static void open_place(maker *m, int buffer, int step, ckpt_bytes bytes, ckpt_bytes offset)
{
    const char *const name = buffer < 0 ? "workspace" : m->graph->buffer[buffer].name;
    const ckpt_bytes at = offset >= 0 ? offset : find_room(m, step, bytes);
    if (buffer >= 0) {
        m->buffer[buffer].allocation = m->plan->allocation_count;
    }
    m->allocation[m->plan->allocation_count++] =
        (ckpt_allocation){name, buffer, step, buffer < 0 ? step : -1, at, bytes};
    if (at + bytes > m->plan->arena_bytes) {
        m->plan->arena_bytes = at + bytes;
    }
}

static void leave(maker *m, int buffer)
{
    m->allocation[m->buffer[buffer].allocation].to = add_step(m, CKPT_FREE, buffer);
    m->buffer[buffer].allocation = -1;
}

static void fetch(maker *m, int buffer)
{
    const int step = add_step(m, CKPT_FETCH, buffer);
    open_place(m, buffer, step, m->graph->buffer[buffer].bytes, -1);
    m->buffer[buffer].added = m->buffer[buffer].copied;
}

static void offload(maker *m, int buffer)
{
    stay *const b = &m->buffer[buffer];
    add_step(m, CKPT_OFFLOAD, buffer);
    m->plan->offload_bytes += m->graph->buffer[buffer].bytes;
    m->plan->host_bytes += b->copied < 0 ? m->graph->buffer[buffer].bytes : 0;
    b->copied = b->added;
}

static void bring_back(maker *m, const ckpt_list *list)
{
    for (int i = 0; i < list->count; i++) {
        if (m->buffer[list->at[i]].allocation < 0) {
            fetch(m, list->at[i]);
        }
    }
}

/* May the op take the place of this input: nobody needs it any more, or there is a copy to come back from? */
static bool may_destroy(const maker *m, int buffer)
{
    const stay *const b = &m->buffer[buffer];
    return !b->kept && (b->uses == 1 || b->copied == b->added);
}

static void run(maker *m, int o)
{
    const ckpt_graph_op *const op = &m->graph->op[o];
    bring_back(m, &op->reads);
    bring_back(m, &op->adds);
    bool inplace = op->inplace_count > 0 && chance(m, 70);
    for (int i = 0; i < op->inplace_count; i++) {
        inplace = inplace && may_destroy(m, op->inplace[i].in);
    }
    const int step = add_step(m, CKPT_RUN, o);
    m->step[step].inplace = inplace;
    ckpt_bytes *const offset = CKPT_NEW(&m->t->arena, ckpt_bytes, m->graph->buffer_count);
    for (int i = 0; i < op->writes.count; i++) {
        offset[op->writes.at[i]] = -1;
    }
    for (int i = 0; inplace && i < op->inplace_count; i++) {
        stay *const in = &m->buffer[op->inplace[i].in];
        offset[op->inplace[i].out] = m->allocation[in->allocation].offset;
        m->allocation[in->allocation].to = step - 1;
        in->allocation = -1;
    }
    for (int i = 0; i < op->writes.count; i++) {
        const int b = op->writes.at[i];
        open_place(m, b, step, m->graph->buffer[b].bytes, offset[b]);
    }
    if (op->workspace_bytes > 0) {
        open_place(m, -1, step, op->workspace_bytes, -1);
    }
    for (int i = 0; i < op->reads.count; i++) {
        m->buffer[op->reads.at[i]].uses--;
    }
    for (int i = 0; i < op->adds.count; i++) {
        m->buffer[op->adds.at[i]].uses--;
        m->buffer[op->adds.at[i]].added++;
    }
}

/* What may happen between two ops. */
static void move_about(maker *m)
{
    for (int i = 0; i < m->graph->buffer_count; i++) {
        stay *const b = &m->buffer[i];
        if (b->allocation >= 0) {
            if (chance(m, b->copied == b->added ? 3 : 25)) {
                offload(m, i);
            }
            if (!b->kept && (b->uses == 0 ? chance(m, 60) : b->copied == b->added && chance(m, 40))) {
                leave(m, i);
            }
        } else if (b->copied >= 0 && (b->uses > 0 ? chance(m, 10) : chance(m, 2))) {
            fetch(m, i);
        }
    }
}

static void count_uses(maker *m)
{
    for (int o = 0; o < m->graph->op_count; o++) {
        const ckpt_list *const list[] = {&m->graph->op[o].reads, &m->graph->op[o].adds};
        for (int l = 0; l < 2; l++) {
            for (int i = 0; i < list[l]->count; i++) {
                m->buffer[list[l]->at[i]].uses++;
            }
        }
    }
    for (int i = 0; i < m->graph->outputs.count; i++) {
        m->buffer[m->graph->outputs.at[i]].kept = true;
    }
}

static ckpt_bytes most_live(const ckpt_plan *plan)
{
    ckpt_bytes most = 0;
    for (int s = 0; s < plan->step_count; s++) {
        ckpt_bytes live = 0;
        for (int p = 0; p < plan->allocation_count; p++) {
            live += plan->allocation[p].from <= s && s <= plan->allocation[p].to ? plan->allocation[p].bytes : 0;
        }
        most = live > most ? live : most;
    }
    return most;
}

ckpt_plan *test_copies_plan(test_train *t, uint64_t seed)
{
    const ckpt_graph *const graph = t->lowered->graph;
    const size_t room = 8 * (size_t)(graph->op_count + 1) * (size_t)graph->buffer_count;
    maker m = {.t = t, .graph = graph, .seed = seed};
    m.plan = CKPT_NEW(&t->arena, ckpt_plan, 1);
    m.step = CKPT_NEW(&t->arena, ckpt_step, room);
    m.allocation = CKPT_NEW(&t->arena, ckpt_allocation, room);
    m.buffer = CKPT_NEW(&t->arena, stay, graph->buffer_count);
    for (int b = 0; b < graph->buffer_count; b++) {
        m.buffer[b].allocation = m.buffer[b].copied = -1;
    }
    *m.plan = (ckpt_plan){.source = "a random plan",
                          .graph_name = graph->name,
                          .static_bytes = graph->static_bytes,
                          .solver = "random",
                          .costs = "",
                          .bound_how = "",
                          .bound_scope = "",
                          .gpu = t->lowered->network->threads == CKPT_ON_GPU,
                          .step = m.step,
                          .allocation = m.allocation};
    count_uses(&m);
    for (int o = 0; o < graph->op_count; o++) {
        run(&m, o);
        move_about(&m);
    }
    bring_back(&m, &graph->outputs);
    for (int p = 0; p < m.plan->allocation_count; p++) {
        m.allocation[p].to = m.allocation[p].to < 0 ? m.plan->step_count - 1 : m.allocation[p].to;
    }
    m.plan->budget_bytes = graph->static_bytes + m.plan->arena_bytes;
    m.plan->peak_bytes = graph->static_bytes + most_live(m.plan);
    ckpt_err err = {0};
    CHECK_OK(ckpt_graph_digest(graph, m.plan->graph_sha256, &err), err);
    CHECK_OK(ckpt_plan_check_run(m.plan, graph, &err), err);
    return m.plan;
}

static bool is_fetched(const ckpt_plan *plan, int offload)
{
    for (int s = offload + 1; s < plan->step_count; s++) {
        if (plan->step[s].target == plan->step[offload].target && plan->step[s].kind != CKPT_RUN &&
            plan->step[s].kind != CKPT_FREE) {
            return plan->step[s].kind == CKPT_FETCH;
        }
    }
    return false;
}

ckpt_plan *test_copies_needed(test_train *t, const ckpt_plan *plan)
{
    const ckpt_graph *const graph = t->lowered->graph;
    ckpt_plan *const made = CKPT_NEW(&t->arena, ckpt_plan, 1);
    ckpt_step *const step = CKPT_NEW(&t->arena, ckpt_step, plan->step_count);
    ckpt_allocation *const allocation = CKPT_NEW(&t->arena, ckpt_allocation, plan->allocation_count);
    int *const kept = CKPT_NEW(&t->arena, int, plan->step_count + 1); /* steps kept before each */
    bool *const on_host = CKPT_NEW(&t->arena, bool, graph->buffer_count);
    *made = *plan;
    made->step = step;
    made->allocation = allocation;
    made->step_count = 0;
    made->offload_bytes = made->host_bytes = 0;
    for (int s = 0; s < plan->step_count; s++) {
        kept[s] = made->step_count;
        const bool copies = plan->step[s].kind == CKPT_OFFLOAD;
        if (copies && !is_fetched(plan, s)) {
            continue;
        }
        if (copies) {
            const int b = plan->step[s].target;
            made->offload_bytes += graph->buffer[b].bytes;
            made->host_bytes += on_host[b] ? 0 : graph->buffer[b].bytes;
            on_host[b] = true;
        }
        step[made->step_count++] = plan->step[s];
    }
    kept[plan->step_count] = made->step_count;
    for (int p = 0; p < plan->allocation_count; p++) {
        allocation[p] = plan->allocation[p];
        allocation[p].from = kept[allocation[p].from];
        allocation[p].to = kept[allocation[p].to + 1] - 1;
    }
    ckpt_err err = {0};
    CHECK_OK(ckpt_plan_check_run(made, graph, &err), err);
    return made;
}

int test_steps_of(const ckpt_plan *plan, ckpt_step_kind kind)
{
    int count = 0;
    for (int s = 0; s < plan->step_count; s++) {
        count += plan->step[s].kind == kind;
    }
    return count;
}

/* From an order of runs to steps with frees.
 *
 * A buffer lives from the run that writes it to its last use before its next rewrite, or before the end; what nobody
 * uses goes right after its run. So an op that runs again always finds the places of its outputs empty, and what a
 * strategy drops is decided by where it runs things again: there is no second list of decisions to contradict it. */
#include <string.h>

#include "planner/planner_impl.h"

/* Copies lie below zero: -1 - 4 buffer - kind. */
int ckpt_sequence_copy(ckpt_step_kind kind, int buffer)
{
    return -1 - 4 * buffer - (int)kind;
}

ckpt_step_kind ckpt_sequence_kind(int entry, int *target)
{
    *target = entry >= 0 ? entry : (-1 - entry) / 4;
    return entry >= 0 ? CKPT_RUN : (ckpt_step_kind)((-1 - entry) % 4);
}

void ckpt_order_init(ckpt_order *order)
{
    *order = (ckpt_order){0};
}

void ckpt_order_fini(ckpt_order *order)
{
    ckpt_memory_put(order->op);
    ckpt_order_init(order);
}

void ckpt_order_add(ckpt_order *order, int op)
{
    if (order->count == order->room) {
        const int room = order->room > 0 ? 2 * order->room : 256;
        int *const grown = room < (1 << 28) ? ckpt_memory_resize(order->op, (size_t)room * sizeof *order->op) : NULL;
        if (grown == NULL) {
            order->failed = true;
            return;
        }
        order->op = grown;
        order->room = room;
    }
    order->op[order->count++] = op;
}

void ckpt_order_range(ckpt_order *order, int from, int to)
{
    for (int o = from; o < to; o++) {
        ckpt_order_add(order, o);
    }
}

ckpt_code ckpt_order_measure(const ckpt_order *order, const ckpt_graph *graph, ckpt_arena *scratch,
                             ckpt_candidate *measured, ckpt_err *err)
{
    if (order->failed) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "sequence of %d runs", order->count);
    }
    measured->sequence = (ckpt_sequence){order->op, order->count};
    return ckpt_sequence_measure(graph, &measured->sequence, scratch, &measured->peak, &measured->time, err);
}

/* No slower and no larger. */
static bool as_good(const ckpt_candidate *a, const ckpt_candidate *b)
{
    return a->time <= b->time && a->peak <= b->peak;
}

/* Keep the candidates in the order of their times, without those that another makes needless. The slowest goes when
 * there are too many. */
void ckpt_answer_add(ckpt_answer *answer, const ckpt_candidate *added)
{
    for (int i = 0; i < answer->count; i++) {
        if (as_good(&answer->candidate[i], added)) {
            return;
        }
    }
    int kept = 0;
    for (int i = 0; i < answer->count; i++) {
        if (!as_good(added, &answer->candidate[i])) {
            answer->candidate[kept++] = answer->candidate[i];
        }
    }
    kept = kept == CKPT_CANDIDATES_MAX ? kept - 1 : kept;
    int at = kept;
    for (; at > 0 && answer->candidate[at - 1].time > added->time; at--) {
        answer->candidate[at] = answer->candidate[at - 1];
    }
    answer->candidate[at] = *added;
    answer->count = kept + 1;
}

/* A copy that outlives the order. */
static ckpt_code copy_order(const ckpt_order *order, ckpt_arena *out, ckpt_candidate *copied, ckpt_err *err)
{
    int *const op = CKPT_NEW(out, int, order->count);
    if (op == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "sequence of %d runs", order->count);
    }
    if (order->count > 0) {
        memcpy(op, order->op, (size_t)order->count * sizeof *op);
    }
    copied->sequence = (ckpt_sequence){op, order->count};
    return CKPT_OK;
}

static ckpt_code end(ckpt_order *order, const ckpt_graph *graph, ckpt_bytes limit, bool any_limit, ckpt_arena *out,
                     ckpt_answer *answer, ckpt_err *err)
{
    ckpt_candidate added = {0};
    CKPT_TRY(ckpt_order_measure(order, graph, out, &added, err));
    const bool countable = added.time < INT64_MAX;
    bool wanted = countable && added.peak <= limit;
    for (int i = 0; i < answer->count; i++) {
        wanted = wanted && !as_good(&answer->candidate[i], &added);
    }
    const ckpt_candidate *const least = &answer->least;
    const bool is_least = any_limit && countable &&
                          (least->sequence.op == NULL || added.peak < least->peak ||
                           (added.peak == least->peak && added.time < least->time));
    if (wanted || is_least) {
        CKPT_TRY(copy_order(order, out, &added, err));
    }
    if (wanted) {
        ckpt_answer_add(answer, &added);
    }
    if (is_least) {
        answer->least = added;
    }
    order->count = 0;
    return CKPT_OK;
}

ckpt_code ckpt_order_offer(ckpt_order *order, const ckpt_graph *graph, ckpt_bytes limit, ckpt_arena *out,
                           ckpt_answer *answer, ckpt_err *err)
{
    return end(order, graph, limit, false, out, answer, err);
}

ckpt_code ckpt_order_end(ckpt_order *order, const ckpt_graph *graph, ckpt_bytes limit, ckpt_arena *out,
                         ckpt_answer *answer, ckpt_err *err)
{
    return end(order, graph, limit, true, out, answer, err);
}

/* Which buffers go after which run: dead[from[t]] .. dead[from[t + 1] - 1] after run t. */
typedef struct deaths {
    int *dead;
    int *from;
} deaths;

/* Backwards: the first use that is met is the last one, unless a rewrite came after it. */
static ckpt_code find_deaths(const ckpt_graph *graph, const ckpt_sequence *sequence, ckpt_arena *scratch, deaths *d,
                             ckpt_err *err)
{
    size_t uses = 0;
    for (int t = 0; t < sequence->count; t++) {
        const ckpt_graph_op *const op = &graph->op[sequence->op[t]];
        uses += (size_t)op->reads.count + (size_t)op->adds.count + (size_t)op->writes.count;
    }
    if (uses > (size_t)1 << 30) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "a sequence of %d runs uses more than 2^30 buffers", sequence->count);
    }
    d->dead = CKPT_NEW(scratch, int, uses);
    d->from = CKPT_NEW(scratch, int, sequence->count + 1);
    bool *const wanted = CKPT_NEW(scratch, bool, graph->buffer_count); /* used later, before any rewrite */
    if (d->dead == NULL || d->from == NULL || wanted == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "last uses of %d runs", sequence->count);
    }
    for (int i = 0; i < graph->outputs.count; i++) {
        wanted[graph->outputs.at[i]] = true;
    }
    int at = (int)uses;
    d->from[sequence->count] = at;
    for (int t = sequence->count - 1; t >= 0; t--) {
        const ckpt_graph_op *const op = &graph->op[sequence->op[t]];
        const ckpt_list *const used[] = {&op->writes, &op->adds, &op->reads};
        for (int l = 0; l < 3; l++) {
            for (int i = 0; i < used[l]->count; i++) {
                const int b = used[l]->at[i];
                if (!wanted[b]) {
                    d->dead[--at] = b;
                }
                wanted[b] = l > 0;
            }
        }
        d->from[t] = at;
    }
    return CKPT_OK;
}

ckpt_code ckpt_sequence_measure(const ckpt_graph *graph, const ckpt_sequence *sequence, ckpt_arena *scratch,
                                ckpt_bytes *peak, ckpt_ns *time, ckpt_err *err)
{
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    deaths d;
    CKPT_TRY(find_deaths(graph, sequence, scratch, &d, err));
    ckpt_bytes live = 0;
    ckpt_bytes most = 0;
    ckpt_ns sum = 0;
    for (int t = 0; t < sequence->count; t++) {
        const ckpt_graph_op *const op = &graph->op[sequence->op[t]];
        for (int i = 0; i < op->writes.count; i++) {
            live += graph->buffer[op->writes.at[i]].bytes;
        }
        most = live + op->workspace_bytes > most ? live + op->workspace_bytes : most;
        for (int i = d.from[t]; i < d.from[t + 1]; i++) {
            live -= graph->buffer[d.dead[i]].bytes;
        }
        if (!ckpt_sum(sum, op->time_ns, &sum)) {
            sum = INT64_MAX;
        }
    }
    ckpt_arena_rewind(scratch, mark);
    *peak = most;
    *time = sum;
    return CKPT_OK;
}

/* What the loop over runs carries. */
typedef struct writer {
    const ckpt_graph *graph;
    ckpt_step *step;
    ckpt_place *place;
    int step_count, place_count;
    int *open; /* per buffer: its place while in memory */
    bool *ran; /* per op */
    ckpt_plan *plan;
    ckpt_bytes live, most;
} writer;

static void write_run(writer *w, int o)
{
    const ckpt_graph_op *const op = &w->graph->op[o];
    const int now = w->step_count++;
    w->step[now] = (ckpt_step){.kind = CKPT_RUN, .name = op->name, .target = o, .again = w->ran[o]};
    for (int i = 0; i < op->writes.count; i++) {
        const int b = op->writes.at[i];
        const ckpt_buffer *const buffer = &w->graph->buffer[b];
        w->open[b] = w->place_count;
        w->place[w->place_count++] =
            (ckpt_place){.name = buffer->name, .buffer = b, .from = now, .to = -1, .bytes = buffer->bytes};
        w->live += buffer->bytes;
    }
    if (op->workspace_bytes > 0) {
        w->place[w->place_count++] =
            (ckpt_place){.name = "workspace", .buffer = -1, .from = now, .to = now, .bytes = op->workspace_bytes};
    }
    w->most = w->live + op->workspace_bytes > w->most ? w->live + op->workspace_bytes : w->most;
    w->plan->time_ns += op->time_ns;
    w->plan->recompute_ns += w->ran[o] ? op->time_ns : 0;
    w->ran[o] = true;
}

static void write_free(writer *w, int b)
{
    const ckpt_buffer *const buffer = &w->graph->buffer[b];
    w->place[w->open[b]].to = w->step_count;
    w->step[w->step_count++] = (ckpt_step){.kind = CKPT_FREE, .name = buffer->name, .target = b};
    w->live -= buffer->bytes;
}

ckpt_code ckpt_sequence_steps(const ckpt_graph *graph, const ckpt_sequence *sequence, ckpt_arena *out, ckpt_plan *plan,
                              ckpt_err *err)
{
    size_t writes = 0;
    size_t workspaces = 0;
    ckpt_ns time = 0;
    for (int t = 0; t < sequence->count; t++) {
        const ckpt_graph_op *const op = &graph->op[sequence->op[t]];
        writes += (size_t)op->writes.count;
        workspaces += op->workspace_bytes > 0;
        if (!ckpt_sum(time, op->time_ns, &time)) {
            return CKPT_FAIL(err, CKPT_OVERFLOW, "%d runs take more than 2^63 ns", sequence->count);
        }
    }
    if (writes > (size_t)1 << 29) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "a sequence of %d runs writes more than 2^29 buffers", sequence->count);
    }
    writer w = {
        .graph = graph,
        .step = CKPT_NEW(out, ckpt_step, (size_t)sequence->count + writes),
        .place = CKPT_NEW(out, ckpt_place, writes + workspaces),
        .plan = plan,
    };
    const ckpt_mark mark = ckpt_arena_mark(out);
    w.open = CKPT_NEW(out, int, graph->buffer_count);
    w.ran = CKPT_NEW(out, bool, graph->op_count);
    if (w.step == NULL || w.place == NULL || w.open == NULL || w.ran == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "steps of %d runs", sequence->count);
    }
    deaths d;
    CKPT_TRY(find_deaths(graph, sequence, out, &d, err));
    plan->time_ns = plan->recompute_ns = 0;
    for (int t = 0; t < sequence->count; t++) {
        write_run(&w, sequence->op[t]);
        for (int i = d.from[t]; i < d.from[t + 1]; i++) {
            write_free(&w, d.dead[i]);
        }
    }
    for (int i = 0; i < w.place_count; i++) {
        w.place[i].to = w.place[i].to < 0 ? w.step_count - 1 : w.place[i].to;
    }
    ckpt_arena_rewind(out, mark);
    plan->step = w.step;
    plan->step_count = w.step_count;
    plan->place = w.place;
    plan->place_count = w.place_count;
    plan->peak_bytes = graph->static_bytes + w.most;
    return CKPT_OK;
}

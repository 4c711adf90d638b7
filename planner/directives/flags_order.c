/* The order of runs that the user's flags ask for. Names of segments give the units: "h.0", and "h.0/h.0.mlp" for a
 * unit inside it. A buffer's depth says how many of the units around its writer, counted from the outermost, drop it
 * when they end. At depth 0 it stays in memory. */
#include <stdlib.h>
#include <string.h>

#include "planner/directives/flags.h"
#include "planner/replay/clock.h"
#include "planner/schedule/batches.h"

enum { DEPTH_MAX = 64 }; /* units inside units; deeper ones count as the last of them */

typedef struct obeyed {
    const ckpt_graph *graph;
    bool prefer;
    int *unit;        /* per op: the innermost around it; -1: none */
    int *parent;      /* per unit: the one around it; -1: none */
    int *depth;       /* per unit: 1 for an outermost one */
    int *last;        /* per unit: its last op */
    bool *recomputed; /* per unit */
    bool *skipped;    /* per unit: its buffers are kept, although it was flagged */
    int units;
    int *hidden;   /* per buffer */
    bool *alive;   /* per buffer: in memory, or to be kept there, when backward comes to it */
    int *last_use; /* per buffer: the last op that reads it */
    int *wanted;   /* per buffer: of which closure */
    int *later;    /* per buffer: likewise, in the recomputation of a unit inside */
    bool *rerun;   /* per op, scratch */
    int closure;
    int *first_unit; /* per micro-batch + 1: the first that was recomputed; -1: none */
    int batches;     /* + 1 */
} obeyed;

static bool must_keep(const obeyed *f, const ckpt_graph_op *op)
{
    return !op->recompute || op->checkpoint == CKPT_NO || op->policy == CKPT_MUST_SAVE ||
           (f->prefer && op->policy == CKPT_PREFER_SAVE);
}

static bool runs_by_itself(const obeyed *f, const ckpt_graph_op *op)
{
    return op->policy == CKPT_MUST_RECOMPUTE || (f->prefer && op->policy == CKPT_PREFER_RECOMPUTE);
}

/* Length of the part of a segment's name that gives the units around an op. A kept op does not count its own. */
static int path_length(const ckpt_graph_op *op)
{
    if (op->phase != CKPT_FORWARD || op->checkpoint == CKPT_UNSET || op->segment == NULL) {
        return 0;
    }
    const char *const slash = strrchr(op->segment, '/');
    return op->checkpoint == CKPT_YES ? (int)strlen(op->segment) : slash != NULL ? (int)(slash - op->segment) : 0;
}

/* Every unit that an op names. */
static ckpt_code list_units(const ckpt_graph *graph, ckpt_arena *scratch, ckpt_named **list, int *count, ckpt_err *err)
{
    int most = 0;
    for (int o = 0; o < graph->op_count; o++) {
        for (int i = 0, length = path_length(&graph->op[o]); i < length; i++) {
            most += graph->op[o].segment[i] == '/';
        }
        most++;
    }
    *list = CKPT_NEW(scratch, ckpt_named, most);
    *count = 0;
    for (int o = 0; *list != NULL && o < graph->op_count; o++) {
        const ckpt_graph_op *const op = &graph->op[o];
        if (op->checkpoint == CKPT_YES && op->segment == NULL && op->phase == CKPT_FORWARD) {
            (*list)[(*count)++] = (ckpt_named){op->name, o};
        }
        const int length = path_length(op);
        for (int i = 1; i <= length; i++) {
            if (i == length || op->segment[i] == '/') {
                const char *const name = ckpt_arena_format(scratch, "%.*s", i, op->segment);
                if (name == NULL) {
                    return CKPT_FAIL(err, CKPT_NO_MEMORY, "name of a unit");
                }
                (*list)[(*count)++] = (ckpt_named){name, o};
            }
        }
    }
    return *list != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "units of %d ops", graph->op_count);
}

static ckpt_code find_units(obeyed *f, ckpt_arena *scratch, ckpt_err *err)
{
    const int ops = f->graph->op_count;
    ckpt_named *list = NULL;
    int count = 0;
    CKPT_TRY(list_units(f->graph, scratch, &list, &count, err));
    f->unit = CKPT_NEW(scratch, int, ops);
    f->parent = CKPT_NEW(scratch, int, count);
    f->depth = CKPT_NEW(scratch, int, count);
    f->last = CKPT_NEW(scratch, int, count);
    f->recomputed = CKPT_NEW(scratch, bool, count);
    f->skipped = CKPT_NEW(scratch, bool, count);
    int *const length = CKPT_NEW(scratch, int, ops);
    if (f->unit == NULL || f->parent == NULL || f->depth == NULL || f->last == NULL || f->recomputed == NULL ||
        f->skipped == NULL || length == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "units of %d ops", ops);
    }
    for (int o = 0; o < ops; o++) {
        f->unit[o] = -1;
    }
    qsort(list, (size_t)count, sizeof *list, ckpt_named_compare);
    for (int i = 0; i < count; i++) {
        const int o = list[i].op;
        if (i == 0 || strcmp(list[i].name, list[i - 1].name) != 0) {
            const int u = f->units++;
            f->parent[u] = f->unit[o]; /* a name sorts behind its own beginnings */
            f->depth[u] = f->parent[u] < 0 ? 1 : f->depth[f->parent[u]] + 1;
        }
        if (f->depth[f->units - 1] <= DEPTH_MAX) {
            f->unit[o] = f->units - 1;
            f->last[f->units - 1] = o;
        }
    }
    return CKPT_OK;
}

/* How many units two ops share, counted from the outermost. */
static int common_depth(const obeyed *f, int a, int b)
{
    int u = f->unit[a];
    int v = f->unit[b];
    while (u != v) {
        const int depth_u = u < 0 ? 0 : f->depth[u];
        const int depth_v = v < 0 ? 0 : f->depth[v];
        u = depth_u >= depth_v ? f->parent[u] : u;
        v = depth_v >= depth_u ? f->parent[v] : v;
    }
    return u < 0 ? 0 : f->depth[u];
}

static int unit_at(const obeyed *f, int op, int depth)
{
    int u = f->unit[op];
    while (f->depth[u] > depth) {
        u = f->parent[u];
    }
    return u;
}

static ckpt_code find_hidden(obeyed *f, ckpt_arena *scratch, ckpt_err *err)
{
    const ckpt_graph *const graph = f->graph;
    f->hidden = CKPT_NEW(scratch, int, graph->buffer_count);
    f->alive = CKPT_NEW(scratch, bool, graph->buffer_count);
    f->last_use = CKPT_NEW(scratch, int, graph->buffer_count);
    f->wanted = CKPT_NEW(scratch, int, graph->buffer_count);
    f->later = CKPT_NEW(scratch, int, graph->buffer_count);
    f->rerun = CKPT_NEW(scratch, bool, graph->op_count);
    if (f->hidden == NULL || f->alive == NULL || f->last_use == NULL || f->wanted == NULL || f->later == NULL ||
        f->rerun == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "units of %d buffers", graph->buffer_count);
    }
    for (int b = 0; b < graph->buffer_count; b++) {
        const int u = f->unit[graph->writer[b]];
        f->hidden[b] = u < 0 ? 0 : f->depth[u];
    }
    for (int o = 0; o < graph->op_count; o++) {
        const ckpt_graph_op *const op = &graph->op[o];
        for (int i = 0; i < op->reads.count; i++) {
            const int b = op->reads.at[i];
            f->last_use[b] = o;
            const int common = op->phase == CKPT_FORWARD ? common_depth(f, o, graph->writer[b]) : DEPTH_MAX;
            f->hidden[b] = common < f->hidden[b] ? common : f->hidden[b];
        }
    }
    for (int i = 0; i < graph->outputs.count; i++) {
        f->hidden[graph->outputs.at[i]] = 0;
    }
    return CKPT_OK;
}

static void find_alive(obeyed *f)
{
    for (int b = 0; b < f->graph->buffer_count; b++) {
        const int w = f->graph->writer[b];
        const ckpt_graph_op *const op = &f->graph->op[w];
        const bool dropped =
            f->unit[w] >= 0 ? f->hidden[b] > 0 && !f->skipped[unit_at(f, w, 1)] : runs_by_itself(f, op);
        f->alive[b] = op->phase != CKPT_FORWARD || must_keep(f, op) || !dropped;
    }
    for (int i = 0; i < f->graph->outputs.count; i++) {
        f->alive[f->graph->outputs.at[i]] = true;
    }
}

/* Recompute, in order, all ops up to `last` that write a wanted buffer. An input of theirs that is not in memory
 * becomes wanted too; deeper than `depth`, only one that the recomputation there will read. */
static void run_closure(obeyed *f, int last, int first, int depth, int wanted, ckpt_order *order)
{
    const ckpt_graph *const graph = f->graph;
    int from = last + 1;
    for (int m = last; m >= 0 && (m >= first || wanted > 0); m--) {
        const ckpt_graph_op *const op = &graph->op[m];
        bool now = false;
        bool later = false;
        for (int i = 0; i < op->writes.count; i++) {
            const int b = op->writes.at[i];
            const bool is_wanted = f->wanted[b] == f->closure && !f->alive[b];
            wanted -= is_wanted;
            now = now || is_wanted;
            later = later || f->later[b] == f->closure;
        }
        for (int i = 0; (now || later) && i < op->reads.count; i++) {
            const int r = op->reads.at[i];
            if (!f->alive[r] && !now && f->hidden[r] > depth) {
                f->later[r] = f->closure;
            } else if (!f->alive[r] && f->wanted[r] != f->closure) {
                f->wanted[r] = f->closure;
                wanted++;
            }
        }
        f->rerun[m] = now;
        from = m;
    }
    for (int m = from; m <= last; m++) {
        const ckpt_graph_op *const op = &graph->op[m];
        for (int i = 0; f->rerun[m] && i < op->writes.count; i++) {
            f->alive[op->writes.at[i]] = f->alive[op->writes.at[i]] || f->hidden[op->writes.at[i]] <= depth;
        }
        if (f->rerun[m]) {
            ckpt_order_add(order, m);
        }
    }
}

/* The op's micro-batch + 1; 0: none. */
static int batch_of(const obeyed *f, int op)
{
    const int batch = f->batches > 1 ? ckpt_batch_of(f->graph->op[op].layer, NULL) : -1;
    return batch + 1 < f->batches ? batch + 1 : 0;
}

/* Marks as wanted what the ops from `now` on read of the unit and what did not leave it. */
static void recompute_unit(obeyed *f, int unit, int first, int now, ckpt_order *order)
{
    const int depth = f->depth[unit];
    int wanted = 0;
    /* Where forward ops follow backward ones, a unit may continue behind `now`. */
    const int last = f->last[unit] < now ? f->last[unit] : now - 1;
    int *const first_unit = &f->first_unit[batch_of(f, f->last[unit])];
    f->recomputed[unit] = true;
    *first_unit = *first_unit < 0 ? unit : *first_unit;
    f->closure++;
    for (int m = last; m >= first; m--) {
        const ckpt_graph_op *const op = &f->graph->op[m];
        const bool member = f->unit[m] >= 0 && f->depth[f->unit[m]] >= depth && unit_at(f, m, depth) == unit;
        for (int i = 0; member && i < op->writes.count; i++) {
            const int b = op->writes.at[i];
            if (!f->alive[b] && f->last_use[b] >= now && f->hidden[b] >= depth) {
                (f->hidden[b] > depth ? f->later : f->wanted)[b] = f->closure;
                wanted += f->hidden[b] == depth;
            }
        }
    }
    run_closure(f, last, first, depth, wanted, order);
}

static void bring(obeyed *f, const int *first, int buffer, int now, ckpt_order *order)
{
    const int writer = f->graph->writer[buffer];
    for (int depth = 1; depth <= f->hidden[buffer]; depth++) {
        const int unit = unit_at(f, writer, depth);
        if (!f->recomputed[unit]) {
            recompute_unit(f, unit, first[unit], now, order);
        }
    }
    if (!f->alive[buffer]) {
        f->wanted[buffer] = ++f->closure;
        run_closure(f, writer, writer, f->hidden[buffer], 1, order);
    }
}

static void write_order(obeyed *f, const int *first, ckpt_order *order)
{
    memset(f->recomputed, 0, (size_t)f->units * sizeof *f->recomputed);
    find_alive(f);
    for (int i = 0; i < f->batches; i++) {
        f->first_unit[i] = -1;
    }
    for (int o = 0; o < f->graph->op_count; o++) {
        const ckpt_graph_op *const op = &f->graph->op[o];
        for (int i = 0; op->phase != CKPT_FORWARD && i < op->reads.count; i++) {
            if (!f->alive[op->reads.at[i]]) {
                bring(f, first, op->reads.at[i], o, order);
            }
        }
        ckpt_order_add(order, o);
    }
}

/* Keeps the last unit of each micro-batch where it would be recomputed: no op that may be recomputed follows it there,
 * so that would save nothing. Returns whether there is one. `last_recomputed`: per micro-batch + 1, scratch. */
static bool skip_last(obeyed *f, int *last_recomputed)
{
    bool any = false;
    for (int i = 0; i < f->batches; i++) {
        last_recomputed[i] = -1;
    }
    for (int o = 0; o < f->graph->op_count; o++) {
        if (f->graph->op[o].phase == CKPT_FORWARD && f->graph->op[o].recompute) {
            last_recomputed[batch_of(f, o)] = o;
        }
    }
    for (int i = 0; i < f->batches; i++) {
        const int unit = f->first_unit[i];
        if (unit >= 0 && last_recomputed[i] <= f->last[unit]) {
            f->skipped[unit] = true;
            any = true;
        }
    }
    return any;
}

static ckpt_code obey(obeyed *f, ckpt_arena *scratch, ckpt_order *order, ckpt_err *err)
{
    CKPT_TRY(find_units(f, scratch, err));
    CKPT_TRY(find_hidden(f, scratch, err));
    int *const first = CKPT_NEW(scratch, int, f->units);
    f->batches = ckpt_batch_count(f->graph) + 1;
    f->first_unit = CKPT_NEW(scratch, int, f->batches);
    if (first == NULL || f->first_unit == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d units", f->units);
    }
    for (int o = f->graph->op_count - 1; o >= 0; o--) {
        for (int u = f->unit[o]; u >= 0; u = f->parent[u]) {
            first[u] = o;
        }
    }
    write_order(f, first, order);
    ckpt_candidate with;
    ckpt_candidate without;
    bool *const skipped = f->skipped;
    int *const last_recomputed = CKPT_NEW(scratch, int, f->batches);
    f->skipped = CKPT_NEW(scratch, bool, f->units);
    if (f->skipped == NULL || last_recomputed == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d units", f->units);
    }
    if (!skip_last(f, last_recomputed)) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_order_measure(order, f->graph, scratch, &with, err));
    order->count = 0;
    write_order(f, first, order);
    CKPT_TRY(ckpt_order_measure(order, f->graph, scratch, &without, err));
    if (without.peak > with.peak) {
        f->skipped = skipped;
        order->count = 0;
        write_order(f, first, order);
    }
    return CKPT_OK;
}

ckpt_code ckpt_flags_order(const ckpt_graph *graph, bool prefer, ckpt_order *order, ckpt_err *err)
{
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    obeyed f = {.graph = graph, .prefer = prefer};
    const ckpt_code code = obey(&f, &scratch, order, err);
    ckpt_arena_fini(&scratch);
    return code;
}

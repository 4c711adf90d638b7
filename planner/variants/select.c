/* Which way of every op: coordinate descent from the ops' own ways, the last op first, until no single change is worth
 * anything. A change of one op is weighed with what follows from it: an optional op that only it reads from runs or does
 * not, another op writes in another way what it reads, and buffers live shorter or longer. */
#include "planner/variants/variants.h"

enum { ROUNDS = 8 };

/* The ops that may read a buffer in one of their ways, ascending. */
typedef struct readers {
    int *op;
    int count;
} readers;

typedef struct selector {
    const ckpt_graph *graph;
    const ckpt_plan_options *options;
    ckpt_bytes limit;
    double price; /* ns for a byte and an op that it lives through */
    int *way;     /* per op: its run; -1: does not run */
    readers *readers;
    bool *is_output;
} selector;

static bool uses(const ckpt_graph_op *way, int b)
{
    return ckpt_list_has(&way->reads, b) || ckpt_list_has(&way->adds, b);
}

/* The last op that uses b as selected; -1: none. */
static int last_use(const selector *s, int b)
{
    for (int i = s->readers[b].count - 1; i >= 0; i--) {
        const int run = s->way[s->readers[b].op[i]];
        if (run >= 0 && uses(&s->graph->op[run], b)) {
            return s->readers[b].op[i];
        }
    }
    return -1;
}

/* What a buffer costs as selected: nothing when no selected way uses it. */
static double buffer_price(const selector *s, int b)
{
    const int last = s->is_output[b] ? s->graph->op_count : last_use(s, b);
    const int lives = last - s->graph->writer[b];
    return lives > 0 ? s->price * (double)s->graph->buffer[b].bytes * lives : 0;
}

/* The least that the op needs at once, in this way. */
static bool fits(const selector *s, int run)
{
    const ckpt_graph_op *const way = &s->graph->op[run];
    const ckpt_list *const list[] = {&way->reads, &way->adds, &way->writes};
    ckpt_bytes bytes = way->workspace_bytes;
    for (int l = 0; l < 3; l++) {
        for (int i = 0; i < list[l]->count; i++) {
            bytes += s->graph->buffer[list[l]->at[i]].bytes;
        }
    }
    for (int i = 0; i < way->inplace_count; i++) {
        bytes -= s->graph->buffer[way->inplace[i].in].bytes;
    }
    return bytes <= s->limit;
}

/* The selected way of an op other than optional writes b, or an optional op would. */
static bool is_written(const selector *s, int b)
{
    const int writer = s->graph->writer[b];
    const int run = s->way[writer] >= 0 ? s->way[writer] : writer;
    return ckpt_list_has(&s->graph->op[run].writes, b);
}

/* The first way of op o that writes b and all that its selected way writes; -1: there is none. */
static int also_writes(const selector *s, int o, int b)
{
    const ckpt_graph_op *const now = &s->graph->op[s->way[o]];
    for (int k = 0; k < ckpt_way_count(s->graph, o); k++) {
        const int run = ckpt_way_run(s->graph, o, k);
        const ckpt_list *const writes = &s->graph->op[run].writes;
        bool all = ckpt_list_has(writes, b) && ckpt_run_allowed(s->graph, run, s->options);
        for (int i = 0; i < now->writes.count && all; i++) {
            all = ckpt_list_has(writes, now->writes.at[i]);
        }
        if (all) {
            return run;
        }
    }
    return -1;
}

/* Whether all that a way reads and adds to is there. What one other op leaves out it may write in another way: then *o
 * and *run are that; else *o is -1. */
static bool has_all(const selector *s, const ckpt_graph_op *way, int *o, int *run)
{
    const ckpt_list *const list[] = {&way->reads, &way->adds};
    *o = *run = -1;
    for (int l = 0; l < 2; l++) {
        for (int i = 0; i < list[l]->count; i++) {
            const int b = list[l]->at[i];
            const int writer = s->graph->writer[b];
            if (is_written(s, b) || (*o == writer && ckpt_list_has(&s->graph->op[*run].writes, b))) {
                continue;
            }
            *run = *o < 0 ? also_writes(s, writer, b) : -1;
            *o = writer;
            if (*run < 0) {
                return false;
            }
        }
    }
    return true;
}

/* Nobody reads what this way leaves out. */
static bool leaves_enough(const selector *s, int o, const ckpt_graph_op *way)
{
    const ckpt_graph_op *const now = &s->graph->op[s->way[o]];
    for (int i = 0; i < now->writes.count; i++) {
        const int b = now->writes.at[i];
        if (!ckpt_list_has(&way->writes, b) && (s->is_output[b] || last_use(s, b) >= 0)) {
            return false;
        }
    }
    return true;
}

/* Time and memory that depend on the way of op o alone: its own, its buffers', and the optional ops it reads from. */
static double price_of(selector *s, int o)
{
    const ckpt_graph *const graph = s->graph;
    const int run = s->way[o];
    double sum = run >= 0 ? (double)graph->op[run].time_ns + s->price * (double)graph->op[run].workspace_bytes : 0;
    for (int k = 0; k < ckpt_way_count(graph, o); k++) {
        const ckpt_graph_op *const way = &graph->op[ckpt_way_run(graph, o, k)];
        for (int i = 0; i < way->reads.count; i++) {
            const int b = way->reads.at[i];
            const ckpt_graph_op *const writer = &graph->op[graph->writer[b]];
            bool before = false; /* counted with another way */
            for (int j = 0; j < k && !before; j++) {
                before = ckpt_list_has(&graph->op[ckpt_way_run(graph, o, j)].reads, b);
            }
            if (!before) {
                sum += buffer_price(s, b);
                sum += writer->optional && last_use(s, b) >= 0 ? (double)writer->time_ns : 0;
            }
        }
    }
    return sum;
}

/* Ways of one op, or of two: another way of op o, and of the op `with` the way that lets o have it; -1: of none. */
typedef struct ways_change {
    int run, with, with_run;
} ways_change;

static double price_of_both(selector *s, int o, int with)
{
    return price_of(s, o) + (with >= 0 ? price_of(s, with) : 0);
}

/* The change is made while its price is worked out: *gain is what it saves. false: it cannot be made. */
static bool weigh(selector *s, int o, ways_change *change, double *gain)
{
    const ckpt_graph_op *const way = &s->graph->op[change->run];
    const int was = s->way[o];
    if (!ckpt_run_allowed(s->graph, change->run, s->options) || !leaves_enough(s, o, way) ||
        !has_all(s, way, &change->with, &change->with_run)) {
        return false;
    }
    const int with_was = change->with >= 0 ? s->way[change->with] : -1;
    *gain = price_of_both(s, o, change->with);
    s->way[o] = change->run;
    if (change->with >= 0) {
        s->way[change->with] = change->with_run;
    }
    *gain -= price_of_both(s, o, change->with);
    s->way[o] = was;
    if (change->with >= 0) {
        s->way[change->with] = with_was;
    }
    return true;
}

static bool improve(selector *s, int o)
{
    const ckpt_graph *const graph = s->graph;
    ways_change best = {.run = s->way[o], .with = -1};
    double best_gain = 0;
    bool best_fits = fits(s, best.run);
    for (int k = 0; k < ckpt_way_count(graph, o); k++) {
        ways_change change = {.run = ckpt_way_run(graph, o, k), .with = -1};
        double gain = 0;
        if (change.run == s->way[o] || !weigh(s, o, &change, &gain)) {
            continue;
        }
        const bool room = fits(s, change.run) && (change.with < 0 || fits(s, change.with_run));
        if (room != best_fits ? room : gain > best_gain) {
            best = change;
            best_gain = gain;
            best_fits = room;
        }
    }
    const bool changed = best.run != s->way[o];
    s->way[o] = best.run;
    if (best.with >= 0) {
        s->way[best.with] = best.with_run;
    }
    return changed;
}

static ckpt_code list_readers(selector *s, ckpt_arena *scratch, ckpt_err *err)
{
    const ckpt_graph *const graph = s->graph;
    const int runs = graph->op_count + graph->variant_count;
    int *const last = CKPT_NEW(scratch, int, graph->buffer_count); /* op + 1 counted last */
    for (int pass = 0; pass < 2 && last != NULL; pass++) {
        for (int b = 0; b < graph->buffer_count; b++) {
            if (pass == 1) {
                s->readers[b].op = CKPT_NEW(scratch, int, s->readers[b].count);
                if (s->readers[b].op == NULL) {
                    return CKPT_FAIL(err, CKPT_NO_MEMORY, "selection of %d ways", runs);
                }
                s->readers[b].count = 0;
            }
            last[b] = 0;
        }
        for (int o = 0; o < graph->op_count; o++) {
            for (int k = 0; k < ckpt_way_count(graph, o); k++) {
                const ckpt_graph_op *const way = &graph->op[ckpt_way_run(graph, o, k)];
                const ckpt_list *const list[] = {&way->reads, &way->adds};
                for (int l = 0; l < 2; l++) {
                    for (int i = 0; i < list[l]->count; i++) {
                        readers *const r = &s->readers[list[l]->at[i]];
                        if (last[list[l]->at[i]] != o + 1) {
                            last[list[l]->at[i]] = o + 1;
                            if (pass == 1) {
                                r->op[r->count] = o;
                            }
                            r->count++;
                        }
                    }
                }
            }
        }
    }
    return last != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "selection of %d ways", runs);
}

/* Optional ops run where something selected reads from them, last ones first: an optional op may read from others. */
static void settle_optional(selector *s)
{
    for (int o = s->graph->op_count - 1; o >= 0; o--) {
        const ckpt_graph_op *const op = &s->graph->op[o];
        bool wanted = !op->optional;
        for (int i = 0; i < op->writes.count && !wanted; i++) {
            wanted = last_use(s, op->writes.at[i]) >= 0;
        }
        s->way[o] = wanted ? s->way[o] < 0 ? o : s->way[o] : -1;
    }
}

ckpt_code ckpt_ways_select(const ckpt_graph *graph, ckpt_bytes limit, double price, const ckpt_plan_options *options,
                           ckpt_arena *scratch, int *way, ckpt_err *err)
{
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    selector s = {
        .graph = graph,
        .options = options,
        .limit = limit,
        .price = graph->op_count > 0 ? price / graph->op_count : 0,
        .way = way,
        .readers = CKPT_NEW(scratch, readers, graph->buffer_count),
        .is_output = CKPT_NEW(scratch, bool, graph->buffer_count),
    };
    if (s.readers == NULL || s.is_output == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "selection of ways for %d ops", graph->op_count);
    }
    CKPT_TRY(list_readers(&s, scratch, err));
    for (int i = 0; i < graph->outputs.count; i++) {
        s.is_output[graph->outputs.at[i]] = true;
    }
    for (int o = 0; o < graph->op_count; o++) {
        way[o] = graph->op[o].optional ? -1 : o;
    }
    bool changed = true;
    for (int round = 0; round < ROUNDS && changed; round++) {
        changed = false;
        for (int o = graph->op_count - 1; o >= 0; o--) {
            changed = (graph->op[o].variant_count > 0 && way[o] >= 0 && improve(&s, o)) || changed;
        }
        settle_optional(&s);
    }
    ckpt_arena_rewind(scratch, mark);
    return CKPT_OK;
}

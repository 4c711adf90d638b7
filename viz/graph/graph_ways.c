/* The ways that ops are done in: how many there are, and which of them the plan chose. Only boxes of ops that have a
 * choice get words on it. "~" behind a name says that what it writes has other bits than by the op's own way. */
#include "viz/graph/graph_draw_impl.h"

ckpt_code ckpt_figure_runs(ckpt_figure *f, ckpt_err *err)
{
    const ckpt_graph *const graph = f->graph;
    const ckpt_plan *const plan = f->plan;
    const bool steps = plan != NULL && plan->step_count > 0;
    f->first_run = CKPT_NEW(f->scratch, int, graph->op_count);
    f->runs = steps ? CKPT_NEW(f->scratch, int, (size_t)graph->op_count + (size_t)graph->variant_count) : NULL;
    if (f->first_run == NULL || (steps && f->runs == NULL)) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the ways of %d ops", graph->op_count);
    }
    for (int i = 0; i < graph->op_count; i++) {
        f->first_run[i] = steps && graph->op[i].optional ? -1 : i;
    }
    for (int s = plan != NULL ? plan->step_count - 1 : -1; s >= 0; s--) { /* so that the first run is seen last */
        const ckpt_step *const step = &plan->step[s];
        if (step->kind == CKPT_RUN && step->target >= 0 && step->target < graph->op_count) {
            const int run = (int)(ckpt_step_op(graph, step) - graph->op);
            f->first_run[step->target] = run;
            f->runs[run]++;
        }
    }
    return CKPT_OK;
}

/* The k-th way of an op as a run of the graph. */
static int way_of(const ckpt_graph *graph, int op, int k)
{
    return k == 0 ? op : graph->op[op].first_variant + k - 1;
}

static void put_name(const ckpt_figure *f, int run, ckpt_text *text)
{
    const ckpt_graph_op *const way = &f->graph->op[run];
    ckpt_text_add(text, "%s%s", way->variant != NULL ? way->variant : "its own way", way->inexact ? " ~" : "");
}

/* Whether the plan does the op in another way than its own. */
static bool has_other_way(const ckpt_figure *f, int op)
{
    bool other = false;
    for (int k = 1; f->runs != NULL && k <= f->graph->op[op].variant_count; k++) {
        other = other || f->runs[way_of(f->graph, op, k)] > 0;
    }
    return other;
}

/* The ways of an op that the plan has. */
static void put_chosen(const ckpt_figure *f, int op, const char *between, ckpt_text *text)
{
    const ckpt_graph *const graph = f->graph;
    for (int k = 0; k <= graph->op[op].variant_count; k++) {
        const int run = way_of(graph, op, k);
        if (f->runs[run] > 0) {
            ckpt_text_add(text, "%s", between);
            put_name(f, run, text);
            between = " and ";
        }
    }
}

/* "name: plain 1.20 ms, 3.00 MB workspace; winograd ~ 400 us, in the plan" */
static void put_tip(const ckpt_figure *f, int op, ckpt_text *text)
{
    const ckpt_graph *const graph = f->graph;
    char ns[CKPT_UNITS_TEXT], bytes[CKPT_UNITS_TEXT];
    ckpt_text_add(text, "%s%s%s: ", text->length > 0 ? "\n" : "", graph->op[op].name,
                  graph->op[op].optional ? ", optional" : "");
    for (int k = 0; k <= graph->op[op].variant_count; k++) {
        const int run = way_of(graph, op, k);
        const ckpt_graph_op *const way = &graph->op[run];
        ckpt_text_add(text, "%s", k > 0 ? "; " : "");
        put_name(f, run, text);
        ckpt_text_add(text, " %s", ckpt_ns_show(way->time_ns, ns));
        if (way->workspace_bytes > 0) {
            ckpt_text_add(text, " and %s of workspace", ckpt_bytes_show(way->workspace_bytes, bytes));
        }
        ckpt_text_add(text, "%s", f->runs != NULL && f->runs[run] > 0 ? ", chosen" : "");
    }
}

typedef struct words {
    ckpt_text way, backward, tip;
} words;

/* With a plan the ways that it chose, else how many there are. */
static void say_op(ckpt_figure *f, int op, words *say)
{
    const ckpt_graph_op *const own = &f->graph->op[op];
    const bool drawn = f->layer_of[op] >= 0;
    ckpt_text *const text = drawn ? &say->way : &say->backward;
    if (own->variant_count == 0 && !own->optional) {
        return;
    }
    put_tip(f, op, &say->tip);
    if (own->optional && drawn) {
        ckpt_text_add(text, "optional%s", f->runs == NULL || f->first_run[op] >= 0 ? "" : ", does not run");
    }
    const bool more = text->length > 0;
    if (f->runs == NULL && own->variant_count > 0) {
        ckpt_text_add(text, "%s%d ways", more ? ", " : drawn ? "" : "backward ", own->variant_count + 1);
    } else if (has_other_way(f, op)) {
        put_chosen(f, op, !drawn ? (more ? ", " : "backward by ") : more ? ", by " : "by ", text);
        f->box[f->box_of[op]].other_ways++;
    }
}

static const char *keep(const ckpt_figure *f, const ckpt_text *text, bool *failed)
{
    const char *const kept = text->length > 0 ? ckpt_arena_text(f->scratch, text->bytes) : NULL;
    *failed = *failed || text->failed || (text->length > 0 && kept == NULL);
    return kept;
}

/* The ops by box: those of box i are sorted[end[i]] .. sorted[end[i + 1] - 1]. */
static void sort_ops(const ckpt_figure *f, int *end, int *sorted)
{
    for (int o = 0; o < f->graph->op_count; o++) {
        end[f->box_of[o] + 2]++; /* those of no box stand before all */
    }
    for (int i = 1; i <= f->box_count + 1; i++) {
        end[i] += end[i - 1];
    }
    for (int o = 0; o < f->graph->op_count; o++) {
        sorted[end[f->box_of[o] + 1]++] = o;
    }
}

ckpt_code ckpt_figure_ways(ckpt_figure *f, ckpt_err *err)
{
    const ckpt_graph *const graph = f->graph;
    if (!ckpt_graph_has_variants(graph)) {
        return CKPT_OK;
    }
    int *const end = CKPT_NEW(f->scratch, int, (size_t)f->box_count + 2);
    int *const sorted = CKPT_NEW(f->scratch, int, graph->op_count);
    bool failed = end == NULL || sorted == NULL;
    if (!failed) {
        sort_ops(f, end, sorted);
    }
    for (int i = 0; i < f->box_count && !failed; i++) {
        words say;
        ckpt_text_init(&say.way);
        ckpt_text_init(&say.backward);
        ckpt_text_init(&say.tip);
        for (int k = end[i]; k < end[i + 1]; k++) {
            say_op(f, sorted[k], &say);
        }
        f->box[i].way = keep(f, &say.way, &failed);
        f->box[i].backward_way = keep(f, &say.backward, &failed);
        f->box[i].tip = keep(f, &say.tip, &failed);
        ckpt_text_fini(&say.way);
        ckpt_text_fini(&say.backward);
        ckpt_text_fini(&say.tip);
    }
    for (int o = 0; o < graph->op_count && !failed; o++) {
        f->other_ways += has_other_way(f, o);
        f->optional += graph->op[o].optional;
        f->idle += f->first_run[o] < 0;
    }
    return failed ? CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the ways of %d ops", graph->op_count) : CKPT_OK;
}

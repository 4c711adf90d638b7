/* What a plan does to each layer, and what more budget would buy. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/analysis/analysis.h"
#include "planner/replay/clock.h"
#include "planner/schedule/batches.h"
#include "planner/schedule/ways.h"

enum { WIDTH_MAX = 60 };

/* The name that an op's figures go under: its layer's, without micro-batch. NULL: no memory. */
static const char *label(const ckpt_graph_op *op, bool batches, ckpt_arena *out)
{
    int length = 0;
    if (batches && ckpt_batch_of(op->layer, &length) >= 0) {
        return ckpt_arena_format(out, "%.*s", length, op->layer);
    }
    return op->layer != NULL && op->layer[0] != '\0' ? op->layer : op->name;
}

/* Rows for the labels of forward ops, in the order of their first ones; per op the row, -1 for other ops. */
static ckpt_code find_rows(const ckpt_graph *graph, ckpt_arena *out, int *row_of, ckpt_layer_report **rows, int *count,
                           ckpt_err *err)
{
    const bool batches = ckpt_batch_count(graph) > 0;
    *rows = CKPT_NEW(out, ckpt_layer_report, graph->op_count);
    ckpt_named *const list = CKPT_NEW(out, ckpt_named, graph->op_count);
    int *const first = CKPT_NEW(out, int, graph->op_count); /* per op: first op of its label */
    const char **const name = CKPT_NEW(out, const char *, graph->op_count);
    if (*rows == NULL || list == NULL || first == NULL || name == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "layers of %d ops", graph->op_count);
    }
    int forward = 0;
    for (int o = 0; o < graph->op_count; o++) {
        row_of[o] = -1;
        if (graph->op[o].phase == CKPT_FORWARD) {
            list[forward] = (ckpt_named){label(&graph->op[o], batches, out), o};
            if (list[forward++].name == NULL) {
                return CKPT_FAIL(err, CKPT_NO_MEMORY, "name of a layer");
            }
        }
    }
    qsort(list, (size_t)forward, sizeof *list, ckpt_named_compare);
    for (int i = 0; i < forward; i++) {
        const bool same = i > 0 && strcmp(list[i - 1].name, list[i].name) == 0;
        first[list[i].op] = same ? first[list[i - 1].op] : list[i].op;
        name[list[i].op] = list[i].name;
    }
    *count = 0;
    for (int o = 0; o < graph->op_count; o++) {
        if (graph->op[o].phase == CKPT_FORWARD) {
            if (first[o] == o) {
                (*rows)[*count] = (ckpt_layer_report){.layer = name[o]};
                row_of[o] = (*count)++;
            } else {
                row_of[o] = row_of[first[o]];
            }
        }
    }
    return CKPT_OK;
}

/* Where the buffers are after a step. */
typedef struct whereabouts {
    const ckpt_graph *graph;
    bool *memory, *host, *counted; /* per buffer; `counted`: as kept or as dropped */
    int batches;                   /* 0: none */
} whereabouts;

static void follow(whereabouts *w, const ckpt_step *step)
{
    const int b = step->target;
    switch (step->kind) {
    case CKPT_RUN: {
        const ckpt_graph_op *const op = ckpt_step_op(w->graph, step);
        for (int i = 0; step->inplace && i < op->inplace_count; i++) {
            w->memory[op->inplace[i].in] = false;
        }
        for (int i = 0; i < op->writes.count; i++) {
            w->memory[op->writes.at[i]] = true;
        }
        break;
    }
    case CKPT_FREE: w->memory[b] = false; break;
    case CKPT_OFFLOAD: w->host[b] = true; break;
    case CKPT_FETCH: w->memory[b] = true; break;
    }
}

/* The op's micro-batch; 0 where the graph has none or the op belongs to none. */
static int batch_of(const whereabouts *w, int op)
{
    const int batch = w->batches > 0 ? ckpt_batch_of(w->graph->op[op].layer, NULL) : 0;
    return batch > 0 && batch < w->batches ? batch : 0;
}

/* Per micro-batch the last step before its backward: the first run of the last op of its forward section, with the
 * frees and copies that follow. */
static void find_boundaries(const ckpt_plan *plan, const whereabouts *w, int *last, int *boundary)
{
    const ckpt_graph *const graph = w->graph;
    const int count = w->batches > 0 ? w->batches : 1;
    for (int j = 0; j < count; j++) {
        last[j] = boundary[j] = -1;
    }
    for (int o = 0; o < graph->op_count; o++) {
        if (graph->op[o].phase == CKPT_FORWARD) {
            last[batch_of(w, o)] = o;
        } else if (w->batches == 0) {
            break;
        }
    }
    for (int i = 0; i < plan->step_count; i++) {
        const ckpt_step *const step = &plan->step[i];
        const int j = step->kind == CKPT_RUN ? batch_of(w, step->target) : 0;
        if (step->kind == CKPT_RUN && step->target == last[j] && boundary[j] < 0) {
            boundary[j] = i;
            while (boundary[j] + 1 < plan->step_count && plan->step[boundary[j] + 1].kind != CKPT_RUN) {
                boundary[j]++;
            }
        }
    }
}

/* At the boundary of a micro-batch: counts what is in memory as kept. */
static void add_kept(whereabouts *w, int batch, const int *row_of, ckpt_layer_report *rows)
{
    for (int b = 0; b < w->graph->buffer_count; b++) {
        const int row = row_of[w->graph->writer[b]];
        if (batch_of(w, w->graph->writer[b]) != batch) {
            continue;
        }
        if (row >= 0 && w->memory[b]) {
            rows[row].kept_bytes += w->graph->buffer[b].bytes;
        } else if (row >= 0 && w->host[b]) {
            rows[row].host_bytes += w->graph->buffer[b].bytes;
        }
        w->counted[b] = w->memory[b];
    }
}

/* A recomputation: its time, and the bytes behind the boundary that only it provides. */
static void add_recomputed(whereabouts *w, const ckpt_step *step, bool behind, ckpt_layer_report *row)
{
    const ckpt_graph_op *const op = ckpt_step_op(w->graph, step);
    row->recompute_ns += op->time_ns;
    row->decision = CKPT_RECOMPUTE;
    for (int i = 0; behind && i < op->writes.count; i++) {
        const int b = op->writes.at[i];
        if (!w->counted[b]) {
            w->counted[b] = true;
            row->dropped_bytes += w->graph->buffer[b].bytes;
        }
    }
}

static ckpt_code explain_layers(const ckpt_plan *plan, const ckpt_graph *graph, ckpt_arena *out,
                                ckpt_explanation *explanation, ckpt_err *err)
{
    ckpt_layer_report *rows = NULL;
    int *const row_of = CKPT_NEW(out, int, graph->op_count);
    whereabouts w = {
        .graph = graph,
        .memory = CKPT_NEW(out, bool, graph->buffer_count),
        .host = CKPT_NEW(out, bool, graph->buffer_count),
        .counted = CKPT_NEW(out, bool, graph->buffer_count),
        .batches = ckpt_batch_count(graph),
    };
    int *const last = CKPT_NEW(out, int, w.batches + 1);
    int *const boundary = CKPT_NEW(out, int, w.batches + 1);
    if (last == NULL || boundary == NULL || row_of == NULL || w.memory == NULL || w.host == NULL || w.counted == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "layers of %d ops", graph->op_count);
    }
    CKPT_TRY(find_rows(graph, out, row_of, &rows, &explanation->layer_count, err));
    explanation->batches = w.batches;
    find_boundaries(plan, &w, last, boundary);
    for (int i = 0, batch = 0; i < plan->step_count; i++) {
        const ckpt_step *const step = &plan->step[i];
        const int row = row_of[step->kind == CKPT_RUN ? step->target : graph->writer[step->target]];
        batch = step->kind == CKPT_RUN ? batch_of(&w, step->target) : batch;
        follow(&w, step);
        if (step->kind == CKPT_RUN && step->recomputed && row >= 0) {
            add_recomputed(&w, step, i > boundary[batch], &rows[row]);
        } else if (step->kind == CKPT_OFFLOAD && row >= 0 && rows[row].decision == CKPT_KEEP) {
            rows[row].decision = CKPT_OFFLOADED;
        }
        if (i == boundary[batch]) {
            add_kept(&w, batch, row_of, rows);
        }
    }
    explanation->layer = rows;
    return CKPT_OK;
}

static ckpt_bytes list_bytes(const ckpt_graph *graph, const ckpt_list *list)
{
    ckpt_bytes sum = 0;
    for (int i = 0; i < list->count; i++) {
        sum += graph->buffer[list->at[i]].bytes;
    }
    return sum;
}

/* A row for every way that an op runs in and that is not its own, and for optional ops. */
static ckpt_code explain_ways(const ckpt_plan *plan, const ckpt_graph *graph, ckpt_arena *out,
                              ckpt_explanation *explanation, ckpt_err *err)
{
    const size_t ways = (size_t)graph->op_count + (size_t)graph->variant_count;
    if (!ckpt_graph_has_variants(graph)) {
        return CKPT_OK;
    }
    ckpt_way_report *const row = CKPT_NEW(out, ckpt_way_report, ways);
    int *const row_of = CKPT_NEW(out, int, ways); /* + 1; 0: none yet */
    if (row == NULL || row_of == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "variants of %d ops", graph->op_count);
    }
    explanation->way = row;
    for (int i = 0; i < plan->step_count; i++) {
        const ckpt_step *const step = &plan->step[i];
        if (step->kind != CKPT_RUN || (step->way == 0 && !graph->op[step->target].optional)) {
            continue;
        }
        const ckpt_graph_op *const way = ckpt_step_op(graph, step);
        const ckpt_graph_op *const own = &graph->op[step->target];
        int *const at = &row_of[way - graph->op];
        if (*at == 0) {
            *at = ++explanation->way_count;
            row[*at - 1] = (ckpt_way_report){
                .op = own->name,
                .variant = step->variant,
                .inexact = way->inexact,
                .spared_bytes = own->optional ? 0 : list_bytes(graph, &own->reads) - list_bytes(graph, &way->reads),
                .workspace_bytes = way->workspace_bytes - (own->optional ? 0 : own->workspace_bytes),
            };
        }
        row[*at - 1].runs++;
        row[*at - 1].saved_ns += (own->optional ? 0 : own->time_ns) - way->time_ns;
    }
    return CKPT_OK;
}

static ckpt_code buy(const ckpt_graph *graph, const char *strategy, const ckpt_plan_options *options, ckpt_bytes step,
                     const char *name, ckpt_arena *out, ckpt_explanation *explanation, ckpt_err *err)
{
    const ckpt_plan *const plan = explanation->plan;
    ckpt_more *const more = &explanation->more[explanation->more_count];
    ckpt_candidate incumbent;
    ckpt_plan_options larger = *options;
    *more = (ckpt_more){.step = name};
    if (!ckpt_sum(plan->budget_bytes, step, &larger.budget_bytes)) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_plan_candidate(plan, graph, out, &incumbent, err));
    larger.incumbent = &incumbent;
    larger.incumbent_count = 1;
    CKPT_TRY(ckpt_plan_make(graph, strategy, &larger, out, &more->plan, err));
    more->budget_bytes = larger.budget_bytes;
    if (more->plan->verdict != CKPT_FITS || more->plan->time_ns > plan->time_ns) { /* this one still does */
        *more->plan = *plan;
        more->plan->budget_bytes = larger.budget_bytes;
    }
    explanation->more_count++;
    return CKPT_OK;
}

ckpt_code ckpt_explain(const ckpt_plan *plan, const ckpt_graph *graph, const char *strategy,
                       const ckpt_plan_options *options, ckpt_arena *out, ckpt_explanation *explanation, ckpt_err *err)
{
    const ckpt_bytes gib = (ckpt_bytes)1 << 30;
    *explanation = (ckpt_explanation){.plan = plan};
    CKPT_TRY(explain_layers(plan, graph, out, explanation, err));
    CKPT_TRY(explain_ways(plan, graph, out, explanation, err));
    explanation->fastest = plan->time_ns <= ckpt_least_time(graph, options);
    if (explanation->fastest) {
        return CKPT_OK;
    }
    CKPT_TRY(buy(graph, strategy, options, plan->budget_bytes / 10, "10 %", out, explanation, err));
    return plan->budget_bytes >= gib ? buy(graph, strategy, options, gib, "1 GiB", out, explanation, err) : CKPT_OK;
}

static double ns_per_mib(const ckpt_layer_report *row)
{
    return row->dropped_bytes > 0 ? (double)row->recompute_ns * 1048576 / (double)row->dropped_bytes : 0;
}

/* Right-aligned, "-" for nothing; not at all without `shown`. */
static void add_cell(ckpt_text *text, bool shown, int64_t amount, const char *(*show)(int64_t, char *))
{
    char cell[CKPT_UNITS_TEXT];
    if (shown) {
        ckpt_text_add(text, " %10s", amount > 0 ? show(amount, cell) : "-");
    }
}

/* Of a layer that is not recomputed and left nothing behind: backward needs nothing of it, or another buffer holds
 * it. */
static const char *decision_text(const ckpt_layer_report *row)
{
    return row->decision == CKPT_KEEP && row->kept_bytes == 0 ? "-" : ckpt_decision_name(row->decision);
}

static void add_row(ckpt_text *text, int width, bool host, const char *decision, const ckpt_layer_report *row)
{
    ckpt_text_add(text, "%-*s %-9s", width, row->layer, decision);
    add_cell(text, true, row->kept_bytes, ckpt_bytes_show);
    add_cell(text, host, row->host_bytes, ckpt_bytes_show);
    add_cell(text, true, row->dropped_bytes, ckpt_bytes_show);
    add_cell(text, true, row->recompute_ns, ckpt_ns_show);
    add_cell(text, true, (ckpt_ns)(ns_per_mib(row) + 0.5), ckpt_ns_show);
    ckpt_text_add(text, "\n");
}

static void add_more(ckpt_text *text, const ckpt_plan *plan, const ckpt_more *more)
{
    char a[CKPT_UNITS_TEXT];
    char b[CKPT_UNITS_TEXT];
    char c[CKPT_UNITS_TEXT];
    const ckpt_ns saved = plan->time_ns - more->plan->time_ns;
    ckpt_text_add(text, "with %s more budget (%s) ", more->step, ckpt_bytes_show(more->budget_bytes, a));
    if (saved == 0) {
        ckpt_text_add(text, "no faster plan was found\n");
    } else {
        ckpt_text_add(text, "the step takes %s: %s or %.2f %% less%s\n", ckpt_ns_show(more->plan->time_ns, b),
                      ckpt_ns_show(saved, c), 100 * (double)saved / (double)plan->time_ns,
                      more->plan->time_ns == plan->keep_all_time_ns ? ", as long as keep-all" : "");
    }
}

/* Right-aligned with its sign, "-" for nothing. */
static void add_signed(ckpt_text *text, int64_t amount, const char *(*show)(int64_t, char *))
{
    char cell[CKPT_UNITS_TEXT];
    char shown[CKPT_UNITS_TEXT + 2] = "-";
    if (amount != 0) {
        snprintf(shown, sizeof shown, "%s%s", amount < 0 ? "-" : "", show(amount < 0 ? -amount : amount, cell));
    }
    ckpt_text_add(text, " %10s", shown);
}

static void add_ways(ckpt_text *text, const ckpt_explanation *explanation)
{
    int width = 12;
    for (int i = 0; i < explanation->way_count; i++) {
        const int length = (int)strnlen(explanation->way[i].op, WIDTH_MAX);
        width = length > width ? length : width;
    }
    if (explanation->way_count > 0) {
        ckpt_text_add(text, "\n%-*s %-10s %-5s %4s %10s %10s %10s\n", width, "op", "variant", "bits", "runs", "saves",
                      "reads less", "workspace");
    }
    for (int i = 0; i < explanation->way_count; i++) {
        const ckpt_way_report *const row = &explanation->way[i];
        ckpt_text_add(text, "%-*s %-10s %-5s %4d", width, row->op, row->variant != NULL ? row->variant : "runs",
                      row->inexact ? "other" : "same", row->runs);
        add_signed(text, row->saved_ns, ckpt_ns_show);
        add_signed(text, row->spared_bytes, ckpt_bytes_show);
        add_signed(text, row->workspace_bytes, ckpt_bytes_show);
        ckpt_text_add(text, "\n");
    }
}

void ckpt_explanation_text(const ckpt_explanation *explanation, ckpt_text *text)
{
    const ckpt_plan *const plan = explanation->plan;
    ckpt_layer_report sum = {.layer = "all"};
    int width = 12;
    for (int i = 0; i < explanation->layer_count; i++) {
        const ckpt_layer_report *const row = &explanation->layer[i];
        const int length = (int)strnlen(row->layer, WIDTH_MAX);
        width = length > width ? length : width;
        sum.kept_bytes += row->kept_bytes;
        sum.host_bytes += row->host_bytes;
        sum.dropped_bytes += row->dropped_bytes;
        sum.recompute_ns += row->recompute_ns;
    }
    const bool host = sum.host_bytes > 0;
    if (explanation->batches > 1) {
        ckpt_text_add(text, "\nof %d micro-batches together, each when its forward has run\n", explanation->batches);
    }
    ckpt_text_add(text, "\n%-*s %-9s %10s%s %10s %10s %10s\n", width, "layer", "decision", "kept",
                  host ? "    on host" : "", "dropped", "again", "per MiB");
    for (int i = 0; i < explanation->layer_count; i++) {
        const ckpt_layer_report *const row = &explanation->layer[i];
        add_row(text, width, host, decision_text(row), row);
    }
    add_row(text, width, host, "", &sum);
    add_ways(text, explanation);
    for (int i = 0; i < explanation->more_count; i++) {
        add_more(text, plan, &explanation->more[i]);
    }
    if (explanation->fastest) {
        ckpt_text_add(text, "more budget buys nothing: the step takes no longer than %s\n",
                      plan->time_ns < plan->keep_all_time_ns ? "every op once in its fastest way" : "keep-all");
    }
}

void ckpt_explanation_members(const ckpt_explanation *explanation, ckpt_json_writer *w)
{
    if (explanation->batches > 1) {
        ckpt_json_put_int(w, "micro_batches", explanation->batches);
    }
    ckpt_json_begin_array(w, "layers", CKPT_JSON_ROWS);
    for (int i = 0; i < explanation->layer_count; i++) {
        const ckpt_layer_report *const row = &explanation->layer[i];
        ckpt_json_begin_object(w, NULL, CKPT_JSON_TIGHT);
        ckpt_json_put_text(w, "layer", row->layer);
        ckpt_json_put_text(w, "decision", ckpt_decision_name(row->decision));
        CKPT_JSON_INTS(w, {"kept_bytes", row->kept_bytes}, {"host_bytes", row->host_bytes},
                       {"dropped_bytes", row->dropped_bytes}, {"recompute_ns", row->recompute_ns});
        ckpt_json_put_fixed(w, "ns_per_mib", ns_per_mib(row), 1);
        ckpt_json_end(w);
    }
    ckpt_json_end(w);
    if (explanation->way_count > 0) {
        ckpt_json_begin_array(w, "variants", CKPT_JSON_ROWS);
        for (int i = 0; i < explanation->way_count; i++) {
            const ckpt_way_report *const row = &explanation->way[i];
            ckpt_json_begin_object(w, NULL, CKPT_JSON_TIGHT);
            ckpt_json_put_text(w, "op", row->op);
            ckpt_json_put_or_empty(w, "variant", row->variant);
            ckpt_json_put_bool(w, "exact", !row->inexact);
            CKPT_JSON_INTS(w, {"runs", row->runs}, {"saved_ns", row->saved_ns}, {"spared_bytes", row->spared_bytes},
                           {"workspace_bytes", row->workspace_bytes});
            ckpt_json_end(w);
        }
        ckpt_json_end(w);
    }
    ckpt_json_begin_array(w, "more_budget", CKPT_JSON_ROWS);
    for (int i = 0; i < explanation->more_count; i++) {
        const ckpt_more *const more = &explanation->more[i];
        ckpt_json_begin_object(w, NULL, CKPT_JSON_TIGHT);
        ckpt_json_put_text(w, "step", more->step);
        CKPT_JSON_INTS(w, {"budget_bytes", more->budget_bytes}, {"time_ns", more->plan->time_ns},
                       {"saved_ns", explanation->plan->time_ns - more->plan->time_ns});
        ckpt_json_end(w);
    }
    ckpt_json_end(w);
}

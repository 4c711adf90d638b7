/* All strategies at one budget, in one table. */
#include <string.h>

#include "planner/analysis/analysis.h"
#include "planner/directives/choose.h"

const char *ckpt_strategy_kind(const ckpt_strategy *strategy)
{
    return strategy->baseline ? "baseline" : strategy->flags ? "flags" : "planner";
}

ckpt_code ckpt_compare(const ckpt_graph *graph, const ckpt_plan_options *options, ckpt_arena *out,
                       ckpt_comparison *comparison, ckpt_err *err)
{
    const bool flags = ckpt_chosen_any(graph);
    *comparison = (ckpt_comparison){.limited = options->budget_bytes > 0};
    for (int i = -1; i < 0 || ckpt_strategy_table[i] != NULL; i++) {
        const ckpt_strategy *const strategy = i < 0 ? ckpt_strategy_find("auto") : ckpt_strategy_table[i];
        const bool asked = i >= 0 && strcmp(strategy->name, "auto") == 0;
        const bool suits = (!strategy->flags || flags) && (!strategy->link || graph->has_link);
        if (asked || !suits || comparison->count == CKPT_COMPARED_MAX) {
            continue;
        }
        comparison->stopped = i >= 0 && ckpt_plan_stopped(options);
        if (comparison->stopped) {
            break;
        }
        const int row = comparison->count++;
        comparison->strategy[row] = strategy->name;
        comparison->kind[row] = ckpt_strategy_kind(strategy);
        CKPT_TRY(ckpt_plan_make(graph, strategy->name, options, out, &comparison->plan[row], err));
        const ckpt_plan *const plan = comparison->plan[row];
        if (plan->verdict == CKPT_FITS && plan->has_bound && plan->bound_ns > comparison->bound_ns &&
            strcmp(plan->bound_scope, "all") == 0) {
            comparison->bound_ns = plan->bound_ns;
        }
    }
    return CKPT_OK;
}

void ckpt_comparison_text(const ckpt_comparison *comparison, ckpt_text *text)
{
    const ckpt_plan *const first = comparison->plan[0];
    char a[CKPT_UNITS_TEXT];
    char b[CKPT_UNITS_TEXT];
    ckpt_text_add(text, "%s, keep-all %s, %s; ", first->graph_name, ckpt_bytes_show(first->keep_all_peak_bytes, a),
                  ckpt_ns_show(first->keep_all_time_ns, b));
    if (comparison->limited) {
        ckpt_text_add(text, "budget %s (%.1f %% of keep-all)\n", ckpt_bytes_show(first->budget_bytes, a),
                      100 * (double)first->budget_bytes / (double)first->keep_all_peak_bytes);
    } else {
        ckpt_text_add(text, "no budget\n");
    }
    ckpt_text_add(text, "%-14s %-8s %6s %10s %10s %10s %9s %9s\n", "strategy", "kind", "fits", "peak", "step time",
                  "overhead", "gap", "planned");
    for (int i = 0; i < comparison->count; i++) {
        const ckpt_plan *const plan = comparison->plan[i];
        ckpt_text_add(text, "%-14s %-8s ", comparison->strategy[i], comparison->kind[i]);
        if (plan->verdict == CKPT_FITS) {
            ckpt_text_add(text, "%6s %10s %10s %+8.2f %% %7.2f %%", "yes", ckpt_bytes_show(plan->peak_bytes, a),
                          ckpt_ns_show(plan->time_ns, b), 100 * ckpt_excess(plan->time_ns, plan->keep_all_time_ns),
                          100 * ckpt_excess(plan->time_ns, comparison->bound_ns));
        } else {
            ckpt_text_add(text, "%6s %10s %10s %10s %9s", "needs", ckpt_bytes_show(plan->min_budget_bytes, a), "-", "-",
                          "-");
        }
        ckpt_text_add(text, " %7.3f s\n", plan->solver_seconds);
    }
    if (comparison->bound_ns > 0) {
        ckpt_text_add(text, "gap: over %s, than which no schedule within the budget is faster\n",
                      ckpt_ns_show(comparison->bound_ns, a));
    }
}

void ckpt_comparison_json(const ckpt_comparison *comparison, ckpt_text *text)
{
    const ckpt_plan *const first = comparison->plan[0];
    ckpt_json_writer w;
    ckpt_json_begin(&w, text);
    ckpt_json_begin_object(&w, NULL, CKPT_JSON_TIGHT);
    ckpt_json_put_text(&w, "graph", first->graph_name);
    CKPT_JSON_INTS(&w, {"budget_bytes", first->budget_bytes}, {"bound_ns", comparison->bound_ns});
    ckpt_keep_all_member(first, &w);
    ckpt_json_put_bool(&w, "complete", !comparison->stopped);
    ckpt_json_begin_array(&w, "strategies", CKPT_JSON_ROWS);
    for (int i = 0; i < comparison->count; i++) {
        const ckpt_plan *const plan = comparison->plan[i];
        ckpt_json_begin_object(&w, NULL, CKPT_JSON_TIGHT);
        ckpt_json_put_text(&w, "strategy", comparison->strategy[i]);
        ckpt_json_put_text(&w, "kind", comparison->kind[i]);
        ckpt_json_put_bool(&w, "fits", plan->verdict == CKPT_FITS);
        if (plan->verdict == CKPT_FITS) {
            CKPT_JSON_INTS(&w, {"peak_bytes", plan->peak_bytes}, {"arena_bytes", plan->arena_bytes},
                           {"time_ns", plan->time_ns});
            ckpt_json_put_fixed(&w, "overhead", ckpt_excess(plan->time_ns, plan->keep_all_time_ns), 6);
            ckpt_json_put_fixed(&w, "gap", ckpt_excess(plan->time_ns, comparison->bound_ns), 6);
        } else {
            ckpt_json_put_int(&w, "least_budget_bytes", plan->min_budget_bytes);
        }
        ckpt_json_put_fixed(&w, "seconds", plan->solver_seconds, 6);
        ckpt_json_end(&w);
    }
    ckpt_json_end(&w);
    ckpt_json_end(&w);
}

/* The summary of one plan, for people and as members of a JSON object. */
#include <stdio.h>
#include <string.h>

#include "planner/analysis/analysis.h"

static void count_layers(const ckpt_plan *plan, int count[CKPT_OFFLOADED + 1])
{
    count[CKPT_KEEP] = count[CKPT_RECOMPUTE] = count[CKPT_OFFLOADED] = 0;
    for (int i = 0; i < plan->layer_count; i++) {
        count[plan->layer[i].decision]++;
    }
}

static double percent(int64_t part, int64_t whole)
{
    return whole > 0 ? 100 * (double)part / (double)whole : 0;
}

static void add_bytes(ckpt_text *text, const char *what, ckpt_bytes bytes, const char *more)
{
    char shown[CKPT_UNITS_TEXT];
    ckpt_text_add(text, "%-14s %s (%lld bytes)%s\n", what, ckpt_bytes_show(bytes, shown), (long long)bytes, more);
}

static void add_costs(ckpt_text *text, const ckpt_plan *plan, bool estimated)
{
    ckpt_text_add(text, "%-14s %s%s\n", "costs", plan->costs,
                  estimated ? " (an estimate: no layer was measured; see ckpt-profile)" : "");
}

/* What is proved about the time: "exact" alone says that the plan is optimal. */
static void add_bound(ckpt_text *text, const ckpt_plan *plan)
{
    char shown[CKPT_UNITS_TEXT];
    if (!plan->has_bound) {
        return;
    }
    const bool all = strcmp(plan->bound_scope, "all") == 0;
    ckpt_text_add(text, "%-14s %s: no schedule%s%s within the budget is faster; gap %.2f %% (%s)\n", "bound",
                  ckpt_ns_show(plan->bound_ns, shown), all ? "" : " of scope ", all ? "" : plan->bound_scope,
                  100 * ckpt_excess(plan->time_ns, plan->bound_ns), plan->bound_how);
}

/* What the step is, where it is more than one rank's with one batch. */
static void add_scheme(ckpt_text *text, const ckpt_scheme *scheme)
{
    char shown[CKPT_UNITS_TEXT];
    if (ckpt_scheme_is_plain(scheme)) {
        return;
    }
    ckpt_text_add(text, "%-14s %d micro-batch%s", "scheme", scheme->micro_batches,
                  scheme->micro_batches > 1 ? "es" : "");
    if (scheme->stages > 1) {
        ckpt_text_add(text, ", stage %d of %d", scheme->stage, scheme->stages);
    }
    if (scheme->replicas > 1) {
        ckpt_text_add(text, ", %d replicas (buckets of %s%s%s)", scheme->replicas,
                      ckpt_bytes_show(scheme->bucket_bytes, shown), scheme->overlap ? ", overlapped" : "",
                      scheme->shard_optimizer ? ", optimizer sharded" : "");
    }
    ckpt_text_add(text, "%s\n", scheme->fused ? ", fused gradients" : "");
}

/* Layers count once for each micro-batch. */
static void add_layers(ckpt_text *text, const ckpt_plan *plan, const int layers[CKPT_OFFLOADED + 1])
{
    ckpt_text_add(text, "%-14s %d kept, %d recomputed", "layers", layers[CKPT_KEEP], layers[CKPT_RECOMPUTE]);
    if (layers[CKPT_OFFLOADED] > 0) {
        ckpt_text_add(text, ", %d offloaded", layers[CKPT_OFFLOADED]);
    }
    if (plan->scheme.micro_batches > 1) {
        ckpt_text_add(text, ", in %d micro-batches", plan->scheme.micro_batches);
    }
    ckpt_text_add(text, "\n");
}

/* Runs by variants of their ops, and how many give other bits than the op's own way. */
static void count_variants(const ckpt_plan *plan, int *runs, int *inexact)
{
    *runs = *inexact = 0;
    for (int i = 0; i < plan->step_count; i++) {
        *runs += plan->step[i].variant != NULL;
        *inexact += plan->step[i].inexact;
    }
}

static void add_variants(ckpt_text *text, const ckpt_plan *plan)
{
    int runs = 0;
    int inexact = 0;
    count_variants(plan, &runs, &inexact);
    if (runs > 0) {
        ckpt_text_add(text, "%-14s %d runs are by variants of their ops; %d of them give other bits\n", "variants",
                      runs, inexact);
    }
}

static void add_fit(ckpt_text *text, const ckpt_plan *plan, bool estimated)
{
    char shown[CKPT_UNITS_TEXT];
    char more[160];
    int layers[CKPT_OFFLOADED + 1];
    count_layers(plan, layers);
    add_bytes(text, "static block", plan->static_bytes,
              plan->scheme.fused ? ": weights, optimizer, inputs" : ": weights, gradients, optimizer, inputs");
    const double fragments = percent(plan->arena_bytes - (plan->peak_bytes - plan->static_bytes), plan->arena_bytes);
    snprintf(more, sizeof more, ": activations and workspaces, %.1f %% lost to fragmentation", fragments);
    add_bytes(text, "arena", plan->arena_bytes, more);
    snprintf(more, sizeof more, ": %.1f %% of keep-all", percent(plan->peak_bytes, plan->keep_all_peak_bytes));
    add_bytes(text, "peak", plan->peak_bytes, more);
    snprintf(more, sizeof more, ", %s", ckpt_ns_show(plan->keep_all_time_ns, shown));
    add_bytes(text, "keep-all", plan->keep_all_peak_bytes, more);
    const double over = 100 * ckpt_excess(plan->time_ns, plan->keep_all_time_ns);
    ckpt_text_add(text, "%-14s %s: %+.2f %% over keep-all\n", "step time", ckpt_ns_show(plan->time_ns, shown), over);
    add_layers(text, plan, layers);
    add_variants(text, plan);
    if (plan->offload_bytes > 0) {
        snprintf(more, sizeof more, " copied to the host, which holds %s", ckpt_bytes_show(plan->host_bytes, shown));
        add_bytes(text, "offload", plan->offload_bytes, more);
    }
    add_bound(text, plan);
    add_costs(text, plan, estimated);
    ckpt_text_add(text, "%-14s %s, planned in %.3f s\n", "strategy", plan->solver, plan->solver_seconds);
}

void ckpt_plan_text(const ckpt_plan *plan, bool limited, bool estimated, ckpt_text *text)
{
    ckpt_text_add(text, "%-14s %s: %s\n", "plan", plan->graph_name,
                  plan->verdict == CKPT_FITS ? "fits" : "does not fit");
    add_scheme(text, &plan->scheme);
    if (limited) {
        char more[64];
        snprintf(more, sizeof more, ": %.1f %% of keep-all", percent(plan->budget_bytes, plan->keep_all_peak_bytes));
        add_bytes(text, "budget", plan->budget_bytes, more);
        if (plan->reserve_bytes > 0) {
            add_bytes(text, "reserve", plan->reserve_bytes,
                      ": beside that, for what is neither static block nor arena");
        }
    } else {
        ckpt_text_add(text, "%-14s none given: no limit\n", "budget");
    }
    if (plan->verdict == CKPT_FITS) {
        add_fit(text, plan, estimated);
        return;
    }
    add_bytes(text, "static block", plan->static_bytes,
              plan->static_bytes > plan->budget_bytes ? ": alone more than the budget" : "");
    add_bytes(text, "keep-all", plan->keep_all_peak_bytes, "");
    add_bytes(text, "minimum budget", plan->min_budget_bytes,
              plan->reserve_bytes > 0 ? ": with that much, and the reserve beside it, a plan was found"
                                      : ": with that much a plan was found");
    if (plan->no_schedule_below_bytes > 0) {
        add_bytes(text, "proved", plan->no_schedule_below_bytes, ": with less than that there is no schedule at all");
    }
    add_costs(text, plan, estimated);
    ckpt_text_add(text, "%-14s %s, searched for %.3f s\n", "strategy", plan->solver, plan->solver_seconds);
}

static void put_fit(ckpt_json_writer *w, const ckpt_plan *plan)
{
    int layers[CKPT_OFFLOADED + 1];
    count_layers(plan, layers);
    CKPT_JSON_INTS(w, {"peak_bytes", plan->peak_bytes}, {"arena_bytes", plan->arena_bytes}, {"time_ns", plan->time_ns},
                   {"recompute_ns", plan->recompute_ns}, {"offload_bytes", plan->offload_bytes},
                   {"host_bytes", plan->host_bytes}, {"kept_layers", layers[CKPT_KEEP]},
                   {"recomputed_layers", layers[CKPT_RECOMPUTE]}, {"offloaded_layers", layers[CKPT_OFFLOADED]});
    int runs = 0;
    int inexact = 0;
    count_variants(plan, &runs, &inexact);
    if (runs > 0) {
        CKPT_JSON_INTS(w, {"variant_runs", runs}, {"inexact_runs", inexact});
    }
}

static void put_bound(ckpt_json_writer *w, const ckpt_plan *plan)
{
    ckpt_json_begin_object(w, "bound", CKPT_JSON_TIGHT);
    ckpt_json_put_int(w, "time_ns", plan->bound_ns);
    ckpt_json_put_fixed(w, "gap", ckpt_excess(plan->time_ns, plan->bound_ns), 6);
    ckpt_json_put_text(w, "how", plan->bound_how);
    ckpt_json_put_text(w, "scope", plan->bound_scope);
    ckpt_json_end(w);
}

void ckpt_keep_all_member(const ckpt_plan *plan, ckpt_json_writer *w)
{
    ckpt_json_begin_object(w, "keep_all", CKPT_JSON_TIGHT);
    CKPT_JSON_INTS(w, {"peak_bytes", plan->keep_all_peak_bytes}, {"time_ns", plan->keep_all_time_ns});
    ckpt_json_end(w);
}

void ckpt_plan_members(const ckpt_plan *plan, bool estimated, ckpt_json_writer *w)
{
    ckpt_json_put_text(w, "graph", plan->graph_name);
    if (!ckpt_scheme_is_plain(&plan->scheme)) {
        CKPT_JSON_INTS(w, {"micro_batches", plan->scheme.micro_batches}, {"replicas", plan->scheme.replicas});
        ckpt_json_put_bool(w, "fused_gradients", plan->scheme.fused);
    }
    ckpt_json_put_text(w, "verdict", plan->verdict == CKPT_FITS ? "fits" : "infeasible");
    ckpt_json_put_int(w, "budget_bytes", plan->budget_bytes);
    if (plan->reserve_bytes > 0) {
        ckpt_json_put_int(w, "reserve_bytes", plan->reserve_bytes);
    }
    if (plan->verdict == CKPT_FITS) {
        put_fit(w, plan);
    } else {
        ckpt_json_put_int(w, "least_budget_bytes", plan->min_budget_bytes);
        if (plan->no_schedule_below_bytes > 0) {
            ckpt_json_put_int(w, "no_schedule_below_bytes", plan->no_schedule_below_bytes);
        }
    }
    if (plan->has_bound) {
        put_bound(w, plan);
    }
    ckpt_json_put_int(w, "static_bytes", plan->static_bytes);
    ckpt_keep_all_member(plan, w);
    ckpt_json_put_text(w, "strategy", plan->solver);
    ckpt_json_put_fixed(w, "seconds", plan->solver_seconds, 6);
    ckpt_json_put_text(w, "costs", plan->costs);
    ckpt_json_put_bool(w, "estimated", estimated);
}

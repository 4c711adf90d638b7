/* Plans: whether they are of one network on one device, what was set otherwise, and their summaries. */
#include <math.h>
#include <string.h>

#include "viz/compare/compare_impl.h"

/* 0: it has none of that name. */
static ckpt_bytes static_bytes(const ckpt_outline *outline, const char *name)
{
    for (int i = 0; i < outline->static_count; i++) {
        if (strcmp(outline->statics[i].name, name) == 0) {
            return outline->statics[i].bytes;
        }
    }
    return 0;
}

/* -1: not known, which is so without outlines; else how many ops have another time. */
static int other_times(const ckpt_outline *a, const ckpt_outline *b)
{
    if (a->op_count == 0 || a->op_count != b->op_count) {
        return -1;
    }
    int count = 0;
    for (int i = 0; i < a->op_count; i++) {
        count += a->op[i].time_ns != b->op[i].time_ns;
    }
    return count;
}

/* How a step is spread, in words. */
static const char *scheme_words(ckpt_comparer *c, const ckpt_scheme *s)
{
    if (ckpt_scheme_is_plain(s)) {
        return "one batch on one rank";
    }
    const char *const stage = s->stages > 1 ? CKPT_COMPARE_SAY(c, ", stage %d of %d", s->stage, s->stages) : "";
    const char *const replicas = s->replicas > 1 ? CKPT_COMPARE_SAY(c, ", %d replicas", s->replicas) : "";
    return CKPT_COMPARE_SAY(c, "%d micro-batch%s%s%s%s%s%s%s", s->micro_batches, s->micro_batches > 1 ? "es" : "",
                            stage, replicas, s->overlap ? ", overlapped" : "",
                            s->shard_optimizer ? ", optimizer sharded" : "", s->fused ? ", fused gradients" : "",
                            s->apart ? ", tied apart" : "");
}

/* Options of ckpt-plan that others say already: the budget, the threads and where times come from. */
static bool said_elsewhere(const char *option)
{
    static const char *const names[] = {"--budget", "--profile", "--threads"};
    bool said = option[0] != '-';
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        said = said || strcmp(option, names[i]) == 0;
    }
    return said;
}

/* The value of option i, NULL: it has none. The last word of all is the file. */
static const char *value_at(const ckpt_plan *plan, int i)
{
    return i + 2 < plan->option_count && plan->option[i + 1][0] != '-' ? plan->option[i + 1] : NULL;
}

static bool has_option(const ckpt_plan *plan, const char *option, const char *value)
{
    for (int i = 0; i + 1 < plan->option_count; i++) {
        const char *const own = value_at(plan, i);
        if (strcmp(plan->option[i], option) == 0 &&
            (own == NULL || value == NULL ? own == value : strcmp(own, value) == 0)) {
            return true;
        }
    }
    return false;
}

/* The options of one plan that the other was not made with; "none". */
static const char *own_options(ckpt_comparer *c, const ckpt_plan *plan, const ckpt_plan *other)
{
    const char *words = "";
    for (int i = 0; i + 1 < plan->option_count; i++) {
        const char *const value = value_at(plan, i), *const option = plan->option[i];
        if (!said_elsewhere(option) && !has_option(other, option, value)) {
            words = CKPT_COMPARE_SAY(c, "%s%s%s%s%s", words, words[0] != '\0' ? " " : "", option,
                                     value != NULL ? " " : "", value != NULL ? value : "");
        }
    }
    return words[0] != '\0' ? ckpt_compare_name(c, words) : "none";
}

/* What the model is a plan of: its number type, and how much it is given at once. */
static void set_model(ckpt_comparer *c, const ckpt_plan *base, const ckpt_plan *fresh)
{
    const ckpt_outline *const a = &base->outline, *const b = &fresh->outline;
    const bool half_a = static_bytes(a, "weights16") > 0, half_b = static_bytes(b, "weights16") > 0;
    if (a->op_count == 0 || b->op_count == 0) {
        return;
    }
    if (half_a != half_b) {
        ckpt_compare_set(c, "dtype", half_a ? "bfloat16" : "float32", half_b ? "bfloat16" : "float32");
    }
    ckpt_compare_set_bytes(c, "inputs", static_bytes(a, "inputs"), static_bytes(b, "inputs"));
}

/* What was asked for in another way, the budget before all else. */
static void match_settings(ckpt_comparer *c, const ckpt_plan *base, const ckpt_plan *fresh, bool same)
{
    ckpt_compare_set_bytes(c, "budget", base->budget_bytes, fresh->budget_bytes);
    const char *const scheme = scheme_words(c, &base->scheme), *const fresh_scheme = scheme_words(c, &fresh->scheme);
    if (strcmp(scheme, fresh_scheme) != 0) {
        ckpt_compare_set(c, "scheme", scheme, fresh_scheme);
    }
    if (base->option_count > 0 && fresh->option_count > 0) {
        const char *const own = own_options(c, base, fresh), *const others = own_options(c, fresh, base);
        if (strcmp(own, others) != 0) {
            ckpt_compare_set(c, "options", own, others);
        }
    }
    if (!same) {
        set_model(c, base, fresh);
    }
}

/* Another name, another stage, or not one layer in common: another network. */
static void match_network(ckpt_comparer *c, const ckpt_plan *base, const ckpt_plan *fresh)
{
    const bool stages = base->scheme.stages > 1 && fresh->scheme.stages > 1;
    ckpt_match_name(c, "model", base->graph_name, fresh->graph_name);
    if (stages && (base->scheme.stage != fresh->scheme.stage)) {
        ckpt_compare_mismatched(c, "stage", CKPT_COMPARE_SAY(c, "%d of %d", base->scheme.stage, base->scheme.stages),
                                CKPT_COMPARE_SAY(c, "%d of %d", fresh->scheme.stage, fresh->scheme.stages));
    }
    ckpt_names names;
    if (!ckpt_compare_ok(c, ckpt_names_init(&names, base->layer_count, c->out, c->err))) {
        return;
    }
    int common = base->layer_count == 0 || fresh->layer_count == 0;
    for (int i = 0; i < base->layer_count; i++) {
        (void)ckpt_names_add(&names, ckpt_compare_plain(c, base->layer[i].layer), i);
    }
    for (int i = 0; i < fresh->layer_count && common == 0; i++) {
        common += ckpt_names_find(&names, ckpt_compare_plain(c, fresh->layer[i].layer)) >= 0;
    }
    if (common == 0 && c->d->mismatch_count == 0) {
        ckpt_compare_mismatched(
            c, "layers",
            CKPT_COMPARE_SAY(c, "%s and %d more", ckpt_compare_name(c, base->layer[0].layer), base->layer_count - 1),
            CKPT_COMPARE_SAY(c, "%s and %d more", ckpt_compare_name(c, fresh->layer[0].layer), fresh->layer_count - 1));
    }
}

void ckpt_match_plans(ckpt_comparer *c)
{
    const ckpt_plan *const base = c->file[0]->plan, *const fresh = c->file[1]->plan;
    const bool same = strcmp(base->graph_sha256, fresh->graph_sha256) == 0;
    match_network(c, base, fresh);
    match_settings(c, base, fresh, same);
    ckpt_match_target(c, base->gpu, base->threads, fresh->gpu, fresh->threads);
    const int others = same ? other_times(&base->outline, &fresh->outline) : -1;
    if (others != 0 && ckpt_match_costs(c, base->costs, fresh->costs) && others > 0) {
        ckpt_compare_note(c, CKPT_COMPARE_SAY(c,
                                              "%d of %d ops were planned with other times: what a step takes is partly "
                                              "their change",
                                              others, base->outline.op_count));
    }
}

static void excess(ckpt_number *number, ckpt_ns time, ckpt_ns over)
{
    number->has = over > 0;
    number->value = over > 0 ? llround(1e6 * ((double)time - (double)over) / (double)over) : 0;
}

void ckpt_plan_excess(ckpt_comparer *c, int side, int of, ckpt_number *number)
{
    const ckpt_plan *const plan = c->file[side]->plan;
    if (plan->verdict == CKPT_FITS && (of == CKPT_OVER_KEEP_ALL || plan->has_bound)) {
        excess(number, plan->time_ns, of == CKPT_OVER_KEEP_ALL ? plan->keep_all_time_ns : plan->bound_ns);
    }
}

void ckpt_plan_bound(ckpt_comparer *c, int side, int of, ckpt_number *number)
{
    (void)of;
    const ckpt_plan *const plan = c->file[side]->plan;
    number->value = plan->bound_ns;
    number->has = plan->verdict == CKPT_FITS && plan->has_bound && plan->bound_ns > 0;
}

/* Of two plans that fit it is static block and arena once more: only who asks for it gets it. */
void ckpt_plan_min_budget(ckpt_comparer *c, int side, int of, ckpt_number *number)
{
    const ckpt_plan *const plan = c->file[side]->plan;
    const bool fits = plan->verdict == CKPT_FITS, other = c->file[1 - side]->plan->verdict == CKPT_FITS;
    number->has = !fits || !other;
    for (int i = 0; i < c->options->limit_count; i++) {
        number->has = number->has || c->options->limit[i].metric == ckpt_metric_find("least_budget");
    }
    number->value = fits ? ckpt_plus(plan->static_bytes, plan->arena_bytes) : plan->min_budget_bytes;
    number->why = !fits || other ? ""
                  : side == of   ? "for BASE no smaller one was looked for"
                                 : "for NEW no smaller one was looked for";
}

static bool take_ranges(ckpt_comparer *c, const ckpt_plan *plan, ckpt_live_ranges *ranges)
{
    const ckpt_trace *trace = NULL;
    if (!ckpt_compare_ok(c, ckpt_plan_as_trace(plan, c->out, &trace, c->err))) {
        ckpt_err_while(c->err, "reading %.120s", plan->source);
        return false;
    }
    return ckpt_compare_ranges(c, trace, plan->source, ranges);
}

/* A plan as its live ranges; none: it does not fit, or is too old to tell. */
static bool take_side(ckpt_comparer *c, int nth, ckpt_live_ranges *ranges)
{
    const ckpt_plan *const plan = c->file[nth]->plan;
    const char *const whose = nth == 0 ? "BASE" : "NEW";
    *ranges = (ckpt_live_ranges){.count = 0};
    if (plan->verdict != CKPT_FITS) {
        char known[CKPT_UNITS_TEXT], budget[CKPT_UNITS_TEXT];
        ckpt_compare_note(c, CKPT_COMPARE_SAY(c, "%s does not fit its budget of %s; a plan is known for %s", whose,
                                              ckpt_bytes_show(plan->budget_bytes, budget),
                                              ckpt_bytes_show(plan->min_budget_bytes, known)));
    } else if (plan->outline.op_count == 0) {
        ckpt_compare_note(c, CKPT_COMPARE_SAY(c,
                                              "%s is an older plan that does not say what it is made of: make it again "
                                              "to see what a change costs",
                                              whose));
    } else {
        return take_ranges(c, plan, ranges);
    }
    return c->code == CKPT_OK;
}

void ckpt_compare_plans(ckpt_comparer *c)
{
    const ckpt_plan *const base = c->file[0]->plan, *const fresh = c->file[1]->plan;
    const ckpt_static *const statics[] = {base->outline.statics, fresh->outline.statics};
    const int static_count[] = {base->outline.static_count, fresh->outline.static_count};
    ckpt_live_ranges ranges[2];
    c->d->lost = base->verdict == CKPT_FITS && fresh->verdict != CKPT_FITS;
    if (!take_side(c, 0, &ranges[0]) || !take_side(c, 1, &ranges[1])) {
        return;
    }
    if (base->reordered != fresh->reordered) {
        ckpt_compare_note(c, fresh->reordered ? "NEW runs ops in another order than the graph's, BASE in that"
                                              : "BASE runs ops in another order than the graph's, NEW in that");
    }
    ckpt_compare_layers(c, ranges, statics, static_count);
    ckpt_compare_ways(c);
    if (ranges[0].count > 0 && ranges[1].count > 0) {
        ckpt_compare_peaks(c, ranges, statics, static_count);
    }
    if (c->d->setting_count == 0 && strcmp(base->graph_sha256, fresh->graph_sha256) != 0) {
        ckpt_compare_set(c, "graph", CKPT_COMPARE_SAY(c, "digest %.12s", base->graph_sha256),
                         CKPT_COMPARE_SAY(c, "digest %.12s", fresh->graph_sha256));
    }
}

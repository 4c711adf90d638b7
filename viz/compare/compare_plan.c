/* Plans: whether they are of one graph on one device, their summaries, and what each changed decision costs. */
#include <math.h>
#include <string.h>

#include "viz/compare/compare_impl.h"

static const char *shown(ckpt_comparer *c, ckpt_bytes bytes, const char *of)
{
    char text[CKPT_UNITS_TEXT];
    return CKPT_COMPARE_SAY(c, "%s of %s", ckpt_bytes_show(bytes, text), of);
}

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

/* The first of BASE's buffers that NEW does not have alike. */
static void other_structure(ckpt_comparer *c, const ckpt_outline *a, const ckpt_outline *b)
{
    ckpt_names names;
    if (!ckpt_compare_ok(c, ckpt_names_init(&names, b->buffer_count, c->out, c->err))) {
        return;
    }
    for (int i = 0; i < b->buffer_count; i++) {
        (void)ckpt_names_add(&names, b->buffer[i].name, i);
    }
    for (int i = 0; i < a->buffer_count; i++) {
        const int at = ckpt_names_find(&names, a->buffer[i].name);
        if (at < 0 || b->buffer[at].bytes != a->buffer[i].bytes) {
            const char *const name = ckpt_compare_name(c, a->buffer[i].name);
            ckpt_compare_mismatched(c, "graph", shown(c, a->buffer[i].bytes, name),
                                    at >= 0 ? shown(c, b->buffer[at].bytes, name) : CKPT_COMPARE_SAY(c, "no %s", name));
            return;
        }
    }
    ckpt_compare_mismatched(c, "graph", CKPT_COMPARE_SAY(c, "%d buffers, %d ops", a->buffer_count, a->op_count),
                            CKPT_COMPARE_SAY(c, "%d buffers, %d ops", b->buffer_count, b->op_count));
}

/* Another digest under the same name: why, as far as the outlines tell. */
static void other_graph(ckpt_comparer *c, const ckpt_plan *base, const ckpt_plan *fresh)
{
    const ckpt_outline *const a = &base->outline, *const b = &fresh->outline;
    const bool half_a = static_bytes(a, "weights16") > 0, half_b = static_bytes(b, "weights16") > 0;
    const ckpt_bytes weights[] = {static_bytes(a, "weights"), static_bytes(b, "weights")};
    const ckpt_bytes inputs[] = {static_bytes(a, "inputs"), static_bytes(b, "inputs")};
    if (a->op_count == 0 || b->op_count == 0) {
        ckpt_compare_mismatched(c, "graph", CKPT_COMPARE_SAY(c, "digest %.12s", base->graph_sha256),
                                CKPT_COMPARE_SAY(c, "digest %.12s", fresh->graph_sha256));
    } else if (half_a != half_b) {
        ckpt_compare_mismatched(c, "dtype", half_a ? "bfloat16" : "float32", half_b ? "bfloat16" : "float32");
    } else if (weights[0] != weights[1]) {
        ckpt_compare_mismatched(c, "graph", shown(c, weights[0], "weights"), shown(c, weights[1], "weights"));
    } else if (inputs[0] != inputs[1]) {
        ckpt_compare_mismatched(c, "batch", shown(c, inputs[0], "inputs"), shown(c, inputs[1], "inputs"));
    } else {
        other_structure(c, a, b);
    }
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

void ckpt_match_plans(ckpt_comparer *c)
{
    const ckpt_plan *const base = c->file[0]->plan, *const fresh = c->file[1]->plan;
    const char *const was = scheme_words(c, &base->scheme), *const is = scheme_words(c, &fresh->scheme);
    const bool same = strcmp(base->graph_sha256, fresh->graph_sha256) == 0;
    ckpt_match_name(c, "model", base->graph_name, fresh->graph_name);
    if (strcmp(was, is) != 0) {
        ckpt_compare_mismatched(c, "scheme", was, is);
    }
    if (c->d->mismatch_count == 0 && !same) {
        other_graph(c, base, fresh);
    }
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

/* A plan as its live ranges (none: it does not fit, or is too old to tell), and what each layer's decision costs. */
typedef struct side {
    const ckpt_plan *plan;
    ckpt_live_ranges ranges;
    ckpt_names layer; /* of the plan's decisions */
    ckpt_ns *recomputed_ns;
    ckpt_bytes *copied, *peak;
} side;

/* Time of recomputed runs and bytes of copies, by layer. */
static void take_steps(ckpt_comparer *c, side *s)
{
    const ckpt_outline *const o = &s->plan->outline;
    ckpt_names op, buffer, writer;
    if (!ckpt_compare_ok(c, ckpt_names_init(&op, o->op_count, c->out, c->err)) ||
        !ckpt_compare_ok(c, ckpt_names_init(&buffer, o->buffer_count, c->out, c->err)) ||
        !ckpt_compare_ok(c, ckpt_names_init(&writer, s->ranges.count, c->out, c->err))) {
        return;
    }
    for (int i = 0; i < o->op_count; i++) {
        (void)ckpt_names_add(&op, o->op[i].name, i);
    }
    for (int i = 0; i < o->buffer_count; i++) {
        (void)ckpt_names_add(&buffer, o->buffer[i].name, i);
    }
    for (int i = 0; i < s->ranges.count; i++) {
        if (s->ranges.range[i].kind != CKPT_LIVE_WORKSPACE) {
            (void)ckpt_names_add(&writer, s->ranges.range[i].name,
                                 ckpt_names_find(&s->layer, s->ranges.range[i].layer));
        }
    }
    for (int i = 0; i < s->plan->step_count; i++) {
        const ckpt_step *const step = &s->plan->step[i];
        if (step->kind == CKPT_RUN && step->recomputed) {
            const int at = ckpt_names_find(&op, step->name);
            const int layer = at >= 0 ? ckpt_names_find(&s->layer, o->op[at].layer) : -1;
            if (layer >= 0) {
                const ckpt_ns time = ckpt_run_time(&o->op[at], step->variant);
                s->recomputed_ns[layer] = ckpt_plus(s->recomputed_ns[layer], time >= 0 ? time : o->op[at].time_ns);
            }
        } else if (step->kind == CKPT_OFFLOAD) {
            const int at = ckpt_names_find(&buffer, step->name), layer = ckpt_names_find(&writer, step->name);
            if (at >= 0 && layer >= 0) {
                s->copied[layer] = ckpt_plus(s->copied[layer], o->buffer[at].bytes);
            }
        }
    }
}

static void take_peak(side *s)
{
    const int at = s->ranges.count > 0 ? s->ranges.trace->peak_event : 0;
    for (int i = 0; i < s->ranges.count; i++) {
        const ckpt_live_range *const range = &s->ranges.range[i];
        const int layer = range->from <= at && at <= range->to && range->kind != CKPT_LIVE_WORKSPACE
                              ? ckpt_names_find(&s->layer, range->layer)
                              : -1;
        if (layer >= 0) {
            s->peak[layer] = ckpt_plus(s->peak[layer], range->bytes);
        }
    }
}

static bool take_ranges(ckpt_comparer *c, side *s)
{
    const ckpt_trace *trace = NULL;
    if (!ckpt_compare_ok(c, ckpt_plan_as_trace(s->plan, c->out, &trace, c->err))) {
        ckpt_err_while(c->err, "reading %.120s", s->plan->source);
        return false;
    }
    return ckpt_compare_ranges(c, trace, s->plan->source, &s->ranges);
}

static void take_side(ckpt_comparer *c, int nth, side *s)
{
    const ckpt_plan *const plan = c->file[nth]->plan;
    const char *const whose = nth == 0 ? "BASE" : "NEW";
    *s = (side){.plan = plan,
                .recomputed_ns = CKPT_COMPARE_NEW(c, ckpt_ns, plan->layer_count),
                .copied = CKPT_COMPARE_NEW(c, ckpt_bytes, plan->layer_count),
                .peak = CKPT_COMPARE_NEW(c, ckpt_bytes, plan->layer_count)};
    if (c->code != CKPT_OK || !ckpt_compare_ok(c, ckpt_names_init(&s->layer, plan->layer_count, c->out, c->err))) {
        return;
    }
    for (int i = 0; i < plan->layer_count; i++) {
        (void)ckpt_names_add(&s->layer, plan->layer[i].layer, i);
    }
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
    } else if (!take_ranges(c, s)) {
        return;
    }
    take_steps(c, s);
    take_peak(s);
}

static void add_decisions(ckpt_comparer *c, const side *a, const side *b)
{
    const ckpt_plan *const plan = b->plan;
    ckpt_decision_change *const change = CKPT_COMPARE_NEW(c, ckpt_decision_change, plan->layer_count);
    char text[CKPT_UNITS_TEXT];
    int count = 0;
    ckpt_ns unchanged = 0;
    ckpt_bytes unchanged_copies = 0;
    for (int i = 0; i < plan->layer_count && change != NULL; i++) {
        const int at = ckpt_names_find(&a->layer, plan->layer[i].layer);
        if (at < 0) {
            continue;
        }
        const ckpt_decision_change one = {.layer = plan->layer[i].layer,
                                          .base = a->plan->layer[at].decision,
                                          .fresh = plan->layer[i].decision,
                                          .recomputed_ns = b->recomputed_ns[i] - a->recomputed_ns[at],
                                          .copied_bytes = b->copied[i] - a->copied[at],
                                          .peak_bytes = b->peak[i] - a->peak[at]};
        if (one.base != one.fresh) {
            change[count++] = one;
        } else {
            unchanged = ckpt_plus(unchanged, one.recomputed_ns);
            unchanged_copies = ckpt_plus(unchanged_copies, one.copied_bytes);
        }
    }
    c->d->decision = change;
    c->d->decision_count = count;
    if (unchanged != 0) {
        ckpt_compare_note(c, CKPT_COMPARE_SAY(c, "layers whose decision is the same: %s%s recomputed",
                                              unchanged > 0 ? "+" : "", ckpt_ns_show(unchanged, text)));
    }
    if (unchanged_copies != 0) {
        ckpt_compare_note(c,
                          CKPT_COMPARE_SAY(c, "layers whose decision is the same: %s%s copied to the host",
                                           unchanged_copies > 0 ? "+" : "", ckpt_bytes_show(unchanged_copies, text)));
    }
    ckpt_group_decisions(c);
}

void ckpt_compare_plans(ckpt_comparer *c)
{
    side s[2];
    c->d->lost = c->file[0]->plan->verdict == CKPT_FITS && c->file[1]->plan->verdict != CKPT_FITS;
    take_side(c, 0, &s[0]);
    take_side(c, 1, &s[1]);
    if (c->code != CKPT_OK) {
        return;
    }
    const bool was = s[0].plan->reordered, is = s[1].plan->reordered;
    if (was != is) {
        ckpt_compare_note(c, is ? "NEW runs ops in another order than the graph's, BASE in that"
                                : "BASE runs ops in another order than the graph's, NEW in that");
    }
    add_decisions(c, &s[0], &s[1]);
    ckpt_compare_ways(c);
    if (s[0].ranges.count > 0 && s[1].ranges.count > 0) {
        ckpt_compare_peaks(c, (const ckpt_live_ranges[]){s[0].ranges, s[1].ranges},
                           (const ckpt_static *const[]){s[0].plan->outline.statics, s[1].plan->outline.statics},
                           (const int[]){s[0].plan->outline.static_count, s[1].plan->outline.static_count});
    }
}

/* Plans: whether they are of one graph on one device, their summaries, and what each changed decision costs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "viz/compare/compare_impl.h"

static const char *shown(ckpt_comparer *c, ckpt_bytes bytes, const char *of)
{
    char text[CKPT_UNITS_TEXT];
    return ckpt_arena_format(c->out, "%s of %s", ckpt_bytes_show(bytes, text), of);
}

static const ckpt_static *find_static(const ckpt_outline *outline, const char *name)
{
    for (int i = 0; i < outline->static_count; i++) {
        if (strcmp(outline->statics[i].name, name) == 0) {
            return &outline->statics[i];
        }
    }
    return NULL;
}

static ckpt_bytes static_bytes(const ckpt_outline *outline, const char *name)
{
    const ckpt_static *const found = find_static(outline, name);
    return found != NULL ? found->bytes : 0;
}

/* The first of BASE's buffers that NEW does not have alike; NULL: none. */
static ckpt_code first_other_buffer(ckpt_comparer *c, const ckpt_outline *a, const ckpt_outline *b,
                                    const ckpt_buffer **mine, const ckpt_buffer **theirs)
{
    ckpt_name_table table;
    CKPT_TRY(ckpt_name_table_init(&table, b->buffer_count, c));
    for (int i = 0; i < b->buffer_count; i++) {
        ckpt_name_table_add(&table, b->buffer[i].name, i);
    }
    ckpt_name_table_sort(&table);
    for (int i = 0; i < a->buffer_count; i++) {
        const int at = ckpt_name_table_find(&table, a->buffer[i].name);
        if (at < 0 || b->buffer[at].bytes != a->buffer[i].bytes) {
            *mine = &a->buffer[i];
            *theirs = at < 0 ? NULL : &b->buffer[at];
            return CKPT_OK;
        }
    }
    *mine = *theirs = NULL;
    return CKPT_OK;
}

static ckpt_code other_structure(ckpt_comparer *c, const ckpt_outline *a, const ckpt_outline *b)
{
    const ckpt_buffer *mine = NULL, *theirs = NULL;
    CKPT_TRY(first_other_buffer(c, a, b, &mine, &theirs));
    if (mine == NULL) {
        return ckpt_compare_mismatched(c, "graph",
                                       ckpt_arena_format(c->out, "%d buffers, %d ops", a->buffer_count, a->op_count),
                                       ckpt_arena_format(c->out, "%d buffers, %d ops", b->buffer_count, b->op_count));
    }
    const char *const name = ckpt_compare_name(c->out, mine->name);
    if (name == NULL) {
        return ckpt_compare_mismatched(c, "graph", NULL, NULL);
    }
    return ckpt_compare_mismatched(c, "graph", shown(c, mine->bytes, name),
                                   theirs != NULL ? shown(c, theirs->bytes, name)
                                                  : ckpt_arena_format(c->out, "no %s", name));
}

/* Another digest under the same name: why, as far as the outlines tell. */
static ckpt_code other_graph(ckpt_comparer *c, const ckpt_plan *base, const ckpt_plan *fresh)
{
    const ckpt_outline *const a = &base->outline, *const b = &fresh->outline;
    if (a->op_count == 0 || b->op_count == 0) {
        return ckpt_compare_mismatched(c, "graph", ckpt_arena_format(c->out, "digest %.12s", base->graph_sha256),
                                       ckpt_arena_format(c->out, "digest %.12s", fresh->graph_sha256));
    }
    const bool half_a = find_static(a, "weights16") != NULL, half_b = find_static(b, "weights16") != NULL;
    const ckpt_bytes weights = static_bytes(a, "weights"), inputs = static_bytes(a, "inputs");
    if (half_a != half_b) {
        return ckpt_compare_mismatched(c, "dtype", half_a ? "bfloat16" : "float32", half_b ? "bfloat16" : "float32");
    }
    if (weights == static_bytes(b, "weights") && inputs != static_bytes(b, "inputs")) {
        return ckpt_compare_mismatched(c, "batch", shown(c, inputs, "inputs"),
                                       shown(c, static_bytes(b, "inputs"), "inputs"));
    }
    return weights != static_bytes(b, "weights")
               ? ckpt_compare_mismatched(c, "graph", shown(c, weights, "weights"),
                                         shown(c, static_bytes(b, "weights"), "weights"))
               : other_structure(c, a, b);
}

ckpt_code ckpt_match_name(ckpt_comparer *c, const char *what, const char *base, const char *fresh)
{
    return strcmp(base, fresh) == 0
               ? CKPT_OK
               : ckpt_compare_mismatched(c, what, ckpt_compare_name(c->out, base), ckpt_compare_name(c->out, fresh));
}

ckpt_code ckpt_match_target(ckpt_comparer *c, bool base_gpu, int base_threads, bool gpu, int threads)
{
    if (base_gpu != gpu) {
        return ckpt_compare_mismatched(c, "device", base_gpu ? "a GPU" : "the CPU", gpu ? "a GPU" : "the CPU");
    }
    if (base_threads > 0 && threads > 0 && base_threads != threads) {
        return ckpt_compare_mismatched(c, "threads", ckpt_arena_format(c->out, "%d", base_threads),
                                       ckpt_arena_format(c->out, "%d", threads));
    }
    return CKPT_OK;
}

/* "profile a/p.json" and "profile b/p.json" are one source: a file that is kept elsewhere. */
static bool same_source(const char *a, const char *b)
{
    const char *const slash_a = strrchr(a, '/'), *const slash_b = strrchr(b, '/');
    const size_t word_a = strcspn(a, " "), word_b = strcspn(b, " ");
    if (word_a != word_b || strncmp(a, b, word_a) != 0) {
        return false;
    }
    return strcmp(slash_a != NULL ? slash_a + 1 : a + word_a + (a[word_a] != '\0'),
                  slash_b != NULL ? slash_b + 1 : b + word_b + (b[word_b] != '\0')) == 0;
}

ckpt_code ckpt_match_costs(ckpt_comparer *c, const char *base, const char *fresh)
{
    if (base[0] == '\0' || fresh[0] == '\0' || same_source(base, fresh)) {
        return CKPT_OK;
    }
    return ckpt_compare_mismatched(c, "costs", ckpt_compare_name(c->out, base), ckpt_compare_name(c->out, fresh));
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

/* How a step is spread, in words; NULL: no memory. */
static const char *scheme_words(ckpt_comparer *c, const ckpt_scheme *s)
{
    if (ckpt_scheme_is_plain(s)) {
        return "one batch on one rank";
    }
    const char *const stage = s->stages > 1 ? ckpt_arena_format(c->out, ", stage %d of %d", s->stage, s->stages) : "";
    const char *const replicas = s->replicas > 1 ? ckpt_arena_format(c->out, ", %d replicas", s->replicas) : "";
    return stage == NULL || replicas == NULL
               ? NULL
               : ckpt_arena_format(c->out, "%d micro-batch%s%s%s%s%s%s%s", s->micro_batches,
                                   s->micro_batches > 1 ? "es" : "", stage, replicas, s->overlap ? ", overlapped" : "",
                                   s->shard_optimizer ? ", optimizer sharded" : "", s->fused ? ", fused gradients" : "",
                                   s->apart ? ", tied apart" : "");
}

static ckpt_code match_schemes(ckpt_comparer *c, const ckpt_scheme *base, const ckpt_scheme *fresh)
{
    const char *const was = scheme_words(c, base), *const is = scheme_words(c, fresh);
    return was != NULL && is != NULL && strcmp(was, is) == 0 ? CKPT_OK : ckpt_compare_mismatched(c, "scheme", was, is);
}

ckpt_code ckpt_match_plans(ckpt_comparer *c)
{
    const ckpt_plan *const base = c->base->plan, *const fresh = c->fresh->plan;
    CKPT_TRY(ckpt_match_name(c, "model", base->graph_name, fresh->graph_name));
    CKPT_TRY(match_schemes(c, &base->scheme, &fresh->scheme));
    if (c->d->mismatch_count == 0 && strcmp(base->graph_sha256, fresh->graph_sha256) != 0) {
        CKPT_TRY(other_graph(c, base, fresh));
    }
    CKPT_TRY(ckpt_match_target(c, base->gpu, base->threads, fresh->gpu, fresh->threads));
    const int others =
        strcmp(base->graph_sha256, fresh->graph_sha256) == 0 ? other_times(&base->outline, &fresh->outline) : -1;
    if (others > 0 && same_source(base->costs, fresh->costs)) {
        CKPT_TRY(ckpt_compare_note(c, ckpt_arena_format(c->out,
                                                        "%d of %d ops were planned with other times: what a step takes "
                                                        "is partly their change",
                                                        others, base->outline.op_count)));
    }
    return others == 0 ? CKPT_OK : ckpt_match_costs(c, base->costs, fresh->costs);
}

static int64_t over(ckpt_ns time, ckpt_ns least)
{
    return least > 0 ? llround(1e6 * ((double)time - (double)least) / (double)least) : 0;
}

/* What a side has not is 0, and said to be missing. NULL: neither has it. */
static ckpt_compare_value *add(ckpt_comparer *c, const char *metric, int64_t base, int64_t fresh, bool has_base,
                               bool has_new)
{
    if (!has_base && !has_new) {
        return NULL;
    }
    ckpt_compare_value *const value = ckpt_compare_add(c, metric, has_base ? base : 0, has_new ? fresh : 0);
    value->has_base = has_base;
    value->has_new = has_new;
    if (c->base->plan->verdict != c->fresh->plan->verdict && has_base != has_new) {
        value->why =
            c->fresh->plan->verdict == CKPT_FITS ? "BASE does not fit its budget" : "NEW does not fit its budget";
    }
    return value;
}

static bool limited(const ckpt_comparer *c, const char *metric)
{
    for (int i = 0; i < c->options->limit_count; i++) {
        if (strcmp(c->options->limit[i].metric->name, metric) == 0) {
            return true;
        }
    }
    return false;
}

static void add_summary(ckpt_comparer *c)
{
    const ckpt_plan *const a = c->base->plan, *const b = c->fresh->plan;
    const bool fa = a->verdict == CKPT_FITS, fb = b->verdict == CKPT_FITS;
    const bool ka = a->keep_all_time_ns > 0, kb = b->keep_all_time_ns > 0;
    const bool ba = fa && a->has_bound && a->bound_ns > 0, bb = fb && b->has_bound && b->bound_ns > 0;
    add(c, "peak", a->peak_bytes, b->peak_bytes, fa, fb);
    add(c, "static", a->static_bytes, b->static_bytes, true, true);
    add(c, "arena", a->arena_bytes, b->arena_bytes, fa, fb);
    add(c, "budget", a->budget_bytes, b->budget_bytes, true, true);
    if (!fa || !fb || limited(c, "least_budget")) { /* else it is static block and arena once more */
        ckpt_compare_value *const value =
            add(c, "least_budget", fa ? ckpt_plus(a->static_bytes, a->arena_bytes) : a->min_budget_bytes,
                fb ? ckpt_plus(b->static_bytes, b->arena_bytes) : b->min_budget_bytes, true, true);
        value->why = fa == fb ? ""
                     : fa     ? "for BASE no smaller one was looked for"
                              : "for NEW no smaller one was looked for";
    }
    add(c, "step_time", a->time_ns, b->time_ns, fa, fb);
    add(c, "recompute", a->recompute_ns, b->recompute_ns, fa, fb);
    add(c, "overhead", over(a->time_ns, a->keep_all_time_ns), over(b->time_ns, b->keep_all_time_ns), fa && ka,
        fb && kb);
    add(c, "gap", over(a->time_ns, a->bound_ns), over(b->time_ns, b->bound_ns), ba, bb);
    add(c, "bound", a->bound_ns, b->bound_ns, ba, bb);
    add(c, "offload", a->offload_bytes, b->offload_bytes, fa, fb);
    add(c, "host", a->host_bytes, b->host_bytes, fa, fb);
    add(c, "keep_all_peak", a->keep_all_peak_bytes, b->keep_all_peak_bytes, a->keep_all_peak_bytes > 0,
        b->keep_all_peak_bytes > 0);
    add(c, "keep_all_time", a->keep_all_time_ns, b->keep_all_time_ns, ka, kb);
}

/* A plan as its stays in memory; lives.count 0: it does not fit, or is too old to tell. */
typedef struct side {
    const ckpt_plan *plan;
    ckpt_live_ranges ranges;
    ckpt_name_table layer; /* of the plan's decisions */
    ckpt_ns *again_ns;     /* per decision: time in runs again */
    ckpt_bytes *copied, *peak;
} side;

static ckpt_code take_layers(ckpt_comparer *c, side *s)
{
    const int count = s->plan->layer_count;
    CKPT_TRY(ckpt_name_table_init(&s->layer, count, c));
    for (int i = 0; i < count; i++) {
        ckpt_name_table_add(&s->layer, s->plan->layer[i].layer, i);
    }
    ckpt_name_table_sort(&s->layer);
    s->again_ns = CKPT_NEW(c->out, ckpt_ns, count);
    s->copied = CKPT_NEW(c->out, ckpt_bytes, count);
    s->peak = CKPT_NEW(c->out, ckpt_bytes, count);
    return s->again_ns != NULL && s->copied != NULL && s->peak != NULL
               ? CKPT_OK
               : CKPT_FAIL(c->err, CKPT_NO_MEMORY, "no memory for %d layers", count);
}

/* Time of runs again and bytes of copies, by layer. */
static ckpt_code take_steps(ckpt_comparer *c, side *s)
{
    const ckpt_outline *const o = &s->plan->outline;
    ckpt_name_table op, buffer, writer;
    CKPT_TRY(ckpt_name_table_init(&op, o->op_count, c));
    CKPT_TRY(ckpt_name_table_init(&buffer, o->buffer_count, c));
    CKPT_TRY(ckpt_name_table_init(&writer, s->ranges.count, c));
    for (int i = 0; i < o->op_count; i++) {
        ckpt_name_table_add(&op, o->op[i].name, i);
    }
    for (int i = 0; i < o->buffer_count; i++) {
        ckpt_name_table_add(&buffer, o->buffer[i].name, i);
    }
    for (int i = 0; i < s->ranges.count; i++) {
        if (s->ranges.range[i].kind != CKPT_LIFE_WORKSPACE) {
            ckpt_name_table_add(&writer, s->ranges.range[i].name,
                                ckpt_name_table_find(&s->layer, s->ranges.range[i].layer));
        }
    }
    ckpt_name_table_sort(&op);
    ckpt_name_table_sort(&buffer);
    ckpt_name_table_sort(&writer);
    for (int i = 0; i < s->plan->step_count; i++) {
        const ckpt_step *const step = &s->plan->step[i];
        if (step->kind == CKPT_RUN && step->recomputed) {
            const int at = ckpt_name_table_find(&op, step->name);
            const int layer = at >= 0 ? ckpt_name_table_find(&s->layer, o->op[at].layer) : -1;
            if (layer >= 0) {
                s->again_ns[layer] = ckpt_plus(s->again_ns[layer], o->op[at].time_ns);
            }
        } else if (step->kind == CKPT_OFFLOAD) {
            const int at = ckpt_name_table_find(&buffer, step->name);
            const int layer = ckpt_name_table_find(&writer, step->name);
            if (at >= 0 && layer >= 0) {
                s->copied[layer] = ckpt_plus(s->copied[layer], o->buffer[at].bytes);
            }
        }
    }
    return CKPT_OK;
}

static void take_peak(side *s)
{
    const int at = s->ranges.count > 0 ? s->ranges.trace->peak_event : 0;
    for (int i = 0; i < s->ranges.count; i++) {
        const ckpt_live_range *const range = &s->ranges.range[i];
        const int layer = range->from <= at && at <= range->to && range->kind != CKPT_LIFE_WORKSPACE
                              ? ckpt_name_table_find(&s->layer, range->layer)
                              : -1;
        if (layer >= 0) {
            s->peak[layer] = ckpt_plus(s->peak[layer], range->bytes);
        }
    }
}

static ckpt_code take_side(ckpt_comparer *c, const ckpt_plan *plan, const char *whose, side *s)
{
    *s = (side){.plan = plan};
    if (plan->verdict != CKPT_FITS) {
        char least[CKPT_UNITS_TEXT], budget[CKPT_UNITS_TEXT];
        CKPT_TRY(
            ckpt_compare_note(c, ckpt_arena_format(c->out, "%s does not fit its budget of %s; a plan is known for %s",
                                                   whose, ckpt_bytes_show(plan->budget_bytes, budget),
                                                   ckpt_bytes_show(plan->min_budget_bytes, least))));
    } else if (plan->outline.op_count == 0) {
        CKPT_TRY(
            ckpt_compare_note(c, ckpt_arena_format(c->out,
                                                   "%s is an older plan that does not say what it is made of: make it "
                                                   "again to see what a change costs",
                                                   whose)));
    } else {
        const ckpt_trace *trace = NULL;
        CKPT_TRY_WHILE(c->err, ckpt_plan_as_trace(plan, c->out, &trace, c->err), "reading %.120s", plan->source);
        CKPT_TRY_WHILE(c->err, ckpt_live_ranges_make(trace, c->out, &s->ranges, c->err), "reading %.120s",
                       plan->source);
    }
    CKPT_TRY(take_layers(c, s));
    CKPT_TRY(take_steps(c, s));
    take_peak(s);
    return CKPT_OK;
}

static ckpt_code add_decisions(ckpt_comparer *c, const side *a, const side *b)
{
    const ckpt_plan *const plan = b->plan;
    ckpt_decision_change *const change = CKPT_NEW(c->out, ckpt_decision_change, plan->layer_count);
    if (change == NULL) {
        return CKPT_FAIL(c->err, CKPT_NO_MEMORY, "no memory for %d layers", plan->layer_count);
    }
    int count = 0;
    ckpt_ns unchanged = 0;
    ckpt_bytes unchanged_copies = 0;
    for (int i = 0; i < plan->layer_count; i++) {
        const int at = ckpt_name_table_find(&a->layer, plan->layer[i].layer);
        if (at < 0) {
            continue;
        }
        if (a->plan->layer[at].decision == plan->layer[i].decision) {
            unchanged = ckpt_plus(unchanged, b->again_ns[i] - a->again_ns[at]);
            unchanged_copies = ckpt_plus(unchanged_copies, b->copied[i] - a->copied[at]);
            continue;
        }
        change[count++] = (ckpt_decision_change){.layer = plan->layer[i].layer,
                                                 .base = a->plan->layer[at].decision,
                                                 .fresh = plan->layer[i].decision,
                                                 .again_ns = b->again_ns[i] - a->again_ns[at],
                                                 .copied_bytes = b->copied[i] - a->copied[at],
                                                 .peak_bytes = b->peak[i] - a->peak[at]};
    }
    c->d->decision = change;
    c->d->decision_count = count;
    c->d->decisions_known = a->plan->layer_count > 0 && plan->layer_count > 0;
    if (unchanged != 0) {
        char text[CKPT_UNITS_TEXT];
        CKPT_TRY(ckpt_compare_note(c, ckpt_arena_format(c->out, "layers whose decision is the same: %s%s in runs again",
                                                        unchanged > 0 ? "+" : "", ckpt_ns_show(unchanged, text))));
    }
    if (unchanged_copies != 0) {
        char text[CKPT_UNITS_TEXT];
        CKPT_TRY(ckpt_compare_note(
            c, ckpt_arena_format(c->out, "layers whose decision is the same: %s%s copied to the host",
                                 unchanged_copies > 0 ? "+" : "", ckpt_bytes_show(unchanged_copies, text))));
    }
    return ckpt_group_decisions(c);
}

ckpt_code ckpt_compare_plans(ckpt_comparer *c)
{
    side a, b;
    add_summary(c);
    c->d->lost = c->base->plan->verdict == CKPT_FITS && c->fresh->plan->verdict != CKPT_FITS;
    CKPT_TRY(take_side(c, c->base->plan, "BASE", &a));
    CKPT_TRY(take_side(c, c->fresh->plan, "NEW", &b));
    CKPT_TRY(add_decisions(c, &a, &b));
    if (a.ranges.count == 0 || b.ranges.count == 0) {
        return CKPT_OK;
    }
    return ckpt_compare_peaks(c, &a.ranges, &b.ranges, a.plan->outline.statics, a.plan->outline.static_count,
                              b.plan->outline.statics, b.plan->outline.static_count);
}

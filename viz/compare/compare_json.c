/* A comparison for programs: everything in the report, bytes in bytes and times in nanoseconds. */
#include "core/json/json_write.h"
#include "viz/compare/compare_impl.h"

/* A side that lacks the number has null. */
static void put_side(ckpt_json_writer *w, const char *key, bool has, int64_t value)
{
    if (has) {
        ckpt_json_put_int(w, key, value);
    } else {
        ckpt_json_put_null(w, key);
    }
}

static void put_value(ckpt_json_writer *w, const ckpt_compare_value *v)
{
    static const char *const natures[] = {"exact", "sampled", "once"};
    ckpt_json_put_text(w, "unit", ckpt_compare_unit_name(v->metric->unit));
    ckpt_json_put_text(w, "nature", natures[v->nature]);
    put_side(w, "base", v->has_base, v->base);
    put_side(w, "new", v->has_new, v->fresh);
    if (v->has_base && v->has_new) {
        ckpt_json_put_int(w, "change", v->fresh - v->base);
        if (v->base != 0) {
            ckpt_json_put_real(w, "relative", ((double)v->fresh - (double)v->base) / (double)v->base);
        }
    }
    if (v->nature == CKPT_SAMPLED) {
        CKPT_JSON_INTS(w, {"base_samples", v->base_samples}, {"new_samples", v->samples});
    }
    if (v->tested) {
        ckpt_json_put_real(w, "p", v->p);
    }
    ckpt_json_put_text(w, "verdict", ckpt_compare_change_name(v->change));
    ckpt_json_put_given(w, "why", v->why);
}

static void begin_line(ckpt_json_writer *w)
{
    ckpt_json_begin_object(w, NULL, CKPT_JSON_LINE);
}

/* Metrics, or with `row` the rows beside them. */
static void put_values(ckpt_json_writer *w, const char *key, const ckpt_difference *d, bool rows)
{
    ckpt_json_begin_array(w, key, CKPT_JSON_LINES);
    for (int i = 0; i < (rows ? d->row_count : d->value_count); i++) {
        const ckpt_compare_row *const row = rows ? &d->row[i] : NULL;
        const ckpt_compare_value *const v = rows ? &row->value : &d->value[i];
        begin_line(w);
        ckpt_json_put_text(w, "name", rows ? row->name : v->metric->name);
        ckpt_json_put_given(w, "where", v->where);
        ckpt_json_put_given(w, "part", rows ? row->part : NULL);
        if (rows && row->budget_bytes > 0) {
            ckpt_json_put_int(w, "budget_bytes", row->budget_bytes);
        }
        put_value(w, v);
        ckpt_json_end(w);
    }
    ckpt_json_end(w);
}

static const char *const fates[] = {
    [CKPT_LAYER_SAME] = "same",       [CKPT_LAYER_RESIZED] = "resized", [CKPT_LAYER_ADDED] = "added",
    [CKPT_LAYER_REMOVED] = "removed", [CKPT_LAYER_STATIC] = "static",   [CKPT_LAYER_REST] = "rest"};

/* What is not 0. */
static void put_shares(ckpt_json_writer *w, const int64_t *by)
{
    static const char *const keys[] = {[CKPT_SHARE_PEAK] = "peak_bytes",
                                       [CKPT_SHARE_TIME] = "time_ns",
                                       [CKPT_SHARE_RECOMPUTED] = "recompute_ns",
                                       [CKPT_SHARE_KEEP_ALL] = "keep_all_ns",
                                       [CKPT_SHARE_COPIED] = "copied_bytes",
                                       [CKPT_SHARE_HOST] = "host_bytes",
                                       [CKPT_SHARE_OTHER_WAYS] = "other_ways",
                                       [CKPT_SHARE_INEXACT] = "inexact",
                                       [CKPT_SHARE_FORWARD] = "forward_ns",
                                       [CKPT_SHARE_BACKWARD] = "backward_ns",
                                       [CKPT_SHARE_UPDATE] = "update_ns",
                                       [CKPT_SHARE_COPY] = "copy_ns",
                                       [CKPT_SHARE_WAIT] = "wait_ns"};
    for (int s = 0; s < CKPT_SHARE_COUNT; s++) {
        if (by[s] != 0) {
            ckpt_json_put_int(w, keys[s], by[s]);
        }
    }
}

static void put_layers(ckpt_json_writer *w, const ckpt_difference *d)
{
    ckpt_json_begin_array(w, "layers", CKPT_JSON_LINES);
    for (int i = 0; i < d->layer_count; i++) {
        const ckpt_compare_layer *const l = &d->layer[i];
        begin_line(w);
        ckpt_json_put_text(w, "name", l->layer);
        ckpt_json_put_text(w, "change", fates[l->fate]);
        ckpt_json_put_text(w, "what", l->what);
        if (l->decided) {
            ckpt_json_put_text(w, "base", ckpt_decision_name(l->base));
            ckpt_json_put_text(w, "new", ckpt_decision_name(l->fresh));
        }
        if (l->base_bytes != l->fresh_bytes) {
            CKPT_JSON_INTS(w, {"base_bytes", l->base_bytes}, {"new_bytes", l->fresh_bytes});
        }
        put_shares(w, l->by);
        ckpt_json_put_int(w, "group", l->group);
        ckpt_json_end(w);
    }
    ckpt_json_end(w);
    ckpt_json_begin_array(w, "layer_groups", CKPT_JSON_LINES);
    for (int i = 0; i < d->layer_group_count; i++) {
        const ckpt_compare_group *const g = &d->layer_group[i];
        begin_line(w);
        ckpt_json_put_text(w, "name", g->name);
        ckpt_json_put_int(w, "count", g->count);
        ckpt_json_put_text(w, "change", fates[g->fate]);
        ckpt_json_put_text(w, "what", g->what);
        put_shares(w, g->by);
        ckpt_json_end(w);
    }
    ckpt_json_end(w);
}

/* Only of plans with variants. */
static void put_ways(ckpt_json_writer *w, const ckpt_difference *d)
{
    if (d->way_count == 0) {
        return;
    }
    ckpt_json_begin_array(w, "ways", CKPT_JSON_LINES);
    for (int i = 0; i < d->way_count; i++) {
        const ckpt_way_change *const c = &d->way[i];
        begin_line(w);
        ckpt_json_put_text(w, "op", c->op);
        ckpt_json_put_text(w, "base", c->base);
        ckpt_json_put_text(w, "new", c->fresh);
        if (c->timed) {
            ckpt_json_put_int(w, "time_ns", c->time_ns);
        }
        ckpt_json_put_int(w, "workspace_bytes", c->workspace_bytes);
        ckpt_json_end(w);
    }
    ckpt_json_end(w);
}

static void put_contributors(ckpt_json_writer *w, const ckpt_difference *d)
{
    ckpt_json_put_text(w, "base_peak", d->base_peak);
    ckpt_json_put_text(w, "new_peak", d->peak);
    ckpt_json_begin_array(w, "contributors", CKPT_JSON_LINES);
    for (int i = 0; i < d->contributor_count; i++) {
        const ckpt_contributor *const c = &d->contributor[i];
        begin_line(w);
        ckpt_json_put_text(w, "name", c->name);
        ckpt_json_put_text(w, "layer", c->layer);
        ckpt_json_put_text(w, "what", c->what);
        CKPT_JSON_INTS(w, {"base_bytes", c->base}, {"new_bytes", c->fresh});
        ckpt_json_put_text(w, "base_reason", c->base_reason);
        ckpt_json_put_text(w, "new_reason", c->reason);
        ckpt_json_end(w);
    }
    ckpt_json_end(w);
}

static void put_limits(ckpt_json_writer *w, const ckpt_difference *d)
{
    ckpt_json_begin_array(w, "limits", CKPT_JSON_LINES);
    for (int i = 0; i < d->limit_count; i++) {
        const ckpt_limit_result *const r = &d->limit[i];
        begin_line(w);
        ckpt_json_put_text(w, "limit", r->limit->text);
        ckpt_json_put_text(w, "metric", r->limit->metric->name);
        ckpt_json_put_text(w, "state", ckpt_limit_state_name(r->state));
        ckpt_json_put_int(w, "allowed", r->allowed);
        ckpt_json_put_text(w, "text", r->text);
        ckpt_json_begin_array(w, "because", CKPT_JSON_LINES);
        for (int k = 0; k < r->because_count; k++) {
            begin_line(w);
            ckpt_json_put_text(w, "text", r->because[k].text);
            put_side(w, "change", r->because[k].counts, r->because[k].change);
            ckpt_json_end(w);
        }
        ckpt_json_end(w);
        ckpt_json_end(w);
    }
    ckpt_json_end(w);
}

/* What makes them not comparable, or what was only set otherwise. */
static void put_pairs(ckpt_json_writer *w, const char *key, const ckpt_compare_mismatch *pair, int count)
{
    ckpt_json_begin_array(w, key, CKPT_JSON_LINES);
    for (int i = 0; i < count; i++) {
        begin_line(w);
        ckpt_json_put_text(w, "what", pair[i].what);
        ckpt_json_put_text(w, "base", pair[i].base);
        ckpt_json_put_text(w, "new", pair[i].fresh);
        ckpt_json_end(w);
    }
    ckpt_json_end(w);
}

static void put_difference(ckpt_json_writer *w, const ckpt_difference *d, ckpt_arena *arena)
{
    const char *const verdict = ckpt_compare_verdict(d, arena);
    w->text->failed = w->text->failed || verdict == NULL;
    ckpt_json_put_text(w, "new", d->fresh->source);
    ckpt_json_put_text(w, "verdict", verdict);
    ckpt_json_put_bool(w, "compared", d->compared);
    put_pairs(w, "mismatches", d->mismatch, d->mismatch_count);
    put_pairs(w, "settings", d->setting, d->setting_count);
    ckpt_json_put_texts(w, "notes", d->note, d->note_count);
    if (!d->compared) {
        return;
    }
    CKPT_JSON_INTS(w, {"worse", d->worse}, {"better", d->better});
    ckpt_json_put_bool(w, "exceeded", d->exceeded);
    ckpt_json_put_bool(w, "lost", d->lost);
    put_values(w, "metrics", d, false);
    ckpt_json_put_text(w, "first_difference", d->first_difference);
    put_layers(w, d);
    put_ways(w, d);
    put_contributors(w, d);
    ckpt_json_put_text(w, "rows_are", d->row_title);
    put_values(w, "rows", d, true);
    put_limits(w, d);
}

void ckpt_compare_json(const ckpt_compare_report *report, ckpt_text *text)
{
    ckpt_arena arena;
    ckpt_json_writer w;
    ckpt_arena_init(&arena);
    ckpt_json_begin(&w, text);
    ckpt_json_begin_object(&w, NULL, CKPT_JSON_LINES);
    ckpt_json_put_text(&w, "kind", ckpt_compare_kind_name(report->kind));
    ckpt_json_put_text(&w, "base", report->count > 0 ? report->difference[0].base->source : "");
    ckpt_json_put_int(&w, "status", report->status);
    ckpt_json_put_real(&w, "alpha", report->options.alpha);
    ckpt_json_begin_array(&w, "differences", CKPT_JSON_LINES);
    for (int i = 0; i < report->count; i++) {
        ckpt_json_begin_object(&w, NULL, CKPT_JSON_LINES);
        put_difference(&w, &report->difference[i], &arena);
        ckpt_json_end(&w);
    }
    ckpt_json_end(&w);
    ckpt_json_end(&w);
    ckpt_arena_fini(&arena);
}

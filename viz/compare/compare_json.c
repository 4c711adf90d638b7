/* A comparison for programs: everything in the report, bytes in bytes and times in nanoseconds. */
#include <inttypes.h>

#include "viz/compare/compare.h"

static void put(ckpt_text *text, const char *before, const char *value)
{
    ckpt_text_add(text, "%s", before);
    ckpt_text_json(text, value);
}

static void put_real(ckpt_text *text, const char *before, double value)
{
    ckpt_text_add(text, "%s", before);
    ckpt_text_real(text, value);
}

static const char *unit_name(ckpt_compare_unit unit)
{
    switch (unit) {
    case CKPT_UNIT_BYTES: return "bytes";
    case CKPT_UNIT_NS: return "ns";
    case CKPT_UNIT_RATIO: break;
    }
    return "millionths";
}

/* The members of a number; a side that lacks it has null. */
static void put_value(const ckpt_compare_value *v, ckpt_text *text)
{
    static const char *const natures[] = {"exact", "sampled", "once"};
    ckpt_text_add(text, "\"unit\": \"%s\", \"nature\": \"%s\", ", unit_name(v->metric->unit), natures[v->nature]);
    ckpt_text_add(text, v->has_base ? "\"base\": %" PRId64 ", " : "\"base\": null, ", v->base);
    ckpt_text_add(text, v->has_new ? "\"new\": %" PRId64 ", " : "\"new\": null, ", v->fresh);
    if (v->has_base && v->has_new) {
        ckpt_text_add(text, "\"change\": %" PRId64 ", ", v->fresh - v->base);
        if (v->base != 0) {
            put_real(text, "\"relative\": ", ((double)v->fresh - (double)v->base) / (double)v->base);
            ckpt_text_add(text, ", ");
        }
    }
    if (v->nature == CKPT_SAMPLED) {
        ckpt_text_add(text, "\"base_samples\": %d, \"new_samples\": %d, ", v->base_samples, v->samples);
    }
    if (v->tested) {
        put_real(text, "\"p\": ", v->p);
        ckpt_text_add(text, ", ");
    }
    ckpt_text_add(text, "\"verdict\": \"%s\"", ckpt_compare_change_name(v->change));
    if (v->why[0] != '\0') {
        put(text, ", \"why\": ", v->why);
    }
}

static const char *begin(int i)
{
    return i > 0 ? ",\n      " : "\n      ";
}

static void put_values(const ckpt_difference *d, ckpt_text *text)
{
    ckpt_text_add(text, ",\n    \"metrics\": [");
    for (int i = 0; i < d->value_count; i++) {
        const ckpt_compare_value *const v = &d->value[i];
        ckpt_text_add(text, "%s{\"name\": \"%s\", ", begin(i), v->metric->name);
        if (v->where[0] != '\0') {
            put(text, "\"where\": ", v->where);
            ckpt_text_add(text, ", ");
        }
        put_value(v, text);
        ckpt_text_add(text, "}");
    }
    ckpt_text_add(text, "]");
}

static void put_rows(const ckpt_difference *d, ckpt_text *text)
{
    put(text, ",\n    \"rows_are\": ", d->row_title);
    ckpt_text_add(text, ",\n    \"rows\": [");
    for (int i = 0; i < d->row_count; i++) {
        const ckpt_compare_row *const row = &d->row[i];
        ckpt_text_add(text, "%s", begin(i));
        put(text, "{\"name\": ", row->name);
        if (row->part[0] != '\0') {
            put(text, ", \"part\": ", row->part);
        }
        if (row->budget_bytes > 0) {
            ckpt_text_add(text, ", \"budget_bytes\": %" PRId64, row->budget_bytes);
        }
        ckpt_text_add(text, ", ");
        put_value(&row->value, text);
        ckpt_text_add(text, "}");
    }
    ckpt_text_add(text, "]");
}

static void put_decisions(const ckpt_difference *d, ckpt_text *text)
{
    ckpt_text_add(text, ",\n    \"decisions\": [");
    for (int i = 0; i < d->decision_count; i++) {
        const ckpt_decision_change *const c = &d->decision[i];
        ckpt_text_add(text, "%s", begin(i));
        put(text, "{\"layer\": ", c->layer);
        ckpt_text_add(text,
                      ", \"base\": \"%s\", \"new\": \"%s\", \"again_ns\": %" PRId64 ", \"copied_bytes\": %" PRId64
                      ", \"peak_bytes\": %" PRId64 ", \"group\": %d}",
                      ckpt_decision_name(c->base), ckpt_decision_name(c->fresh), c->again_ns, c->copied_bytes,
                      c->peak_bytes, c->group);
    }
    ckpt_text_add(text, "],\n    \"decision_groups\": [");
    for (int i = 0; i < d->decision_group_count; i++) {
        const ckpt_decision_group *const g = &d->decision_group[i];
        ckpt_text_add(text, "%s", begin(i));
        put(text, "{\"name\": ", g->name);
        ckpt_text_add(text,
                      ", \"count\": %d, \"base\": \"%s\", \"new\": \"%s\", \"again_ns\": %" PRId64
                      ", \"copied_bytes\": %" PRId64 ", \"peak_bytes\": %" PRId64 "}",
                      g->count, ckpt_decision_name(g->base), ckpt_decision_name(g->fresh), g->again_ns, g->copied_bytes,
                      g->peak_bytes);
    }
    ckpt_text_add(text, "]");
}

static void put_contributors(const ckpt_difference *d, ckpt_text *text)
{
    put(text, ",\n    \"base_peak\": ", d->base_peak);
    put(text, ", \"new_peak\": ", d->peak);
    ckpt_text_add(text, ",\n    \"contributors\": [");
    for (int i = 0; i < d->contributor_count; i++) {
        const ckpt_contributor *const c = &d->contributor[i];
        ckpt_text_add(text, "%s", begin(i));
        put(text, "{\"name\": ", c->name);
        put(text, ", \"layer\": ", c->layer);
        put(text, ", \"what\": ", c->what);
        ckpt_text_add(text, ", \"base_bytes\": %" PRId64 ", \"new_bytes\": %" PRId64, c->base, c->fresh);
        put(text, ", \"base_reason\": ", c->base_reason);
        put(text, ", \"new_reason\": ", c->reason);
        ckpt_text_add(text, "}");
    }
    ckpt_text_add(text, "]");
}

static void put_limits(const ckpt_difference *d, ckpt_text *text)
{
    static const char *const states[] = {"held", "exceeded", "open"};
    ckpt_text_add(text, ",\n    \"limits\": [");
    for (int i = 0; i < d->limit_count; i++) {
        const ckpt_limit_result *const r = &d->limit[i];
        ckpt_text_add(text, "%s", begin(i));
        put(text, "{\"limit\": ", r->limit->text);
        ckpt_text_add(text, ", \"metric\": \"%s\", \"state\": \"%s\", \"allowed\": %" PRId64, r->limit->metric->name,
                      states[r->state], r->allowed);
        put(text, ", \"text\": ", r->text);
        ckpt_text_add(text, ", \"because\": [");
        for (int k = 0; k < r->because_count; k++) {
            put(text, k > 0 ? ", " : "", r->because[k]);
        }
        ckpt_text_add(text, "]}");
    }
    ckpt_text_add(text, "]");
}

static void put_difference(const ckpt_difference *d, ckpt_text *text)
{
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    const char *const verdict = ckpt_compare_verdict(d, &arena);
    text->failed = text->failed || verdict == NULL;
    put(text, "\n    \"new\": ", d->fresh->source);
    put(text, ", \"verdict\": ", verdict != NULL ? verdict : "");
    ckpt_arena_fini(&arena);
    ckpt_text_add(text, ",\n    \"compared\": %s, \"mismatches\": [", d->compared ? "true" : "false");
    for (int i = 0; i < d->mismatch_count; i++) {
        put(text, i > 0 ? ", {\"what\": " : "{\"what\": ", d->mismatch[i].what);
        put(text, ", \"base\": ", d->mismatch[i].base);
        put(text, ", \"new\": ", d->mismatch[i].fresh);
        ckpt_text_add(text, "}");
    }
    ckpt_text_add(text, "], \"notes\": [");
    for (int i = 0; i < d->note_count; i++) {
        put(text, i > 0 ? ", " : "", d->note[i]);
    }
    ckpt_text_add(text, "]");
    if (!d->compared) {
        return;
    }
    ckpt_text_add(text, ",\n    \"worse\": %d, \"better\": %d, \"exceeded\": %s, \"lost\": %s", d->worse, d->better,
                  d->exceeded ? "true" : "false", d->lost ? "true" : "false");
    put_values(d, text);
    put(text, ",\n    \"first_difference\": ", d->first_difference);
    put_decisions(d, text);
    put_contributors(d, text);
    put_rows(d, text);
    put_limits(d, text);
}

void ckpt_compare_json(const ckpt_compare_report *report, ckpt_text *text)
{
    const char *const base = report->count > 0 ? report->difference[0].base->source : "";
    ckpt_text_add(text, "{\n  \"kind\": \"%s\",", ckpt_compare_kind_name(report->kind));
    put(text, " \"base\": ", base);
    ckpt_text_add(text, ", \"status\": %d", report->status);
    put_real(text, ", \"alpha\": ", report->options.alpha);
    ckpt_text_add(text, ",\n  \"differences\": [");
    for (int i = 0; i < report->count; i++) {
        ckpt_text_add(text, i > 0 ? ", {" : "{");
        put_difference(&report->difference[i], text);
        ckpt_text_add(text, "\n  }");
    }
    ckpt_text_add(text, "]\n}\n");
}

/* A comparison as CSV (RFC 4180): one line per number, so that a spreadsheet or a script can filter by `section`. */
#include <inttypes.h>
#include <string.h>

#include "viz/compare/compare_write.h"
#include "viz/draw/words.h"

/* Quoted where it has to be. */
static void put_field(ckpt_text *text, const char *string)
{
    const bool plain =
        strspn(string, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./ ()>") == strlen(string);
    if (plain) {
        ckpt_text_add(text, "%s", string);
        return;
    }
    ckpt_words_csv(text, string);
}

/* What every line begins with. */
static void put_head(const ckpt_difference *d, const char *section, const char *name, const char *part,
                     const char *unit, ckpt_text *text)
{
    const char *const field[] = {d->base->source, d->fresh->source, section, name, part, unit};
    for (size_t i = 0; i < sizeof field / sizeof field[0]; i++) {
        put_field(text, field[i]);
        ckpt_text_add(text, ",");
    }
}

static void put_number(bool has, int64_t value, ckpt_text *text)
{
    if (has) {
        ckpt_text_add(text, "%" PRId64, value);
    }
    ckpt_text_add(text, ",");
}

static const char *unit_name(ckpt_compare_unit unit)
{
    return unit == CKPT_UNIT_BYTES ? "bytes" : unit == CKPT_UNIT_NS ? "ns" : "millionths";
}

static void put_value(const ckpt_compare_value *v, ckpt_text *text)
{
    put_number(v->has_base, v->base, text);
    put_number(v->has_new, v->fresh, text);
    put_field(text, ckpt_compare_change_name(v->change));
    ckpt_text_add(text, ",");
    if (v->tested) {
        ckpt_text_real(text, v->p);
    }
    ckpt_text_add(text, ",");
    put_field(text, v->why);
    ckpt_text_add(text, "\r\n");
}

static void put_decisions(const ckpt_difference *d, ckpt_text *text)
{
    for (int i = 0; i < d->decision_count; i++) {
        const ckpt_decision_change *const c = &d->decision[i];
        const struct {
            const char *part, *unit;
            int64_t more;
        } cost[] = {{"recomputed", "ns", c->again_ns},
                    {"at the peak", "bytes", c->peak_bytes},
                    {"copied to the host", "bytes", c->copied_bytes}};
        for (size_t k = 0; k < sizeof cost / sizeof cost[0]; k++) {
            put_head(d, "decision", c->layer, cost[k].part, cost[k].unit, text);
            ckpt_text_add(text, ",%" PRId64 ",,,%s -> %s\r\n", cost[k].more, ckpt_decision_name(c->base),
                          ckpt_decision_name(c->fresh));
        }
    }
}

static void put_contributors(const ckpt_difference *d, ckpt_text *text)
{
    for (int i = 0; i < d->contributor_count; i++) {
        const ckpt_contributor *const c = &d->contributor[i];
        put_head(d, "at the peak", c->name, c->what, "bytes", text);
        ckpt_text_add(text, "%" PRId64 ",%" PRId64 ",,,", c->base, c->fresh);
        put_field(text, c->fresh > 0 ? c->reason : c->base_reason);
        ckpt_text_add(text, "\r\n");
    }
}

static void put_limits(const ckpt_difference *d, ckpt_text *text)
{
    static const char *const states[] = {"held", "exceeded", "open"};
    for (int i = 0; i < d->limit_count; i++) {
        const ckpt_limit_result *const r = &d->limit[i];
        put_head(d, "limit", r->limit->metric->name, r->limit->text, unit_name(r->limit->metric->unit), text);
        ckpt_text_add(text, ",,%s,,", states[r->state]);
        put_field(text, r->text);
        ckpt_text_add(text, "\r\n");
    }
}

void ckpt_compare_csv(const ckpt_compare_report *report, ckpt_text *text)
{
    ckpt_text_add(text, "base_file,new_file,section,name,part,unit,base,new,verdict,p,note\r\n");
    for (int i = 0; i < report->count; i++) {
        const ckpt_difference *const d = &report->difference[i];
        for (int k = 0; k < d->mismatch_count; k++) {
            put_head(d, "not comparable", d->mismatch[k].what, "", "", text);
            put_field(text, d->mismatch[k].base);
            ckpt_text_add(text, ",");
            put_field(text, d->mismatch[k].fresh);
            ckpt_text_add(text, ",%s,,\r\n", d->compared ? "forced" : "refused");
        }
        for (int k = 0; k < d->value_count; k++) {
            const ckpt_compare_value *const v = &d->value[k];
            put_head(d, "metric", v->metric->name, v->where, unit_name(v->metric->unit), text);
            put_value(v, text);
        }
        for (int k = 0; k < d->row_count; k++) {
            const ckpt_compare_value *const v = &d->row[k].value;
            put_head(d, d->row_title, d->row[k].name, d->row[k].part, unit_name(v->metric->unit), text);
            put_value(v, text);
        }
        put_limits(d, text);
        put_decisions(d, text);
        put_contributors(d, text);
    }
}

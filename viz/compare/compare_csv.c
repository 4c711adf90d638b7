/* A comparison as CSV (RFC 4180): one line per number, so that a spreadsheet or a script can filter by `section`. */
#include <inttypes.h>
#include <stdio.h>

#include "viz/compare/compare_impl.h"
#include "viz/draw/words.h"

/* One line, without the number of a side that lacks it. */
typedef struct line {
    const char *section, *name, *part, *unit;
    bool has_base, has_new;
    int64_t base, fresh;
    const char *verdict;
    bool tested;
    double p;
    const char *note;
} line;

static void put_field(ckpt_text *text, const char *words)
{
    ckpt_words_csv(text, words);
    ckpt_text_put(text, ",", 1);
}

static void put_line(ckpt_text *text, const ckpt_difference *d, const line *l)
{
    const char *const head[] = {d->base->source, d->fresh->source, l->section, l->name, l->part, l->unit};
    for (size_t i = 0; i < sizeof head / sizeof head[0]; i++) {
        put_field(text, head[i]);
    }
    ckpt_text_add(text, l->has_base ? "%" PRId64 "," : ",", l->base);
    ckpt_text_add(text, l->has_new ? "%" PRId64 "," : ",", l->fresh);
    put_field(text, l->verdict);
    if (l->tested) {
        ckpt_text_real(text, l->p);
    }
    ckpt_text_put(text, ",", 1);
    ckpt_words_csv(text, l->note);
    ckpt_text_put(text, "\r\n", 2);
}

static void put_value(ckpt_text *text, const ckpt_difference *d, const char *section, const char *name,
                      const char *part, const ckpt_compare_value *v)
{
    put_line(text, d,
             &(line){section, name, part, ckpt_compare_unit_name(v->metric->unit), v->has_base, v->has_new, v->base,
                     v->fresh, ckpt_compare_change_name(v->change), v->tested, v->p, v->why});
}

/* A line for each share that is not 0; one without a number where none is. */
static void put_layer(ckpt_text *text, const ckpt_difference *d, const ckpt_compare_layer *l)
{
    static const struct {
        const char *part;
        ckpt_compare_unit unit;
    } shares[] = {[CKPT_SHARE_PEAK] = {"at the peak", CKPT_UNIT_BYTES},
                  [CKPT_SHARE_TIME] = {"time", CKPT_UNIT_NS},
                  [CKPT_SHARE_RECOMPUTED] = {"recomputed", CKPT_UNIT_NS},
                  [CKPT_SHARE_KEEP_ALL] = {"keep-all time", CKPT_UNIT_NS},
                  [CKPT_SHARE_COPIED] = {"copied to the host", CKPT_UNIT_BYTES},
                  [CKPT_SHARE_HOST] = {"on the host", CKPT_UNIT_BYTES},
                  [CKPT_SHARE_OTHER_WAYS] = {"runs in another way", CKPT_UNIT_COUNT},
                  [CKPT_SHARE_INEXACT] = {"inexact runs", CKPT_UNIT_COUNT},
                  [CKPT_SHARE_FORWARD] = {"forward time", CKPT_UNIT_NS},
                  [CKPT_SHARE_BACKWARD] = {"backward time", CKPT_UNIT_NS},
                  [CKPT_SHARE_UPDATE] = {"update time", CKPT_UNIT_NS},
                  [CKPT_SHARE_COPY] = {"copy time", CKPT_UNIT_NS},
                  [CKPT_SHARE_WAIT] = {"wait time", CKPT_UNIT_NS}};
    bool any = false;
    for (int s = 0; s < CKPT_SHARE_COUNT; s++) {
        if (l->by[s] != 0) {
            any = true;
            put_line(text, d,
                     &(line){"layer", l->layer, shares[s].part, ckpt_compare_unit_name(shares[s].unit), .has_new = true,
                             .fresh = l->by[s], .verdict = "", .note = l->what});
        }
    }
    if (!any) {
        put_line(text, d, &(line){"layer", l->layer, "", "", .verdict = "", .note = l->what});
    }
}

static void put_way(ckpt_text *text, const ckpt_difference *d, const ckpt_way_change *w)
{
    const char *const between[] = {w->base, " -> ", w->fresh};
    ckpt_text change;
    ckpt_text_init(&change);
    for (int i = 0; i < 3; i++) {
        ckpt_text_add(&change, "%s", between[i]);
    }
    text->failed = text->failed || change.failed;
    for (int k = 0; k < 2 && !change.failed; k++) {
        put_line(text, d,
                 &(line){.section = "way",
                         .name = w->op,
                         .part = k == 0 ? "time" : "workspace",
                         .unit = ckpt_compare_unit_name(k == 0 ? CKPT_UNIT_NS : CKPT_UNIT_BYTES),
                         .has_new = k == 1 || w->timed,
                         .fresh = k == 0 ? w->time_ns : w->workspace_bytes,
                         .verdict = "",
                         .note = change.bytes});
    }
    ckpt_text_fini(&change);
}

static void put_difference(ckpt_text *text, const ckpt_difference *d)
{
    for (int k = 0; k < d->mismatch_count; k++) {
        put_line(text, d,
                 &(line){.section = "not comparable",
                         .name = d->mismatch[k].what,
                         .part = d->mismatch[k].base,
                         .unit = "",
                         .verdict = d->compared ? "forced" : "refused",
                         .note = d->mismatch[k].fresh});
    }
    for (int k = 0; k < d->setting_count; k++) {
        put_line(text, d,
                 &(line){.section = "set",
                         .name = d->setting[k].what,
                         .part = d->setting[k].base,
                         .unit = "",
                         .verdict = "",
                         .note = d->setting[k].fresh});
    }
    for (int k = 0; k < d->value_count; k++) {
        put_value(text, d, "metric", d->value[k].metric->name, d->value[k].where, &d->value[k]);
    }
    for (int k = 0; k < d->row_count; k++) {
        put_value(text, d, d->row_title, d->row[k].name, d->row[k].part, &d->row[k].value);
    }
    for (int k = 0; k < d->limit_count; k++) {
        const ckpt_limit_result *const r = &d->limit[k];
        put_line(text, d,
                 &(line){.section = "limit",
                         .name = r->limit->metric->name,
                         .part = r->limit->text,
                         .unit = ckpt_compare_unit_name(r->limit->metric->unit),
                         .verdict = ckpt_limit_state_name(r->state),
                         .note = r->text});
    }
    for (int k = 0; k < d->layer_count; k++) {
        put_layer(text, d, &d->layer[k]);
    }
    for (int k = 0; k < d->way_count; k++) {
        put_way(text, d, &d->way[k]);
    }
    for (int k = 0; k < d->contributor_count; k++) {
        const ckpt_contributor *const c = &d->contributor[k];
        put_line(text, d,
                 &(line){.section = "at the peak",
                         .name = c->name,
                         .part = c->what,
                         .unit = "bytes",
                         .has_base = true,
                         .has_new = true,
                         .base = c->base,
                         .fresh = c->fresh,
                         .verdict = "",
                         .note = c->fresh > 0 ? c->reason : c->base_reason});
    }
}

void ckpt_compare_csv(const ckpt_compare_report *report, ckpt_text *text)
{
    ckpt_text_add(text, "base_file,new_file,section,name,part,unit,base,new,verdict,p,note\r\n");
    for (int i = 0; i < report->count; i++) {
        put_difference(text, &report->difference[i]);
    }
}

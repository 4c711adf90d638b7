/* The page's data: columns of whole numbers, each number but the first as the difference to the one before it, a run of
 * equal differences as [difference, count]; names once, as numbers of texts. Small, and read without a parser of ours
 * (viz/html/data.js). */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/names.h"
#include "core/json/json_write.h"
#include "viz/html/view_html_impl.h"
#include "viz/timeline/variants.h"
#include "viz/timeline/view_live_set.h"

typedef struct writer {
    const ckpt_view *view;
    const ckpt_trace *trace; /* the base */
    ckpt_json_writer json;
    ckpt_names names; /* of texts, in order of their first use */
    const char **text;
    int text_count;
    bool failed; /* no memory for a text */
} writer;

static int number_of(writer *w, const char *text)
{
    text = text != NULL ? text : "";
    const int known = ckpt_names_add(&w->names, text, w->text_count);
    if (known >= 0) {
        return known;
    }
    w->text[w->text_count] = text;
    return w->text_count++;
}

/* A column that is being written. */
typedef struct column {
    ckpt_text *json;
    int64_t last, difference;
    int repeats; /* of the difference that is not written yet */
    bool any;
} column;

static void flush(column *to)
{
    if (to->repeats > 3) {
        ckpt_text_add(to->json, "%s[%" PRId64 ",%d]", to->any ? "," : "", to->difference, to->repeats);
        to->any = true;
        return;
    }
    for (int i = 0; i < to->repeats; i++) {
        ckpt_text_add(to->json, "%s%" PRId64, to->any ? "," : "", to->difference);
        to->any = true;
    }
}

/* value >= -1 */
static void add(column *to, int64_t value)
{
    const int64_t difference = value - to->last;
    if (to->repeats == 0 || difference != to->difference) {
        flush(to);
        to->difference = difference;
        to->repeats = 0;
    }
    to->repeats++;
    to->last = value;
}

static column begin(writer *w, const char *name)
{
    ckpt_json_put_here(&w->json, name);
    ckpt_text_put(w->json.text, "[", 1);
    return (column){.json = w->json.text};
}

static void end(column *to)
{
    flush(to);
    ckpt_text_put(to->json, "]", 1);
}

static void put_positions(writer *w, const char *name, const double *from, int count)
{
    column numbers = begin(w, name);
    for (int i = 0; i <= count; i++) {
        add(&numbers, (int64_t)fmin(from[i], 9.2e18)); /* a clock's last nanoseconds round up beyond 63 bits */
    }
    end(&numbers);
}

/* What every trace has: its positions on both axes and its bytes. `time` has room for one more than its events. */
static void put_series(writer *w, const ckpt_series *series, double *time)
{
    const ckpt_trace *const trace = series->trace;
    ckpt_json_begin_object(&w->json, NULL, CKPT_JSON_LINES);
    CKPT_JSON_INTS(&w->json, {"count", trace->event_count}, {"static", trace->static_bytes});
    ckpt_json_put_text(&w->json, "label", series->label);
    ckpt_json_put_text(&w->json, "verdict", series->verdict);
    ckpt_trace_times(trace, time);
    put_positions(w, "steps", series->from, trace->event_count);
    put_positions(w, "time", time, trace->event_count);
    column planned = begin(w, "planned");
    for (int i = 0; i < trace->event_count && trace != w->trace; i++) { /* the base's is the sum of its bands */
        ckpt_bands bands;
        ckpt_event_bands(trace, &trace->event[i], &bands);
        add(&planned, bands.planned);
    }
    end(&planned);
    ckpt_json_end(&w->json);
}

static ckpt_code put_traces(writer *w, ckpt_err *err)
{
    const ckpt_view *const view = w->view;
    int most = 0;
    for (int s = 0; s < view->count; s++) {
        const int events = view->series[s].trace->event_count;
        most = events > most ? events : most;
    }
    double *const time = CKPT_NEW(view->canvas.scratch, double, (size_t)most + 1);
    if (time == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the times of %d events", most);
    }
    ckpt_json_put_int(&w->json, "base", view->base);
    ckpt_json_begin_array(&w->json, "traces", CKPT_JSON_LINES);
    for (int s = 0; s < view->count; s++) {
        put_series(w, &view->series[s], time);
    }
    ckpt_json_end(&w->json);
    return CKPT_OK;
}

/* An op that runs in another way than its own has that in its name: the page needs no more. */
static const char *called(writer *w, const ckpt_event *event)
{
    const char *const name = event->variant != NULL ? ckpt_event_called(event, w->view->canvas.scratch) : event->name;
    w->failed = w->failed || (event->variant != NULL && name == NULL);
    return name;
}

typedef int64_t field_of(writer *w, int i, int field);

/* An object of columns. */
static void put_columns(writer *w, const char *key, const char *const *name, int fields, int count, field_of *value)
{
    ckpt_json_begin_object(&w->json, key, CKPT_JSON_LINES);
    ckpt_json_put_int(&w->json, "count", count);
    for (int field = 0; field < fields; field++) {
        column numbers = begin(w, name[field]);
        for (int i = 0; i < count; i++) {
            add(&numbers, value(w, i, field));
        }
        end(&numbers);
    }
    ckpt_json_end(&w->json);
}

static const char *const event_fields[] = {"name", "layer", "span", "lane", "start", "end", "step"};

static int64_t event_value(writer *w, int i, int field)
{
    const ckpt_event *const event = &w->trace->event[i];
    switch (field) {
    case 0: return number_of(w, called(w, event));
    case 1: return number_of(w, event->layer);
    case 2: return event->span;
    case 3: return w->view->lane_of[i];
    case 4: return event->start_ns;
    case 5: return event->end_ns;
    default: return event->step;
    }
}

static const char *const range_fields[] = {"name", "layer",  "kind",   "why",   "from", "to", "born",
                                           "last", "copied", "offset", "bytes", "high", "low"};

static int64_t range_value(writer *w, int i, int field)
{
    const ckpt_live_range *const range = &w->view->ranges.range[i];
    switch (field) {
    case 0:
        return number_of(w, range->kind == CKPT_LIVE_WORKSPACE && !w->view->no_plan
                                ? called(w, &w->trace->event[range->born])
                                : range->name);
    case 1: return number_of(w, range->layer);
    case 2: return range->kind;
    case 3: return ckpt_live_range_why(&w->view->ranges, i);
    case 4: return range->from;
    case 5: return range->to;
    case 6: return range->born;
    case 7: return range->last;
    case 8: return range->copied;
    case 9: return range->offset;
    case 10: return range->bytes;
    case 11: return (int64_t)((uint64_t)range->address >> 32); /* JavaScript's numbers have 53 bits */
    default: return (int64_t)((uint64_t)range->address & 0xFFFFFFFFu);
    }
}

/* The second cue beside colour, by its name in viz/html/paint.js. */
static const char *const hatch_name[CKPT_HATCH_COUNT] = {
    [CKPT_HATCH_NONE] = "none",   [CKPT_HATCH_RISING] = "rising", [CKPT_HATCH_FALLING] = "falling",
    [CKPT_HATCH_CROSS] = "cross", [CKPT_HATCH_LEVEL] = "level",   [CKPT_HATCH_DOTS] = "dots",
};

static void begin_look(writer *w, const char *name, ckpt_colour_role role)
{
    ckpt_json_begin_object(&w->json, NULL, CKPT_JSON_LINE);
    ckpt_json_put_text(&w->json, "name", name);
    ckpt_json_put_text(&w->json, "rgb", ckpt_colour_role_looks[role].rgb);
    ckpt_json_put_text(&w->json, "hatch", hatch_name[ckpt_colour_role_looks[role].hatch]);
}

static void put_bands(writer *w)
{
    const ckpt_series *const base = &w->view->series[w->view->base];
    ckpt_bands bands;
    ckpt_json_begin_array(&w->json, "bands", CKPT_JSON_LINES);
    for (int b = 0; b < CKPT_BAND_COUNT; b++) {
        if (!base->used[b]) {
            continue;
        }
        const ckpt_band_look *const look = ckpt_view_band(w->view, b);
        begin_look(w, look->name, look->role);
        ckpt_json_put_bool(&w->json, "outside", b == CKPT_BAND_OUTSIDE);
        column numbers = begin(w, "bytes");
        for (int i = 0; i < w->trace->event_count; i++) {
            ckpt_series_bands(base, i, &bands);
            add(&numbers, bands.bytes[b]);
        }
        end(&numbers);
        ckpt_json_end(&w->json);
    }
    ckpt_json_end(&w->json);
}

/* Kinds of live ranges and of spans with their looks. What has no band goes into the legend too. */
static void put_looks(writer *w)
{
    const ckpt_live_ranges *const ranges = &w->view->ranges;
    const bool split = w->view->series[w->view->base].split != NULL;
    bool extra[CKPT_LIVE_KIND_COUNT] = {false};
    for (int i = 0; i < ranges->count && !split; i++) {
        const ckpt_live_range_kind kind = ranges->range[i].kind;
        extra[kind] = kind == CKPT_LIVE_RECOMPUTED || kind == CKPT_LIVE_OFFLOADED;
    }
    ckpt_json_begin_array(&w->json, "kinds", CKPT_JSON_LINES);
    for (int k = 0; k < CKPT_LIVE_KIND_COUNT; k++) {
        begin_look(w, ckpt_live_range_kind_name((ckpt_live_range_kind)k),
                   ckpt_live_range_role((ckpt_live_range_kind)k));
        ckpt_json_put_bool(&w->json, "extra", extra[k]);
        ckpt_json_end(&w->json);
    }
    ckpt_json_end(&w->json);
    /* Of what shares a column of a lane the last of these shows. */
    static const ckpt_colour_role roles[] = {CKPT_ROLE_INPUTS, CKPT_ROLE_RECOMPUTE, CKPT_ROLE_STAGING};
    ckpt_json_begin_array(&w->json, "roles", CKPT_JSON_LINES);
    for (int i = 0; i < 3; i++) {
        begin_look(w, "", roles[i]);
        ckpt_json_end(&w->json);
    }
    ckpt_json_end(&w->json);
    ckpt_json_begin_array(&w->json, "spans", CKPT_JSON_LINES);
    for (int s = 0; s <= CKPT_SPAN_OTHER; s++) {
        ckpt_json_begin_object(&w->json, NULL, CKPT_JSON_LINE);
        ckpt_json_put_text(&w->json, "name", ckpt_span_name((ckpt_span)s));
        ckpt_json_put_int(&w->json, "role", s == CKPT_SPAN_RECOMPUTE ? 1 : s == CKPT_SPAN_COPY ? 2 : 0);
        ckpt_json_end(&w->json);
    }
    ckpt_json_end(&w->json);
}

static void put_words(writer *w)
{
    const ckpt_view *const view = w->view;
    const char *lane[CKPT_VIEW_LANES], *why[CKPT_WHY_COUNT];
    for (int i = 0; i < view->lane_count; i++) {
        lane[i] = view->lane[i].name;
    }
    for (int i = 0; i < CKPT_WHY_COUNT; i++) {
        why[i] = ckpt_why_clause((ckpt_why)i);
    }
    ckpt_json_put_text(&w->json, "title", view->title);
    ckpt_json_put_texts(&w->json, "head", view->head, view->head_count);
    ckpt_json_put_or_empty(&w->json, "residual", view->residual_words);
    ckpt_json_begin_array(&w->json, "facts", CKPT_JSON_LINES);
    for (int i = 0; i < view->fact_count; i++) {
        ckpt_json_put_texts(&w->json, NULL, (const char *const[]){view->fact[i].name, view->fact[i].text}, 2);
    }
    ckpt_json_end(&w->json);
    ckpt_json_put_texts(&w->json, "lanes", lane, view->lane_count);
    ckpt_json_put_texts(&w->json, "reasons", why, CKPT_WHY_COUNT);
}

static void put_numbers(writer *w, const ckpt_view_options *options)
{
    const ckpt_view *const view = w->view;
    ckpt_bytes capacity = options->capacity_bytes;
    for (int s = 0; s < view->count && capacity == 0; s++) {
        capacity = view->series[s].trace->capacity_bytes;
    }
    const bool time_axis = options->time_axis || (!options->step_axis && view->no_plan);
    ckpt_json_put_text(&w->json, "axis", time_axis ? "time" : "steps");
    ckpt_json_put_text(&w->json, "unit", ckpt_view_unit(view));
    ckpt_json_put_bool(&w->json, "noPlan", view->no_plan);
    const ckpt_bytes arena = w->trace->arena_bytes, top = view->ranges.top > arena ? view->ranges.top : arena;
    CKPT_JSON_INTS(&w->json, {"peak", view->series[view->base].peak}, {"budget", w->trace->budget_bytes},
                   {"capacity", capacity}, {"top", top > 0 ? top : 1});
    ckpt_json_put_text(&w->json, "mapHead",
                       view->no_plan ? "addresses, without the ranges that never hold a block"
                                     : "addresses in the arena");
    ckpt_json_put_text(&w->json, "chartHead", "bytes in memory");
}

ckpt_code ckpt_html_data(const ckpt_view *view, const ckpt_view_options *options, ckpt_text *json, ckpt_err *err)
{
    ckpt_arena *const scratch = view->canvas.scratch;
    writer w = {.view = view, .trace = view->series[view->base].trace};
    const int most = 2 * (w.trace->event_count + view->ranges.count);
    CKPT_TRY(ckpt_names_init(&w.names, most, scratch, err));
    w.text = CKPT_NEW(scratch, const char *, most);
    if (w.text == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the names of %d events", w.trace->event_count);
    }
    ckpt_json_begin(&w.json, json);
    ckpt_json_begin_object(&w.json, NULL, CKPT_JSON_LINES);
    put_words(&w);
    put_numbers(&w, options);
    CKPT_TRY(put_traces(&w, err));
    put_columns(&w, "events", event_fields, sizeof event_fields / sizeof event_fields[0], w.trace->event_count,
                event_value);
    put_bands(&w);
    put_looks(&w);
    put_columns(&w, "ranges", range_fields, sizeof range_fields / sizeof range_fields[0], view->ranges.count,
                range_value);
    ckpt_json_put_texts(&w.json, "texts", w.text, w.text_count);
    ckpt_json_end(&w.json);
    return w.failed ? CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the names of variants") : ckpt_text_end(json, err);
}

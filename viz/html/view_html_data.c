/* The page's data: columns of whole numbers, each number but the first as the difference to the one before it, a run of
 * equal differences as [difference, count]; names once, as numbers of texts. Small, and read without a parser of ours
 * (viz/html/data.js). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "viz/html/view_html_impl.h"
#include "viz/timeline/view_alive.h"

/* Texts in order of their first use, in open addressing by FNV-1a; at most half full. */
typedef struct text_table {
    ckpt_arena *arena;
    const char **text;
    int *slot; /* number of a text plus 1; 0: free */
    int count, room;
    bool failed;
} text_table;

static uint32_t hash_of(const char *text)
{
    uint32_t hash = 2166136261u;
    for (const char *c = text; *c != '\0'; c++) {
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    }
    return hash;
}

static int *slot_of(const text_table *table, const char *text)
{
    const uint32_t mask = 2 * (uint32_t)table->room - 1;
    uint32_t at = hash_of(text) & mask;
    while (table->slot[at] != 0 && strcmp(table->text[table->slot[at] - 1], text) != 0) {
        at = (at + 1) & mask;
    }
    return &table->slot[at];
}

static void grow(text_table *table)
{
    const text_table old = *table;
    table->room = old.room > 0 ? 2 * old.room : 64;
    table->text = CKPT_NEW(table->arena, const char *, table->room);
    table->slot = CKPT_NEW(table->arena, int, 2 * (size_t)table->room);
    if (table->text == NULL || table->slot == NULL) {
        table->failed = true;
        return;
    }
    for (int i = 0; i < old.count; i++) {
        table->text[i] = old.text[i];
        *slot_of(table, old.text[i]) = i + 1;
    }
}

/* The number of a text, which must stay where it is. */
static int number_of(text_table *table, const char *text)
{
    text = text != NULL ? text : "";
    if (table->room == 0) {
        grow(table);
    }
    if (table->failed) {
        return 0;
    }
    int *const slot = slot_of(table, text);
    if (*slot != 0) {
        return *slot - 1;
    }
    table->text[table->count++] = text;
    *slot = table->count;
    if (table->count == table->room) { /* only here: who finds a text may rewind the arena behind it */
        grow(table);
    }
    return table->count - 1;
}

static void put_texts(ckpt_text *json, const char *name, const char *const *text, int count)
{
    ckpt_text_add(json, "\"%s\":[", name);
    for (int i = 0; i < count; i++) {
        ckpt_text_put(json, ",", i > 0);
        ckpt_text_json(json, text[i]);
    }
    ckpt_text_add(json, "]");
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

static column begin(ckpt_text *json, const char *name)
{
    ckpt_text_add(json, "\"%s\":[", name);
    return (column){.json = json};
}

static void end(column *to, const char *after)
{
    flush(to);
    ckpt_text_add(to->json, "]%s\n", after);
}

typedef struct writer {
    const ckpt_view *view;
    const ckpt_trace *trace; /* the base */
    ckpt_text *json;
    text_table texts, reasons;
    ckpt_live_ranges ranges;
} writer;

static void put_positions(ckpt_text *json, const char *name, const ckpt_series *series)
{
    column numbers = begin(json, name);
    for (int i = 0; i <= series->trace->event_count; i++) {
        add(&numbers, (int64_t)fmin(series->from[i], 9.2e18)); /* a clock's last nanoseconds round up beyond 63 bits */
    }
    end(&numbers, ",");
}

/* What every trace has: its places on both axes and its bytes. `timed` is the series on the time axis. */
static void put_series(const writer *w, const ckpt_series *series, const ckpt_series *timed)
{
    const ckpt_trace *const trace = series->trace;
    ckpt_text_add(w->json, "{\"count\":%d,\"static\":%" PRId64 ",\"label\":", trace->event_count, trace->static_bytes);
    ckpt_text_json(w->json, series->label);
    ckpt_text_add(w->json, ",\"verdict\":");
    ckpt_text_json(w->json, series->verdict);
    ckpt_text_add(w->json, ",\n");
    put_positions(w->json, "steps", series);
    put_positions(w->json, "time", timed);
    column planned = begin(w->json, "planned");
    for (int i = 0; i < trace->event_count && trace != w->trace; i++) { /* the base's is the sum of its bands */
        ckpt_bands bands;
        ckpt_event_bands(trace, &trace->event[i], &bands);
        add(&planned, bands.planned);
    }
    end(&planned, "}");
}

static ckpt_code put_traces(const writer *w, const ckpt_trace *const *trace, ckpt_err *err)
{
    ckpt_series timed[CKPT_VIEW_TRACES];
    int base;
    CKPT_TRY(ckpt_series_make(trace, w->view->count, true, w->view->canvas.scratch, timed, &base, err));
    ckpt_text_add(w->json, "\"base\":%d,\n\"traces\":[", w->view->base);
    for (int s = 0; s < w->view->count; s++) {
        ckpt_text_put(w->json, ",", s > 0);
        put_series(w, &w->view->series[s], &timed[s]);
    }
    ckpt_text_add(w->json, "],\n");
    return CKPT_OK;
}

typedef enum event_field { NAME, LAYER, SPAN, LANE, START, END, STEP, EVENT_FIELDS } event_field;

static int64_t event_value(writer *w, int i, event_field field)
{
    const ckpt_event *const event = &w->trace->event[i];
    switch (field) {
    case NAME: return number_of(&w->texts, event->name);
    case LAYER: return number_of(&w->texts, event->layer);
    case SPAN: return event->span;
    case LANE: return w->view->lane_of[i];
    case START: return event->start_ns;
    case END: return event->end_ns;
    default: return event->step;
    }
}

static void put_events(writer *w)
{
    static const char *const name[EVENT_FIELDS] = {"name", "layer", "span", "lane", "start", "end", "step"};
    ckpt_text_add(w->json, "\"events\":{");
    for (event_field field = NAME; field < EVENT_FIELDS; field++) {
        column numbers = begin(w->json, name[field]);
        for (int i = 0; i < w->trace->event_count; i++) {
            add(&numbers, event_value(w, i, field));
        }
        end(&numbers, field + 1 < EVENT_FIELDS ? "," : "},");
    }
}

/* The second cue beside colour, by its name in viz/html/paint.js. */
static const char *const hatch_name[CKPT_HATCH_COUNT] = {
    [CKPT_HATCH_NONE] = "none",   [CKPT_HATCH_RISING] = "rising", [CKPT_HATCH_FALLING] = "falling",
    [CKPT_HATCH_CROSS] = "cross", [CKPT_HATCH_LEVEL] = "level",   [CKPT_HATCH_DOTS] = "dots",
};

static void put_look(ckpt_text *json, const char *name, ckpt_colour_role role)
{
    ckpt_text_add(json, "{\"name\":");
    ckpt_text_json(json, name);
    ckpt_text_add(json, ",\"rgb\":\"%s\",\"hatch\":\"%s\"", ckpt_colour_role_looks[role].rgb,
                  hatch_name[ckpt_colour_role_looks[role].hatch]);
}

static void put_bands(const writer *w)
{
    bool used[CKPT_BAND_COUNT] = {false};
    ckpt_bands bands;
    for (int i = 0; i < w->trace->event_count; i++) {
        ckpt_event_bands(w->trace, &w->trace->event[i], &bands);
        for (int b = 0; b < CKPT_BAND_COUNT; b++) {
            used[b] = used[b] || bands.bytes[b] > 0;
        }
    }
    ckpt_text_add(w->json, "\"bands\":[");
    bool any = false;
    for (int b = 0; b < CKPT_BAND_COUNT; b++) {
        if (!used[b]) {
            continue;
        }
        const ckpt_band_look *const look = ckpt_view_band(w->view, b);
        ckpt_text_put(w->json, ",", any);
        any = true;
        put_look(w->json, look->name, look->role);
        ckpt_text_add(w->json, ",\"outside\":%s,", b == CKPT_BAND_OUTSIDE ? "true" : "false");
        column numbers = begin(w->json, "bytes");
        for (int i = 0; i < w->trace->event_count; i++) {
            ckpt_event_bands(w->trace, &w->trace->event[i], &bands);
            add(&numbers, bands.bytes[b]);
        }
        end(&numbers, "}");
    }
    ckpt_text_add(w->json, "],\n");
}

/* Kinds of stays and of spans with their looks. What has no band of its own goes into the legend too. */
static void put_looks(const writer *w)
{
    bool used[CKPT_LIVE_KIND_COUNT] = {false};
    for (int i = 0; i < w->ranges.count; i++) {
        used[w->ranges.range[i].kind] = true;
    }
    ckpt_text_add(w->json, "\"kinds\":[");
    for (int k = 0; k < CKPT_LIVE_KIND_COUNT; k++) {
        ckpt_text_put(w->json, ",", k > 0);
        put_look(w->json, ckpt_live_range_kind_name((ckpt_live_range_kind)k),
                 ckpt_live_range_role((ckpt_live_range_kind)k));
        ckpt_text_add(w->json, ",\"used\":%s,\"extra\":%s}", used[k] ? "true" : "false",
                      k == CKPT_LIVE_RECOMPUTED || k == CKPT_LIVE_OFFLOADED ? "true" : "false");
    }
    /* Of what shares a column of a lane the last of these shows. */
    static const ckpt_colour_role roles[] = {CKPT_ROLE_INPUTS, CKPT_ROLE_RECOMPUTE, CKPT_ROLE_STAGING};
    ckpt_text_add(w->json, "],\n\"inks\":[");
    for (int i = 0; i < 3; i++) {
        ckpt_text_put(w->json, ",", i > 0);
        put_look(w->json, "", roles[i]);
        ckpt_text_add(w->json, "}");
    }
    ckpt_text_add(w->json, "],\n\"spans\":[");
    for (int s = 0; s <= CKPT_SPAN_OTHER; s++) {
        ckpt_text_add(w->json, "%s{\"name\":\"%s\",\"ink\":%d}", s > 0 ? "," : "", ckpt_span_name((ckpt_span)s),
                      s == CKPT_SPAN_RECOMPUTE ? 1
                      : s == CKPT_SPAN_COPY    ? 2
                                               : 0);
    }
    ckpt_text_add(w->json, "],\n");
}

/* What stands in reasons over and over and is in the data already. The page puts it back (reasonOf in data.js). */
enum { WORDS = 8 };

static void words_of(const writer *w, const ckpt_live_range *range, char number[WORDS][16], const char *word[WORDS])
{
    const int event[4] = {range->last, range->born, range->to, range->from};
    for (int k = 0; k < 4; k++) {
        const bool known = event[k] >= 0;
        snprintf(number[k], sizeof number[k], "%d", known ? w->trace->event[event[k]].step : 0);
        word[2 * k] = known ? number[k] : "";
    }
    word[1] = range->last >= 0 ? w->trace->event[range->last].name : "";
    word[3] = range->born >= 0 ? w->trace->event[range->born].name : "";
    word[5] = range->name;
    word[7] = range->layer;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The reason with characters 1 .. 8 for its words: few different ones are left. Never longer than it was. */
static const char *shape_of(writer *w, const ckpt_live_range *range, const char *reason)
{
    char number[WORDS][16];
    const char *word[WORDS];
    words_of(w, range, number, word);
    char *const shape = ckpt_arena_text(w->view->canvas.scratch, reason);
    char *out = shape;
    for (const char *from = reason; shape != NULL && *from != '\0';) {
        size_t longest = 0;
        int which = 0;
        for (int k = 0; k < WORDS; k++) {
            const size_t length = strlen(word[k]);
            if (length <= longest || strncmp(from, word[k], length) != 0) {
                continue;
            }
            const bool part = is_digit(word[k][0]) && ((from > reason && is_digit(from[-1])) || is_digit(from[length]));
            if (!part) {
                longest = length;
                which = k;
            }
        }
        *out++ = longest > 0 ? (char)(which + 1) : *from > 0 && *from <= WORDS ? ' ' : *from;
        from += longest > 0 ? longest : 1;
    }
    if (shape != NULL) {
        *out = '\0';
    }
    return shape;
}

typedef enum life_field {
    LIFE_NAME,
    LIFE_LAYER,
    LIFE_REASON,
    LIFE_KIND,
    LIFE_FROM,
    LIFE_TO,
    LIFE_BORN,
    LIFE_LAST,
    LIFE_OFFSET,
    LIFE_BYTES,
    LIFE_HIGH,
    LIFE_LOW,
    LIFE_FIELDS
} life_field;

static int64_t reason_number(writer *w, int i)
{
    ckpt_arena *const arena = w->view->canvas.scratch;
    const ckpt_mark mark = ckpt_arena_mark(arena);
    const int before = w->reasons.count;
    const char *const reason = ckpt_live_range_reason(&w->ranges, i, arena);
    const char *const shape = reason != NULL ? shape_of(w, &w->ranges.range[i], reason) : NULL;
    w->reasons.failed = w->reasons.failed || shape == NULL;
    const int number = shape != NULL ? number_of(&w->reasons, shape) : 0;
    if (w->reasons.count == before && !w->reasons.failed) {
        ckpt_arena_rewind(arena, mark); /* a known one */
    }
    return number;
}

static int64_t life_value(writer *w, int i, life_field field)
{
    const ckpt_live_range *const range = &w->ranges.range[i];
    switch (field) {
    case LIFE_NAME: return number_of(&w->texts, range->name);
    case LIFE_LAYER: return number_of(&w->texts, range->layer);
    case LIFE_REASON: return reason_number(w, i);
    case LIFE_KIND: return range->kind;
    case LIFE_FROM: return range->from;
    case LIFE_TO: return range->to;
    case LIFE_BORN: return range->born;
    case LIFE_LAST: return range->last;
    case LIFE_OFFSET: return range->offset;
    case LIFE_BYTES: return range->bytes;
    case LIFE_HIGH: return (int64_t)((uint64_t)range->address >> 32); /* JavaScript's numbers have 53 bits */
    default: return (int64_t)((uint64_t)range->address & 0xFFFFFFFFu);
    }
}

static void put_lives(writer *w)
{
    static const char *const name[LIFE_FIELDS] = {"name", "layer", "reason", "kind",  "from", "to",
                                                  "born", "last",  "offset", "bytes", "high", "low"};
    const ckpt_bytes arena = w->trace->arena_bytes, top = w->ranges.top > arena ? w->ranges.top : arena;
    ckpt_text_add(w->json, "\"lives\":{\"count\":%d,\"top\":%" PRId64 ",\n", w->ranges.count, top > 0 ? top : 1);
    for (life_field field = LIFE_NAME; field < LIFE_FIELDS; field++) {
        column numbers = begin(w->json, name[field]);
        for (int i = 0; i < w->ranges.count; i++) {
            add(&numbers, life_value(w, i, field));
        }
        end(&numbers, field + 1 < LIFE_FIELDS ? "," : "},");
    }
}

static void put_words(const writer *w)
{
    const ckpt_view *const view = w->view;
    ckpt_text_add(w->json, "\"title\":");
    ckpt_text_json(w->json, view->title);
    ckpt_text_add(w->json, ",\n");
    put_texts(w->json, "head", view->head, view->head_count);
    ckpt_text_add(w->json, ",\n\"residual\":");
    ckpt_text_json(w->json, view->residual_words != NULL ? view->residual_words : "");
    ckpt_text_add(w->json, ",\n\"facts\":[");
    for (int i = 0; i < view->fact_count; i++) {
        ckpt_text_add(w->json, "%s[", i > 0 ? "," : "");
        ckpt_text_json(w->json, view->fact[i].name);
        ckpt_text_put(w->json, ",", 1);
        ckpt_text_json(w->json, view->fact[i].text);
        ckpt_text_put(w->json, "]", 1);
    }
    ckpt_text_add(w->json, "],\n\"lanes\":[");
    for (int i = 0; i < view->lane_count; i++) {
        ckpt_text_put(w->json, ",", i > 0);
        ckpt_text_json(w->json, view->lane[i].name);
    }
    ckpt_text_add(w->json, "],\n");
}

static void put_numbers(const writer *w, const ckpt_view_options *options)
{
    const ckpt_series *const base = &w->view->series[w->view->base];
    ckpt_bytes capacity = options->capacity_bytes;
    for (int s = 0; s < w->view->count && capacity == 0; s++) {
        capacity = w->view->series[s].trace->capacity_bytes;
    }
    const bool time_axis = options->time_axis || (!options->step_axis && w->view->no_plan);
    ckpt_text_add(w->json,
                  "\"axis\":\"%s\",\"unit\":\"%s\",\"noPlan\":%s,\"peak\":%d,\"budget\":%" PRId64
                  ",\"capacity\":%" PRId64 ",\n\"mapHead\":\"%s\",\"chartHead\":\"%s\",\n",
                  time_axis ? "time" : "steps", ckpt_view_unit(w->view), w->view->no_plan ? "true" : "false",
                  base->peak, w->trace->budget_bytes, capacity,
                  w->view->no_plan ? "addresses, without the ranges that never hold a block" : "addresses in the arena",
                  "bytes in memory");
}

ckpt_code ckpt_html_data(const ckpt_view *view, const ckpt_view_options *options, ckpt_text *json, ckpt_err *err)
{
    ckpt_arena *const scratch = view->canvas.scratch;
    writer w = {.view = view,
                .trace = view->series[view->base].trace,
                .json = json,
                .texts = {.arena = scratch},
                .reasons = {.arena = scratch}};
    const ckpt_trace *trace[CKPT_VIEW_TRACES];
    for (int s = 0; s < view->count; s++) {
        trace[s] = view->series[s].trace;
    }
    CKPT_TRY(ckpt_live_ranges_make(w.trace, scratch, &w.ranges, err));
    ckpt_text_add(json, "{");
    put_words(&w);
    put_numbers(&w, options);
    CKPT_TRY(put_traces(&w, trace, err));
    put_events(&w);
    put_bands(&w);
    put_looks(&w);
    put_lives(&w);
    put_texts(json, "reasons", w.reasons.text, w.reasons.count);
    ckpt_text_add(json, ",\n");
    put_texts(json, "texts", w.texts.text, w.texts.count);
    ckpt_text_add(json, "}");
    if (w.texts.failed || w.reasons.failed) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the names of %d events", w.trace->event_count);
    }
    return ckpt_text_end(json, err);
}

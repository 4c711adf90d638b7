/* The strips under the plot: what ran when. Events of a step that follows a plan lie in the lane of their phase; where
 * there is no plan and several streams, in that of their stream, of the busiest ones each its own. */
#include <math.h>
#include <string.h>

#include "viz/timeline/view_draw.h"

enum { STREAMS = 64, OWN_LANES = CKPT_VIEW_LANES - 1 };

/* Waits count in a plan's step; what only changes what is in memory never does. */
static bool has_lane(const ckpt_event *event)
{
    return (int)event->span >= 0 && event->span <= CKPT_SPAN_OTHER && event->span != CKPT_SPAN_FREE &&
           event->span != CKPT_SPAN_ALLOCATE;
}

static ckpt_ns length_of(const ckpt_event *event)
{
    return event->end_ns > event->start_ns ? event->end_ns - event->start_ns : 0;
}

static void lengthen(ckpt_lane *lane, const ckpt_event *event)
{
    if (!ckpt_sum(lane->busy_ns, length_of(event), &lane->busy_ns)) {
        lane->busy_ns = INT64_MAX;
    }
}

/* Lanes of a step in the order of a step; copies by their direction. */
typedef enum phase_lane {
    LANE_FORWARD,
    LANE_BACKWARD,
    LANE_RECOMPUTE,
    LANE_TO_HOST,
    LANE_FROM_HOST,
    LANE_COPY,
    LANE_UPDATE,
    LANE_WAIT,
    LANE_OTHER,
    LANE_COUNT
} phase_lane;

static phase_lane phase_lane_of(const ckpt_event *event)
{
    const char *const stream = event->stream != NULL ? event->stream : "";
    switch (event->span) {
    case CKPT_SPAN_FORWARD: return LANE_FORWARD;
    case CKPT_SPAN_BACKWARD: return LANE_BACKWARD;
    case CKPT_SPAN_RECOMPUTE: return LANE_RECOMPUTE;
    case CKPT_SPAN_COPY:
        return strcmp(stream, "d2h") == 0 ? LANE_TO_HOST : strcmp(stream, "h2d") == 0 ? LANE_FROM_HOST : LANE_COPY;
    case CKPT_SPAN_UPDATE: return LANE_UPDATE;
    case CKPT_SPAN_WAIT: return LANE_WAIT;
    case CKPT_SPAN_FREE:
    case CKPT_SPAN_ALLOCATE:
    case CKPT_SPAN_OTHER: break;
    }
    return LANE_OTHER;
}

static void by_phase(ckpt_view *view, const ckpt_trace *trace)
{
    static const char *const name[LANE_COUNT] = {"forward", "backward", "recompute", "to host", "from host",
                                                 "copy",    "update",   "wait",      "other"};
    int lane_of[LANE_COUNT];
    ckpt_lane found[LANE_COUNT] = {{NULL, 0}};
    for (int i = 0; i < trace->event_count; i++) {
        const ckpt_event *const event = &trace->event[i];
        if (has_lane(event)) {
            const phase_lane lane = phase_lane_of(event);
            found[lane].name = name[lane];
            lengthen(&found[lane], event);
        }
    }
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        lane_of[lane] = found[lane].name != NULL ? view->lane_count : CKPT_VIEW_LANES;
        if (found[lane].name != NULL) {
            view->lane[view->lane_count++] = found[lane];
        }
    }
    for (int i = 0; i < trace->event_count; i++) {
        const ckpt_event *const event = &trace->event[i];
        view->lane_of[i] = (unsigned char)(has_lane(event) ? lane_of[phase_lane_of(event)] : CKPT_VIEW_LANES);
    }
}

/* Streams in order of their first event; what comes after the first STREAMS shares the last place. */
typedef struct stream_table {
    ckpt_lane stream[STREAMS + 1];
    int count, last;
} stream_table;

static int stream_of(stream_table *table, const ckpt_event *event)
{
    const char *const name = event->stream != NULL ? event->stream : "";
    if (table->count > 0 && strcmp(table->stream[table->last].name, name) == 0) {
        return table->last; /* mostly the same as before */
    }
    int s = 0;
    while (s < table->count && strcmp(table->stream[s].name, name) != 0) {
        s++;
    }
    if (s == table->count && s < STREAMS) {
        table->stream[table->count++] = (ckpt_lane){name, 0};
    }
    table->last = s < STREAMS ? s : table->last;
    return s;
}

/* "stream 7" before "stream 13". */
static bool comes_before(const char *a, const char *b)
{
    const size_t x = strlen(a), y = strlen(b);
    return x != y ? x < y : strcmp(a, b) < 0;
}

/* Is it one of the OWN_LANES busiest? The first to appear goes first among equals. */
static bool is_busy(const stream_table *table, int stream)
{
    int before = 0;
    for (int s = 0; s < table->count; s++) {
        const ckpt_ns there = table->stream[s].busy_ns, here = table->stream[stream].busy_ns;
        before += there > here || (there == here && s < stream);
    }
    return before < OWN_LANES;
}

/* Own lanes by name; `lane` says for every stream which it has. */
static void give_lanes(ckpt_view *view, const stream_table *table, int *lane)
{
    ckpt_lane rest = {"others", table->stream[STREAMS].busy_ns};
    for (int s = 0; s < table->count; s++) {
        lane[s] = OWN_LANES;
        if (!is_busy(table, s)) {
            (void)ckpt_sum(rest.busy_ns, table->stream[s].busy_ns, &rest.busy_ns);
            continue;
        }
        lane[s] = 0;
        for (int k = 0; k < table->count; k++) {
            lane[s] += is_busy(table, k) && comes_before(table->stream[k].name, table->stream[s].name);
        }
        view->lane[lane[s]] = table->stream[s];
        view->lane_count++;
    }
    lane[STREAMS] = OWN_LANES;
    if (table->count > OWN_LANES) {
        view->lane[view->lane_count++] = rest;
    }
}

static void by_stream(ckpt_view *view, const ckpt_trace *trace, const stream_table *table, const unsigned char *stream)
{
    int lane[STREAMS + 1];
    give_lanes(view, table, lane);
    for (int i = 0; i < trace->event_count; i++) {
        view->lane_of[i] = (unsigned char)(has_lane(&trace->event[i]) ? lane[stream[i]] : CKPT_VIEW_LANES);
    }
}

ckpt_code ckpt_view_find_lanes(ckpt_view *view, ckpt_err *err)
{
    const ckpt_trace *const trace = view->series[view->base].trace;
    view->lane_of = CKPT_NEW(view->canvas.scratch, unsigned char, trace->event_count);
    unsigned char *const stream = CKPT_NEW(view->canvas.scratch, unsigned char, view->no_plan ? trace->event_count : 0);
    if (view->lane_of == NULL || stream == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the lanes of %d events", trace->event_count);
    }
    stream_table table = {.count = 0};
    for (int i = 0; i < trace->event_count && view->no_plan; i++) {
        if (has_lane(&trace->event[i])) {
            stream[i] = (unsigned char)stream_of(&table, &trace->event[i]);
            lengthen(&table.stream[stream[i]], &trace->event[i]);
        }
    }
    if (table.count > 1) {
        by_stream(view, trace, &table, stream);
    } else {
        by_phase(view, trace);
    }
    return CKPT_OK;
}

/* Copies and recomputed runs are told apart by colour. */
static ckpt_colour_role role_of(ckpt_span span)
{
    return span == CKPT_SPAN_RECOMPUTE ? CKPT_ROLE_RECOMPUTE
           : span == CKPT_SPAN_COPY    ? CKPT_ROLE_OFFLOADED
                                       : CKPT_ROLE_INPUTS;
}

/* What a lane shows: per column the colour role, plus one, of what ran there, 0 where nothing did; and how much of the column's
 * time it took. */
typedef struct ckpt_strip {
    unsigned char *role;
    float *share;
} ckpt_strip;

static void mark_columns(const ckpt_view *view, const ckpt_strip *strip)
{
    const ckpt_series *const base = &view->series[view->base];
    const int columns = view->columns;
    for (int i = 0; i < base->trace->event_count; i++) {
        const ckpt_event *const event = &base->trace->event[i];
        if (view->lane_of[i] >= view->lane_count) {
            continue;
        }
        const double start = (view->time_axis ? (double)event->start_ns : base->from[i]) / view->x_end * columns;
        const double end = (view->time_axis ? (double)event->end_ns : base->from[i] + 1) / view->x_end * columns;
        int from = (int)fmin(columns - 1, floor(start + 1e-3));
        const int to = (int)fmin(columns, ceil(end - 1e-3));
        from = from < 0 ? 0 : from;
        const size_t row = (size_t)view->lane_of[i] * (size_t)columns;
        const unsigned char role = (unsigned char)(role_of(event->span) + 1);
        for (int c = from; c < (to > from ? to : from + 1); c++) {
            unsigned char *const was = &strip->role[row + (size_t)c];
            *was = role == CKPT_ROLE_INPUTS + 1 || *was == 0 ? role : *was;
            strip->share[row + (size_t)c] += (float)fmax(0, fmin(end, c + 1) - fmax(start, c));
        }
    }
}

/* Where a column holds many short events, half of its time decides how dark it is. */
static void lighten(const ckpt_view *view, const ckpt_strip *strip)
{
    const size_t count = (size_t)view->lane_count * (size_t)view->columns;
    for (size_t i = 0; i < count; i++) {
        if (strip->role[i] == CKPT_ROLE_INPUTS + 1 && strip->share[i] < 0.5f) {
            strip->role[i] = CKPT_ROLE_OPTIMIZER + 1;
        }
    }
}

static void draw_lane(ckpt_view *view, double y, const unsigned char *mark)
{
    const double width = (view->right - view->left) / view->columns;
    const bool cells = view->canvas.cell_height > 1;
    const double inset = cells ? 0 : 2, height = view->lane_height - 2 * inset;
    if (!cells) {
        ckpt_view_box(view, view->left, y + inset, view->right - view->left, height, CKPT_ROLE_FAINT);
    }
    for (int c = 0; c < view->columns;) {
        int end = c + 1;
        while (end < view->columns && mark[end] == mark[c]) {
            end++;
        }
        const double x = view->left + c * width;
        if (mark[c] != 0 && cells) {
            const double middle = y + view->lane_height / 2;
            ckpt_view_line(view, x, middle, view->left + end * width, middle,
                           (ckpt_pen){(ckpt_colour_role)(mark[c] - 1), 2, 0});
        } else if (mark[c] != 0) {
            ckpt_view_box(view, x, y + inset, (end - c) * width, height, (ckpt_colour_role)(mark[c] - 1));
        }
        c = end;
    }
}

void ckpt_view_draw_lanes(ckpt_view *view, double y)
{
    const ckpt_font font = {view->small, false, CKPT_ROLE_GREY, 1};
    const int columns = view->columns, count = view->lane_count;
    const ckpt_strip strip = {CKPT_NEW(view->canvas.scratch, unsigned char, (size_t)count *(size_t)columns),
                              CKPT_NEW(view->canvas.scratch, float, (size_t)count *(size_t)columns)};
    if (strip.role == NULL || strip.share == NULL) {
        view->failed = true;
        return;
    }
    mark_columns(view, &strip);
    if (view->no_plan && view->time_axis && view->canvas.cell_height <= 1) {
        lighten(view, &strip);
    }
    for (int i = 0; i < count; i++) {
        draw_lane(view, y, strip.role + (size_t)i * (size_t)columns);
        ckpt_view_words(view, view->left - 8, y + view->lane_height / 2, font, view->gutter, view->lane[i].name);
        y += view->lane_height;
    }
}

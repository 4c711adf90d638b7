/* What is in memory and why, as a table. The reason says most, so it gets what the other columns leave; where that is
 * too little it stands below its row. */
#include "viz/timeline/view_live_set.h"

#include <math.h>
#include <string.h>

ckpt_colour_role ckpt_live_range_role(ckpt_live_range_kind kind)
{
    switch (kind) {
    case CKPT_LIVE_ACTIVATION: return CKPT_ROLE_ACTIVATIONS;
    case CKPT_LIVE_SAVED: return CKPT_ROLE_SAVED;
    case CKPT_LIVE_GRADIENT: return CKPT_ROLE_GRADIENTS;
    case CKPT_LIVE_WORKSPACE: return CKPT_ROLE_WORKSPACE;
    case CKPT_LIVE_RECOMPUTED: return CKPT_ROLE_RECOMPUTE;
    case CKPT_LIVE_OFFLOADED: return CKPT_ROLE_OFFLOADED;
    case CKPT_LIVE_OTHER:
    case CKPT_LIVE_KIND_COUNT: break;
    }
    return CKPT_ROLE_OTHER;
}

enum { NAME, LAYER, BYTES, SHARE, REASON };

typedef struct columns {
    ckpt_table_column column[CKPT_VIEW_COLUMNS];
    bool stacked; /* each reason stands below its row */
    double width;
} columns;

enum { SWATCH = 24, BYTES_WIDTH = 80, SHARE_WIDTH = 64, GAP = 16, REASON_LETTERS = 56 };

static ckpt_font font_of(const ckpt_view *view, bool bold, ckpt_colour_role role)
{
    return (ckpt_font){view->small, bold, role, -1};
}

static const char *name_of(ckpt_view *view, const ckpt_live_set_row *row)
{
    return row->count > 1 ? CKPT_SAY(view, "%s ×%d", row->name, row->count) : row->name;
}

static const char *heading_of(ckpt_view *view, const ckpt_live_set *live)
{
    return CKPT_SAY(view, "live at the peak, %s %d", ckpt_view_unit(view), live->ranges->trace->event[live->at].step);
}

/* Names of lowered models begin with their layer, and a gradient belongs to the layer that reads it. */
static bool tells_more(const ckpt_live_set_row *row)
{
    return row->kind != CKPT_LIVE_GRADIENT && row->layer[0] != '\0' &&
           strncmp(row->name, row->layer, strlen(row->layer)) != 0;
}

static columns columns_of(ckpt_view *view, const ckpt_live_set *live, double width)
{
    const ckpt_font font = font_of(view, false, CKPT_ROLE_BLACK), bold = font_of(view, true, CKPT_ROLE_BLACK);
    const double head = ckpt_view_measure(view, bold, heading_of(view, live));
    double name_width = 0, layer_width = 0, layer = ckpt_view_measure(view, bold, "layer");
    double reason = ckpt_view_measure(view, font, "why");
    bool has_layer = false;
    for (int i = 0; i < live->row_count; i++) {
        const ckpt_live_set_row *const row = &live->row[i];
        name_width = fmax(name_width, ckpt_view_measure(view, font, name_of(view, row)));
        layer = fmax(layer, ckpt_view_measure(view, font, row->layer));
        reason = fmax(reason, ckpt_view_measure(view, font, row->reason));
        has_layer = has_layer || tells_more(row);
    }
    const double longest = REASON_LETTERS * ckpt_view_measure(view, font, "n");
    const double need = fmin(reason, longest), figures = BYTES_WIDTH + SHARE_WIDTH;
    name_width = fmax(fmin(name_width, 0.34 * width), fmin(head - SWATCH, 0.5 * width));
    layer_width = has_layer ? fmin(layer, 0.2 * width) + GAP : 0;
    const bool stacked = width - SWATCH - name_width - layer_width - figures - GAP < need;
    if (stacked) { /* the row has all the width for the rest */
        const double room = width - SWATCH - figures - (has_layer ? GAP : 0);
        layer_width = has_layer ? fmin(layer, 0.4 * room) + GAP : 0;
        name_width = room - layer_width + (has_layer ? GAP : 0);
    }
    const double bytes = SWATCH + name_width + layer_width + BYTES_WIDTH, share = bytes + SHARE_WIDTH;
    return (columns){.column = {[NAME] = {SWATCH, name_width, -1},
                                [LAYER] = {SWATCH + name_width + GAP, has_layer ? layer_width - GAP : 0, -1},
                                [BYTES] = {bytes, BYTES_WIDTH - 8, 1},
                                [SHARE] = {share, SHARE_WIDTH - 8, 1},
                                [REASON] = {share + GAP, stacked ? 0 : width - share - GAP, -1}},
                     .stacked = stacked,
                     .width = width};
}

static bool has_static(const ckpt_live_set *live)
{
    return live->ranges->trace->static_bytes > 0;
}

/* What is counted at that event and has no live range: a trace need not know all addresses. */
static ckpt_bytes without_address(const ckpt_live_set *live)
{
    const ckpt_trace *const trace = live->ranges->trace;
    ckpt_bands bands;
    ckpt_event_bands(trace, &trace->event[live->at], &bands);
    const ckpt_bytes moving = bands.planned - trace->static_bytes;
    return moving > live->bytes ? moving - live->bytes : 0;
}

int ckpt_view_live_set_lines(ckpt_view *view, const ckpt_live_set *live, double width)
{
    const bool stacked = columns_of(view, live, width).stacked;
    return 1 + (live->row_count + has_static(live)) * (stacked ? 2 : 1) + (live->rest_count > 0) +
           (without_address(live) > 0);
}

static const char *share_of(ckpt_view *view, ckpt_bytes bytes, ckpt_bytes whole)
{
    return whole > 0 ? ckpt_view_share(view, bytes, whole) : NULL;
}

/* One row; `y` is the middle of its first line. Gives the middle of its last one. */
static double row_words(ckpt_view *view, const columns *c, const ckpt_live_set_row *row, ckpt_colour_role role,
                        ckpt_bytes whole, double x, double y)
{
    ckpt_view_swatch(view, x, y, role);
    ckpt_view_row(view, x, y, font_of(view, false, CKPT_ROLE_BLACK), c->column,
                  (const char *const[]){name_of(view, row), row->layer, ckpt_view_bytes(view, row->bytes),
                                        share_of(view, row->bytes, whole), row->reason});
    if (c->stacked) {
        y += view->line;
        ckpt_view_words(view, x + SWATCH, y, font_of(view, false, CKPT_ROLE_GREY), c->width - SWATCH, row->reason);
    }
    return y;
}

/* Blocks that have no row of their own. */
static void sum_words(ckpt_view *view, const columns *c, const char *name, ckpt_bytes bytes, ckpt_bytes whole, double x,
                      double y)
{
    ckpt_view_words(view, x + c->column[NAME].x, y, font_of(view, false, CKPT_ROLE_GREY), c->column[NAME].width, name);
    ckpt_view_row(view, x, y, font_of(view, false, CKPT_ROLE_BLACK), c->column,
                  (const char *const[CKPT_VIEW_COLUMNS]){
                      [BYTES] = ckpt_view_bytes(view, bytes), [SHARE] = share_of(view, bytes, whole)});
}

/* The static block as a row: it is most of what is in memory in many a step. */
static ckpt_live_set_row static_row(ckpt_view *view, const ckpt_live_set *live)
{
    static const ckpt_band fixed[] = {CKPT_BAND_WEIGHTS, CKPT_BAND_WEIGHT_GRADIENTS, CKPT_BAND_OPTIMIZER,
                                      CKPT_BAND_INPUTS};
    const ckpt_trace *const trace = live->ranges->trace;
    ckpt_bands bands;
    ckpt_event_bands(trace, &trace->event[live->at], &bands);
    const char *what = "";
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++) {
        if (bands.bytes[fixed[i]] > 0) {
            what = CKPT_SAY(view, "%s%s%s", what, what[0] != '\0' ? ", " : "", ckpt_view_band(view, fixed[i])->name);
        }
    }
    return (ckpt_live_set_row){
        .name = "static block",
        .layer = "",
        .bytes = trace->static_bytes,
        .count = 1,
        .reason = CKPT_SAY(view, "the whole step: %s", what),
    };
}

void ckpt_view_draw_live_set(ckpt_view *view, const ckpt_live_set *live, ckpt_bytes whole, double x, double y,
                             double width)
{
    const columns c = columns_of(view, live, width);
    const ckpt_font bold = font_of(view, true, CKPT_ROLE_BLACK);
    y += view->line / 2;
    ckpt_view_words(view, x, y, bold, SWATCH + c.column[NAME].width, heading_of(view, live));
    ckpt_view_row(view, x, y, bold, c.column, (const char *const[]){NULL, "layer", "bytes", "share", "why"});
    ckpt_view_rule(view, x, y + view->line / 2, width);
    for (int i = 0; i < live->row_count; i++) {
        const ckpt_live_set_row *const row = &live->row[i];
        y = row_words(view, &c, row, ckpt_live_range_role(row->kind), whole, x, y + view->line);
    }
    if (live->rest_count > 0) {
        y += view->line;
        sum_words(view, &c, CKPT_SAY(view, "and %d smaller", live->rest_count), live->rest_bytes, whole, x, y);
    }
    if (without_address(live) > 0) {
        y += view->line;
        sum_words(view, &c, "address not known", without_address(live), whole, x, y);
    }
    if (has_static(live)) {
        const ckpt_live_set_row row = static_row(view, live);
        (void)row_words(view, &c, &row, CKPT_ROLE_WEIGHTS, whole, x, y + view->line);
    }
}

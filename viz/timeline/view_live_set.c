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

/* Distances from the left end of the table, in pixels. */
typedef struct columns {
    double name, name_width, layer, layer_width, bytes, share, reason; /* bytes, share: right ends */
    bool has_layer, stacked;
} columns;

enum { SWATCH = 24, BYTES_WIDTH = 80, SHARE_WIDTH = 64, GAP = 16, REASON_LETTERS = 56 };

static ckpt_font font_of(const ckpt_view *view, bool bold, ckpt_colour_role role, int align)
{
    return (ckpt_font){view->small, bold, role, align};
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
    const ckpt_font font = font_of(view, false, CKPT_ROLE_BLACK, -1);
    const double head = ckpt_view_measure(view, font_of(view, true, CKPT_ROLE_BLACK, -1), heading_of(view, live));
    columns c = {.name = SWATCH};
    double layer = ckpt_view_measure(view, font_of(view, true, CKPT_ROLE_BLACK, -1), "layer");
    double reason = ckpt_view_measure(view, font, "why");
    for (int i = 0; i < live->row_count; i++) {
        const ckpt_live_set_row *const row = &live->row[i];
        c.name_width = fmax(c.name_width, ckpt_view_measure(view, font, name_of(view, row)));
        layer = fmax(layer, ckpt_view_measure(view, font, row->layer));
        reason = fmax(reason, ckpt_view_measure(view, font, row->reason));
        c.has_layer = c.has_layer || tells_more(row);
    }
    const double longest = REASON_LETTERS * ckpt_view_measure(view, font, "n");
    const double need = fmin(reason, longest), figures = BYTES_WIDTH + SHARE_WIDTH;
    c.name_width = fmax(fmin(c.name_width, 0.34 * width), fmin(head - SWATCH, 0.5 * width));
    c.layer_width = c.has_layer ? fmin(layer, 0.2 * width) + GAP : 0;
    c.stacked = width - SWATCH - c.name_width - c.layer_width - figures - GAP < need;
    if (c.stacked) { /* the row has all the width for the rest */
        const double room = width - SWATCH - figures - (c.has_layer ? GAP : 0);
        c.layer_width = c.has_layer ? fmin(layer, 0.4 * room) + GAP : 0;
        c.name_width = room - c.layer_width + (c.has_layer ? GAP : 0);
    }
    c.layer = c.name + c.name_width + GAP;
    c.bytes = c.name + c.name_width + c.layer_width + BYTES_WIDTH;
    c.share = c.bytes + SHARE_WIDTH;
    c.reason = c.stacked ? c.name : c.share + GAP;
    return c;
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

static void figures(ckpt_view *view, const columns *c, double x, double y, ckpt_bytes bytes, ckpt_bytes whole)
{
    const ckpt_font font = font_of(view, false, CKPT_ROLE_BLACK, 1);
    ckpt_view_words(view, x + c->bytes, y, font, BYTES_WIDTH - 8, ckpt_view_bytes(view, bytes));
    if (whole > 0) {
        ckpt_view_words(view, x + c->share, y, font, SHARE_WIDTH - 8,
                        CKPT_SAY(view, "%.1f %%", ckpt_view_percent((double)bytes, (double)whole)));
    }
}

static void heading(ckpt_view *view, const ckpt_live_set *live, const columns *c, double x, double y, double width)
{
    const ckpt_font left = font_of(view, true, CKPT_ROLE_BLACK, -1), right = font_of(view, true, CKPT_ROLE_BLACK, 1);
    ckpt_view_words(view, x, y, left, SWATCH + c->name_width, heading_of(view, live));
    if (c->has_layer) {
        ckpt_view_words(view, x + c->layer, y, left, c->layer_width - GAP, "layer");
    }
    ckpt_view_words(view, x + c->bytes, y, right, BYTES_WIDTH - 8, "bytes");
    ckpt_view_words(view, x + c->share, y, right, SHARE_WIDTH - 8, "share");
    if (!c->stacked) {
        ckpt_view_words(view, x + c->reason, y, left, width - c->reason, "why");
    }
    if (!view->canvas.renderer->cells) {
        const double rule = round(y + view->line / 2) - 0.5;
        ckpt_view_line(view, x, rule, x + width, rule, (ckpt_pen){CKPT_ROLE_GREY, 0.8, 0});
    }
}

/* One row; `y` is the middle of its first line. Gives the middle of its last one. */
static double row_words(ckpt_view *view, const columns *c, const ckpt_live_set_row *row, ckpt_colour_role role,
                        ckpt_bytes whole, double x, double y, double width)
{
    const bool cells = view->canvas.renderer->cells;
    const ckpt_font font = font_of(view, false, CKPT_ROLE_BLACK, -1), grey = font_of(view, false, CKPT_ROLE_GREY, -1);
    ckpt_view_box(view, x, y - (cells ? 8 : 6), cells ? 16 : 14, cells ? 16 : 12, role);
    ckpt_view_words(view, x + c->name, y, font, c->name_width, name_of(view, row));
    if (c->has_layer) {
        ckpt_view_words(view, x + c->layer, y, font, c->layer_width - GAP, row->layer);
    }
    figures(view, c, x, y, row->bytes, whole);
    y += c->stacked ? view->line : 0;
    ckpt_view_words(view, x + c->reason, y, c->stacked ? grey : font, width - c->reason, row->reason);
    return y;
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
    const ckpt_font grey = font_of(view, false, CKPT_ROLE_GREY, -1);
    y += view->line / 2;
    heading(view, live, &c, x, y, width);
    for (int i = 0; i < live->row_count; i++) {
        const ckpt_live_set_row *const row = &live->row[i];
        y = row_words(view, &c, row, ckpt_live_range_role(row->kind), whole, x, y + view->line, width);
    }
    if (live->rest_count > 0) {
        y += view->line;
        ckpt_view_words(view, x + c.name, y, grey, c.name_width, CKPT_SAY(view, "and %d smaller", live->rest_count));
        figures(view, &c, x, y, live->rest_bytes, whole);
    }
    if (without_address(live) > 0) {
        y += view->line;
        ckpt_view_words(view, x + c.name, y, grey, c.name_width, "address not known");
        figures(view, &c, x, y, without_address(live), whole);
    }
    if (has_static(live)) {
        const ckpt_live_set_row row = static_row(view, live);
        (void)row_words(view, &c, &row, CKPT_ROLE_WEIGHTS, whole, x, y + view->line, width);
    }
}

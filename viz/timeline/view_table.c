/* The two blocks under the picture: what makes the peak by category, which is also the legend, and facts. */
#include <math.h>
#include <stdlib.h>

#include "viz/timeline/view_draw.h"

/* Columns of the table: name, bytes, share, and with a second trace bytes and difference. */
enum { NAME_WIDTH = 160, BYTES_WIDTH = 80, SHARE_WIDTH = 64, DIFFERENCE_WIDTH = 88 };

static const double widths[CKPT_VIEW_COLUMNS] = {NAME_WIDTH, BYTES_WIDTH, SHARE_WIDTH, BYTES_WIDTH, DIFFERENCE_WIDTH};

/* In a narrow terminal the share goes first, then the difference. Gives the width of all. */
static double columns_of(const ckpt_view *view, double indent, ckpt_table_column column[CKPT_VIEW_COLUMNS])
{
    const double room = view->canvas.width - 2 * view->margin;
    const double both = NAME_WIDTH + 2 * BYTES_WIDTH + DIFFERENCE_WIDTH;
    const bool two = view->count > 1;
    const bool has[CKPT_VIEW_COLUMNS] = {true, true, !two || room >= both + SHARE_WIDTH, two, two && room >= both};
    double x = 0;
    for (int i = 0; i < CKPT_VIEW_COLUMNS; i++) {
        x += has[i] ? widths[i] : 0;
        column[i] = (ckpt_table_column){x, has[i] ? widths[i] - 8 : 0, 1};
    }
    column[0] = (ckpt_table_column){indent, NAME_WIDTH - indent, -1};
    return x;
}

double ckpt_view_table_width(const ckpt_view *view)
{
    ckpt_table_column ignored[CKPT_VIEW_COLUMNS];
    return columns_of(view, 0, ignored);
}

/* What the chart shows at all: the table says what its colours mean. */
static bool has_row(const ckpt_view *view, int b)
{
    const ckpt_series *const other = ckpt_view_other(view);
    return view->series[view->base].used[b] || (other != NULL && other->used[b]);
}

int ckpt_view_table_rows(const ckpt_view *view)
{
    int rows = 2 + (view->series[view->base].trace->budget_bytes > 0);
    for (int b = 0; b < CKPT_BAND_COUNT; b++) {
        rows += has_row(view, b);
    }
    return rows;
}

static const char *difference(ckpt_view *view, ckpt_bytes base, ckpt_bytes other)
{
    if (base == other) {
        return "=";
    }
    return other > base ? CKPT_SAY(view, "+%s", ckpt_view_bytes(view, other - base))
                        : CKPT_SAY(view, "−%s", ckpt_view_bytes(view, base - other));
}

void ckpt_view_row(ckpt_view *view, double x, double y, ckpt_font font, const ckpt_table_column *column,
                   const char *const word[CKPT_VIEW_COLUMNS])
{
    for (int i = 0; i < CKPT_VIEW_COLUMNS; i++) {
        font.align = column[i].align;
        if (word[i] != NULL && column[i].width > 0) {
            ckpt_view_words(view, x + column[i].x, y, font, column[i].width, word[i]);
        }
    }
}

void ckpt_view_rule(ckpt_view *view, double x, double y, double width)
{
    if (!view->canvas.renderer->cells) {
        const double sharp = round(y) - 0.5;
        ckpt_view_line(view, x, sharp, x + width, sharp, (ckpt_pen){CKPT_ROLE_GREY, 0.8, 0});
    }
}

void ckpt_view_swatch(ckpt_view *view, double x, double y, ckpt_colour_role role)
{
    const bool cells = view->canvas.renderer->cells;
    ckpt_view_box(view, x, y - (cells ? 8 : 6), cells ? 16 : 14, cells ? 16 : 12, role);
}

const char *ckpt_view_share(ckpt_view *view, ckpt_bytes part, ckpt_bytes whole)
{
    return CKPT_SAY(view, "%.1f %%", ckpt_view_percent((double)part, (double)whole));
}

static void row(ckpt_view *view, double y, bool bold, ckpt_colour_role role, double indent, const char *const word[5])
{
    ckpt_table_column column[CKPT_VIEW_COLUMNS];
    (void)columns_of(view, indent, column);
    ckpt_view_row(view, view->margin, y, (ckpt_font){view->small, bold, role, 0}, column, word);
}

/* Each of its own: two plans of one network may have been made for two budgets. Less than 0: over. */
static ckpt_bytes left_of_budget(const ckpt_series *series)
{
    return series->trace->budget_bytes - series->at_peak.planned;
}

void ckpt_view_draw_table(ckpt_view *view)
{
    const ckpt_series *const base = &view->series[view->base], *const other = ckpt_view_other(view);
    const double width = ckpt_view_table_width(view);
    double y = view->table_y + view->line / 2;
    const char *const base_name = base->trace->measured ? "measured" : "predicted";
    const char *const other_name = other == NULL ? NULL : other->trace->measured ? "measured" : "predicted";
    row(view, y, true, CKPT_ROLE_BLACK, 0,
        (const char *const[5]){"at the peak", base_name, "share", other_name, other != NULL ? "difference" : NULL});
    ckpt_view_rule(view, view->margin, y + view->line / 2, width);
    y += view->line;
    for (int b = CKPT_BAND_COUNT - 1; b >= 0; b--) { /* as the stack lies */
        if (!has_row(view, b)) {
            continue;
        }
        const ckpt_bytes bytes = base->at_peak.bytes[b], others = other != NULL ? other->at_peak.bytes[b] : 0;
        ckpt_view_swatch(view, view->margin, y, ckpt_view_band(view, b)->role);
        row(view, y, false, CKPT_ROLE_BLACK, 24,
            (const char *const[5]){ckpt_view_band(view, b)->name, ckpt_view_bytes(view, bytes),
                                   b == CKPT_BAND_OUTSIDE ? "–" : ckpt_view_share(view, bytes, base->at_peak.planned),
                                   other != NULL ? ckpt_view_bytes(view, others) : NULL,
                                   other != NULL ? difference(view, bytes, others) : NULL});
        y += view->line;
    }
    const ckpt_bytes sum = base->at_peak.planned;
    ckpt_view_rule(view, view->margin, y - view->line / 2, width);
    row(view, y, true, CKPT_ROLE_BLACK, 0,
        (const char *const[5]){"peak", ckpt_view_bytes(view, sum), "100.0 %",
                               other != NULL ? ckpt_view_bytes(view, other->at_peak.planned) : NULL,
                               other != NULL ? difference(view, sum, other->at_peak.planned) : NULL});
    y += view->line;
    const ckpt_bytes left = left_of_budget(base), others_left = other != NULL ? left_of_budget(other) : 0;
    if (base->trace->budget_bytes > 0) {
        const bool over = left < 0, has_other = other != NULL && other->trace->budget_bytes > 0;
        row(view, y, over, CKPT_ROLE_GREY, 0,
            (const char *const[5]){over ? "over the budget" : "left of the budget", ckpt_view_bytes(view, llabs(left)),
                                   NULL, has_other ? ckpt_view_bytes(view, llabs(others_left)) : NULL,
                                   !has_other || (others_left < 0) == over ? NULL
                                   : over                                  ? "left"
                                                                           : "over"});
    }
}

void ckpt_view_draw_facts(ckpt_view *view)
{
    const double name_width = 80;
    double y = view->facts_y + view->line / 2;
    for (int i = 0; i < view->fact_count; i++) {
        const ckpt_fact *const f = &view->fact[i];
        const ckpt_font name = {view->small, false, CKPT_ROLE_GREY, -1},
                        text = {view->small, false, CKPT_ROLE_BLACK, -1};
        if (f->outline >= 0) {
            const double end = view->facts_x + (view->canvas.renderer->cells ? 32 : 28);
            ckpt_view_line(view, view->facts_x, y, end, y, *ckpt_view_outline(f->outline));
        } else {
            ckpt_view_words(view, view->facts_x, y, name, name_width, f->name);
        }
        ckpt_view_words(view, view->facts_x + name_width, y, text,
                        view->canvas.width - view->margin - view->facts_x - name_width, f->text);
        y += view->line;
    }
}

/* Measured less predicted: what the machine did otherwise than the plan said, in bytes at every step and in allocations. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "viz/timeline/view_draw.h"

static bool same_steps(const ckpt_trace *a, const ckpt_trace *b)
{
    bool same = a->event_count == b->event_count;
    for (int i = 0; i < a->event_count && same; i++) {
        same = a->event[i].step == b->event[i].step && strcmp(a->event[i].name, b->event[i].name) == 0 &&
               (a->event[i].span == CKPT_SPAN_FREE) == (b->event[i].span == CKPT_SPAN_FREE);
    }
    return same;
}

static ckpt_bytes planned(const ckpt_trace *trace, int event)
{
    ckpt_bands bands;
    ckpt_event_bands(trace, &trace->event[event], &bands);
    return bands.planned;
}

static int by_place(const void *a, const void *b)
{
    const ckpt_trace_allocation *const x = *(const ckpt_trace_allocation *const *)a,
                                       *const y = *(const ckpt_trace_allocation *const *)b;
    if (x->from != y->from) {
        return x->from < y->from ? -1 : 1;
    }
    if (x->to != y->to) {
        return x->to < y->to ? -1 : 1;
    }
    if (x->offset != y->offset) {
        return x->offset < y->offset ? -1 : 1;
    }
    if (x->bytes != y->bytes) {
        return x->bytes < y->bytes ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

static const ckpt_trace_allocation **sorted(const ckpt_trace *trace, ckpt_arena *scratch)
{
    const ckpt_trace_allocation **const allocation =
        CKPT_NEW(scratch, const ckpt_trace_allocation *, trace->allocation_count);
    for (int i = 0; i < trace->allocation_count && allocation != NULL; i++) {
        allocation[i] = &trace->allocation[i];
    }
    if (allocation != NULL && trace->allocation_count > 1) {
        qsort(allocation, (size_t)trace->allocation_count, sizeof(const ckpt_trace_allocation *), by_place);
    }
    return allocation;
}

/* Allocations that only one of both has, by going through them in one order. */
static ckpt_code find_moved(const ckpt_trace *base, const ckpt_trace *other, ckpt_arena *scratch,
                            ckpt_residual *residual, ckpt_err *err)
{
    if (base->allocation_count == 0 || other->allocation_count == 0) {
        return CKPT_OK;
    }
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    const ckpt_trace_allocation **const a = sorted(base, scratch), **const b = sorted(other, scratch);
    if (a == NULL || b == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory to compare %d allocations", base->allocation_count);
    }
    residual->allocations = base->allocation_count;
    for (int i = 0, k = 0; i < base->allocation_count; i++) {
        while (k < other->allocation_count && by_place(&b[k], &a[i]) < 0) {
            k++;
        }
        const bool there = k < other->allocation_count && by_place(&b[k], &a[i]) == 0;
        residual->moved += !there;
        k += there;
    }
    residual->more = other->allocation_count - (base->allocation_count - residual->moved);
    ckpt_arena_rewind(scratch, mark);
    return CKPT_OK;
}

/* Cost: O(events + allocations log allocations). */
static ckpt_code find_residual(const ckpt_trace *base, const ckpt_trace *other, ckpt_arena *scratch,
                               ckpt_residual *residual, ckpt_err *err)
{
    *residual = (ckpt_residual){.comparable = same_steps(base, other)};
    for (int i = 0; i < base->event_count && residual->comparable; i++) {
        const ckpt_bytes more = planned(other, i) - planned(base, i);
        residual->differing += more != 0;
        if ((more < 0 ? -more : more) > (residual->most < 0 ? -residual->most : residual->most)) {
            residual->most = more;
            residual->at = i;
        }
    }
    return residual->comparable ? find_moved(base, other, scratch, residual, err) : CKPT_OK;
}

static const char *allocations(ckpt_view *view, const ckpt_residual *residual)
{
    if (residual->allocations == 0) {
        return "";
    }
    if (residual->moved == 0 && residual->more > 0) {
        return CKPT_SAY(view, "; all %d allocations and %d more", residual->allocations, residual->more);
    }
    return residual->moved == 0
               ? CKPT_SAY(view, "; all %d allocations as %s", residual->allocations,
                          view->series[view->base].trace->measured ? "before" : "planned")
               : CKPT_SAY(view, "; %d allocation%s of %d differ%s", residual->moved, residual->moved == 1 ? "" : "s",
                          residual->allocations, residual->moved == 1 ? "s" : "");
}

static const char *signed_bytes(ckpt_view *view, ckpt_bytes bytes)
{
    return bytes < 0 ? CKPT_SAY(view, "−%s", ckpt_view_bytes(view, -bytes))
                     : CKPT_SAY(view, "+%s", ckpt_view_bytes(view, bytes));
}

static const char *say(ckpt_view *view, const ckpt_series *base, const ckpt_series *other)
{
    const ckpt_residual *const residual = &view->residual;
    /* A terminal has no room for what its lane is called already, nor for allocations beside steps: they are a fact. */
    const char *const names =
        view->canvas.renderer->cells ? "" : CKPT_SAY(view, "%s − %s: ", other->label, base->label);
    if (!residual->comparable) {
        return CKPT_SAY(view, "%snot the same steps", names);
    }
    if (residual->differing == 0) {
        return CKPT_SAY(view, "%s0 bytes at every step%s%s", names, other->same ? "" : " in sum, not by category",
                        allocations(view, residual));
    }
    return CKPT_SAY(view, "%s%d of %d steps differ, most by %s at step %d%s", names, residual->differing,
                    base->trace->event_count, signed_bytes(view, residual->most), base->trace->event[residual->at].step,
                    view->canvas.renderer->cells ? "" : allocations(view, residual));
}

ckpt_code ckpt_view_find_residual(ckpt_view *view, ckpt_err *err)
{
    const ckpt_series *const base = &view->series[view->base], *const other = ckpt_view_other(view);
    if (other == NULL || view->no_plan || ckpt_trace_follows_no_plan(other->trace)) {
        return CKPT_OK;
    }
    CKPT_TRY(find_residual(base->trace, other->trace, view->canvas.scratch, &view->residual, err));
    view->residual_words = say(view, base, other);
    return CKPT_OK;
}

static double strip_height(const ckpt_view *view)
{
    const bool cells = view->canvas.renderer->cells;
    return view->residual.differing == 0 ? 0 : cells ? view->line : 34;
}

double ckpt_view_residual_height(const ckpt_view *view)
{
    return view->residual_words != NULL ? view->line + strip_height(view) : 0;
}

/* Of every column the largest surplus and the largest lack. Zero where the column has no step that differs. */
static void fill(const ckpt_view *view, const ckpt_series *base, const ckpt_series *other, double *more, double *less)
{
    const double scale = view->columns / view->x_end;
    for (int i = 0; i < base->trace->event_count; i++) {
        const double residual = (double)(planned(other->trace, i) - planned(base->trace, i));
        if (residual == 0) {
            continue;
        }
        int from = (int)fmin(view->columns - 1, floor(base->from[i] * scale + 1e-3));
        const int to = (int)fmin(view->columns, ceil(base->from[i + 1] * scale - 1e-3));
        from = from > 0 ? from : 0;
        for (int c = from; c < (to > from ? to : from + 1); c++) {
            more[c] = fmax(more[c], residual);
            less[c] = fmin(less[c], residual);
        }
    }
}

/* Bars from the zero line, scaled to the largest; one byte beside gigabytes is seen too. */
static void draw_strip(ckpt_view *view, double y, const double *more, const double *less)
{
    enum { MIN = 4 };
    const bool cells = view->canvas.renderer->cells;
    const double height = strip_height(view), column = (view->right - view->left) / view->columns;
    double high = 0, low = 0;
    for (int c = 0; c < view->columns; c++) {
        high = fmax(high, more[c]);
        low = fmin(low, less[c]);
    }
    const double zero = y + fmin(height - 2 - (low < 0 ? MIN : 0),
                                 fmax(2 + (high > 0 ? MIN : 0), 2 + (height - 4) * high / (high - low)));
    if (!cells) {
        const ckpt_font font = {11, false, CKPT_ROLE_GREY, 1};
        ckpt_view_box(view, view->left, y, view->right - view->left, height, CKPT_ROLE_FAINT);
        if (high > 0) {
            ckpt_view_words(view, view->left - 8, y + 8, font, view->gutter, signed_bytes(view, (ckpt_bytes)high));
        }
        if (low < 0) {
            ckpt_view_words(view, view->left - 8, y + height - 8, font, view->gutter,
                            signed_bytes(view, (ckpt_bytes)low));
        }
        ckpt_view_line(view, view->left, zero, view->right, zero, (ckpt_pen){CKPT_ROLE_GREY, 0.8, 0});
    }
    for (int c = 0; c < view->columns;) {
        int end = c + 1;
        while (end < view->columns && more[end] == more[c] && less[end] == less[c]) {
            end++;
        }
        const double x = view->left + c * column, width = (end - c) * column, scale = (height - 4) / (high - low);
        if ((more[c] > 0 || less[c] < 0) && cells) {
            ckpt_view_line(view, x, y + height / 2, x + width, y + height / 2, (ckpt_pen){CKPT_ROLE_RESIDUAL, 2, 0});
        } else if (more[c] > 0 || less[c] < 0) {
            const double above = fmax(more[c] * scale, more[c] > 0 ? MIN : 0);
            const double below = fmax(-less[c] * scale, less[c] < 0 ? MIN : 0);
            ckpt_view_box(view, x, zero - above, width, above + below, CKPT_ROLE_RESIDUAL);
        }
        c = end;
    }
}

void ckpt_view_draw_residual(ckpt_view *view)
{
    const ckpt_series *const base = &view->series[view->base], *const other = ckpt_view_other(view);
    const ckpt_font name = {view->small, false, CKPT_ROLE_GREY, 1}, words = {view->small, false, CKPT_ROLE_BLACK, -1};
    if (view->residual_words == NULL) {
        return;
    }
    double y = view->residual_y;
    const double height = strip_height(view);
    ckpt_view_words(view, view->left - 8, y + view->line / 2, name, view->gutter, "residual");
    ckpt_view_words_on(view, view->left + (view->canvas.renderer->cells ? 0 : 2), y + view->line / 2, words,
                       view->right - view->left - 4, view->residual_words, CKPT_ROLE_PAPER);
    if (height > 0) {
        y += view->line;
        double *const more = CKPT_NEW(view->canvas.scratch, double, view->columns);
        double *const less = CKPT_NEW(view->canvas.scratch, double, view->columns);
        if (more == NULL || less == NULL) {
            view->failed = true;
            return;
        }
        fill(view, base, other, more, less);
        draw_strip(view, y, more, less);
    }
}

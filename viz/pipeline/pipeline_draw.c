/* The picture of a pipeline:
 *
 *     title, time and bubble
 *     stage 0 [0][1][2]      [ 0 ][ 3 ][ 1 ] ...   25.0 %   4.4 MB of 4.5 MB
 *     stage 1    [0][1][2][ 0 ] ...                25.0 %   3.8 MB of 4.0 MB
 *     axis
 *     what the colours are, and how long it took in all
 *
 * Runs of one kind and micro-batch that follow each other are one bar. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "viz/pipeline/pipeline.h"
#include "viz/timeline/view_draw.h"

enum { STAGES_MAX = CKPT_VIEW_STAGES };

typedef enum kind { FORWARD, BACKWARD, RECOMPUTE, MESSAGE, UPDATE, OTHER, KINDS } kind;

static const struct {
    const char *name;
    ckpt_colour_role role;
} looks[KINDS] = {{"forward", CKPT_ROLE_ACTIVATIONS}, {"backward", CKPT_ROLE_GRADIENTS},
                  {"recompute", CKPT_ROLE_RECOMPUTE}, {"messages", CKPT_ROLE_OFFLOADED},
                  {"update", CKPT_ROLE_WEIGHTS},      {"other", CKPT_ROLE_OTHER}};

typedef struct bar {
    kind kind;
    int batch; /* -1: of none */
    ckpt_ns start, end;
} bar;

typedef struct row {
    const ckpt_trace *trace;
    int stage;
    bar *bar;
    int count;
    ckpt_ns busy;
} row;

typedef struct picture {
    ckpt_view view;
    row row[STAGES_MAX];
    int rows;
    ckpt_ns total, spent[KINDS];
    double row_height, axis_y;
    double memory_x; /* 0: no room for that column */
} picture;

/* Of "<graph>, stage 2 of 4": how long the graph's name is, and the numbers. */
static bool parse_name(const char *name, int *length, int *stage, int *stages)
{
    static const char mark[] = ", stage ";
    const char *at = NULL;
    for (const char *next = strstr(name, mark); next != NULL; next = strstr(next + 1, mark)) {
        at = next;
    }
    int used = 0;
    *length = at != NULL ? (int)(at - name) : 0;
    return at != NULL && sscanf(at + strlen(mark), "%6d of %6d%n", stage, stages, &used) == 2 &&
           at[strlen(mark) + (size_t)used] == '\0' && *stage >= 0 && *stage < *stages;
}

bool ckpt_pipeline_traces(const ckpt_trace *const *trace, int count)
{
    bool all = count >= 2 && count <= STAGES_MAX;
    int seen[STAGES_MAX] = {0};
    int first_length = 0, first_stages = 0;
    for (int i = 0; i < count && all; i++) {
        int length = 0, stages = 0;
        all = parse_name(trace[i]->name, &length, &seen[i], &stages) && trace[i]->time_ns > 0;
        first_length = i == 0 ? length : first_length;
        first_stages = i == 0 ? stages : first_stages;
        all = all && length == first_length && stages == first_stages &&
              strncmp(trace[i]->name, trace[0]->name, (size_t)length) == 0;
        for (int k = 0; k < i && all; k++) {
            all = seen[k] != seen[i];
        }
    }
    return all;
}

/* The number behind the last '@' of a layer; -1: none. */
static int batch_of(const char *layer)
{
    const char *const at = strrchr(layer, '@');
    char *end = NULL;
    const long number = at != NULL && at[1] >= '0' && at[1] <= '9' ? strtol(at + 1, &end, 10) : -1;
    return end != NULL && *end == '\0' && number < 1000000 ? (int)number : -1;
}

static bool is_message(const char *name)
{
    const char *const last = strrchr(name, '/');
    return last != NULL && (strcmp(last, "/send") == 0 || strcmp(last, "/sent") == 0 || strcmp(last, "/receive") == 0);
}

static kind kind_of(const ckpt_event *event)
{
    switch (event->span) {
    case CKPT_SPAN_FORWARD: return is_message(event->name) ? MESSAGE : FORWARD;
    case CKPT_SPAN_BACKWARD: return is_message(event->name) ? MESSAGE : BACKWARD;
    case CKPT_SPAN_RECOMPUTE: return RECOMPUTE;
    case CKPT_SPAN_COPY: return MESSAGE;
    case CKPT_SPAN_UPDATE: return UPDATE;
    case CKPT_SPAN_WAIT:
    case CKPT_SPAN_FREE:
    case CKPT_SPAN_ALLOCATE:
    case CKPT_SPAN_OTHER: break;
    }
    return OTHER;
}

/* Copies to the host and back go on beside. */
static bool has_bar(const ckpt_event *event)
{
    return event->end_ns > event->start_ns && strcmp(event->stream, "compute") == 0 && event->span != CKPT_SPAN_WAIT &&
           event->span != CKPT_SPAN_FREE && event->span != CKPT_SPAN_ALLOCATE;
}

static ckpt_code make_bars(picture *p, row *r, ckpt_err *err)
{
    r->bar = CKPT_NEW(p->view.canvas.scratch, bar, r->trace->event_count);
    if (r->bar == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d bars", r->trace->event_count);
    }
    for (int i = 0; i < r->trace->event_count; i++) {
        const ckpt_event *const event = &r->trace->event[i];
        if (!has_bar(event)) {
            continue;
        }
        const bar next = {kind_of(event), batch_of(event->layer), event->start_ns, event->end_ns};
        bar *const last = r->count > 0 ? &r->bar[r->count - 1] : NULL;
        const ckpt_ns free_from = last != NULL && last->end > next.start ? last->end : next.start; /* no two overlap */
        const ckpt_ns length = next.end > free_from ? next.end - free_from : 0;
        p->spent[next.kind] += length;
        r->busy += length;
        if (last != NULL && last->kind == next.kind && last->batch == next.batch && last->end >= next.start) {
            last->end = next.end > last->end ? next.end : last->end;
        } else if (length > 0) {
            r->bar[r->count++] = (bar){next.kind, next.batch, free_from, next.end};
        }
    }
    return CKPT_OK;
}

static ckpt_code make_rows(picture *p, const ckpt_trace *const *trace, int count, ckpt_err *err)
{
    for (int i = 0; i < count; i++) {
        int length = 0, stages = 0;
        row made = {.trace = trace[i]};
        (void)parse_name(trace[i]->name, &length, &made.stage, &stages);
        int at = p->rows++;
        for (; at > 0 && p->row[at - 1].stage > made.stage; at--) {
            p->row[at] = p->row[at - 1];
        }
        p->row[at] = made;
        p->total = trace[i]->time_ns > p->total ? trace[i]->time_ns : p->total;
    }
    for (int i = 0; i < count; i++) {
        CKPT_TRY(make_bars(p, &p->row[i], err));
    }
    return CKPT_OK;
}

static double bubble(const picture *p, ckpt_ns busy, int rows)
{
    const double all = (double)p->total * rows;
    return busy < all ? 100 * (1 - (double)busy / all) : 0;
}

static void say(picture *p)
{
    ckpt_view *const v = &p->view;
    char text[CKPT_UNITS_TEXT];
    int length = 0, stage = 0, stages = 0, batches = 0;
    ckpt_ns busy = 0;
    (void)parse_name(p->row[0].trace->name, &length, &stage, &stages);
    for (int r = 0; r < p->rows; r++) {
        busy += p->row[r].busy;
        for (int i = 0; i < p->row[r].count; i++) {
            batches = p->row[r].bar[i].batch >= batches ? p->row[r].bar[i].batch + 1 : batches;
        }
    }
    batches = batches > 0 ? batches : 1;
    const char *const which = p->rows == stages ? "" : CKPT_SAY(v, "%d of ", p->rows);
    v->title = CKPT_SAY(v, "%.*s: %s%d pipeline stages, %d micro-batch%s", length, p->row[0].trace->name, which, stages,
                        batches, batches == 1 ? "" : "es");
    bool measured = true;
    for (int r = 0; r < p->rows; r++) {
        measured = measured && p->row[r].trace->measured;
    }
    v->about = CKPT_SAY(v, "%s a step of %s, %.1f %% of it bubbles",
                        measured ? "measured:" : "predicted:", ckpt_ns_show(p->total, text), bubble(p, busy, p->rows));
}

static double gutter(const picture *p)
{
    return p->view.canvas.renderer->cells ? 72 : 70;
}

static void lay_out(picture *p, int height)
{
    ckpt_view *const v = &p->view;
    const bool cells = v->canvas.renderer->cells;
    const double head = v->margin + (cells ? 3 : 3.2) * v->line;
    const double foot = v->margin + (cells ? 3 : 3.6) * v->line;
    const double minimum = cells ? 16 : 26;
    const double wanted = height > 0 ? (height * v->canvas.cell_height - head - foot) / p->rows : (cells ? 32 : 44);
    p->row_height = fmax(minimum, cells ? floor(wanted / 16) * 16 : floor(wanted));
    const double memory = cells ? 168 : 140;
    const bool room = v->canvas.width > 4 * memory;
    v->left = v->margin + gutter(p);
    v->right = v->canvas.width - v->margin - gutter(p) - (room ? memory : 0);
    p->memory_x = room ? v->right + gutter(p) : 0;
    v->top = head;
    v->bottom = head + p->row_height * p->rows;
    v->x_end = (double)p->total;
    v->gutter = gutter(p) - 8;
    p->axis_y = v->bottom + (cells ? 0 : 4);
    v->canvas.height = v->bottom + foot;
}

/* Are they one stretch of a micro-batch's forward, or of its backward with what is recomputed for it? */
static bool together(const bar *a, const bar *b)
{
    return a->batch == b->batch && a->kind <= RECOMPUTE && b->kind <= RECOMPUTE &&
           (a->kind == FORWARD) == (b->kind == FORWARD) && a->end == b->start;
}

/* Numbers of micro-batches in the middle of stretches that have room for them. */
static void draw_numbers(picture *p, const row *r, double y, double height)
{
    ckpt_view *const v = &p->view;
    const bool cells = v->canvas.renderer->cells;
    for (int i = 0, last = 0; i < r->count; i = last + 1) {
        for (last = i; last + 1 < r->count && together(&r->bar[last], &r->bar[last + 1]);) {
            last++;
        }
        const ckpt_colour_role role = looks[r->bar[i].kind == FORWARD ? FORWARD : BACKWARD].role;
        const ckpt_font font = {v->small, true, ckpt_colour_role_looks[role].text, 0};
        const char *const text = CKPT_SAY(v, "%d", r->bar[i].batch);
        const double from = ckpt_view_x(v, (double)r->bar[i].start);
        const double width = ckpt_view_x(v, (double)r->bar[last].end) - from;
        if (r->bar[i].batch >= 0 && r->bar[i].kind <= RECOMPUTE &&
            ckpt_view_measure(v, font, text) + (cells ? 8 : 5) <= width) {
            ckpt_view_words_on(v, from + width / 2, cells ? y + 8 : y + height / 2, font, width, text, role);
        }
    }
}

static const char *title_of(picture *p, const row *r, const bar *b)
{
    char time[CKPT_UNITS_TEXT], from[CKPT_UNITS_TEXT];
    const char *const batch = b->batch >= 0 ? CKPT_SAY(&p->view, " of micro-batch %d", b->batch) : "";
    return CKPT_SAY(&p->view, "stage %d: %s%s, %s from %s on", r->stage, looks[b->kind].name, batch,
                    ckpt_ns_show(b->end - b->start, time), ckpt_ns_show(b->start, from));
}

/* In a terminal each character is what took most of its time; none where half of it is a bubble. */
static void draw_columns(picture *p, const row *r, double y, double height)
{
    ckpt_view *const v = &p->view;
    const int columns = (int)((v->right - v->left) / v->canvas.cell_width);
    for (int c = 0, i = 0; c < columns; c++) {
        const double from = (double)p->total / columns * c, to = (double)p->total / columns * (c + 1);
        double spent[KINDS] = {0}, all = 0;
        int most = 0;
        for (; i < r->count && (double)r->bar[i].start < to; i++) {
            const double length = fmin((double)r->bar[i].end, to) - fmax((double)r->bar[i].start, from);
            spent[r->bar[i].kind] += length;
            all += length;
            if ((double)r->bar[i].end > to) {
                break; /* it goes on in the next */
            }
        }
        for (int k = 1; k < KINDS; k++) {
            most = spent[k] > spent[most] ? k : most;
        }
        const ckpt_box box = {.x = v->left + c * v->canvas.cell_width,
                              .y = y,
                              .width = v->canvas.cell_width,
                              .height = height,
                              .role = looks[most].role};
        v->canvas.renderer->boxes(&v->canvas, &box, 2 * all > to - from ? 1 : 0);
    }
}

/* What is beside a row: the bubble, and the memory that the stage takes. */
static void draw_figures(picture *p, const row *r, double middle)
{
    ckpt_view *const v = &p->view;
    const ckpt_font font = {v->small, false, CKPT_ROLE_GREY, -1};
    char peak[CKPT_UNITS_TEXT], budget[CKPT_UNITS_TEXT];
    ckpt_view_words(v, v->right + 8, middle, font, v->gutter, CKPT_SAY(v, "%.1f %%", bubble(p, r->busy, 1)));
    if (p->memory_x > 0 && r->trace->budget_bytes > 0) {
        ckpt_view_words(v, p->memory_x, middle, font, CKPT_ANY_WIDTH / 2,
                        CKPT_SAY(v, "%s of %s", ckpt_bytes_show(r->trace->peak_bytes, peak),
                                 ckpt_bytes_show(r->trace->budget_bytes, budget)));
    } else if (p->memory_x > 0) {
        ckpt_view_words(v, p->memory_x, middle, font, CKPT_ANY_WIDTH / 2, ckpt_bytes_show(r->trace->peak_bytes, peak));
    }
}

static void draw_row(picture *p, const row *r, int number)
{
    ckpt_view *const v = &p->view;
    const bool cells = v->canvas.renderer->cells;
    const double y = v->top + p->row_height * number;
    const double gap = cells ? 0 : 4;
    const ckpt_font font = {v->small, false, CKPT_ROLE_BLACK, 1};
    const double middle = cells ? y + 8 : y + p->row_height / 2;
    ckpt_box *const box = CKPT_NEW(v->canvas.scratch, ckpt_box, r->count);
    v->failed = v->failed || box == NULL;
    ckpt_view_words(v, v->left - 8, middle, font, v->gutter, CKPT_SAY(v, "stage %d", r->stage));
    draw_figures(p, r, middle);
    if (!cells) {
        ckpt_view_line(v, v->left, y + p->row_height - 0.5, v->right, y + p->row_height - 0.5,
                       (ckpt_pen){CKPT_ROLE_FAINT, 1, 0});
    }
    const double height = p->row_height - 2 * gap - (cells && p->row_height > 16 ? 16 : 0);
    int boxes = 0;
    for (int i = 0; i < r->count && box != NULL && !cells; i++) {
        const bar *const b = &r->bar[i];
        const double from = ckpt_view_x(v, (double)b->start);
        box[boxes++] = (ckpt_box){.x = from,
                                  .y = y + gap,
                                  .width = ckpt_view_x(v, (double)b->end) - from,
                                  .height = height,
                                  .role = looks[b->kind].role,
                                  .title = title_of(p, r, b)};
    }
    if (cells) {
        draw_columns(p, r, y, height);
    }
    if (box != NULL) {
        v->canvas.renderer->boxes(&v->canvas, box, boxes);
        draw_numbers(p, r, y + gap, height);
    }
}

static void draw_axis(picture *p)
{
    ckpt_view *const v = &p->view;
    const bool cells = v->canvas.renderer->cells;
    v->time_axis = true;
    v->axis_drop = cells ? 8 : 13;
    ckpt_view_draw_ticks(v, p->axis_y, 80);
    const ckpt_font side = {v->small, false, CKPT_ROLE_GREY, -1};
    ckpt_view_words(v, v->right + 8, v->top - (cells ? 8 : 10), side, v->gutter, "bubble");
    if (p->memory_x > 0) {
        ckpt_view_words(v, p->memory_x, v->top - (cells ? 8 : 10), side, CKPT_ANY_WIDTH / 2, "peak of budget");
    }
}

static void draw_legend(picture *p)
{
    ckpt_view *const v = &p->view;
    const bool cells = v->canvas.renderer->cells;
    const ckpt_font font = {v->small, false, CKPT_ROLE_BLACK, -1};
    const double y = p->axis_y + (cells ? 24 : 36);
    double x = v->left;
    for (int k = 0; k < KINDS; k++) {
        char time[CKPT_UNITS_TEXT];
        if (p->spent[k] == 0) {
            continue;
        }
        const char *const words = CKPT_SAY(v, "%s %s", looks[k].name, ckpt_ns_show(p->spent[k], time));
        const double side = cells ? 16 : 12;
        const double width = side + 6 + ckpt_view_measure(v, font, words) + 16;
        if (x + width > v->canvas.width && x > v->left) {
            break; /* the rarest come last */
        }
        const ckpt_box box = {.x = x, .y = y - (cells ? 8 : 6), .width = side, .height = side, .role = looks[k].role};
        v->canvas.renderer->boxes(&v->canvas, &box, 1);
        ckpt_view_words(v, x + side + (cells ? 8 : 6), y, font, CKPT_ANY_WIDTH / 2, words);
        x += width;
    }
}

static void draw(void *drawn)
{
    picture *const p = drawn;
    ckpt_view *const v = &p->view;
    const bool cells = v->canvas.renderer->cells;
    const double content = v->canvas.width - 2 * v->margin;
    const double y = v->margin + (cells ? 0.5 : 0.6) * v->line;
    ckpt_view_words(v, v->margin, y, ckpt_view_title_font(v), content, v->title);
    ckpt_view_words(v, v->margin, y + (cells ? 1 : 1.2) * v->line, (ckpt_font){12.5, false, CKPT_ROLE_GREY, -1},
                    content, v->about);
    for (int r = 0; r < p->rows; r++) {
        draw_row(p, &p->row[r], r);
    }
    draw_axis(p);
    draw_legend(p);
}

ckpt_code ckpt_pipeline_draw(const ckpt_trace *const *trace, int count, const char *format,
                             const ckpt_view_options *options, ckpt_text *text, ckpt_err *err)
{
    static const ckpt_view_size size = {.width = 1240, .least_width = 420};
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    picture *const p = CKPT_NEW(&scratch, picture, 1);
    if (p == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a picture");
    }
    ckpt_code code = ckpt_view_init(&p->view, format, options, &size, &scratch, err);
    code = code == CKPT_OK ? make_rows(p, trace, count, err) : code;
    if (code == CKPT_OK) {
        say(p);
        lay_out(p, options != NULL ? options->height : 0);
        code = ckpt_view_draw_with(&p->view, draw, p, text, err);
    }
    ckpt_arena_fini(&scratch);
    return code == CKPT_OK ? ckpt_text_end(text, err) : code;
}

/* The forward half of a graph as a drawing in DOT: a box for each layer, an arrow where a layer reads another, clusters
 * around what stands together. DOT is written as text, so that what a person gets (-o x.dot) and what Graphviz draws is
 * the same; Graphviz then reads it (graph_render.c). */
#include <math.h>
#include <string.h>

#include "viz/draw/draw.h"
#include "viz/graph/graph_draw_impl.h"
#include "viz/viz.h"

enum { BOXES = 100, WIDEST = 2000, HIGHEST = 2400, FLAT = 40, NAME_LETTERS = 48 };

typedef struct decision_look {
    const char *word, *fill, *line, *style;
} decision_look;

/* Light tints of Okabe and Ito's colours; the border is the second cue. */
static const decision_look looks[CKPT_DECISIONS] = {
    [CKPT_KEEP] = {"kept", "#cfe8f7", "#0072b2", "filled"},
    [CKPT_RECOMPUTE] = {"recomputed", "#fbe0a6", "#b35a00", "filled,dashed"},
    [CKPT_OFFLOADED] = {"offloaded", "#efd3e2", "#8a3a67", "filled\", peripheries=\"2"},
};
static const decision_look not_run = {"not run", "#ffffff", "#999999", "filled,dotted\", fontcolor=\"#666666"};
static const decision_look undecided = {"", "#f4f4f4", "#555555", "filled"};

/* Of boxes in which the plan does an op in another way than its own. */
#define OTHER_WAY_PEN "2.5"

typedef struct drawing {
    const ckpt_figure *figure;
    ckpt_text *text;
    int depth; /* of the clusters around what is written */
} drawing;

/* The inside of a DOT string. Graphviz reads \x as an escape and &x; as an entity, so both are taken apart. */
static void put_name(ckpt_text *text, const char *name, size_t length)
{
    size_t letters = 0, seen = 0;
    for (size_t i = 0; i < length; i++) {
        letters += ((unsigned char)name[i] & 0xC0) != 0x80;
    }
    for (size_t i = 0; i < length;) {
        const int bytes = ckpt_utf8_length(name + i);
        const bool left_out = letters > NAME_LETTERS && seen >= NAME_LETTERS / 2 && seen < letters - NAME_LETTERS / 2;
        if (left_out) {
            ckpt_text_add(text, "%s", seen == NAME_LETTERS / 2 ? "…" : "");
        } else if (bytes == 0) {
            ckpt_text_add(text, "\xEF\xBF\xBD");
        } else if (name[i] == '"' || name[i] == '\\') {
            ckpt_text_add(text, "\\%c", name[i]);
        } else if (name[i] == '&') {
            ckpt_text_add(text, "&amp;");
        } else {
            ckpt_text_put(text, name + i, (size_t)bytes);
        }
        i += bytes > 0 ? (size_t)bytes : 1;
        seen++;
    }
}

/* Lines of any length. */
static void put_lines(ckpt_text *text, const char *lines)
{
    for (const char *at = lines; *at != '\0';) {
        const size_t line = strcspn(at, "\n"), length = line < NAME_LETTERS ? line : NAME_LETTERS;
        put_name(text, at, length);
        at += length;
        if (*at == '\n') {
            ckpt_text_add(text, "\\n");
            at++;
        }
    }
}

static void put_text(ckpt_text *text, const char *name)
{
    put_name(text, name, strlen(name));
}

static void indent(const drawing *d)
{
    ckpt_text_add(d->text, "%*s", 2 + 2 * d->depth, "");
}

static void put_box_name(const drawing *d, int index)
{
    const ckpt_figure_box *const b = &d->figure->box[index];
    ckpt_text_add(d->text, "\"%d ", index);
    put_name(d->text, b->name, b->name_length);
    ckpt_text_add(d->text, "\"");
}

static void put_look(ckpt_text *text, const decision_look *look)
{
    ckpt_text_add(text, ", fillcolor=\"%s\", color=\"%s\", style=\"%s\"", look->fill, look->line, look->style);
}

/* Layers with different decisions in one box: so many stripes of each colour. */
static void put_stripes(const drawing *d, const ckpt_figure_box *b, int all, const char *between)
{
    for (int k = 0; k < CKPT_DECISIONS; k++) {
        if (b->decided[k] > 0) {
            ckpt_text_add(d->text, "%s%d %s", between, b->decided[k], looks[k].word);
            between = ", ";
        }
    }
    ckpt_text_add(d->text, "\", color=\"%s\", style=\"striped\", fillcolor=\"", undecided.line);
    between = "";
    for (int k = 0; k < CKPT_DECISIONS; k++) {
        if (b->decided[k] > 0) {
            ckpt_text_add(d->text, "%s%s;%d.%02d", between, looks[k].fill, b->decided[k] / all,
                          (int)(100LL * b->decided[k] / all % 100));
            between = ":";
        }
    }
    ckpt_text_add(d->text, "\"");
}

static void put_label(const drawing *d, const ckpt_figure_box *b, const char *line)
{
    char bytes[CKPT_UNITS_TEXT], saved[CKPT_UNITS_TEXT], forward[CKPT_UNITS_TEXT], backward[CKPT_UNITS_TEXT];
    put_name(d->text, b->name + b->hidden, b->name_length - b->hidden);
    if (b->layers > 1) {
        if (b->last_length != b->name_length || strncmp(b->last, b->name, b->last_length) != 0) {
            ckpt_text_add(d->text, " to ");
            put_name(d->text, b->last, b->last_length);
        }
        ckpt_text_add(d->text, " (%d layers)", b->layers);
    }
    ckpt_text_add(d->text, "%s%s", line, ckpt_bytes_show(b->activation_bytes, bytes));
    if (b->saved_bytes > 0) {
        ckpt_text_add(d->text, " + %s", ckpt_bytes_show(b->saved_bytes, saved));
    }
    ckpt_text_add(d->text, "%s%s", line, ckpt_ns_show(b->forward_ns, forward));
    if (b->backward_ns > 0) {
        ckpt_text_add(d->text, " + %s", ckpt_ns_show(b->backward_ns, backward));
    }
    if (b->layers == 1 && b->recomputed > 1) {
        ckpt_text_add(d->text, "%s%d more runs", line, b->recomputed);
    }
    const char *const ways[] = {b->way, b->backward_way};
    for (int i = 0; i < 2; i++) {
        if (ways[i] != NULL) {
            ckpt_text_add(d->text, "%s", line);
            put_text(d->text, ways[i]);
        }
    }
    if (b->layers > 1 && b->other_ways > 0) {
        ckpt_text_add(d->text, "%s%d ops in another way", line, b->other_ways);
    }
}

static void put_box(const drawing *d, int index)
{
    const ckpt_figure_box *const b = &d->figure->box[index];
    const char *const line = "\\n";
    indent(d);
    put_box_name(d, index);
    ckpt_text_add(d->text, " [label=\"");
    put_label(d, b, line);
    int all = 0, kinds = 0, only = 0;
    for (int k = 0; k < CKPT_DECISIONS; k++) {
        all += b->decided[k];
        kinds += b->decided[k] > 0;
        only = b->decided[k] > 0 ? k : only;
    }
    if (kinds > 1) {
        put_stripes(d, b, all, line);
    } else {
        ckpt_text_add(d->text, "\"");
        put_look(d->text, b->idle ? &not_run : kinds == 0 ? &undecided : &looks[only]);
    }
    if (b->other_ways > 0) {
        ckpt_text_add(d->text, ", penwidth=" OTHER_WAY_PEN);
    }
    if (b->tip != NULL) {
        ckpt_text_add(d->text, ", tooltip=\"");
        put_lines(d->text, b->tip);
        ckpt_text_add(d->text, "\"");
    }
    ckpt_text_add(d->text, "];\n");
}

static void open_range(drawing *d, int index)
{
    static const char *const style[] = {
        [CKPT_RANGE_REPEAT] = "style=\"filled,rounded\", color=\"#555555\", fillcolor=\"#f7f7f7\", penwidth=1.5",
        [CKPT_RANGE_UNIT] = "style=dotted, color=\"#333333\", penwidth=1",
        [CKPT_RANGE_SEGMENT] = "style=\"filled,rounded,dashed\", color=\"#b35a00\", fillcolor=\"#fff8e8\", penwidth=1"};
    const ckpt_figure_range *const r = &d->figure->range[index];
    char bytes[CKPT_UNITS_TEXT], time[CKPT_UNITS_TEXT];
    indent(d);
    ckpt_text_add(d->text, "subgraph cluster_%d {\n", index);
    d->depth++;
    indent(d);
    ckpt_text_add(d->text, "graph [%s, fontsize=10, label=\"", style[r->kind]);
    if (r->kind == CKPT_RANGE_REPEAT) {
        put_text(d->text, r->name);
        if (strcmp(r->name, r->to) != 0) {
            ckpt_text_add(d->text, " … ");
            put_text(d->text, r->to);
        }
        ckpt_text_add(d->text, " ×%d%s", r->times, r->continued ? ", continued" : "");
        if (!r->continued && r->layers > 1) {
            ckpt_text_add(d->text, "\\leach %s, %s\\l", ckpt_bytes_show(r->bytes, bytes),
                          ckpt_ns_show(r->time_ns, time));
        }
    } else if (r->kind == CKPT_RANGE_UNIT) {
        ckpt_text_add(d->text, "unit ");
        put_text(d->text, r->name);
        ckpt_text_add(d->text, "%s", r->continued ? ", continued" : "");
    } else if (r->continued) {
        ckpt_text_add(d->text, "continued");
    } else {
        ckpt_text_add(d->text, "saves %s, costs %s", ckpt_bytes_show(r->bytes, bytes), ckpt_ns_show(r->time_ns, time));
    }
    ckpt_text_add(d->text, "\"];\n");
}

static void put_boxes(drawing *d)
{
    const ckpt_figure *const f = d->figure;
    int next = 0;
    for (int b = 0; b < f->box_count; b++) {
        for (; next < f->range_count && f->range[next].first == b; next++) {
            open_range(d, next);
        }
        put_box(d, b);
        for (int r = 0; r < next; r++) {
            if (f->range[r].last == b) {
                d->depth--;
                indent(d);
                ckpt_text_add(d->text, "}\n");
            }
        }
    }
}

/* An arrow to the first box of a frame ends at the frame: between the two stands the frame's heading. */
static void put_frame(const drawing *d, int from, int to)
{
    const ckpt_figure *const f = d->figure;
    for (int r = 0; r < f->range_count && f->range[r].first <= to; r++) {
        if (f->range[r].first == to && (from < to || from > f->range[r].last)) {
            ckpt_text_add(d->text, ", lhead=cluster_%d", r);
            return;
        }
    }
}

/* Arrows into each box: one from every box of its column that it reads, with the bytes where the reader could not tell
 * them. */
static void put_arrows(const drawing *d)
{
    const ckpt_figure *const f = d->figure;
    for (int e = 0; e < f->edge_count; e++) {
        const ckpt_figure_edge *const edge = &f->edge[e];
        char bytes[CKPT_UNITS_TEXT];
        if (f->box[edge->from].column != f->box[edge->to].column) {
            continue;
        }
        ckpt_text_add(d->text, "  ");
        put_box_name(d, edge->from);
        ckpt_text_add(d->text, " -> ");
        put_box_name(d, edge->to);
        const bool straight = edge->from + 1 == edge->to;
        ckpt_text_add(d->text, "%s",
                      edge->next ? " [style=dashed, color=\"#0072b2\", constraint=false"
                      : straight ? " [weight=8"
                                 : " [weight=1");
        put_frame(d, edge->from, edge->to);
        if (f->box[edge->from].outputs > 1) {
            ckpt_text_add(d->text, ", label=\" %s\"", ckpt_bytes_show(edge->bytes, bytes));
        }
        ckpt_text_add(d->text, "];\n");
    }
}

/* What box `index` reads of another column, or what reads it there: by name, since an arrow across the picture is one
 * that nobody follows. */
static void put_connector(const drawing *d, int index, bool out)
{
    enum { NAMED = 3 };
    const ckpt_figure *const f = d->figure;
    int count = 0;
    for (int e = 0; e < f->edge_count; e++) {
        const ckpt_figure_edge *const edge = &f->edge[e];
        const int own = out ? edge->from : edge->to, other = out ? edge->to : edge->from;
        if (own != index || f->box[own].column == f->box[other].column) {
            continue;
        }
        if (count == 0) {
            ckpt_text_add(d->text,
                          "  \"%s %d\" [shape=plaintext, height=0, margin=0.02, fontsize=10, "
                          "fontcolor=\"#444444\", label=\"%s",
                          out ? "to" : "from", index, out ? "to " : "from ");
        }
        if (count < NAMED) {
            const ckpt_figure_box *const b = &f->box[other];
            ckpt_text_add(d->text, "%s", count > 0 ? "\\n" : "");
            if (!out && b->layers == 1) {
                put_text(d->text, edge->source);
            } else {
                put_name(d->text, b->name, b->name_length);
            }
        }
        count++;
    }
    if (count > NAMED) {
        ckpt_text_add(d->text, "\\nand %d more", count - NAMED);
    }
    ckpt_text_add(d->text, "\"];\n  ");
    if (out) {
        put_box_name(d, index);
        ckpt_text_add(d->text, " -> \"to %d\";\n", index);
    } else {
        ckpt_text_add(d->text, "\"from %d\" -> ", index);
        put_box_name(d, index);
        ckpt_text_add(d->text, " [weight=1");
        put_frame(d, -1, index);
        ckpt_text_add(d->text, "];\n");
    }
}

static void put_connectors(const drawing *d, bool *in, bool *out)
{
    const ckpt_figure *const f = d->figure;
    for (int e = 0; e < f->edge_count; e++) {
        const ckpt_figure_edge *const edge = &f->edge[e];
        const bool crosses = f->box[edge->from].column != f->box[edge->to].column;
        out[edge->from] = out[edge->from] || crosses;
        in[edge->to] = in[edge->to] || crosses;
    }
    for (int b = 0; b < f->box_count; b++) {
        if (in[b]) {
            put_connector(d, b, false);
        }
        if (out[b]) {
            put_connector(d, b, true);
        }
    }
}

/* The heads of the columns stand in a row. */
static void put_heads(const drawing *d)
{
    const ckpt_figure *const f = d->figure;
    if (f->column_count < 2) {
        return;
    }
    ckpt_text_add(d->text, "  {\n    rank=same; node [style=invis, label=\"\", width=0, height=0];\n    ");
    for (int c = 0; c < f->column_count; c++) {
        ckpt_text_add(d->text, "%scolumn_%d", c == 0 ? "" : " -> ", c);
    }
    ckpt_text_add(d->text, " [style=invis];\n  }\n");
}

/* What reads nothing of its own column hangs from the head: the box itself, or the words above it. */
static void put_hangers(const drawing *d, const bool *in, bool *read)
{
    const ckpt_figure *const f = d->figure;
    for (int e = 0; e < f->edge_count; e++) {
        const ckpt_figure_edge *const edge = &f->edge[e];
        read[edge->to] |= edge->from < edge->to && f->box[edge->from].column == f->box[edge->to].column;
    }
    for (int b = 0; f->column_count > 1 && b < f->box_count; b++) {
        if (read[b]) {
            continue;
        }
        ckpt_text_add(d->text, "  column_%d -> ", f->box[b].column);
        if (in[b]) {
            ckpt_text_add(d->text, "\"from %d\"", b);
        } else {
            put_box_name(d, b);
        }
        ckpt_text_add(d->text, " [style=invis];\n");
    }
}

static void put_plan(const drawing *d, const ckpt_plan *plan)
{
    char text[CKPT_UNITS_TEXT];
    ckpt_text_add(d->text, "plan ");
    put_text(d->text, plan->solver != NULL ? plan->solver : "");
    if (plan->verdict == CKPT_FITS) {
        ckpt_text_add(d->text, ": peak %s", ckpt_bytes_show(plan->peak_bytes, text));
    } else {
        ckpt_text_add(d->text, ": does not fit, minimum budget %s", ckpt_bytes_show(plan->min_budget_bytes, text));
    }
    if (plan->budget_bytes > 0) {
        ckpt_text_add(d->text, ", budget %s", ckpt_bytes_show(plan->budget_bytes, text));
    }
    if (plan->keep_all_peak_bytes > 0) {
        ckpt_text_add(d->text, ", keep-all %s", ckpt_bytes_show(plan->keep_all_peak_bytes, text));
    }
    if (plan->verdict == CKPT_FITS && plan->keep_all_time_ns > 0) {
        const double more = (double)(plan->time_ns - plan->keep_all_time_ns) / (double)plan->keep_all_time_ns;
        ckpt_text_add(d->text, "; %s, %.1f %% %s than keep-all", ckpt_ns_show(plan->time_ns, text), 100 * fabs(more),
                      more < 0 ? "less" : "more");
    }
    ckpt_text_add(d->text, "%s\\l", plan->reordered ? "; ops run in another order" : "");
}

/* Of graphs with variants what the words in boxes mean. */
static void put_ways(const drawing *d)
{
    const ckpt_figure *const f = d->figure;
    if (f->runs == NULL && f->graph->variant_count > 0) {
        ckpt_text_add(d->text, "ways: so many variants of the op to choose from, in SVG named on hover\\l");
    } else if (f->other_ways > 0) {
        ckpt_text_add(d->text, "by: %d ops run by another variant than their own; ~: by one that gives other bits\\l",
                      f->other_ways);
    }
    if (f->optional > 0 && f->runs != NULL) {
        ckpt_text_add(d->text, "%d of %d optional ops run\\l", f->optional - f->idle, f->optional);
    } else if (f->optional > 0) {
        ckpt_text_add(d->text, "%d ops are optional: they run where a chosen way reads what they write\\l",
                      f->optional);
    }
}

static void put_title(const drawing *d)
{
    const ckpt_figure *const f = d->figure;
    bool segments = false;
    for (int r = 0; r < f->range_count; r++) {
        segments = segments || f->range[r].kind == CKPT_RANGE_SEGMENT;
    }
    put_text(d->text, f->graph->name);
    ckpt_text_add(d->text, ": %d %s ops, %d in all\\l", f->layer_count, ckpt_phase_name(f->phase), f->graph->op_count);
    if (f->plan != NULL) {
        put_plan(d, f->plan);
    }
    ckpt_text_add(d->text, "a box: layer; bytes it writes + saved for backward; time forward + backward%s\\l",
                  f->boxed ? "; neighbours share one" : "");
    put_ways(d);
    if (segments) {
        ckpt_text_add(d->text, "a dashed frame is recomputed as one: what that saves and costs\\l");
    }
    if (f->folded) {
        ckpt_text_add(d->text, "a block ×N is drawn once, times are the mean; dashed arrows go to the next one\\l");
    }
}

/* One entry, right of the one before; none of nothing. */
static void put_entry(const drawing *d, const decision_look *look, int count, const char *more, const char **before)
{
    if (count == 0) {
        return;
    }
    ckpt_text_add(d->text, "    \"legend %s\" [label=\"%s: %d\"", look->word, look->word, count);
    put_look(d->text, look);
    ckpt_text_add(d->text, "%s];\n", more);
    if (*before != NULL) {
        ckpt_text_add(d->text, "    { rank=same; \"legend %s\" -> \"legend %s\" [style=invis]; }\n", *before,
                      look->word);
    }
    *before = look->word;
}

static void put_legend(const drawing *d)
{
    static const decision_look other_way = {"in another way", "#f4f4f4", "#555555", "filled"};
    const ckpt_figure *const f = d->figure;
    const char *before = NULL;
    int idle = 0, other = 0;
    for (int b = 0; b < f->box_count; b++) {
        idle += f->box[b].idle;
        other += f->box[b].other_ways > 0;
    }
    ckpt_text_add(d->text, "  subgraph cluster_legend {\n    label=\"\"; color=\"#ffffff\";\n");
    for (int k = 0; k < CKPT_DECISIONS; k++) {
        put_entry(d, &looks[k], f->decided[k], "", &before);
    }
    put_entry(d, &not_run, idle, "", &before);
    put_entry(d, &other_way, other, ", penwidth=" OTHER_WAY_PEN, &before);
    ckpt_text_add(d->text, "  }\n");
    if (before != NULL && f->column_count > 1) {
        ckpt_text_add(d->text, "  \"legend %s\" -> column_0 [style=invis];\n", before);
    }
}

static ckpt_code put_graph(drawing *d, ckpt_err *err)
{
    static const char font[] = "fontname=\"DejaVu Sans,Verdana,sans-serif\"";
    const ckpt_figure *const f = d->figure;
    const bool many = f->box_count > FLAT;
    bool *const read = CKPT_NEW(f->scratch, bool, f->box_count), *const in = CKPT_NEW(f->scratch, bool, f->box_count);
    bool *const out = CKPT_NEW(f->scratch, bool, f->box_count);
    if (read == NULL || in == NULL || out == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory to draw %d boxes", f->box_count);
    }
    ckpt_text_add(d->text, "digraph \"");
    put_text(d->text, f->graph->name); /* or Graphviz numbers it, and no two pictures agree */
    ckpt_text_add(d->text,
                  "\" {\n  graph [%s, fontsize=14, labelloc=t, labeljust=l, nodesep=0.25, ranksep=%s, "
                  "pad=0.2, compound=true, charset=\"UTF-8\", bgcolor=\"#ffffff\", label=\"",
                  font, many ? "0.2" : "0.3");
    put_title(d);
    ckpt_text_add(d->text,
                  "\"];\n  node [%s, fontsize=11, shape=box, margin=\"0.12,0.06\", height=%s];\n"
                  "  edge [%s, fontsize=9, color=\"#555555\", arrowsize=0.6];\n",
                  font, many ? "0.2" : "0.3", font);
    put_heads(d);
    if (f->plan != NULL) {
        put_legend(d);
    }
    put_boxes(d);
    put_arrows(d);
    put_connectors(d, in, out);
    put_hangers(d, in, read);
    ckpt_text_add(d->text, "}\n");
    return ckpt_text_end(d->text, err);
}

typedef enum form { UNFOLDED, FOLDED, JOINED } form;

static ckpt_code make_form(ckpt_figure *f, form as, ckpt_err *err)
{
    CKPT_TRY(ckpt_figure_layers(f, err));
    CKPT_TRY(ckpt_figure_segments(f, err));
    CKPT_TRY(as == FOLDED ? ckpt_figure_fold(f, err) : as == JOINED ? ckpt_figure_join(f, BOXES, err) : CKPT_OK);
    CKPT_TRY(ckpt_figure_edges(f, err));
    return ckpt_figure_columns(f, err);
}

/* Every layer where the drawing can be read at one look; else repeated blocks once; else, where too little repeats,
 * neighbours in one box. `fold_beyond` layers, if the user says so, decide instead of the first look. */
static ckpt_code make_figure(ckpt_figure *f, int fold_beyond, ckpt_err *err)
{
    const ckpt_figure empty = *f;
    for (form as = UNFOLDED;; as++) {
        int width, height;
        *f = empty;
        CKPT_TRY(make_form(f, as, err));
        CKPT_TRY(ckpt_figure_size(f, &width, &height, err));
        const bool fits =
            as == UNFOLDED && fold_beyond > 0 ? f->box_count <= fold_beyond : width <= WIDEST && height <= HIGHEST;
        if (fits || as == JOINED) {
            return CKPT_OK;
        }
    }
}

/* Several micro-batches: the same layers again, which would fill the drawing however few they are. */
static bool has_batches(const ckpt_graph *graph)
{
    bool any = false;
    for (int o = 0; o < graph->op_count && !any; o++) {
        const char *const layer = graph->op[o].layer;
        const char *const at = layer != NULL ? strrchr(layer, '@') : NULL;
        any = graph->op[o].phase == CKPT_FORWARD && at != NULL && strcmp(at, "@1") == 0;
    }
    return any;
}

ckpt_code ckpt_graph_draw(const ckpt_graph *graph, const ckpt_plan *plan, const char *format, int fold_beyond,
                          ckpt_text *text, ckpt_err *err)
{
    if (strcmp(format, "svg") != 0 && strcmp(format, "png") != 0 && strcmp(format, "pdf") != 0 &&
        strcmp(format, "dot") != 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found format \"%s\", wanted one of svg, png, pdf, dot", format);
    }
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_text dot;
    ckpt_text_init(&dot);
    ckpt_figure figure = {.graph = graph, .plan = plan, .scratch = &scratch};
    drawing d = {.figure = &figure, .text = &dot};
    ckpt_code code = make_figure(&figure, fold_beyond == 0 && has_batches(graph) ? 1 : fold_beyond, err);
    if (code == CKPT_OK) {
        code = put_graph(&d, err);
    }
    if (code == CKPT_OK && strcmp(format, "dot") == 0) {
        ckpt_text_put(text, dot.bytes, dot.length);
        code = ckpt_text_end(text, err);
    } else if (code == CKPT_OK) {
#ifdef CKPT_PICTURES
        code = ckpt_dot_render(dot.bytes, format, text, err);
#else
        code = CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "found format \"%s\", wanted dot: this build has no Graphviz to lay it out", format);
#endif
    }
    ckpt_text_fini(&dot);
    ckpt_arena_fini(&scratch);
    return code;
}

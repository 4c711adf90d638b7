/* The forward half of a graph as a drawing in DOT: one box per layer, an arrow where a layer reads another. Backward
 * ops mirror the forward ones, so their time stands in the box of their layer. Beyond 100 layers neighbours with a
 * common beginning of the name ("h.12.ln1", "h.12.qkv") share one box, because nobody reads 3,000; beyond 40 boxes each
 * has one line, so that a chain does not grow taller than it must. */
#include <stdlib.h>
#include <string.h>

#include "viz/draw.h"
#include "viz/graph_draw_impl.h"
#include "viz/viz.h"

enum { BOXES = 100, FLAT = 40, NAME_LETTERS = 48, DECISIONS = CKPT_OFFLOADED + 1 };

typedef struct decision_look {
    const char *word, *fill, *line, *style;
} decision_look;

/* Light tints of Okabe and Ito's colours; the border is the second cue. */
static const decision_look looks[DECISIONS] = {
    [CKPT_KEEP] = {"kept", "#cfe8f7", "#0072b2", "filled"},
    [CKPT_RECOMPUTE] = {"recomputed", "#fbe0a6", "#b35a00", "filled,dashed"},
    [CKPT_OFFLOADED] = {"offloaded", "#efd3e2", "#8a3a67", "filled,bold"},
};
static const decision_look undecided = {"", "#f4f4f4", "#555555", "filled"};

/* One rectangle: a layer, or several that stand next to each other. */
typedef struct box {
    const char *name, *last; /* of the first and the last layer, as far as neighbours share them */
    size_t name_length, last_length;
    int layers;
    int decided[DECISIONS];
    int outputs; /* activations written */
    ckpt_bytes activation_bytes, saved_bytes;
    ckpt_ns forward_ns, backward_ns;
} box;

typedef struct layer_key {
    const char *layer;
    int op;
} layer_key;

typedef struct drawing {
    const ckpt_graph *graph;
    const ckpt_plan *plan;
    ckpt_phase phase; /* forward; the first op's when there is no forward op */
    int op_count;     /* of that phase */
    int *box_of;      /* per op; -1: not drawn */
    box *boxes;
    int box_count;
    layer_key *key; /* of drawn ops, by layer */
    ckpt_arena *scratch;
    ckpt_text *text;
} drawing;

static const char *label_of(const ckpt_graph_op *op)
{
    return op->layer != NULL && op->layer[0] != '\0' ? op->layer : op->name;
}

/* Bytes of the first `depth` parts of a dotted name. */
static size_t prefix(const char *name, int depth)
{
    size_t i = 0;
    for (; name[i] != '\0'; i++) {
        if (name[i] == '.' && --depth == 0) {
            break;
        }
    }
    return i;
}

/* Give each drawn op its box: neighbours whose names agree in `depth` parts (0: none do) stay together, and `run` such
 * groups share a box. */
static int share_boxes(drawing *d, int depth, int run)
{
    int groups = 0;
    const char *last = NULL;
    for (int i = 0; i < d->graph->op_count; i++) {
        const ckpt_graph_op *const op = &d->graph->op[i];
        d->box_of[i] = -1;
        if (op->phase != d->phase) {
            continue;
        }
        const char *const name = label_of(op);
        const size_t length = prefix(name, depth);
        groups += !(depth > 0 && last != NULL && prefix(last, depth) == length && strncmp(last, name, length) == 0);
        last = name;
        d->box_of[i] = (groups - 1) / run;
    }
    return (groups + run - 1) / run;
}

/* The most detail that gives at most BOXES boxes. A beginning that nearly all names share tells nothing: then several
 * groups of the next longer beginning share a box. */
static int choose_boxes(drawing *d, int *depth)
{
    enum { DEEPEST = 8, TELLING = BOXES / 10 };
    *depth = 0;
    int boxes = share_boxes(d, 0, 1);
    if (boxes <= BOXES) {
        return boxes;
    }
    int groups = 0, longer = 0;
    for (*depth = DEEPEST; *depth > 0; (*depth)--) {
        longer = groups;
        groups = share_boxes(d, *depth, 1);
        if (groups <= BOXES) {
            break;
        }
    }
    if (*depth > 0 && (groups >= TELLING || longer == 0)) {
        return groups;
    }
    groups = *depth > 0 ? longer : groups;
    *depth = *depth + 1;
    return share_boxes(d, *depth, (groups + BOXES - 1) / BOXES);
}

static int by_layer(const void *a, const void *b)
{
    return strcmp(((const layer_key *)a)->layer, ((const layer_key *)b)->layer);
}

static box *box_of_layer(const drawing *d, const char *layer)
{
    const layer_key want = {layer != NULL ? layer : "", 0};
    const layer_key *const key = bsearch(&want, d->key, (size_t)d->op_count, sizeof want, by_layer);
    return key != NULL ? &d->boxes[d->box_of[key->op]] : NULL;
}

static ckpt_code make_boxes(drawing *d, ckpt_err *err)
{
    const ckpt_graph *const graph = d->graph;
    d->phase = graph->op_count > 0 ? graph->op[0].phase : CKPT_FORWARD;
    for (int i = 0; i < graph->op_count; i++) {
        d->phase = graph->op[i].phase == CKPT_FORWARD ? CKPT_FORWARD : d->phase;
    }
    for (int i = 0; i < graph->op_count; i++) {
        d->op_count += graph->op[i].phase == d->phase;
    }
    d->box_of = CKPT_NEW(d->scratch, int, graph->op_count);
    d->boxes = CKPT_NEW(d->scratch, box, d->op_count);
    d->key = CKPT_NEW(d->scratch, layer_key, d->op_count);
    if (d->box_of == NULL || d->boxes == NULL || d->key == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory to draw %d ops", graph->op_count);
    }
    int depth = 0;
    d->box_count = choose_boxes(d, &depth);
    for (int i = 0, k = 0; i < graph->op_count; i++) {
        const ckpt_graph_op *const op = &graph->op[i];
        if (d->box_of[i] < 0) {
            continue;
        }
        box *const b = &d->boxes[d->box_of[i]];
        d->key[k++] = (layer_key){label_of(op), i};
        b->name = b->layers == 0 ? label_of(op) : b->name;
        b->layers++;
        b->last = label_of(op);
        b->name_length = b->layers > 1 ? prefix(b->name, depth) : strlen(b->name);
        b->last_length = prefix(b->last, depth);
        b->forward_ns += op->time_ns;
        for (int w = 0; w < op->writes.count; w++) {
            const ckpt_buffer *const buffer = &graph->buffer[op->writes.at[w]];
            b->outputs += buffer->kind != CKPT_SAVED;
            *(buffer->kind == CKPT_SAVED ? &b->saved_bytes : &b->activation_bytes) += buffer->bytes;
        }
    }
    qsort(d->key, (size_t)d->op_count, sizeof *d->key, by_layer);
    for (int i = 0; i < graph->op_count; i++) {
        if (graph->op[i].phase == CKPT_BACKWARD && d->phase == CKPT_FORWARD) {
            box *const b = box_of_layer(d, graph->op[i].layer);
            if (b != NULL) {
                b->backward_ns += graph->op[i].time_ns;
            }
        }
    }
    for (int i = 0; d->plan != NULL && i < d->plan->layer_count; i++) {
        box *const b = box_of_layer(d, d->plan->layer[i].layer);
        if (b != NULL) {
            b->decided[d->plan->layer[i].decision]++;
        }
    }
    return CKPT_OK;
}

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

static void put_box_name(drawing *d, int index)
{
    ckpt_text_add(d->text, "\"%d ", index);
    put_name(d->text, d->boxes[index].name, d->boxes[index].name_length);
    ckpt_text_add(d->text, "\"");
}

static void put_look(ckpt_text *text, const decision_look *look)
{
    ckpt_text_add(text, ", fillcolor=\"%s\", color=\"%s\", style=\"%s\"", look->fill, look->line, look->style);
}

static void put_box(drawing *d, int index)
{
    const box *const b = &d->boxes[index];
    const char *const line = d->box_count > FLAT ? "   " : "\\n";
    char bytes[CKPT_UNITS_TEXT], saved[CKPT_UNITS_TEXT], forward[CKPT_UNITS_TEXT], backward[CKPT_UNITS_TEXT];
    ckpt_text_add(d->text, "  ");
    put_box_name(d, index);
    ckpt_text_add(d->text, " [label=\"");
    put_name(d->text, b->name, b->name_length);
    if (b->layers > 1) {
        if (b->last_length != b->name_length || strncmp(b->last, b->name, b->last_length) != 0) {
            ckpt_text_add(d->text, " to ");
            put_name(d->text, b->last, b->last_length);
        }
        ckpt_text_add(d->text, " (%d layers)", b->layers);
    }
    ckpt_text_add(d->text, "%s%s", line, ckpt_bytes_show(b->activation_bytes, bytes));
    if (b->saved_bytes > 0) {
        ckpt_text_add(d->text, " + %s saved", ckpt_bytes_show(b->saved_bytes, saved));
    }
    ckpt_text_add(d->text, "%s%s", line, ckpt_ns_show(b->forward_ns, forward));
    if (b->backward_ns > 0) {
        ckpt_text_add(d->text, ", backward %s", ckpt_ns_show(b->backward_ns, backward));
    }
    int all = 0, kinds = 0, only = 0;
    for (int k = 0; k < DECISIONS; k++) {
        all += b->decided[k];
        kinds += b->decided[k] > 0;
        only = b->decided[k] > 0 ? k : only;
    }
    if (kinds > 1) {
        const char *between = line;
        for (int k = 0; k < DECISIONS; k++) {
            if (b->decided[k] > 0) {
                ckpt_text_add(d->text, "%s%d %s", between, b->decided[k], looks[k].word);
                between = ", ";
            }
        }
        ckpt_text_add(d->text, "\", color=\"%s\", style=\"striped\", fillcolor=\"", undecided.line);
        between = "";
        for (int k = 0; k < DECISIONS; k++) {
            if (b->decided[k] > 0) {
                ckpt_text_add(d->text, "%s%s;%d.%02d", between, looks[k].fill, b->decided[k] / all,
                              (int)(100LL * b->decided[k] / all % 100));
                between = ":";
            }
        }
        ckpt_text_add(d->text, "\"];\n");
        return;
    }
    ckpt_text_add(d->text, "\"");
    put_look(d->text, kinds == 0 ? &undecided : &looks[only]);
    ckpt_text_add(d->text, "];\n");
}

/* Arrows into each box: one from every box it reads, with the bytes where the reader could not tell them. */
static ckpt_code put_arrows(drawing *d, ckpt_err *err)
{
    const ckpt_graph *const graph = d->graph;
    ckpt_bytes *const sum = CKPT_NEW(d->scratch, ckpt_bytes, d->box_count);
    int *const from = CKPT_NEW(d->scratch, int, d->box_count);
    bool *const listed = CKPT_NEW(d->scratch, bool, d->box_count);
    int *const counted = CKPT_NEW(d->scratch, int, graph->buffer_count);
    if (sum == NULL || from == NULL || listed == NULL || counted == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the arrows of %d boxes", d->box_count);
    }
    int op = 0;
    for (int target = 0; target < d->box_count; target++) {
        int sources = 0;
        for (; op < graph->op_count && d->box_of[op] <= target; op++) {
            for (int r = 0; d->box_of[op] == target && r < graph->op[op].reads.count; r++) {
                const int buffer = graph->op[op].reads.at[r];
                const int source = d->box_of[graph->writer[buffer]];
                if (source < 0 || source == target || counted[buffer] == target + 1) {
                    continue;
                }
                counted[buffer] = target + 1;
                if (!listed[source]) {
                    listed[source] = true;
                    from[sources++] = source;
                    sum[source] = 0;
                }
                sum[source] += graph->buffer[buffer].bytes;
            }
        }
        for (int s = 0; s < sources; s++) {
            char bytes[CKPT_UNITS_TEXT];
            listed[from[s]] = false;
            ckpt_text_add(d->text, "  ");
            put_box_name(d, from[s]);
            ckpt_text_add(d->text, " -> ");
            put_box_name(d, target);
            if (d->boxes[from[s]].outputs > 1) {
                ckpt_text_add(d->text, " [label=\" %s\"]", ckpt_bytes_show(sum[from[s]], bytes));
            }
            ckpt_text_add(d->text, ";\n");
        }
    }
    return CKPT_OK;
}

static void put_title(drawing *d)
{
    const ckpt_plan *const plan = d->plan;
    char text[4][CKPT_UNITS_TEXT];
    put_name(d->text, d->graph->name, strlen(d->graph->name));
    ckpt_text_add(d->text, ": %d %s ops, %d in all\\l", d->op_count, ckpt_phase_name(d->phase), d->graph->op_count);
    ckpt_text_add(d->text, "a box: layer, bytes it writes, time%s\\l",
                  d->box_count < d->op_count ? "; neighbours share one" : "");
    if (plan != NULL) {
        ckpt_text_add(d->text, "plan ");
        put_name(d->text, plan->solver != NULL ? plan->solver : "", plan->solver != NULL ? strlen(plan->solver) : 0);
        if (plan->verdict == CKPT_FITS) {
            ckpt_text_add(d->text, ": peak %s", ckpt_bytes_show(plan->peak_bytes, text[0]));
        } else {
            ckpt_text_add(d->text, ": does not fit, least budget %s",
                          ckpt_bytes_show(plan->least_budget_bytes, text[0]));
        }
        if (plan->budget_bytes > 0) {
            ckpt_text_add(d->text, ", budget %s", ckpt_bytes_show(plan->budget_bytes, text[1]));
        }
        if (plan->keep_all_peak_bytes > 0) {
            ckpt_text_add(d->text, ", keep-all %s", ckpt_bytes_show(plan->keep_all_peak_bytes, text[2]));
        }
        ckpt_text_add(d->text, "\\l");
    }
}

static ckpt_code put_graph(drawing *d, ckpt_err *err)
{
    static const char font[] = "fontname=\"DejaVu Sans,Verdana,sans-serif\"";
    ckpt_text_add(d->text, "digraph \"");
    put_name(d->text, d->graph->name, strlen(d->graph->name)); /* or Graphviz numbers it, and no two pictures agree */
    ckpt_text_add(d->text,
                  "\" {\n  graph [%s, fontsize=14, labelloc=t, labeljust=l, nodesep=0.25, ranksep=%s, "
                  "pad=0.2, charset=\"UTF-8\", bgcolor=\"#ffffff\", label=\"",
                  font, d->box_count > FLAT ? "0.16" : "0.3");
    put_title(d);
    ckpt_text_add(d->text,
                  "\"];\n  node [%s, fontsize=11, shape=box, margin=\"0.12,0.06\", height=%s];\n"
                  "  edge [%s, fontsize=9, color=\"#555555\", arrowsize=0.6];\n",
                  font, d->box_count > FLAT ? "0.2" : "0.3", font);
    if (d->plan != NULL) {
        ckpt_text_add(d->text, "  subgraph cluster_legend {\n    label=\"\"; color=\"#ffffff\";\n");
        const char *before = NULL;
        for (int k = 0; k < DECISIONS; k++) {
            int layers = 0;
            for (int b = 0; b < d->box_count; b++) {
                layers += d->boxes[b].decided[k];
            }
            if (layers == 0) {
                continue;
            }
            ckpt_text_add(d->text, "    \"legend %s\" [label=\"%s: %d\"", looks[k].word, looks[k].word, layers);
            put_look(d->text, &looks[k]);
            ckpt_text_add(d->text, "];\n");
            if (before != NULL) {
                ckpt_text_add(d->text, "    { rank=same; \"legend %s\" -> \"legend %s\" [style=invis]; }\n", before,
                              looks[k].word);
            }
            before = looks[k].word;
        }
        ckpt_text_add(d->text, "  }\n");
    }
    for (int b = 0; b < d->box_count; b++) {
        put_box(d, b);
    }
    CKPT_TRY(put_arrows(d, err));
    ckpt_text_add(d->text, "}\n");
    return ckpt_text_end(d->text, err);
}

ckpt_code ckpt_graph_draw(const ckpt_graph *graph, const ckpt_plan *plan, const char *format, ckpt_text *text,
                          ckpt_err *err)
{
    if (strcmp(format, "svg") != 0 && strcmp(format, "png") != 0 && strcmp(format, "pdf") != 0 &&
        strcmp(format, "dot") != 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found format \"%s\", wanted one of svg, png, pdf, dot", format);
    }
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_text dot;
    ckpt_text_init(&dot);
    drawing d = {.graph = graph, .plan = plan, .scratch = &scratch, .text = &dot};
    ckpt_code code = make_boxes(&d, err);
    if (code == CKPT_OK) {
        code = put_graph(&d, err);
    }
    if (code == CKPT_OK && strcmp(format, "dot") == 0) {
        ckpt_text_put(text, dot.bytes, dot.length);
        code = ckpt_text_end(text, err);
    } else if (code == CKPT_OK) {
        code = ckpt_dot_render(dot.bytes, format, text, err);
    }
    ckpt_text_fini(&dot);
    ckpt_arena_fini(&scratch);
    return code;
}

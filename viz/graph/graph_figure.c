/* The boxes of a drawing before anything is folded: one per layer of the forward half. Backward ops mirror the forward
 * ones, so their time stands in the box of their layer. */
#include <string.h>

#include "core/base/names.h"
#include "viz/graph/graph_draw_impl.h"

/* Boxes by layer: an imported graph may have several ops of one layer. */
typedef struct layers {
    ckpt_names first; /* box of each layer */
    int *first_of;    /* per box: the first of its layer */
    int *count;       /* per first box: how many the layer has */
} layers;

static const char *label_of(const ckpt_graph_op *op)
{
    return op->layer != NULL && op->layer[0] != '\0' ? op->layer : op->name;
}

size_t ckpt_name_prefix(const char *name, int depth)
{
    size_t i = 0;
    for (; name[i] != '\0'; i++) {
        if (name[i] == '.' && --depth == 0) {
            break;
        }
    }
    return i;
}

/* The box of a backward op: of its layer's ops the one that wrote what it reads, else the first. NULL: no op of the
 * layer is drawn. */
static ckpt_figure_box *backward_box(const ckpt_figure *f, const layers *of, const ckpt_graph_op *op)
{
    const char *const layer = op->layer != NULL ? op->layer : "";
    for (int r = 0; r < op->reads.count; r++) {
        const int writer = f->graph->writer[op->reads.at[r]];
        if (f->layer_of[writer] >= 0 && strcmp(label_of(&f->graph->op[writer]), layer) == 0) {
            return &f->box[f->layer_of[writer]];
        }
    }
    const int first = ckpt_names_find(&of->first, layer);
    return first >= 0 ? &f->box[first] : NULL;
}

/* Add the names of their ops to boxes of one layer. */
static ckpt_code tell_apart(ckpt_figure *f, const layers *of, ckpt_err *err)
{
    for (int i = 0, layer = 0; i < f->graph->op_count; i++) {
        const ckpt_graph_op *const op = &f->graph->op[i];
        if (f->layer_of[i] < 0) {
            continue;
        }
        ckpt_figure_box *const b = &f->box[layer];
        if (of->count[of->first_of[layer++]] > 1) {
            const size_t length = strlen(label_of(op));
            const bool has_it = strncmp(op->name, label_of(op), length) == 0 && op->name[length] == '/';
            b->name = b->last = has_it ? op->name : ckpt_arena_format(f->scratch, "%s.%s", label_of(op), op->name);
            if (b->name == NULL) {
                return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the name of a box");
            }
            b->name_length = b->last_length = strlen(b->name);
        }
    }
    return CKPT_OK;
}

static void choose_phase(ckpt_figure *f)
{
    const ckpt_graph *const graph = f->graph;
    f->phase = graph->op_count > 0 ? graph->op[0].phase : CKPT_FORWARD;
    for (int i = 0; i < graph->op_count; i++) {
        f->phase = graph->op[i].phase == CKPT_FORWARD ? CKPT_FORWARD : f->phase;
    }
    for (int i = 0; i < graph->op_count; i++) {
        f->layer_count += graph->op[i].phase == f->phase;
        f->edge_count += graph->op[i].phase == f->phase ? graph->op[i].reads.count : 0; /* at most */
    }
}

static void fill_box(ckpt_figure_box *b, const ckpt_graph *graph, const ckpt_graph_op *op)
{
    b->name = b->last = label_of(op);
    b->name_length = b->last_length = strlen(b->name);
    b->layers = 1;
    b->forward_ns = op->time_ns;
    for (int w = 0; w < op->writes.count; w++) {
        const ckpt_buffer *const buffer = &graph->buffer[op->writes.at[w]];
        b->outputs += buffer->kind != CKPT_SAVED;
        *(buffer->kind == CKPT_SAVED ? &b->saved_bytes : &b->activation_bytes) += buffer->bytes;
    }
}

static void fill_boxes(ckpt_figure *f, layers *of)
{
    const ckpt_graph *const graph = f->graph;
    f->edge_count = 0;
    for (int i = 0; i < graph->op_count; i++) {
        const ckpt_graph_op *const op = &graph->op[i];
        f->layer_of[i] = f->box_of[i] = -1;
        if (op->phase != f->phase) {
            continue;
        }
        const int layer = f->box_count++;
        f->layer_of[i] = layer;
        const int first = ckpt_names_add(&of->first, label_of(op), layer);
        of->first_of[layer] = first >= 0 ? first : layer;
        of->count[of->first_of[layer]]++;
        fill_box(&f->box[layer], graph, &graph->op[f->first_run[i] >= 0 ? f->first_run[i] : i]);
        f->box[layer].idle = f->first_run[i] < 0;
        f->box_of[i] = layer;
        for (int r = 0; r < op->reads.count; r++) {
            const int buffer = op->reads.at[r];
            const int from = f->layer_of[graph->writer[buffer]];
            if (from >= 0) {
                f->edge[f->edge_count++] = (ckpt_figure_edge){
                    .from = from, .to = layer, .buffer = buffer, .bytes = graph->buffer[buffer].bytes};
            }
        }
    }
    for (int i = 0; f->phase == CKPT_FORWARD && i < graph->op_count; i++) {
        ckpt_figure_box *const b = graph->op[i].phase == CKPT_BACKWARD ? backward_box(f, of, &graph->op[i]) : NULL;
        if (b != NULL) {
            b->backward_ns += f->first_run[i] >= 0 ? graph->op[f->first_run[i]].time_ns : 0;
            f->box_of[i] = (int)(b - f->box);
        }
    }
}

ckpt_code ckpt_figure_layers(ckpt_figure *f, ckpt_err *err)
{
    choose_phase(f);
    CKPT_TRY(ckpt_figure_runs(f, err));
    f->layer_of = CKPT_NEW(f->scratch, int, f->graph->op_count);
    f->box_of = CKPT_NEW(f->scratch, int, f->graph->op_count);
    f->box = CKPT_NEW(f->scratch, ckpt_figure_box, f->layer_count);
    f->edge = CKPT_NEW(f->scratch, ckpt_figure_edge, f->edge_count);
    layers of = {.first_of = CKPT_NEW(f->scratch, int, f->layer_count),
                 .count = CKPT_NEW(f->scratch, int, f->layer_count)};
    if (f->layer_of == NULL || f->box_of == NULL || f->box == NULL || f->edge == NULL || of.first_of == NULL ||
        of.count == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory to draw %d ops", f->graph->op_count);
    }
    CKPT_TRY(ckpt_names_init(&of.first, f->layer_count, f->scratch, err));
    fill_boxes(f, &of);
    for (int i = 0; f->plan != NULL && i < f->plan->layer_count; i++) {
        const ckpt_layer_decision *const layer = &f->plan->layer[i];
        const int first = ckpt_names_find(&of.first, layer->layer);
        f->decided[layer->decision] += first >= 0 && !f->box[first].idle;
        for (int b = first, left = first >= 0 ? of.count[first] : 0; left > 0; b++) {
            const bool own = of.first_of[b] == first;
            f->box[b].decided[layer->decision] += own && !f->box[b].idle;
            left -= own;
        }
    }
    CKPT_TRY(tell_apart(f, &of, err));
    CKPT_TRY(ckpt_figure_ways(f, err));
    for (int e = 0; e < f->edge_count; e++) {
        f->edge[e].source = f->box[f->edge[e].from].name;
    }
    return CKPT_OK;
}

/* Merge the edges between two boxes. `at` holds, per box, its edge to the current reader. A buffer that several layers
 * of a box read counts once. */
ckpt_code ckpt_figure_edges(ckpt_figure *f, ckpt_err *err)
{
    int *const at = CKPT_NEW(f->scratch, int, f->box_count);
    int *const counted = CKPT_NEW(f->scratch, int, f->graph->buffer_count);
    if (at == NULL || counted == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the arrows of %d boxes", f->box_count);
    }
    int count = 0, first = 0, to = -1;
    for (int e = 0; e < f->edge_count; e++) {
        const ckpt_figure_edge edge = f->edge[e];
        if (edge.to != to) {
            first = count;
            to = edge.to;
        }
        const int stamp = 2 * to + edge.next + 1;
        if (counted[edge.buffer] == stamp) {
            continue;
        }
        counted[edge.buffer] = stamp;
        const int old = at[edge.from];
        if (old >= first && old < count && f->edge[old].from == edge.from && f->edge[old].next == edge.next) {
            f->edge[old].bytes += edge.bytes;
            f->edge[old].buffer = -1;
        } else {
            at[edge.from] = count;
            f->edge[count++] = edge;
        }
    }
    f->edge_count = count;
    return CKPT_OK;
}

/* The boxes of a drawing before anything is folded: one per layer of the forward half. Backward ops mirror the forward
 * ones, so their time stands in the box of their layer. */
#include <stdlib.h>
#include <string.h>

#include "viz/graph/graph_draw_impl.h"

typedef struct layer_key {
    const char *layer;
    int index;
} layer_key;

static const char *label_of(const ckpt_graph_op *op)
{
    return op->layer != NULL && op->layer[0] != '\0' ? op->layer : op->name;
}

static int by_layer(const void *a, const void *b)
{
    const layer_key *const x = a, *const y = b;
    const int names = strcmp(x->layer, y->layer);
    return names != 0 ? names : x->index - y->index;
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

/* The first key of a layer, or the first one behind its keys. */
static int key_at(const ckpt_figure *f, const layer_key *key, const char *layer, bool behind)
{
    int low = 0, high = f->layer_count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        const int order = strcmp(key[middle].layer, layer);
        if (behind ? order <= 0 : order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* How many keys a layer has, and the first: what was imported may have several ops of one layer. */
static int keys_of(const ckpt_figure *f, const layer_key *key, const char *layer, int *first)
{
    *first = key_at(f, key, layer, false);
    return key_at(f, key, layer, true) - *first;
}

/* The box that a backward op belongs to: of the ops of its layer one that wrote what it reads, else the first. NULL:
 * none is drawn. */
static ckpt_figure_box *backward_box(const ckpt_figure *f, const layer_key *key, const ckpt_graph_op *op)
{
    const char *const layer = op->layer != NULL ? op->layer : "";
    for (int r = 0; r < op->reads.count; r++) {
        const int writer = f->graph->writer[op->reads.at[r]];
        if (f->layer_of[writer] >= 0 && strcmp(label_of(&f->graph->op[writer]), layer) == 0) {
            return &f->box[f->layer_of[writer]];
        }
    }
    int first = 0;
    return keys_of(f, key, layer, &first) > 0 ? &f->box[key[first].index] : NULL;
}

/* Several boxes of one layer have the names of their ops too. */
static ckpt_code tell_apart(ckpt_figure *f, const layer_key *key, ckpt_err *err)
{
    for (int i = 0, layer = 0; i < f->graph->op_count; i++) {
        const ckpt_graph_op *const op = &f->graph->op[i];
        int first = 0;
        if (f->layer_of[i] < 0) {
            continue;
        }
        ckpt_figure_box *const b = &f->box[layer++];
        if (keys_of(f, key, label_of(op), &first) > 1) {
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

static void fill_boxes(ckpt_figure *f, layer_key *key)
{
    const ckpt_graph *const graph = f->graph;
    f->edge_count = 0;
    for (int i = 0; i < graph->op_count; i++) {
        const ckpt_graph_op *const op = &graph->op[i];
        f->layer_of[i] = -1;
        if (op->phase != f->phase) {
            continue;
        }
        const int layer = f->box_count++;
        f->layer_of[i] = layer;
        key[layer] = (layer_key){label_of(op), layer};
        fill_box(&f->box[layer], graph, op);
        for (int r = 0; r < op->reads.count; r++) {
            const int buffer = op->reads.at[r];
            const int from = f->layer_of[graph->writer[buffer]];
            if (from >= 0) {
                f->edge[f->edge_count++] = (ckpt_figure_edge){
                    .from = from, .to = layer, .buffer = buffer, .bytes = graph->buffer[buffer].bytes};
            }
        }
    }
    qsort(key, (size_t)f->layer_count, sizeof *key, by_layer);
    for (int i = 0; f->phase == CKPT_FORWARD && i < graph->op_count; i++) {
        ckpt_figure_box *const b = graph->op[i].phase == CKPT_BACKWARD ? backward_box(f, key, &graph->op[i]) : NULL;
        if (b != NULL) {
            b->backward_ns += graph->op[i].time_ns;
        }
    }
}

ckpt_code ckpt_figure_layers(ckpt_figure *f, ckpt_err *err)
{
    choose_phase(f);
    f->layer_of = CKPT_NEW(f->scratch, int, f->graph->op_count);
    f->box = CKPT_NEW(f->scratch, ckpt_figure_box, f->layer_count);
    f->edge = CKPT_NEW(f->scratch, ckpt_figure_edge, f->edge_count);
    layer_key *const key = CKPT_NEW(f->scratch, layer_key, f->layer_count);
    if (f->layer_of == NULL || f->box == NULL || f->edge == NULL || key == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory to draw %d ops", f->graph->op_count);
    }
    fill_boxes(f, key);
    for (int i = 0; f->plan != NULL && i < f->plan->layer_count; i++) {
        const ckpt_layer_decision *const layer = &f->plan->layer[i];
        int first = 0;
        const int count = keys_of(f, key, layer->layer, &first);
        f->decided[layer->decision] += count > 0;
        for (int k = first; k < first + count; k++) {
            f->box[key[k].index].decided[layer->decision]++;
        }
    }
    CKPT_TRY(tell_apart(f, key, err));
    for (int e = 0; e < f->edge_count; e++) {
        f->edge[e].source = f->box[f->edge[e].from].name;
    }
    return CKPT_OK;
}

/* Boxes are few here, so a table of them finds the pair: `at` is the edge from a box to the box that is being read for.
 * What several layers of a box read of the same buffer counts once; of what a folded block stands for, the first. */
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

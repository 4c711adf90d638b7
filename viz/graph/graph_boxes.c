/* Neighbours in one box, where a graph has more layers than anybody reads and no blocks that repeat: layers with a
 * common beginning of the name ("h.12.ln1", "h.12.qkv") stand together. */
#include <string.h>

#include "viz/graph/graph_draw_impl.h"

/* Give each layer its box: neighbours whose names agree in `depth` parts (0: none do) stay together, and `run` such
 * groups share a box. */
static int share_boxes(const ckpt_figure *f, int depth, int run, int *box_of)
{
    int groups = 0;
    for (int i = 0; i < f->box_count; i++) {
        const char *const name = f->box[i].name;
        const char *const before = i > 0 ? f->box[i - 1].name : NULL;
        const size_t length = ckpt_name_prefix(name, depth);
        groups += !(depth > 0 && before != NULL && ckpt_name_prefix(before, depth) == length &&
                    strncmp(before, name, length) == 0);
        box_of[i] = (groups - 1) / run;
    }
    return (groups + run - 1) / run;
}

/* The most detail that gives at most `most` boxes. A beginning that nearly all names share tells nothing: then several
 * groups of the next longer beginning share a box. */
static int choose_boxes(const ckpt_figure *f, int most, int *box_of, int *depth)
{
    enum { DEEPEST = 8 };
    int groups = 0, longer = 0;
    for (*depth = DEEPEST; *depth > 0; (*depth)--) {
        longer = groups;
        groups = share_boxes(f, *depth, 1, box_of);
        if (groups <= most) {
            break;
        }
    }
    if (*depth > 0 && (groups >= most / 10 || longer == 0)) {
        return groups;
    }
    groups = *depth > 0 ? longer : groups;
    *depth = *depth + 1;
    return share_boxes(f, *depth, (groups + most - 1) / most, box_of);
}

static void add_layer(ckpt_figure_box *b, const ckpt_figure_box *layer, int depth)
{
    if (b->layers == 0) {
        *b = *layer;
        return;
    }
    b->way = b->backward_way = b->tip = NULL;
    b->other_ways += layer->other_ways;
    b->idle = b->idle && layer->idle;
    b->layers++;
    b->last = layer->name;
    b->name_length = ckpt_name_prefix(b->name, depth);
    b->last_length = ckpt_name_prefix(b->last, depth);
    b->outputs += layer->outputs;
    b->recomputed += layer->recomputed;
    b->activation_bytes += layer->activation_bytes;
    b->saved_bytes += layer->saved_bytes;
    b->forward_ns += layer->forward_ns;
    b->backward_ns += layer->backward_ns;
    for (int k = 0; k < CKPT_DECISIONS; k++) {
        b->decided[k] += layer->decided[k];
    }
}

/* Ranges that begin and end where boxes do, and hold more than one. */
static void keep_ranges(ckpt_figure *f, const int *box_of)
{
    int count = 0;
    for (int r = 0; r < f->range_count; r++) {
        ckpt_figure_range range = f->range[r];
        const bool begins = range.first == 0 || box_of[range.first - 1] != box_of[range.first];
        const bool ends = range.last + 1 == f->layer_count || box_of[range.last + 1] != box_of[range.last];
        range.first = box_of[range.first];
        range.last = box_of[range.last];
        if (begins && ends && range.first < range.last) {
            f->range[count++] = range;
        }
    }
    f->range_count = count;
}

ckpt_code ckpt_figure_join(ckpt_figure *f, int most, ckpt_err *err)
{
    int *const box_of = CKPT_NEW(f->scratch, int, f->box_count);
    ckpt_figure_box *const box = CKPT_NEW(f->scratch, ckpt_figure_box, f->box_count);
    if (box_of == NULL || box == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory to draw %d layers", f->layer_count);
    }
    int depth = 0;
    const int boxes = choose_boxes(f, most, box_of, &depth);
    for (int i = 0; i < f->box_count; i++) {
        add_layer(&box[box_of[i]], &f->box[i], depth);
    }
    keep_ranges(f, box_of);
    int count = 0;
    for (int e = 0; e < f->edge_count; e++) {
        ckpt_figure_edge edge = f->edge[e];
        edge.from = box_of[edge.from];
        edge.to = box_of[edge.to];
        if (edge.from != edge.to) {
            f->edge[count++] = edge;
        }
    }
    f->edge_count = count;
    f->box = box;
    f->box_count = boxes;
    f->boxed = true;
    return CKPT_OK;
}

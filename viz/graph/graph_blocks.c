/* A figure of layers with its repeated blocks drawn once: their names, and the boxes, arrows and ranges
 * that are left. */
#include <stdlib.h>
#include <string.h>

#include "viz/graph/graph_fold_impl.h"

/* The first parts of a name, one more than all layers of all blocks share. */
static size_t block_name(const ckpt_figure *figure, const ckpt_figure_range *repeat, int layer)
{
    const char *const first = figure->box[repeat->first].name;
    const int count = repeat->times * (repeat->last - repeat->first + 1);
    size_t shared = strlen(first);
    for (int i = repeat->first; i < repeat->first + count; i++) {
        const char *const name = figure->box[i].name;
        size_t same = 0;
        while (same < shared && name[same] == first[same]) {
            same++;
        }
        shared = same;
    }
    while (shared > 0 && first[shared - 1] != '.') {
        shared--;
    }
    return shared + ckpt_name_prefix(figure->box[layer].name + shared, 1);
}

/* The "@2" behind the name of a micro-batch's layer; "": none. */
static const char *batch_of(const ckpt_figure_box *box)
{
    const char *const at = strrchr(box->name, '@');
    const size_t digits = at != NULL ? strspn(at + 1, "0123456789") : 0;
    return digits > 0 && (at[1 + digits] == '\0' || at[1 + digits] == '/') ? at + 1 : "";
}

/* Whether each block is a micro-batch: all of one, and the next of another. */
static bool is_batches(const ckpt_figure *figure, const ckpt_figure_range *repeat)
{
    const ckpt_figure_box *const first = &figure->box[repeat->first];
    const int period = repeat->last - repeat->first + 1;
    return batch_of(first)[0] != '\0' && atoi(batch_of(first)) == atoi(batch_of(first + period - 1)) &&
           atoi(batch_of(first)) != atoi(batch_of(first + period));
}

/* What a block is called: "h.0", or "conv0 to relu0". */
static const char *call_block(const ckpt_figure *figure, const ckpt_figure_range *repeat, int first, size_t *hidden)
{
    const int last = first + repeat->last - repeat->first;
    const char *const name = figure->box[first].name, *const end = figure->box[last].name;
    if (is_batches(figure, repeat)) {
        *hidden = 0;
        return ckpt_arena_format(figure->scratch, "micro-batch %d", atoi(batch_of(&figure->box[first])));
    }
    const size_t length = block_name(figure, repeat, first), end_length = block_name(figure, repeat, last);
    *hidden = name[length] == '.' ? length + 1 : 0;
    for (int i = first; i <= last; i++) {
        *hidden = strncmp(figure->box[i].name, name, *hidden) == 0 ? *hidden : 0;
    }
    if (length == end_length && strncmp(name, end, length) == 0) {
        return ckpt_arena_format(figure->scratch, "%.*s", (int)length, name);
    }
    return ckpt_arena_format(figure->scratch, "%.*s to %.*s", (int)length, name, (int)end_length, end);
}

static ckpt_code describe_repeat(const ckpt_folding *f, ckpt_figure_range *repeat, ckpt_err *err)
{
    const ckpt_figure *const figure = f->figure;
    const int period = repeat->last - repeat->first + 1;
    size_t hidden = 0, ignored = 0;
    repeat->name = call_block(figure, repeat, repeat->first, &hidden);
    repeat->to = call_block(figure, repeat, repeat->first + (repeat->times - 1) * period, &ignored);
    if (repeat->name == NULL || repeat->to == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the name of a block");
    }
    for (int i = repeat->first; i < repeat->first + repeat->times * period; i++) {
        ckpt_figure_box *const b = &figure->box[i];
        repeat->bytes += i <= repeat->last ? b->activation_bytes + b->saved_bytes : 0;
        repeat->time_ns += b->forward_ns + b->backward_ns;
        b->hidden = hidden > b->hidden ? hidden : b->hidden;
    }
    repeat->time_ns /= repeat->times;
    return CKPT_OK;
}

/* An edge of the folded drawing and the layers that it was. */
typedef struct folded_edge {
    ckpt_figure_edge edge;
    int from, to;
} folded_edge;

static int by_boxes(const void *a, const void *b)
{
    const folded_edge *const x = a, *const y = b;
    const int left[] = {x->edge.to, x->edge.from, x->edge.next, x->to, x->from, x->edge.buffer};
    const int right[] = {y->edge.to, y->edge.from, y->edge.next, y->to, y->from, y->edge.buffer};
    for (int i = 0; i < 6; i++) {
        if (left[i] != right[i]) {
            return left[i] < right[i] ? -1 : 1;
        }
    }
    return 0;
}

/* Move a layer to the first block of the outermost repeat that holds it, and say which block it was in; -1: none. */
static int enter(const ckpt_figure_range *repeat, int *layer)
{
    const int period = repeat->last - repeat->first + 1;
    const int block = *layer >= repeat->first ? (*layer - repeat->first) / period : repeat->times;
    if (block >= repeat->times) {
        return -1;
    }
    *layer -= block * period;
    return block;
}

/* Whether two layers stand in different blocks of one repeat. */
static bool goes_on(const ckpt_folding *f, int from, int to)
{
    for (int r = f->repeat_count - 1; r >= 0; r--) { /* the outer ones come later */
        const int source = enter(&f->repeat[r], &from), target = enter(&f->repeat[r], &to);
        if (source >= 0 && target >= 0 && source != target) {
            return true;
        }
    }
    return false;
}

/* An arrow stands for several pairs of layers; its bytes are those of the first. */
static ckpt_code fold_edges(const ckpt_folding *f, const int *box_of, ckpt_err *err)
{
    ckpt_figure *const figure = f->figure;
    folded_edge *const folded = CKPT_NEW(figure->scratch, folded_edge, figure->edge_count);
    if (folded == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d arrows", figure->edge_count);
    }
    for (int e = 0; e < figure->edge_count; e++) {
        folded[e] = (folded_edge){figure->edge[e], figure->edge[e].from, figure->edge[e].to};
        folded[e].edge.next = goes_on(f, folded[e].from, folded[e].to);
        folded[e].edge.from = box_of[f->stands_for[folded[e].from]];
        folded[e].edge.to = box_of[f->stands_for[folded[e].to]];
    }
    qsort(folded, (size_t)figure->edge_count, sizeof *folded, by_boxes);
    const int all = figure->edge_count;
    figure->edge_count = 0;
    for (int e = 0, first = 0; e < all; e++) {
        const folded_edge *const group = &folded[first];
        const bool same = folded[e].edge.to == group->edge.to && folded[e].edge.from == group->edge.from &&
                          folded[e].edge.next == group->edge.next;
        first = same ? first : e;
        if (folded[e].to == folded[first].to && folded[e].from == folded[first].from) {
            figure->edge[figure->edge_count++] = folded[e].edge;
        }
    }
    return CKPT_OK;
}

/* Times are those of all that a box stands for, on average; bytes and decisions are the same in all. */
static void fold_boxes(const ckpt_folding *f, int *box_of, int *stand)
{
    ckpt_figure *const figure = f->figure;
    for (int i = 0; i < f->count; i++) {
        const int drawn = f->stands_for[i];
        stand[drawn]++;
        if (drawn != i) {
            figure->box[drawn].forward_ns += figure->box[i].forward_ns;
            figure->box[drawn].backward_ns += figure->box[i].backward_ns;
        }
    }
    figure->box_count = 0;
    for (int i = 0; i < f->count; i++) {
        if (f->stands_for[i] == i) {
            ckpt_figure_box *const b = &figure->box[figure->box_count];
            *b = figure->box[i];
            b->forward_ns /= stand[i];
            b->backward_ns /= stand[i];
            box_of[i] = figure->box_count++;
        }
    }
}

/* What was a range of layers is one of boxes, if it begins in what is drawn. */
static void fold_ranges(const ckpt_folding *f, ckpt_figure_range *range, const int *box_of)
{
    ckpt_figure *const figure = f->figure;
    int count = 0;
    for (int r = 0; r < figure->range_count + f->repeat_count; r++) {
        ckpt_figure_range own = r < f->repeat_count ? f->repeat[r] : figure->range[r - f->repeat_count];
        if (f->stands_for[own.first] == own.first) {
            own.first = box_of[own.first];
            own.last = box_of[f->stands_for[own.last]];
            range[count++] = own;
        }
    }
    figure->range = range;
    figure->range_count = count;
}

ckpt_code ckpt_folding_apply(ckpt_folding *f, ckpt_err *err)
{
    ckpt_figure *const figure = f->figure;
    int *const box_of = CKPT_NEW(figure->scratch, int, f->count);
    int *const stand = CKPT_NEW(figure->scratch, int, f->count);
    ckpt_figure_range *const range =
        CKPT_NEW(figure->scratch, ckpt_figure_range, (size_t)f->repeat_count + (size_t)figure->range_count);
    if (box_of == NULL || stand == NULL || range == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory to fold %d layers", f->count);
    }
    for (int r = 0; r < f->repeat_count; r++) {
        CKPT_TRY(describe_repeat(f, &f->repeat[r], err));
    }
    fold_boxes(f, box_of, stand);
    CKPT_TRY(fold_edges(f, box_of, err));
    fold_ranges(f, range, box_of);
    figure->folded = f->repeat_count > 0;
    return ckpt_figure_nest(figure, err);
}

/* Which labels are worth going on with.
 *
 * Labels with the same demands have stretches with the same ends: one that is nowhere higher and no slower makes the
 * other needless, whatever follows. That alone is exact. Beyond `width`, layers of the front of (rank, time) are kept:
 * first the labels that no other beats in both, then those that only these beat, and so on. */
#include <stdlib.h>

#include "planner/hierarchy_impl.h"

static int compare_demand_lists(const ckpt_label *a, const ckpt_label *b)
{
    if (a->key != b->key) {
        return a->key < b->key ? -1 : 1;
    }
    if (a->demand_count != b->demand_count) {
        return a->demand_count < b->demand_count ? -1 : 1;
    }
    for (int d = 0; d < a->demand_count; d++) {
        if (a->demand[d].buffer != b->demand[d].buffer || a->demand[d].when != b->demand[d].when) {
            return a->demand[d].when < b->demand[d].when ? -1 : 1;
        }
    }
    return 0;
}

/* Equal demands side by side, the fastest first; the rest of the order only makes it one and the same every time. */
static int compare_groups(const void *a, const void *b)
{
    const ckpt_label *const x = a, *const y = b;
    const int lists = compare_demand_lists(x, y);
    if (lists != 0) {
        return lists;
    }
    if (x->time != y->time) {
        return x->time < y->time ? -1 : 1;
    }
    if (x->peak != y->peak) {
        return x->peak < y->peak ? -1 : 1;
    }
    for (int i = 0; i < x->stretch_count; i++) {
        if (x->stretch[i].most != y->stretch[i].most) {
            return x->stretch[i].most < y->stretch[i].most ? -1 : 1;
        }
    }
    return (x->again_count > y->again_count) - (x->again_count < y->again_count);
}

static bool nowhere_higher(const ckpt_label *a, const ckpt_label *b)
{
    if (a->peak > b->peak) {
        return false;
    }
    for (int i = 0; i < a->stretch_count; i++) {
        if (a->stretch[i].most > b->stretch[i].most || a->stretch[i].pass > b->stretch[i].pass) {
            return false;
        }
    }
    return true;
}

/* Keep what no other label of its group is as good as. */
static void drop_needless(ckpt_labels *labels)
{
    qsort(labels->at, (size_t)labels->count, sizeof *labels->at, compare_groups);
    int kept = 0;
    int group = 0; /* where the group under way begins among the kept */
    for (int i = 0; i < labels->count; i++) {
        const ckpt_label *const x = &labels->at[i];
        if (kept > group && compare_demand_lists(&labels->at[group], x) != 0) {
            group = kept;
        }
        bool needless = false;
        for (int j = group; j < kept && !needless; j++) {
            needless = nowhere_higher(&labels->at[j], x);
        }
        if (!needless) {
            labels->at[kept++] = *x;
        }
    }
    labels->count = kept;
}

static int compare_ranks(const void *a, const void *b)
{
    const ckpt_label *const x = a, *const y = b;
    if (x->rank != y->rank) {
        return x->rank < y->rank ? -1 : 1;
    }
    return x->time != y->time ? (x->time < y->time ? -1 : 1) : compare_groups(a, b);
}

/* The layer of each label, in the order of ranks: the first whose fastest label so far is slower. As layers get
 * slower one after the other, that is found by halving. */
static int find_layers(ckpt_labels *labels, ckpt_ns *fastest)
{
    int layers = 0;
    for (int i = 0; i < labels->count; i++) {
        ckpt_label *const x = &labels->at[i];
        int low = 0;
        for (int high = layers; low < high;) {
            const int middle = (low + high) / 2;
            low = fastest[middle] <= x->time ? middle + 1 : low;
            high = fastest[middle] <= x->time ? high : middle;
        }
        fastest[low] = x->time;
        layers = low == layers ? layers + 1 : layers;
        x->layer = low;
    }
    return layers;
}

/* Of a layer of which only `room` may stay: both ends, and evenly between. */
static bool stays(int i, int size, int room)
{
    return size <= room || (int64_t)i * (room - 1) / (size - 1) != (int64_t)(i - 1) * (room - 1) / (size - 1) || i == 0;
}

ckpt_code ckpt_labels_thin(ckpt_labels *labels, int width, ckpt_err *err)
{
    drop_needless(labels);
    qsort(labels->at, (size_t)labels->count, sizeof *labels->at, compare_ranks);
    if (labels->count <= width) {
        return CKPT_OK;
    }
    ckpt_ns *const fastest = CKPT_NEW(&labels->arena, ckpt_ns, labels->count);
    int *const size = CKPT_NEW(&labels->arena, int, labels->count);
    int *const met = CKPT_NEW(&labels->arena, int, labels->count);
    if (fastest == NULL || size == NULL || met == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "layers of %d labels", labels->count);
    }
    const int layers = find_layers(labels, fastest);
    for (int i = 0; i < labels->count; i++) {
        size[labels->at[i].layer]++;
    }
    int last = 0; /* the layer of which some may stay, and how many */
    int room = width;
    for (; last < layers && size[last] <= room; last++) {
        room -= size[last];
    }
    int kept = 0;
    for (int i = 0; i < labels->count; i++) {
        const int layer = labels->at[i].layer;
        if (layer < last || (layer == last && room > 0 && stays(met[layer], size[layer], room))) {
            labels->at[kept++] = labels->at[i];
        }
        met[layer]++;
    }
    labels->count = kept;
    return CKPT_OK;
}

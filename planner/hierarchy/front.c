/* Which labels are worth going on with.
 *
 * Labels with the same demands have stretches with the same ends: one that is nowhere higher and no slower makes the
 * other needless, whatever follows. That alone is exact. Beyond `width`, half of what is kept are the labels that come
 * out fastest at the limit if the rest costs what it cost in an earlier sweep (its outlook), and half are layers of the
 * front of (rank, time): first the labels that no other beats in both, then those that only these beat, and so on. */
#include <stdlib.h>

#include "planner/hierarchy/hierarchy_impl.h"

enum { COMPARED = 128 }; /* labels of a group, the next faster ones, that a label is compared with */

static int compare_demand_lists(const ckpt_label *a, const ckpt_label *b)
{
    if (a->key != b->key) {
        return a->key < b->key ? -1 : 1;
    }
    if (a->demand_count != b->demand_count) {
        return a->demand_count < b->demand_count ? -1 : 1;
    }
    for (int d = 0; d < a->demand_count; d++) {
        if (a->demand[d].when != b->demand[d].when) {
            return a->demand[d].when < b->demand[d].when ? -1 : 1;
        }
        if (a->demand[d].buffer != b->demand[d].buffer) {
            return a->demand[d].buffer < b->demand[d].buffer ? -1 : 1;
        }
    }
    return 0;
}

/* Equal demands side by side, the fastest first; the rest of the order only makes it one and the same every time. No
 * two labels are equal, so the answer does not depend on whose qsort it is. */
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
    if (x->recomputed_count != y->recomputed_count) {
        return x->recomputed_count < y->recomputed_count ? -1 : 1;
    }
    return (x->serial > y->serial) - (x->serial < y->serial);
}

static bool nowhere_higher(const ckpt_label *a, const ckpt_label *b, ckpt_bytes slack)
{
    if (a->peak > b->peak + slack) {
        return false;
    }
    for (int i = 0; i < a->stretch_count; i++) {
        if (a->stretch[i].most > b->stretch[i].most + slack || a->stretch[i].pass > b->stretch[i].pass + slack) {
            return false;
        }
    }
    return true;
}

/* Keep what no other label of its group is as good as, or within `slack` bytes of being. */
static void drop_needless(ckpt_labels *labels, ckpt_bytes slack)
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
        for (int j = kept - 1; j >= group && kept - j <= COMPARED && !needless; j--) {
            needless = nowhere_higher(&labels->at[j], x, slack);
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
static int find_layers(ckpt_label *at, int count, ckpt_ns *fastest)
{
    int layers = 0;
    for (int i = 0; i < count; i++) {
        ckpt_label *const x = &at[i];
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

/* Of the labels from `from` on, in the order of ranks, move `room` to the front, by layers. Gives how many. */
static ckpt_code keep_layers(ckpt_labels *labels, int from, int room, int *end, ckpt_err *err)
{
    const int count = labels->count - from;
    *end = labels->count;
    if (count <= room) {
        return CKPT_OK;
    }
    ckpt_label *const at = labels->at + from;
    qsort(at, (size_t)count, sizeof *at, compare_ranks);
    const ckpt_mark mark = ckpt_arena_mark(&labels->arena);
    ckpt_ns *const fastest = CKPT_NEW(&labels->arena, ckpt_ns, count);
    int *const size = CKPT_NEW(&labels->arena, int, count);
    int *const met = CKPT_NEW(&labels->arena, int, count);
    if (fastest == NULL || size == NULL || met == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "layers of %d labels", count);
    }
    const int layers = find_layers(at, count, fastest);
    for (int i = 0; i < count; i++) {
        size[at[i].layer]++;
    }
    int last = 0; /* the layer of which some may stay, and how many */
    for (; last < layers && size[last] <= room; last++) {
        room -= size[last];
    }
    int kept = 0;
    for (int i = 0; i < count; i++) {
        const int layer = at[i].layer;
        if (layer < last || (layer == last && room > 0 && stays(met[layer], size[layer], room))) {
            const ckpt_label held = at[kept];
            at[kept++] = at[i];
            at[i] = held;
        }
        met[layer]++;
    }
    *end = from + kept;
    ckpt_arena_rewind(&labels->arena, mark);
    return CKPT_OK;
}

/* The time of the best prospect that needs no more than `room`. */
static ckpt_ns look_out(const ckpt_outlook *outlook, ckpt_bytes room)
{
    int low = 0;
    for (int high = outlook->count; low < high;) {
        const int middle = (low + high) / 2;
        const bool before = outlook->at[middle].need <= room;
        low = before ? middle + 1 : low;
        high = before ? high : middle;
    }
    return low > 0 ? outlook->at[low - 1].time : INT64_MAX;
}

static int compare_hopes(const void *a, const void *b)
{
    const ckpt_label *const x = a, *const y = b;
    return x->hope != y->hope ? (x->hope < y->hope ? -1 : 1) : compare_ranks(a, b);
}

ckpt_code ckpt_labels_thin(ckpt_labels *labels, const ckpt_hierarchy_goal *goal, const ckpt_outlook *outlook,
                           ckpt_err *err)
{
    if (labels->count <= 1) {
        return CKPT_OK;
    }
    drop_needless(labels, 0);
    if (labels->count > goal->width && goal->slack > 0) {
        drop_needless(labels, goal->slack);
    }
    if (labels->count <= goal->width) {
        return CKPT_OK;
    }
    int kept = 0;
    if (outlook != NULL) {
        for (int i = 0; i < labels->count; i++) {
            ckpt_label *const x = &labels->at[i];
            x->hope = look_out(outlook, goal->limit - x->rank);
            if (x->hope < INT64_MAX && !ckpt_sum(x->hope, x->time, &x->hope)) {
                x->hope = INT64_MAX;
            }
        }
        qsort(labels->at, (size_t)labels->count, sizeof *labels->at, compare_hopes);
        while (kept < goal->width / 2 && labels->at[kept].hope < INT64_MAX) {
            kept++;
        }
    }
    CKPT_TRY(keep_layers(labels, kept, goal->width - kept, &kept, err));
    labels->count = kept;
    return CKPT_OK;
}

/* Derived figures of a chain, classes of equal intervals, and schedules being written. */
#include <string.h>

#include "planner/chain/chain_dp_impl.h"

static ckpt_ns add_times(ckpt_ns a, ckpt_ns b)
{
    return a > CKPT_DP_FOREVER - b ? CKPT_DP_FOREVER : a + b;
}

/* The least that keeping or a leaf takes in that pass. */
static ckpt_ns least_time(const ckpt_dp_block *block, int pass)
{
    ckpt_ns least = INT64_MAX;
    for (int o = 0; o < block->keep_count; o++) {
        least = block->keep[o].time[pass] < least ? block->keep[o].time[pass] : least;
    }
    for (int o = 0; o < block->leaf_count; o++) {
        least = block->leaf[o].time[pass] < least ? block->leaf[o].time[pass] : least;
    }
    return least;
}

ckpt_code ckpt_dp_figures_init(ckpt_dp_figures *f, const ckpt_dp_chain *chain, ckpt_arena *scratch, ckpt_err *err)
{
    const size_t room = (size_t)chain->count + 1;
    *f = (ckpt_dp_figures){.chain = chain, .n = chain->count};
    for (int pass = 0; pass < CKPT_DP_PASSES; pass++) {
        f->base[pass] = CKPT_NEW(scratch, ckpt_ns, room);
        f->drop[pass] = CKPT_NEW(scratch, ckpt_ns, room);
        if (f->base[pass] == NULL || f->drop[pass] == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "figures of %d blocks", chain->count);
        }
    }
    for (int k = 1; k <= f->n; k++) {
        const ckpt_dp_block *const block = &chain->block[k];
        const ckpt_ns recomputed = least_time(block, CKPT_DP_RECOMPUTED);
        const ckpt_ns twice = ckpt_dp_add(block->drop_time[CKPT_DP_FIRST], recomputed);
        ckpt_ns first = least_time(block, CKPT_DP_FIRST);
        first = twice < first ? twice : first;
        f->base[CKPT_DP_RECOMPUTED][k] = recomputed;
        f->base[CKPT_DP_FIRST][k] = first;
        f->drop[CKPT_DP_RECOMPUTED][k] =
            add_times(f->drop[CKPT_DP_RECOMPUTED][k - 1], block->drop_time[CKPT_DP_RECOMPUTED]);
        f->drop[CKPT_DP_FIRST][k] = add_times(f->drop[CKPT_DP_FIRST][k - 1], twice - first);
        if (!ckpt_sum(f->base_time, first, &f->base_time)) {
            return CKPT_FAIL(err, CKPT_OVERFLOW, "%d blocks take more than 2^63 ns", f->n);
        }
    }
    return CKPT_OK;
}

static bool equal_keeps(const ckpt_dp_keep *a, const ckpt_dp_keep *b)
{
    bool equal = a->bytes == b->bytes && a->back_peak == b->back_peak;
    for (int pass = 0; pass < CKPT_DP_PASSES; pass++) {
        equal = equal && a->time[pass] == b->time[pass] && a->forward_peak[pass] == b->forward_peak[pass];
    }
    return equal;
}

static bool equal_blocks(const ckpt_dp_block *a, const ckpt_dp_block *b, bool crossing)
{
    bool equal = a->keep_count == b->keep_count && a->leaf_count == b->leaf_count &&
                 a->gradient_bytes == b->gradient_bytes && (!crossing || a->crossing_bytes == b->crossing_bytes);
    for (int pass = 0; pass < CKPT_DP_PASSES; pass++) {
        equal = equal && a->drop_time[pass] == b->drop_time[pass] && a->drop_peak[pass] == b->drop_peak[pass] &&
                a->going_peak[pass] == b->going_peak[pass];
        for (int o = 0; equal && o < a->leaf_count; o++) {
            equal = a->leaf[o].time[pass] == b->leaf[o].time[pass] && a->leaf[o].peak[pass] == b->leaf[o].peak[pass];
        }
    }
    for (int o = 0; equal && o < a->keep_count; o++) {
        equal = equal_keeps(&a->keep[o], &b->keep[o]);
    }
    return equal;
}

ckpt_code ckpt_dp_classes_init(ckpt_dp_classes *c, const ckpt_dp_figures *f, ckpt_arena *scratch, ckpt_err *err)
{
    const size_t room = (size_t)f->n + 1;
    *c = (ckpt_dp_classes){
        .f = f,
        .length = 1,
        .rep = CKPT_NEW(scratch, int, room),
        .block = CKPT_NEW(scratch, int, room),
        .first = CKPT_NEW(scratch, int, room),
        .next = CKPT_NEW(scratch, int, room),
        .fresh_rep = CKPT_NEW(scratch, int, room),
    };
    if (c->rep == NULL || c->block == NULL || c->first == NULL || c->next == NULL || c->fresh_rep == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "classes of %d blocks", f->n);
    }
    const ckpt_dp_block *const block = f->chain->block;
    for (int k = 1; k <= f->n; k++) {
        c->rep[k] = k;
        for (int other = 1; other < k && c->rep[k] == k; other++) {
            if (c->rep[other] == other && equal_blocks(&block[other], &block[k], f->chain->fresh == NULL)) {
                c->rep[k] = other;
            }
        }
        c->block[k] = c->rep[k];
    }
    return CKPT_OK;
}

/* Whether s and other, equal at the length before, are equal one block longer. */
static bool equal_longer(const ckpt_dp_classes *c, int other, int s)
{
    const int end = c->length - 1; /* s + end is the new last block; c->rep is still of the length before */
    return c->block[other + end] == c->block[s + end] &&
           (c->f->chain->fresh == NULL ||
            (c->rep[other + 1] == c->rep[s + 1] &&
             ckpt_dp_crossing(c->f, other, other + end) == ckpt_dp_crossing(c->f, s, s + end)));
}

/* Classes only ever split: the intervals that stay equal are found among the first ones of the parts of a class. */
void ckpt_dp_classes_longer(ckpt_dp_classes *c)
{
    c->length++;
    const int last = c->f->n - c->length + 1;
    memset(c->first, 0, ((size_t)c->f->n + 1) * sizeof *c->first);
    for (int s = 1; s <= last; s++) {
        int *link = &c->first[c->rep[s]];
        while (*link != 0 && !equal_longer(c, *link, s)) {
            link = &c->next[*link];
        }
        if (*link == 0) {
            *link = s;
            c->next[s] = 0;
        }
        c->fresh_rep[s] = *link;
    }
    memcpy(c->rep, c->fresh_rep, ((size_t)c->f->n + 1) * sizeof *c->rep);
}

static ckpt_ns action_time(const ckpt_dp_figures *f, const ckpt_dp_action *action)
{
    const ckpt_dp_block *const block = &f->chain->block[action->block];
    switch (action->what) {
    case CKPT_DP_DROP: return block->drop_time[action->pass];
    case CKPT_DP_KEEP: return block->keep[action->option].time[action->pass];
    case CKPT_DP_LEAF: return block->leaf[action->option].time[action->pass];
    case CKPT_DP_BACK: break; /* counted with its forward */
    }
    return 0;
}

void ckpt_dp_actions_add(ckpt_dp_actions *actions, const ckpt_dp_figures *f, ckpt_dp_action action)
{
    if (actions->count == actions->room) {
        const int room = actions->room > 0 ? 2 * actions->room : 256;
        ckpt_dp_action *const grown =
            room < 1 << 26 ? ckpt_memory_resize(actions->action, (size_t)room * sizeof *grown) : NULL;
        if (grown == NULL) {
            actions->failed = true;
            return;
        }
        actions->action = grown;
        actions->room = room;
    }
    actions->action[actions->count++] = action;
    actions->time = ckpt_dp_add(actions->time, action_time(f, &action));
}

void ckpt_dp_actions_drop(ckpt_dp_actions *actions, const ckpt_dp_figures *f, int s, int r, int pass)
{
    for (int k = s; k < r; k++) {
        ckpt_dp_actions_add(actions, f, (ckpt_dp_action){CKPT_DP_DROP, k, 0, pass});
    }
}

ckpt_code ckpt_dp_actions_end(ckpt_dp_actions *actions, ckpt_arena *out, ckpt_dp_schedule *schedule, ckpt_err *err)
{
    ckpt_dp_action *const action = actions->failed ? NULL : CKPT_NEW(out, ckpt_dp_action, actions->count);
    const int count = actions->count;
    if (action != NULL && count > 0) {
        memcpy(action, actions->action, (size_t)count * sizeof *action);
    }
    *schedule = (ckpt_dp_schedule){action, count, actions->time};
    ckpt_memory_put(actions->action);
    *actions = (ckpt_dp_actions){0};
    return action != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "a schedule of %d actions", count);
}

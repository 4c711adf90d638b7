/* Which crossing buffers are told apart (bound_impl.h): the largest first, as long as groups and states have room. */
#include <stdlib.h>
#include <string.h>

#include "planner/bound/bound_impl.h"

typedef struct crossing {
    int buffer, from, to; /* groups: its own, the last that reads it */
    ckpt_bytes bytes;
} crossing;

static int by_bytes(const void *a, const void *b)
{
    const crossing *const x = a, *const y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

static bool is_read(const ckpt_grouping *b, int op, int buffer)
{
    const ckpt_list *const reads = &b->uses.graph->op[op].reads;
    for (int i = 0; i < reads->count; i++) {
        if (reads->at[i] == buffer) {
            return true;
        }
    }
    return false;
}

/* Per buffer that a group reads which is not the next one: where it goes. (Of what the next group reads, telling apart
 * gives no more: while it is not held, its bytes count for the reader but no longer for its own group.) */
static int find_crossings(const ckpt_grouping *b, crossing *all, int *index)
{
    int count = 0;
    memset(index, -1, (size_t)b->uses.graph->buffer_count * sizeof *index);
    for (int o = 0; o < b->forward_end; o++) {
        const ckpt_list *const reads = &b->uses.graph->op[o].reads;
        for (int i = 0; i < reads->count; i++) {
            const int buffer = reads->at[i];
            /* only an op that may be recomputed makes a difference */
            if (b->bit[buffer] < 0 || b->count[o] == 0 || b->group[b->uses.graph->writer[buffer]] + 1 >= b->group[o]) {
                continue;
            }
            if (index[buffer] < 0) {
                index[buffer] = count;
                all[count++] = (crossing){buffer, b->group[b->uses.graph->writer[buffer]], b->group[o],
                                          b->uses.graph->buffer[buffer].bytes};
            }
            all[index[buffer]].to = b->group[o];
        }
    }
    qsort(all, (size_t)count, sizeof *all, by_bytes);
    return count;
}

/* The first slot that is free between all groups from .. to; -1: none. */
static int free_slot(const unsigned *used, const crossing *c, int slots)
{
    unsigned taken = 0;
    for (int k = c->from; k < c->to; k++) {
        taken |= used[k];
    }
    for (int s = 0; s < slots; s++) {
        if ((taken >> s & 1) == 0) {
            return s;
        }
    }
    return -1;
}

/* The groups that read it: marked in `reader` by the number of the attempt. */
static bool imports_fit(const ckpt_grouping *b, const ckpt_groups *groups, const crossing *c, const int *first,
                        int *reader, int mark)
{
    bool fit = true;
    for (int k = c->from + 1; k <= c->to; k++) {
        for (int o = first[k]; o < first[k + 1]; o++) {
            if (b->count[o] > 0 && is_read(b, o, c->buffer)) {
                reader[k] = mark;
            }
        }
        fit = fit && (reader[k] != mark || groups->group[k].import_count < CKPT_CROSS_MAX);
    }
    return fit;
}

ckpt_code ckpt_groups_cross(const ckpt_grouping *b, ckpt_groups *groups, ckpt_err *err)
{
    enum { SPAN_MAX = 64 }; /* groups that a told-apart buffer may cross: bounds the time this takes */
    crossing *const all = CKPT_NEW(b->out, crossing, b->uses.graph->buffer_count);
    int *const index = CKPT_NEW(b->out, int, b->uses.graph->buffer_count);
    unsigned *const used = CKPT_NEW(b->out, unsigned, groups->count + 1);
    int *const first = CKPT_NEW(b->out, int, groups->count + 1), *const reader = CKPT_NEW(b->out, int, groups->count);
    if (all == NULL || index == NULL || used == NULL || first == NULL || reader == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "crossings of %d groups", groups->count);
    }
    for (int o = b->forward_end - 1; o >= 0; o--) {
        first[b->group[o]] = o;
    }
    first[groups->count] = b->forward_end;
    const int count = find_crossings(b, all, index);
    for (int i = 0; i < count; i++) {
        const crossing *const c = &all[i];
        ckpt_group *const from = &groups->group[c->from];
        const int slot = free_slot(used, c, b->open_max);
        if (slot < 0 || c->to - c->from > SPAN_MAX || from->export_count == CKPT_CROSS_MAX ||
            !imports_fit(b, groups, c, first, reader, i + 1)) {
            continue;
        }
        const ckpt_group_cross cross = {slot, b->bit[c->buffer], ckpt_bound_recompute(b, c->buffer)};
        from->export[from->export_count++] = cross;
        for (int k = c->from; k < c->to; k++) {
            used[k] |= 1U << slot;
        }
        for (int k = c->from + 1; k <= c->to; k++) {
            ckpt_group *const group = &groups->group[k];
            if (reader[k] == i + 1) {
                group->bytes[group->buffer_count + group->import_count] = c->bytes;
                group->import[group->import_count++] = (ckpt_group_cross){slot, c->buffer, 0};
            }
        }
        groups->group[c->to].closed |= 1U << slot;
        groups->slots = slot + 1 > groups->slots ? slot + 1 : groups->slots;
    }
    return CKPT_OK;
}

/* cost(i, s, P) of bound_impl.h, for all sets s at once.
 *
 * value[s] is the least time from here to the end when s is in memory. Going back over the moments of the window:
 *
 *     at a moment   value[s] = NEVER unless s has what it reads and bytes(s) + during <= P
 *     in a gap      value[s] = min(value[s], value[s - b], time(o) + value[s + writes(o)])
 *                   for all b in s, and all o with reads(o) in s and bytes(s + writes(o)) + extra + between <= P
 *
 * repeated in a gap until nothing changes (all times are >= 0, so that is the least). All that depends on P is a set of
 * comparisons x <= P: between the largest x that passed and the least that did not, every P has the same values. */
#include <stdlib.h>
#include <string.h>

#include "planner/bound_impl.h"

typedef struct pass {
    const ckpt_group *group;
    ckpt_group_room *room;
    ckpt_bytes limit, low, high;
    int sets;
    int64_t work;
} pass;

/* x <= limit; x is remembered. */
static inline bool within(pass *p, ckpt_bytes x)
{
    const bool is = x <= p->limit;
    p->low = is && x > p->low ? x : p->low;
    p->high = !is && x < p->high ? x : p->high;
    return is;
}

static void drop(pass *p)
{
    ckpt_ns *const value = p->room->value;
    for (int half = 1; half < p->sets; half *= 2) {
        for (int s = 0; s < p->sets; s += 2 * half) {
            for (int i = s; i < s + half; i++) {
                value[i + half] = value[i] < value[i + half] ? value[i] : value[i + half];
            }
        }
    }
    p->work += (int64_t)p->group->buffer_count * p->sets / 4;
}

/* Runs of one op from every set that has its inputs; `beside` < 0: memory does not matter. */
static bool run_again(pass *p, const ckpt_group_op *op, ckpt_bytes beside)
{
    ckpt_ns *const value = p->room->value;
    const ckpt_bytes *const bytes = p->room->bytes;
    bool changed = false;
    const unsigned others = ((unsigned)p->sets - 1) & ~op->reads;
    for (unsigned more = others;; more = (more - 1) & others) { /* all sets that have the inputs, downwards */
        const unsigned s = op->reads | more, after = s | op->writes;
        ckpt_ns time = value[after];
        if (time < value[s]) {
            time = time + op->time < CKPT_BOUND_LONG ? time + op->time : CKPT_BOUND_LONG;
            if (time < value[s] && (beside < 0 || within(p, bytes[after] + op->extra + beside))) {
                value[s] = time;
                changed = true;
            }
        }
        if (more == 0) {
            break;
        }
    }
    p->work += p->sets >> __builtin_popcount(op->reads);
    return changed;
}

static void gap(pass *p, ckpt_bytes beside)
{
    bool changed = true;
    while (changed) {
        drop(p);
        changed = false;
        for (int o = p->group->op_count - 1; o >= 0; o--) {
            changed = run_again(p, &p->group->op[o], beside) || changed;
        }
    }
}

static void moment(pass *p, const ckpt_group_moment *m)
{
    ckpt_ns *const value = p->room->value;
    for (unsigned s = 0; s < (unsigned)p->sets; s++) {
        if (value[s] < CKPT_BOUND_NEVER && ((m->reads & ~s) != 0 || !within(p, p->room->bytes[s] + m->during))) {
            value[s] = CKPT_BOUND_NEVER;
        }
    }
    p->work += p->sets;
}

static void all_values(pass *p)
{
    for (unsigned s = 0; s < (unsigned)p->sets; s++) {
        p->room->value[s] = (p->group->later & ~s) == 0 ? 0 : CKPT_BOUND_NEVER;
    }
    gap(p, -1);
    for (int i = p->group->moment_count - 1; i >= 0; i--) {
        moment(p, &p->group->moment[i]);
        gap(p, p->group->moment[i].between);
    }
    gap(p, -1); /* before the window */
}

ckpt_code ckpt_group_room_take(ckpt_arena *arena, int buffers_max, ckpt_group_room *room, ckpt_err *err)
{
    const size_t sets = (size_t)1 << buffers_max;
    *room = (ckpt_group_room){CKPT_NEW(arena, ckpt_ns, sets), CKPT_NEW(arena, ckpt_bytes, sets),
                              CKPT_NEW(arena, int, sets), NULL};
    if (room->value == NULL || room->bytes == NULL || room->order == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a bound over %d buffers", buffers_max);
    }
    return CKPT_OK;
}

/* Merge sort of sets by bytes: adding a buffer to all sets so far gives a second sorted list. */
static void sort_sets(const ckpt_group *group, ckpt_group_room *room)
{
    int *const order = room->order, *const merged = (int *)room->value; /* values come later */
    int count = 1;
    order[0] = 0;
    room->bytes[0] = 0;
    for (int b = 0; b < group->buffer_count; b++, count *= 2) {
        for (int s = 0; s < count; s++) {
            room->bytes[s + count] = room->bytes[s] + group->bytes[b];
        }
        int i = 0, j = 0;
        for (int k = 0; k < 2 * count; k++) {
            const bool first = j == count || (i < count && room->bytes[order[i]] <= room->bytes[order[j] + count]);
            merged[k] = first ? order[i++] : order[j++] + count;
        }
        memcpy(order, merged, 2 * (size_t)count * sizeof *order);
    }
    room->of = group;
}

static ckpt_code keep_ways(const pass *p, ckpt_arena *out, ckpt_group_table *table, ckpt_err *err)
{
    const ckpt_group_room *const room = p->room;
    for (int round = 0; round < 2; round++) { /* count, then write */
        ckpt_group_way *const way = round == 1 ? CKPT_NEW(out, ckpt_group_way, table->way_count) : NULL;
        if (round == 1 && way == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d ways through a group", table->way_count);
        }
        ckpt_ns least = CKPT_BOUND_NEVER;
        int count = 0;
        for (int k = 0; k < p->sets; k++) {
            const int s = room->order[k];
            if (room->value[s] < least) {
                least = room->value[s];
                const bool equal = count > 0 && round == 1 && way[count - 1].held == room->bytes[s];
                if (round == 1) {
                    count -= equal;
                    way[count] = (ckpt_group_way){room->bytes[s], least};
                }
                count++;
            }
        }
        table->way_count = count;
        table->way = way;
    }
    return CKPT_OK;
}

ckpt_code ckpt_group_find(ckpt_group *group, ckpt_bytes limit, ckpt_group_room *room, ckpt_arena *out, int64_t *work,
                          const ckpt_group_table **found, ckpt_err *err)
{
    for (const ckpt_group_table *t = group->same->table; t != NULL; t = t->next) {
        if (t->low <= limit && limit < t->high) {
            *found = t;
            return CKPT_OK;
        }
    }
    ckpt_group *const owner = group->same;
    if (room->of != owner) {
        sort_sets(owner, room);
    }
    pass p = {.group = owner, .room = room, .limit = limit, .low = INT64_MIN, .high = INT64_MAX};
    p.sets = 1 << owner->buffer_count;
    all_values(&p);
    *work -= p.work;
    ckpt_group_table *const table = CKPT_NEW(out, ckpt_group_table, 1);
    if (table == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a table of %d sets", p.sets);
    }
    *table = (ckpt_group_table){.low = p.low, .high = p.high, .next = owner->table};
    CKPT_TRY(keep_ways(&p, out, table, err));
    owner->table = table;
    *found = table;
    return CKPT_OK;
}

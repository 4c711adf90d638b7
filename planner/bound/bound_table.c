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

#include "planner/bound/bound_impl.h"

typedef struct pass {
    const ckpt_group *group;
    ckpt_group_room *room;
    ckpt_ns *value;
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

static inline ckpt_ns add(ckpt_ns a, ckpt_ns b)
{
    return a >= CKPT_BOUND_NEVER ? a : a + b < CKPT_BOUND_LONG ? a + b : CKPT_BOUND_LONG;
}

static void drop(pass *p)
{
    ckpt_ns *const value = p->value;
    for (int half = 1; half < p->sets; half *= 2) {
        for (int s = 0; s < p->sets; s += 2 * half) {
            for (int i = s; i < s + half; i++) {
                value[i + half] = value[i] < value[i + half] ? value[i] : value[i + half];
            }
        }
    }
    p->work += (int64_t)p->room->bits * p->sets / 4;
}

/* Runs of one op from every set that has its inputs; `beside` < 0: memory does not matter. */
static bool recompute(pass *p, const ckpt_group_op *op, ckpt_bytes beside)
{
    ckpt_ns *const value = p->value;
    const ckpt_bytes *const bytes = p->room->bytes;
    bool changed = false;
    const unsigned others = ((unsigned)p->sets - 1) & ~op->reads;
    for (unsigned more = others;; more = (more - 1) & others) { /* all sets that have the inputs, downwards */
        const unsigned s = op->reads | more, after = s | op->writes;
        if (value[after] < value[s]) {
            const ckpt_ns time = add(value[after], op->time);
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
        for (int o = p->room->op_count - 1; o >= 0; o--) {
            changed = recompute(p, &p->room->op[o], beside) || changed;
        }
    }
}

static void moment(pass *p, const ckpt_group_moment *m)
{
    ckpt_ns *const value = p->value;
    for (unsigned s = 0; s < (unsigned)p->sets; s++) {
        if (value[s] < CKPT_BOUND_NEVER && ((m->reads & ~s) != 0 || !within(p, p->room->bytes[s] + m->during))) {
            value[s] = CKPT_BOUND_NEVER;
        }
    }
    p->work += p->sets;
}

static void all_values(pass *p)
{
    p->value = p->room->value;
    for (unsigned s = 0; s < (unsigned)p->sets; s++) {
        p->value[s] = (p->group->later & ~s) == 0 ? 0 : CKPT_BOUND_NEVER;
    }
    gap(p, -1);
    for (int i = p->group->moment_count - 1; i >= 0; i--) {
        moment(p, &p->group->moment[i]);
        gap(p, p->group->moment[i].between);
    }
    gap(p, -1); /* before the window */
    for (int e = 0; e < p->group->export_count; e++) {
        const unsigned gone = 1U << p->group->export[e].bit;
        p->value = p->room->without[e];
        for (unsigned s = 0; s < (unsigned)p->sets; s++) {
            p->value[s] = p->room->value[s & ~gone];
        }
        gap(p, -1);
    }
}

ckpt_code ckpt_group_room_take(ckpt_arena *arena, const ckpt_groups *groups, ckpt_group_room *room, ckpt_err *err)
{
    int bits = 0, ops = 0;
    for (int k = 0; k < groups->count; k++) {
        const ckpt_group *const group = &groups->group[k];
        bits = group->buffer_count + group->import_count > bits ? group->buffer_count + group->import_count : bits;
        ops = group->op_count > ops ? group->op_count : ops;
    }
    const size_t sets = (size_t)1 << bits;
    *room = (ckpt_group_room){.value = CKPT_NEW(arena, ckpt_ns, sets),
                              .bytes = CKPT_NEW(arena, ckpt_bytes, sets),
                              .order = CKPT_NEW(arena, int, sets),
                              .op = CKPT_NEW(arena, ckpt_group_op, ops + CKPT_CROSS_MAX + CKPT_GROUP_MAX)};
    bool failed = room->value == NULL || room->bytes == NULL || room->order == NULL || room->op == NULL;
    for (int e = 0; e < CKPT_CROSS_MAX; e++) {
        room->without[e] = CKPT_NEW(arena, ckpt_ns, sets);
        failed = failed || room->without[e] == NULL;
    }
    return failed ? CKPT_FAIL(err, CKPT_NO_MEMORY, "a bound over %d buffers", bits) : CKPT_OK;
}

/* Merge sort of sets by bytes: adding a buffer to all sets so far gives a second sorted list. */
static void sort_sets(ckpt_group_room *room, const ckpt_bytes *bytes)
{
    int *const order = room->order, *const merged = (int *)room->value; /* values come later */
    int count = 1;
    order[0] = 0;
    room->bytes[0] = 0;
    for (int b = 0; b < room->bits; b++, count *= 2) {
        for (int s = 0; s < count; s++) {
            room->bytes[s + count] = room->bytes[s] + bytes[b];
        }
        int i = 0, j = 0;
        for (int k = 0; k < 2 * count; k++) {
            const bool first = j == count || (i < count && room->bytes[order[i]] <= room->bytes[order[j] + count]);
            merged[k] = first ? order[i++] : order[j++] + count;
        }
        memcpy(order, merged, 2 * (size_t)count * sizeof *order);
    }
}

/* The group with those imports as buffers that are not held; the others are always there. */
static void enter(ckpt_group_room *room, const ckpt_group *group, unsigned imports)
{
    ckpt_bytes bytes[CKPT_GROUP_MAX + CKPT_CROSS_MAX];
    unsigned bit_of[CKPT_CROSS_MAX] = {0};
    memcpy(bytes, group->bytes, sizeof bytes);
    room->bits = group->buffer_count;
    room->op_count = 0;
    for (int i = 0; i < group->import_count; i++) {
        if ((imports >> i & 1) != 0) {
            bytes[room->bits] = group->bytes[group->buffer_count + i];
            bit_of[i] = 1U << room->bits++;
            room->op[room->op_count++] = (ckpt_group_op){.writes = bit_of[i]};
        }
    }
    for (int b = 0; group->fetches && b < group->buffer_count; b++) {
        room->op[room->op_count++] = (ckpt_group_op){.writes = 1U << b, .time = group->fetch[b]};
    }
    for (int o = 0; o < group->op_count; o++) {
        ckpt_group_op op = group->op[o];
        const unsigned read = op.reads >> group->buffer_count;
        op.reads &= (1U << group->buffer_count) - 1;
        for (int i = 0; i < group->import_count; i++) {
            op.reads |= (read >> i & 1) != 0 ? bit_of[i] : 0;
        }
        room->op[room->op_count++] = op;
    }
    sort_sets(room, bytes);
    room->of = group;
    room->imports = imports;
}

/* What a schedule pays that has the set s of the group at the instant of s(i), or s and exports that are not held. */
static ckpt_ns pays(const pass *p, unsigned s, unsigned not_held)
{
    const ckpt_group *const group = p->group;
    ckpt_ns least = p->room->value[s];
    for (int e = 0; e < group->export_count; e++) {
        if ((not_held >> e & 1) == 0) {
            continue;
        }
        /* sets of exports in memory then, of which e is the first */
        const unsigned one = s | 1U << group->export[e].bit;
        for (unsigned rest = 0; rest < 1U << group->export_count; rest++) {
            if ((rest & ~not_held) != 0 || (rest & ((2U << e) - 1)) != 0) {
                continue;
            }
            unsigned set = one;
            for (int f = e + 1; f < group->export_count; f++) {
                set |= (rest >> f & 1) != 0 ? 1U << group->export[f].bit : 0;
            }
            const ckpt_ns before = add(p->room->value[set], group->export[e].time), after = p->room->without[e][set];
            least = before < least ? before : least;
            least = after < least ? after : least;
        }
    }
    return least;
}

/* The front with exactly the exports `held` in the set, the others not held. Counted when `point` is NULL. */
static int find_front(const pass *p, unsigned held, ckpt_group_point *point)
{
    const ckpt_group *const group = p->group;
    unsigned all = 0, in = 0;
    for (int e = 0; e < group->export_count; e++) {
        all |= 1U << group->export[e].bit;
        in |= (held >> e & 1) != 0 ? 1U << group->export[e].bit : 0;
    }
    const unsigned not_held = ((1U << group->export_count) - 1) & ~held;
    ckpt_ns least = CKPT_BOUND_NEVER;
    int count = 0;
    for (int k = 0; k < p->sets; k++) {
        const unsigned s = (unsigned)p->room->order[k];
        if ((s & all) != in) {
            continue;
        }
        const ckpt_ns time = pays(p, s, not_held);
        if (time < least) {
            least = time;
            if (point != NULL) {
                point[count] = (ckpt_group_point){p->room->bytes[s], time};
            }
            count++;
        }
    }
    return count;
}

static ckpt_code keep_front(const pass *p, ckpt_arena *out, ckpt_group_table *table, ckpt_err *err)
{
    for (unsigned held = 0; held < 1U << p->group->export_count; held++) {
        const int count = find_front(p, held, NULL);
        ckpt_group_point *const point = CKPT_NEW(out, ckpt_group_point, count);
        if (point == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d points of a group", count);
        }
        table->front[held] = (ckpt_group_front){point, find_front(p, held, point)};
    }
    return CKPT_OK;
}

ckpt_code ckpt_group_find(ckpt_group *group, ckpt_bytes limit, unsigned imports, ckpt_group_room *room, ckpt_arena *out,
                          int64_t *work, const ckpt_group_table **found, ckpt_err *err)
{
    ckpt_group *const owner = group->same;
    for (const ckpt_group_table *t = owner->table; t != NULL; t = t->next) {
        if (t->imports == imports && t->low <= limit && limit < t->high) {
            *found = t;
            return CKPT_OK;
        }
    }
    if (room->of != owner || room->imports != imports) {
        enter(room, owner, imports);
    }
    pass p = {.group = owner, .room = room, .limit = limit, .low = INT64_MIN, .high = INT64_MAX};
    p.sets = 1 << room->bits;
    all_values(&p);
    *work -= p.work;
    ckpt_group_table *const table = CKPT_NEW(out, ckpt_group_table, 1);
    if (table == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a table of %d sets", p.sets);
    }
    *table = (ckpt_group_table){.imports = imports, .low = p.low, .high = p.high, .next = owner->table};
    CKPT_TRY(keep_front(&p, out, table, err));
    owner->table = table;
    *found = table;
    return CKPT_OK;
}

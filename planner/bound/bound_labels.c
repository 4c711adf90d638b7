/* The shortest path over groups: labels (bytes held by the groups so far, time paid), exact bytes.
 *
 * Labels are thrown into cells by their bytes. A cell keeps the least bytes and the least time of what falls in: with
 * one label in a cell that is the label, with several it is better than each of them, so the result stays a bound. */
#include "planner/bound/bound_impl.h"

enum { FEW = 8, CELLS_MAX = 1 << 16, CELLS_MIN = 1 << 10, CELLS_ALL = 1 << 23 };

typedef struct label {
    ckpt_bytes bytes;
    ckpt_ns time;
} label;

/* One list of cells and labels for every set of open exports that are not held. */
enum { STATES_MAX = 1 << CKPT_OPEN_MAX };

typedef struct path {
    ckpt_groups *groups;
    ckpt_bytes limit;
    ckpt_ns enough;
    ckpt_bytes width;
    int64_t paid, made; /* tables of the group at hand */
    int cells, states;
    label *cell[STATES_MAX], *label[STATES_MAX];
    int label_count[STATES_MAX];
    bool reached; /* something was left out because it costs enough */
    ckpt_group_room room;
    ckpt_arena scratch;
    int64_t *work;
    ckpt_poll poll;
} path;

static int64_t table_work(const ckpt_group *group)
{
    const int bits = group->buffer_count + group->import_count;
    const int64_t sweep = (int64_t)(bits / 4 + group->op_count / 2 + 1) << bits;
    return group->same == group ? 3 * sweep * (group->moment_count + 2 + group->export_count) : 0;
}

/* How many tables the work pays for of a group, when those behind it are to have as much. */
static int64_t tables_paid(const path *p, int k)
{
    int64_t rest = 1;
    for (int i = k; i < p->groups->count; i++) {
        rest += table_work(&p->groups->group[i]);
    }
    return *p->work / rest;
}

static ckpt_code path_init(path *p, ckpt_err *err)
{
    p->states = 1 << p->groups->slots;
    for (p->cells = CELLS_MAX; p->cells > CELLS_MIN && p->cells > CELLS_ALL / p->groups->count / p->states;) {
        p->cells /= 2;
    }
    p->cells = p->limit < p->cells ? (int)p->limit + 1 : p->cells;
    p->width = p->limit / p->cells + 1;
    for (int state = 0; state < p->states; state++) {
        p->cell[state] = CKPT_NEW(&p->scratch, label, p->cells);
        p->label[state] = CKPT_NEW(&p->scratch, label, p->cells);
        if (p->cell[state] == NULL || p->label[state] == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "labels of a bound");
        }
    }
    return ckpt_group_room_take(&p->scratch, p->groups, &p->room, err);
}

static void throw_in(path *p, unsigned state, ckpt_bytes bytes, ckpt_ns time)
{
    if (time >= p->enough) {
        p->reached = true;
        return;
    }
    label *const cell = &p->cell[state][bytes / p->width];
    cell->bytes = bytes < cell->bytes ? bytes : cell->bytes;
    cell->time = time < cell->time ? time : cell->time;
}

/* The cells become the labels: those that no other makes needless. */
static void collect(path *p)
{
    for (int state = 0; state < p->states; state++) {
        ckpt_ns least = CKPT_BOUND_NEVER;
        int count = 0;
        for (int i = 0; i < p->cells; i++) {
            const label *const cell = &p->cell[state][i];
            if (cell->time < least) {
                least = cell->time;
                p->label[state][count++] = *cell;
            }
        }
        p->label_count[state] = count;
    }
    *p->work -= (int64_t)p->cells * p->states / 4;
}

/* All labels that one label leads to. */
static void extend_label(path *p, const ckpt_group *group, const ckpt_group_table *table, unsigned state, label from)
{
    for (unsigned held = 0; held < 1U << group->export_count; held++) {
        unsigned next = state & ~group->closed;
        for (int e = 0; e < group->export_count; e++) {
            next |= (held >> e & 1) == 0 ? 1U << group->export[e].slot : 0;
        }
        const ckpt_group_front *const front = &table->front[held];
        for (int w = 0; w < front->count && front->at[w].held <= p->limit - from.bytes; w++) {
            const ckpt_ns time = from.time + front->at[w].time;
            throw_in(p, next, from.bytes + front->at[w].held, time < CKPT_BOUND_LONG ? time : CKPT_BOUND_LONG);
        }
        *p->work -= front->count;
    }
}

/* The table for what is left beside a label. Most groups have few tables. Of one that has more than its part of the
 * work pays for, P is rounded up to multiples of a grain, which only lowers the bound. */
static ckpt_code find_table(path *p, ckpt_group *group, ckpt_bytes left, unsigned imports,
                            const ckpt_group_table **table, ckpt_err *err)
{
    const ckpt_bytes grain = p->made < p->paid / 2 ? 1 : p->limit / (p->paid / 2) + 1;
    const ckpt_bytes rounded = left > p->limit - grain ? p->limit : (left + grain - 1) / grain * grain;
    const ckpt_group_table *const old = *table;
    if (old == NULL || left < old->low || left >= old->high) {
        const int64_t before = *p->work;
        CKPT_TRY(ckpt_group_find(group, rounded, imports, &p->room, &p->scratch, p->work, table, err));
        p->made += *p->work < before;
    }
    return CKPT_OK;
}

static ckpt_code extend(path *p, ckpt_group *group, ckpt_err *err)
{
    for (int state = 0; state < p->states; state++) {
        for (int i = 0; i < p->cells; i++) {
            p->cell[state][i] = (label){CKPT_BYTES_MAX, CKPT_BOUND_NEVER};
        }
    }
    p->made = 0;
    for (unsigned state = 0; state < (unsigned)p->states; state++) {
        unsigned imports = 0;
        for (int i = 0; i < group->import_count; i++) {
            imports |= (state >> group->import[i].slot & 1) << i;
        }
        const ckpt_group_table *table = NULL;
        for (int i = 0; i < p->label_count[state] && *p->work >= 0; i++) {
            const label from = p->label[state][i];
            const int64_t before = *p->work;
            CKPT_TRY(find_table(p, group, p->limit - from.bytes, imports, &table, err));
            extend_label(p, group, table, state, from);
            *p->work = ckpt_poll_stopped(&p->poll, before - *p->work) ? -1 : *p->work;
        }
    }
    collect(p);
    return CKPT_OK;
}

static ckpt_code walk(path *p, ckpt_ns *time, ckpt_err *err)
{
    CKPT_TRY(path_init(p, err));
    p->label[0][0] = (label){0, 0};
    p->label_count[0] = 1;
    for (int k = 0; k < p->groups->count && *p->work >= 0; k++) {
        p->paid = tables_paid(p, k);
        p->paid = p->paid > 2 ? p->paid : 2;
        CKPT_TRY(extend(p, &p->groups->group[k], err));
    }
    if (*p->work >= 0) {
        *time = p->reached ? p->enough : CKPT_BOUND_NEVER;
        for (int state = 0; state < p->states; state++) {
            const int last = p->label_count[state] - 1;
            *time = last >= 0 && p->label[state][last].time < *time ? p->label[state][last].time : *time;
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_groups_bound(ckpt_groups *groups, ckpt_bytes limit, ckpt_ns enough, const ckpt_plan_options *options,
                            int64_t *work, ckpt_ns *time, ckpt_err *err)
{
    path p = {.groups = groups, .limit = limit, .enough = enough, .work = work, .poll = {.options = options}};
    *time = 0;
    if (tables_paid(&p, 0) < FEW) {
        return CKPT_OK;
    }
    ckpt_arena_init(&p.scratch);
    const ckpt_code code = walk(&p, time, err);
    for (int k = 0; k < groups->count; k++) {
        groups->group[k].table = NULL; /* it was in the scratch */
    }
    ckpt_arena_fini(&p.scratch);
    return code;
}

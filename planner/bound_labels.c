/* The shortest path over groups: labels (bytes held by the groups so far, time paid), exact bytes.
 *
 * Labels are thrown into cells by their bytes. A cell keeps the least bytes and the least time of what falls in: with
 * one label in a cell that is the label, with several it is better than each of them, so the answer stays a bound. */
#include "planner/bound_impl.h"

enum { CELLS_MAX = 1 << 16, CELLS_MIN = 1 << 10, CELLS_ALL = 1 << 23 };

typedef struct label {
    ckpt_bytes bytes;
    ckpt_ns time;
} label;

typedef struct path {
    ckpt_groups *groups;
    ckpt_bytes limit;
    ckpt_ns enough;
    ckpt_bytes width, grain;
    int cells;
    label *cell, *label;
    int label_count;
    bool reached; /* something was left out because it costs enough */
    ckpt_group_room room;
    ckpt_arena scratch;
    int64_t *work;
} path;

static int64_t table_work(const ckpt_group *group)
{
    const int64_t sweep = (int64_t)(group->buffer_count / 4 + group->op_count / 2 + 1) << group->buffer_count;
    return group->same == group ? 3 * sweep * (group->moment_count + 2) : 0;
}

/* A limit of tables per group that the work pays for: P is rounded up to multiples of a grain, which only lowers the
 * bound. False when not even a few tables are paid for. */
static bool choose_grain(path *p)
{
    enum { FEW = 8, MANY = 400 };
    int64_t one = 1;
    for (int k = 0; k < p->groups->count; k++) {
        one += table_work(&p->groups->group[k]);
    }
    const int64_t tables = *p->work / one;
    p->grain = tables < MANY ? p->limit / (tables > 0 ? tables : 1) + 1 : 1;
    return tables >= FEW;
}

static ckpt_code path_init(path *p, ckpt_err *err)
{
    int buffers_max = 0;
    for (int k = 0; k < p->groups->count; k++) {
        const int count = p->groups->group[k].buffer_count;
        buffers_max = count > buffers_max ? count : buffers_max;
    }
    for (p->cells = CELLS_MAX; p->cells > CELLS_MIN && p->cells > CELLS_ALL / p->groups->count;) {
        p->cells /= 2;
    }
    p->width = p->limit / p->cells + 1;
    p->cell = CKPT_NEW(&p->scratch, label, p->cells);
    p->label = CKPT_NEW(&p->scratch, label, p->cells);
    if (p->cell == NULL || p->label == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "labels of a bound");
    }
    return ckpt_group_room_take(&p->scratch, buffers_max, &p->room, err);
}

static void throw_in(path *p, ckpt_bytes bytes, ckpt_ns time)
{
    if (time >= p->enough) {
        p->reached = true;
        return;
    }
    label *const cell = &p->cell[bytes / p->width];
    cell->bytes = bytes < cell->bytes ? bytes : cell->bytes;
    cell->time = time < cell->time ? time : cell->time;
}

/* The cells become the labels: those that no other makes needless. */
static void collect(path *p)
{
    ckpt_ns least = CKPT_BOUND_NEVER;
    p->label_count = 0;
    for (int i = 0; i < p->cells; i++) {
        if (p->cell[i].time < least) {
            least = p->cell[i].time;
            p->label[p->label_count++] = p->cell[i];
        }
    }
}

static ckpt_code extend(path *p, ckpt_group *group, ckpt_err *err)
{
    for (int i = 0; i < p->cells; i++) {
        p->cell[i] = (label){CKPT_BYTES_MAX, CKPT_BOUND_NEVER};
    }
    const ckpt_group_table *table = NULL;
    for (int i = 0; i < p->label_count && *p->work >= 0; i++) {
        const ckpt_bytes left = p->limit - p->label[i].bytes;
        const ckpt_bytes rounded = left > p->limit - p->grain ? p->limit : (left + p->grain - 1) / p->grain * p->grain;
        if (table == NULL || rounded < table->low || rounded >= table->high) {
            CKPT_TRY(ckpt_group_find(group, rounded, &p->room, &p->scratch, p->work, &table, err));
        }
        for (int w = 0; w < table->way_count && table->way[w].held <= left; w++) {
            const ckpt_ns time = p->label[i].time + table->way[w].time;
            throw_in(p, p->label[i].bytes + table->way[w].held, time < CKPT_BOUND_LONG ? time : CKPT_BOUND_LONG);
        }
        *p->work -= table->way_count;
    }
    *p->work -= p->cells / 4;
    collect(p);
    return CKPT_OK;
}

static ckpt_code walk(path *p, const ckpt_plan_options *options, ckpt_ns *time, ckpt_err *err)
{
    CKPT_TRY(path_init(p, err));
    p->label[0] = (label){0, 0};
    p->label_count = 1;
    for (int k = 0; k < p->groups->count && p->label_count > 0 && *p->work >= 0; k++) {
        CKPT_TRY(extend(p, &p->groups->group[k], err));
        *p->work = ckpt_plan_stopped(options) ? -1 : *p->work;
    }
    if (*p->work >= 0) {
        *time = p->label_count > 0 ? p->label[p->label_count - 1].time : p->reached ? p->enough : CKPT_BOUND_NEVER;
        *time = p->reached && *time > p->enough ? p->enough : *time;
    }
    return CKPT_OK;
}

ckpt_code ckpt_groups_bound(ckpt_groups *groups, ckpt_bytes limit, ckpt_ns enough, const ckpt_plan_options *options,
                            int64_t *work, ckpt_ns *time, ckpt_err *err)
{
    path p = {.groups = groups, .limit = limit, .enough = enough, .work = work};
    *time = 0;
    if (!choose_grain(&p)) {
        return CKPT_OK;
    }
    ckpt_arena_init(&p.scratch);
    const ckpt_code code = walk(&p, options, time, err);
    for (int k = 0; k < groups->count; k++) {
        groups->group[k].table = NULL; /* it was in the scratch */
    }
    ckpt_arena_fini(&p.scratch);
    return code;
}

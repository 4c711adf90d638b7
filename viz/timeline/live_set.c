/* What is in memory at one event, in as few rows as a reader takes in: the same buffer of repeated blocks is one row
 * where single ones would not explain most of the bytes. */
#include <stdlib.h>
#include <string.h>

#include "viz/timeline/live_ranges_impl.h"

/* A live range, and what others must share with it to stand in one row. */
typedef struct member {
    const char *name, *layer; /* patterns */
    ckpt_why why;
    ckpt_live_range_kind kind;
    ckpt_bytes bytes; /* of a program without a plan, where names say little; else 0 */
    ckpt_bytes size;
    int range;
} member;

static int by_likeness(const void *a, const void *b)
{
    const member *const x = a, *const y = b;
    int order = strcmp(x->name, y->name);
    order = order != 0 ? order : strcmp(x->layer, y->layer);
    order = order != 0 ? order : (int)x->why - (int)y->why;
    order = order != 0 ? order : (int)x->kind - (int)y->kind;
    return order != 0 ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int by_likeness_and_size(const void *a, const void *b)
{
    const member *const x = a, *const y = b;
    const int order = by_likeness(a, b);
    return order != 0 ? order : x->size != y->size ? (x->size < y->size ? 1 : -1) : x->range - y->range;
}

/* Largest first; of equal ones the one whose largest range comes first. */
static int by_bytes(const void *a, const void *b)
{
    const ckpt_live_set_row *const x = a, *const y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : x->range[0] - y->range[0];
}

/* A row is one range, or those whose names differ in numbers between dots alone, or in any numbers. */
enum { SINGLE, BLOCKS, DEEP, LEVELS };

/* Rows are enough when they leave out no more than one part of so many. Rows that explain one part of so many say more
 * than any number inside of words left out: "t0…64" of a graph whose buffers are just numbered is no name. What is
 * smaller than one part of so many is no row. */
enum { MOST = 5, SOME = 3, MIN = 1000 };

typedef struct maker {
    const ckpt_live_ranges *ranges;
    ckpt_arena *out;
    int level;
    bool plan;
    int *which; /* the ranges, in the order of the rows they go into */
    int count;
    ckpt_live_set_row *row;
    int row_count;
} maker;

/* One row for `count` ranges that stand at which[from]. */
static void add_row(maker *m, int from, int count)
{
    ckpt_live_set_row *const row = &m->row[m->row_count++];
    *row = (ckpt_live_set_row){.range = &m->which[from], .count = count, .kind = m->ranges->range[m->which[from]].kind};
    for (int i = 0; i < count; i++) {
        if (!ckpt_sum(row->bytes, m->ranges->range[row->range[i]].bytes, &row->bytes)) {
            row->bytes = CKPT_BYTES_MAX;
        }
    }
}

static const char *pattern(const maker *m, const char *name)
{
    return ckpt_name_pattern(name, m->level == DEEP, m->out);
}

/* What goes by the same name only because names say little stays apart by layer: in a program without a plan, and where
 * all numbers are left out. */
static bool describe(const maker *m, member *sorted)
{
    for (int i = 0; i < m->count; i++) {
        const ckpt_live_range *const range = &m->ranges->range[m->which[i]];
        sorted[i] = (member){
            .name = pattern(m, range->name),
            .layer = m->plan && m->level < DEEP ? "" : pattern(m, range->layer),
            .why = ckpt_live_range_why(m->ranges, m->which[i]),
            .kind = range->kind,
            .bytes = m->plan || m->level == DEEP ? 0 : range->bytes,
            .size = range->bytes,
            .range = m->which[i],
        };
        if (sorted[i].name == NULL || sorted[i].layer == NULL) {
            return false;
        }
    }
    return true;
}

/* Rows of ranges that are alike, by sorting. False without memory. */
static bool group(maker *m)
{
    member *const sorted = CKPT_NEW(m->out, member, m->count);
    if (sorted == NULL || !describe(m, sorted)) {
        return false;
    }
    qsort(sorted, (size_t)m->count, sizeof *sorted, by_likeness_and_size);
    int from = 0;
    for (int i = 0; i < m->count; i++) {
        m->which[i] = sorted[i].range;
        if (i + 1 == m->count || by_likeness(&sorted[i], &sorted[i + 1]) != 0) {
            add_row(m, from, i + 1 - from);
            from = i + 1;
        }
    }
    return true;
}

/* What the ranges of a row have in common: their name, or "" where the layers have none. False without memory. */
static bool name_row(const maker *m, ckpt_live_set_row *row)
{
    const ckpt_live_range *const first = &m->ranges->range[row->range[0]];
    row->name = first->name;
    row->layer = first->layer;
    row->reason = row->count == 1 && m->plan
                      ? ckpt_live_range_reason(m->ranges, row->range[0], m->out)
                      : ckpt_live_range_group_reason(m->ranges, row->range, row->count, m->level == DEEP, m->out);
    if (row->count == 1) {
        return row->reason != NULL;
    }
    const char **const name = CKPT_NEW(m->out, const char *, row->count);
    const char **const layer = CKPT_NEW(m->out, const char *, row->count);
    const char *const wanted = pattern(m, first->layer);
    bool alike = true;
    if (name == NULL || layer == NULL || wanted == NULL) {
        return false;
    }
    for (int i = 0; i < row->count; i++) {
        const ckpt_live_range *const range = &m->ranges->range[row->range[i]];
        const char *const own = pattern(m, range->layer);
        if (own == NULL) {
            return false;
        }
        name[i] = range->name;
        layer[i] = range->layer;
        alike = alike && strcmp(own, wanted) == 0;
    }
    row->name = ckpt_name_fold(name, row->count, m->level == DEEP, m->out);
    row->layer = alike ? ckpt_name_fold(layer, row->count, m->level == DEEP, m->out) : "";
    return row->name != NULL && row->layer != NULL && row->reason != NULL;
}

static ckpt_bytes sum_rows(const maker *m, int from, int to)
{
    ckpt_bytes sum = 0;
    for (int i = from; i < to; i++) {
        if (!ckpt_sum(sum, m->row[i].bytes, &sum)) {
            return CKPT_BYTES_MAX;
        }
    }
    return sum;
}

/* The rows of m->level, largest first. False without memory. */
static bool make_rows(maker *m)
{
    m->row_count = 0;
    for (int i = 0; m->level == SINGLE && i < m->count; i++) {
        add_row(m, i, 1);
    }
    if (m->level != SINGLE && !group(m)) {
        return false;
    }
    if (m->row_count > 0) {
        qsort(m->row, (size_t)m->row_count, sizeof *m->row, by_bytes);
    }
    return true;
}

static ckpt_code no_memory(const maker *m, ckpt_err *err)
{
    return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a table of %d buffers", m->count);
}

ckpt_code ckpt_live_set_make(const ckpt_live_ranges *ranges, int at, int rows, ckpt_arena *out, ckpt_live_set *live,
                             ckpt_err *err)
{
    maker m = {.ranges = ranges, .out = out, .plan = ranges->trace->allocation_count > 0};
    ckpt_live_set made = {.ranges = ranges, .at = at};
    ckpt_live_ranges_at(ranges, at, NULL, 0, &m.count, &made.bytes);
    m.which = CKPT_NEW(out, int, m.count);
    m.row = CKPT_NEW(out, ckpt_live_set_row, m.count);
    if (m.which == NULL || m.row == NULL) {
        return no_memory(&m, err);
    }
    ckpt_live_ranges_at(ranges, at, m.which, m.count, &m.count, &made.bytes);
    for (m.level = SINGLE; m.level < LEVELS; m.level++) {
        if (!make_rows(&m)) {
            return no_memory(&m, err);
        }
        made.row_count = 0;
        while (made.row_count < m.row_count && made.row_count < rows &&
               m.row[made.row_count].bytes >= made.bytes / MIN) {
            made.row_count++;
        }
        made.rest_bytes = sum_rows(&m, made.row_count, m.row_count);
        if (made.rest_bytes <= made.bytes / MOST || m.level == DEEP ||
            (m.level == BLOCKS && made.bytes - made.rest_bytes >= made.bytes / SOME)) {
            break;
        }
    }
    made.row = m.row;
    for (int i = 0; i < made.row_count; i++) {
        if (!name_row(&m, &m.row[i])) {
            return no_memory(&m, err);
        }
    }
    for (int i = made.row_count; i < m.row_count; i++) {
        made.rest_count += m.row[i].count;
    }
    *live = made;
    return CKPT_OK;
}

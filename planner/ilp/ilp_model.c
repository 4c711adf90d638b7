/* The compact integer program of a graph under a limit: docs/explanation/integer-program.md.
 *
 * Stage t ends with the first run of op t; before it, ops may be recomputed, in reference order, each once:
 *
 *     R[t,v]  op v is recomputed in stage t: 0 or 1, only where v is an ancestor of what op t reads
 *     S[b,g]  buffer b stays in memory through gap g, between two stages that may write or use it
 *     Z       largest of several: what b takes during a run is max(S after the stage, R of its later readers in it)
 *     N[v]    sum over stages of R[t,v]: whole, to branch on
 *
 *     minimise  sum of time[v] N[v]
 *     S after <= S before + R[t,writer]            what is kept was there or was made
 *     R[t,u]  <= S before + R[t,writer]            what is read was there or is made (1 for the read of op t)
 *     S before + R[t,writer] <= 1                  an op with one output is not recomputed while that is in memory
 *     sum of bytes in memory + workspace R[t,w] <= limit       during every run */
#include <math.h>

#include "planner/ilp/ilp_impl.h"

/* A column, or a constant when `column` is -1. */
typedef struct term {
    int column;
    double constant;
} term;

static const term zero = {-1, 0}, one = {-1, 1};

static bool is_zero(term t)
{
    return t.column < 0 && t.constant <= 0;
}

static bool is_one(term t)
{
    return t.column < 0 && t.constant > 0;
}

/* A recomputation in this stage that reads the buffer; in the order of ops. */
typedef struct reader {
    int pair, next, previous;
    term later; /* the largest of this and all later ones, and of what is kept after the stage */
} reader;

/* A stage that may write or use the buffer. */
typedef struct event {
    int stage, next;
    int maker;       /* pair; -1: none */
    int first, last; /* readers; -1: none */
    bool required;   /* op `stage` reads it or adds to it */
    term in, out;    /* in memory before and after the stage */
    term during;     /* while `maker` runs */
} event;

typedef struct live_range {
    int first, last; /* events; -1: nobody ever uses it again */
    int now;         /* while rows are written: the event of this stage or the next one */
    bool alone;      /* the only buffer its op writes that anyone reads */
} live_range;

typedef struct builder {
    const ckpt_graph *graph;
    ckpt_ilp_pairs *pairs;
    ckpt_arena *out, scratch;
    bool failed;
    bool impossible;
    live_range *live_range;
    event *event;
    int event_count, event_room;
    reader *reader;
    int reader_count, reader_room;
    /* columns */
    double *cost;
    int *pair_of;
    int column_count, column_room;
    /* rows; `mark` and `at` gather one of them */
    double *row_low, *row_high, *value;
    int *start, *column, *at;
    int row_count, row_room, entry_count, entry_room;
    double unit; /* bytes */
} builder;

/* Room for one more; the old array stays in the arena. */
static void *grow(builder *b, ckpt_arena *arena, void *old, int count, int *room, size_t size)
{
    if (count < *room) {
        return old;
    }
    const int wanted = *room > 0 ? 2 * *room : 256;
    char *const grown = wanted < (1 << 27) ? ckpt_arena_take(arena, (size_t)wanted, size) : NULL;
    if (grown == NULL) {
        b->failed = true;
        return old;
    }
    const char *const from = old;
    for (size_t i = 0; i < (size_t)count * size; i++) {
        grown[i] = from[i];
    }
    *room = wanted;
    return grown;
}

static term add_column(builder *b, double cost, int pair)
{
    int room = b->column_room;
    b->cost = grow(b, b->out, b->cost, b->column_count, &room, sizeof *b->cost);
    b->pair_of = grow(b, b->out, b->pair_of, b->column_count, &b->column_room, sizeof *b->pair_of);
    if (b->failed) {
        return zero;
    }
    b->cost[b->column_count] = cost;
    b->pair_of[b->column_count] = pair;
    return (term){b->column_count++, 0};
}

static term pair_term(const builder *b, int pair)
{
    if (pair < 0) {
        return zero;
    }
    const ckpt_ilp_pair *const p = &b->pairs->pair[pair];
    return p->free ? (term){p->column, 0} : p->runs ? one : zero;
}

/* ---- rows ---- */

static void add_entry(builder *b, int column, double value)
{
    int room = b->entry_room;
    b->column = grow(b, b->out, b->column, b->entry_count, &room, sizeof *b->column);
    b->value = grow(b, b->out, b->value, b->entry_count, &b->entry_room, sizeof *b->value);
    if (!b->failed) {
        b->column[b->entry_count] = column;
        b->value[b->entry_count++] = value;
    }
}

static void end_row(builder *b, double low, double high)
{
    int low_room = b->row_room, high_room = b->row_room;
    b->row_low = grow(b, b->out, b->row_low, b->row_count, &low_room, sizeof *b->row_low);
    b->row_high = grow(b, b->out, b->row_high, b->row_count, &high_room, sizeof *b->row_high);
    b->start = grow(b, b->out, b->start, b->row_count, &b->row_room, sizeof *b->start);
    if (!b->failed) {
        b->row_low[b->row_count] = low;
        b->row_high[b->row_count] = high;
        b->start[b->row_count++] = b->entry_count;
    }
}

/* lesser <= sum of the others. */
static void add_order(builder *b, term lesser, term x, term y)
{
    if (is_zero(lesser) || is_one(x) || is_one(y) || (lesser.column >= 0 && lesser.column == x.column)) {
        return;
    }
    double low = 0;
    if (lesser.column >= 0) {
        add_entry(b, lesser.column, -1);
    } else {
        low = lesser.constant;
    }
    if (x.column >= 0) {
        add_entry(b, x.column, 1);
    }
    if (y.column >= 0) {
        add_entry(b, y.column, 1);
    }
    if (low > 0 && x.column < 0 && y.column < 0) {
        b->impossible = true;
    }
    end_row(b, low, HUGE_VAL);
}

/* The largest of two, as a column of its own where needed. */
static term largest(builder *b, term x, term y)
{
    if (is_zero(x) || is_one(y)) {
        return y;
    }
    if (is_zero(y) || is_one(x)) {
        return x;
    }
    const term z = add_column(b, 0, CKPT_ILP_REAL);
    add_order(b, x, z, zero);
    add_order(b, y, z, zero);
    return z;
}

/* ---- events ---- */

static event *touch(builder *b, int buffer, int stage)
{
    live_range *const l = &b->live_range[buffer];
    if (l->last < 0 || b->event[l->last].stage != stage) {
        b->event = grow(b, &b->scratch, b->event, b->event_count, &b->event_room, sizeof *b->event);
        if (b->failed) {
            return NULL;
        }
        const int made = b->event_count++;
        b->event[made] = (event){.stage = stage, .next = -1, .maker = -1, .first = -1, .last = -1};
        *(l->last < 0 ? &l->first : &b->event[l->last].next) = made;
        l->last = made;
    }
    return &b->event[l->last];
}

static void touch_reader(builder *b, int buffer, int stage, int pair)
{
    event *const e = touch(b, buffer, stage);
    b->reader = grow(b, &b->scratch, b->reader, b->reader_count, &b->reader_room, sizeof *b->reader);
    if (b->failed) {
        return;
    }
    const int made = b->reader_count++;
    b->reader[made] = (reader){.pair = pair, .next = -1, .previous = e->last};
    *(e->last < 0 ? &e->first : &b->reader[e->last].next) = made;
    e->last = made;
}

static void touch_required(builder *b, const ckpt_list *list, int stage)
{
    for (int i = 0; i < list->count; i++) {
        event *const e = touch(b, list->at[i], stage);
        if (e != NULL) {
            e->required = true;
        }
    }
}

/* Or with the end. */
static bool ends_with_first_run(const builder *b, int stage)
{
    return stage % b->pairs->passes == b->pairs->passes - 1;
}

static void find_events(builder *b)
{
    const ckpt_graph *const g = b->graph;
    for (int s = 0; s < b->pairs->stages && !b->failed; s++) {
        for (int p = b->pairs->from[s]; p < b->pairs->from[s + 1] && !b->failed; p++) {
            const ckpt_ilp_pair *const pair = &b->pairs->pair[p];
            if (!pair->free && !pair->runs) {
                continue;
            }
            const ckpt_graph_op *const op = &g->op[pair->op];
            for (int i = 0; i < op->reads.count && !b->failed; i++) {
                touch_reader(b, op->reads.at[i], s, p);
            }
            for (int i = 0; i < op->writes.count && !b->failed; i++) {
                event *const e = touch(b, op->writes.at[i], s);
                if (e != NULL) {
                    e->maker = p;
                }
            }
        }
        const int t = s / b->pairs->passes;
        if (!ends_with_first_run(b, s)) {
            continue;
        }
        if (t < g->op_count) {
            touch_required(b, &g->op[t].reads, s);
            touch_required(b, &g->op[t].adds, s);
        } else {
            touch_required(b, &g->outputs, s);
        }
    }
}

/* In memory before the stage: certainly, certainly not, or up to the program. */
static term before(builder *b, const live_range *l, const event *e)
{
    const term made = pair_term(b, e->maker);
    bool wanted = e->required || !is_zero(e->out), certain = e->required || is_one(e->out);
    for (int r = e->first; r >= 0; r = b->reader[r].next) {
        wanted = wanted || !is_zero(pair_term(b, b->reader[r].pair));
        certain = certain || is_one(pair_term(b, b->reader[r].pair));
    }
    if (!wanted || (is_one(made) && l->alone)) {
        return zero;
    }
    return certain && is_zero(made) ? one : add_column(b, 0, CKPT_ILP_REAL);
}

static void bind_event(builder *b, const live_range *l, event *e)
{
    const term made = pair_term(b, e->maker);
    add_order(b, e->out, e->in, made);
    if (e->required) {
        add_order(b, one, e->in, made);
    }
    if (l->alone && e->in.column >= 0 && made.column >= 0) {
        add_entry(b, e->in.column, 1);
        add_entry(b, made.column, 1);
        end_row(b, -HUGE_VAL, 1);
    }
    for (int r = e->first; r >= 0; r = b->reader[r].next) {
        add_order(b, pair_term(b, b->reader[r].pair), e->in, made);
    }
}

/* `later` of each reader, from the last to the first; gives that of the first. */
static term bind_readers(builder *b, const event *e)
{
    term later = e->required ? one : e->out;
    for (int r = e->last; r >= 0; r = b->reader[r].previous) {
        later = largest(b, pair_term(b, b->reader[r].pair), later);
        b->reader[r].later = later;
    }
    return later;
}

/* Gaps from the last event to the first, for what is wanted later decides what is kept before. */
static void bind_live_range(builder *b, live_range *l, int *order)
{
    int count = 0;
    for (int e = l->first; e >= 0; e = b->event[e].next) {
        order[count++] = e;
    }
    term out = zero;
    for (int i = count - 1; i >= 0; i--) {
        event *const e = &b->event[order[i]];
        e->out = out;
        e->in = before(b, l, e);
        bind_event(b, l, e);
        const term later = bind_readers(b, e);
        e->during = largest(b, pair_term(b, e->maker), later);
        out = e->in;
    }
}

/* ---- memory ---- */

static bool is_destroyed(const ckpt_graph_op *op, int buffer)
{
    for (int i = 0; i < op->inplace_count; i++) {
        if (op->inplace[i].in == buffer) {
            return true;
        }
    }
    return false;
}

/* What buffer x takes while op w runs: again in stage s, or for the first time, which ends it. */
static term held(const builder *b, int x, int s, int w, bool first)
{
    const live_range *const l = &b->live_range[x];
    if (l->now < 0) {
        return zero;
    }
    const event *const e = &b->event[l->now];
    const int v = b->graph->writer[x];
    if (e->stage != s || w < v) {
        return e->in;
    }
    if (w == v) {
        return e->during;
    }
    const bool destroyed = w < b->graph->op_count && is_destroyed(&b->graph->op[w], x);
    if (first) {
        return e->required && !destroyed ? one : e->out;
    }
    int r = e->first;
    while (r >= 0 && (b->pairs->pair[b->reader[r].pair].op < w + (destroyed ? 1 : 0))) {
        r = b->reader[r].next;
    }
    return r >= 0 ? b->reader[r].later : e->required ? one : e->out;
}

static void gather(builder *b, term t, double value, int row_start, double *constant)
{
    if (t.column < 0) {
        *constant += t.constant * value;
        return;
    }
    const int at = b->at[t.column];
    if (at >= row_start && at < b->entry_count && b->column[at] == t.column) {
        b->value[at] += value;
        return;
    }
    b->at[t.column] = b->entry_count;
    add_entry(b, t.column, value);
}

/* The row of one run; none when nothing in it is open. `pair` is -1 for a first run. */
static void add_memory_row(builder *b, ckpt_bytes limit, const int *live, int live_count, int s, int pair)
{
    const ckpt_graph *const g = b->graph;
    const int w = pair >= 0 ? b->pairs->pair[pair].op : s / b->pairs->passes;
    const ckpt_graph_op *const op = &g->op[w];
    const int start = b->entry_count;
    double constant = 0;
    double most = 0;
    for (int i = 0; i < live_count && !b->failed; i++) {
        const double bytes = (double)g->buffer[live[i]].bytes;
        if (bytes > 0) {
            gather(b, held(b, live[i], s, w, pair < 0), bytes / b->unit, start, &constant);
        }
    }
    if (pair >= 0) {
        gather(b, pair_term(b, pair), (double)op->workspace_bytes / b->unit, start, &constant);
        for (int i = 0; i < op->writes.count; i++) { /* what nobody needs later is there for the run itself */
            const int x = op->writes.at[i];
            if (b->live_range[x].now < 0) {
                gather(b, pair_term(b, pair), (double)g->buffer[x].bytes / b->unit, start, &constant);
            }
        }
    } else {
        constant += (double)op->workspace_bytes / b->unit;
        for (int i = 0; i < op->writes.count; i++) {
            constant += (double)g->buffer[op->writes.at[i]].bytes / b->unit;
        }
    }
    const double room = (double)limit / b->unit - constant;
    for (int i = start; i < b->entry_count; i++) {
        most += b->value[i];
    }
    if (room < -1e-9) {
        b->impossible = true;
    }
    if (most <= room || b->failed) {
        b->entry_count = start; /* never binding */
        return;
    }
    end_row(b, -HUGE_VAL, room);
}

static void add_memory(builder *b, ckpt_bytes limit, int *live)
{
    const ckpt_graph *const g = b->graph;
    int live_count = 0;
    for (int x = 0; x < g->buffer_count; x++) {
        b->live_range[x].now = b->live_range[x].first;
    }
    for (int s = 0; s < b->pairs->stages && !b->failed; s++) {
        const int t = s / b->pairs->passes;
        int kept = 0;
        for (int i = 0; i < live_count; i++) {
            live_range *const l = &b->live_range[live[i]];
            while (l->now >= 0 && b->event[l->now].stage < s) {
                l->now = b->event[l->now].next;
            }
            if (l->now >= 0) {
                live[kept++] = live[i];
            }
        }
        live_count = kept;
        for (int p = b->pairs->from[s]; p < b->pairs->from[s + 1] && !b->failed; p++) {
            if (b->pairs->pair[p].free || b->pairs->pair[p].runs) {
                add_memory_row(b, limit, live, live_count, s, p);
            }
        }
        if (ends_with_first_run(b, s) && t < g->op_count) {
            add_memory_row(b, limit, live, live_count, s, -1);
            for (int i = 0; i < g->op[t].writes.count; i++) {
                live[live_count++] = g->op[t].writes.at[i];
            }
        }
    }
}

/* ---- all of it ---- */

static void find_alone(builder *b)
{
    const ckpt_graph *const g = b->graph;
    for (int o = 0; o < g->op_count; o++) {
        int used = 0;
        for (int i = 0; i < g->op[o].writes.count; i++) {
            used += b->live_range[g->op[o].writes.at[i]].first >= 0;
        }
        for (int i = 0; i < g->op[o].writes.count; i++) {
            b->live_range[g->op[o].writes.at[i]].alone = used == 1;
        }
    }
}

static void add_pairs(builder *b, ckpt_ilp_model *model)
{
    const ckpt_graph *const g = b->graph;
    ckpt_ns most = 1;
    for (int o = 0; o < g->op_count; o++) {
        most = g->op[o].time_ns > most ? g->op[o].time_ns : most;
        model->fixed_ns += g->op[o].time_ns;
    }
    model->ns = (double)most / 1000;
    for (int p = 0; p < b->pairs->count; p++) {
        ckpt_ilp_pair *const pair = &b->pairs->pair[p];
        const ckpt_ns time = g->op[pair->op].time_ns;
        pair->column = pair->free ? add_column(b, 0, p).column : -1;
        model->fixed_ns += !pair->free && pair->runs ? time : 0;
    }
}

/* N[v] = sum over stages of R[t,v]: to branch on whether an op is recomputed at all says more than in which stage. */
static void add_counts(builder *b, const ckpt_ilp_model *model)
{
    const ckpt_graph *const g = b->graph;
    int *const next = CKPT_NEW(&b->scratch, int, b->pairs->count);
    int *const first = CKPT_NEW(&b->scratch, int, g->op_count);
    if (next == NULL || first == NULL) {
        b->failed = true;
        return;
    }
    for (int p = b->pairs->count - 1; p >= 0; p--) {
        const int v = b->pairs->pair[p].op;
        if (b->pairs->pair[p].free) {
            next[p] = first[v] - 1;
            first[v] = p + 1;
        }
    }
    for (int v = 0; v < g->op_count && !b->failed; v++) {
        if (first[v] == 0) {
            continue;
        }
        const term count = add_column(b, (double)g->op[v].time_ns / model->ns, CKPT_ILP_COUNT);
        if (b->failed) {
            return;
        }
        add_entry(b, count.column, -1);
        for (int p = first[v] - 1; p >= 0; p = next[p]) {
            add_entry(b, b->pairs->pair[p].column, 1);
        }
        end_row(b, 0, 0);
    }
}

static ckpt_code build(builder *b, ckpt_bytes limit, ckpt_ilp_model *model, ckpt_err *err)
{
    const ckpt_graph *const g = b->graph;
    b->live_range = CKPT_NEW(&b->scratch, live_range, g->buffer_count);
    int *const live = CKPT_NEW(&b->scratch, int, g->buffer_count);
    if (b->live_range == NULL || live == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "integer program of %d buffers", g->buffer_count);
    }
    for (int x = 0; x < g->buffer_count; x++) {
        b->live_range[x] = (live_range){.first = -1, .last = -1};
    }
    b->unit = limit > 0 ? (double)limit : 1;
    add_pairs(b, model);
    add_counts(b, model);
    find_events(b);
    find_alone(b);
    int *const order = CKPT_NEW(&b->scratch, int, b->event_count);
    for (int x = 0; x < g->buffer_count && order != NULL && !b->failed; x++) {
        bind_live_range(b, &b->live_range[x], order);
    }
    b->at = CKPT_NEW(&b->scratch, int, b->column_count);
    if (order == NULL || b->at == NULL || b->failed) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "integer program of %d columns", b->column_count);
    }
    add_memory(b, limit, live);
    const int rows = b->row_count;
    end_row(b, 0, 0); /* its start is the end of the last */
    double *const low = CKPT_NEW(b->out, double, b->column_count);
    double *const high = CKPT_NEW(b->out, double, b->column_count);
    bool *const integer = CKPT_NEW(b->out, bool, b->column_count);
    if (low == NULL || high == NULL || integer == NULL || b->failed) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "integer program of %d rows", rows);
    }
    for (int c = 0; c < b->column_count; c++) {
        high[c] = b->pair_of[c] == CKPT_ILP_COUNT ? b->graph->op_count + 1 : 1;
        integer[c] = b->pair_of[c] != CKPT_ILP_REAL;
    }
    /* a row was ended behind its entries: starts are those ends, one later */
    for (int r = rows; r > 0; r--) {
        b->start[r] = b->start[r - 1];
    }
    b->start[0] = 0;
    model->program = (ckpt_program){.columns = b->column_count,
                                    .rows = rows,
                                    .cost = b->cost,
                                    .low = low,
                                    .high = high,
                                    .integer = integer,
                                    .row_low = b->row_low,
                                    .row_high = b->row_high,
                                    .start = b->start,
                                    .column = b->column,
                                    .value = b->value};
    model->pair_of = b->pair_of;
    model->impossible = b->impossible;
    return CKPT_OK;
}

ckpt_code ckpt_ilp_model_build(const ckpt_graph *graph, ckpt_bytes limit, ckpt_ilp_pairs *pairs, ckpt_arena *out,
                               ckpt_ilp_model *model, ckpt_err *err)
{
    builder b = {.graph = graph, .pairs = pairs, .out = out};
    ckpt_arena_init(&b.scratch);
    *model = (ckpt_ilp_model){0};
    const ckpt_code code = build(&b, limit, model, err);
    ckpt_arena_fini(&b.scratch);
    return code;
}

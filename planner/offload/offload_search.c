/* Local search over {keep, recompute, offload} for every gap between two uses of a buffer: simulated annealing with
 * threshold acceptance (Dueck and Scheuer, J. Comput. Phys. 90, 1990), each schedule laid out and simulated whole.
 *
 * A schedule that does not fit is repaired first: gaps over the run that exceeds the limit most are marked (or, without
 * copies, recomputed), those first that lie under most of the excess per byte, so that what is copied is worth it.
 * What is chosen together here was solved for chains by Beaumont, Eyraud-Dubois and Shilova, "Efficient combination of
 * rematerialization and offloading for training DNNs", NeurIPS 2021. */
#include <string.h>

#include "planner/offload/offload_impl.h"

enum {
    DRAWS = 24,   /* tries to hit a gap that means something */
    CLOSURE = 48, /* ops that are recomputed together, at most */
    POLL = 256,   /* tries between two looks at the clock */
    REPAIRS = 12, /* recomputations that one repair adds, at most */
};

ckpt_code ckpt_offload_search_start(ckpt_offload_search *s, int runs, int uses, ckpt_arena *scratch, ckpt_err *err)
{
    CKPT_TRY(ckpt_offload_start(&s->look, runs, uses, scratch, err));
    s->now.run = CKPT_NEW(scratch, ckpt_marked_run, runs);
    s->tried.run = CKPT_NEW(scratch, ckpt_marked_run, runs);
    s->best.run = CKPT_NEW(scratch, ckpt_marked_run, runs);
    s->excess = CKPT_NEW(scratch, double, runs + 1);
    s->stamp = CKPT_NEW(scratch, int, s->look.graph->op_count);
    s->added = CKPT_NEW(scratch, int, CLOSURE);
    s->spans = CKPT_NEW(scratch, bool, s->look.graph->buffer_count);
    if (s->now.run == NULL || s->tried.run == NULL || s->best.run == NULL || s->excess == NULL || s->stamp == NULL ||
        s->added == NULL || s->spans == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "offload search of %d runs", runs);
    }
    for (int o = 0; o < s->look.graph->op_count; o++) {
        s->least_ns += s->look.graph->op[o].time_ns; /* sums were checked with the graph */
    }
    s->now_ns = s->best_ns = INT64_MAX;
    s->random = UINT64_C(0x9E3779B97F4A7C15);
    return CKPT_OK;
}

/* xorshift64*: Vigna, ACM TOMS 42(4), 2016. 0 .. sides - 1. */
static int draw(ckpt_offload_search *s, int sides)
{
    s->random ^= s->random >> 12;
    s->random ^= s->random << 25;
    s->random ^= s->random >> 27;
    return (int)((s->random * UINT64_C(2685821657736338717) >> 33) % (uint64_t)sides);
}

void ckpt_marked_copy(ckpt_marked *to, const ckpt_marked *from)
{
    to->count = from->count;
    to->lead_ns = from->lead_ns;
    memcpy(to->run, from->run, (size_t)from->count * sizeof *to->run);
}

/* --- repair --- */

static void sum_excess(ckpt_offload_search *s, int count)
{
    const ckpt_offload *const o = &s->look;
    s->excess[0] = 0;
    for (int t = 0; t < count; t++) {
        const ckpt_bytes over = o->base[t] > o->limit ? o->base[t] - o->limit : 0;
        s->excess[t + 1] = s->excess[t] + (double)over;
    }
}

/* Which buffers are on the host, and their bytes. */
static void sum_host(ckpt_offload *o, const ckpt_marked *m)
{
    memset(o->on_host, 0, (size_t)o->graph->buffer_count * sizeof *o->on_host);
    o->host_bytes = 0;
    for (int t = 0; t < m->count; t++) {
        const ckpt_graph_op *const op = &o->graph->op[m->run[t].op];
        for (int k = 0; k < CKPT_MARKS && m->run[t].leaves >> k != 0; k++) {
            const bool marked = (m->run[t].leaves >> k & 1) != 0 && k < op->reads.count + op->writes.count;
            const int b = marked ? ckpt_offload_buffer(op, k) : -1;
            const int next = marked ? o->next[o->first[t] + k] : -1;
            if (next > t + 1 && next < m->count && o->movable[b] && !o->on_host[b]) {
                o->on_host[b] = true;
                o->host_bytes += o->graph->buffer[b].bytes;
            }
        }
    }
}

static bool may_mark(const ckpt_offload *o, const ckpt_marked *m, int t, int k, int b)
{
    return o->movable[b] && (m->run[t].leaves >> k & 1) == 0 &&
           (o->on_host[b] || o->graph->buffer[b].bytes <= o->host_limit - o->host_bytes);
}

/* A gap over `at` that could be marked, with the largest part of the excess under it per byte; -1: none. */
static int choose_gap(ckpt_offload_search *s, const ckpt_marked *m, int at, bool copies, int *use)
{
    const ckpt_offload *const o = &s->look;
    const double worst = (double)(o->base[at] - o->limit);
    double best = 0;
    int found = -1;
    for (int t = 0; t < at; t++) {
        const ckpt_graph_op *const op = &o->graph->op[m->run[t].op];
        const int keys = op->reads.count + op->writes.count;
        for (int k = 0; k < keys && k < CKPT_MARKS; k++) {
            const int next = o->next[o->first[t] + k];
            const int b = next > at && next < m->count ? ckpt_offload_buffer(op, k) : -1;
            if (b < 0 || !(copies ? may_mark(o, m, t, k, b) : o->graph->op[o->graph->writer[b]].recompute)) {
                continue;
            }
            const double bytes = (double)o->graph->buffer[b].bytes;
            const double under = (s->excess[next] - s->excess[t + 1]) / (bytes > worst ? bytes : worst);
            const double score = (under + 1e-9) * (1.0 + 0.3 * draw(s, 1024) / 1024.0);
            if (bytes > 0 && score > best) {
                best = score;
                found = t;
                *use = k;
            }
        }
    }
    return found;
}

/* The same as ckpt_offload_look, when the only change was to mark use k of run t. */
static void apply_mark(ckpt_offload *o, const ckpt_marked *m, int t, int k)
{
    const int b = ckpt_offload_buffer(&o->graph->op[m->run[t].op], k);
    const int next = o->next[o->first[t] + k];
    for (int u = t + 1; u < next; u++) {
        o->base[u] -= o->graph->buffer[b].bytes;
    }
    o->peak = 0;
    for (int u = 0; u < m->count; u++) {
        if (o->base[u] > o->peak) {
            o->peak = o->base[u];
            o->peak_run = u;
        }
    }
}

static bool repair_by_copies(ckpt_offload_search *s, ckpt_marked *m)
{
    ckpt_offload *const o = &s->look;
    sum_host(o, m);
    while (o->peak > o->limit) {
        int k = 0;
        sum_excess(s, m->count);
        const int t = choose_gap(s, m, o->peak_run, true, &k);
        if (t < 0) {
            return false;
        }
        const int b = ckpt_offload_buffer(&o->graph->op[m->run[t].op], k);
        m->run[t].leaves |= UINT64_C(1) << k;
        o->host_bytes += o->on_host[b] ? 0 : o->graph->buffer[b].bytes;
        o->on_host[b] = true;
        apply_mark(o, m, t, k);
    }
    return ckpt_offload_look(o, m);
}

/* --- recomputation --- */

static void insert_run(ckpt_marked *m, int at, int op)
{
    memmove(&m->run[at + 1], &m->run[at], (size_t)(m->count - at) * sizeof *m->run);
    m->run[at] = (ckpt_marked_run){op, 0, 0};
    m->count++;
}

static void remove_run(ckpt_marked *m, int at)
{
    memmove(&m->run[at], &m->run[at + 1], (size_t)(m->count - at - 1) * sizeof *m->run);
    m->count--;
}

/* Ops to run, after what they read, so that op's results are there; most of what is not there is recomputed too, the
 * rest is kept from where it was used last. False when something must not be recomputed. */
static bool add_closure(ckpt_offload_search *s, int o, int *count)
{
    const ckpt_graph_op *const op = &s->look.graph->op[o];
    if (s->stamp[o] == s->closure) {
        return true;
    }
    s->stamp[o] = s->closure;
    if (!op->recompute || op->adds.count > 0) {
        return false;
    }
    for (int i = 0; i < op->reads.count; i++) {
        const int b = op->reads.at[i];
        const int writer = s->look.graph->writer[b];
        if (!s->spans[b] && s->look.graph->op[writer].recompute && draw(s, 8) > 0 && *count < CLOSURE - 1 &&
            !add_closure(s, writer, count)) {
            return false;
        }
    }
    if (*count == CLOSURE) {
        return false;
    }
    s->added[(*count)++] = o;
    return true;
}

/* Recompute buffer b before run `at`; the tables must be those of `m`. */
static bool insert_closure(ckpt_offload_search *s, ckpt_marked *m, int b, int at)
{
    const ckpt_offload *const o = &s->look;
    memset(s->spans, 0, (size_t)o->graph->buffer_count * sizeof *s->spans);
    for (int t = 0; t < at; t++) {
        const ckpt_graph_op *const op = &o->graph->op[m->run[t].op];
        for (int k = 0; k < op->reads.count + op->writes.count; k++) {
            if (o->next[o->first[t] + k] >= at) {
                s->spans[ckpt_offload_buffer(op, k)] = true;
            }
        }
    }
    int count = 0;
    s->closure++;
    if (!add_closure(s, o->graph->writer[b], &count) || m->count + count > o->runs_room) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        insert_run(m, at + i, s->added[i]);
    }
    return true;
}

static bool repair_by_runs(ckpt_offload_search *s, ckpt_marked *m)
{
    ckpt_offload *const o = &s->look;
    for (int i = 0; o->peak > o->limit; i++) {
        int k = 0;
        sum_excess(s, m->count);
        const int t = i < REPAIRS ? choose_gap(s, m, o->peak_run, false, &k) : -1;
        if (t < 0) {
            return false;
        }
        const int b = ckpt_offload_buffer(&o->graph->op[m->run[t].op], k);
        if (!insert_closure(s, m, b, o->next[o->first[t] + k]) || !ckpt_offload_look(o, m)) {
            return false;
        }
    }
    return true;
}

/* --- schedules --- */

ckpt_ns ckpt_offload_search_fit(ckpt_offload_search *s)
{
    if (!ckpt_offload_look(&s->look, &s->tried)) {
        return INT64_MAX;
    }
    const bool fits =
        s->look.peak <= s->look.limit ||
        (s->look.mode == CKPT_OFFLOAD_RECOMPUTE ? repair_by_runs(s, &s->tried) : repair_by_copies(s, &s->tried));
    return fits && ckpt_offload_lay(&s->look, &s->tried) ? s->look.time : INT64_MAX;
}

static ckpt_ns evaluate(ckpt_offload_search *s)
{
    s->tries--;
    return ckpt_offload_search_fit(s);
}

/* Marks of gaps that nothing had to leave for. */
static bool clear_unused(ckpt_offload_search *s, ckpt_marked *m)
{
    const ckpt_offload *const o = &s->look;
    bool cleared = false;
    for (int t = 0; t < m->count; t++) {
        for (int k = 0; m->run[t].leaves >> k != 0; k++) {
            const int use = o->first[t] + k;
            const int g = use < o->first[t + 1] && (m->run[t].leaves >> k & 1) != 0 ? o->begun[use] : -1;
            if ((m->run[t].leaves >> k & 1) != 0 && (g < 0 || !o->gap[g].freed)) {
                m->run[t].leaves &= ~(UINT64_C(1) << k);
                cleared = true;
            }
            if (k == CKPT_MARKS - 1) {
                break;
            }
        }
    }
    return cleared;
}

/* `tried`, which takes `time`, is the new `now`. */
static void accept(ckpt_offload_search *s, ckpt_ns time)
{
    ckpt_marked_copy(&s->now, &s->tried);
    s->now_ns = time;
    if (time >= s->best_ns) {
        return;
    }
    ckpt_marked_copy(&s->best, &s->tried);
    s->best_ns = time;
    if (clear_unused(s, &s->tried)) {
        const ckpt_ns cleared = evaluate(s);
        if (cleared <= time) {
            ckpt_marked_copy(&s->now, &s->tried);
            ckpt_marked_copy(&s->best, &s->tried);
            s->now_ns = s->best_ns = cleared;
        }
    }
}

void ckpt_offload_search_begin(ckpt_offload_search *s)
{
    const ckpt_ns time = evaluate(s);
    if (time < s->now_ns) {
        accept(s, time);
    }
}

/* Each buffer's last use is marked when a free comes behind it. `left` holds those uses as run and key. */
static void read_entry(ckpt_offload_search *s, int entry)
{
    ckpt_offload *const o = &s->look;
    ckpt_marked *const m = &s->tried;
    int target = 0;
    const ckpt_step_kind kind = ckpt_sequence_kind(entry, &target);
    if (kind == CKPT_RUN) {
        const ckpt_graph_op *const op = &o->graph->op[target];
        for (int k = 0; k < op->reads.count + op->writes.count; k++) {
            o->next_use[ckpt_offload_buffer(op, k)] = m->count;
            o->left[ckpt_offload_buffer(op, k)] = k;
        }
        m->run[m->count++] = (ckpt_marked_run){target, 0, 0};
    } else if (kind == CKPT_FREE && o->left[target] >= 0 && o->left[target] < CKPT_MARKS) {
        m->run[o->next_use[target]].leaves |= UINT64_C(1) << o->left[target];
    }
}

void ckpt_offload_search_offer(ckpt_offload_search *s, const ckpt_sequence *sequence)
{
    if (sequence->count > s->look.runs_room) {
        return;
    }
    s->tried.count = 0;
    s->tried.lead_ns = 0;
    memset(s->look.left, 0xFF, (size_t)s->look.graph->buffer_count * sizeof *s->look.left); /* -1 */
    for (int t = 0; t < sequence->count; t++) {
        read_entry(s, sequence->op[t]);
    }
    ckpt_offload_search_begin(s);
}

/* --- moves --- */

/* A random use of a random run with a gap behind it in `m`, whose tables there are. */
static bool draw_gap(ckpt_offload_search *s, const ckpt_marked *m, int *t, int *k)
{
    const ckpt_offload *const o = &s->look;
    for (int i = 0; i < DRAWS; i++) {
        *t = draw(s, m->count);
        const ckpt_graph_op *const op = &o->graph->op[m->run[*t].op];
        const int keys =
            op->reads.count + op->writes.count < CKPT_MARKS ? op->reads.count + op->writes.count : CKPT_MARKS;
        *k = keys > 0 ? draw(s, keys) : -1;
        const int next = *k >= 0 ? o->next[o->first[*t] + *k] : -1;
        if (next > *t + 1 && next < m->count) {
            return true;
        }
    }
    return false;
}

static bool mark_random(ckpt_offload_search *s, ckpt_marked *m)
{
    int t = 0, k = 0;
    if (!draw_gap(s, m, &t, &k) || !s->look.movable[ckpt_offload_buffer(&s->look.graph->op[m->run[t].op], k)]) {
        return false;
    }
    m->run[t].leaves ^= UINT64_C(1) << k;
    return true;
}

/* Clear the marks of a random run, and let the repair or a second mark choose others. */
static bool swap_marks(ckpt_offload_search *s, ckpt_marked *m)
{
    int marked = 0;
    int chosen = -1;
    for (int t = 0; t < m->count; t++) {
        if (m->run[t].leaves != 0 && draw(s, ++marked) == 0) {
            chosen = t;
        }
    }
    if (chosen < 0) {
        return false;
    }
    m->run[chosen].leaves = 0;
    return draw(s, 2) == 0 || mark_random(s, m);
}

/* A run that is not its op's first, at random; -1: there is none. */
static int draw_recomputed(ckpt_offload_search *s, const ckpt_marked *m)
{
    int found = 0;
    int chosen = -1;
    int next = 0; /* first runs come in reference order */
    for (int t = 0; t < m->count; t++) {
        if (m->run[t].op == next) {
            next++;
        } else if (draw(s, ++found) == 0) {
            chosen = t;
        }
    }
    return chosen;
}

/* Run one op less; `mark`: what it wrote comes from the host instead. */
static bool drop_recomputed(ckpt_offload_search *s, ckpt_marked *m, bool mark)
{
    const int t = draw_recomputed(s, m);
    if (t < 0) {
        return false;
    }
    const ckpt_graph_op *const op = &s->look.graph->op[m->run[t].op];
    for (int i = 0; mark && i < op->writes.count; i++) {
        const int b = op->writes.at[i];
        for (int u = t - 1; u >= 0; u--) { /* its last use before */
            const ckpt_graph_op *const user = &s->look.graph->op[m->run[u].op];
            int k = user->reads.count + user->writes.count - 1;
            while (k >= 0 && ckpt_offload_buffer(user, k) != b) {
                k--;
            }
            if (k >= 0) {
                m->run[u].leaves |= k < CKPT_MARKS ? UINT64_C(1) << k : 0;
                break;
            }
        }
    }
    remove_run(m, t);
    return true;
}

static bool recompute_random(ckpt_offload_search *s, ckpt_marked *m)
{
    int t = 0, k = 0;
    if (!draw_gap(s, m, &t, &k)) {
        return false;
    }
    const int b = ckpt_offload_buffer(&s->look.graph->op[m->run[t].op], k);
    const int at = s->look.next[s->look.first[t] + k];
    m->run[t].leaves &= ~(UINT64_C(1) << k);
    return insert_closure(s, m, b, at);
}

/* Start the offload of something later or earlier. */
static bool delay_random(ckpt_offload_search *s, ckpt_marked *m)
{
    for (int i = 0; i < DRAWS; i++) {
        const int t = draw(s, m->count);
        const uint64_t goes = s->look.goes[t];
        const int k = draw(s, CKPT_MARKS);
        for (int turn = 0; goes != 0 && turn < CKPT_MARKS; turn++) {
            const uint64_t bit = UINT64_C(1) << (k + turn) % CKPT_MARKS;
            if ((goes & bit) != 0) {
                m->run[t].late ^= bit;
                return true;
            }
        }
    }
    return false;
}

static bool change_lead(ckpt_offload_search *s, ckpt_marked *m)
{
    static const int share[] = {0, 64, 16, 4, 1};
    const int i = draw(s, 5);
    const ckpt_ns lead = share[i] > 0 ? s->now_ns / share[i] : 0;
    const bool changed = lead != m->lead_ns;
    m->lead_ns = lead;
    return changed;
}

static bool move(ckpt_offload_search *s, ckpt_marked *m)
{
    const int kind = draw(s, 100);
    if (s->look.mode == CKPT_OFFLOAD_RECOMPUTE) {
        return kind < 50 ? drop_recomputed(s, m, false) : recompute_random(s, m);
    }
    if (kind < 4) {
        return change_lead(s, m);
    }
    if (kind < 10) {
        return delay_random(s, m);
    }
    if (s->look.mode == CKPT_OFFLOAD_COPIES || kind < 50) {
        return kind < 25 || kind % 2 == 0 ? mark_random(s, m) : swap_marks(s, m);
    }
    return kind < 75 ? drop_recomputed(s, m, kind % 2 == 0) : recompute_random(s, m);
}

void ckpt_offload_search_run(ckpt_offload_search *s, int64_t tries)
{
    if (s->now_ns == INT64_MAX || tries <= 0 || s->look.graph->op_count == 0) {
        return;
    }
    const int64_t end = s->tries > tries ? s->tries - tries : 0;
    const int64_t all = s->tries - end;
    int64_t polled = s->tries;
    const ckpt_ns hot = s->least_ns / s->look.graph->op_count; /* what may be lost at the start: a mean op */
    while (s->tries > end && s->best_ns > s->least_ns) {
        ckpt_marked_copy(&s->tried, &s->now);
        s->tries--;
        if (!ckpt_offload_look(&s->look, &s->tried) || !move(s, &s->tried)) {
            continue;
        }
        s->tries++;
        const ckpt_ns time = evaluate(s);
        const double left = (double)(s->tries - end) / (double)all;
        const ckpt_ns slack = (ckpt_ns)((double)hot * left * left * draw(s, 1024) / 1024.0 + 0.5);
        if (time < INT64_MAX && time - slack <= s->now_ns) {
            accept(s, time);
        }
        if (polled - s->tries >= POLL) {
            polled = s->tries;
            if (ckpt_plan_stopped(s->options)) {
                return;
            }
        }
    }
}

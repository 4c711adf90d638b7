/* labels: unit */
/* Keep, recompute or offload: against the true optimum of tiny chains, found by trying every run and every copy at
 * every moment; plans of random steps through the checker, a plain replay and a second clock; limits of the host. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/api/planner.h"
#include "planner/offload/offload.h"
#include "planner/replay/replay.h"
#include "tests/support/support_graphs.h"
#include "tests/support/support_sequence.h"
#include "tests/support/support_test.h"

/* --- the true optimum --- */

enum { BUFFERS_MAX = 12, STATES_MAX = 300000, HEAP_MAX = 1 << 21, TOO_MANY = -2 };

/* Where a schedule stands; times are what is still to come after `now`, so that equal situations are equal states. */
typedef struct situation {
    uint16_t memory, host;
    uint8_t next;                                    /* op whose first run is due */
    uint8_t d2h, h2d;                                /* until the engine is free */
    uint8_t written[BUFFERS_MAX], read[BUFFERS_MAX]; /* until the copy has arrived, has been taken */
} situation;

typedef struct waiting {
    int key, state;
} waiting;

typedef struct brute {
    const ckpt_graph *graph;
    ckpt_bytes limit, host_limit;
    bool recomputed, copies, full;
    situation *seen;
    int *now;      /* per state: when */
    waiting *heap; /* by now + what must still run */
    bool *closed;
    int *table;
    size_t *slot; /* per state: where it is in the table */
    int count, heap_count;
    int below;           /* only what is faster is looked for */
    int rest[64];        /* per op: time of it and all after it */
    unsigned due[64];    /* per op: what it or one after it uses and has been written before it */
    unsigned needed[64]; /* per op: buffers that it or one after it may still want, by way of recomputations too */
} brute;

/* No schedule through a situation ends earlier: what must run, now and again, and the copies under way. INT32_MAX: it
 * leads nowhere. */
static int least_end(const brute *b, const situation *s, int now)
{
    const unsigned there = (unsigned)s->memory | s->host;
    unsigned missing = b->due[s->next] & ~there;
    int rest = b->rest[s->next];
    for (int o = s->next - 1; o >= 0; o--) {
        const ckpt_graph_op *const op = &b->graph->op[o];
        bool runs = false;
        for (int i = 0; i < op->writes.count; i++) {
            runs = runs || (missing >> op->writes.at[i] & 1) != 0;
        }
        if (runs && (!b->recomputed || !op->recompute)) {
            return INT32_MAX;
        }
        for (int i = 0; runs && i < op->reads.count; i++) {
            missing |= (1u << op->reads.at[i]) & ~there;
        }
        rest += runs ? (int)op->time_ns : 0;
    }
    int up = s->h2d;
    for (int i = 0; i < b->graph->buffer_count; i++) { /* what cannot be run again must be fetched */
        const bool away = (b->due[s->next] & ~(unsigned)s->memory) >> i & 1;
        up += away && !b->recomputed ? (int)(b->graph->buffer[i].bytes * 1000000000 / b->graph->h2d_bytes_per_s) : 0;
    }
    rest = s->d2h > rest ? s->d2h : rest;
    return now + (up > rest ? up : rest);
}

static void heap_push(brute *b, int s)
{
    const waiting pushed = {least_end(b, &b->seen[s], b->now[s]), s};
    if (b->heap_count == HEAP_MAX) {
        b->full = true;
        return;
    }
    int at = b->heap_count++;
    for (; at > 0 && b->heap[(at - 1) / 2].key > pushed.key; at = (at - 1) / 2) {
        b->heap[at] = b->heap[(at - 1) / 2];
    }
    b->heap[at] = pushed;
}

static int heap_pop(brute *b)
{
    const int top = b->heap[0].state;
    const waiting moved = b->heap[--b->heap_count];
    int at = 0;
    for (int child = 1; child < b->heap_count; child = 2 * at + 1) {
        child += child + 1 < b->heap_count && b->heap[child + 1].key < b->heap[child].key;
        if (b->heap[child].key >= moved.key) {
            break;
        }
        b->heap[at] = b->heap[child];
        at = child;
    }
    b->heap[at] = moved;
    return top;
}

/* What nobody will want goes when that costs nothing, from the host too: no schedule is lost, and states are fewer. */
static void visit(brute *b, const situation *stands, int now)
{
    situation clean = *stands;
    const situation *const s = &clean;
    for (int i = 0; i < b->graph->buffer_count; i++) {
        if ((b->needed[s->next] >> i & 1) == 0 && s->written[i] == 0 && s->read[i] == 0) {
            clean.memory = (uint16_t)(clean.memory & ~(1u << i));
            clean.host = (uint16_t)(clean.host & ~(1u << i));
        }
    }
    if (least_end(b, s, now) >= b->below) {
        return;
    }
    uint64_t word[sizeof *s / sizeof(uint64_t)];
    memcpy(word, s, sizeof *s);
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof word / sizeof *word; i++) {
        hash = (hash ^ word[i]) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 29;
    }
    size_t at = (size_t)(hash >> 20) % (2 * STATES_MAX);
    while (b->table[at] >= 0 && memcmp(&b->seen[b->table[at]], s, sizeof *s) != 0) {
        at = (at + 1) % (2 * STATES_MAX);
    }
    if (b->table[at] < 0) {
        if (b->count == STATES_MAX) {
            b->full = true;
            return;
        }
        b->table[at] = b->count;
        b->slot[b->count] = at;
        b->seen[b->count] = *s;
        b->closed[b->count] = false;
        b->now[b->count++] = INT32_MAX;
    }
    if (now < b->now[b->table[at]]) {
        b->now[b->table[at]] = now; /* what is in the heap for it already comes later and is skipped */
        heap_push(b, b->table[at]);
    }
}

static uint8_t later(int time, int passed)
{
    return (uint8_t)(time > passed ? time - passed : 0);
}

static void pass(situation *s, int time)
{
    s->d2h = later(s->d2h, time);
    s->h2d = later(s->h2d, time);
    for (int i = 0; i < BUFFERS_MAX; i++) {
        s->written[i] = later(s->written[i], time);
        s->read[i] = later(s->read[i], time);
    }
}

static ckpt_bytes live_bytes(const brute *b, unsigned memory)
{
    ckpt_bytes bytes = 0;
    for (int i = 0; i < b->graph->buffer_count; i++) {
        bytes += (memory >> i & 1) != 0 ? b->graph->buffer[i].bytes : 0;
    }
    return bytes;
}

static void try_run(brute *b, const situation *from, int now, int o)
{
    const ckpt_graph_op *const op = &b->graph->op[o];
    situation s = *from;
    int start = 0;
    bool wanted = o == s.next;
    for (int i = 0; i < op->writes.count; i++) {
        wanted = wanted || (b->needed[s.next] >> op->writes.at[i] & 1) != 0;
    }
    if (!wanted) {
        return;
    }
    for (int i = 0; i < op->reads.count; i++) {
        if ((s.memory >> op->reads.at[i] & 1) == 0) {
            return;
        }
        start = s.written[op->reads.at[i]] > start ? s.written[op->reads.at[i]] : start;
    }
    for (int i = 0; i < op->writes.count; i++) {
        if ((s.memory >> op->writes.at[i] & 1) != 0) {
            return;
        }
        s.memory = (uint16_t)(s.memory | 1u << op->writes.at[i]);
    }
    if (live_bytes(b, s.memory) + op->workspace_bytes > b->limit) {
        return;
    }
    s.next = (uint8_t)(s.next + (o == s.next));
    pass(&s, start + (int)op->time_ns);
    visit(b, &s, now + start + (int)op->time_ns);
}

static void try_buffer(brute *b, const situation *from, int now, int i)
{
    const ckpt_bytes bytes = b->graph->buffer[i].bytes;
    const int down = (int)(bytes * 1000000000 / (b->graph->has_link ? b->graph->d2h_bytes_per_s : 1));
    const int up = (int)(bytes * 1000000000 / (b->graph->has_link ? b->graph->h2d_bytes_per_s : 1));
    const bool here = (from->memory >> i & 1) != 0;
    const bool there = (from->host >> i & 1) != 0;
    if ((b->needed[from->next] >> i & 1) == 0) {
        return;
    }
    if (here && from->written[i] == 0) { /* fetched to be freed again is no use */
        situation s = *from;
        const int waits = s.read[i];
        s.memory = (uint16_t)(s.memory & ~(1u << i));
        pass(&s, waits);
        visit(b, &s, now + waits);
    }
    if (here && !there && b->copies && live_bytes(b, from->host) + bytes <= b->host_limit) {
        situation s = *from;
        const int start = s.d2h > s.written[i] ? s.d2h : s.written[i];
        assert_true(start + down < 256);
        s.d2h = s.read[i] = (uint8_t)(start + down);
        s.host = (uint16_t)(s.host | 1u << i);
        visit(b, &s, now);
    }
    if (!here && there && live_bytes(b, from->memory) + bytes <= b->limit) {
        situation s = *from;
        const int start = s.h2d > s.read[i] ? s.h2d : s.read[i];
        assert_true(start + up < 256);
        s.h2d = s.written[i] = (uint8_t)(start + up);
        s.memory = (uint16_t)(s.memory | 1u << i);
        visit(b, &s, now);
    }
}

static void find_needed(brute *b)
{
    const int ops = b->graph->op_count;
    for (int next = 0; next <= ops; next++) {
        unsigned needed = 0;
        for (int o = ops - 1; o >= 0; o--) { /* readers come after writers */
            const ckpt_graph_op *const op = &b->graph->op[o];
            bool runs = o >= next;
            for (int i = 0; i < op->writes.count; i++) {
                runs = runs || (b->recomputed && op->recompute && (needed >> op->writes.at[i] & 1) != 0);
            }
            for (int i = 0; runs && i < op->reads.count; i++) {
                needed |= 1u << op->reads.at[i];
            }
        }
        b->needed[next] = needed;
        b->due[next] = 0;
        for (int o = next; o < ops; o++) {
            for (int i = 0; i < b->graph->op[o].reads.count; i++) {
                const int read = b->graph->op[o].reads.at[i];
                b->due[next] |= b->graph->writer[read] < next ? 1u << read : 0;
            }
        }
    }
}

/* Least time within the limit, -1 when there is no schedule that is faster than `below`, TOO_MANY when it has too many
 * states: A* over all states, steps as docs/reference/formats.md allows them. */
static int brute_time(brute *b)
{
    const int ops = b->graph->op_count;
    assert_true(b->graph->buffer_count <= BUFFERS_MAX && ops < 60);
    b->rest[ops] = 0;
    for (int o = ops - 1; o >= 0; o--) {
        b->rest[o] = b->rest[o + 1] + (int)b->graph->op[o].time_ns;
    }
    for (int o = 0; o < ops; o++) {
        ckpt_bytes bytes = b->graph->op[o].workspace_bytes;
        for (int i = 0; i < b->graph->buffer_count; i++) {
            bool used = b->graph->writer[i] == o;
            for (int k = 0; k < b->graph->op[o].reads.count; k++) {
                used = used || b->graph->op[o].reads.at[k] == i;
            }
            bytes += used ? b->graph->buffer[i].bytes : 0;
        }
        if (bytes > b->limit) {
            return -1; /* it does not fit even alone */
        }
    }
    find_needed(b);
    while (b->count > 0) {
        b->table[b->slot[--b->count]] = -1;
    }
    b->heap_count = 0;
    b->full = false;
    const situation start = {0};
    int best = -1;
    visit(b, &start, 0);
    while (b->heap_count > 0 && !b->full) {
        const int at = heap_pop(b);
        const situation s = b->seen[at];
        const int now = b->now[at];
        if (best >= 0 && least_end(b, &s, now) >= best) {
            break;
        }
        if (b->closed[at]) {
            continue;
        }
        b->closed[at] = true;
        if (s.next == ops) { /* the copies that are under way count */
            const int end = now + (s.d2h > s.h2d ? s.d2h : s.h2d);
            best = best < 0 || end < best ? end : best;
            b->below = best;
            continue;
        }
        for (int o = 0; o <= s.next; o++) {
            if (o == s.next || (b->recomputed && b->graph->op[o].recompute)) {
                try_run(b, &s, now, o);
            }
        }
        for (int i = 0; i < b->graph->buffer_count; i++) {
            try_buffer(b, &s, now, i);
        }
    }
    return b->full ? TOO_MANY : best;
}

static void brute_take(brute *b, ckpt_arena *arena)
{
    b->seen = CKPT_NEW(arena, situation, STATES_MAX);
    b->now = CKPT_NEW(arena, int, STATES_MAX);
    b->heap = CKPT_NEW(arena, waiting, HEAP_MAX);
    b->closed = CKPT_NEW(arena, bool, STATES_MAX);
    b->table = CKPT_NEW(arena, int, 2 * STATES_MAX);
    b->slot = CKPT_NEW(arena, size_t, STATES_MAX);
    assert_true(b->seen != NULL && b->now != NULL && b->heap != NULL && b->closed != NULL && b->table != NULL &&
                b->slot != NULL);
    memset(b->table, 0xFF, 2 * STATES_MAX * sizeof *b->table);
}

/* --- strategies against it --- */

/* The fastest candidate of a strategy, -1: none. All are measured, within the limit, and legal. */
static ckpt_ns best_time(const ckpt_graph *graph, const char *name, ckpt_bytes limit, ckpt_bytes host, int effort,
                         const char *what)
{
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_err err = {0};
    const ckpt_plan_options options = {.effort = effort, .host_bytes = host};
    ckpt_candidates candidates = {.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
    CHECK_OK(ckpt_strategy_find(name)->plan(graph, limit, &options, &arena, &candidates, &err), err);
    for (int i = -1; i < candidates.count; i++) {
        const ckpt_candidate *const c = i < 0 ? &candidates.min_peak : &candidates.candidate[i];
        CHECK(i < 0 || c->peak <= limit, "%s, %s: candidate %d above the limit", what, name, i);
        const ckpt_plan *const plan = ckpt_test_plan(graph, &c->sequence, &arena, what);
        CHECK(plan->peak_bytes == graph->static_bytes + c->peak && plan->time_ns == c->time &&
                  ckpt_test_clock(graph, plan) == c->time,
              "%s, %s: candidate %d says %lld bytes, %lld ns; its steps %lld, %lld, second clock %lld", what, name, i,
              (long long)c->peak, (long long)c->time, (long long)(plan->peak_bytes - graph->static_bytes),
              (long long)plan->time_ns, (long long)ckpt_test_clock(graph, plan));
        CHECK(host == 0 || plan->host_bytes <= host, "%s, %s: %lld bytes on the host", what, name,
              (long long)plan->host_bytes);
    }
    const ckpt_ns best = candidates.count > 0 ? candidates.candidate[0].time : -1;
    ckpt_arena_fini(&arena);
    return best;
}

typedef struct tally {
    int instances, proved[3], fits[3], faster;
} tally;

/* Every limit from just below keep-all's peak down to where there is no schedule. What a strategy found is legal, so it
 * is optimal when nothing is faster. */
static void compare_chain(brute *b, const ckpt_graph *graph, const char *chain, int effort, tally *all)
{
    static const char *const names[] = {"joint", "offload-only", "recompute-only"};
    CKPT_TEST_ARENA(arena);
    ckpt_bytes whole = ckpt_test_keep_all(graph, &arena);
    whole -= graph->static_bytes;
    b->graph = graph;
    bool any = true;
    for (b->limit = whole - 1; b->limit > 0 && any; b->limit -= 3) {
        ckpt_ns best[3];
        for (int n = 0; n < 3; n++) {
            char what[120];
            snprintf(what, sizeof what, "%s, %lld of %lld", chain, (long long)b->limit, (long long)whole);
            best[n] = best_time(graph, names[n], b->limit, 0, effort, what);
            b->recomputed = n != 1;
            b->copies = n != 2;
            b->below = best[n] < 0 ? INT32_MAX : (int)best[n];
            const int found = brute_time(b);
            CHECK(found < 0, "%s: %s takes %lld, the optimum is %d", what, names[n], (long long)best[n], found);
            all->proved[n] += found != TOO_MANY && best[n] >= 0;
            all->fits[n] += best[n] >= 0;
            best[n] = best[n] < 0 ? INT64_MAX : best[n];
        }
        any = best[0] < INT64_MAX;
        all->instances += any;
        all->faster += best[0] < best[1] && best[0] < best[2];
    }
}

static void optimum_of_tiny_chains(void **state)
{
    ckpt_arena tables;
    ckpt_arena_init(&tables);
    brute b = {.graph = NULL, .host_limit = CKPT_BYTES_MAX};
    brute_take(&b, &tables);
    tally all = {0};
    const int seeds = (int)ckpt_test_rounds(18, 8);
    for (uint64_t seed = 1; seed <= (uint64_t)seeds; seed++) {
        CKPT_TEST_ARENA(arena);
        char what[60];
        const int blocks = seed % 4 == 0 ? 4 : 3;
        const int64_t d2h = 1000000000, h2d = seed % 2 == 0 ? 1000000000 : 500000000;
        snprintf(what, sizeof what, "seed %d, %d blocks", (int)seed, blocks);
        compare_chain(&b,
                      ckpt_test_variant(ckpt_test_chain(&arena, seed, blocks, 4, 1, 5), &arena, seed, false, d2h, h2d),
                      what, seed % 3 == 0 ? CKPT_EFFORT_NORMAL : CKPT_EFFORT_LOW, &all);
    }
    printf("%d chains and limits: joint optimal in %d of %d, offload-only %d of %d, recompute-only %d of %d (of the "
           "others "
           "the optimum is not known); joint is faster than both in %d\n",
           all.instances, all.proved[0], all.fits[0], all.proved[1], all.fits[1], all.proved[2], all.fits[2],
           all.faster);
    for (int n = 0; n < 3; n++) {
        CHECK(all.proved[n] >= 2 * seeds && 10 * all.proved[n] >= 9 * all.fits[n], "only %d of %d compared",
              all.proved[n], all.fits[n]);
    }
    CHECK(18 * all.faster > 8 * seeds, "joint is faster than both only %d times", all.faster);
    ckpt_arena_fini(&tables);
}

/* --- plans --- */

static const ckpt_graph *linked_step(ckpt_arena *arena, uint64_t seed, int forward_ops)
{
    /* 20 to 33 bytes take 1 ns: an op of 50 ns hides a buffer or two */
    return ckpt_test_variant(ckpt_test_step(arena, seed, forward_ops), arena, seed, seed % 2 == 0, 33000000000,
                             20000000000);
}

static void random_steps(void **state)
{
    int offloaded = 0, joint_fits = 0, others_fit = 0;
    const int seeds = (int)ckpt_test_rounds(12, 4);
    for (uint64_t seed = 1; seed <= (uint64_t)seeds; seed++) {
        CKPT_TEST_ARENA(arena);
        const ckpt_graph *const graph = linked_step(&arena, seed, 4 + (int)(seed * 5 % 20));
        ckpt_err err = {0};
        ckpt_bytes whole = 0;
        ckpt_ns once = 0;
        CHECK_OK(ckpt_keep_all_measure(graph, &arena, &whole, &once, &err), err);
        for (int percent = 90; percent >= 30; percent -= 20) {
            static const char *const names[] = {"joint", "offload-only", "recompute-only"};
            ckpt_ns time[3];
            for (int n = 0; n < 3; n++) {
                char what[80];
                snprintf(what, sizeof what, "seed %d, %s, %d %%", (int)seed, names[n], percent);
                ckpt_plan *plan = NULL;
                const ckpt_plan_options options = {.budget_bytes = whole * percent / 100};
                CHECK_OK(ckpt_plan_make(graph, names[n], &options, &arena, &plan, &err), err);
                if (plan->verdict == CKPT_FITS) {
                    ckpt_test_replay(graph, plan, what);
                    CHECK(plan->time_ns >= once, "%s: faster than keep-all", what);
                }
                time[n] = plan->verdict == CKPT_FITS ? plan->time_ns : INT64_MAX;
                offloaded += n == 0 && plan->offload_bytes > 0;
                CHECK(n != 1 || plan->recompute_ns == 0, "%s recomputes", what);
                CHECK(n != 2 || plan->offload_bytes == 0, "%s offloads", what);
            }
            CHECK(time[0] <= time[1] && time[0] <= time[2], "seed %d, %d %%: joint %lld, alone %lld and %lld",
                  (int)seed, percent, (long long)time[0], (long long)time[1], (long long)time[2]);
            joint_fits += time[0] < INT64_MAX;
            others_fit += time[2] < INT64_MAX;
        }
    }
    CHECK(12 * offloaded > 15 * seeds && joint_fits + (seeds < 12) > others_fit,
          "%d plans offload; %d fit, by recomputation %d", offloaded, joint_fits, others_fit);
}

static void limits_of_the_host(void **state)
{
    int slower = 0;
    const int seeds = (int)ckpt_test_rounds(8, 3);
    for (uint64_t seed = 1; seed <= (uint64_t)seeds; seed++) {
        CKPT_TEST_ARENA(arena);
        const ckpt_graph *const graph = linked_step(&arena, seed, 12);
        const ckpt_bytes whole = ckpt_test_keep_all(graph, &arena);
        const ckpt_bytes limit = (whole - graph->static_bytes) * 6 / 10;
        ckpt_ns before = 0;
        for (ckpt_bytes host = 8000; host >= 500; host /= 2) { /* best_time checks what is on the host */
            char what[60];
            snprintf(what, sizeof what, "seed %d, %lld on the host", (int)seed, (long long)host);
            const ckpt_ns time = best_time(graph, "joint", limit, host, 0, what);
            (void)best_time(graph, "offload-only", limit, host, 0, what);
            slower += before > 0 && (time < 0 || time > before);
            before = time;
        }
    }
    CHECK(8 * slower > 5 * seeds, "less room on the host made only %d schedules slower", slower);
}

/* Without a link nothing is offloaded, whatever is asked; with one the same is found twice. */
static void links(void **state)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_graph *const graph = linked_step(&arena, 4, 20);
    ckpt_graph alone = *graph;
    alone.has_link = false;
    ckpt_err err = {0};
    const ckpt_bytes whole = ckpt_test_keep_all(graph, &arena);
    const ckpt_plan_options options = {.budget_bytes = whole * 6 / 10};
    static const char *const names[] = {"joint", "offload-only", "auto"};
    for (int n = 0; n < 3; n++) {
        ckpt_plan *plan = NULL, *recomputed = NULL;
        CHECK_OK(ckpt_plan_make(&alone, names[n], &options, &arena, &plan, &err), err);
        assert_int_equal(plan->offload_bytes, 0);
        CHECK_OK(ckpt_plan_make(graph, names[n], &options, &arena, &plan, &err), err);
        CHECK(plan->verdict == CKPT_FITS && plan->offload_bytes > 0, "%s offloads nothing", names[n]);
        CHECK_OK(ckpt_plan_make(graph, names[n], &options, &arena, &recomputed, &err), err);
        ckpt_text text[2];
        for (int i = 0; i < 2; i++) {
            ckpt_plan *const written = i == 0 ? plan : recomputed;
            written->solver_seconds = 0;
            ckpt_text_init(&text[i]);
            ckpt_plan_write(written, &text[i]);
        }
        assert_string_equal(text[0].bytes, text[1].bytes);
        ckpt_text_fini(&text[0]);
        ckpt_text_fini(&text[1]);
    }
}

/* Sizes, times and a link so slow that copies do not fit 63 bits: plans without them, or a refusal. */
static void slow_link(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_graph graph = *ckpt_test_chain(&arena, 3, 8, 9, (ckpt_bytes)1 << 50, 9);
    graph.has_link = true;
    graph.d2h_bytes_per_s = graph.h2d_bytes_per_s = 1;
    ckpt_err err = {0};
    const ckpt_bytes whole = ckpt_test_keep_all(&graph, &arena);
    const ckpt_plan_options options = {.budget_bytes = whole / 10 * 9};
    ckpt_plan *plan = NULL;
    CHECK_OK(ckpt_plan_make(&graph, "joint", &options, &arena, &plan, &err), err);
    assert_int_equal(plan->verdict, CKPT_FITS);
    assert_int_equal(plan->offload_bytes, 0);
}

typedef struct starved {
    const ckpt_graph *graph;
    ckpt_offload_mode mode;
    ckpt_bytes limit;
} starved;

static ckpt_code improve_starved(void *context, ckpt_arena *arena, ckpt_err *err)
{
    const starved *const s = context;
    const ckpt_plan_options options = {.effort = CKPT_EFFORT_LOW};
    ckpt_candidates candidates = {.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
    return ckpt_offload_improve(s->graph, s->limit, s->mode, 100, &options, arena, &candidates, err);
}

static void no_memory(void **state)
{
    CKPT_TEST_ARENA(arena);
    const ckpt_graph *const graph = linked_step(&arena, 4, 8);
    const ckpt_bytes whole = ckpt_test_keep_all(graph, &arena);
    for (int mode = CKPT_OFFLOAD_JOINT; mode <= CKPT_OFFLOAD_RECOMPUTE; mode++) {
        starved s = {graph, (ckpt_offload_mode)mode, (whole - graph->static_bytes) * 7 / 10};
        ckpt_test_starve_arena(improve_starved, &s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(optimum_of_tiny_chains),
        cmocka_unit_test(random_steps),
        cmocka_unit_test(limits_of_the_host),
        cmocka_unit_test(links),
        cmocka_unit_test(slow_link),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

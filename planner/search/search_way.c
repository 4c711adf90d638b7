/* Moves that change how a run is done. What a run reads in its new way may have to be written first: by an optional op,
 * or by another way of the op that writes it. What only the old way read is left out where nobody else reads it. */
#include "planner/schedule/ways.h"
#include "planner/search/search_impl.h"

/* Optional ops that wrote what this way read, and have run for nobody else. */
static void leave_out(ckpt_searcher *w, int way)
{
    const ckpt_search *const s = &w->search;
    const ckpt_list *const reads = &s->graph->op[way].reads;
    for (int i = 0; i < reads->count; i++) {
        const int writer = s->graph->writer[reads->at[i]];
        const int now = ckpt_search_way(s, writer, writer);
        if (s->graph->op[writer].optional && now >= 0 && s->runs[writer].count == 1 &&
            !ckpt_move_is_used(w, writer, writer) && ckpt_move_set(w, writer, writer, -1)) {
            leave_out(w, now);
        }
    }
}

/* A way of b's writer that writes b, for its first run. False: there is none that agrees in bits with its other runs. */
static bool provide(ckpt_searcher *w, int b)
{
    const ckpt_search *const s = &w->search;
    const int writer = s->graph->writer[b];
    const int now = ckpt_search_way(s, writer, writer);
    for (int k = 0; k < ckpt_way_count(s->graph, writer); k++) {
        const int run = ckpt_way_run(s->graph, writer, k);
        const ckpt_list *const writes = &s->graph->op[run].writes;
        for (int i = 0; i < writes->count; i++) {
            if (writes->at[i] == b && run != now && ckpt_run_allowed(s->graph, run, w->options) &&
                (now < 0 || ckpt_runs_agree(s->graph, now, run))) {
                return ckpt_move_set(w, writer, writer, run);
            }
        }
    }
    return false;
}

/* Write first whatever the way reads and nothing has written before `at`. */
static bool provide_all(ckpt_searcher *w, ckpt_instant at, int way, int depth)
{
    const ckpt_search *const s = &w->search;
    const ckpt_list *const reads = &s->graph->op[way].reads;
    for (int i = 0; i < reads->count && s->missing > 0; i++) {
        const int b = reads->at[i];
        if (ckpt_search_last_write(s, b, at) < 0) {
            const int writer = s->graph->writer[b];
            if (depth == 0 || !provide(w, b)) {
                return false;
            }
            const int now = ckpt_search_way(s, writer, writer);
            if (now >= 0 && !provide_all(w, CKPT_INSTANT(writer, writer), now, depth - 1)) {
                return false;
            }
        }
    }
    return true;
}

/* Run (k, v) in another way, and all other runs of v where their bits would differ. False: undone. */
static bool change(ckpt_searcher *w, int k, int v, int way, bool everywhere)
{
    const ckpt_search *const s = &w->search;
    const int before = w->log_count;
    const int was = ckpt_search_way(s, k, v);
    bool fine = ckpt_move_set(w, k, v, way);
    const bool all = fine && (everywhere || (was >= 0 && way >= 0 && !ckpt_runs_agree(s->graph, was, way)));
    for (int i = 0; all && fine && i < s->runs[v].count; i++) {
        const int stage = CKPT_INSTANT_STAGE(s->runs[v].at[i]);
        const int other = ckpt_search_way(s, stage, v);
        fine = other < 0 || other == way || ckpt_move_set(w, stage, v, way);
    }
    fine = fine && (s->missing == 0 || (way >= 0 && provide_all(w, CKPT_INSTANT(k, v), way, 4)));
    if (fine && was >= 0) {
        leave_out(w, was);
    }
    if (!fine || s->missing > 0) {
        ckpt_move_undo(w, before);
        return false;
    }
    return true;
}

/* The way at `turn` among those that run (k, v) may have instead; -1: none, or an optional op that is left out. */
static int other_way(const ckpt_searcher *w, int k, int v, int turn)
{
    const ckpt_search *const s = &w->search;
    const int ways = ckpt_way_count(s->graph, v);
    const int run = ckpt_way_run(s->graph, v, turn % ways);
    return run != ckpt_search_way(s, k, v) && ckpt_run_allowed(s->graph, run, w->options) ? run : -1;
}

/* Do the run of a use of b in a way that does not read b. False: it has none. */
static bool unread(ckpt_searcher *w, int b, ckpt_instant use)
{
    const ckpt_search *const s = &w->search;
    const int v = CKPT_INSTANT_OP(use);
    const int k = CKPT_INSTANT_STAGE(use);
    if (v >= s->count) {
        return false;
    }
    const int turns = ckpt_way_count(s->graph, v);
    const int first = ckpt_search_roll(w, turns);
    for (int turn = first; turn < first + turns; turn++) {
        const int way = other_way(w, k, v, turn);
        if (way >= 0 && !ckpt_list_has(&s->graph->op[way].reads, b) && change(w, k, v, way, false)) {
            return true;
        }
    }
    return false;
}

/* Faster ways for runs of stages from .. to, as far as the limit allows. */
static void hurry(ckpt_searcher *w, int from, int to)
{
    const ckpt_search *const s = &w->search;
    for (int c = 0; c < w->choice_count; c++) {
        const int v = w->choice[c];
        for (int i = 0; i < s->runs[v].count; i++) {
            const int k = CKPT_INSTANT_STAGE(s->runs[v].at[i]);
            for (int turn = 0; k >= from && k <= to && turn < ckpt_way_count(s->graph, v); turn++) {
                const ckpt_ns time = s->time;
                const int before = w->log_count;
                const int way = other_way(w, k, v, turn);
                const int now = ckpt_search_way(s, k, v); /* -1: an earlier change has ended this run */
                const bool faster = way >= 0 && now >= 0 && s->graph->op[way].time_ns < s->graph->op[now].time_ns;
                if (faster && change(w, k, v, way, false) && (s->time >= time || s->most[1] > w->limit)) {
                    ckpt_move_undo(w, before);
                }
            }
        }
    }
}

/* End a buffer's live range earlier: its last readers are done without it. What runs meanwhile has its room. */
static void shorten(ckpt_searcher *w)
{
    const ckpt_search *const s = &w->search;
    const int v = w->choice[ckpt_search_roll(w, w->choice_count)];
    const int k = CKPT_INSTANT_STAGE(s->runs[v].at[ckpt_search_roll(w, s->runs[v].count)]);
    const int way = ckpt_search_way(s, k, v);
    if (way < 0 || s->graph->op[way].reads.count == 0) {
        return;
    }
    const int b = s->graph->op[way].reads.at[ckpt_search_roll(w, s->graph->op[way].reads.count)];
    ckpt_instant last = CKPT_INSTANT(k, v);
    for (ckpt_instant use = last; use >= 0; use = ckpt_search_next_use(s, b, use)) {
        last = use;
    }
    const ckpt_instant written = ckpt_search_last_write(s, b, last);
    ckpt_instant use = last;
    while (use > written && unread(w, b, use)) {
        use = ckpt_search_last_event(s, b, use);
    }
    if (use < last) {
        hurry(w, use < 0 ? 0 : CKPT_INSTANT_STAGE(use), CKPT_INSTANT_STAGE(last));
    }
}

void ckpt_move_way(ckpt_searcher *w)
{
    const ckpt_search *const s = &w->search;
    w->log_max = CKPT_SEARCH_LOG; /* half a change of ways is none */
    if (ckpt_search_roll(w, 16) == 0) {
        shorten(w);
        return;
    }
    int v = w->choice[ckpt_search_roll(w, w->choice_count)];
    int k = CKPT_INSTANT_STAGE(s->runs[v].at[ckpt_search_roll(w, s->runs[v].count)]);
    if (ckpt_search_roll(w, 4) == 0) { /* the run of the peak */
        const ckpt_instant most = ckpt_search_over(s, w->aim, w->dice);
        if (CKPT_INSTANT_OP(most) < s->count && s->graph->op[CKPT_INSTANT_OP(most)].variant_count > 0) {
            v = CKPT_INSTANT_OP(most);
            k = CKPT_INSTANT_STAGE(most);
        }
    }
    const int way = other_way(w, k, v, ckpt_search_roll(w, 1 << 20));
    if (way >= 0) {
        (void)change(w, k, v, way, ckpt_search_roll(w, 2) == 0);
    } else if (s->graph->op[v].optional && k == v && ckpt_search_way(s, v, v) >= 0 && s->runs[v].count == 1) {
        (void)change(w, v, v, -1, false);
    }
}

void ckpt_search_polish_ways(ckpt_searcher *w)
{
    ckpt_search *const s = &w->search;
    w->log_max = CKPT_SEARCH_LOG;
    bool changed = true;
    for (int round = 0; changed && round < 8 && !ckpt_plan_stopped(w->options); round++) {
        changed = false;
        for (int c = 0; c < w->choice_count; c++) {
            const int v = w->choice[c];
            for (int i = 0; i < s->runs[v].count; i++) {
                const int k = CKPT_INSTANT_STAGE(s->runs[v].at[i]);
                for (int turn = 0; turn < ckpt_way_count(s->graph, v); turn++) {
                    const ckpt_ns best = s->time;
                    const int way = other_way(w, k, v, turn);
                    w->log_count = 0;
                    if (way < 0 || !change(w, k, v, way, false)) {
                        continue;
                    }
                    if (s->time < best && s->most[1] <= w->limit) {
                        changed = true;
                    } else {
                        ckpt_move_undo(w, 0);
                    }
                }
            }
        }
    }
    w->log_count = 0;
}

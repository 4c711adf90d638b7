/* Moves: small sets of pairs that belong together. Each is written down in the log, so that it can be taken back. */
#include "planner/search/search_impl.h"

enum { PICKS = 12, EXCHANGES = 4, BRING_READS = 16, TINY = 32 };

int ckpt_search_roll(ckpt_searcher *w, int sides)
{
    w->dice ^= w->dice << 13; /* Marsaglia's xorshift */
    w->dice ^= w->dice >> 7;
    w->dice ^= w->dice << 17;
    return (int)((w->dice >> 33) % (uint64_t)sides);
}

/* True once in so many times. */
static bool once_in(ckpt_searcher *w, int times)
{
    return ckpt_search_roll(w, times) == 0;
}

bool ckpt_move_set(ckpt_searcher *w, int k, int v, int way)
{
    const int was = w->log_count < w->log_max ? ckpt_search_way(&w->search, k, v) : -1;
    if (w->log_count >= w->log_max || !ckpt_search_set(&w->search, k, v, way)) {
        return false;
    }
    w->log[w->log_count] = CKPT_INSTANT(k, v);
    w->log_way[w->log_count++] = was;
    return true;
}

bool ckpt_move_toggle(ckpt_searcher *w, int k, int v)
{
    const bool there = v < k && k < w->search.stages && ckpt_search_has(&w->search, k, v);
    const int was = there ? ckpt_search_way(&w->search, k, v) : -1;
    if (w->log_count >= w->log_max || !ckpt_search_toggle(&w->search, k, v)) {
        return false;
    }
    w->log[w->log_count] = CKPT_INSTANT(k, v);
    w->log_way[w->log_count++] = was;
    return true;
}

void ckpt_move_undo(ckpt_searcher *w, int count)
{
    while (w->log_count > count) {
        const ckpt_instant at = w->log[--w->log_count];
        (void)ckpt_search_set(&w->search, CKPT_INSTANT_STAGE(at), CKPT_INSTANT_OP(at), w->log_way[w->log_count]);
    }
}

/* Recompute v before op k, and what it reads where that would otherwise have to live through instant t. */
static bool bring(ckpt_searcher *w, int k, int v, ckpt_instant t, ckpt_bytes gain)
{
    const ckpt_search *const s = &w->search;
    const ckpt_graph_op *const op = &s->graph->op[v];
    const ckpt_instant at = CKPT_INSTANT(k, v);
    ckpt_instant dies[BRING_READS];
    const int first = op->reads.count > BRING_READS ? ckpt_search_roll(w, op->reads.count) : 0;
    const int count = op->reads.count < BRING_READS ? op->reads.count : BRING_READS;
    for (int i = 0; i < count; i++) { /* of many, some: others the next time */
        const int b = op->reads.at[(first + i) % op->reads.count];
        dies[i] = ckpt_search_next_use(s, b, at) >= 0 ? CKPT_INSTANT_NEVER : ckpt_search_last_event(s, b, at);
    }
    if (!ckpt_move_toggle(w, k, v)) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        const int b = op->reads.at[(first + i) % op->reads.count];
        if (dies[i] == CKPT_INSTANT_NEVER ? !once_in(w, 32) : CKPT_INSTANT_STAGE(dies[i]) == k) {
            continue;
        }
        const ckpt_bytes bytes = s->graph->buffer[b].bytes;
        const bool through = dies[i] < t;
        const bool recomputed = through ? !once_in(w, bytes >= gain ? 32 : 4) : once_in(w, 8);
        if (recomputed && !ckpt_search_has(s, k, s->graph->writer[b])) {
            (void)bring(w, k, s->graph->writer[b], t, gain);
        }
    }
    return true;
}

/* The pair (k, v) that ends the live range of b before instant t when it is added; -1: b does not live through t
 * unused, or its writer may not be recomputed. */
static ckpt_instant gap_end(const ckpt_search *s, int b, ckpt_instant t)
{
    const int v = s->graph->writer[b];
    const ckpt_instant use = ckpt_search_next_use(s, b, t - 1);
    if (use <= t || CKPT_INSTANT_STAGE(use) >= s->stages || t <= CKPT_INSTANT(v, v) || CKPT_INSTANT_OP(t) == v) {
        return -1;
    }
    const ckpt_instant at = CKPT_INSTANT(CKPT_INSTANT_STAGE(use), v);
    return at > t && s->graph->op[v].recompute && s->graph->op[v].adds.count == 0 ? at : -1;
}

/* The buffers that live through t unused. */
static void list_live(ckpt_searcher *w, ckpt_instant t)
{
    w->live_count = 0;
    w->search.work += 4 * w->search.graph->buffer_count;
    for (int b = 0; b < w->search.graph->buffer_count; b++) {
        if (w->search.graph->buffer[b].bytes > 0 && gap_end(&w->search, b, t) >= 0) {
            w->live[w->live_count++] = b;
        }
    }
    w->live_at = t;
    w->live_age = 0;
}

/* Drop something that lives through a moment above the limit (or the peak), and bring it back before its next use. */
static void drop(ckpt_searcher *w)
{
    const ckpt_search *const s = &w->search;
    const ckpt_instant t = ckpt_search_over(s, w->aim, w->dice);
    const int away = CKPT_INSTANT_STAGE(t) - CKPT_INSTANT_STAGE(w->live_at);
    const int far = 8 + s->count / 64;
    if (w->live_age++ > w->live_age_max || away > far || away < -far) {
        list_live(w, t);
    }
    if (w->live_count == 0) {
        return;
    }
    ckpt_instant best = -1;
    double best_worth = 0;
    int best_bytes_of = -1;
    const int picks = 1 + ckpt_search_roll(w, 3);
    for (int i = 0, found = 0; i < PICKS && found < picks; i++) {
        const int b = w->live[ckpt_search_roll(w, w->live_count)];
        const ckpt_instant at = gap_end(s, b, t);
        if (at < 0) {
            continue;
        }
        found++;
        const double worth =
            (double)s->graph->buffer[b].bytes / ((double)s->graph->op[CKPT_INSTANT_OP(at)].time_ns + 1);
        if (best < 0 || worth > best_worth) {
            best = at;
            best_worth = worth;
            best_bytes_of = b;
        }
    }
    if (best >= 0) {
        (void)bring(w, CKPT_INSTANT_STAGE(best), CKPT_INSTANT_OP(best), t, s->graph->buffer[best_bytes_of].bytes);
    }
}

bool ckpt_move_is_used(const ckpt_searcher *w, int k, int v)
{
    const ckpt_search *const s = &w->search;
    const ckpt_list *const writes = &s->graph->op[ckpt_search_way(s, k, v)].writes;
    for (int i = 0; i < writes->count; i++) {
        if (ckpt_search_next_use(s, writes->at[i], CKPT_INSTANT(k, v)) >= 0) {
            return true;
        }
    }
    return false;
}

/* Take a pair out, and those that only it needed. */
static void take_out(ckpt_searcher *w, int k, int v)
{
    const ckpt_search *const s = &w->search;
    const int way = ckpt_search_way(s, k, v);
    if (way < 0 || !ckpt_move_set(w, k, v, -1)) {
        return;
    }
    const ckpt_list *const reads = &s->graph->op[way].reads;
    for (int i = 0; i < reads->count; i++) {
        const int writer = s->graph->writer[reads->at[i]];
        const ckpt_instant run = ckpt_search_last_write(s, reads->at[i], CKPT_INSTANT(k, v));
        const int stage = CKPT_INSTANT_STAGE(run);
        if (run >= 0 && stage != writer && !ckpt_move_is_used(w, stage, writer)) {
            take_out(w, stage, writer);
        }
    }
}

static ckpt_instant any_recomputed(ckpt_searcher *w)
{
    return w->search.recomputed_count > 0 ? w->search.recomputed[ckpt_search_roll(w, w->search.recomputed_count)] : -1;
}

static void take_out_any(ckpt_searcher *w)
{
    const ckpt_instant at = any_recomputed(w);
    if (at >= 0) {
        take_out(w, CKPT_INSTANT_STAGE(at), CKPT_INSTANT_OP(at));
    }
}

/* Another stage for a pair: that of another use of what it writes, or one near. */
static void shift(ckpt_searcher *w)
{
    const ckpt_search *const s = &w->search;
    const ckpt_instant at = any_recomputed(w);
    if (at < 0) {
        return;
    }
    const int v = CKPT_INSTANT_OP(at);
    int k = CKPT_INSTANT_STAGE(at);
    const ckpt_graph_op *const op = &s->graph->op[v];
    if (op->writes.count > 0 && !once_in(w, 3)) {
        const ckpt_instants *const uses = &s->uses[op->writes.at[ckpt_search_roll(w, op->writes.count)]];
        if (uses->count == 0) {
            return;
        }
        k = CKPT_INSTANT_STAGE(uses->at[ckpt_search_roll(w, uses->count)]);
    } else {
        k += ckpt_search_roll(w, 9) - 4;
    }
    if (k > v && k < s->stages && !ckpt_search_has(s, k, v)) {
        if (once_in(w, 2)) {
            take_out(w, CKPT_INSTANT_STAGE(at), v);
            (void)bring(w, k, v, at, 0);
        } else {
            (void)ckpt_move_toggle(w, CKPT_INSTANT_STAGE(at), v);
            (void)ckpt_move_toggle(w, k, v);
        }
    }
}

/* Any pair at all, or one whose result is used in the stage: so that nothing is out of reach. */
static void toggle_any(ckpt_searcher *w)
{
    const ckpt_search *const s = &w->search;
    if (once_in(w, 4)) {
        const int stage = ckpt_search_roll(w, s->stages);
        (void)ckpt_move_toggle(w, stage, ckpt_search_roll(w, stage + 1));
        return;
    }
    const int k = ckpt_search_roll(w, s->stages);
    const ckpt_stage *const stage = &s->stage[k];
    const int o = stage->op[ckpt_search_roll(w, stage->count)];
    const ckpt_list *const reads = o < s->count ? &s->graph->op[o].reads : &s->graph->outputs;
    if (reads->count > 0) {
        (void)ckpt_move_toggle(w, k, s->graph->writer[reads->at[ckpt_search_roll(w, reads->count)]]);
    }
}

/* Drop something, and take out whatever that has made needless: what a move that only drops, or only takes out, would
 * have to find in two steps, the first of which is worse than both. */
static void exchange(ckpt_searcher *w)
{
    drop(w);
    for (int i = 0; i < EXCHANGES && w->log_count > 0; i++) {
        const int before = w->log_count;
        take_out_any(w);
        if (w->search.most[1] > w->limit) {
            ckpt_move_undo(w, before);
        }
    }
}

/* The reverse: take something out, and drop what the limit then has no room for. Where memory is scarce, what is kept
 * changes places only so. */
static void make_room(ckpt_searcher *w)
{
    take_out_any(w);
    for (int i = 0; i < EXCHANGES && w->log_count > 0 && w->search.most[1] > w->limit; i++) {
        drop(w);
    }
}

/* After a change of ways: drop what a larger workspace has no room for, or take out what a smaller one makes needless. */
static void follow(ckpt_searcher *w)
{
    for (int i = 0; i < EXCHANGES; i++) {
        const int before = w->log_count;
        if (w->search.most[1] > w->limit) {
            drop(w);
            continue;
        }
        take_out_any(w);
        if (w->search.most[1] > w->limit || w->search.missing > 0) {
            ckpt_move_undo(w, before);
        }
    }
}

void ckpt_move_any(ckpt_searcher *w)
{
    const bool over = w->search.most[1] > w->aim;
    const int drops = over ? 8 : 3;
    const int any = w->search.count < TINY ? 8 : 1; /* few ops: few pairs, and all may be needed at once */
    const int kind = ckpt_search_roll(w, drops + 9 + any);
    w->log_max = 4;
    while (w->log_max < CKPT_SEARCH_LOG && !once_in(w, 3)) {
        w->log_max *= 2;
    }
    if (w->choice_count > 0 && once_in(w, 3)) {
        ckpt_move_way(w);
        if (w->log_count > 0 && once_in(w, 2)) {
            follow(w);
        }
    } else if (kind < drops) {
        drop(w);
    } else if (kind < drops + 5) {
        take_out_any(w);
    } else if (kind < drops + 8) {
        (w->makes_room && once_in(w, 2) ? make_room : exchange)(w);
    } else if (kind < drops + 9) {
        shift(w);
    } else {
        toggle_any(w);
    }
}

/* For a pair that is out: end what lives through the peak, one after the other, until one of them makes the state one
 * within the limit and faster than `best`. */
static bool replace(ckpt_searcher *w, ckpt_ns best)
{
    const ckpt_search *const s = &w->search;
    const ckpt_instant t = ckpt_search_over(s, w->limit, 0);
    list_live(w, t);
    const int before = w->log_count;
    for (int i = 0; i < w->live_count; i++) {
        const int b = w->live[i];
        const ckpt_instant at = gap_end(s, b, t);
        if (at < 0 || s->graph->op[CKPT_INSTANT_OP(at)].time_ns >= best - s->time) {
            continue;
        }
        (void)bring(w, CKPT_INSTANT_STAGE(at), CKPT_INSTANT_OP(at), t, s->graph->buffer[b].bytes);
        if (s->missing == 0 && s->most[1] <= w->limit && s->time < best) {
            return true;
        }
        ckpt_move_undo(w, before);
    }
    return false;
}

void ckpt_search_polish(ckpt_searcher *w, int64_t work, const ckpt_plan_options *options)
{
    ckpt_search *const s = &w->search;
    const int64_t end = s->work + work;
    w->log_max = CKPT_SEARCH_LOG;
    int unchanged = 0;          /* pairs in a row that led to nothing */
    int64_t polled = INT64_MIN; /* work at the last look at the clock */
    for (int i = 0; s->work < end && unchanged < s->recomputed_count; i++) {
        if (s->work >= polled + CKPT_SEARCH_POLL) {
            polled = s->work;
            if (ckpt_plan_stopped(options)) {
                break;
            }
        }
        const ckpt_ns best = s->time;
        const ckpt_instant at = s->recomputed[i % s->recomputed_count];
        w->log_count = 0;
        take_out(w, CKPT_INSTANT_STAGE(at), CKPT_INSTANT_OP(at));
        const bool better = s->time < best && ((s->missing == 0 && s->most[1] <= w->limit) || replace(w, best));
        unchanged = better ? 0 : unchanged + 1;
        if (!better) {
            ckpt_move_undo(w, 0);
        }
    }
    w->log_count = 0;
}

/* Local search: simulated annealing over sets of pairs, around the limit rather than below it. */
#include "planner/search/search.h"

#include <string.h>

#include "planner/schedule/ways.h"
#include "planner/search/search_impl.h"

enum {
    COOL = 1 << 12, /* work between two temperatures */
    COOLS_A_POLL = CKPT_SEARCH_POLL / COOL,
    MOVE = 20, /* work of choosing a move */
    WORK_PER_MOVE = 50,
    ADAPT = 128,
    LEVELS = 8,          /* limits for which the best is kept, for when allocations of the fastest do not fit */
    LEVEL_PARTS = 200,   /* each lower by this part of the limit */
    ROUND_WORK = 110000, /* for every op */
    ROUNDS_MAX = 12,
    MIN_PEAK_PARTS = 16,
    MIN_PEAK_WORK = 200000,
    FAR_PARTS = 3, /* of what is paid for annealing from the best, for one turn */
    FAR_TURNS = 12,
    VERY_FAR = 20, /* by more than this part of what no schedule can beat: starts from low peaks are worth it */
    LOW_MAX = 8,
    TURNS_MAX = 6,
    LOW_PARTS = 1000, /* a schedule of low peak is kept when it is lower by this part of it */
};

/* Temperatures in units of the mean time of an op that may be recomputed. */
static const double HOT = 2;
static const double COLD = 0.02;
static const double FIRST = 0.6; /* part of the work for annealing from keep-all; the rest is for that from the best */
static const double FROM_LOW = 0.1;       /* for what is fast at the lowest peak, from each start */
static const double AGAIN = 0.4;          /* for annealing from that, when it is the best */
static const double AFRESH = 0.2;         /* for the lowest peak, from nothing recomputed */
static const double MIN_PEAK_SHARE = 0.4; /* part for the lowest peak, when nothing is within the limit */
static const double LAST = 0.15;          /* at least this part is left for annealing from the best */
static const double REHEAT = 0.1;         /* temperature of annealing from the best */
static const double RESCUE = 0.5;         /* the same, when that is the schedule of minimum peak */
/* How much the sum of what all stages are above the limit counts beside the peak. */
static const double WIDE = 1;
static const double NARROW = 0.1;
static const double PRICE_STEP = 1.02;
static const uint64_t SEED = UINT64_C(0x9e3779b97f4a7c15);

/* Pairs worth remembering, with their figures. */
typedef struct memo {
    ckpt_instant *pair;
    int *way; /* with variants: of the pairs, then of the first runs; else NULL */
    int count, room;
    ckpt_bytes peak;
    ckpt_ns time;
    bool is_set;
} memo;

typedef struct improver {
    ckpt_searcher w;
    const ckpt_plan_options *options;
    ckpt_arena scratch;
    ckpt_bytes limit;
    memo best[LEVELS];    /* fastest within the limit, and within limits that are lower and lower */
    memo min_peak;        /* of minimum peak */
    bool from_given;      /* lowest[0] is from what was given */
    memo lowest[2];       /* those that find_min_peak came to from what was given, and from nothing recomputed */
    memo turn[TURNS_MAX]; /* the fastest within the limit at the end of the last turns that changed it, a ring */
    int turn_count;       /* so many have been written into it */
    memo low[LOW_MAX];    /* the last on the way there, a ring */
    int low_count;        /* so many have been written into it */
    ckpt_bytes low_peak;  /* of the last */
    ckpt_ns enough;       /* no schedule is faster */
    bool for_min_peak;    /* only the peak counts */
    bool thorough;        /* remember every improvement, however small */
    double price;         /* ns per byte above the limit, at the end of the last annealing where it changed */
    bool stopped;
} improver;

static bool make_room(improver *m, memo *to, int pairs)
{
    const ckpt_search *const s = &m->w.search;
    if (pairs > to->room || (s->has_variants && to->way == NULL)) {
        const int room = 2 * pairs + 64;
        ckpt_instant *const pair = CKPT_NEW(&m->scratch, ckpt_instant, room);
        int *const way = CKPT_NEW(&m->scratch, int, s->has_variants ? (size_t)room + (size_t)s->count : 0);
        if (pair == NULL || way == NULL) {
            m->w.search.failed = true;
            return false;
        }
        to->pair = pair;
        to->way = s->has_variants ? way : NULL;
        to->room = room;
    }
    return true;
}

static bool remember(improver *m, memo *to)
{
    const ckpt_search *const s = &m->w.search;
    if (!make_room(m, to, s->recomputed_count)) {
        return false;
    }
    for (int i = 0; s->has_variants && i < s->recomputed_count + s->count; i++) {
        const int o = i - s->recomputed_count;
        const ckpt_instant at = o < 0 ? s->recomputed[i] : CKPT_INSTANT(o, o);
        to->way[i] = ckpt_search_way(s, CKPT_INSTANT_STAGE(at), CKPT_INSTANT_OP(at));
    }
    if (s->recomputed_count > 0) {
        memcpy(to->pair, s->recomputed, (size_t)s->recomputed_count * sizeof *to->pair);
    }
    to->count = s->recomputed_count;
    to->peak = s->most[1];
    to->time = s->time;
    to->is_set = true;
    return true;
}

/* By how much a state must be faster than one remembered: copying thousands of pairs for every nanosecond gained would
 * take longer than the search. */
static ckpt_ns worth_noting(const improver *m, const memo *best)
{
    const int pairs = m->w.search.recomputed_count;
    return pairs < 256 || m->thorough ? 0 : best->time / 1000000 * (pairs / 256);
}

/* The state is the lowest so far. The first ones of their peaks are kept: the faster that min_peak becomes at the same
 * peak, the more is kept for long, and the worse its allocations are. */
static void note_low(improver *m)
{
    const ckpt_bytes peak = m->w.search.most[1];
    if (m->low_count == 0 || peak < m->low_peak - m->low_peak / LOW_PARTS) {
        m->low_peak = peak;
        (void)remember(m, &m->low[m->low_count++ % LOW_MAX]);
    }
}

static void note(improver *m)
{
    const ckpt_search *const s = &m->w.search;
    const ckpt_bytes peak = s->most[1];
    if (s->missing > 0) {
        return;
    }
    if (m->for_min_peak) {
        if (!m->min_peak.is_set || peak < m->min_peak.peak ||
            (peak == m->min_peak.peak && s->time < m->min_peak.time)) {
            (void)remember(m, &m->min_peak);
            note_low(m);
        }
        return;
    }
    for (int i = 0; i < LEVELS && peak <= m->limit - m->limit / LEVEL_PARTS * i; i++) {
        memo *const best = &m->best[i];
        const ckpt_ns gain = best->is_set ? best->time - s->time : 0;
        const ckpt_ns wanted = worth_noting(m, best);
        if (!best->is_set || (gain > 0 && gain >= wanted) || (gain == 0 && wanted == 0 && peak < best->peak)) {
            (void)remember(m, best);
        }
    }
}

/* -ln of a uniform number in (0, 1), to about 1 %: by halvings and a line. */
static double exponential(ckpt_searcher *w)
{
    uint32_t u = (uint32_t)ckpt_search_roll(w, 1 << 30) + 1;
    double e = 0;
    while (u < 1u << 29) {
        u *= 2;
        e += 0.6931471805599453;
    }
    const double f = (double)u / (double)(1u << 30); /* 1/2 .. 1 */
    return e + (1 - f) * (1.5 - 0.2274 * f);
}

/* One annealing: what it aims at and how. */
typedef struct schedule {
    int64_t work;
    double hot, cold; /* ns */
    double width;     /* how much of what all stages are above the limit counts, besides the peak */
    double price;     /* ns per byte above the limit */
    bool fixed;       /* the price stays */
    bool makes_room;  /* moves also take something out first and then drop what has no room */
} schedule;

static double cost(const improver *m, double price, double width)
{
    const ckpt_search *const s = &m->w.search;
    const ckpt_bytes over = s->most[1] - m->w.limit;
    const double all = over > 0 && width > 0 ? width * ckpt_search_excess(s, m->w.limit) : 0;
    return (double)s->time + (over > 0 ? ((double)over + all) * price : 0);
}

/* x with x^steps = ratio, ratio >= 1, without a library whose last bit depends on the machine. */
static double root_of(double ratio, int64_t steps)
{
    double low = 1;
    double high = ratio;
    for (int i = 0; i < 60; i++) {
        const double middle = (low + high) / 2;
        double power = 1;
        double base = middle;
        for (int64_t e = steps; e > 0 && power <= ratio; e /= 2) {
            power *= e % 2 == 1 ? base : 1;
            base *= base;
        }
        *(power <= ratio ? &low : &high) = middle;
    }
    return low;
}

/* Nothing more to be found. */
static bool is_enough(const improver *m)
{
    return m->for_min_peak ? m->min_peak.peak <= m->w.limit : m->best[0].is_set && m->best[0].time <= m->enough;
}

/* The best at the end of a turn. */
static void note_turn(improver *m)
{
    const memo *const best = &m->best[0], *const last = &m->turn[(m->turn_count + TURNS_MAX - 1) % TURNS_MAX];
    if (!best->is_set || (last->is_set && last->time <= best->time) || m->stopped) {
        return;
    }
    memo *const to = &m->turn[m->turn_count % TURNS_MAX];
    if (make_room(m, to, best->count)) {
        const int ways = best->count + m->w.search.count;
        if (best->count > 0) {
            memcpy(to->pair, best->pair, (size_t)best->count * sizeof *to->pair);
        }
        if (to->way != NULL) {
            memcpy(to->way, best->way, (size_t)ways * sizeof *to->way);
        }
        to->count = best->count;
        to->peak = best->peak;
        to->time = best->time;
        to->is_set = true;
        m->turn_count++;
    }
}

static void anneal(improver *m, const schedule *plan)
{
    ckpt_searcher *const w = &m->w;
    ckpt_search *const s = &w->search;
    const int64_t end = s->work + plan->work;
    const double cooling = root_of(plan->hot / plan->cold, plan->work / COOL + 1);
    int64_t cooled = s->work;
    int polled = 0;
    double heat = plan->hot;
    double price = plan->price;
    double now = cost(m, price, plan->width);
    int inside = 0;
    bool enough = is_enough(m);
    w->aim = w->limit;
    w->makes_room = plan->makes_room;
    for (int64_t i = 1; s->work < end && !m->stopped && !enough; i++) {
        w->log_count = 0;
        s->work += MOVE;
        ckpt_move_any(w);
        if (w->log_count > 0) {
            const double next = cost(m, price, plan->width);
            if (s->missing == 0 && next <= now + heat * exponential(w)) {
                now = next;
                note(m);
            } else {
                ckpt_move_undo(w, 0);
            }
        }
        inside += s->most[1] <= w->limit;
        if (i % ADAPT == 0 && !plan->fixed) {
            price *= inside > ADAPT * 4 / 10 ? 1 / PRICE_STEP : PRICE_STEP;
            now = cost(m, price, plan->width);
            inside = 0;
        }
        for (; s->work - cooled >= COOL; cooled += COOL) {
            heat /= cooling;
            enough = is_enough(m);
            if (polled++ % COOLS_A_POLL == 0) {
                m->stopped = m->stopped || ckpt_plan_stopped(m->options) || s->failed;
            }
        }
    }
    m->price = plan->fixed ? m->price : price;
    w->log_count = 0;
    m->thorough = true;
    note(m);
    m->thorough = false;
}

static ckpt_code offer(improver *m, const memo *what, bool min_peak, ckpt_arena *out, ckpt_candidates *candidates,
                       ckpt_err *err)
{
    if (!what->is_set) {
        return CKPT_OK;
    }
    ckpt_search_assign(&m->w.search, what->pair, what->way, what->count);
    ckpt_order order;
    ckpt_order_init(&order);
    ckpt_search_write(&m->w.search, &order);
    const ckpt_code code = min_peak ? ckpt_order_end(&order, m->w.search.graph, m->limit, out, candidates, err)
                                    : ckpt_order_offer(&order, m->w.search.graph, m->limit, out, candidates, err);
    ckpt_order_fini(&order);
    return code;
}

/* What ops that may be recomputed take, and what they write. */
typedef struct totals {
    double mean_ns, ns_per_byte;
} totals;

static totals add_up(const ckpt_search *s)
{
    double time = 1;
    double bytes = 1;
    int count = 1;
    for (int o = 0; o < s->count; o++) {
        if (s->graph->op[o].recompute) {
            time += (double)s->graph->op[o].time_ns;
            bytes += (double)s->own[o];
            count++;
        }
    }
    return (totals){time / count, time / bytes};
}

static void go_to(improver *m, const memo *to)
{
    ckpt_search_assign(&m->w.search, to->pair, to->way, to->count);
}

static void start_from(improver *m, const ckpt_candidates *candidates)
{
    for (int i = 0; i < candidates->count && !m->stopped; i++) {
        ckpt_search_load(&m->w.search, &candidates->candidate[i].sequence, m->options);
        note(m);
        m->stopped = ckpt_plan_stopped(m->options);
    }
    if (candidates->min_peak.sequence.op != NULL && !m->stopped) {
        ckpt_search_load(&m->w.search, &candidates->min_peak.sequence, m->options);
        note(m);
    }
}

/* Nothing recomputed, and the ways as they are, unless that leaves something missing. */
static void keep_ways(ckpt_search *s)
{
    while (s->recomputed_count > 0) {
        const ckpt_instant last = s->recomputed[s->recomputed_count - 1];
        (void)ckpt_search_set(s, CKPT_INSTANT_STAGE(last), CKPT_INSTANT_OP(last), -1);
    }
    if (s->missing > 0) {
        ckpt_search_assign(s, NULL, NULL, 0);
    }
}

/* Annealing from nothing recomputed and from what was given, several times; then from the best, less hot. One long
 * annealing often ends where a few large buffers are wrongly kept, and only a new start gets out of that. */
static void search_within(improver *m, const ckpt_candidates *given, int64_t work)
{
    const totals t = add_up(&m->w.search);
    const int64_t times = work / ROUND_WORK / m->w.search.count;
    int rounds = times < ROUNDS_MAX ? (int)times : ROUNDS_MAX;
    rounds = rounds < 1 ? 1 : rounds;
    schedule plan = {.work = work / rounds, .hot = HOT * t.mean_ns, .cold = COLD * t.mean_ns, .price = t.ns_per_byte};
    m->w.limit = m->limit;
    for (int r = 0; r < rounds && !is_enough(m); r++) {
        plan.width = r % 2 == 0 ? WIDE : NARROW;
        ckpt_search_assign(&m->w.search, NULL, NULL, 0);
        const bool variants = m->w.search.has_variants;
        if ((r % 4 == 3 || variants) && given->count > 0) {
            ckpt_search_load(&m->w.search, &given->candidate[(variants ? r : r / 4) % given->count].sequence,
                             m->options);
        }
        if (r % 4 != 3 && variants) {
            keep_ways(&m->w.search);
        }
        anneal(m, &plan);
        note_turn(m);
    }
}

/* More than 1 % from what no schedule can beat. */
static bool is_far(const improver *m)
{
    return m->best[0].time - m->enough > m->enough / 100;
}

static void improve_best(improver *m, const schedule *plan, int64_t polish)
{
    go_to(m, &m->best[0]);
    anneal(m, plan);
    if (m->stopped) {
        return; /* what it found is noted */
    }
    go_to(m, &m->best[0]);
    ckpt_search_polish(&m->w, polish, m->options);
    ckpt_search_polish_ways(&m->w);
    m->thorough = true;
    note(m);
    m->thorough = false;
    note_turn(m);
}

/* Annealing from the best: once where it is near the bound, else many times by turns of heat, with the price of bytes
 * that the annealing before ended with. Near the minimum peak that price is far above the mean one, and a schedule that
 * leaves the limit for a while does not come back. */
static void search_near(improver *m, double hot, int64_t work)
{
    static const double heats[] = {0.1, 0.3, 0.1, 0.5};
    static const double widths[] = {0.03, 0.03, 0.1, 1};
    const totals t = add_up(&m->w.search);
    schedule plan = {.hot = hot * t.mean_ns, .cold = COLD * t.mean_ns, .price = t.ns_per_byte, .width = widths[0]};
    m->w.limit = m->limit;
    if (m->best[0].is_set && !is_far(m)) {
        plan.work = work - work / 8;
        improve_best(m, &plan, work / 8);
        return;
    }
    const int64_t share = work / FAR_PARTS;
    plan.work = share - share / 8;
    for (int i = 0; i < FAR_TURNS && m->best[0].is_set && is_far(m) && !m->stopped; i++) {
        plan.price = m->price;
        plan.width = widths[i % 4];
        plan.makes_room = i % 2 == 1;
        plan.hot = (i == 0 ? hot : heats[i % 4]) * t.mean_ns;
        improve_best(m, &plan, share / 8);
    }
}

/* What no schedule gets below: as far as that is known, or the most that one op needs at once; with variants an op may
 * need less than in its own way. */
static ckpt_bytes floor_of(const ckpt_search *s, ckpt_bytes known)
{
    ckpt_bytes most = known;
    for (int o = 0; o < s->count && !s->has_variants; o++) {
        ckpt_bytes bytes = s->own[o] - s->saved[o];
        for (int i = 0; i < s->graph->op[o].reads.count; i++) {
            bytes += s->graph->buffer[s->graph->op[o].reads.at[i]].bytes;
        }
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* The lowest peak: limits that are a step below the lowest so far, and smaller steps where that is too much. */
static void find_min_peak(improver *m, int64_t work)
{
    static const double heats[] = {0.1, 0.8, 8, 0.1, 0.4, 1.6};
    double mean = 1;
    for (int b = 0; b < m->w.search.graph->buffer_count; b++) {
        mean += (double)m->w.search.graph->buffer[b].bytes / m->w.search.graph->buffer_count;
    }
    const ckpt_search *const s = &m->w.search;
    const int64_t parts = work / MIN_PEAK_WORK < 6                ? 6
                          : work / MIN_PEAK_WORK < MIN_PEAK_PARTS ? work / MIN_PEAK_WORK
                                                                  : MIN_PEAK_PARTS;
    const ckpt_bytes floor = floor_of(s, m->options->floor_bytes);
    const int64_t end = s->work + work;
    const double peak = (double)m->min_peak.peak + 1;
    const double price = 20 * (double)(s->time + 1) / peak; /* all of the peak for 20 times the step */
    schedule plan = {.work = work / parts, .cold = 0.03 * mean * price, .price = price, .width = WIDE, .fixed = true};
    ckpt_bytes step = m->min_peak.peak / 20 + 1;
    for (int round = 0; s->work < end && m->min_peak.peak > floor && !m->stopped; round++) {
        const ckpt_bytes before = m->min_peak.peak;
        m->w.limit = before - step > floor ? before - step : floor;
        plan.hot = heats[round % 6] * mean * price;
        go_to(m, &m->min_peak);
        anneal(m, &plan);
        if (m->min_peak.peak > before - step / 2 && step > 1) {
            step = step / 2 + 1;
        }
    }
}

static ckpt_code prepare(improver *m, const ckpt_graph *graph, ckpt_err *err)
{
    CKPT_TRY(ckpt_search_init(graph, &m->scratch, &m->w.search, err));
    m->w.live = CKPT_NEW(&m->scratch, int, graph->buffer_count);
    if (m->w.live == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "search over %d buffers", graph->buffer_count);
    }
    m->w.options = m->options;
    m->w.choice = CKPT_NEW(&m->scratch, int, m->w.search.has_variants ? graph->op_count : 0);
    if (m->w.choice == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "search over %d ops", graph->op_count);
    }
    for (int o = 0; o < graph->op_count && m->w.search.has_variants; o++) {
        if (graph->op[o].optional || graph->op[o].variant_count > 0) {
            m->w.choice[m->w.choice_count++] = o;
        }
    }
    m->w.live_age_max = 64 + graph->buffer_count / 8;
    m->w.dice = SEED;
    return CKPT_OK;
}

/* The minimum peak, and the last on the way there, from the lowest. */
static ckpt_code offer_min_peak(improver *m, ckpt_arena *out, ckpt_candidates *candidates, ckpt_err *err)
{
    const ckpt_bytes limit = m->limit;
    CKPT_TRY(offer(m, &m->min_peak, true, out, candidates, err));
    m->limit = CKPT_BYTES_MAX;
    candidates->low_count = 0;
    for (int i = 0; i < LOW_MAX && i < m->low_count && candidates->low_count < CKPT_LOW_MAX; i++) {
        ckpt_candidates low = {.count = 0};
        CKPT_TRY(offer(m, &m->low[(m->low_count - 1 - i) % LOW_MAX], false, out, &low, err));
        if (low.count > 0) {
            candidates->low[candidates->low_count++] = low.candidate[0];
        }
    }
    m->limit = limit;
    return CKPT_OK;
}

/* The bests of the last turns, the fastest first: for when allocations take more. */
static ckpt_code offer_turns(improver *m, ckpt_arena *out, ckpt_candidates *candidates, ckpt_err *err)
{
    for (int i = 0; i < TURNS_MAX && i < m->turn_count && candidates->fallback_count < CKPT_FALLBACKS_MAX; i++) {
        ckpt_candidates turn = {.count = 0};
        CKPT_TRY(offer(m, &m->turn[(m->turn_count - 1 - i) % TURNS_MAX], false, out, &turn, err));
        if (turn.count > 0) {
            candidates->fallback[candidates->fallback_count++] = turn.candidate[0];
        }
    }
    return CKPT_OK;
}

/* Starts from candidates->min_peak when there is one, and never from what was found within the limit: the minimum peak
 * is the same at every limit. */
static ckpt_code improve_min_peak(improver *m, int64_t work, ckpt_arena *out, ckpt_candidates *candidates,
                                  ckpt_err *err)
{
    m->for_min_peak = true;
    m->w.dice = SEED;
    m->w.live_count = m->w.live_age = 0; /* nothing is left of what was looked at under the limit */
    m->w.live_at = 0;
    ckpt_search_assign(&m->w.search, NULL, NULL, 0);
    note(m);
    m->from_given = candidates->min_peak.sequence.op != NULL;
    if (m->from_given) {
        ckpt_search_load(&m->w.search, &candidates->min_peak.sequence, m->options);
        note(m);
    }
    go_to(m, &m->min_peak);
    find_min_peak(m, (int64_t)((double)work * MIN_PEAK_SHARE));
    m->for_min_peak = false;
    m->lowest[0] = m->min_peak;
    return offer_min_peak(m, out, candidates, err);
}

/* The lowest peak once more, from nothing recomputed: what was given may be far from all that is lower. */
static ckpt_code start_over(improver *m, int64_t work, ckpt_arena *out, ckpt_candidates *candidates, ckpt_err *err)
{
    const memo *const given = &m->lowest[0], *const found = &m->min_peak;
    if (!m->from_given || given->peak <= floor_of(&m->w.search, m->options->floor_bytes)) {
        return CKPT_OK;
    }
    m->for_min_peak = true;
    m->min_peak = (memo){.is_set = false};
    ckpt_search_assign(&m->w.search, NULL, NULL, 0);
    note(m);
    find_min_peak(m, (int64_t)((double)work * AFRESH));
    m->for_min_peak = false;
    m->lowest[1] = *found;
    m->min_peak =
        found->peak < given->peak || (found->peak == given->peak && found->time < given->time) ? *found : *given;
    return offer_min_peak(m, out, candidates, err);
}

static ckpt_code find_lowest(improver *m, int64_t work, ckpt_arena *out, ckpt_candidates *candidates, ckpt_err *err)
{
    CKPT_TRY(improve_min_peak(m, work, out, candidates, err));
    return start_over(m, work, out, candidates, err);
}

/* What is fast at the lowest peak becomes a start, the same at every limit: where there is little more memory, nothing
 * slower is found. `lowest` is within the limit. */
static void start_from_low(improver *m, const memo *lowest, int64_t work)
{
    const ckpt_bytes limit = m->limit;
    const ckpt_ns enough = m->enough;
    memo best[LEVELS];
    memcpy(best, m->best, sizeof best);
    memset(m->best, 0, sizeof m->best);
    m->limit = lowest->peak;
    m->enough = ckpt_least_time(m->w.search.graph, m->options);
    m->price = add_up(&m->w.search).ns_per_byte;
    go_to(m, lowest);
    note(m);
    search_near(m, RESCUE, work);
    m->limit = limit;
    m->enough = enough;
    go_to(m, &m->best[0]);
    memcpy(m->best, best, sizeof best);
    note(m);
}

/* From the schedules of lowest peak, where they are within the limit; again near the best when that has become one of
 * them. */
static void search_from_low(improver *m, int64_t work)
{
    const ckpt_ns before = m->best[0].is_set ? m->best[0].time : INT64_MAX;
    for (int i = 0; i < 2; i++) {
        if (m->lowest[i].is_set && m->lowest[i].peak <= m->limit && !m->stopped) {
            start_from_low(m, &m->lowest[i], (int64_t)((double)work * FROM_LOW));
        }
    }
    if (m->best[0].is_set && m->best[0].time < before) {
        search_near(m, RESCUE, (int64_t)((double)work * AGAIN));
    }
}

static ckpt_code improve(improver *m, int64_t work, ckpt_arena *out, ckpt_candidates *candidates, ckpt_err *err)
{
    m->w.limit = m->limit;
    note(m);
    m->enough = ckpt_least_time(m->w.search.graph, m->options);
    if (candidates->has_bound && candidates->bound_ns > m->enough && strcmp(candidates->bound_scope, "all") == 0) {
        m->enough = candidates->bound_ns;
    }
    start_from(m, candidates);
    const bool known = m->stopped && candidates->count > 0; /* ended before anything was looked for */
    const int64_t end = m->w.search.work + work;
    const bool low = !m->best[0].is_set;
    if (known) {
        return CKPT_OK;
    }
    if (!is_enough(m)) {
        search_within(m, candidates, (int64_t)((double)work * FIRST));
    }
    double hot = REHEAT;
    if (!m->best[0].is_set) {
        CKPT_TRY(improve_min_peak(m, work, out, candidates, err));
        if (m->min_peak.peak <= m->limit) {
            hot = RESCUE;
            go_to(m, &m->min_peak);
            note(m);
        }
    }
    const int64_t last = (int64_t)((double)work * LAST);
    search_near(m, hot, end - m->w.search.work > last ? end - m->w.search.work : last);
    if (low && (!m->best[0].is_set || m->best[0].time - m->enough > m->enough / VERY_FAR) && !m->stopped) {
        CKPT_TRY(m->lowest[0].is_set ? CKPT_OK : improve_min_peak(m, work, out, candidates, err));
        CKPT_TRY(start_over(m, work, out, candidates, err));
        search_from_low(m, work);
    }
    for (int i = 0; i < LEVELS && !(i > 0 && ckpt_plan_stopped(m->options)); i++) {
        CKPT_TRY(offer(m, &m->best[i], false, out, candidates, err));
    }
    return offer_turns(m, out, candidates, err);
}

/* Large graphs are paid for more, but less than in proportion. */
static int64_t work_of(const ckpt_graph *graph, int64_t moves)
{
    const double share = graph->op_count > 500 ? 1 + (graph->op_count - 500) / 1500.0 : 1;
    const double work = (double)moves * WORK_PER_MOVE * share;
    return work < 1e18 ? (int64_t)work : INT64_MAX / 8;
}

static ckpt_code with_improver(const ckpt_graph *graph, ckpt_bytes limit, bool min_peak, int64_t moves,
                               const ckpt_plan_options *options, ckpt_arena *out, ckpt_candidates *candidates,
                               ckpt_err *err)
{
    if (graph->op_count == 0) {
        ckpt_order none = {0};
        return ckpt_order_end(&none, graph, limit, out, candidates, err);
    }
    improver *const m = ckpt_memory_get(sizeof *m);
    if (m == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "search over %d ops", graph->op_count);
    }
    m->options = options;
    m->limit = limit;
    ckpt_arena_init(&m->scratch);
    ckpt_code code = prepare(m, graph, err);
    if (code == CKPT_OK) {
        code = (min_peak ? find_lowest : improve)(m, work_of(graph, moves), out, candidates, err);
    }
    if (code == CKPT_OK && m->w.search.failed) {
        code = CKPT_FAIL(err, CKPT_NO_MEMORY, "search over %d ops", graph->op_count);
    }
    ckpt_arena_fini(&m->scratch);
    ckpt_memory_put(m);
    return code;
}

ckpt_code ckpt_search_improve(const ckpt_graph *graph, ckpt_bytes limit, int64_t moves,
                              const ckpt_plan_options *options, ckpt_arena *out, ckpt_candidates *candidates,
                              ckpt_err *err)
{
    return with_improver(graph, limit, false, moves, options, out, candidates, err);
}

ckpt_code ckpt_search_min_peak(const ckpt_graph *graph, ckpt_bytes limit, int64_t moves,
                               const ckpt_plan_options *options, ckpt_arena *out, ckpt_candidates *candidates,
                               ckpt_err *err)
{
    return with_improver(graph, limit, true, moves, options, out, candidates, err);
}

/* Candidates to steps and allocations. */
#include <string.h>

#include "planner/api/plan_make_impl.h"
#include "planner/placement/allocate.h"
#include "planner/schedule/batches.h"

enum {
    ROUNDS = 6,    /* times a strategy may be asked, each with the limit lowered against fragmentation */
    PACKINGS = 5,  /* candidates of one call of a strategy that are packed */
    ALIKE = 500,   /* times that differ by less than this part are about the same */
    LOST_MAX = 40, /* fragmentation, in thousandths, that more effort may still take away */
};

static ckpt_code pack_sequence(const ckpt_maker *m, const ckpt_sequence *sequence, ckpt_bytes enough, int effort,
                               ckpt_plan *plan, ckpt_err *err)
{
    ckpt_plan_options options = *m->options;
    options.effort = effort;
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_code code = ckpt_sequence_steps(m->graph, sequence, m->out, plan, err);
    if (code == CKPT_OK) {
        code = ckpt_sequence_pack(m->graph, plan, enough, &options, &scratch, err);
    }
    ckpt_arena_fini(&scratch);
    return code;
}

ckpt_code ckpt_maker_pack(const ckpt_maker *m, const ckpt_candidate *candidate, ckpt_bytes enough, int effort,
                          ckpt_plan *plan, ckpt_err *err)
{
    const ckpt_sequence *const sequence = &candidate->sequence;
    ckpt_sequence moved;
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_code code = ckpt_sequence_reduce_first(m->graph, sequence, &scratch, &moved, err);
    code = code == CKPT_OK ? pack_sequence(m, &moved, enough, effort, plan, err) : code;
    const bool same = code != CKPT_OK || moved.op == sequence->op ||
                      memcmp(moved.op, sequence->op, (size_t)moved.count * sizeof *moved.op) == 0;
    ckpt_arena_fini(&scratch);
    if (!same && enough > 0 && plan->arena_bytes > enough) { /* memory first */
        ckpt_plan unmoved = {0};
        code = pack_sequence(m, sequence, enough, effort, &unmoved, err);
        *plan = code == CKPT_OK && unmoved.arena_bytes <= enough ? unmoved : *plan;
    }
    ckpt_bytes sum = 0;
    plan->solver = candidate->by != NULL ? candidate->by : m->strategy->name;
    if (code == CKPT_OK && !ckpt_sum(plan->arena_bytes, m->graph->static_bytes, &sum)) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "static block and arena of more than 2^63 bytes");
    }
    return code;
}

/* part / whole in thousandths, whatever their size: a tiny graph has fewer than a thousand bytes. */
static ckpt_bytes thousandths(ckpt_bytes part, ckpt_bytes whole)
{
    return part < INT64_MAX / 1000 ? part * 1000 / (whole > 0 ? whole : 1) : part / (whole / 1000 + 1);
}

/* The limit less `lost` thousandths of what is left then. */
static ckpt_bytes less_lost(ckpt_bytes limit, ckpt_bytes lost)
{
    const ckpt_bytes parts = 1000 + lost;
    return limit / parts * 1000 + limit % parts * 1000 / parts;
}

/* What has been packed so far. */
typedef struct tries {
    ckpt_plan *plan; /* the fastest that fits, when `fits` */
    bool fits;
    bool better; /* one of the last candidates is now in `plan` */
    ckpt_bytes
        lost; /* least fragmentation among the last candidates that did not fit, in thousandths; -1: all fitted */
    const ckpt_candidate *packed[PACKINGS]; /* the last candidates that were packed */
    int packed_count;
} tries;

/* Pack a candidate; it is taken when it fits. */
static ckpt_code try_candidate(const ckpt_maker *m, const ckpt_candidate *candidate, int effort, tries *t,
                               ckpt_err *err)
{
    const ckpt_mark mark = ckpt_arena_mark(m->out);
    ckpt_plan packed = {0};
    CKPT_TRY(ckpt_maker_pack(m, candidate, m->limit < CKPT_BYTES_MAX ? m->limit : 0, effort, &packed, err));
    if (packed.arena_bytes <= m->limit) {
        *t->plan = packed;
        t->fits = t->better = true;
        return CKPT_OK;
    }
    const ckpt_bytes lost = thousandths(packed.arena_bytes - candidate->peak, candidate->peak);
    t->lost = t->lost < 0 || lost < t->lost ? lost : t->lost;
    ckpt_arena_rewind(m->out, mark);
    return CKPT_OK;
}

/* The fastest candidate that fits, when it is faster than what there is. Candidates are passed over when they would
 * have to lose much less than those before them. */
static ckpt_code try_candidates(const ckpt_maker *m, const ckpt_candidates *candidates, tries *t, ckpt_err *err)
{
    t->better = false;
    t->lost = -1;
    t->packed_count = 0;
    for (int i = 0; i < candidates->count && t->packed_count < PACKINGS && !t->better; i++) {
        if (t->packed_count > 0 && !t->fits && ckpt_plan_stopped(m->options)) { /* no time for more than the smallest */
            i = candidates->count - 1;
        }
        const ckpt_candidate *const candidate = &candidates->candidate[i];
        if (t->fits && candidate->time >= t->plan->time_ns) {
            break;
        }
        if (candidate->peak > m->limit ||
            (t->lost > 0 && m->limit - candidate->peak < candidate->peak / 1000 * (t->lost / 4 * 3))) {
            continue;
        }
        CKPT_TRY(try_candidate(m, candidate, m->options->effort, t, err));
        t->packed[t->packed_count++] = candidate;
    }
    return CKPT_OK;
}

/* One of the same figures: parts of the planner hand on what others found. */
static bool was_packed(const tries *t, const ckpt_candidate *candidate)
{
    bool was = false;
    for (int i = 0; i < t->packed_count; i++) {
        was = was || (t->packed[i]->time == candidate->time && t->packed[i]->peak == candidate->peak);
    }
    return was;
}

/* The fastest fallback that takes at least `time`; NULL: none. */
static const ckpt_candidate *next_fallback(const ckpt_candidates *candidates, ckpt_ns time)
{
    const ckpt_candidate *next = NULL;
    for (int i = 0; i < candidates->fallback_count; i++) {
        const ckpt_candidate *const it = &candidates->fallback[i];
        next = it->time >= time && (next == NULL || it->time < next->time) ? it : next;
    }
    return next;
}

/* A schedule may fit where the better one that was made from it does not. The fastest that fits is taken; of those that
 * take about as long only one is tried. */
static ckpt_code try_fallbacks(const ckpt_maker *m, const ckpt_candidates *candidates, tries *t, ckpt_err *err)
{
    const ckpt_bytes lost = t->lost; /* of the best: it says how much lower to ask */
    const ckpt_candidate *it = next_fallback(candidates, 0);
    for (bool first = true; it != NULL && !(t->fits && it->time >= t->plan->time_ns); first = false) {
        if (!first && ckpt_plan_stopped(m->options)) {
            break;
        }
        if (it->peak <= m->limit && !was_packed(t, it)) {
            CKPT_TRY(try_candidate(m, it, m->options->effort, t, err));
        }
        it = next_fallback(candidates, it->time + it->time / ALIKE + 1);
    }
    t->lost = lost;
    return CKPT_OK;
}

/* Ask under lower limits. What was lost to fragmentation says how much lower; when that fits, go halfway back. */
static ckpt_code repair(const ckpt_maker *m, const ckpt_candidates *first, tries *t, ckpt_err *err)
{
    ckpt_plan_options options = *m->options;
    ckpt_candidates known = *first;
    options.effort -= options.effort > CKPT_EFFORT_LOW; /* this can only make it faster: less is paid for that */
    ckpt_bytes above = m->limit;                        /* the lowest limit whose candidates did not fit */
    ckpt_bytes below = 0;                               /* the highest one whose candidates did, or that had none */
    options.no_min_peak = true;                         /* schedules of low peaks are known */
    for (int round = 1; round < ROUNDS && above - below > above / 100 && !ckpt_plan_stopped(m->options); round++) {
        const ckpt_bytes held = less_lost(m->limit, t->lost); /* by what would lose as little */
        const ckpt_bytes next = above - above / 50;
        const ckpt_bytes floor = m->options->floor_bytes; /* no schedule gets below */
        ckpt_bytes limit = below > 0 ? below + (above - below) / 2 : held < next ? held : next;
        limit = limit < floor ? floor + (above - floor) / 2 : limit;
        if (above - limit < above / 1000) {
            break;
        }
        options.incumbent = known.candidate;
        options.incumbent_count = known.count;
        ckpt_candidates candidates;
        CKPT_TRY(ckpt_maker_ask(m, &options, limit, &candidates, err));
        CKPT_TRY(try_candidates(m, &candidates, t, err));
        for (int i = 0; i < candidates.count; i++) {
            ckpt_candidates_add(&known, &candidates.candidate[i]);
        }
        if (t->better || t->lost < 0) {
            below = limit;
        } else {
            above = limit;
        }
    }
    return CKPT_OK;
}

/* By so much that the allocations of the fastest candidate are worth more effort. */
static bool is_much_slower(const ckpt_plan *plan, const ckpt_candidates *first)
{
    return first->count > 0 && plan->time_ns - first->candidate[0].time > first->candidate[0].time / 10;
}

/* The fastest candidate that fits: of `first`, the candidates under the full limit; or of those of lowest peak. What is
 * slower than what was hoped for may be repaired. */
static ckpt_code allocate(const ckpt_maker *m, const ckpt_candidates *first, ckpt_plan *plan, bool *fits, ckpt_err *err)
{
    tries t = {.plan = plan};
    ckpt_candidates_progress(first, "allocation", m->limit, m->options);
    CKPT_TRY(try_candidates(m, first, &t, err));
    if (t.lost >= 0) {
        CKPT_TRY(try_fallbacks(m, first, &t, err));
    }
    if (!t.fits) {
        ckpt_candidates lowest = *first;
        CKPT_TRY(ckpt_maker_lowest(m, &lowest, plan, err));
        t.fits = plan->arena_bytes <= m->limit;
    }
    *fits = t.fits;
    if (t.fits && t.lost >= 0 && t.lost <= LOST_MAX && is_much_slower(t.plan, first) &&
        m->options->effort < CKPT_EFFORT_MOST && !ckpt_plan_stopped(m->options)) {
        CKPT_TRY(try_candidate(m, &first->candidate[0], m->options->effort + 1, &t, err));
    }
    const bool slower = t.fits && t.plan->time_ns - first->candidate[0].time > first->candidate[0].time / 500;
    return slower && t.lost >= 0 && m->strategy->budgeted ? repair(m, first, &t, err) : CKPT_OK;
}

ckpt_code ckpt_maker_attempt(const ckpt_maker *m, ckpt_candidates *candidates, ckpt_plan *plan, bool *fits,
                             ckpt_err *err)
{
    *fits = false;
    CKPT_TRY(ckpt_maker_ask(m, m->options, m->options->only_min_peak ? 0 : m->limit, candidates, err));
    return allocate(m, candidates, plan, fits, err);
}

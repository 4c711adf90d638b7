/* The least time of a chain of blocks as a step function of the bytes there are: docs/explanation/chain-program.md.
 *
 *   X(s, t, m) = min  leaf    time(s),                                                        s = t
 *                     keep o  time(s, o) + X(s+1, t, m - bytes(s, o))
 *                     drop r  forward(s..r-1) + X(r, t, m - crossing(s, r)) + X(s, r-1, m)
 *
 * X(s, t, .) is kept as its steps, in exact bytes. Steps that a schedule better than the best known cannot use are left
 * out. Functions of more than `points` steps are thinned: upwards for a schedule, downwards for a bound. */
#include <assert.h>

#include "planner/chain/chain_dp_impl.h"
#include "planner/chain/step_function_impl.h"

enum {
    POINTS_DEFAULT = 256,
    POINTS_COARSE = 12, /* while E is looked for */
    SPINE = 16,         /* times as many for intervals up to the end of the chain: they are few */
    POLL = 1 << 22,     /* work between looks at the clock */
};

/* More bytes than that are not used, so that sums of two stay within 63 bits. */
#define BYTES_ENOUGH (((ckpt_bytes)1 << 62) - 1)

typedef struct dp {
    const ckpt_dp_figures *f;
    const ckpt_plan_options *options;
    ckpt_bytes limit;
    ckpt_ns excess; /* E: no more is of interest */
    int points;
    ckpt_thinning thinning;
    bool thinned, stopped;
    int64_t work_max, polled;
    ckpt_dp_windows windows;
    ckpt_stepfn **row;  /* [s][t - s], t < n, as the windows */
    ckpt_stepfn *spine; /* [s]: X(s, n, .) */
    ckpt_stepfn_maker maker;
    ckpt_arena *scratch;
    ckpt_mark start; /* of what a run takes: behind the figures, so that the first block of memory stays */
} dp;

static const ckpt_stepfn *stepfn_of(const dp *d, int s, int t)
{
    static const ckpt_stepfn none = {NULL, 0};
    if (t == d->f->n) {
        return &d->spine[s];
    }
    return t - s < d->windows.row_count[s] ? &d->row[s][t - s] : &none;
}

/* Excess of dropping s..r-1. */
static ckpt_ns dropped(const dp *d, int s, int r, int pass)
{
    return d->f->drop[pass][r - 1] - d->f->drop[pass][s - 1];
}

static void make_leaves(dp *d, int s, int pass)
{
    const ckpt_dp_block *const block = &d->f->chain->block[s];
    for (int o = 0; o < block->leaf_count; o++) {
        ckpt_stepfn_add_point(&d->maker, block->leaf[o].peak[pass], block->leaf[o].time[pass] - d->f->base[pass][s]);
    }
}

static void make_interval(dp *d, int s, int t)
{
    const ckpt_dp_figures *const f = d->f;
    const ckpt_dp_block *const block = &f->chain->block[s];
    const int pass = ckpt_dp_pass(f, t);
    if (s == t) {
        make_leaves(d, s, pass);
        return;
    }
    for (int o = 0; o < block->keep_count; o++) {
        ckpt_stepfn_add_sum(&d->maker, stepfn_of(d, s + 1, t), block->keep[o].bytes, NULL,
                            block->keep[o].time[pass] - f->base[pass][s], ckpt_dp_keeping(f, s, t, o));
    }
    ckpt_bytes dropping = 0;
    for (int r = s + 1; r <= t; r++) {
        const ckpt_ns time = dropped(d, s, r, pass);
        dropping = ckpt_dp_larger(dropping, ckpt_dp_dropping(f, s, r - 1, pass));
        const ckpt_bytes from = ckpt_dp_add(dropping, ckpt_dp_gradient(f, t));
        if (time > d->maker.time_max || from > d->maker.bytes_max) {
            break; /* both only rise with r */
        }
        ckpt_stepfn_add_sum(&d->maker, stepfn_of(d, r, t), ckpt_dp_crossing(f, s, r), stepfn_of(d, s, r - 1), time,
                            from);
    }
}

/* Whether to go on. */
static bool look_up(dp *d)
{
    d->stopped = d->stopped || d->maker.work > d->work_max;
    if (d->maker.work - d->polled > POLL) {
        d->polled = d->maker.work;
        d->stopped = d->stopped || ckpt_plan_stopped(d->options);
    }
    return !d->stopped;
}

static ckpt_code take_rows(dp *d, ckpt_err *err)
{
    const int n = d->f->n;
    d->row = CKPT_NEW(d->scratch, ckpt_stepfn *, n + 1);
    d->spine = CKPT_NEW(d->scratch, ckpt_stepfn, n + 1);
    for (int s = 1; s < n && d->row != NULL; s++) {
        d->row[s] = CKPT_NEW(d->scratch, ckpt_stepfn, d->windows.row_count[s]);
        if (d->row[s] == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "intervals of %d blocks", n);
        }
    }
    return d->row != NULL && d->spine != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "intervals of %d blocks", n);
}

/* Intervals of one length that end before the chain does. */
static ckpt_code fill_length(dp *d, int length, const ckpt_dp_classes *classes, bool *any, ckpt_err *err)
{
    const int n = d->f->n;
    *any = false;
    for (int s = 1; s + length - 1 < n; s++) { /* one window for all of a class */
        if (length <= d->windows.row_count[s] && classes->rep[s] < s) {
            const ckpt_dp_window *const mine = &d->windows.window[s][length - 1];
            ckpt_dp_window *const all = &d->windows.window[classes->rep[s]][length - 1];
            all->time = mine->time > all->time ? mine->time : all->time;
            all->low = mine->low < all->low ? mine->low : all->low;
            all->high = mine->high > all->high ? mine->high : all->high;
        }
    }
    for (int s = 1; s + length - 1 < n && look_up(d); s++) {
        if (length > d->windows.row_count[s]) {
            continue;
        }
        *any = true;
        const ckpt_dp_window *const window = &d->windows.window[s][length - 1];
        if (classes->rep[s] < s) {
            d->row[s][length - 1] = d->row[classes->rep[s]][length - 1];
        } else if (window->time >= 0) {
            ckpt_stepfn_begin(&d->maker, window->low, window->high, window->time);
            make_interval(d, s, s + length - 1);
            CKPT_TRY(ckpt_stepfn_take(&d->maker, d->points, d->thinning, d->scratch, &d->row[s][length - 1],
                                      &d->thinned, err));
        }
    }
    return CKPT_OK;
}

/* The main line: intervals to the end of the chain, from the last block on. Of each function only what the blocks
 * before s leave is kept. */
static ckpt_code fill_spine(dp *d, ckpt_err *err)
{
    const int n = d->f->n;
    ckpt_dp_relief before;
    CKPT_TRY(ckpt_dp_relief_init(&before, d->f, CKPT_DP_FIRST, d->scratch, err));
    for (int k = 1; k < n; k++) {
        ckpt_dp_relief_put(&before, k, 1);
    }
    for (int s = n; s >= 1 && look_up(d); s--) {
        ckpt_stepfn_begin(&d->maker, 0, d->limit, d->excess);
        make_interval(d, s, n);
        int kept = 0;
        for (int k = 0; k < d->maker.count; k++) {
            const ckpt_stepfn_point step = d->maker.at[k];
            if (ckpt_dp_relief_time(&before, d->limit - step.bytes) <= d->excess - step.time &&
                ckpt_dp_price_before(&d->windows, s, step.bytes) <= d->excess - step.time) {
                d->maker.at[kept++] = step;
            }
        }
        d->maker.count = kept;
        const int most = d->points * SPINE;
        CKPT_TRY(ckpt_stepfn_take(&d->maker, most, d->thinning, d->scratch, &d->spine[s], &d->thinned, err));
        if (s > 1) {
            ckpt_dp_relief_put(&before, s - 1, -1);
        }
    }
    return CKPT_OK;
}

static ckpt_code fill(dp *d, ckpt_err *err)
{
    const int n = d->f->n;
    ckpt_dp_classes classes;
    CKPT_TRY(ckpt_dp_classes_init(&classes, d->f, d->scratch, err));
    CKPT_TRY(ckpt_dp_windows_find(&d->windows, d->f, d->limit, d->excess, d->options, d->scratch, err));
    CKPT_TRY(take_rows(d, err));
    d->maker.work += d->windows.work;
    d->stopped = d->stopped || ckpt_plan_stopped(d->options);
    if (d->stopped || d->windows.bound > d->excess) {
        return CKPT_OK; /* all functions stay empty: there is nothing */
    }
    bool any = true;
    for (int length = 1; length < n && any && !d->stopped; length++) {
        CKPT_TRY(fill_length(d, length, &classes, &any, err));
        ckpt_dp_classes_longer(&classes);
    }
    return fill_spine(d, err);
}

/* Forget the functions; the maker's memory stays for the next run. */
static void begin(dp *d, ckpt_ns excess, int points, ckpt_thinning thinning)
{
    ckpt_arena_rewind(d->scratch, d->start);
    d->excess = excess < CKPT_DP_FOREVER ? excess : CKPT_DP_FOREVER;
    d->points = points;
    d->thinning = thinning;
    d->thinned = false;
}

static ckpt_ns value(const dp *d, int s, int t, ckpt_bytes m)
{
    const ckpt_stepfn *const fn = stepfn_of(d, s, t);
    const int k = ckpt_stepfn_find(fn, m);
    return k < 0 ? INT64_MAX / 4 : fn->at[k].time;
}

typedef struct choice {
    ckpt_dp_do what;
    int option; /* of DROP: r */
    ckpt_ns time;
} choice;

/* What gives X(s, t, m), or less where it was thinned. */
static choice choose(const dp *d, int s, int t, ckpt_bytes m)
{
    const ckpt_dp_figures *const f = d->f;
    const ckpt_dp_block *const block = &f->chain->block[s];
    const int pass = ckpt_dp_pass(f, t);
    choice best = {CKPT_DP_BACK, 0, INT64_MAX / 4};
    for (int o = 0; s == t && o < block->leaf_count; o++) {
        const ckpt_ns time = block->leaf[o].time[pass] - f->base[pass][s];
        if (block->leaf[o].peak[pass] <= m && time < best.time) {
            best = (choice){CKPT_DP_LEAF, o, time};
        }
    }
    for (int o = 0; s < t && o < block->keep_count; o++) {
        if (ckpt_dp_keeping(f, s, t, o) <= m) {
            const ckpt_ns time =
                ckpt_dp_add(block->keep[o].time[pass] - f->base[pass][s], value(d, s + 1, t, m - block->keep[o].bytes));
            best = time < best.time ? (choice){CKPT_DP_KEEP, o, time} : best;
        }
    }
    ckpt_bytes dropping = 0;
    for (int r = s + 1; r <= t; r++) {
        dropping = ckpt_dp_larger(dropping, ckpt_dp_dropping(f, s, r - 1, pass));
        const ckpt_ns alone = dropped(d, s, r, pass);
        if (alone >= best.time || ckpt_dp_add(dropping, ckpt_dp_gradient(f, t)) > m) {
            break;
        }
        const ckpt_ns time = alone + value(d, r, t, m - ckpt_dp_crossing(f, s, r)) + value(d, s, r - 1, m);
        best = time < best.time ? (choice){CKPT_DP_DROP, r, time} : best;
    }
    return best;
}

static void write_interval(const dp *d, int s, int t, ckpt_bytes m, ckpt_dp_actions *actions)
{
    const ckpt_dp_figures *const f = d->f;
    const int pass = ckpt_dp_pass(f, t);
    const choice best = choose(d, s, t, m);
    if (best.what == CKPT_DP_DROP) {
        ckpt_dp_actions_drop(actions, f, s, best.option, pass);
        write_interval(d, best.option, t, m - ckpt_dp_crossing(f, s, best.option), actions);
        write_interval(d, s, best.option - 1, m, actions);
        return;
    }
    assert(best.what != CKPT_DP_BACK);
    ckpt_dp_actions_add(actions, f, (ckpt_dp_action){best.what, s, best.option, pass});
    if (best.what == CKPT_DP_KEEP) {
        write_interval(d, s + 1, t, m - f->chain->block[s].keep[best.option].bytes, actions);
        ckpt_dp_actions_add(actions, f, (ckpt_dp_action){CKPT_DP_BACK, s, best.option, pass});
    }
}

static ckpt_code write_schedule(const dp *d, ckpt_arena *out, ckpt_dp_result *result, ckpt_err *err)
{
    ckpt_dp_schedule schedule;
    ckpt_dp_actions actions = {0};
    write_interval(d, 1, d->f->n, d->limit, &actions);
    CKPT_TRY(ckpt_dp_actions_end(&actions, out, &schedule, err));
    if (result->schedule.count == 0 || schedule.time < result->schedule.time) {
        result->schedule = schedule;
    }
    return CKPT_OK;
}

/* The least excess of the relaxation of the whole chain. */
static ckpt_code relax(dp *d, ckpt_ns *least, ckpt_err *err)
{
    const ckpt_dp_block *const last = &d->f->chain->block[d->f->n];
    ckpt_dp_relief all;
    ckpt_bytes leaf = CKPT_BYTES_MAX;
    CKPT_TRY(ckpt_dp_relief_init(&all, d->f, CKPT_DP_FIRST, d->scratch, err));
    for (int k = 1; k < d->f->n; k++) {
        ckpt_dp_relief_put(&all, k, 1);
    }
    for (int o = 0; o < last->leaf_count; o++) {
        const ckpt_bytes peak = last->leaf[o].peak[CKPT_DP_FIRST];
        leaf = peak < leaf ? peak : leaf;
    }
    *least = leaf <= d->limit ? ckpt_dp_relief_time(&all, d->limit - leaf) : INT64_MAX / 4;
    return CKPT_OK;
}

/* The schedule of minimum peak, when that is within the limit. */
static ckpt_code take_min_peak(dp *d, ckpt_arena *out, ckpt_dp_result *result, ckpt_err *err)
{
    ckpt_dp_needs needs;
    ckpt_dp_actions actions = {0};
    CKPT_TRY(ckpt_dp_needs_find(&needs, d->f, d->options, d->scratch, err));
    if (needs.need[1][d->f->n - 1] > d->limit) {
        return CKPT_OK;
    }
    ckpt_dp_needs_write(&needs, 1, d->f->n, d->limit, &actions);
    return ckpt_dp_actions_end(&actions, out, &result->schedule, err);
}

/* Some schedule within the limit, and so an E. First a bound on E, which costs little, then gaps above it that double
 * until a thinned run finds something. A thinned run may miss what there is, so the schedule of minimum peak ends
 * it. */
static ckpt_code find_excess(dp *d, ckpt_arena *out, ckpt_dp_result *result, ckpt_err *err)
{
    const int n = d->f->n;
    const ckpt_ns once = d->f->drop[CKPT_DP_FIRST][n];
    ckpt_ns least = 0;
    bool asked = false; /* for the schedule of minimum peak */
    CKPT_TRY(relax(d, &least, err));
    for (ckpt_ns gap = once / 128 + 1; least < CKPT_DP_FOREVER && gap < once; gap *= 2) {
        begin(d, least + gap, POINTS_COARSE, CKPT_THIN_UP);
        CKPT_TRY(ckpt_dp_windows_find(&d->windows, d->f, d->limit, d->excess, d->options, d->scratch, err));
        d->maker.work += d->windows.work;
        d->stopped = ckpt_plan_stopped(d->options);
        if (d->stopped) {
            break;
        }
        least = d->windows.bound > least ? d->windows.bound : least;
        if (d->windows.bound <= d->excess) {
            break;
        }
    }
    for (ckpt_ns gap = once / 256 + 1; least < CKPT_DP_FOREVER && !d->stopped; gap *= 2) {
        result->bound = ckpt_dp_add(d->f->base_time, least);
        begin(d, least + gap, POINTS_COARSE, CKPT_THIN_UP);
        CKPT_TRY(fill(d, err));
        if (!d->stopped && value(d, 1, n, d->limit) <= d->excess) {
            CKPT_TRY(write_schedule(d, out, result, err));
            result->bound = d->thinned ? result->bound : result->schedule.time;
            return CKPT_OK;
        }
        least = d->windows.bound > least ? d->windows.bound : least;
        if (gap > once / 8 && !asked) {
            CKPT_TRY(take_min_peak(d, out, result, err));
            if (result->schedule.count == 0) {
                return CKPT_OK;
            }
            asked = true;
        }
        if (asked && result->schedule.time - d->f->base_time <= least + gap) {
            return CKPT_OK;
        }
    }
    return result->schedule.count == 0 ? take_min_peak(d, out, result, err) : CKPT_OK;
}

/* Look for anything faster than what is known. True in `proved` when that showed that there is nothing. */
static ckpt_code look_below(dp *d, int points, ckpt_arena *out, ckpt_dp_result *result, bool *proved, ckpt_err *err)
{
    begin(d, result->schedule.time - d->f->base_time - 1, points, CKPT_THIN_UP);
    CKPT_TRY(fill(d, err));
    const bool found = !d->stopped && value(d, 1, d->f->n, d->limit) <= d->excess;
    *proved = !d->stopped && !d->thinned;
    return found ? write_schedule(d, out, result, err) : CKPT_OK;
}

static ckpt_code solve(dp *d, int points, ckpt_arena *out, ckpt_dp_result *result, ckpt_err *err)
{
    bool proved = false;
    CKPT_TRY(find_excess(d, out, result, err));
    if (result->schedule.count == 0 || result->schedule.time <= result->bound) {
        return CKPT_OK;
    }
    CKPT_TRY(look_below(d, points, out, result, &proved, err));
    if (proved) {
        result->bound = result->schedule.time;
        return CKPT_OK;
    }
    if (d->stopped || result->schedule.time <= result->bound) {
        return CKPT_OK;
    }
    begin(d, result->schedule.time - d->f->base_time - 1, points, CKPT_THIN_DOWN);
    CKPT_TRY(fill(d, err));
    if (!d->stopped) {
        const ckpt_ns least = value(d, 1, d->f->n, d->limit);
        const ckpt_ns bound = least <= d->excess ? d->f->base_time + least : result->schedule.time;
        result->bound = bound > result->bound ? bound : result->bound;
    }
    return CKPT_OK;
}

ckpt_code ckpt_dp_solve(const ckpt_dp_chain *chain, ckpt_bytes limit, const ckpt_dp_effort *effort,
                        const ckpt_plan_options *options, ckpt_arena *out, ckpt_dp_result *result, ckpt_err *err)
{
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_dp_figures f;
    *result = (ckpt_dp_result){0};
    ckpt_code code = ckpt_dp_figures_init(&f, chain, &scratch, err);
    dp d = {
        .f = &f,
        .options = options,
        .limit = limit < BYTES_ENOUGH ? limit : BYTES_ENOUGH,
        .work_max = effort->work > 0 ? effort->work : INT64_MAX,
        .scratch = &scratch,
        .start = ckpt_arena_mark(&scratch),
    };
    if (code == CKPT_OK) {
        result->bound = f.base_time;
        code = solve(&d, effort->points > 0 ? effort->points : POINTS_DEFAULT, out, result, err);
        result->bound = limit > BYTES_ENOUGH ? f.base_time : result->bound;
        result->exact = result->schedule.count > 0 && result->bound == result->schedule.time;
        result->work = d.maker.work;
    }
    ckpt_stepfn_end(&d.maker);
    ckpt_arena_fini(&scratch);
    return code;
}

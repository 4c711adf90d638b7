/* The minimum peak of a chain: the recurrence of the DP over bytes instead of times is one number per interval. */
#include "planner/chain/chain_dp_impl.h"

static ckpt_ns sum3(ckpt_ns a, ckpt_ns b, ckpt_ns c)
{
    const ckpt_ns sum = ckpt_dp_add(ckpt_dp_add(a, b), c);
    return sum < CKPT_DP_FOREVER ? sum : CKPT_DP_FOREVER;
}

/* N(s, t), and the fastest of the ways that need no more. */
static void find_need(const ckpt_dp_needs *needs, int s, int t)
{
    const ckpt_dp_figures *const f = needs->f;
    const ckpt_dp_block *const block = &f->chain->block[s];
    const int pass = ckpt_dp_pass(f, t);
    ckpt_bytes need = CKPT_BYTES_MAX;
    ckpt_ns best = CKPT_DP_FOREVER;
    for (int o = 0; s == t && o < block->leaf_count; o++) {
        const ckpt_bytes mine = block->leaf[o].peak[pass];
        if (mine < need || (mine == need && block->leaf[o].time[pass] < best)) {
            need = mine;
            best = block->leaf[o].time[pass];
        }
    }
    for (int o = 0; s < t && o < block->keep_count; o++) {
        const ckpt_bytes beside = ckpt_dp_add(block->keep[o].bytes, needs->need[s + 1][t - s - 1]);
        const ckpt_bytes mine = ckpt_dp_larger(ckpt_dp_keeping(f, s, t, o), beside);
        const ckpt_ns time = sum3(block->keep[o].time[pass], needs->time[s + 1][t - s - 1], 0);
        if (mine < need || (mine == need && time < best)) {
            need = mine;
            best = time;
        }
    }
    ckpt_bytes dropping = 0;
    ckpt_ns time = 0;
    for (int r = s + 1; r <= t; r++) {
        time = sum3(time, f->chain->block[r - 1].drop_time[pass], 0);
        dropping = ckpt_dp_larger(dropping, ckpt_dp_dropping(f, s, r - 1, pass));
        const ckpt_bytes behind = ckpt_dp_add(ckpt_dp_crossing(f, s, r), needs->need[r][t - r]);
        const ckpt_bytes inner = ckpt_dp_larger(behind, needs->need[s][r - 1 - s]);
        const ckpt_bytes mine = ckpt_dp_larger(ckpt_dp_add(dropping, ckpt_dp_gradient(f, t)), inner);
        if (mine > need) {
            continue;
        }
        const ckpt_ns whole = sum3(time, needs->time[r][t - r], needs->time[s][r - 1 - s]);
        if (mine < need || whole < best) {
            need = mine;
            best = whole;
        }
    }
    needs->need[s][t - s] = need;
    needs->time[s][t - s] = best;
}

ckpt_code ckpt_dp_needs_find(ckpt_dp_needs *needs, const ckpt_dp_figures *f, const ckpt_plan_options *options,
                             ckpt_arena *scratch, ckpt_err *err)
{
    const int n = f->n;
    ckpt_poll poll = {.options = options,
                      .left = CKPT_POLL_WORK}; /* a short chain has a schedule under any time limit */
    ckpt_dp_classes classes;
    CKPT_TRY(ckpt_dp_classes_init(&classes, f, scratch, err));
    needs->f = f;
    needs->need = CKPT_NEW(scratch, ckpt_bytes *, n + 1);
    needs->time = CKPT_NEW(scratch, ckpt_ns *, n + 1);
    for (int s = 1; s <= n; s++) {
        ckpt_bytes *const need = needs->need != NULL ? CKPT_NEW(scratch, ckpt_bytes, n - s + 1) : NULL;
        ckpt_ns *const time = needs->time != NULL ? CKPT_NEW(scratch, ckpt_ns, n - s + 1) : NULL;
        if (need == NULL || time == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "needs of %d blocks", n);
        }
        needs->need[s] = need;
        needs->time[s] = time;
    }
    for (int length = 1; length <= n; length++) {
        for (int s = 1; s + length - 1 <= n; s++) {
            const int first = classes.rep[s];
            if (ckpt_poll_stopped(&poll, length)) {
                needs->need[1][n - 1] = CKPT_BYTES_MAX;
                return CKPT_OK;
            }
            if (first == s || s + length - 1 == n) { /* the last interval is of the other pass */
                find_need(needs, s, s + length - 1);
            } else {
                needs->need[s][length - 1] = needs->need[first][length - 1];
                needs->time[s][length - 1] = needs->time[first][length - 1];
            }
        }
        if (length < n) {
            ckpt_dp_classes_longer(&classes);
        }
    }
    return CKPT_OK;
}

/* The ways of block s, the fastest first by the times of the minimum peaks. */
static int choose_leaf(const ckpt_dp_needs *needs, int s, ckpt_bytes left, ckpt_ns *best)
{
    const ckpt_dp_block *const block = &needs->f->chain->block[s];
    const int pass = ckpt_dp_pass(needs->f, s);
    int way = 0;
    for (int o = 0; o < block->leaf_count; o++) {
        if (block->leaf[o].peak[pass] <= left && block->leaf[o].time[pass] < *best) {
            *best = block->leaf[o].time[pass];
            way = o;
        }
    }
    return way;
}

static int choose_keep(const ckpt_dp_needs *needs, int s, int t, ckpt_bytes left, ckpt_ns *best)
{
    const ckpt_dp_figures *const f = needs->f;
    const ckpt_dp_block *const block = &f->chain->block[s];
    int way = -1;
    for (int o = 0; o < block->keep_count; o++) {
        const ckpt_ns time = sum3(block->keep[o].time[ckpt_dp_pass(f, t)], needs->time[s + 1][t - s - 1], 0);
        if (ckpt_dp_keeping(f, s, t, o) <= left &&
            ckpt_dp_add(block->keep[o].bytes, needs->need[s + 1][t - s - 1]) <= left && time < *best) {
            *best = time;
            way = o;
        }
    }
    return way;
}

static int choose_drop(const ckpt_dp_needs *needs, int s, int t, ckpt_bytes left, ckpt_ns *best)
{
    const ckpt_dp_figures *const f = needs->f;
    const int pass = ckpt_dp_pass(f, t);
    ckpt_bytes dropping = 0;
    ckpt_ns time = 0;
    int way = -1;
    for (int r = s + 1; r <= t; r++) {
        time = sum3(time, f->chain->block[r - 1].drop_time[pass], 0);
        dropping = ckpt_dp_larger(dropping, ckpt_dp_dropping(f, s, r - 1, pass));
        const ckpt_ns whole = sum3(time, needs->time[r][t - r], needs->time[s][r - 1 - s]);
        if (whole < *best && ckpt_dp_add(dropping, ckpt_dp_gradient(f, t)) <= left &&
            needs->need[s][r - 1 - s] <= left &&
            ckpt_dp_add(ckpt_dp_crossing(f, s, r), needs->need[r][t - r]) <= left) {
            *best = whole;
            way = r;
        }
    }
    return way;
}

void ckpt_dp_needs_write(const ckpt_dp_needs *needs, int s, int t, ckpt_bytes left, ckpt_dp_actions *actions)
{
    const ckpt_dp_figures *const f = needs->f;
    const int pass = ckpt_dp_pass(f, t);
    ckpt_ns best = INT64_MAX;
    if (s == t) {
        const int leaf = choose_leaf(needs, s, left, &best);
        ckpt_dp_actions_add(actions, f, (ckpt_dp_action){CKPT_DP_LEAF, s, leaf, pass});
        return;
    }
    const int keep = choose_keep(needs, s, t, left, &best);
    const int r = choose_drop(needs, s, t, left, &best);
    if (r < 0) {
        ckpt_dp_actions_add(actions, f, (ckpt_dp_action){CKPT_DP_KEEP, s, keep, pass});
        ckpt_dp_needs_write(needs, s + 1, t, left - f->chain->block[s].keep[keep].bytes, actions);
        ckpt_dp_actions_add(actions, f, (ckpt_dp_action){CKPT_DP_BACK, s, keep, pass});
        return;
    }
    ckpt_dp_actions_drop(actions, f, s, r, pass);
    ckpt_dp_needs_write(needs, r, t, left - ckpt_dp_crossing(f, s, r), actions);
    ckpt_dp_needs_write(needs, s, r - 1, left, actions);
}

static ckpt_code find_min_peak(const ckpt_dp_chain *chain, const ckpt_plan_options *options, ckpt_arena *scratch,
                               ckpt_arena *out, ckpt_bytes *peak, ckpt_dp_schedule *schedule, ckpt_err *err)
{
    ckpt_dp_figures f;
    ckpt_dp_needs needs;
    ckpt_dp_actions actions = {0};
    CKPT_TRY(ckpt_dp_figures_init(&f, chain, scratch, err));
    CKPT_TRY(ckpt_dp_needs_find(&needs, &f, options, scratch, err));
    *peak = needs.need[1][f.n - 1];
    *schedule = (ckpt_dp_schedule){0};
    if (*peak == CKPT_BYTES_MAX) {
        return CKPT_OK;
    }
    ckpt_dp_needs_write(&needs, 1, f.n, *peak, &actions);
    return ckpt_dp_actions_end(&actions, out, schedule, err);
}

ckpt_code ckpt_dp_min_peak(const ckpt_dp_chain *chain, const ckpt_plan_options *options, ckpt_arena *out,
                           ckpt_bytes *peak, ckpt_dp_schedule *schedule, ckpt_err *err)
{
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    const ckpt_code code = find_min_peak(chain, options, &scratch, out, peak, schedule, err);
    ckpt_arena_fini(&scratch);
    return code;
}

/* labels: unit */
/* The chain DP against all persistent schedules of small chains, written out one by one, and against a replay of its
 * actions that knows only what each action reads and writes. */
#include <string.h>

#include "planner/chain/chain_dp.h"
#include "tests/support/support_graphs.h"
#include "tests/support/support_test.h"

enum { BLOCKS = 40, OPTIONS = 3, WAYS_MAX = 2000, BYTES = 160 };

typedef struct figures {
    ckpt_dp_chain chain;
    ckpt_dp_block block[BLOCKS + 1];
    ckpt_dp_keep keep[BLOCKS + 1][OPTIONS];
    ckpt_dp_leaf leaf[BLOCKS + 1][OPTIONS];
    ckpt_bytes fresh[(BLOCKS + 1) * (BLOCKS + 1)];
} figures;

/* Figures with no relation between them beyond what the contract asks for. */
static void make(figures *c, ckpt_dice *dice, int n, int options, bool fresh, int size_max)
{
    *c = (figures){.chain = {c->block, n, fresh ? c->fresh : NULL}};
    for (int k = 1; k <= n; k++) {
        ckpt_dp_block *const block = &c->block[k];
        *block = (ckpt_dp_block){
            .keep = c->keep[k],
            .leaf = c->leaf[k],
            .keep_count = ckpt_dice_roll(dice, options + 1),
            .leaf_count = 1 + ckpt_dice_roll(dice, options),
            .gradient_bytes = ckpt_dice_roll(dice, size_max),
            .crossing_bytes = ckpt_dice_roll(dice, size_max),
        };
        for (int pass = 0; pass < CKPT_DP_PASSES; pass++) {
            block->drop_time[pass] = ckpt_dice_roll(dice, 9);
            block->drop_peak[pass] = ckpt_dice_roll(dice, 2 * size_max);
            block->going_peak[pass] =
                ckpt_dice_roll(dice, 3) > 0 ? block->drop_peak[pass] + ckpt_dice_roll(dice, size_max) : CKPT_BYTES_MAX;
            for (int o = 0; o < OPTIONS; o++) {
                ckpt_dp_keep *const keep = &c->keep[k][o];
                ckpt_dp_leaf *const leaf = &c->leaf[k][o];
                keep->bytes = pass == 0 ? ckpt_dice_roll(dice, 3 * size_max) : keep->bytes;
                keep->back_peak = pass == 0 ? ckpt_dice_roll(dice, 4 * size_max) : keep->back_peak;
                keep->time[pass] = ckpt_dice_roll(dice, 12);
                keep->forward_peak[pass] =
                    ckpt_dice_roll(dice, 9) > 0 ? ckpt_dice_roll(dice, 4 * size_max) : CKPT_BYTES_MAX;
                leaf->time[pass] = ckpt_dice_roll(dice, 12);
                leaf->peak[pass] = ckpt_dice_roll(dice, 9) > 0 ? ckpt_dice_roll(dice, 4 * size_max) : CKPT_BYTES_MAX;
            }
        }
    }
    for (int j = 1; j <= n; j++) { /* what is older is not counted: falls with i */
        ckpt_bytes bytes = 0;
        for (int i = j - 1; i >= 0; i--) {
            bytes += ckpt_dice_roll(dice, size_max);
            c->fresh[i * (n + 1) + j] = bytes;
        }
    }
}

/* ---- all schedules ---- */

typedef struct way {
    ckpt_bytes peak;
    ckpt_ns time;
} way;

typedef struct ways {
    way *at;
    int count;
} ways;

static ckpt_bytes larger(ckpt_bytes a, ckpt_bytes b)
{
    return a > b ? a : b;
}

static ckpt_bytes crosses(const figures *c, int s, int r)
{
    return c->chain.fresh != NULL ? c->fresh[(s - 1) * (c->chain.count + 1) + r - 1] : c->block[r - 1].crossing_bytes;
}

static void add_way(ways *w, ckpt_bytes peak, ckpt_ns time)
{
    for (int i = 0; i < w->count; i++) { /* a schedule no better than another in both is of no interest */
        if (w->at[i].peak <= peak && w->at[i].time <= time) {
            return;
        }
    }
    assert_true(w->count < WAYS_MAX);
    w->at[w->count++] = (way){peak, time};
}

/* Every schedule of s..t, the input of s not counted. */
static ways all_ways(const figures *c, int s, int t, ckpt_arena *arena)
{
    const int pass = t == c->chain.count ? CKPT_DP_FIRST : CKPT_DP_RECOMPUTED;
    const ckpt_dp_block *const block = &c->block[s];
    const ckpt_bytes gradient = pass == CKPT_DP_FIRST ? 0 : c->block[t].gradient_bytes;
    ways mine = {CKPT_NEW(arena, way, WAYS_MAX), 0};
    if (s == t) {
        for (int o = 0; o < block->leaf_count; o++) {
            add_way(&mine, block->leaf[o].peak[pass], block->leaf[o].time[pass]);
        }
        return mine;
    }
    const ways rest = all_ways(c, s + 1, t, arena);
    for (int o = 0; o < block->keep_count; o++) {
        const ckpt_dp_keep *const keep = &block->keep[o];
        for (int i = 0; i < rest.count && keep->forward_peak[pass] < CKPT_BYTES_MAX; i++) {
            const ckpt_bytes own = larger(keep->forward_peak[pass] + gradient, keep->back_peak);
            if (rest.at[i].peak < CKPT_BYTES_MAX) {
                add_way(&mine, larger(own, keep->bytes + rest.at[i].peak), keep->time[pass] + rest.at[i].time);
            }
        }
    }
    for (int r = s + 1; r <= t; r++) {
        ckpt_bytes peak = 0;
        ckpt_ns time = 0;
        for (int k = s; k < r; k++) {
            const ckpt_bytes staying = c->block[k].drop_peak[pass] + (k > s ? crosses(c, s, k) : 0);
            const ckpt_bytes going = k > s ? c->block[k].going_peak[pass] : CKPT_BYTES_MAX;
            peak = larger(peak, gradient + (staying < going ? staying : going));
            time += c->block[k].drop_time[pass];
        }
        const ways behind = all_ways(c, r, t, arena);
        const ways before = all_ways(c, s, r - 1, arena);
        for (int i = 0; i < behind.count; i++) {
            for (int j = 0; j < before.count; j++) {
                if (behind.at[i].peak < CKPT_BYTES_MAX && before.at[j].peak < CKPT_BYTES_MAX) {
                    const ckpt_bytes both = larger(crosses(c, s, r) + behind.at[i].peak, before.at[j].peak);
                    add_way(&mine, larger(peak, both), time + behind.at[i].time + before.at[j].time);
                }
            }
        }
    }
    return mine;
}

/* ---- replay of actions ---- */

/* Whether action i leaves the output of block k to a later action: the next that touches it reads it. */
static bool wanted(const ckpt_dp_schedule *schedule, int i, int k)
{
    for (int a = i + 1; a < schedule->count; a++) {
        const ckpt_dp_action *const next = &schedule->action[a];
        if (next->block == k + 1) {
            return true;
        }
        if (next->block == k && (next->what == CKPT_DP_DROP || next->what == CKPT_DP_KEEP)) {
            return false;
        }
    }
    return false;
}

/* Peak and time of a plain chain's schedule: live are outputs that are wanted, and saved sets, which contain the output
 * of their block, from their forward to their backward. */
static void replay(const figures *c, const ckpt_dp_schedule *schedule, ckpt_bytes *peak, ckpt_ns *time)
{
    const int n = c->chain.count;
    bool output[BLOCKS + 1] = {true};
    int saved[BLOCKS + 1];
    bool ran[BLOCKS + 1] = {false};
    int done = n + 1; /* the backward of blocks done .. n is */
    for (int k = 0; k <= n; k++) {
        saved[k] = -1;
    }
    *peak = *time = 0;
    for (int i = 0; i < schedule->count; i++) {
        const ckpt_dp_action *const action = &schedule->action[i];
        const int k = action->block;
        const ckpt_dp_block *const block = &c->block[k];
        const int pass = ran[k] ? CKPT_DP_RECOMPUTED : CKPT_DP_FIRST;
        assert_true(output[k - 1] || saved[k - 1] >= 0);
        assert_true(action->what == CKPT_DP_BACK || (action->pass == pass && saved[k] < 0 && k < done));
        ckpt_bytes others = done <= n ? c->block[done - 1].gradient_bytes : 0;
        for (int b = 1; b <= n; b++) {
            if (b != k) {
                others += saved[b] >= 0 ? c->keep[b][saved[b]].bytes : 0;
                others += output[b] && saved[b] < 0 && b != k - 1 ? block[b - k].crossing_bytes : 0;
            }
        }
        const bool apart = k > 1 && saved[k - 1] < 0; /* the input is not part of a saved set */
        const ckpt_bytes input = apart ? c->block[k - 1].crossing_bytes : 0;
        const bool stays = !apart || action->what != CKPT_DP_DROP || wanted(schedule, i, k - 1);
        ckpt_bytes own = 0;
        switch (action->what) {
        case CKPT_DP_DROP:
            own = block->drop_peak[pass] + input;
            own = !stays && block->going_peak[pass] < own ? block->going_peak[pass] : own;
            *time += block->drop_time[pass];
            break;
        case CKPT_DP_KEEP:
            own = block->keep[action->option].forward_peak[pass] + input;
            *time += block->keep[action->option].time[pass];
            saved[k] = action->option;
            break;
        case CKPT_DP_BACK:
            assert_true(k == done - 1 && saved[k] == action->option);
            own = block->keep[action->option].back_peak + input - block->gradient_bytes * (done <= n);
            saved[k] = -1;
            done = k;
            break;
        case CKPT_DP_LEAF:
            assert_true(k == done - 1);
            own = block->leaf[action->option].peak[pass] + input - block->gradient_bytes * (done <= n);
            *time += block->leaf[action->option].time[pass];
            done = k;
            break;
        }
        ran[k] = true;
        output[k] = action->what == CKPT_DP_DROP;
        output[k - 1] = stays && (k == 1 || wanted(schedule, i, k - 1));
        *peak = larger(*peak, others + own);
    }
    assert_true(done == 1);
}

static ckpt_dp_result solve(const figures *c, ckpt_bytes limit, int points, ckpt_arena *arena)
{
    ckpt_err err = {0};
    ckpt_dp_result result;
    const ckpt_plan_options options = {0};
    const ckpt_dp_effort effort = {.points = points};
    CHECK_OK(ckpt_dp_solve(&c->chain, limit, &effort, &options, arena, &result, &err), err);
    return result;
}

static ckpt_ns time_of(const figures *c, const ckpt_dp_schedule *schedule)
{
    ckpt_ns time = 0;
    for (int i = 0; i < schedule->count; i++) {
        const ckpt_dp_action *const a = &schedule->action[i];
        const ckpt_dp_block *const block = &c->block[a->block];
        time += a->what == CKPT_DP_DROP ? block->drop_time[a->pass] : 0;
        time += a->what == CKPT_DP_KEEP ? block->keep[a->option].time[a->pass] : 0;
        time += a->what == CKPT_DP_LEAF ? block->leaf[a->option].time[a->pass] : 0;
    }
    return time;
}

/* At every peak that some schedule has, at one byte less, and in between. */
static void compare(const figures *c, int seed, ckpt_arena *arena, int *cases, int *impossible)
{
    const ways all = all_ways(c, 1, c->chain.count, arena);
    ckpt_err err = {0};
    ckpt_bytes least = CKPT_BYTES_MAX;
    ckpt_bytes found = 0;
    ckpt_dp_schedule schedule;
    for (int i = 0; i < all.count; i++) {
        least = all.at[i].peak < least ? all.at[i].peak : least;
    }
    CHECK_OK(ckpt_dp_min_peak(&c->chain, NULL, arena, &found, &schedule, &err), err);
    CHECK(found == least, "seed %d: least peak %lld, there is one of %lld", seed, (long long)found, (long long)least);
    CHECK((schedule.count > 0) == (least < CKPT_BYTES_MAX) && schedule.time == time_of(c, &schedule),
          "seed %d: least schedule of %d actions", seed, schedule.count);
    for (int i = 0; i < all.count && least < CKPT_BYTES_MAX; i++) {
        for (int less = 0; less < 2; less++) {
            const ckpt_bytes limit = all.at[i].peak - less;
            ckpt_ns best = INT64_MAX;
            for (int k = 0; k < all.count; k++) {
                best = all.at[k].peak <= limit && all.at[k].time < best ? all.at[k].time : best;
            }
            if (limit < 0) {
                continue;
            }
            const ckpt_dp_result fine = solve(c, limit, 0, arena);
            const ckpt_dp_result thin = solve(c, limit, 2, arena);
            const ckpt_ns time = fine.schedule.count > 0 ? fine.schedule.time : INT64_MAX;
            CHECK(time == best && fine.exact == (best < INT64_MAX), "seed %d, limit %lld: %lld ns, there is %lld", seed,
                  (long long)limit, (long long)time, (long long)best);
            CHECK((thin.schedule.count > 0) == (best < INT64_MAX), "seed %d, limit %lld: thinned", seed,
                  (long long)limit);
            CHECK(best == INT64_MAX || (thin.bound <= best && thin.schedule.time >= best),
                  "seed %d, limit %lld: %lld .. %lld do not hold %lld", seed, (long long)limit, (long long)thin.bound,
                  (long long)thin.schedule.time, (long long)best);
            CHECK(fine.schedule.time == time_of(c, &fine.schedule), "seed %d: time of actions", seed);
            ++*cases;
            *impossible += best == INT64_MAX;
            if (c->chain.fresh == NULL && best < INT64_MAX) {
                ckpt_bytes peak = 0;
                ckpt_ns replayed = 0;
                replay(c, &fine.schedule, &peak, &replayed);
                CHECK(peak <= limit && replayed == time, "seed %d, limit %lld: replay %lld B, %lld ns, not %lld ns",
                      seed, (long long)limit, (long long)peak, (long long)replayed, (long long)time);
            }
        }
    }
}

static void equals_all_schedules(void **state)
{
    int cases = 0;
    int impossible = 0;
    for (int seed = 1; seed <= 260; seed++) {
        CKPT_TEST_ARENA(arena);
        ckpt_dice dice = {(uint64_t)seed * 7919};
        figures c;
        make(&c, &dice, 1 + seed % 6, 1 + seed % OPTIONS, seed % 4 == 0, seed % 5 == 0 ? 3 : 40);
        compare(&c, seed, &arena, &cases, &impossible);
    }
    CHECK(cases > 1500 && impossible > 80, "too easy: %d cases, %d impossible", cases, impossible);
}

/* ---- longer chains: the recurrence over every number of bytes, nothing left out ---- */

typedef struct table {
    ckpt_ns at[BLOCKS + 1][BLOCKS + 1][BYTES + 1];
} table;

static ckpt_ns at_least(ckpt_ns a, ckpt_ns b)
{
    return a < b ? a : b;
}

static ckpt_ns value_of(const table *x, int s, int t, ckpt_bytes m)
{
    return m < 0 ? INT64_MAX / 8 : x->at[s][t][m];
}

static ckpt_ns best_of(const figures *c, const table *x, int s, int t, ckpt_bytes m)
{
    const int pass = t == c->chain.count ? CKPT_DP_FIRST : CKPT_DP_RECOMPUTED;
    const ckpt_dp_block *const block = &c->block[s];
    const ckpt_bytes gradient = pass == CKPT_DP_FIRST ? 0 : c->block[t].gradient_bytes;
    ckpt_ns best = INT64_MAX / 8;
    for (int o = 0; s == t && o < block->leaf_count; o++) {
        best = block->leaf[o].peak[pass] <= m ? at_least(best, block->leaf[o].time[pass]) : best;
    }
    for (int o = 0; s < t && o < block->keep_count; o++) {
        const ckpt_dp_keep *const keep = &block->keep[o];
        if (keep->forward_peak[pass] <= m - gradient && keep->back_peak <= m) {
            best = at_least(best, keep->time[pass] + value_of(x, s + 1, t, m - keep->bytes));
        }
    }
    ckpt_ns time = 0;
    for (int r = s + 1; r <= t; r++) {
        const ckpt_dp_block *const passed = &c->block[r - 1];
        const ckpt_bytes staying = passed->drop_peak[pass] + (r - 1 > s ? crosses(c, s, r - 1) : 0);
        const ckpt_bytes going = r - 1 > s ? passed->going_peak[pass] : CKPT_BYTES_MAX;
        if ((staying < going ? staying : going) > m - gradient) {
            break;
        }
        time += passed->drop_time[pass];
        best = at_least(best, time + value_of(x, r, t, m - crosses(c, s, r)) + x->at[s][r - 1][m]);
    }
    return best;
}

static void fill(const figures *c, table *x)
{
    for (int length = 1; length <= c->chain.count; length++) {
        for (int s = 1; s + length - 1 <= c->chain.count; s++) {
            for (int m = 0; m <= BYTES; m++) {
                x->at[s][s + length - 1][m] = best_of(c, x, s, s + length - 1, m);
            }
        }
    }
}

/* Blocks like those of networks: what is kept contains what crosses, a second run takes no longer. */
static void make_plausible(figures *c, ckpt_dice *dice, int n, int kinds, bool mixed, int size_max)
{
    make(c, dice, n, 2, false, size_max);
    for (int k = 1; k <= n; k++) {
        ckpt_dp_block *const block = &c->block[k];
        const ckpt_bytes input = k > 1 ? c->block[k - 1].crossing_bytes : 0;
        block->keep_count = 1 + ckpt_dice_roll(dice, 2);
        block->leaf_count = 1;
        block->gradient_bytes = block->crossing_bytes;
        for (int pass = 0; pass < CKPT_DP_PASSES; pass++) {
            const ckpt_ns time = 1 + ckpt_dice_roll(dice, 99);
            const ckpt_ns forward = pass == 0 ? time : block->drop_time[0];
            block->drop_time[pass] = forward;
            block->drop_peak[pass] = block->crossing_bytes + ckpt_dice_roll(dice, 4);
            block->going_peak[pass] = block->drop_peak[pass] + input;
            for (int o = 0; o < 2; o++) {
                ckpt_dp_keep *const keep = &c->keep[k][o];
                keep->bytes = block->crossing_bytes + (o + 1) * ckpt_dice_roll(dice, size_max);
                keep->forward_peak[pass] = keep->bytes + ckpt_dice_roll(dice, 3);
                keep->back_peak = keep->bytes + 2 * block->crossing_bytes;
                keep->time[pass] = 3 * forward + (o == 0 ? forward / 2 : 0);
            }
            c->leaf[k][0] = (ckpt_dp_leaf){{3 * block->drop_time[0], 3 * forward},
                                           {c->keep[k][1].back_peak, c->keep[k][1].back_peak}};
        }
    }
    for (int k = 1 + kinds; k <= n; k++) { /* the first ones again, in their order or in any */
        c->block[k] = c->block[mixed ? 1 + ckpt_dice_roll(dice, kinds) : k - kinds];
    }
}

static void equals_the_table(void **state)
{
    int squeezed = 0;
    table *const x = ckpt_memory_get(sizeof *x);
    assert_non_null(x);
    for (int seed = 1; seed <= 18; seed++) {
        CKPT_TEST_ARENA(arena);
        ckpt_dice dice = {(uint64_t)seed * 104729};
        figures c;
        const int n = 10 + seed;
        make_plausible(&c, &dice, n, seed % 3 < 2 ? 1 + seed % 4 : n, seed % 3 == 1, 4 + seed % 12);
        fill(&c, x);
        for (ckpt_bytes limit = 1; limit <= BYTES; limit += 3) {
            const ckpt_ns best = x->at[1][n][limit];
            const ckpt_dp_result result = solve(&c, limit, seed % 2 == 0 ? 0 : 6, &arena);
            const bool none = best >= INT64_MAX / 8;
            CHECK((result.schedule.count == 0) == none, "seed %d, limit %lld", seed, (long long)limit);
            CHECK(none || (result.bound <= best && best <= result.schedule.time),
                  "seed %d, limit %lld: %lld .. %lld, "
                  "there is %lld",
                  seed, (long long)limit, (long long)result.bound, (long long)result.schedule.time, (long long)best);
            CHECK(none || seed % 2 == 1 || result.exact, "seed %d, limit %lld: not exact", seed, (long long)limit);
            squeezed += !none && best > x->at[1][n][BYTES];
        }
    }
    ckpt_memory_put(x);
    CHECK(squeezed > 200, "too easy: %d", squeezed);
}

/* Blocks that are equal but for a saved set that nobody can use: the same answer, and the equal ones take less. */
static void equal_blocks_are_solved_once(void **state)
{
    for (int seed = 1; seed <= 6; seed++) {
        CKPT_TEST_ARENA(arena);
        ckpt_dice dice = {(uint64_t)seed * 31};
        figures c;
        make_plausible(&c, &dice, BLOCKS, 1 + seed % 3, seed % 2 == 0, 12);
        figures *const other = CKPT_NEW(&arena, figures, 1);
        assert_non_null(other);
        *other = c;
        for (int k = 1; k <= BLOCKS; k++) {
            const int count = c.block[k].keep_count;
            memcpy(other->keep[k], c.block[k].keep, sizeof other->keep[k]);
            other->keep[k][count] = (ckpt_dp_keep){.bytes = 100000 + k, .back_peak = CKPT_BYTES_MAX};
            other->block[k].keep = other->keep[k];
            other->block[k].keep_count = count + 1;
        }
        other->chain.block = other->block;
        for (ckpt_bytes limit = 40; limit <= 400; limit += 60) {
            const ckpt_dp_result once = solve(&c, limit, 0, &arena);
            const ckpt_dp_result each = solve(other, limit, 0, &arena);
            CHECK(once.schedule.count == each.schedule.count && once.schedule.time == each.schedule.time &&
                      once.exact == each.exact && once.exact == (once.schedule.count > 0),
                  "seed %d, limit %lld: %lld and %lld ns", seed, (long long)limit, (long long)once.schedule.time,
                  (long long)each.schedule.time);
            CHECK(once.work <= each.work, "seed %d: equal blocks took more", seed);
        }
    }
}

static ckpt_code starved(void *context, ckpt_arena *arena, ckpt_err *err)
{
    const figures *const c = context;
    const ckpt_plan_options options = {0};
    const ckpt_dp_effort effort = {.points = 4};
    ckpt_dp_result result;
    ckpt_bytes peak = 0;
    ckpt_dp_schedule schedule;
    ckpt_code code = ckpt_dp_solve(&c->chain, 60, &effort, &options, arena, &result, err);
    return code == CKPT_OK ? ckpt_dp_min_peak(&c->chain, NULL, arena, &peak, &schedule, err) : code;
}

static void out_of_memory(void **state)
{
    ckpt_dice dice = {5};
    figures c;
    make_plausible(&c, &dice, 12, 12, false, 12);
    ckpt_test_starve_arena(starved, &c);
}

/* Sizes and times near the end of 63 bits. */
static void huge_figures(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_dice dice = {9};
    figures c;
    make_plausible(&c, &dice, 3, 3, false, 12);
    const ckpt_bytes size = (ckpt_bytes)1 << 60;
    const ckpt_ns time = (ckpt_ns)1 << 60;
    for (int k = 1; k <= 3; k++) {
        c.block[k].keep_count = 1;
        for (int pass = 0; pass < CKPT_DP_PASSES; pass++) {
            c.block[k].drop_time[pass] = time;
            c.keep[k][0].time[pass] = time;
            c.leaf[k][0].time[pass] = time;
            c.keep[k][0].forward_peak[pass] = c.leaf[k][0].peak[pass] = size;
        }
        c.keep[k][0].bytes = size;
        c.keep[k][0].back_peak = size;
    }
    const ckpt_dp_result all = solve(&c, CKPT_BYTES_MAX, 0, &arena);
    CHECK(all.schedule.count > 0 && all.exact && all.schedule.time == 3 * time, "all kept: %lld ns",
          (long long)all.schedule.time);
    const ckpt_dp_result none = solve(&c, size - 1, 0, &arena);
    CHECK(none.schedule.count == 0, "found below the least peak");
    ckpt_bytes peak = 0;
    ckpt_dp_schedule schedule;
    ckpt_err err = {0};
    CHECK_OK(ckpt_dp_min_peak(&c.chain, NULL, &arena, &peak, &schedule, &err), err);
    CHECK(peak > size && peak < size + 1000 && schedule.count > 0, "least peak %lld", (long long)peak);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_all_schedules),
        cmocka_unit_test(equals_the_table),
        cmocka_unit_test(equal_blocks_are_solved_once),
        cmocka_unit_test(out_of_memory),
        cmocka_unit_test(huge_figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

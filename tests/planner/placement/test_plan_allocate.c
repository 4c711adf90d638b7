/* labels: unit */
/* Placement: random lifetimes never overlap, the arena is never below the live bound nor far above it, where the best
 * packing is known it is found, and the search says the same as trying all orders. */
#include <string.h>

#include "planner/placement/allocate_impl.h"
#include "tests/support/support_graphs.h"
#include "tests/support/support_test.h"

static void check_places(const ckpt_allocation *allocation, int count, ckpt_bytes arena_bytes, uint64_t seed)
{
    ckpt_bytes highest = 0;
    for (int i = 0; i < count; i++) {
        CHECK(allocation[i].offset >= 0, "seed %d: allocation %d at %lld", (int)seed, i,
              (long long)allocation[i].offset);
        highest =
            allocation[i].offset + allocation[i].bytes > highest ? allocation[i].offset + allocation[i].bytes : highest;
        for (int j = 0; j < i; j++) {
            const bool together = allocation[i].from <= allocation[j].to && allocation[j].from <= allocation[i].to;
            CHECK(!together || allocation[i].offset + allocation[i].bytes <= allocation[j].offset ||
                      allocation[j].offset + allocation[j].bytes <= allocation[i].offset,
                  "seed %d: allocations %d and %d overlap", (int)seed, i, j);
        }
    }
    CHECK(highest == arena_bytes, "seed %d: arena %lld, highest end %lld", (int)seed, (long long)arena_bytes,
          (long long)highest);
}

/* The address that looking at every byte finds: of free room that is large enough the first, or the first of the
 * smallest. */
static int plain_room(const bool *used, int room, int bytes, bool tightest)
{
    int found = -1, size = 0;
    for (int from = 0, end = 0; from < room; from = end + 1) {
        for (end = from; end < room && !used[end];) {
            end++;
        }
        const int free = end == room ? INT32_MAX : end - from;
        if (free >= bytes && (found < 0 || (tightest && free < size))) {
            found = from;
            size = free;
        }
    }
    return found;
}

static void room_that_was_given_back_is_found(void **state)
{
    enum { BLOCKS = 60, BYTES = 9, ROOM = BLOCKS * BYTES, CHANGES = 2000 };
    for (uint64_t seed = 1; seed <= 20; seed++) {
        CKPT_TEST_ARENA(arena);
        ckpt_dice dice = {seed};
        const bool tightest = seed % 2 == 0;
        ckpt_gaps *const gaps = ckpt_gaps_take(BLOCKS, &arena);
        bool used[ROOM + 1] = {false};
        int bytes[BLOCKS] = {0}, offset[BLOCKS];
        assert_non_null(gaps);
        ckpt_gaps_clear(gaps, tightest);
        for (int change = 0; change < CHANGES; change++) {
            const int block = ckpt_dice_roll(&dice, BLOCKS);
            const bool put = bytes[block] == 0;
            if (put) {
                bytes[block] = 1 + ckpt_dice_roll(&dice, BYTES);
                offset[block] = plain_room(used, ROOM + 1, bytes[block], tightest);
                const ckpt_bytes at = ckpt_gaps_put(gaps, block, bytes[block]);
                CHECK(at == offset[block], "seed %d, change %d: at %lld, wanted %d", (int)seed, change, (long long)at,
                      offset[block]);
            } else {
                ckpt_gaps_remove(gaps, block, bytes[block]);
            }
            memset(&used[offset[block]], put, (size_t)bytes[block]);
            bytes[block] = put ? bytes[block] : 0;
        }
        ckpt_gaps_clear(gaps, tightest);
        CHECK(ckpt_gaps_put(gaps, 0, CKPT_BYTES_MAX) == 0, "all of memory is one gap");
        CHECK(ckpt_gaps_put(gaps, 1, 1) == -1, "room beyond 63 bits");
        ckpt_gaps_remove(gaps, 0, CKPT_BYTES_MAX);
        CHECK(ckpt_gaps_put(gaps, 1, 1) == 0, "room that was given back is not found");
    }
    (void)state;
}

static void random_lifetimes(void **state)
{
    double worst = 0;
    for (uint64_t seed = 1; seed <= 120; seed++) {
        ckpt_dice dice = {seed};
        ckpt_allocation allocation[200];
        const int count = 1 + ckpt_dice_roll(&dice, seed % 10 == 0 ? 200 : 40);
        const int steps = 1 + ckpt_dice_roll(&dice, 100);
        ckpt_bytes live[101] = {0};
        ckpt_bytes most = 0;
        for (int i = 0; i < count; i++) {
            const int from = ckpt_dice_roll(&dice, steps);
            const int to = from + ckpt_dice_roll(&dice, steps - from);
            const ckpt_bytes bytes = ckpt_dice_roll(&dice, 10) == 0 ? 0 : 64 * (1 + ckpt_dice_roll(&dice, 50));
            allocation[i] = (ckpt_allocation){"x", i, from, to, -7, bytes};
            for (int t = from; t <= to; t++) {
                live[t] += bytes;
                most = live[t] > most ? live[t] : most;
            }
        }
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        ckpt_bytes bound = 0;
        ckpt_bytes packed = 0;
        CHECK_OK(ckpt_allocations_live(allocation, count, &arena, &bound, &err), err);
        CHECK(bound == most, "seed %d: live bound %lld, counted %lld", (int)seed, (long long)bound, (long long)most);
        CHECK_OK(ckpt_allocations_pack(allocation, count, 0, NULL, &arena, &packed, &err), err);
        CHECK(packed >= most, "seed %d: arena below what is live", (int)seed);
        check_places(allocation, count, packed, seed);
        const double waste = most > 0 ? (double)packed / (double)most - 1 : 0;
        worst = waste > worst ? waste : worst;
    }
    CHECK(worst < 0.25, "%.0f %% lost to fragmentation", 100 * worst);
}

/* Cut a rectangle into pieces: a packing without any loss exists. Guillotine cuts, which nested lifetimes are. */
static void cut(ckpt_allocation *allocation, int *count, ckpt_dice *dice, int from, int to, ckpt_bytes bytes, int depth)
{
    if (depth == 0 || (to == from && bytes < 2)) {
        allocation[(*count)++] = (ckpt_allocation){"x", 0, from, to, 0, bytes};
        return;
    }
    if (to > from && ckpt_dice_roll(dice, 2) == 0) {
        const int middle = from + ckpt_dice_roll(dice, to - from);
        cut(allocation, count, dice, from, middle, bytes, depth - 1);
        cut(allocation, count, dice, middle + 1, to, bytes, depth - 1);
    } else if (bytes > 1) {
        const ckpt_bytes half = 1 + ckpt_dice_roll(dice, (int)bytes - 1);
        cut(allocation, count, dice, from, to, half, depth - 1);
        cut(allocation, count, dice, from, to, bytes - half, depth - 1);
    } else {
        cut(allocation, count, dice, from, to, bytes, 0);
    }
}

static void known_packings(void **state)
{
    int perfect = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        ckpt_dice dice = {seed};
        ckpt_allocation allocation[64];
        int count = 0;
        cut(allocation, &count, &dice, 0, 30, 1000, 3 + (int)(seed % 3));
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        ckpt_bytes packed = 0;
        CHECK_OK(ckpt_allocations_pack(allocation, count, 0, NULL, &arena, &packed, &err), err);
        check_places(allocation, count, packed, seed);
        perfect += packed == 1000;
        CHECK(packed <= 1200, "seed %d: %lld for 1000 bytes", (int)seed, (long long)packed);
    }
    CHECK(perfect >= 45, "%d of 60 packed without loss", perfect);
}

/* --- Exact search against all orders --- */

enum { FEW = 12, ALL_ORDERS = 1500 };

/* Every packing whose allocations lie on each other or on 0 puts them in some order, each at the highest end under it:
 * so the least height of all orders is the least there is. Orders that cannot be below `best` any more are left. */
typedef struct enumeration {
    const ckpt_allocation *allocation;
    int count, steps;
    ckpt_bytes offset[FEW], best, live;
    bool put[FEW];
} enumeration;

static bool can_be_below(const enumeration *e)
{
    for (int t = 0; t < e->steps; t++) {
        ckpt_bytes floor = 0;
        ckpt_bytes left = 0;
        for (int i = 0; i < e->count; i++) {
            const bool here = e->allocation[i].from <= t && t <= e->allocation[i].to;
            const ckpt_bytes end = e->offset[i] + e->allocation[i].bytes;
            floor = here && e->put[i] && end > floor ? end : floor;
            left += here && !e->put[i] ? e->allocation[i].bytes : 0;
        }
        if (floor + left >= e->best) {
            return false;
        }
    }
    return true;
}

static void enumerate(enumeration *e, int put)
{
    if (e->best == e->live || !can_be_below(e)) {
        return;
    }
    if (put == e->count) {
        e->best = 0;
        for (int i = 0; i < e->count; i++) {
            const ckpt_bytes end = e->offset[i] + e->allocation[i].bytes;
            e->best = end > e->best ? end : e->best;
        }
        return;
    }
    for (int i = 0; i < e->count; i++) {
        if (e->put[i]) {
            continue;
        }
        e->offset[i] = 0;
        for (int j = 0; j < e->count; j++) {
            const bool together =
                e->allocation[i].from <= e->allocation[j].to && e->allocation[j].from <= e->allocation[i].to;
            const ckpt_bytes end = e->offset[j] + e->allocation[j].bytes;
            e->offset[i] = e->put[j] && together && end > e->offset[i] ? end : e->offset[i];
        }
        e->put[i] = true;
        enumerate(e, put + 1);
        e->put[i] = false;
    }
}

/* Every capacity from below the live bound to above the least height: found where there is a packing, refuted where
 * there is none. */
static void check_search(ckpt_allocation *allocation, int count, ckpt_bytes least, uint64_t seed)
{
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    ckpt_bytes live = 0;
    CHECK_OK(ckpt_allocations_live(allocation, count, &arena, &live, &err), err);
    for (ckpt_bytes capacity = live - 1; capacity <= least + 1; capacity++) {
        int64_t work = 100000000;
        ckpt_pack_outcome outcome = CKPT_PACK_SPENT;
        CHECK_OK(ckpt_allocations_search(allocation, count, capacity, &work, NULL, &arena, &outcome, &err), err);
        CHECK(outcome == (capacity >= least ? CKPT_PACK_FOUND : CKPT_PACK_NONE),
              "seed %d: answer %d at capacity %lld, the least is %lld", (int)seed, (int)outcome, (long long)capacity,
              (long long)least);
        ckpt_bytes highest = 0;
        for (int i = 0; i < count && outcome == CKPT_PACK_FOUND; i++) {
            highest = allocation[i].offset + allocation[i].bytes > highest ? allocation[i].offset + allocation[i].bytes
                                                                           : highest;
        }
        CHECK(highest <= capacity, "seed %d: %lld found within %lld", (int)seed, (long long)highest,
              (long long)capacity);
        if (outcome == CKPT_PACK_FOUND) {
            check_places(allocation, count, highest, seed);
        }
    }
    ckpt_bytes packed = 0;
    CHECK_OK(ckpt_allocations_pack(allocation, count, 0, NULL, &arena, &packed, &err), err);
    CHECK(packed == least, "seed %d: packed in %lld, the least is %lld", (int)seed, (long long)packed,
          (long long)least);
}

static void add_pieces(ckpt_allocation *allocation, int *count, ckpt_dice *dice, ckpt_bytes bytes, int from, int to)
{
    while (bytes > 0 && *count < FEW) {
        const ckpt_bytes piece = *count == FEW - 1 ? bytes : 1 + ckpt_dice_roll(dice, bytes < 4 ? (int)bytes : 4);
        allocation[(*count)++] = (ckpt_allocation){"x", 0, from, to, -1, piece};
        bytes -= piece;
    }
}

/* Every step is full, which is where a packing may fail to exist: at each, some allocations end and others of the same
 * bytes together begin. */
static int full_steps(ckpt_allocation *allocation, ckpt_dice *dice, int *steps)
{
    const int most = 4 + ckpt_dice_roll(dice, 6);
    *steps = 3 + ckpt_dice_roll(dice, 4);
    int count = 0;
    add_pieces(allocation, &count, dice, most, 0, *steps - 1);
    for (int t = 1; t < *steps; t++) {
        ckpt_bytes freed = 0;
        for (int i = 0; i < count && count < FEW; i++) {
            if (allocation[i].to >= t && ckpt_dice_roll(dice, 3) == 0) {
                allocation[i].to = t - 1;
                freed += allocation[i].bytes;
            }
        }
        add_pieces(allocation, &count, dice, freed, t, *steps - 1);
    }
    return count;
}

static void all_orders(void **state)
{
    int above = 0;
    for (uint64_t seed = 1; seed <= ALL_ORDERS; seed++) {
        ckpt_dice dice = {seed * 7919};
        ckpt_allocation allocation[FEW];
        int steps = 0;
        enumeration e = {.allocation = allocation, .best = 1000};
        e.count = full_steps(allocation, &dice, &steps);
        e.steps = steps;
        for (int t = 0; t < steps; t++) {
            ckpt_bytes live = 0;
            for (int i = 0; i < e.count; i++) {
                live += allocation[i].from <= t && t <= allocation[i].to ? allocation[i].bytes : 0;
            }
            e.live = live > e.live ? live : e.live;
        }
        enumerate(&e, 0);
        above += e.best > e.live;
        check_search(allocation, e.count, e.best, seed);
    }
    CHECK(above > 0, "no problem whose least packing is above what is live");
}

/* A forward pass and its backward: lifetimes nest, and nothing may be lost. */
static void nested(void **state)
{
    ckpt_allocation allocation[300];
    for (int i = 0; i < 300; i++) {
        allocation[i] = (ckpt_allocation){"x", i, i, 599 - i, 0, 64 * (1 + (i * 37) % 11)};
    }
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    ckpt_bytes bound = 0;
    ckpt_bytes packed = 0;
    CHECK_OK(ckpt_allocations_live(allocation, 300, &arena, &bound, &err), err);
    CHECK_OK(ckpt_allocations_pack(allocation, 300, 0, NULL, &arena, &packed, &err), err);
    assert_int_equal(packed, bound);
    check_places(allocation, 300, packed, 0);
}

/* More allocations than quadratic passes are tried on: short ones among long ones, as an allocator meets them. */
static void many(void **state)
{
    enum { COUNT = 6000, STEPS = 9000 };
    static ckpt_allocation allocation[COUNT];
    ckpt_dice dice = {7};
    for (int i = 0; i < COUNT; i++) {
        const int from = ckpt_dice_roll(&dice, STEPS);
        const int longest = ckpt_dice_roll(&dice, 8) == 0 ? STEPS - from : STEPS - from < 20 ? STEPS - from : 20;
        allocation[i] =
            (ckpt_allocation){"x", i, from, from + ckpt_dice_roll(&dice, longest), 0, 64 * ckpt_dice_roll(&dice, 50)};
    }
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    ckpt_bytes bound = 0;
    ckpt_bytes packed = 0;
    CHECK_OK(ckpt_allocations_live(allocation, COUNT, &arena, &bound, &err), err);
    CHECK_OK(ckpt_allocations_pack(allocation, COUNT, 0, NULL, &arena, &packed, &err), err);
    check_places(allocation, COUNT, packed, 7);
    CHECK(packed <= bound + bound / 5, "%lld for %lld live bytes", (long long)packed, (long long)bound);
}

/* 30,000 allocations of a training step that recomputes in segments, too many for the search: next to nothing may be
 * lost.
 *  */
static void many_nested(void **state)
{
    enum { LAYERS = 10000, SEGMENT = 100 };
    static ckpt_allocation allocation[4 * LAYERS];
    ckpt_dice dice = {11};
    int count = 0;
    int t = LAYERS;
    for (int i = LAYERS - 1; i >= 0; i--) { /* backward, last segment first, each recomputed as a whole before */
        const int first = i - i % SEGMENT;
        const bool kept = i == first || first == LAYERS - SEGMENT;
        t += i % SEGMENT == SEGMENT - 1 && !kept ? SEGMENT : 0;
        const int from = kept ? i : t - SEGMENT + i % SEGMENT;
        const int back = t + SEGMENT - 1 - i % SEGMENT;
        allocation[count++] = (ckpt_allocation){"a", 0, from, back, 0, 64 * (1 + ckpt_dice_roll(&dice, 9))};
        allocation[count++] = (ckpt_allocation){"g", 0, back, back + 1, 0, 64 * (1 + ckpt_dice_roll(&dice, 9))};
        allocation[count++] = (ckpt_allocation){"w", 0, back, back, 0, 64 * ckpt_dice_roll(&dice, 99)};
        t += i == first ? SEGMENT : 0;
    }
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    ckpt_bytes bound = 0;
    ckpt_bytes packed = 0;
    CHECK_OK(ckpt_allocations_live(allocation, count, &arena, &bound, &err), err);
    CHECK_OK(ckpt_allocations_pack(allocation, count, 0, NULL, &arena, &packed, &err), err);
    CHECK(packed <= bound + bound / 200, "%lld for %lld live bytes", (long long)packed, (long long)bound);
    for (int i = 0; i < count;
         i++) { /* allocations stand by falling end of their neighbourhood: compare near ones, and some far */
        for (int k = 1; k <= 120 && i + k < count; k++) {
            const ckpt_allocation *const a = &allocation[i];
            const ckpt_allocation *const b = &allocation[k < 100 ? i + k : (i + k * 7919) % count];
            const bool together = a != b && a->from <= b->to && b->from <= a->to;
            CHECK(!together || a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset,
                  "allocations %d and %d overlap", i, (int)(b - allocation));
        }
    }
}

/* Hard enough for restarts: every step is full, pieces are cut at random. */
static int hard_problem(ckpt_allocation *allocation, uint64_t seed)
{
    enum { STEPS = 40 };
    ckpt_dice dice = {seed};
    int count = 0;
    ckpt_bytes freed = 1000;
    for (int t = 0; t < STEPS; t++) {
        for (int i = 0; i < count; i++) {
            if (t > 0 && allocation[i].to >= t && ckpt_dice_roll(&dice, 8) == 0) {
                allocation[i].to = t - 1;
                freed += allocation[i].bytes;
            }
        }
        for (; freed > 0; count++) {
            const ckpt_bytes piece = freed < 20 ? freed : 1 + ckpt_dice_roll(&dice, freed < 150 ? (int)freed : 150);
            allocation[count] = (ckpt_allocation){"x", 0, t, STEPS - 1, 0, piece};
            freed -= piece;
        }
    }
    return count;
}

/* The same input gives the same allocations, more effort gives no larger arena, and `enough` only ends earlier. */
static void efforts(void **state)
{
    int64_t sum[CKPT_EFFORT_NORMAL + 1] = {0};
    for (uint64_t seed = 1; seed <= 2; seed++) {
        static ckpt_allocation allocation[600];
        static ckpt_allocation recomputed[600];
        const int count = hard_problem(allocation, seed);
        for (int effort = CKPT_EFFORT_LOW; effort <= CKPT_EFFORT_NORMAL; effort++) {
            const ckpt_plan_options options = {.effort = effort};
            CKPT_TEST_ARENA(arena);
            ckpt_err err = {0};
            ckpt_bytes packed = 0;
            ckpt_bytes second = 0;
            CHECK_OK(ckpt_allocations_pack(allocation, count, 0, &options, &arena, &packed, &err), err);
            check_places(allocation, count, packed, seed);
            memcpy(recomputed, allocation, sizeof allocation);
            CHECK_OK(ckpt_allocations_pack(recomputed, count, 0, &options, &arena, &second, &err), err);
            CHECK(memcmp(recomputed, allocation, sizeof allocation) == 0, "seed %d: placed in two ways", (int)seed);
            sum[effort] += packed;
            CHECK_OK(ckpt_allocations_pack(recomputed, count, packed, &options, &arena, &second, &err), err);
            CHECK(second <= packed, "seed %d: %lld, but %lld would be enough", (int)seed, (long long)second,
                  (long long)packed);
            int from = 0;
            int to = 0;
            ckpt_bytes over = -1;
            ckpt_allocations_overflow(allocation, count, packed, &from, &to, &over);
            assert_int_equal(over, 0);
            ckpt_allocations_overflow(allocation, count, packed - 7, &from, &to, &over);
            assert_int_equal(over, 7);
            bool there = false;
            for (int i = 0; i < count; i++) {
                const bool above = allocation[i].offset + allocation[i].bytes > packed - 7;
                CHECK(!above || (from <= allocation[i].from && allocation[i].to <= to),
                      "allocation %d is above outside %d..%d", i, from, to);
                there = there || (above && allocation[i].from == from);
            }
            assert_true(there);
        }
    }
    CHECK(sum[CKPT_EFFORT_NORMAL] <= sum[CKPT_EFFORT_LOW], "more effort, %lld bytes instead of %lld",
          (long long)sum[CKPT_EFFORT_NORMAL], (long long)sum[CKPT_EFFORT_LOW]);
}

static void edges(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    ckpt_bytes packed = -1;
    CHECK_OK(ckpt_allocations_pack(NULL, 0, 0, NULL, &arena, &packed, &err), err);
    assert_int_equal(packed, 0);
    ckpt_allocation huge[2] = {{"x", 0, 0, 1, 0, INT64_MAX - 1}, {"y", 1, 1, 2, 0, INT64_MAX - 1}};
    assert_int_equal(ckpt_allocations_pack(huge, 2, 0, NULL, &arena, &packed, &err), CKPT_OVERFLOW);
    ckpt_allocation apart[2] = {{"x", 0, 0, 0, 0, INT64_MAX - 1}, {"y", 1, 1, 2, 0, INT64_MAX - 1}};
    CHECK_OK(ckpt_allocations_pack(apart, 2, 0, NULL, &arena, &packed, &err), err);
    assert_int_equal(packed, INT64_MAX - 1);
}

static ckpt_code pack_starved(void *context, ckpt_arena *arena, ckpt_err *err)
{
    (void)context;
    ckpt_allocation allocation[3] = {{"x", 0, 0, 2, 0, 10}, {"y", 1, 1, 2, 0, 20}, {"z", 2, 2, 3, 0, 30}};
    ckpt_bytes packed = 0;
    return ckpt_allocations_pack(allocation, 3, 0, NULL, arena, &packed, err);
}

static ckpt_code search_starved(void *context, ckpt_arena *arena, ckpt_err *err)
{
    (void)context;
    static ckpt_allocation allocation[600];
    const int count = hard_problem(allocation, 1);
    int64_t work = 300000;
    ckpt_pack_outcome outcome = CKPT_PACK_SPENT;
    return ckpt_allocations_search(allocation, count, 1000, &work, NULL, arena, &outcome, err);
}

static void no_memory(void **state)
{
    assert_true(ckpt_test_starve_arena(search_starved, NULL) > 3);
    assert_true(ckpt_test_starve_arena(pack_starved, NULL) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(room_that_was_given_back_is_found),
        cmocka_unit_test(random_lifetimes),
        cmocka_unit_test(known_packings),
        cmocka_unit_test(all_orders),
        cmocka_unit_test(nested),
        cmocka_unit_test(many),
        cmocka_unit_test(many_nested),
        cmocka_unit_test(efforts),
        cmocka_unit_test(edges),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

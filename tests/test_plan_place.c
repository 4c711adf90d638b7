/* labels: unit */
/* Placement: random lifetimes never overlap, the arena is never below the live bound nor far above it, and where the
 * best packing is known it is found. */
#include "planner/place.h"
#include "support_graphs.h"
#include "support_test.h"

static void check_places(const ckpt_place *place, int count, ckpt_bytes arena_bytes, uint64_t seed)
{
    ckpt_bytes highest = 0;
    for (int i = 0; i < count; i++) {
        CHECK(place[i].offset >= 0, "seed %d: place %d at %lld", (int)seed, i, (long long)place[i].offset);
        highest = place[i].offset + place[i].bytes > highest ? place[i].offset + place[i].bytes : highest;
        for (int j = 0; j < i; j++) {
            const bool together = place[i].from <= place[j].to && place[j].from <= place[i].to;
            CHECK(!together || place[i].offset + place[i].bytes <= place[j].offset ||
                      place[j].offset + place[j].bytes <= place[i].offset,
                  "seed %d: places %d and %d overlap", (int)seed, i, j);
        }
    }
    CHECK(highest == arena_bytes, "seed %d: arena %lld, highest end %lld", (int)seed, (long long)arena_bytes,
          (long long)highest);
}

static void random_lifetimes(void **state)
{
    (void)state;
    double worst = 0;
    for (uint64_t seed = 1; seed <= 120; seed++) {
        ckpt_dice dice = {seed};
        ckpt_place place[200];
        const int count = 1 + ckpt_dice_roll(&dice, seed % 10 == 0 ? 200 : 40);
        const int steps = 1 + ckpt_dice_roll(&dice, 100);
        ckpt_bytes live[101] = {0};
        ckpt_bytes most = 0;
        for (int i = 0; i < count; i++) {
            const int from = ckpt_dice_roll(&dice, steps);
            const int to = from + ckpt_dice_roll(&dice, steps - from);
            const ckpt_bytes bytes = ckpt_dice_roll(&dice, 10) == 0 ? 0 : 64 * (1 + ckpt_dice_roll(&dice, 50));
            place[i] = (ckpt_place){"x", i, from, to, -7, bytes};
            for (int t = from; t <= to; t++) {
                live[t] += bytes;
                most = live[t] > most ? live[t] : most;
            }
        }
        ckpt_arena arena;
        ckpt_arena_init(&arena);
        ckpt_err err = {0};
        ckpt_bytes bound = 0;
        ckpt_bytes packed = 0;
        CHECK_OK(ckpt_places_live(place, count, &arena, &bound, &err), err);
        CHECK(bound == most, "seed %d: live bound %lld, counted %lld", (int)seed, (long long)bound, (long long)most);
        CHECK_OK(ckpt_places_pack(place, count, 0, NULL, &arena, &packed, &err), err);
        CHECK(packed >= most, "seed %d: arena below what is live", (int)seed);
        check_places(place, count, packed, seed);
        const double waste = most > 0 ? (double)packed / (double)most - 1 : 0;
        worst = waste > worst ? waste : worst;
        ckpt_arena_fini(&arena);
    }
    CHECK(worst < 0.25, "%.0f %% lost to fragmentation", 100 * worst);
}

/* Cut a rectangle into pieces: a packing without any loss exists. Guillotine cuts, which nested lifetimes are. */
static void cut(ckpt_place *place, int *count, ckpt_dice *dice, int from, int to, ckpt_bytes bytes, int depth)
{
    if (depth == 0 || (to == from && bytes < 2)) {
        place[(*count)++] = (ckpt_place){"x", 0, from, to, 0, bytes};
        return;
    }
    if (to > from && ckpt_dice_roll(dice, 2) == 0) {
        const int middle = from + ckpt_dice_roll(dice, to - from);
        cut(place, count, dice, from, middle, bytes, depth - 1);
        cut(place, count, dice, middle + 1, to, bytes, depth - 1);
    } else if (bytes > 1) {
        const ckpt_bytes half = 1 + ckpt_dice_roll(dice, (int)bytes - 1);
        cut(place, count, dice, from, to, half, depth - 1);
        cut(place, count, dice, from, to, bytes - half, depth - 1);
    } else {
        cut(place, count, dice, from, to, bytes, 0);
    }
}

static void known_packings(void **state)
{
    (void)state;
    int perfect = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        ckpt_dice dice = {seed};
        ckpt_place place[64];
        int count = 0;
        cut(place, &count, &dice, 0, 30, 1000, 3 + (int)(seed % 3));
        ckpt_arena arena;
        ckpt_arena_init(&arena);
        ckpt_err err = {0};
        ckpt_bytes packed = 0;
        CHECK_OK(ckpt_places_pack(place, count, 0, NULL, &arena, &packed, &err), err);
        check_places(place, count, packed, seed);
        perfect += packed == 1000;
        CHECK(packed <= 1200, "seed %d: %lld for 1000 bytes", (int)seed, (long long)packed);
        ckpt_arena_fini(&arena);
    }
    CHECK(perfect >= 45, "%d of 60 packed without loss", perfect);
}

/* A forward pass and its backward: lifetimes nest, and nothing may be lost. */
static void nested(void **state)
{
    (void)state;
    ckpt_place place[300];
    for (int i = 0; i < 300; i++) {
        place[i] = (ckpt_place){"x", i, i, 599 - i, 0, 64 * (1 + (i * 37) % 11)};
    }
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_err err = {0};
    ckpt_bytes bound = 0;
    ckpt_bytes packed = 0;
    CHECK_OK(ckpt_places_live(place, 300, &arena, &bound, &err), err);
    CHECK_OK(ckpt_places_pack(place, 300, 0, NULL, &arena, &packed, &err), err);
    assert_int_equal(packed, bound);
    check_places(place, 300, packed, 0);
    ckpt_arena_fini(&arena);
}

/* More places than quadratic passes are tried on: short ones among long ones, as an allocator meets them. */
static void many(void **state)
{
    (void)state;
    enum { COUNT = 6000, STEPS = 9000 };
    static ckpt_place place[COUNT];
    ckpt_dice dice = {7};
    for (int i = 0; i < COUNT; i++) {
        const int from = ckpt_dice_roll(&dice, STEPS);
        const int longest = ckpt_dice_roll(&dice, 8) == 0 ? STEPS - from : STEPS - from < 20 ? STEPS - from : 20;
        place[i] = (ckpt_place){"x", i, from, from + ckpt_dice_roll(&dice, longest), 0, 64 * ckpt_dice_roll(&dice, 50)};
    }
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_err err = {0};
    ckpt_bytes bound = 0;
    ckpt_bytes packed = 0;
    CHECK_OK(ckpt_places_live(place, COUNT, &arena, &bound, &err), err);
    CHECK_OK(ckpt_places_pack(place, COUNT, 0, NULL, &arena, &packed, &err), err);
    check_places(place, COUNT, packed, 7);
    CHECK(packed <= bound + bound / 5, "%lld for %lld live bytes", (long long)packed, (long long)bound);
    ckpt_arena_fini(&arena);
}

static void edges(void **state)
{
    (void)state;
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_err err = {0};
    ckpt_bytes packed = -1;
    CHECK_OK(ckpt_places_pack(NULL, 0, 0, NULL, &arena, &packed, &err), err);
    assert_int_equal(packed, 0);
    ckpt_place huge[2] = {{"x", 0, 0, 1, 0, INT64_MAX - 1}, {"y", 1, 1, 2, 0, INT64_MAX - 1}};
    assert_int_equal(ckpt_places_pack(huge, 2, 0, NULL, &arena, &packed, &err), CKPT_OVERFLOW);
    ckpt_place apart[2] = {{"x", 0, 0, 0, 0, INT64_MAX - 1}, {"y", 1, 1, 2, 0, INT64_MAX - 1}};
    CHECK_OK(ckpt_places_pack(apart, 2, 0, NULL, &arena, &packed, &err), err);
    assert_int_equal(packed, INT64_MAX - 1);
    ckpt_arena_fini(&arena);
}

static ckpt_code pack_starved(void *context, ckpt_err *err)
{
    (void)context;
    ckpt_place place[3] = {{"x", 0, 0, 2, 0, 10}, {"y", 1, 1, 2, 0, 20}, {"z", 2, 2, 3, 0, 30}};
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_bytes packed = 0;
    const ckpt_code code = ckpt_places_pack(place, 3, 0, NULL, &arena, &packed, err);
    ckpt_arena_fini(&arena);
    return code;
}

static void no_memory(void **state)
{
    (void)state;
    assert_true(ckpt_test_starve(pack_starved, NULL) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_lifetimes),
        cmocka_unit_test(known_packings),
        cmocka_unit_test(nested),
        cmocka_unit_test(many),
        cmocka_unit_test(edges),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

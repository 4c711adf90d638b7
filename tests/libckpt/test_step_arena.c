/* labels: unit */
/* Device memory of a framework, on a device that is the host: a step is recorded, then served from one block, and no two
 * live allocations touch, whatever comes. */
#include <stdlib.h>
#include <string.h>

#include "core/base/memory.h"
#include "include/ckpt.h"
#include "tests/support/support_test.h"

enum { ALLOCATIONS = 60, ROUNDS = 400, LIMIT = 1 << 24 };

static int stream, other_stream;
static int64_t device_bytes; /* that the device can still give */

static int32_t take(void **address, size_t bytes, void *of)
{
    (void)of;
    if ((int64_t)bytes > device_bytes) {
        return 2;
    }
    /* The size lies in front of what is given, which is aligned as the device's memory is. */
    char *const memory = aligned_alloc(512, bytes + 512);
    assert_non_null(memory);
    memcpy(memory, &bytes, sizeof bytes);
    device_bytes -= (int64_t)bytes;
    *address = memory + 512;
    return 0;
}

static int32_t give(void *address, void *of)
{
    (void)of;
    size_t bytes;
    memcpy(&bytes, (char *)address - 512, sizeof bytes);
    device_bytes += (int64_t)bytes;
    free((char *)address - 512);
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    device_bytes = LIMIT;
    ckpt_gpu_memory_from(take, give);
    return 0;
}

static ckpt_step_arena *arena_of(void)
{
    ckpt_error error;
    ckpt_step_arena *arena = NULL;
    assert_int_equal(ckpt_step_arena_create(&arena, &error), CKPT_SUCCESS);
    return arena;
}

static ckpt_gpu_counts counts_of(void)
{
    ckpt_gpu_counts counts;
    ckpt_gpu_memory_counts(&counts, 0);
    return counts;
}

static void begin(ckpt_step_arena *arena)
{
    ckpt_error error;
    CHECK(ckpt_step_arena_begin(arena, &stream, &error) == CKPT_SUCCESS, "%s", error.message);
}

static ckpt_step_arena_counts end(ckpt_step_arena *arena)
{
    ckpt_error error;
    ckpt_step_arena_counts counts;
    CHECK(ckpt_step_arena_end(arena, &counts, &error) == CKPT_SUCCESS, "%s", error.message);
    return counts;
}

typedef struct block {
    unsigned char *address;
    ptrdiff_t bytes;
    unsigned char mark;
} block;

static block filled(ptrdiff_t bytes, void *of, unsigned char mark)
{
    block b = {ckpt_gpu_malloc(bytes, 0, of), bytes, mark};
    assert_non_null(b.address);
    assert_int_equal((uintptr_t)b.address % 512, 0);
    memset(b.address, mark, (size_t)bytes);
    return b;
}

/* Nobody wrote into it meanwhile. */
static void release(block *b, void *of)
{
    for (ptrdiff_t i = 0; i < b->bytes; i++) {
        assert_int_equal(b->address[i], b->mark);
    }
    ckpt_gpu_free(b->address, b->bytes, 0, of);
    b->address = NULL;
}

/* Three activations, one of which is given up before the last begins, and a result. */
static block step(ckpt_step_arena *arena, ckpt_step_arena_counts *counts, unsigned char *at[3])
{
    begin(arena);
    block a = filled(5000, &stream, 1), b = filled(3000, &stream, 2);
    at[0] = a.address;
    at[1] = b.address;
    release(&a, &stream);
    const block result = filled(700, &stream, 3);
    block c = filled(4000, &stream, 4);
    at[2] = c.address;
    release(&b, &stream);
    release(&c, &stream);
    *counts = end(arena);
    return result;
}

static void test_a_recorded_step_is_served_from_one_block(void **state)
{
    (void)state;
    ckpt_step_arena *const arena = arena_of();
    ckpt_step_arena_counts counts;
    unsigned char *first[3], *second[3], *third[3];
    block results[3];
    results[0] = step(arena, &counts, first);
    assert_int_equal(counts.arena_bytes, 5120 + 3072); /* the last lies where the first lay */
    assert_int_equal(counts.served, 0);
    results[1] = step(arena, &counts, second);
    assert_int_equal(counts.served, 3);
    assert_int_equal(counts.outlived, 1);
    assert_int_equal(counts.missed, 0);
    assert_int_equal(counts_of().taken_bytes, 5120 + 3072 + 2 * 1024); /* the block and two results */
    assert_int_equal(counts_of().live_bytes, 2 * 1024);
    results[2] = step(arena, &counts, third);
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(second[i], third[i]);
        release(&results[i], &stream);
    }
    assert_int_equal(counts_of().live_bytes, 0);
    ckpt_step_arena_destroy(arena);
}

static void test_what_is_not_as_recorded_comes_from_the_device(void **state)
{
    (void)state;
    ckpt_step_arena *const arena = arena_of();
    ckpt_step_arena_counts counts;
    unsigned char *at[3], *again[3];
    block result = step(arena, &counts, at);
    release(&result, &stream);
    begin(arena);
    block other = filled(5000, &other_stream, 5), size = filled(9999, &stream, 6), a = filled(5000, &stream, 1);
    release(&a, &stream);
    release(&size, &stream);
    release(&other, &other_stream);
    counts = end(arena);
    assert_int_equal(counts.served, 1);
    assert_int_equal(counts.missed, 1);
    assert_int_equal(counts.missed_bytes, 10240);
    ckpt_step_arena_forget(arena);
    result = step(arena, &counts, again);
    assert_int_equal(counts.served, 0);
    assert_int_equal(counts.arena_bytes, 5120 + 3072);
    release(&result, &stream);
    ckpt_step_arena_destroy(arena);
}

/* A framework that now and then does something else: other sizes, longer lives, allocations that fail to come. */
static void test_live_allocations_never_touch(void **state)
{
    (void)state;
    srand(7);
    ckpt_step_arena *const arena = arena_of();
    int64_t served = 0;
    block kept[ALLOCATIONS] = {{0}};
    for (int round = 0; round < ROUNDS; round++) {
        block live[ALLOCATIONS] = {{0}};
        const int disturbed = round % 3 == 0 ? 0 : rand() % 4;
        begin(arena);
        for (int i = 0; i < ALLOCATIONS; i++) {
            if (disturbed == 1 && rand() % 10 == 0) {
                continue;
            }
            const ptrdiff_t bytes = disturbed == 2 && rand() % 10 == 0 ? 1 + rand() % 9000 : 1 + (i * 7919) % 5000;
            live[i] = filled(bytes, &stream, (unsigned char)(1 + i));
            const int gone = (i * 31) % (i + 1);
            if (live[gone].address != NULL && !(disturbed == 3 && rand() % 10 == 0)) {
                release(&live[gone], &stream);
            }
        }
        for (int i = 0; i < ALLOCATIONS; i++) {
            if (live[i].address == NULL) {
                continue;
            }
            if (i % 20 == 0) { /* outlives the step, until the next one's end */
                if (kept[i].address != NULL) {
                    release(&kept[i], &stream);
                }
                kept[i] = live[i];
            } else {
                release(&live[i], &stream);
            }
        }
        served += end(arena).served;
    }
    assert_true(served > ROUNDS * ALLOCATIONS / 2);
    for (int i = 0; i < ALLOCATIONS; i++) {
        if (kept[i].address != NULL) {
            release(&kept[i], &stream);
        }
    }
    assert_int_equal(counts_of().live_bytes, 0);
    ckpt_step_arena_destroy(arena);
}

static void test_steps_share_a_block_one_at_a_time(void **state)
{
    (void)state;
    ckpt_step_arena *const one = arena_of(), *const two = arena_of();
    ckpt_step_arena_counts counts;
    unsigned char *at[3];
    for (int i = 0; i < 2; i++) {
        block result = step(one, &counts, at);
        release(&result, &stream);
        begin(two);
        block large = filled(100000, &stream, 9);
        release(&large, &stream);
        counts = end(two);
        assert_int_equal(counts.served, i);
    }
    begin(one); /* has no end: the other one's step begins */
    block a = filled(5000, &stream, 1);
    begin(two);
    block large = filled(100000, &stream, 9);
    release(&large, &stream);
    release(&a, &stream);
    end(two);
    ckpt_step_arena_destroy(one);
    ckpt_step_arena_destroy(two);
}

static void test_a_device_without_room(void **state)
{
    (void)state;
    ckpt_step_arena *const arena = arena_of();
    ckpt_step_arena_counts counts;
    begin(arena);
    block large = filled(LIMIT / 2, &stream, 1);
    assert_null(ckpt_gpu_malloc(LIMIT, 0, &stream));
    release(&large, &stream);
    counts = end(arena);
    assert_int_equal(counts.arena_bytes, LIMIT / 2);
    device_bytes = LIMIT / 4;
    ckpt_error error;
    assert_int_equal(ckpt_step_arena_begin(arena, &stream, &error), CKPT_ERROR_MISSING);
    CHECK(strstr(error.message, "8388608 bytes") != NULL, "%s", error.message);
    block small = filled(100, &stream, 2);
    release(&small, &stream);
    counts = end(arena);
    assert_int_equal(counts.arena_bytes, 512);
    assert_true(counts_of().failed > 0);
    assert_null(ckpt_gpu_malloc(0, 0, &stream));
    ckpt_gpu_free(NULL, 0, 0, &stream);
    ckpt_step_arena_destroy(arena);
}

static void test_a_host_without_memory(void **state)
{
    (void)state;
    bool done = false;
    for (int allowed = 0; !done && allowed < 100; allowed++) {
        ckpt_error error = {0};
        ckpt_step_arena *arena = NULL;
        ckpt_step_arena_counts counts;
        ckpt_memory_fail_after(allowed);
        const bool made = ckpt_step_arena_create(&arena, &error) == CKPT_SUCCESS;
        if (made) {
            begin(arena);
            block blocks[70];
            for (int i = 0; i < 70; i++) { /* more than arrays hold at first */
                blocks[i] = filled(1000 + i, &stream, (unsigned char)(i + 1));
            }
            for (int i = 0; i < 70; i++) {
                release(&blocks[i], &stream);
            }
            done = ckpt_step_arena_end(arena, &counts, &error) == CKPT_SUCCESS && counts.arena_bytes > 0;
        }
        ckpt_memory_fail_after(-1);
        ckpt_step_arena_destroy(arena);
    }
    assert_true(done);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_a_recorded_step_is_served_from_one_block, set_up),
        cmocka_unit_test_setup(test_what_is_not_as_recorded_comes_from_the_device, set_up),
        cmocka_unit_test_setup(test_live_allocations_never_touch, set_up),
        cmocka_unit_test_setup(test_steps_share_a_block_one_at_a_time, set_up),
        cmocka_unit_test_setup(test_a_host_without_memory, set_up),
        cmocka_unit_test_setup(test_a_device_without_room, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

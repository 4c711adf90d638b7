/* What tests share: cmocka's includes in the order it wants, where files are, and a failing allocation loop. */
#ifndef CKPT_TESTS_SUPPORT_TEST_H
#define CKPT_TESTS_SUPPORT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/memory.h"
#include "core/base/status.h"
#include "core/base/text.h"
#include "tests/support/support_paths.h"

/* Fails the test with a formatted message when `condition` is false. */
#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fail_msg(__VA_ARGS__);                                                                                     \
        }                                                                                                              \
    } while (0)

/* Asserts CKPT_OK, or fails with err.msg. */
#define CHECK_OK(call, err)                                                                                            \
    do {                                                                                                               \
        const ckpt_code check_code = (call);                                                                           \
        CHECK(check_code == CKPT_OK, "code %d: %s", (int)check_code, (err).msg);                                       \
    } while (0)

/* `name` is an arena that is given back where its block ends. */
#define CKPT_TEST_ARENA(name)                                                                                          \
    __attribute__((cleanup(ckpt_arena_fini))) ckpt_arena name;                                                         \
    ckpt_arena_init(&name)

/* What a test of something that writes begins with: cmocka's set-up and teardown put its address into *state. */
typedef struct ckpt_test_fixture {
    ckpt_arena arena;
    ckpt_text text;
    ckpt_err err;
} ckpt_test_fixture;
int ckpt_test_open(void **state);
int ckpt_test_close(void **state);

/* Run `call(context, err)` with 0, 1, 2, ... allocations allowed until it succeeds. Every earlier run must report
 * CKPT_NO_MEMORY and leave no block live. Gives the number of allocations of the successful run. */
int64_t ckpt_test_starve(ckpt_code (*call)(void *context, ckpt_err *err), void *context);

/* The same with a new arena, or a new text, for each run, which counts among what must not be left. */
int64_t ckpt_test_starve_arena(ckpt_code (*call)(void *context, ckpt_arena *arena, ckpt_err *err), void *context);
int64_t ckpt_test_starve_text(ckpt_code (*call)(void *context, ckpt_text *text, ckpt_err *err), void *context);

/* How many instances to try: `all`, or `few` and a line that says so when CKPT_TEST_ROUNDS=few, which CTest sets
 * where sanitizers make each instance several times as slow. */
uint64_t ckpt_test_rounds(uint64_t all, uint64_t few);

/* Random numbers of a test: print the seed, the program's first argument or a fixed one; then 0 .. limit - 1 each. */
void ckpt_test_seed(int argc, char **argv);
uint64_t ckpt_test_draw(uint64_t limit);

/* True: ckpt_plan_options.cancelled of a call that is to end at once. */
bool ckpt_test_cancelled(void *context);

#endif

/* labels: unit */
/* Asking for memory without taking it. */
#include "tests/support/support_test.h"

#include <stdint.h>

#include "core/base/memory.h"

static void room_is_asked_for_and_not_kept(void **state)
{
    (void)state;
    const int64_t live = ckpt_memory_live();
    (void)ckpt_memory_refused();
    assert_true(ckpt_memory_is_room(1));
    assert_true(ckpt_memory_is_room((size_t)64 << 20));
    assert_int_equal(ckpt_memory_refused(), 0);
    assert_false(ckpt_memory_is_room(SIZE_MAX / 2));
    assert_true(ckpt_memory_refused() == SIZE_MAX / 2);
    assert_true(ckpt_memory_live() == live);
}

static void it_is_an_allocation_for_tests_that_starve(void **state)
{
    (void)state;
    ckpt_memory_fail_after(1);
    const bool first = ckpt_memory_is_room(4096), second = ckpt_memory_is_room(4096);
    ckpt_memory_fail_after(-1);
    assert_true(first);
    assert_false(second);
    assert_true(ckpt_memory_refused() == 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(room_is_asked_for_and_not_kept),
        cmocka_unit_test(it_is_an_allocation_for_tests_that_starve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

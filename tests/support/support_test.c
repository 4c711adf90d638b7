/* What tests share. */
#include "tests/support/support_test.h"

#include <stdlib.h>
#include <string.h>

static uint64_t random_state = 20261120;

void ckpt_test_seed(int argc, char **argv)
{
    const uint64_t asked = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    random_state = asked > 0 ? asked : random_state; /* of 0 nothing but 0 comes */
    print_message("seed %llu\n", (unsigned long long)random_state);
}

/* xorshift64*: Vigna, ACM TOMS 42(4), 2016. */
uint64_t ckpt_test_draw(uint64_t limit)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (random_state * 2685821657736338717u >> 11) % limit;
}

uint64_t ckpt_test_rounds(uint64_t all, uint64_t few)
{
    const char *const asked = getenv("CKPT_TEST_ROUNDS");
    if (asked == NULL || strcmp(asked, "few") != 0) {
        return all;
    }
    print_message("%llu of %llu instances\n", (unsigned long long)few, (unsigned long long)all);
    return few;
}

int64_t ckpt_test_starve(ckpt_code (*call)(void *context, ckpt_err *err), void *context)
{
    const int64_t live = ckpt_memory_live();
    for (int64_t allowed = 0;; allowed++) {
        ckpt_err err = {0};
        ckpt_memory_fail_after(allowed);
        const ckpt_code code = call(context, &err);
        ckpt_memory_fail_after(-1);
        CHECK(ckpt_memory_live() == live, "%lld allocations allowed: %lld blocks leaked", (long long)allowed,
              (long long)(ckpt_memory_live() - live));
        if (code == CKPT_OK) {
            return allowed;
        }
        CHECK(code == CKPT_NO_MEMORY, "%lld allocations allowed: code %d, wanted CKPT_NO_MEMORY: %s",
              (long long)allowed, (int)code, err.msg);
        CHECK(allowed < 1000000, "never succeeds");
    }
}

bool ckpt_test_cancelled(void *context)
{
    (void)context;
    return true;
}

/* What tests share. */
#include "tests/support_test.h"

#include <stdlib.h>
#include <string.h>

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

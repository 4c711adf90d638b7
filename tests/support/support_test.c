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

int ckpt_test_open(void **state)
{
    ckpt_test_fixture *const f = test_calloc(1, sizeof *f);
    ckpt_arena_init(&f->arena);
    ckpt_text_init(&f->text);
    *state = f;
    return 0;
}

int ckpt_test_close(void **state)
{
    ckpt_test_fixture *const f = *state;
    ckpt_text_fini(&f->text);
    ckpt_arena_fini(&f->arena);
    test_free(f);
    return 0;
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

typedef struct lender {
    ckpt_code (*with_arena)(void *context, ckpt_arena *arena, ckpt_err *err);
    ckpt_code (*with_text)(void *context, ckpt_text *text, ckpt_err *err);
    void *context;
} lender;

static ckpt_code lend_arena(void *context, ckpt_err *err)
{
    const lender *const l = context;
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    const ckpt_code code = l->with_arena(l->context, &arena, err);
    ckpt_arena_fini(&arena);
    return code;
}

static ckpt_code lend_text(void *context, ckpt_err *err)
{
    const lender *const l = context;
    ckpt_text text;
    ckpt_text_init(&text);
    const ckpt_code code = l->with_text(l->context, &text, err);
    ckpt_text_fini(&text);
    return code;
}

int64_t ckpt_test_starve_arena(ckpt_code (*call)(void *context, ckpt_arena *arena, ckpt_err *err), void *context)
{
    return ckpt_test_starve(lend_arena, &(lender){.with_arena = call, .context = context});
}

int64_t ckpt_test_starve_text(ckpt_code (*call)(void *context, ckpt_text *text, ckpt_err *err), void *context)
{
    return ckpt_test_starve(lend_text, &(lender){.with_text = call, .context = context});
}

bool ckpt_test_cancelled(void *context)
{
    (void)context;
    return true;
}

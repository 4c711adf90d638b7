/* labels: unit */
/* After set-up nothing is allocated: malloc and its relatives are replaced by counting ones, and the mapped bytes of
 * the process must not change. Not meaningful under a sanitizer, which has its own malloc.
 *
 * Two things cannot be had: oneDNN 2.6 keeps the table of a call's arguments in C++ maps while the call lasts, and
 * libgomp makes a new team (1.6 KB) whenever a parallel region has another number of threads than the one before. So
 * what is asked of a step is that no block is larger than LARGEST, that never more than MOST bytes are out at once,
 * and that as much is given back as was taken. A tensor, a mask or a scratchpad would show. Where oneDNN packs products
 * into memory of its own, sizes are asked of the model without products only. */
#include "tests/support/support_test.h"

#include <errno.h>
#if defined(__GLIBC__) || defined(__linux__)
#include <malloc.h>
#endif
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/support_bench.h"
#include "tests/support/support_train.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define COUNTING 0
#else
#define COUNTING 1
#endif

enum { LARGEST = 2047, MOST = 8192 }; /* the tensors of the models below mostly have 2048 bytes and more */

static _Atomic long calls, largest, out, most_out;
static _Atomic int counting;

#if COUNTING
/* glibc's own, under the names it keeps for those who replace malloc */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *memory);
void *memalign(size_t alignment, size_t bytes);

static void *note(void *memory)
{
    if (atomic_load(&counting) != 0 && memory != NULL) {
        const long bytes = (long)malloc_usable_size(memory);
        atomic_fetch_add(&calls, 1);
        const long now = atomic_fetch_add(&out, bytes) + bytes;
        if (now > atomic_load(&most_out)) {
            atomic_store(&most_out, now);
        }
        if (bytes > atomic_load(&largest)) {
            atomic_store(&largest, bytes);
        }
    }
    return memory;
}

static void forget(void *memory)
{
    if (atomic_load(&counting) != 0 && memory != NULL) {
        atomic_fetch_sub(&out, (long)malloc_usable_size(memory));
    }
}

void *malloc(size_t bytes)
{
    return note(__libc_malloc(bytes));
}

void *calloc(size_t count, size_t bytes)
{
    return note(__libc_calloc(count, bytes));
}

void *realloc(void *old, size_t bytes)
{
    forget(old);
    return note(__libc_realloc(old, bytes));
}

void *memalign(size_t alignment, size_t bytes)
{
    return note(__libc_memalign(alignment, bytes));
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return note(__libc_memalign(alignment, bytes));
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    *memory = note(__libc_memalign(alignment, bytes));
    return *memory != NULL ? 0 : ENOMEM;
}

void free(void *memory)
{
    forget(memory);
    __libc_free(memory);
}
#endif

static void start_counting(void)
{
    atomic_store(&calls, 0);
    atomic_store(&largest, 0);
    atomic_store(&out, 0);
    atomic_store(&most_out, 0);
    atomic_store(&counting, 1);
}

/* Pages the process has mapped; -1 where the system does not tell. */
static long mapped_pages(void)
{
    FILE *const file = fopen("/proc/self/statm", "r");
    long pages = -1;
    if (file != NULL) {
        if (fscanf(file, "%ld", &pages) != 1) {
            pages = -1;
        }
        fclose(file);
    }
    return pages;
}

static void steps_allocate_nothing(const char *dtype)
{
    if (!COUNTING) {
        skip();
    }
    static const struct {
        const char *file, *set;
    } model[] = {
        {"tests/models/no-library.json", ""},
        {"tests/models/fork.json", ""},
        {"tests/models/resnet-small.json", ""},
        {"tests/models/unet-small.json", ""},
        {"models/lstm.json", "batch=2 hidden=16"},
        {"models/byte-gpt.json", "batch=2 tokens=16 hidden=32 blocks=2 heads=2 vocabulary=32"},
        {"models/densenet-bc-100-12-dropout.json", "batch=2 size=8 growth=4 layers=2"},
        {"models/mnist-conv.json", "batch=2"},
    };
    const bool sizes_count = test_products_stay_in_workspace();
    for (size_t m = 0; m < sizeof model / sizeof model[0]; m++) {
        test_train t;
        test_train_open_as(&t, model[m].file, model[m].set, dtype);
        const ckpt_plan *const plan = test_train_hand_plan(&t, true, true);
        ckpt_err err = {0};
        ckpt_trace *trace = NULL;
        ckpt_executor *const executor = test_train_executor(&t, plan, NULL);
        ckpt_data *const data = test_train_data(&t, 1);
        CHECK_OK(ckpt_executor_trace_create(executor, &t.arena, &trace, &err), err);
        float loss = 0;
        /* The first step makes OpenMP start its threads: they belong to the process, and stay. */
        test_train_feed(&t, data, executor);
        CHECK_OK(ckpt_executor_step(executor, &loss, trace, &err), err);
        const long before = mapped_pages();
        start_counting();
        for (int s = 1; s < 4; s++) {
            test_train_feed(&t, data, executor);
            const ckpt_code code = ckpt_executor_step(executor, &loss, trace, &err);
            if (code != CKPT_OK) {
                atomic_store(&counting, 0);
                fail_msg("%s: %s", model[m].file, err.msg);
            }
        }
        atomic_store(&counting, 0);
        const char *const file = model[m].file;
        print_message("%s, %s: %ld calls, largest %ld, most out %ld\n", file, dtype, atomic_load(&calls),
                      atomic_load(&largest), atomic_load(&most_out));
        if (sizes_count || m == 0) {
            CHECK(atomic_load(&largest) <= LARGEST, "%s: a step took a block of %ld bytes", file,
                  atomic_load(&largest));
            CHECK(atomic_load(&most_out) <= MOST, "%s: a step took %ld bytes at once", file, atomic_load(&most_out));
        }
        CHECK(atomic_load(&out) == 0, "%s: three steps kept %ld bytes", file, atomic_load(&out));
        CHECK(mapped_pages() == before, "%s: three steps mapped %ld more pages", file, mapped_pages() - before);
        ckpt_data_close(data);
        ckpt_executor_destroy(executor);
        test_train_close(&t);
    }
}

static void float32_steps(void **state)
{
    steps_allocate_nothing("float32");
}

static void bfloat16_steps(void **state)
{
    steps_allocate_nothing("bfloat16");
}

/* The counter counts: a test of absence must show that it would see presence. */
static void counter_counts(void **state)
{
    if (!COUNTING) {
        skip();
    }
    start_counting();
    void *const memory = ckpt_memory_get(100);
    atomic_store(&counting, 0);
    ckpt_memory_put(memory);
    assert_true(atomic_load(&calls) == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counter_counts),
        cmocka_unit_test(float32_steps),
        cmocka_unit_test(bfloat16_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

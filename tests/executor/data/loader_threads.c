/* The loader's workers, with a source of data that is nothing but numbers, so that ThreadSanitizer can watch them without
 * the rest (preset tsan). */
#include <stdio.h>
#include <stdlib.h>

#include "executor/data/loader.h"
#include "kernels/place.h"

enum { BATCHES = 2000, MOST_WORKERS = 4, LENGTH = 16 };

/* In place of executor/data/data.c: a batch holds its own number; one of them cannot be read. */
ckpt_code ckpt_data_fill(const ckpt_data *data, uint64_t step, void *const *input, ckpt_err *err)
{
    (void)data;
    for (int i = 0; i < LENGTH; i++) {
        ((int32_t *)input[0])[i] = (int32_t)step;
    }
    return step == BATCHES ? CKPT_FAIL(err, CKPT_BAD_INPUT, "batch %d", BATCHES) : CKPT_OK;
}

/* In place of kernels/place.c: ThreadSanitizer does not know OpenMP. */
void ckpt_place_leave(void)
{
}

static int check(int workers)
{
    const ckpt_tensor tensor = {.name = "x", .dtype = CKPT_INT32, .shape = {1, {LENGTH}}};
    const ckpt_model model = {.input = &tensor, .input_count = 1};
    int32_t x[LENGTH];
    void *const input[] = {x};
    const uint64_t number[] = {0};
    ckpt_loader *loader = NULL;
    ckpt_err err = {0};
    if (ckpt_loader_create(NULL, &model, input, number, 1, 1, workers, &loader, &err) != CKPT_OK) {
        fprintf(stderr, "FAILED: %s\n", err.msg);
        return 1;
    }
    int wrong = 0;
    for (int b = 0; b < BATCHES; b++) {
        wrong += ckpt_loader_take(loader, input, &err) != CKPT_OK || x[0] != b || x[LENGTH - 1] != b;
    }
    wrong += ckpt_loader_take(loader, input, &err) != CKPT_BAD_INPUT;
    ckpt_loader_destroy(loader);
    if (wrong > 0) {
        fprintf(stderr, "FAILED: %d of %d batches with %d workers\n", wrong, BATCHES + 1, workers);
    }
    return wrong > 0;
}

int main(void)
{
    int failed = 0;
    for (int workers = 0; workers <= MOST_WORKERS; workers++) {
        failed += check(workers);
    }
    return failed > 0;
}

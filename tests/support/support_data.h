/* Batches for tests, whose data can always be read. */
#ifndef CKPT_TESTS_SUPPORT_DATA_H
#define CKPT_TESTS_SUPPORT_DATA_H

#include "executor/data/data.h"
#include "tests/support/support_test.h"

static inline void ckpt_test_fill(const ckpt_data *data, uint64_t step, void *const *input)
{
    ckpt_err err = {0};
    CHECK_OK(ckpt_data_fill(data, step, input, &err), err);
}

#endif

/* The promise, on the CPU: every strategy under every budget gives the bits of keep-all, in the memory that was predicted. */
#ifndef CKPT_TESTS_SUPPORT_IDENTITY_H
#define CKPT_TESTS_SUPPORT_IDENTITY_H

#include <stdbool.h>

typedef struct ckpt_identity {
    const char *file, *set, *dtype; /* as test_train_open_as has them */
    bool all;  /* false: every other strategy, the others in the next call; the two tightest budgets */
    int steps; /* to train, 2 .. TEST_TRAIN_STEPS */
} ckpt_identity;

/* Train the network by keep-all, then by every strategy of the table under four budgets from the strategy's least to
 * keep-all's peak. Fails unless losses, weights, gradients, optimizer state and statistics have the same bits after each
 * step and every measured peak is the predicted one, with freed memory full of NaN too. */
void ckpt_identity_check(const ckpt_identity *of);

#endif

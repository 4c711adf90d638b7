/* What the tests named after failures of checkpointing share: networks written into the test, plans by what is set in
 * them, runs step by step. */
#ifndef CKPT_TESTS_SUPPORT_RIGHT_H
#define CKPT_TESTS_SUPPORT_RIGHT_H

#include "tests/support/support_train.h"

/* Open a model given as text, with ' for ", its members "inputs", "layers", "optimizer" and what else stands in it.
 * `file`: a name in the tests' work folder that no other program writes. `scheme`: NULL for one rank and one batch. */
void test_right_open(test_train *t, const char *file, const char *members, const ckpt_scheme *scheme);

/* Runs of the layer's forward op in all micro-batches (its label is the name, or the name and "@j"). */
int test_right_runs(const ckpt_plan *plan, const test_train *t, const char *layer);

/* A run that goes on step by step, poisoned; `fill` puts in the data of the next step, as `step` does itself. */
typedef struct test_right_executor {
    const test_train *t;
    ckpt_executor *executor;
    ckpt_data *data;
} test_right_executor;
void test_right_start(test_right_executor *e, const test_train *t, const ckpt_plan *plan, uint64_t seed);
void test_right_fill(test_right_executor *e);
float test_right_step(test_right_executor *e);
void test_right_end(test_right_executor *e);

/* The node of that name. Then its parameter k, its gradient or its statistic k, as doubles in t's arena. */
int test_right_node(const test_train *t, const char *name);
double *test_right_param(test_right_executor *e, const char *layer, int k, int *count);
double *test_right_grad(test_right_executor *e, const char *layer, int k, int *count);
double *test_right_statistic(test_right_executor *e, const char *layer, int k, int *count);

/* |found - wanted| <= bound * (1 + the largest |wanted|), else the test fails with `what`. */
void test_right_near(const double *found, const double *wanted, int count, double bound, const char *what);

/* The bits of keep-all in `steps` steps: under what is flagged, and where everything runs again; poisoned. The layers
 * in `again`, separated by spaces, run twice or more under what is flagged. */
void test_right_same_bits(test_train *t, const char *recomputed, const char *what);

#endif

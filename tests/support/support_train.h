/* Training in tests: a model file lowered and ready, plans for it, and a run that writes down every bit it leaves. */
#ifndef CKPT_TESTS_SUPPORT_TRAIN_H
#define CKPT_TESTS_SUPPORT_TRAIN_H

#include "core/formats/plan.h"
#include "executor/data/data.h"
#include "executor/executor.h"
#include "planner/api/planner.h"
#include "planner/replay/replay.h"

enum { TEST_TRAIN_STEPS = 5, TEST_TRAIN_INPUTS = 8, TEST_TRAIN_THREADS = 2, TEST_SECTIONS = 4 };

typedef struct test_train {
    ckpt_arena arena;
    const ckpt_model *model;
    const ckpt_network *network; /* of one rank and one micro-batch */
    const ckpt_lowered *lowered;
    ckpt_device *device;
    bool borrowed; /* the device is somebody else's */
    int64_t limit[TEST_TRAIN_INPUTS];
} test_train;

/* `file` is below the source folder, or a full path; `set` is "var=n var=n ...". Fails the test when
 * anything is wrong. */
void test_train_open(test_train *t, const char *file, const char *set);
/* The same in another dtype than the model's (NULL: the model's); and on a device that is open and stays open. */
void test_train_open_as(test_train *t, const char *file, const char *set, const char *dtype);
void test_train_open_on(test_train *t, ckpt_device *device, const char *file, const char *set, const char *dtype);
void test_train_close(test_train *t);
/* From now on t->lowered is of this scheme; clip_norm 0 and loss_scale 1 are none. */
void test_train_spread(test_train *t, const ckpt_scheme *scheme, double clip_norm, double loss_scale);
/* An executor of t->lowered and synthetic data for it; fail the test when anything is wrong. */
ckpt_executor *test_train_executor(const test_train *t, const ckpt_plan *plan, const ckpt_executor_options *options);
ckpt_data *test_train_data(const test_train *t, uint64_t seed);
/* Fill the inputs of the executor's next step: every micro-batch with the batch of the data that it is. */
void test_train_feed(const test_train *t, const ckpt_data *data, ckpt_executor *executor);
/* Fill them and do the step; gives its loss. */
float test_train_step(const test_train *t, const ckpt_data *data, ckpt_executor *executor);

/* What a run leaves: the loss and the hashes of weights, gradients (empty where they are fused), optimizer state and
 * statistics after each step. */
typedef struct test_record {
    float loss[TEST_TRAIN_STEPS];
    char digest[TEST_TRAIN_STEPS][TEST_SECTIONS][CKPT_DIGEST_TEXT];
    ckpt_bytes peak_bytes, outside_bytes; /* the most any step measured, by the executor's own count and by traces */
} test_record;

typedef struct test_run {
    const ckpt_plan *plan;
    uint64_t seed;
    bool poison;
    bool record;                 /* replay a recorded step, where the device can; then nothing is traced */
    ckpt_ranks *ranks;           /* with a scheme of several; all of them run this */
    bool untraced;               /* no trace, nothing recorded either */
    int steps;                   /* run until this many are done in all; 0: TEST_TRAIN_STEPS */
    const char *state_in;        /* resume from; NULL: start */
    const char *state_out;       /* write at the end; NULL: do not */
    const ckpt_trace *predicted; /* every step must hold what this says, category by category; NULL: not looked at */
} test_run;

void test_train_run(const test_train *t, const test_run *run, test_record *record);

/* Fails naming `what` and the first difference in steps first .. TEST_TRAIN_STEPS - 1; gradients that one of them does
 * not have are not compared. */
void test_record_same(const test_record *wanted, const test_record *found, int first, const char *what);

/* Every own parameter of the network that t->lowered is of, one behind the other, into `to`; gives their number.
 * `executor` NULL: only that. */
typedef ckpt_code (*test_getter)(ckpt_executor *executor, int node, int k, float *host, ckpt_err *err);
int64_t test_train_get(const test_train *t, ckpt_executor *executor, test_getter get, float *to);
void test_train_set(const test_train *t, ckpt_executor *executor, const float *from);

/* The optimizer by the device's kernel, on numbers in that order that were scaled before. */
typedef struct test_optimizer {
    float *param, *grad, *slot[4];
    int64_t count;
} test_optimizer;
void test_optimizer_init(test_optimizer *o, test_train *t); /* all zero, in t's arena */
void test_optimizer_step(const test_optimizer *o, const test_train *t, uint64_t step);

/* The planner's, in t's arena; budget 0: without a limit. */
ckpt_plan *test_train_plan(test_train *t, const char *strategy, ckpt_bytes budget);

/* A plan made here, by hand and not by the planner: every op once in reference order, no place ever used twice.
 *   inplace   ops that may run in place do, where nothing reads their input later
 *   offload   every buffer that waits for backward goes to the host after its first use and leaves after every one, to
 *             come back right before the next */
ckpt_plan *test_train_hand_plan(test_train *t, bool inplace, bool offload);

#endif

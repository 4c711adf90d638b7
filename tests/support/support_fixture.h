/* Networks that others described, with what they found: a folder of tests/families or tests/onnx with the model's file,
 * batch.safetensors, losses and gradients, made by the make_fixtures.py beside it. */
#ifndef CKPT_TESTS_SUPPORT_FIXTURE_H
#define CKPT_TESTS_SUPPORT_FIXTURE_H

#include "tests/support/support_test.h"

#include <stdio.h>

#include "executor/executor.h"
#include "planner/api/planner.h"

typedef struct test_fixture {
    const char *name;
    char folder[400];
    ckpt_arena arena;
    const ckpt_network *network;
    const ckpt_lowered *lowered;
    ckpt_device *device; /* the CPU, two threads */
} test_fixture;

/* Runs every fixture of tests/`kind` that has a file `model`, or `only` that one (NULL: all); gives how many. */
int test_fixture_each(const char *kind, const char *model, const char *only, void (*run)(const char *name));

/* `open` sets name, folder and arena; the caller reads the model into that arena, and `lower` does the rest. */
void test_fixture_open(test_fixture *f, const char *kind, const char *name);
void test_fixture_lower(test_fixture *f, const ckpt_model *model);
void test_fixture_close(test_fixture *f);

/* The path of one of its files; two live at a time. */
const char *test_fixture_file(const test_fixture *f, const char *name);

/* An executor of a plan by `strategy`, with these weights, which are closed. */
ckpt_executor *test_fixture_executor(test_fixture *f, const char *strategy, ckpt_weights *weights);
/* Step `step` (from 0) on the batch. Its loss must be the next number of `losses`, within rounding: float32 against
 * float64, as in test_pytorch.c, with a factor of ten. */
void test_fixture_step(const test_fixture *f, ckpt_executor *executor, FILE *losses, int step);
/* Gradient k of node n must be `wanted`, within rounding of its largest number. */
void test_fixture_check_gradient(const test_fixture *f, ckpt_executor *executor, int n, int k, const float *wanted);

#endif

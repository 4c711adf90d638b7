/* Timing the algorithms a library offers for one product or convolution, and seeing that they are right. For profilers:
 * allocates and waits. */
#ifndef CKPT_KERNELS_CUDA_TRIAL_H
#define CKPT_KERNELS_CUDA_TRIAL_H

#include "kernels/cuda/cuda.h"

enum {
    CKPT_TRIAL_CANDIDATES = 8, /* that are timed at most */
    CKPT_TRIAL_RESULTS = 2,
};

/* What a run writes: rows x columns, the rows `stride` elements apart. */
typedef struct ckpt_trial_result {
    void *at; /* NULL: there is no such result */
    ckpt_dtype dtype;
    int64_t rows, columns, stride;
} ckpt_trial_result;

typedef struct ckpt_trial {
    ckpt_cuda *cuda;
    const char *what; /* "product", for messages */
    int count;        /* candidates; number 0 is what the library puts first */
    void *self;
    /* Start candidate k on the compute stream. CKPT_DEVICE: it is refused. */
    ckpt_code (*run)(void *self, int candidate, ckpt_err *err);
    ckpt_trial_result result[CKPT_TRIAL_RESULTS];
    int64_t terms; /* of each sum, which says how far two orders of adding may be apart */
    double inside; /* how far what candidates round on the way may take them apart, for a largest result of 1 */
} ckpt_trial;

/* Runs every candidate twice on zeroed results: the bits must be the same, and the values those of the first candidate
 * that gave the same bits twice, but for rounding; then times it. *fastest: of those that passed, 0 where none did.
 * *took: its time, -1 where none did. Errors: CKPT_DEVICE, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_trial_run(const ckpt_trial *trial, ckpt_tuning *tuning, int *fastest, ckpt_ns *took,
                                       ckpt_err *err);

/* The median time of a few runs of a candidate. */
CKPT_MUST_USE ckpt_code ckpt_trial_time(const ckpt_trial *trial, const ckpt_tuning *tuning, int candidate,
                                        ckpt_ns *took, ckpt_err *err);

#endif

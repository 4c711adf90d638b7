/* Times the algorithms that a library offers for a product or convolution, and checks their results. For profilers: it
 * allocates and waits. */
#ifndef CKPT_KERNELS_CUDA_TRIAL_H
#define CKPT_KERNELS_CUDA_TRIAL_H

#include "kernels/cuda/cuda.h"

enum {
    CKPT_TRIAL_CANDIDATES = 8, /* the most that are timed */
    CKPT_TRIAL_RESULTS = 2,
};

/* An output of a run: rows x columns, rows `stride` elements apart. */
typedef struct ckpt_trial_result {
    void *at; /* NULL: none */
    ckpt_dtype dtype;
    int64_t rows, columns, stride;
} ckpt_trial_result;

typedef struct ckpt_trial {
    ckpt_cuda *cuda;
    const char *what; /* "product", for messages */
    int count;        /* candidates; number 0 is the library's first */
    void *self;
    /* Starts a candidate on the compute stream. CKPT_DEVICE: the candidate is refused. */
    ckpt_code (*run)(void *self, int candidate, ckpt_err *err);
    ckpt_trial_result result[CKPT_TRIAL_RESULTS];
    int64_t terms; /* of each sum: bounds the difference between two orders of addition */
    double inside; /* the difference that rounding of intermediate values may add, for a largest result of 1 */
} ckpt_trial;

/* Runs every candidate twice on zeroed results. Both runs must give the same bits, and, but for rounding, the values of
 * the first candidate that passed this. Then times it. *fastest: of the candidates that passed, 0 if none did. *took:
 * its time, -1 if none passed. Errors: CKPT_DEVICE, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_trial_run(const ckpt_trial *trial, ckpt_tuning *tuning, int *fastest, ckpt_ns *took,
                                       ckpt_err *err);

/* The median time of a few runs of a candidate. */
CKPT_MUST_USE ckpt_code ckpt_trial_time(const ckpt_trial *trial, const ckpt_tuning *tuning, int candidate,
                                        ckpt_ns *took, ckpt_err *err);

#endif

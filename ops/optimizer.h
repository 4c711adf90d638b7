/* What an optimizer is: its hyperparameters and how many values it keeps per parameter. */
#ifndef CKPT_OPS_OPTIMIZER_H
#define CKPT_OPS_OPTIMIZER_H

#include "ops/op.h"

enum { CKPT_HYPER_MAX = 8, CKPT_STEP_NUMBERS = 2 };

typedef struct ckpt_optimizer {
    const char *name; /* "sgd", "adam", "adamw" */
    const char *formula, *source;
    const ckpt_attr_spec *attrs; /* hyperparameters, in the order of hyper[]; all CKPT_FLOAT or CKPT_BOOL */
    int slots_max;
    /* State values per parameter, under these hyperparameters: 0 for SGD without momentum. */
    int (*slots)(const double *hyper);
    /* What the formula takes from the number of the step, which counts from 1: worked out in double, once for all
     * parameters, and rounded. NULL: nothing. */
    void (*numbers)(const double *hyper, uint64_t step, float numbers[CKPT_STEP_NUMBERS]);
    /* The first hyperparameter that makes no sense, as CKPT_BAD_INPUT. */
    ckpt_code (*check)(const double *hyper, ckpt_err *err);
} ckpt_optimizer;

/* What every optimizer takes beside its own: "clip_norm", "loss_scale" (ckpt_network); NULL ends it. */
extern const ckpt_attr_spec ckpt_optimizer_common[];

extern const ckpt_optimizer *const ckpt_optimizer_table[]; /* NULL ends it; written by the build from ops/ */
const ckpt_optimizer *ckpt_optimizer_find(const char *name);

#endif

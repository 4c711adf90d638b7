/* What an optimizer is: its hyperparameters, what it keeps per parameter, and what a step of it takes. */
#ifndef CKPT_OPS_OPTIMIZER_H
#define CKPT_OPS_OPTIMIZER_H

#include "ops/op.h"

enum {
    CKPT_HYPER_MAX = 12,
    CKPT_STEP_NUMBERS = 6,
    CKPT_GROUP_MAX = 16, /* groups of parameters, that of all that no pattern matches counted */
};

/* What the updates of one step read beside the tensors: floats that were worked out in double. A GPU has them on the
 * device (ckpt_device_api.begin), because a recorded step is replayed with the arguments of the recording. */
typedef struct ckpt_numbers {
    float of[CKPT_GROUP_MAX][CKPT_STEP_NUMBERS]; /* the optimizer's own, per group */
    float average;                               /* how far the average of the weights moves to them */
    double clip;                                 /* factor of clip_norm */
} ckpt_numbers;

/* A parameter as an optimizer sees it: `stack` matrices [rows, columns], one behind the other as they lie in memory;
 * a vector is one matrix of one row. A filter is [out channels, the rest]. */
typedef struct ckpt_matrix {
    int64_t stack, rows, columns;
    bool hidden; /* the weight of a hidden layer (ckpt_param.hidden) */
} ckpt_matrix;

typedef struct ckpt_optimizer {
    const char *name; /* "sgd", "adam", "adamw" */
    const char *formula, *source;
    const ckpt_attr_spec *attrs; /* hyperparameters, in the order of hyper[]; all CKPT_FLOAT or CKPT_BOOL */
    int slots_max;
    /* Tensors of state under these hyperparameters: 0 for SGD without momentum. All are zeros before the first step. */
    int (*slots)(const double *hyper);
    /* Bytes of one of them for one parameter. NULL: a float for every value, and the update works value by value, so
     * that any piece of a parameter can be updated alone; else a parameter is updated as a whole. */
    ckpt_bytes (*slot_bytes)(const ckpt_matrix *matrix, int slot);
    /* Bytes of workspace that the update of one parameter takes. NULL: none. */
    ckpt_bytes (*workspace)(const ckpt_matrix *matrix, bool gpu);
    /* FLOP of the update of one parameter beside a handful per value; NULL: none. */
    ckpt_flop (*flop)(const ckpt_matrix *matrix);
    /* What the formula takes from the number of the step, which counts from 1, and from what differs between groups:
     * learning rates, which are those of hyper[] times `rate`, and weight decay. Worked out in double and rounded. */
    void (*numbers)(const double *hyper, double rate, uint64_t step, float numbers[CKPT_STEP_NUMBERS]);
    /* The first hyperparameter that makes no sense, as CKPT_BAD_INPUT. */
    ckpt_code (*check)(const double *hyper, ckpt_err *err);
} ckpt_optimizer;

/* What every optimizer takes beside its own: "clip_norm", "loss_scale", "ema" (ckpt_network); NULL ends it. */
extern const ckpt_attr_spec ckpt_optimizer_common[];

extern const ckpt_optimizer *const ckpt_optimizer_table[]; /* NULL ends it; written by the build from ops/ */
const ckpt_optimizer *ckpt_optimizer_find(const char *name);

/* The parameter's matrices. */
ckpt_matrix ckpt_matrix_of(const ckpt_param *param);

/* The numbers of a step where all parameters are of one group, the learning rate is the file's and nothing else. */
ckpt_numbers ckpt_numbers_plain(const ckpt_optimizer *optimizer, const double *hyper, uint64_t step);

/* Bytes of `slot` of a parameter: of a float per value with the spare elements (ckpt_param). */
ckpt_bytes ckpt_optimizer_slot_bytes(const ckpt_optimizer *optimizer, const ckpt_param *param, int slot);
ckpt_bytes ckpt_optimizer_workspace(const ckpt_optimizer *optimizer, const ckpt_param *param, bool gpu);

#endif

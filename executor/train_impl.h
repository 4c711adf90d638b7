/* A training as ckpt-train's own files share it. */
#ifndef CKPT_EXECUTOR_TRAIN_IMPL_H
#define CKPT_EXECUTOR_TRAIN_IMPL_H

#include "executor/data.h"
#include "executor/executor.h"
#include "executor/footprint.h"
#include "executor/loss_log.h"
#include "executor/step_report.h"
#include "executor/train_request_impl.h"

enum { CKPT_TIMES_KEPT = 4097 };

typedef struct ckpt_training {
    ckpt_train_options options;
    ckpt_arena arena;
    const ckpt_lowered *lowered;
    ckpt_plan *plan;
    ckpt_device *device;
    ckpt_executor *executor;
    ckpt_data *data;
    ckpt_trace *trace;           /* NULL: no step is traced */
    const ckpt_trace *predicted; /* from --profile; NULL: none was given */
    ckpt_recorder *recorder;     /* of a GPU's last step, while it runs */
    ckpt_footprint start, end;   /* of the device's memory, when set-up is done and when training is */
    void **input;
    ckpt_loss_log log;
    uint64_t first_step, saved_step;
    bool saved; /* the state of saved_step is in the file */
    float loss;
    uint64_t done;                 /* steps, by this process */
    ckpt_ns time[CKPT_TIMES_KEPT]; /* of the latest steps, as a ring; on a GPU of those that were not traced */
    int64_t times;
} ckpt_training;

/* Lines for people at the start, and at the end those or one JSON object; `weights`: their digest. */
void ckpt_train_say_start(const ckpt_training *training, ckpt_text *text);
CKPT_MUST_USE ckpt_code ckpt_train_say_end(ckpt_training *training, const char *weights, ckpt_text *text,
                                           ckpt_err *err);

/* The most that was in memory; 0 when no step was done. */
ckpt_bytes ckpt_train_peak(const ckpt_training *training);

#endif

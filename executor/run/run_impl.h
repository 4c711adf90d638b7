/* What runs a program: a loop over its actions that decides nothing, and what is counted meanwhile. A run reads the
 * program and writes only its own counters; the seed and the number of steps are told to it. */
#ifndef CKPT_EXECUTOR_RUN_RUN_IMPL_H
#define CKPT_EXECUTOR_RUN_RUN_IMPL_H

#include "cupti/recorder.h"
#include "executor/program/program_impl.h"
#include "executor/run/predictions.h"

typedef struct ckpt_run {
    const ckpt_program *program;
    uint64_t seed, steps; /* of the step that runs: what is drawn from, and how many steps were done before */
    ckpt_numbers numbers; /* of the running training step */
    uint64_t begun;       /* the batch that kernels draw from now (ckpt_device_api.begin) */
    bool evaluating;
    const ckpt_watcher *watcher; /* of the evaluation that runs; NULL: none */
    bool apart;                  /* each layer's update is started by itself: every step of a trace has its own time */
    void *recorded;              /* a step, ready to be replayed; NULL: none is */
    ckpt_launches launches;      /* of the rehearsal */
    double *losses;              /* per rank: of a step, on the host; NULL: one rank */
    double *squares; /* per rank and node: sums of squares of gradients, on the host; NULL: not needed there */
    ckpt_bytes live[CKPT_CATEGORY_COUNT];
    ckpt_bytes peak_bytes;    /* the most that was in memory in any step */
    ckpt_bytes heap_bytes;    /* what malloc held when the first step began; -1: none has */
    ckpt_bytes outside_bytes; /* the most it held more than that, whenever that was looked at */
} ckpt_run;

/* A trace that is being written; `measured` may be NULL everywhere. */
typedef struct ckpt_measured {
    ckpt_trace trace; /* first: the caller's ckpt_trace * points here */
    ckpt_event *event;
    ckpt_ns start_ns;
    ckpt_arena *out;            /* the trace lies in it */
    ckpt_recorder *recorder;    /* NULL: none */
    bool recording;             /* this step, and nothing has gone wrong so far */
    ckpt_err lost;              /* what went wrong; an empty message: nothing */
    int64_t dropped_before;     /* records that were lost before this step */
    ckpt_ns looked_ns, look_ns; /* at the heap: when that ended last, and what it took */
    ckpt_bytes outside_bytes;   /* what was seen */
} ckpt_measured;

/* `arena` is for what the run keeps. Errors: CKPT_NO_MEMORY. ckpt_run_fini empties the streams, also after a
 * failure. */
ckpt_code ckpt_run_init(const ckpt_program *program, ckpt_arena *arena, ckpt_run *run, ckpt_err *err);
void ckpt_run_fini(ckpt_run *run);

/* Where code and recordings come to the device at their first use, run the step once on zeros and leave everything
 * zero. `record`: record it, where that is possible. */
ckpt_code ckpt_run_rehearse(ckpt_run *run, uint64_t seed, bool record, ckpt_err *err);

/* ckpt_executor_step and ckpt_executor_evaluate, `steps` steps being done. */
ckpt_code ckpt_run_step(ckpt_run *run, uint64_t seed, uint64_t steps, ckpt_measured *measured, float *loss,
                        ckpt_err *err);
ckpt_code ckpt_run_evaluate(ckpt_run *run, uint64_t seed, uint64_t steps, const ckpt_watcher *watcher, float *loss,
                            ckpt_err *err);

/* Do a step that is no layer's. */
ckpt_code ckpt_run_exchange(const ckpt_program *program, const ckpt_action *action, ckpt_err *err);
ckpt_code ckpt_run_norm(const ckpt_run *run, const ckpt_action *action, ckpt_err *err);

/* Before the first step: what malloc has given out so far is not outside. Later calls change nothing. */
void ckpt_outside_start(ckpt_run *run);
/* Raise run->outside_bytes to what is outside now; gives what is. */
ckpt_bytes ckpt_outside_look(ckpt_run *run);

/* ckpt_executor_trace_create. */
ckpt_code ckpt_measured_create(const ckpt_program *program, ckpt_arena *out, ckpt_measured **measured, ckpt_err *err);
/* Times of steps come from stamps on their streams where the device has them, all at the end, and from its own records
 * where there is a recorder; else from the host's clock, and every step is waited for. */
ckpt_code ckpt_measured_start(const ckpt_program *program, ckpt_measured *measured, ckpt_err *err);
ckpt_code ckpt_measured_before(const ckpt_program *program, ckpt_measured *measured, int step, ckpt_err *err);
ckpt_code ckpt_measured_after(ckpt_run *run, ckpt_measured *measured, int step, ckpt_err *err);
/* When all streams are empty. */
ckpt_code ckpt_measured_end(const ckpt_program *program, ckpt_measured *measured, ckpt_err *err);

/* The recorder's part of that (device_records.c): forget what was recorded so far; tag what is started between push and
 * pop with the step; put what was recorded in place of the stamps' times, which must be there. Nothing fails: what goes
 * wrong is in `lost`, and the stamps' times stay. */
void ckpt_records_start(ckpt_measured *measured);
void ckpt_records_push(ckpt_measured *measured, int step);
void ckpt_records_pop(ckpt_measured *measured);
void ckpt_records_end(const ckpt_program *program, ckpt_measured *measured);

/* Where everything in the arena lies, by the addresses that the steps are given. Errors: CKPT_DEVICE (something lies
 * outside of it), CKPT_NO_MEMORY. */
ckpt_code ckpt_measured_allocations(const ckpt_program *program, ckpt_arena *out,
                                    const ckpt_trace_allocation **allocation, int *count, ckpt_err *err);

#endif

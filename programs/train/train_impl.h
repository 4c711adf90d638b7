/* The state of a training, shared by the files of ckpt-train. */
#ifndef CKPT_PROGRAMS_TRAIN_TRAIN_IMPL_H
#define CKPT_PROGRAMS_TRAIN_TRAIN_IMPL_H

#include "core/json/json_write.h"
#include "executor/data/loader.h"
#include "executor/executor.h"
#include "executor/run/step_report.h"
#include "executor/setup/footprint.h"
#include "profiler/in_step.h"
#include "programs/train/event_log.h"
#include "programs/train/loss_log.h"
#include "programs/train/train_request_impl.h"

enum { CKPT_TIMES_KEPT = 4097 };

/* The memory of a rank. */
typedef struct ckpt_rank_peak {
    ckpt_bytes budget, planned, measured; /* measured 0: no step was done */
} ckpt_rank_peak;

/* Of an evaluation: the sum of the losses of its batches, and how many predictions of classes were right. */
typedef struct ckpt_train_score {
    uint64_t batches; /* of all micro-batches and replicas together */
    double sum;
    int64_t right, counted;
} ckpt_train_score;

/* By the times of this run: its plan, and a new one under the same budget. */
typedef struct ckpt_train_new_plan {
    bool made;
    ckpt_ns old_ns, new_ns;
} ckpt_train_new_plan;

typedef struct ckpt_training {
    ckpt_train_options options;
    ckpt_arena arena;
    ckpt_ranks *ranks; /* NULL: this process is alone */
    int rank, rank_count;
    unsigned char *vote;        /* per rank: its error code, or whether it wants to stop */
    const ckpt_rank_peak *peak; /* per rank, when the training is over */
    bool agreed;                /* all ranks know that one of them failed, and stop alike */
    bool told;                  /* and another rank prints why */
    bool stopped;               /* by a signal to some rank, before the last step */
    const char *trace_path;     /* NULL: this rank writes none */
    const ckpt_lowered *lowered;
    ckpt_plan *plan;
    ckpt_device *device;
    ckpt_executor *executor;
    ckpt_data *data, *validation;  /* NULL: no validation */
    ckpt_loader *loader;           /* of `data`, for training */
    uint64_t first_batch;          /* of `data`, of micro-batch 0 of rank 0 */
    ckpt_trace *trace;             /* NULL: no step is traced */
    const ckpt_profile *profile;   /* --profile; NULL: none was given */
    const ckpt_trace *predicted;   /* by it; NULL likewise */
    const ckpt_ns *predicted_more; /* of its events: what the op's time is more than the run's (again_more_ns) */
    ckpt_stepped stepped;          /* for --reprofile; no room: it was not given */
    ckpt_train_new_plan new_plan;  /* what it found */
    ckpt_recorder *recorder;       /* of a GPU's last step, while it runs */
    ckpt_footprint start, end;     /* of the device's memory, when set-up is done and when training is */
    void **input;                  /* [micro-batch * input_count + input]; NULL: not wanted */
    ckpt_loss_log log;
    uint64_t first_step, saved_step;
    bool saved;     /* the state of saved_step is in the file */
    bool unsaved;   /* the latest state could not be written, and that has been said */
    bool best_lost; /* nor the best one */
    ckpt_err lost;  /* of the first file that could not be written in the end; the code CKPT_OK: all are there */
    float loss;
    ckpt_train_score score; /* of --evaluate, or the latest validation, which was after scored_step steps */
    uint64_t scored_step;
    ckpt_event_log events;
    uint64_t done;                 /* steps, by this process */
    ckpt_ns time[CKPT_TIMES_KEPT]; /* of the latest steps, as a ring; on a GPU of those that were not traced */
    int64_t times;
} ckpt_training;

/* Adds lines for people at the start, and lines or one JSON object at the end. `weights`: digest; NULL: none. */
void ckpt_train_say_start(const ckpt_training *training, ckpt_text *text);
CKPT_MUST_USE ckpt_code ckpt_train_say_end(ckpt_training *training, const char *weights, ckpt_text *text,
                                           ckpt_err *err);

/* The most that was in memory; 0 when no step was done. */
ckpt_bytes ckpt_train_peak(const ckpt_training *training);

/* The member "scheme", without the stage and what is for times alone. */
void ckpt_train_scheme_json(const ckpt_scheme *scheme, ckpt_json_writer *w);

/* Print nothing about the training? True if a file or a generated text goes to standard output, or this is not the rank that
 * prints. */
bool ckpt_train_is_quiet(const ckpt_training *training);

/* ---- train_ranks.c: this process among the others; with one rank nothing happens ---- */

/* Join, when this process was started as one of several; collective. */
CKPT_MUST_USE ckpt_code ckpt_train_join(ckpt_training *training, ckpt_err *err);

/* If one rank failed, all fail, and the first of the failed ranks prints why. Collective. */
CKPT_MUST_USE ckpt_code ckpt_train_agree(ckpt_training *training, ckpt_code code, ckpt_err *err);

/* Makes options.plan this rank's plan file: the file itself, or the one of its stage beside it. */
CKPT_MUST_USE ckpt_code ckpt_train_find_plan(ckpt_training *training, ckpt_err *err);

/* Is the plan for this number of ranks, and for this rank's stage? Errors: CKPT_BAD_INPUT, with the right command. */
CKPT_MUST_USE ckpt_code ckpt_train_check_world(const ckpt_training *training, const ckpt_cli *cli, ckpt_err *err);

/* Do all ranks train the same? Before the device is filled: model, scheme and steps. After all files are read: seed, step, data and the rest of a state's header. Collective. Errors: CKPT_BAD_INPUT on ranks that differ from rank 0, with the first difference. */
CKPT_MUST_USE ckpt_code ckpt_train_same_request(ckpt_training *training, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_train_same_start(ckpt_training *training, ckpt_err *err);

/* Sets this rank's trace file: the first replica writes one for each stage. */
CKPT_MUST_USE ckpt_code ckpt_train_find_trace(ckpt_training *training, ckpt_err *err);

/* Was any rank asked to stop? Collective. */
CKPT_MUST_USE ckpt_code ckpt_train_stop_together(ckpt_training *training, bool *stop, ckpt_err *err);

/* Sets what a rank prints when it loses another one: the state to resume from. `step`: of the state in `path` (NULL: no state). */
void ckpt_train_note_state(const ckpt_training *training, const char *path, uint64_t step);

/* Collects what every rank planned and measured. Collective. */
CKPT_MUST_USE ckpt_code ckpt_train_collect_peaks(ckpt_training *training, ckpt_err *err);
/* Did all ranks measure what they had planned? */
bool ckpt_train_peaks_hold(const ckpt_training *training);

/* ---- train_loop.c ---- */

/* A file that could not be written (CKPT_IO) ends nothing: what else is to be written still is, and the program ends with
 * the first of such errors. Other codes are handed on. */
CKPT_MUST_USE ckpt_code ckpt_train_outlive(ckpt_training *training, ckpt_code code, ckpt_err *err);
/* The same in mid-run, where it is said at once, but not again before a write was whole. *failing: was the last one not? */
CKPT_MUST_USE ckpt_code ckpt_train_go_on(const ckpt_training *training, bool *failing, ckpt_code code, ckpt_err *err);

/* Trains until options.steps, a signal or --patience, with validations, states, logs and traces. */
CKPT_MUST_USE ckpt_code ckpt_train_steps(ckpt_training *training, ckpt_err *err);

/* A loader of batch `first` and those that follow it, of all replicas and micro-batches together. */
CKPT_MUST_USE ckpt_code ckpt_train_open_loader(const ckpt_training *training, const ckpt_data *data, uint64_t first,
                                               ckpt_loader **loader, ckpt_err *err);
/* Fills the inputs with the loader's next batches. */
CKPT_MUST_USE ckpt_code ckpt_train_fill(ckpt_training *training, ckpt_loader *loader, ckpt_err *err);

/* ---- train_validate.c, train_generate.c ---- */

/* --evaluate: into training->score. */
CKPT_MUST_USE ckpt_code ckpt_train_evaluate(ckpt_training *training, ckpt_err *err);
/* One validation: into training->score, and the state of the best one into --save-best. Collective. */
CKPT_MUST_USE ckpt_code ckpt_train_validate(ckpt_training *training, ckpt_err *err);
/* Have --patience validations brought no lower loss? */
bool ckpt_train_is_stale(const ckpt_training *training);
double ckpt_train_mean(const ckpt_train_score *score);
double ckpt_train_accuracy(const ckpt_train_score *score); /* NaN: nothing was counted */
void ckpt_train_say_score(const ckpt_train_score *score, ckpt_text *text);
/* --generate: prints as it goes. */
CKPT_MUST_USE ckpt_code ckpt_train_generate(ckpt_training *training, ckpt_err *err);

/* Writes the trace of the last step, if one is wanted. */
CKPT_MUST_USE ckpt_code ckpt_train_write_trace(ckpt_training *training, ckpt_err *err);

/* ---- train_profile.c: --reprofile; without it nothing happens ---- */

/* Makes room for the times of the latest steps; a training of several ranks is refused. */
CKPT_MUST_USE ckpt_code ckpt_train_open_times(ckpt_training *training, ckpt_err *err);
/* Keeps those of the step that was done just now: whole_ns < 0: it was not as users run it. Allocates nothing. */
void ckpt_train_keep_times(ckpt_training *training, uint64_t step, bool traced, ckpt_ns whole_ns);
/* Writes the profile and plans by it. */
CKPT_MUST_USE ckpt_code ckpt_train_write_profile(ckpt_training *training, ckpt_err *err);
void ckpt_train_say_new_plan(const ckpt_training *training, ckpt_text *text);
void ckpt_train_new_plan_json(const ckpt_training *training, ckpt_json_writer *w);

/* ---- train_open.c ---- */

/* With --device cuda each of several ranks takes the GPU of its number on its host. */
CKPT_MUST_USE ckpt_code ckpt_train_open_device(ckpt_training *training, ckpt_err *err);
/* Lets NCCL carry messages between GPUs; without NCCL MPI carries them. Collective. */
CKPT_MUST_USE ckpt_code ckpt_train_carry(ckpt_training *training, ckpt_err *err);
/* Checks --budget, which is for everything the process takes on the device. */
CKPT_MUST_USE ckpt_code ckpt_train_check_budget(ckpt_training *training, ckpt_err *err);
/* Opens the executor. Collective on a GPU. */
CKPT_MUST_USE ckpt_code ckpt_train_open_executor(ckpt_training *training, ckpt_err *err);
/* Opens state, data, trace and log. */
CKPT_MUST_USE ckpt_code ckpt_train_open_files(ckpt_training *training, const ckpt_cli *cli, ckpt_err *err);

#endif

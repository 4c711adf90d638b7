/* How a learning rate goes with the number of the step: what it is multiplied by. A function of the number alone, so a
 * resumed training goes on exactly. */
#ifndef CKPT_CORE_FORMATS_SCHEDULE_H
#define CKPT_CORE_FORMATS_SCHEDULE_H

#include <stdint.h>

#include "core/base/memory.h"
#include "core/base/status.h"
#include "core/base/text.h"
#include "core/json/json.h"

typedef enum ckpt_schedule_kind {
    CKPT_SCHEDULE_CONSTANT,
    CKPT_SCHEDULE_LINEAR, /* from 1 to `min` */
    CKPT_SCHEDULE_COSINE, /* likewise, along half a cosine */
    CKPT_SCHEDULE_STEP    /* times `factor` whenever `every` steps are done */
} ckpt_schedule_kind;

typedef struct ckpt_schedule {
    ckpt_schedule_kind kind;
    int64_t warmup; /* steps, from 1 / warmup up to 1, before all else; 0: none */
    int64_t steps;  /* LINEAR, COSINE: of the whole training, the warm-up counted; more than `warmup` */
    int64_t every;  /* STEP: >= 1; the warm-up is not counted */
    double min;     /* LINEAR, COSINE: what is left at the end, 0 .. 1 */
    double factor;  /* STEP: more than 0 */
} ckpt_schedule;

/* The factor of step `step`, which counts from 1. With t steps done behind the warm-up (torch.optim.lr_scheduler,
 * LinearLR, CosineAnnealingLR, StepLR with last_epoch t): LINEAR 1 + (min - 1) t / T and COSINE min + (1 - min) (1 +
 * cos(pi t / T)) / 2 with T = steps - warmup and t at most T; STEP factor^floor(t / every). */
double ckpt_schedule_at(const ckpt_schedule *schedule, uint64_t step);

/* An object of a model file: "kind" and what that kind takes. Errors: CKPT_BAD_INPUT, with the place. */
CKPT_MUST_USE ckpt_code ckpt_schedule_item(const ckpt_item *item, ckpt_arena *scratch, ckpt_schedule *schedule,
                                           ckpt_err *err);
/* "cosine:steps=1000,warmup=100,min=0.1". Errors: CKPT_BAD_INPUT. */
CKPT_MUST_USE ckpt_code ckpt_schedule_parse(const char *text, ckpt_schedule *schedule, ckpt_err *err);
/* The same form, all that its kind takes; what ckpt_schedule_parse reads back as it is. */
void ckpt_schedule_show(const ckpt_schedule *schedule, ckpt_text *text);

#endif

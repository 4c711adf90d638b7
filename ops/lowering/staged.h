/* From a network and a scheme to the graph of one rank's step: where pipeline stages begin, if that is not said yet,
 * and a graph of all stages together, by which layers are called and grouped. */
#ifndef CKPT_OPS_LOWERING_STAGED_H
#define CKPT_OPS_LOWERING_STAGED_H

#include "ops/lowering/partition.h"

typedef struct ckpt_staged {
    const ckpt_network *network; /* of one rank */
    const ckpt_profile *profile; /* may be NULL */
    const ckpt_device_model *device;
    ckpt_scheme scheme; /* first_layer chosen */
    const ckpt_lowered *lowered;
    /* With several stages, else NULL: the step of one micro-batch on one rank, with the stage of every op, and what the
     * stages hold, [stages]. */
    const ckpt_graph *whole;
    const ckpt_part *part;
} ckpt_staged;

/* Lower `network` by `scheme`, for its stage. Where first_layer is NULL the stages begin as the layers' "stage" says,
 * or, where no layer says anything, balanced (ckpt_partition_choose). `profile` and `device` as ckpt_network_lower.
 * Errors: CKPT_BAD_INPUT (the layers make another number of stages; those of ckpt_partition_..., spreading and
 * lowering), CKPT_OVERFLOW, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_staged_lower(const ckpt_network *network, const ckpt_profile *profile,
                                          const ckpt_device_model *device, const ckpt_scheme *scheme, ckpt_arena *out,
                                          ckpt_staged *staged, ckpt_err *err);

/* The same for another stage. */
CKPT_MUST_USE ckpt_code ckpt_staged_next(const ckpt_staged *other, int stage, ckpt_arena *out, ckpt_staged *staged,
                                         ckpt_err *err);

#endif

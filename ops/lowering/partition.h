/* Pipeline partitions: the layers of a network in consecutive parts, one for each stage. */
#ifndef CKPT_OPS_LOWERING_PARTITION_H
#define CKPT_OPS_LOWERING_PARTITION_H

#include "ops/lowering/network.h"

/* The weight of memory when none is asked for: time counts most. Each stage has a budget of its own and recomputes what
 * does not fit; a stage that takes longer than the others makes all of them wait. */
#define CKPT_PARTITION_MEMORY_WEIGHT 0.2

/* One stage, for "Partition assignments:". */
typedef struct ckpt_part {
    const char *first, *last; /* layers */
    int layers;
    ckpt_ns time_ns;         /* of one micro-batch: forward, backward and update of its layers */
    ckpt_bytes param_bytes;  /* its parameters; one that is tied over stages counts in each */
    ckpt_bytes state_bytes;  /* these with their gradients, bfloat16 copies and the optimizer's state */
    ckpt_bytes stored_bytes; /* activations and saved tensors that one micro-batch writes */
    ckpt_bytes sent_bytes;   /* of one micro-batch: values that go on to the next stage, gradients that come back */
} ckpt_part;

/* Cut the layers into scheme->stages parts so that the most expensive part costs as little as possible, and among those
 * partitions the cuts together send the least. A part costs
 *
 *     (1 - memory_weight) * time / time of all + memory_weight * bytes / bytes of all
 *
 * where bytes are its state plus what it stores for each of the min(micro_batches, stages - s) micro-batches that stage
 * s has under way at once (1F1B); "of all" takes the mean of these numbers. A parameter that is tied over parts is in
 * each of them (ckpt_tied_group). An alias is in the part of the layer whose output it shows, and every part has a
 * layer that runs.
 *
 *   whole        the network lowered by a plain scheme, for times and sizes
 *   scheme       its stages, micro_batches and apart
 *   first_layer  [stages] names, for ckpt_scheme
 *
 * Errors: CKPT_BAD_INPUT (a weight outside 0 .. 1, more stages than can be: the message names the layers that belong
 * together), CKPT_NO_MEMORY. Cost: O(n stages) time and memory for n layers. */
CKPT_MUST_USE ckpt_code ckpt_partition_choose(const ckpt_network *network, const ckpt_lowered *whole,
                                              const ckpt_scheme *scheme, double memory_weight, ckpt_arena *out,
                                              const char *const **first_layer, ckpt_err *err);

/* The parts that the model itself gives: "stage" of its layers, where a layer that has none is in the stage of the
 * layer before it, and the first in stage 0.
 *
 *   stages       how many there are; 0 when no layer says anything: then first_layer is NULL
 *
 * Errors: CKPT_BAD_INPUT "file:line:column: layer ...": a stage that does not follow the one before it, or in which
 * nothing runs; CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_partition_given(const ckpt_network *network, ckpt_arena *out, int *stages,
                                             const char *const **first_layer, ckpt_err *err);

/* What the parts hold, [stages], by the scheme's stages, first_layer and apart; `whole` as above. Errors:
 * CKPT_BAD_INPUT (a first layer that does not exist or is out of order), CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_partition_describe(const ckpt_network *network, const ckpt_lowered *whole,
                                                const ckpt_scheme *scheme, ckpt_arena *out, const ckpt_part **part,
                                                ckpt_err *err);

#endif

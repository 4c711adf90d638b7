/* How a step is spread over micro-batches, replicas and stages (core/formats/scheme.h), as command line options. */
#ifndef CKPT_LIBCKPT_SCHEME_OPTIONS_H
#define CKPT_LIBCKPT_SCHEME_OPTIONS_H

#include "core/formats/scheme.h"

/* Rows for a program's option table, without an end row (--micro-batches N, --replicas N, --pipeline-stages N, --stage K,
 * --gradients static|fused, --tied together|apart, --shard optimizer, --overlap, --bucket SIZE, --network RATE). */
#define CKPT_SCHEME_OPTIONS                                                                                            \
    {"micro-batches", 'm', "N", "batches of a rank in one step; their gradients are summed (default 1)"},              \
        {"replicas", 0, "N", "data-parallel ranks; gradients are averaged over them (default 1)"},                     \
        {"pipeline-stages", 0, "N", "pipeline partitions, balanced, or as the layers' \"stage\" says (default 1)"},    \
        {"stage", 0, "K", "only pipeline stage K, from 0"},                                                            \
        {"gradients", 0, "static|fused",                                                                               \
         "fused: the optimizer updates each layer during backward, so gradients are freed early"},                     \
        {"tied", 0, "together|apart",                                                                                  \
         "apart: tied layers of one stage have a copy of their parameters each, as in two stages"},                    \
        {"shard", 0, "optimizer", "each data-parallel rank keeps a part of the optimizer state"},                      \
        {"overlap", 0, NULL, "reduce gradients during backward"},                                                      \
        {"bucket", 0, "SIZE", "bytes of gradients that are reduced together (default 25 MiB)"},                        \
    {                                                                                                                  \
        "network", 0, "RATE", "speed between ranks, for predicted times only: 25GB/s (default 10GB/s)"                 \
    }

/* Take option `name` with `value` into the scheme. *taken: it was one of those rows. Errors: CKPT_BAD_INPUT "found,
 * wanted". A value's text may be kept. `stage_given` (may be NULL) is set by --stage. */
CKPT_MUST_USE ckpt_code ckpt_scheme_take(ckpt_scheme *scheme, const char *name, const char *value, bool *taken,
                                         bool *stage_given, ckpt_err *err);

#endif

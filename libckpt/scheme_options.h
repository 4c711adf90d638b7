/* How a step is spread over micro-batches, replicas and stages (core/formats/scheme.h), as command line options. */
#ifndef CKPT_LIBCKPT_SCHEME_OPTIONS_H
#define CKPT_LIBCKPT_SCHEME_OPTIONS_H

#include "core/formats/scheme.h"

/* The options, a row each, as in libckpt/options.h. */
#define CKPT_SCHEME_OPTIONS(ROW)                                                                                       \
    ROW("micro-batches", 'm', "N", "batches of a rank in one step; their gradients are summed (default 1)", scheme,    \
        scheme)                                                                                                        \
    ROW("replicas", 0, "N", "data-parallel ranks; gradients are averaged over them (default 1)", scheme, scheme)       \
    ROW("pipeline-stages", 0, "N", "pipeline partitions, balanced, or as the layers' \"stage\" says (default 1)",      \
        scheme, scheme)                                                                                                \
    ROW("stage", 0, "K", "only pipeline stage K, from 0", scheme, scheme)                                              \
    ROW("gradients", 0, "static|fused",                                                                                \
        "fused: the optimizer updates each layer during backward, so gradients are freed early", scheme, scheme)       \
    ROW("tied", 0, "together|apart",                                                                                   \
        "apart: tied layers of one stage have a copy of their parameters each, as in two stages", scheme, scheme)      \
    ROW("shard", 0, "optimizer", "each data-parallel rank keeps a part of the optimizer state", scheme, scheme)        \
    ROW("overlap", 0, NULL, "reduce gradients during backward", scheme, scheme)                                        \
    ROW("bucket", 0, "SIZE", "bytes of gradients that are reduced together (default 25 MiB)", scheme, scheme)          \
    ROW("network", 0, "RATE", "speed between ranks, for predicted times only: 25GB/s (default 10GB/s)", scheme, scheme)

/* Take option `name` with `value` into the scheme. *taken: it was one of those rows. Errors: CKPT_BAD_INPUT "found,
 * wanted". A value's text may be kept. `stage_given` (may be NULL) is set by --stage. */
CKPT_MUST_USE ckpt_code ckpt_scheme_take(ckpt_scheme *scheme, const char *name, const char *value, bool *taken,
                                         bool *stage_given, ckpt_err *err);

#endif

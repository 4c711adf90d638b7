/* A device as the roofline sees it: how fast it computes and moves bytes. */
#ifndef CKPT_OPS_DEVICE_MODEL_H
#define CKPT_OPS_DEVICE_MODEL_H

#include <stdbool.h>

#include "core/memory.h"
#include "core/status.h"
#include "core/tensor.h"
#include "core/units.h"

typedef struct ckpt_device_model {
    const char *name;  /* "h200" */
    const char *about; /* full name and where the figures come from */
    ckpt_bytes memory_bytes;
    bool gpu;                 /* networks for it are inferred with CKPT_ON_GPU */
    double flop_per_s;        /* float32 as our kernels use it, sustained */
    double flop_per_s16;      /* of a bfloat16 network: products on tensor cores, sums in float32 */
    double bytes_per_s;       /* device memory, sustained */
    ckpt_ns launch_ns;        /* fixed cost of one op */
    int64_t link_bytes_per_s; /* host to device; 0: no link (the CPU) */
    const char *cuda_name;    /* what CUDA calls it; NULL: not known, or no GPU */
    /* what the data sheet promises of the same three; nothing runs faster */
    double sheet_flop_per_s, sheet_flop_per_s16, sheet_bytes_per_s;
} ckpt_device_model;

extern const ckpt_device_model ckpt_device_models[]; /* name NULL ends it */

/* A name of the table, or the path of a JSON file with the fields of ckpt_device_model; without "gpu" it is none,
 * without "flop_per_s16" that is flop_per_s, and without the data sheet's rates those are the sustained ones. Errors:
 * CKPT_BAD_INPUT (the message lists the names). */
CKPT_MUST_USE ckpt_code ckpt_device_model_find(const char *name_or_path, ckpt_arena *out,
                                               const ckpt_device_model **device, ckpt_err *err);

/* The model of the GPU that CUDA calls so ("NVIDIA H200"); NULL: none of the table. Variants that differ in their rates
 * have names that differ. */
const ckpt_device_model *ckpt_device_model_of(const char *cuda_name);

/* launch + max(flop / the rate of `dtype`, bytes / bytes_per_s): Williams, Waterman, Patterson, CACM 52(4), 2009. */
ckpt_ns ckpt_roofline_ns(const ckpt_device_model *device, ckpt_dtype dtype, ckpt_flop flop, ckpt_bytes moved);

/* The least time that the data sheet allows: no launch, no share. In ns, as a fraction where that is small. */
double ckpt_sheet_ns(const ckpt_device_model *device, ckpt_dtype dtype, ckpt_flop flop, ckpt_bytes moved);

#endif

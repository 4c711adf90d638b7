/* A device as the roofline model sees it: how fast it computes and moves bytes. */
#ifndef CKPT_OPS_DEVICE_MODEL_H
#define CKPT_OPS_DEVICE_MODEL_H

#include <stdbool.h>

#include "core/base/memory.h"
#include "core/base/status.h"
#include "core/base/units.h"
#include "core/formats/machine.h"
#include "core/formats/profile.h"
#include "core/formats/tensor.h"

/* The time of one kind of op as a multiple of what the roofline gives; 0 stands for 1. */
typedef struct ckpt_op_factor {
    const char *op; /* name in the op table; "update" for all updates */
    double times[CKPT_DIRECTION_COUNT];
} ckpt_op_factor;

/* Two sets of rates: what the data sheet promises, and what our kernels reach of it. The second is assumed, or fitted
 * to recorded profiles (scripts/fit_device, docs/explanation/cost-model.md). */
typedef struct ckpt_device_model {
    const char *name;  /* "h200" */
    const char *about; /* full name and where the figures come from */
    ckpt_bytes memory_bytes;
    bool gpu;                     /* networks for it are inferred with CKPT_ON_GPU */
    double flop_per_s;            /* float32 as our kernels use it, sustained */
    double flop_per_s16;          /* of a bfloat16 network: products on tensor cores, sums in float32 */
    double bytes_per_s;           /* device memory, sustained */
    ckpt_bytes cache_bytes;       /* of what an op moves, so much comes from a cache and goes there; 0: nothing */
    double cache_bytes_per_s;     /* at this rate */
    ckpt_ns launch_ns;            /* fixed cost of one op */
    int64_t link_bytes_per_s;     /* host to device; 0: no link (the CPU) */
    const ckpt_op_factor *factor; /* op NULL ends it; NULL: all are 1 */
    const char *fitted_to;        /* the machine's `device` in the recordings; NULL: the rates are assumed */
    const char *cuda_name;        /* what CUDA calls it; NULL: not known, or no GPU */
    /* what the data sheet promises; nothing runs faster */
    double sheet_flop_per_s, sheet_flop_per_s16, sheet_bytes_per_s;
} ckpt_device_model;

extern const ckpt_device_model ckpt_device_models[]; /* name NULL ends it */

/* A name of the table, or the path of a JSON file with the fields of ckpt_device_model; without "gpu" it is none,
 * without "flop_per_s16" that is flop_per_s, and without the data sheet's rates those are the sustained ones.
 * "op_factors" has members {"gelu": {"forward": 4.7, "backward": 4}, "update": {"update": 0.6}}. Errors: CKPT_BAD_INPUT
 * (the message lists the names). */
CKPT_MUST_USE ckpt_code ckpt_device_model_find(const char *name_or_path, ckpt_arena *out,
                                               const ckpt_device_model **device, ckpt_err *err);

/* The device that such a file describes. */
CKPT_MUST_USE ckpt_code ckpt_device_model_item(const ckpt_item *root, ckpt_arena *out, const ckpt_device_model **device,
                                               ckpt_err *err);

/* The model of the GPU that CUDA calls by this name ("NVIDIA H200"); NULL: none of the table. Variants with other rates
 * have other names. */
const ckpt_device_model *ckpt_device_model_of(const char *cuda_name);

/* The model of the machine that recorded a profile; NULL: none of the table has that name. */
const ckpt_device_model *ckpt_device_model_of_machine(const ckpt_machine *machine);

/* launch + factor of `op` and `direction` * max(flop / the rate of `dtype`, time to move), where the first cache_bytes
 * of `moved` go at the rate of the cache and the rest at that of memory. `op` NULL: factor 1. Source: Williams,
 * Waterman, Patterson, CACM 52(4), 2009; the second level of memory and the factors are ours. */
ckpt_ns ckpt_roofline_ns(const ckpt_device_model *device, const char *op, ckpt_direction direction, ckpt_dtype dtype,
                         ckpt_flop flop, ckpt_bytes moved);

/* The shortest time that the data sheet allows, without launch and at full rates; in ns, with fractions. */
double ckpt_sheet_ns(const ckpt_device_model *device, ckpt_dtype dtype, ckpt_flop flop, ckpt_bytes moved);

#endif

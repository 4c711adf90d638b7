/* What the whole process takes on a device, and whether a budget holds it.
 *
 *     static + arena | libraries | context
 *
 * static + arena: planned, to the byte. libraries: handles of cuBLAS and cuDNN, code, recordings; what the device has
 * lost since its context was new. context: what was taken when the context was new, other processes on that device
 * included. A CPU knows only the first of the three; the others are 0. */
#ifndef CKPT_EXECUTOR_SETUP_FOOTPRINT_H
#define CKPT_EXECUTOR_SETUP_FOOTPRINT_H

#include "core/json/json_write.h"
#include "kernels/device.h"

typedef struct ckpt_footprint {
    ckpt_bytes static_bytes, arena_bytes;
    ckpt_device_memory device;
} ckpt_footprint;

CKPT_MUST_USE ckpt_code ckpt_footprint_read(ckpt_device *device, ckpt_bytes static_bytes, ckpt_bytes arena_bytes,
                                            ckpt_footprint *footprint, ckpt_err *err);

/*   reserve   bytes for libraries and context, in place of what is measured; -1: as measured
 * Errors: CKPT_NO_MEMORY with the sum and the budget a plan would need. */
CKPT_MUST_USE ckpt_code ckpt_footprint_check(const ckpt_footprint *footprint, ckpt_bytes budget, ckpt_bytes reserve,
                                             ckpt_err *err);

/* "static 1.00 GB + arena 2.00 GB, libraries 0.21 GB, context 0.53 GB; the device says 137 GB free of 150 GB", without
 * a line feed; and as the member `key` of a JSON object. */
void ckpt_footprint_show(const ckpt_footprint *footprint, ckpt_text *text);
void ckpt_footprint_json(const ckpt_footprint *footprint, const char *key, ckpt_json_writer *w);

#endif

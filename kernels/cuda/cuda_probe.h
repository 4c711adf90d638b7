/* What the CUDA runtime says about this machine, for the one line a user gets who asks for a GPU. */
#ifndef CKPT_KERNELS_CUDA_CUDA_PROBE_H
#define CKPT_KERNELS_CUDA_CUDA_PROBE_H

#include "core/status.h"

/* Always CKPT_DEVICE, with the reason: no device, no device of that number, or no kernels for it in this version.
 * Takes no device memory: no context is made. */
CKPT_MUST_USE ckpt_code ckpt_cuda_probe(int index, ckpt_err *err);

#endif

/* Messages between the memories of GPUs, by NCCL. */
#ifndef CKPT_KERNELS_CUDA_NCCL_H
#define CKPT_KERNELS_CUDA_NCCL_H

#include "core/base/carrier.h"
#include "kernels/device.h"

/* ckpt_device_api.carry. Opens $CKPT_NCCL or libnccl.so.2. Errors: CKPT_DEVICE (no NCCL on some rank, with that rank's
 * message; two ranks on one GPU), CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_nccl_open(ckpt_device *device, const ckpt_carrier_group *group,
                                       const ckpt_carrier **carrier, void **self, ckpt_err *err);

#endif

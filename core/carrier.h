/* What takes messages from one process to another: MPI between the memories of hosts, NCCL between those of GPUs. Here
 * because those who have one (ranks/, kernels/) do not know each other. */
#ifndef CKPT_CORE_CARRIER_H
#define CKPT_CORE_CARRIER_H

#include <stdbool.h>
#include <stddef.h>

#include "core/status.h"
#include "core/units.h"

/* A slot is memory of the caller's, slot_bytes long, zeroed at first, with one message under way at most: send or
 * receive, then wait. `self` is what the carrier was opened as. Rules for messages: ranks/ranks.h. */
typedef struct ckpt_carrier {
    bool on_device; /* messages are in a GPU's memory */
    size_t slot_bytes;
    ckpt_code (*send)(void *self, void *slot, int to, int tag, const void *memory, ckpt_bytes bytes, ckpt_err *err);
    ckpt_code (*receive)(void *self, void *slot, int from, int tag, void *memory, ckpt_bytes bytes, ckpt_err *err);
    ckpt_code (*wait)(void *self, void *slot, ckpt_err *err);
} ckpt_carrier;

#endif

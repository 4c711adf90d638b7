/* A carrier takes messages from one process to another: MPI between host memories, NCCL between GPU memories. It is
 * declared here because the folders that meet in it, ranks/ and kernels/, do not know each other. */
#ifndef CKPT_CORE_BASE_CARRIER_H
#define CKPT_CORE_BASE_CARRIER_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/status.h"
#include "core/base/units.h"

/* A slot is the caller's memory, slot_bytes long and zeroed at first. It carries one message at a time: send or receive, then wait. `self` is the opened carrier. Rules for messages: ranks/ranks.h. */
typedef struct ckpt_carrier {
    bool on_device; /* messages are in a GPU's memory */
    size_t slot_bytes;
    ckpt_code (*prepare)(void *self, void *slot, ckpt_err *err); /* once, before its first message; NULL: nothing */
    void (*release)(void *self, void *slot);                     /* undoes prepare; NULL: nothing to undo */
    ckpt_code (*send)(void *self, void *slot, int to, int tag, const void *memory, ckpt_bytes bytes, ckpt_err *err);
    ckpt_code (*receive)(void *self, void *slot, int from, int tag, void *memory, ckpt_bytes bytes, ckpt_err *err);
    ckpt_code (*wait)(void *self, void *slot, ckpt_err *err);
    const char *(*library)(void *self); /* "NCCL 2.28.3"; NULL: its owner knows */
    void (*close)(void *self);          /* called after all ranks have finished; NULL: its owner closes it */
} ckpt_carrier;

/* The ranks that a carrier is opened for: `allgather` gives every rank the bytes of all, in the order of ranks. */
typedef struct ckpt_carrier_group {
    int rank, count;
    ckpt_code (*allgather)(void *context, const void *mine, void *all, ckpt_bytes bytes, ckpt_err *err);
    void *context;
} ckpt_carrier_group;

/* Opens a carrier for the memory of `device`. Collective: if one rank fails, all fail. */
typedef ckpt_code ckpt_carrier_open(void *device, const ckpt_carrier_group *group, const ckpt_carrier **carrier,
                                    void **self, ckpt_err *err);

#endif

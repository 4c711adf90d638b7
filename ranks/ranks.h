/* Several processes that train together: which rank each has, messages between them, and which are still alive. This
 * folder knows no layer, no plan and no device.
 *
 * Messages go by MPI (libckpt_mpi.so, loaded only when a scheme has several ranks) between host memories, or by NCCL
 * between GPU memories. In addition every rank holds a TCP connection to rank 0 (a star). When it ends, that process
 * has died, whatever killed it. Without mpirun the environment gives the ranks, as PyTorch's launchers set it: RANK,
 * WORLD_SIZE, MASTER_ADDR, MASTER_PORT; then only NCCL can carry messages. */
#ifndef CKPT_RANKS_RANKS_H
#define CKPT_RANKS_RANKS_H

#include <stdbool.h>

#include "core/base/carrier.h"
#include "core/base/status.h"
#include "core/base/units.h"

typedef struct ckpt_ranks ckpt_ranks;

/* How many ranks this process was started with, by mpirun (Open MPI, MPICH, Intel MPI) or the environment; 1: neither.
 * Looks at the environment alone. Errors: CKPT_BAD_INPUT (an environment that contradicts itself). */
CKPT_MUST_USE ckpt_code ckpt_ranks_started(int *count, ckpt_err *err);

/* This rank among those of this host, and how many they are, as the launcher says; if it does not, as if all ranks were
 * of this host. 0 and 1 without a launcher, or in an environment that ckpt_ranks_started refuses. */
void ckpt_ranks_seat(int *seat, int *seats);

/* Joins the other ranks. Collective; with MPI a process can join only once. If a rank is missing after a minute
 * (CKPT_RANKS_WAIT, in seconds, counted from MPI's own start), all others get an error. After an error the process must
 * end. All calls must come from one thread. Errors: CKPT_DEVICE (no MPI library: which package
 * has it; a rank that does not come), CKPT_BAD_INPUT, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_ranks_open(ckpt_ranks **ranks, ckpt_err *err);

/* Leaves when all other ranks leave too; NULL is fine. A rank that dies before that is reported as before. */
void ckpt_ranks_close(ckpt_ranks *ranks);

int ckpt_ranks_rank(const ckpt_ranks *ranks);
int ckpt_ranks_count(const ckpt_ranks *ranks);
/* The rank among those of this host, as the launcher says; 0 if it does not. */
int ckpt_ranks_local(const ckpt_ranks *ranks);
const char *ckpt_ranks_library(const ckpt_ranks *ranks); /* "Open MPI 4.1.4"; lives as `ranks` */

/* Another rank's process has ended without ckpt_ranks_close, or gives up: print `line`
 * ("rank 1 of 4: rank 2 has died<, or: gave up: its line>; <note>", `note` being what ckpt_ranks_note set last) and end
 * the process at once, as by _exit: the thread that trains may be waiting for the dead. Called at most once, by a thread of
 * its own. Must not come back. */
typedef void ckpt_ranks_lost(void *context, const char *line);

/* From now on `lost` is called when another rank is. Every rank calls this once, after ckpt_ranks_open. mpirun sends
 * SIGTERM to all ranks when one has died: a process with SIGTERM's default action may end before it hears of the death.
 * Errors: CKPT_DEVICE (no thread). */
CKPT_MUST_USE ckpt_code ckpt_ranks_watch(ckpt_ranks *ranks, ckpt_ranks_lost *lost, void *context, ckpt_err *err);
/* At most 255 bytes are kept; may be called while training ("the last state is s.bin, of step 40"). */
void ckpt_ranks_note(ckpt_ranks *ranks, const char *note);
/* This rank gives up: tell the others why, so that their line has it. The caller then writes its own line and ends the
 * process, without ckpt_ranks_close. Does not come back when this process is ending because of another already: so
 * there is one line in either case. NULL is fine. */
void ckpt_ranks_give_up(ckpt_ranks *ranks, const char *why);

/* From now on messages are in a device's memory: `open` and `device` are ckpt_device_carry and a GPU. Collective,
 * before ckpt_ranks_slots. Whatever writes or reads the bytes of a message must then have finished before the message
 * starts, and messages in one direction between two ranks arrive in the order they were sent, whatever their tags.
 * Errors: CKPT_DEVICE on all ranks (no NCCL on some rank); with MPI, messages then stay in host memory as before. */
CKPT_MUST_USE ckpt_code ckpt_ranks_carry(ckpt_ranks *ranks, ckpt_carrier_open *open, void *device, ckpt_err *err);

/* Makes slots 0 .. count - 1 for messages in flight. To be called once; nothing of ours is allocated afterwards. */
CKPT_MUST_USE ckpt_code ckpt_ranks_slots(ckpt_ranks *ranks, int count, ckpt_err *err);

/* Starts a message in a free slot. Between two ranks, messages of one tag (0 .. 32767) arrive in the order they were
 * sent; send and receive must agree in size. `bytes` may be 0; large messages are split where the library's counts are
 * too small. The memory must stay until ckpt_ranks_wait, which waits for the message, gives the processor to others
 * meanwhile, and frees the slot; for a free slot it returns at once. By MPI a message moves while the caller computes,
 * by a thread of its own (CKPT_RANKS_PROGRESS=0: only while the caller waits for some message). Errors: CKPT_DEVICE, after a second, so that a
 * death is reported first. */
CKPT_MUST_USE ckpt_code ckpt_ranks_send(ckpt_ranks *ranks, int slot, int to, int tag, const void *memory,
                                        ckpt_bytes bytes, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_ranks_receive(ckpt_ranks *ranks, int slot, int from, int tag, void *memory,
                                           ckpt_bytes bytes, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_ranks_wait(ckpt_ranks *ranks, int slot, ckpt_err *err);

/* Collective calls for small data in host memory; each returns when it is done. Broadcast: every rank gets the bytes of
 * rank `root`. All-gather: every rank gets the bytes of all, in the order of ranks (`all`: count * bytes). Barrier:
 * every rank has made this call. */
CKPT_MUST_USE ckpt_code ckpt_ranks_broadcast(ckpt_ranks *ranks, int root, void *memory, ckpt_bytes bytes,
                                             ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_ranks_allgather(ckpt_ranks *ranks, const void *mine, void *all, ckpt_bytes bytes,
                                             ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_ranks_barrier(ckpt_ranks *ranks, ckpt_err *err);

/* Are messages in a device's memory? Else they are in the host's. */
bool ckpt_ranks_on_device(const ckpt_ranks *ranks);

#endif

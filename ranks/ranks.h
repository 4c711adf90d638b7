/* Several processes that train together: who is who, messages between them, and who is still alive. Knows no layer, no
 * plan and no device.
 *
 * Messages go by MPI (libckpt_mpi.so, loaded only when a scheme has several ranks) from and to host memory, or by NCCL
 * from and to the memory of GPUs. Beside them every rank holds a TCP connection to rank 0 (a star), whose end tells
 * that a process has died, whatever killed it. Without mpirun the environment says who is who, as PyTorch's launchers
 * do: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; then only NCCL can carry messages. */
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

/* Join the others. Collective, and once in a process where MPI is used. A rank that has not come after a minute
 * (CKPT_RANKS_WAIT, in seconds, after MPI's own start) is an error on all others. After an error the process must end.
 * All calls are made by one thread (MPI_THREAD_FUNNELED). Errors: CKPT_DEVICE (no MPI library: which package has it; a
 * rank that does not come), CKPT_BAD_INPUT, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_ranks_open(ckpt_ranks **ranks, ckpt_err *err);

/* Leave, after all others have come here too; NULL is fine. A death until then is one as before. */
void ckpt_ranks_close(ckpt_ranks *ranks);

int ckpt_ranks_rank(const ckpt_ranks *ranks);
int ckpt_ranks_count(const ckpt_ranks *ranks);
int ckpt_ranks_local(
    const ckpt_ranks *ranks); /* among the ranks of this host, as the launcher says; 0 where it does not */
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
 * before ckpt_ranks_slots. Then whatever makes or reads the bytes of a message must have finished before it is started,
 * and messages between two ranks in one direction arrive in the order they were sent in whatever their tags. Errors:
 * CKPT_DEVICE (no NCCL on some rank), on all ranks; where there is MPI that carries messages as before. */
CKPT_MUST_USE ckpt_code ckpt_ranks_carry(ckpt_ranks *ranks, ckpt_carrier_open *open, void *device, ckpt_err *err);

/* Room for messages under way: slots 0 .. count - 1. Called once; nothing is allocated by us afterwards. */
CKPT_MUST_USE ckpt_code ckpt_ranks_slots(ckpt_ranks *ranks, int count, ckpt_err *err);

/* Start a message in a free slot. Between two ranks, those of one tag (0 .. 32767) arrive in the order they were sent
 * in, and send and receive agree in size. `bytes` may be 0 and is split where the library's counts are too small. The
 * memory must stay until ckpt_ranks_wait, which frees the slot; a free slot is not waited for. Who waits leaves the
 * processor to others. Errors: CKPT_DEVICE, a second late, so that a death has been told before. */
CKPT_MUST_USE ckpt_code ckpt_ranks_send(ckpt_ranks *ranks, int slot, int to, int tag, const void *memory,
                                        ckpt_bytes bytes, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_ranks_receive(ckpt_ranks *ranks, int slot, int from, int tag, void *memory,
                                           ckpt_bytes bytes, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_ranks_wait(ckpt_ranks *ranks, int slot, ckpt_err *err);

/* Small things, collective, from host memory, waited for: everybody gets rank `root`'s bytes; everybody gets
 * everybody's bytes in the order of ranks (`all`: count * bytes); everybody has come here. */
CKPT_MUST_USE ckpt_code ckpt_ranks_broadcast(ckpt_ranks *ranks, int root, void *memory, ckpt_bytes bytes,
                                             ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_ranks_allgather(ckpt_ranks *ranks, const void *mine, void *all, ckpt_bytes bytes,
                                             ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_ranks_barrier(ckpt_ranks *ranks, ckpt_err *err);

/* In whose memory messages are: false: the host's. */
bool ckpt_ranks_on_device(const ckpt_ranks *ranks);

#endif

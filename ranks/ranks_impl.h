/* What the files of ranks/ share. */
#ifndef CKPT_RANKS_RANKS_IMPL_H
#define CKPT_RANKS_RANKS_IMPL_H

#include <stdint.h>

#include "core/base/carrier.h"
#include "ranks/ranks.h"
#include "ranks/star_impl.h"

#define CKPT_TAGS 32768 /* tags are smaller than this, the bound that every MPI supports */

/* Who this process is, according to its environment. */
typedef struct ckpt_launch {
    int rank, count, local;
    int seat, seats;     /* this rank among those of this host, and how many they are; as if all were, if nobody says */
    bool mpi;            /* started by mpirun; false: by a launcher (RANK, WORLD_SIZE ...), or alone if count is 1 */
    const char *address; /* of rank 0, without mpirun: MASTER_ADDR and MASTER_PORT */
    const char *port;
    int moves;   /* 0: messages move only while somebody waits for one: CKPT_RANKS_PROGRESS, 1 without it */
    int seconds; /* to wait for ranks that have not come: CKPT_RANKS_WAIT, 60 without it */
} ckpt_launch;
CKPT_MUST_USE ckpt_code ckpt_launch_read(ckpt_launch *launch, ckpt_err *err);

/* All that libckpt_mpi.so shows: a constant `ckpt_mpi`. Its functions are called by the thread that opened it alone. */
typedef struct ckpt_mpi_api {
    ckpt_carrier carrier; /* self: NULL */
    /* A communicator of our own. `moves`: with a thread that moves messages
     * (progress_impl.h). *one_host: all ranks reach the same memory. CKPT_DEVICE: MPI does not start, or has
     * been closed before in this process. */
    ckpt_code (*open)(bool moves, int *rank, int *count, bool *one_host, char *library, size_t room, ckpt_err *err);
    void (*halt)(void);  /* nothing moves by itself any more: slots may be given back although messages are under way */
    void (*close)(void); /* collective */
    /* For tests: a message of more than `limit` bytes (INT_MAX without this call) goes as whole pieces of `piece` bytes
     * and a rest. */
    void (*split)(int64_t limit, int piece);
    ckpt_code (*broadcast)(int root, void *memory, ckpt_bytes bytes, ckpt_err *err);
    ckpt_code (*allgather)(const void *mine, void *all, ckpt_bytes bytes, ckpt_err *err);
    ckpt_code (*barrier)(ckpt_err *err);
} ckpt_mpi_api;
/* Loads the library, which stays loaded. */
CKPT_MUST_USE ckpt_code ckpt_mpi_load(const ckpt_mpi_api **api, ckpt_err *err);

struct ckpt_ranks {
    int rank, count, local;
    char library[64];
    ckpt_star *star;             /* NULL: one rank */
    const ckpt_mpi_api *mpi;     /* NULL: none */
    const ckpt_carrier *carrier; /* NULL: nothing carries messages */
    void *carrier_self;
    int slot_count;
    unsigned char *slot; /* slot_count of carrier->slot_bytes each */
    bool *busy;          /* of each slot */
};

#endif

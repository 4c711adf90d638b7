/* Who is still alive. Every rank has a TCP connection to rank 0, which the kernel closes when its process ends,
 * whatever ended it: the end of the connection without a goodbye is a death. Rank 0 tells the others, since they have
 * no connection between them.
 *
 *     rank 1 ---.              records on a connection, 1024 bytes each:
 *     rank 2 --- rank 0          to rank 0:    I give up (why), I have come to the end
 *     rank 3 ---'                from rank 0:  all are here, one has died, one gives up (why), all may go
 *
 * A thread of each process waits for records (star.c). A host that vanishes without a word is noticed by keep-alive
 * within a minute. Without MPI a second connection of each rank carries broadcasts and all-gathers (star_talk.c). */
#ifndef CKPT_RANKS_STAR_IMPL_H
#define CKPT_RANKS_STAR_IMPL_H

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/base/units.h"
#include "ranks/ranks.h"

enum {
    CKPT_STAR_RECORD = 1024,
    CKPT_STAR_TEXT = CKPT_STAR_RECORD - 5,
    CKPT_STAR_NOTE = 256,
    CKPT_STAR_PENDING = 32, /* connections that have not said yet who they are */
    CKPT_STAR_WORD = 16,
    CKPT_STAR_ADDRESSES = 8
};

typedef enum ckpt_star_kind {
    CKPT_STAR_NOTHING = 0,
    CKPT_STAR_HERE,    /* all are here */
    CKPT_STAR_DIED,    /* also: a connection has ended */
    CKPT_STAR_GAVE_UP, /* and why */
    CKPT_STAR_BYE      /* I have come to the end; from rank 0: all may go */
} ckpt_star_kind;

typedef struct ckpt_star_record {
    unsigned char kind;
    unsigned char rank[4]; /* whom it is about, highest byte first */
    char text[CKPT_STAR_TEXT];
} ckpt_star_record;

typedef struct ckpt_star_peer {
    int watch, talk; /* connections; -1: none */
    bool left;       /* has said goodbye */
    size_t have;     /* bytes of `in` that are there */
    ckpt_star_record in;
} ckpt_star_peer;

/* How to find rank 0, and what to say to it first. */
typedef struct ckpt_star_call {
    unsigned char word[CKPT_STAR_WORD]; /* drawn by rank 0 and broadcast by MPI; zeros without MPI */
    int talk;                           /* 1: a second connection, for broadcasts and all-gathers */
    int address_count;                  /* 0: rank 0 cannot listen, `port` says why */
    char port[256];
    char address[CKPT_STAR_ADDRESSES][256];
} ckpt_star_call;

typedef struct ckpt_star {
    int rank, count;
    int listener;
    int wake[2];          /* a pipe: a byte makes the thread look again */
    ckpt_star_peer *peer; /* at rank 0 of every rank, its own unused; elsewhere [0] alone */
    int peers;
    struct pollfd *polled; /* room for all that is polled */
    int *polled_peer;
    bool watching; /* the thread runs */
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    bool leaving;  /* this rank has come to the end */
    bool released; /* all have */
    bool ended;    /* it is decided who writes this process's last line: the program itself, or `lost` */
    ckpt_ranks_lost *lost;
    void *context;
    char note[CKPT_STAR_NOTE];
} ckpt_star;

/* All memory that there will be; nothing is opened but a pipe. */
CKPT_MUST_USE ckpt_code ckpt_star_create(ckpt_star **star, int rank, int count, ckpt_err *err);
void ckpt_star_destroy(ckpt_star *star); /* NULL is fine; stops no thread */

/* Rank 0: take a port and fill `call`. By a launcher: `address` and `port` are where; else NULL, on loopback with
 * `one_host`, and a word is drawn. On failure call->address_count is 0. */
CKPT_MUST_USE ckpt_code ckpt_star_listen(ckpt_star *star, const char *address, const char *port, bool one_host,
                                         ckpt_star_call *call, ckpt_err *err);
/* All ranks: connect, within so many seconds. */
CKPT_MUST_USE ckpt_code ckpt_star_join(ckpt_star *star, const ckpt_star_call *call, int seconds, ckpt_err *err);

CKPT_MUST_USE ckpt_code ckpt_star_watch(ckpt_star *star, ckpt_ranks_lost *lost, void *context, ckpt_err *err);
void ckpt_star_note(ckpt_star *star, const char *note);
void ckpt_star_give_up(ckpt_star *star, const char *why);
/* Something failed, perhaps because a rank has died: let the thread find out, which then ends the process. A second. */
void ckpt_star_linger(ckpt_star *star);
/* Wait until all are here too; false: one has died, and nobody watches. The thread has ended. */
bool ckpt_star_leave(ckpt_star *star);

/* The next thing that a connection or the pipe says, within so many milliseconds (negative: whenever). The text of
 * CKPT_STAR_GAVE_UP is in *text until the next call. */
ckpt_star_kind ckpt_star_look(ckpt_star *star, int milliseconds, int *rank, const char **text);
void ckpt_star_tell(int socket, ckpt_star_kind kind, int rank, const char *text);
int64_t ckpt_star_now_ms(void);

/* The second connections. Collective. */
CKPT_MUST_USE ckpt_code ckpt_star_broadcast(ckpt_star *star, int root, void *memory, ckpt_bytes bytes, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_star_allgather(ckpt_star *star, const void *mine, void *all, ckpt_bytes bytes,
                                            ckpt_err *err);

#endif

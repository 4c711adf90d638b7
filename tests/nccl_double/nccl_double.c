/* A double of libnccl for two ranks in a communicator: bytes go between processes of this host through a socket, by a
 * thread per communicator, in the order in which they were given to it. What it refuses is what NCCL does not promise:
 * another number of ranks, another peer than the other one, another type, a send against a send, sizes that differ.
 * As with NCCL (ncclTransportP2pSetup) the first call of a communicator holds up the host until the other side's.
 *
 * Events of the emulated device know nothing of that thread, so ncclCommGetAsyncError, which who waits asks at the end,
 * comes back when all that was given to the communicator is done. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kernels/cuda/nccl_names.h"

enum { ROOM = 1024, SYSTEM_ERROR = 2, INVALID = 4, USAGE = 5, LISTENERS = 64 };

typedef struct job {
    bool send;
    void *memory;
    size_t bytes;
} job;

struct ncclComm {
    int socket, rank;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    job queue[ROOM];
    uint64_t given, done;
    bool ending;
    int failed; /* the first code */
};

/* Sockets on which this process waits for the other side: made with the id, used with the communicator. */
static struct {
    int port, socket;
} listening[LISTENERS];

#define SHOWN __attribute__((visibility("default")))

SHOWN ncclResult_t ncclGetVersion(int *version)
{
    *version = 20000 + 99 * 100 + 1;
    return ncclSuccess;
}

SHOWN const char *ncclGetErrorString(ncclResult_t code)
{
    return code == ncclSuccess ? "no error" : "an error of the double";
}

SHOWN const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "";
}

static struct sockaddr_in here(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

SHOWN ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    struct sockaddr_in address = here(0);
    socklen_t length = sizeof address;
    if (getenv("NCCL_DOUBLE_FAILS") != NULL) {
        return (ncclResult_t)SYSTEM_ERROR;
    }
    const int made = socket(AF_INET, SOCK_STREAM, 0);
    if (made < 0 || bind(made, (struct sockaddr *)&address, sizeof address) != 0 || listen(made, 4) != 0 ||
        getsockname(made, (struct sockaddr *)&address, &length) != 0) {
        return (ncclResult_t)SYSTEM_ERROR;
    }
    for (int i = 0; i < LISTENERS; i++) {
        if (listening[i].port == 0) {
            listening[i].port = ntohs(address.sin_port);
            listening[i].socket = made;
            memcpy(id->internal, &listening[i].port, sizeof(int));
            return ncclSuccess;
        }
    }
    return (ncclResult_t)INVALID;
}

/* Whoever drew the id listens, whatever its rank. */
static int meet(int port)
{
    const struct sockaddr_in address = here(port);
    for (int i = 0; i < LISTENERS; i++) {
        if (listening[i].port == port) {
            const int made = accept(listening[i].socket, NULL, NULL);
            close(listening[i].socket);
            listening[i].port = 0;
            return made;
        }
    }
    const int made = socket(AF_INET, SOCK_STREAM, 0);
    return connect(made, (const struct sockaddr *)&address, sizeof address) == 0 ? made : -1;
}

static bool move(int socket, bool out, void *memory, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t moved = out ? send(socket, (char *)memory + done, bytes - done, MSG_NOSIGNAL)
                                  : recv(socket, (char *)memory + done, bytes - done, 0);
        if (moved <= 0) {
            return false;
        }
        done += (size_t)moved;
    }
    return true;
}

/* A send begins with its size; the receiver answers with its own before the bytes go: a rendezvous. */
static int run(int socket, const job *j)
{
    uint64_t mine = j->bytes | (uint64_t)j->send << 63, other = 0;
    if (!move(socket, true, &mine, sizeof mine) || !move(socket, false, &other, sizeof other)) {
        return SYSTEM_ERROR;
    }
    if ((mine ^ other) != (uint64_t)1 << 63) {
        return USAGE;
    }
    return move(socket, j->send, j->memory, j->bytes) ? 0 : SYSTEM_ERROR;
}

static void *work(void *argument)
{
    struct ncclComm *const comm = argument;
    pthread_mutex_lock(&comm->lock);
    while (!comm->ending || comm->done < comm->given) {
        if (comm->done == comm->given) {
            pthread_cond_wait(&comm->changed, &comm->lock);
            continue;
        }
        const job next = comm->queue[comm->done % ROOM];
        pthread_mutex_unlock(&comm->lock);
        const int code = run(comm->socket, &next);
        pthread_mutex_lock(&comm->lock);
        comm->failed = comm->failed != 0 ? comm->failed : code;
        comm->done++;
        pthread_cond_broadcast(&comm->changed);
    }
    pthread_mutex_unlock(&comm->lock);
    return NULL;
}

SHOWN ncclResult_t ncclCommInitRank(ncclComm_t *comm, int count, ncclUniqueId id, int rank)
{
    int port = 0;
    if (count != 2 || rank < 0 || rank > 1) {
        return (ncclResult_t)INVALID;
    }
    memcpy(&port, id.internal, sizeof port);
    struct ncclComm *const made = calloc(1, sizeof *made);
    if (made == NULL || (made->socket = meet(port)) < 0) {
        free(made);
        return (ncclResult_t)SYSTEM_ERROR;
    }
    made->rank = rank;
    const int at_once =
        1; /* a message is three small writes in turn, each of which would wait for the last one's answer */
    (void)setsockopt(made->socket, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    if (pthread_create(&made->thread, NULL, work, made) != 0) {
        close(made->socket);
        free(made);
        return (ncclResult_t)SYSTEM_ERROR;
    }
    *comm = made;
    return ncclSuccess;
}

SHOWN ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    pthread_mutex_lock(&comm->lock);
    comm->ending = true;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
    pthread_join(comm->thread, NULL);
    close(comm->socket);
    free(comm);
    return ncclSuccess;
}

static ncclResult_t give(ncclComm_t comm, bool out, void *memory, size_t bytes, ncclDataType_t type, int peer,
                         cudaStream_t stream)
{
    if (type != ncclUint8 || peer != 1 - comm->rank || stream == NULL || memory == NULL || bytes == 0) {
        return (ncclResult_t)INVALID;
    }
    pthread_mutex_lock(&comm->lock);
    while (comm->given - comm->done == ROOM) {
        pthread_cond_wait(&comm->changed, &comm->lock);
    }
    comm->queue[comm->given++ % ROOM] = (job){.send = out, .memory = memory, .bytes = bytes};
    pthread_cond_broadcast(&comm->changed);
    while (comm->done == 0) { /* the first: both sides make the connection, and wait for each other */
        pthread_cond_wait(&comm->changed, &comm->lock);
    }
    pthread_mutex_unlock(&comm->lock);
    return ncclSuccess;
}

SHOWN ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                            cudaStream_t stream)
{
    return give(comm, true, (void *)(uintptr_t)from, count, type, peer, stream);
}

SHOWN ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    return give(comm, false, to, count, type, peer, stream);
}

SHOWN ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *code)
{
    pthread_mutex_lock(&comm->lock);
    while (comm->done < comm->given) {
        pthread_cond_wait(&comm->changed, &comm->lock);
    }
    *code = (ncclResult_t)comm->failed;
    pthread_mutex_unlock(&comm->lock);
    return ncclSuccess;
}

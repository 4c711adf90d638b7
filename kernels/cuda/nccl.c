/* Messages by NCCL.
 *
 * NCCL has no tags and no slots. Work on a communicator and a stream runs in order, and a send occupies its stream
 * until the other rank receives. Every direction between two ranks therefore has its own communicator of two and its
 * own stream: a message waits only for earlier messages in its direction, as with MPI.
 *
 *     rank 0 --up--> rank 1     communicator {0: the sender, 1: the receiver}
 *     rank 0 <-down- rank 1     another one
 *
 * They are made for all pairs when the carrier is opened, in the same order on all ranks. This costs some MiB of NCCL's
 * own memory each, outside the plan, and is meant for the few ranks of our jobs. Messages of a direction, whatever
 * their tags, must be received in the order in which they were sent.
 *
 * The caller waits until the bytes of a message are complete, and then here until they have been sent or received (an
 * event behind the message). Streams of the device therefore need no order with ours. */
#include "kernels/cuda/nccl.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/library_search.h"
#include "core/base/memory.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/nccl_names.h"

enum { WORDS = 256, ASK = 1024 /* queries of CUDA between two of NCCL */ };

/* The functions in use, typed as in NCCL's header. */
#define NAMES(x)                                                                                                       \
    x(ncclGetVersion) x(ncclGetUniqueId) x(ncclCommInitRank) x(ncclCommDestroy) x(ncclCommGetAsyncError)               \
        x(ncclGetErrorString) x(ncclGetLastError) x(ncclSend) x(ncclRecv)
#define MEMBER(name) __typeof__(name) *name;
typedef struct nccl_api {
    NAMES(MEMBER)
} nccl_api;

typedef struct channel {
    ncclComm_t comm; /* NULL: not there */
    cudaStream_t stream;
} channel;

typedef struct ckpt_nccl {
    nccl_api api;
    void *library;
    char version[32];
    int rank, count;
    channel *out, *in; /* per other rank */
} ckpt_nccl;

typedef struct nccl_slot {
    cudaEvent_t done;
    const channel *channel; /* NULL: a message of no bytes */
} nccl_slot;

/* The message of a rank to the others: why it cannot take part, or the ids to connect to it. */
typedef struct greeting {
    char why[WORDS];   /* "": it takes part */
    ncclUniqueId id[]; /* [2 * other]: to a higher rank, then from it */
} greeting;

static ckpt_code failed(const ckpt_nccl *nccl, ncclResult_t code, const char *what, ckpt_err *err)
{
    const char *const more = nccl->api.ncclGetLastError(NULL);
    return CKPT_FAIL(err, CKPT_DEVICE, "NCCL: %s: %s%s%.200s", what, nccl->api.ncclGetErrorString(code),
                     more != NULL && more[0] != '\0' ? ": " : "", more != NULL ? more : "");
}

static ckpt_code check(const ckpt_nccl *nccl, ncclResult_t code, const char *what, ckpt_err *err)
{
    return code == ncclSuccess || code == ncclInProgress ? CKPT_OK : failed(nccl, code, what, err);
}

/* ---- opening ---- */

static ckpt_code look_up(ckpt_nccl *nccl, const char *name, void *function, size_t size, ckpt_err *err)
{
    void *const found = dlsym(nccl->library, name);
    if (found == NULL) {
        return CKPT_FAIL(err, CKPT_DEVICE, "libnccl has no %s: wanted NCCL 2.13 or newer", name);
    }
    memcpy(function, &found, size);
    return CKPT_OK;
}

static ckpt_code load(ckpt_nccl *nccl, ckpt_err *err)
{
    const ckpt_library wanted = {.name = (const char *const[]){"libnccl.so.2", NULL}, .package = "nccl"};
    const char *const asked = getenv("CKPT_NCCL");
    int version = 0;
    nccl->library = asked != NULL ? dlopen(asked, RTLD_NOW | RTLD_LOCAL) : ckpt_library_open(&wanted);
    if (nccl->library == NULL) {
        const char *const why = asked != NULL ? dlerror() : NULL;
        return CKPT_FAIL(err, CKPT_DEVICE, "several ranks on GPUs need NCCL, which cannot be loaded: %s",
                         why != NULL ? why : "libnccl.so.2 is not found; CKPT_NCCL can name it");
    }
#define LOOK_UP(name) CKPT_TRY(look_up(nccl, #name, &nccl->api.name, sizeof nccl->api.name, err));
    NAMES(LOOK_UP)
    CKPT_TRY(check(nccl, nccl->api.ncclGetVersion(&version), "its version", err));
    snprintf(nccl->version, sizeof nccl->version, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return CKPT_OK;
}

/* Makes the ids with which ranks of a higher number connect to this one. */
static ckpt_code invite(const ckpt_nccl *nccl, ncclUniqueId *id, ckpt_err *err)
{
    for (int i = 2 * (nccl->rank + 1); i < 2 * nccl->count; i++) {
        CKPT_TRY(check(nccl, nccl->api.ncclGetUniqueId(&id[i]), "ncclGetUniqueId", err));
    }
    return CKPT_OK;
}

static void close_channel(const ckpt_nccl *nccl, channel *c)
{
    if (c->stream != NULL) {
        (void)cudaStreamSynchronize(c->stream);
    }
    if (c->comm != NULL) {
        (void)nccl->api.ncclCommDestroy(c->comm);
    }
    if (c->stream != NULL) {
        (void)cudaStreamDestroy(c->stream);
    }
}

/* Closes channels in the order they were made, because destroying one may wait for the other rank. The library stays
 * loaded. */
static void nccl_close(void *self)
{
    ckpt_nccl *const nccl = self;
    for (int i = 0; i < nccl->count; i++) {
        channel *const first = i < nccl->rank ? &nccl->in[i] : &nccl->out[i];
        close_channel(nccl, first);
        close_channel(nccl, first == &nccl->in[i] ? &nccl->out[i] : &nccl->in[i]);
    }
    ckpt_memory_put(nccl->out);
    ckpt_memory_put(nccl->in);
    ckpt_memory_put(nccl);
}

/* ---- messages ---- */

static ckpt_code nccl_prepare(void *self, void *slot, ckpt_err *err)
{
    (void)self;
    return ckpt_cuda_check(cudaEventCreateWithFlags(&((nccl_slot *)slot)->done, cudaEventDisableTiming),
                           "cudaEventCreateWithFlags", err);
}

static void nccl_release(void *self, void *slot)
{
    (void)self;
    if (((nccl_slot *)slot)->done != NULL) {
        (void)cudaEventDestroy(((nccl_slot *)slot)->done);
    }
}

static ckpt_code mark(nccl_slot *slot, const channel *c, ckpt_err *err)
{
    slot->channel = c;
    return ckpt_cuda_check(cudaEventRecord(slot->done, c->stream), "cudaEventRecord", err);
}

static ckpt_code nccl_send(void *self, void *slot, int to, int tag, const void *memory, ckpt_bytes bytes, ckpt_err *err)
{
    const ckpt_nccl *const nccl = self;
    const channel *const c = &nccl->out[to];
    (void)tag;
    ((nccl_slot *)slot)->channel = NULL;
    if (bytes == 0) {
        return CKPT_OK;
    }
    CKPT_TRY(check(nccl, nccl->api.ncclSend(memory, (size_t)bytes, ncclUint8, 1, c->comm, c->stream), "sending", err));
    return mark(slot, c, err);
}

static ckpt_code nccl_receive(void *self, void *slot, int from, int tag, void *memory, ckpt_bytes bytes, ckpt_err *err)
{
    const ckpt_nccl *const nccl = self;
    const channel *const c = &nccl->in[from];
    (void)tag;
    ((nccl_slot *)slot)->channel = NULL;
    if (bytes == 0) {
        return CKPT_OK;
    }
    CKPT_TRY(
        check(nccl, nccl->api.ncclRecv(memory, (size_t)bytes, ncclUint8, 0, c->comm, c->stream), "receiving", err));
    return mark(slot, c, err);
}

/* The event says that the bytes have arrived. NCCL reports an error of the network, after which the event may never
 * come. */
static ckpt_code nccl_wait(void *self, void *slot, ckpt_err *err)
{
    const ckpt_nccl *const nccl = self;
    const nccl_slot *const s = slot;
    for (int64_t asked = 0; s->channel != NULL; asked++) {
        const cudaError_t code = cudaEventQuery(s->done);
        if (code != cudaErrorNotReady) {
            CKPT_TRY(ckpt_cuda_check(code, "waiting for a message", err));
        }
        if (code == cudaSuccess || asked % ASK == ASK - 1) {
            ncclResult_t later = ncclSuccess;
            CKPT_TRY(check(nccl, nccl->api.ncclCommGetAsyncError(s->channel->comm, &later), "asking", err));
            CKPT_TRY(check(nccl, later, "a message", err));
        }
        if (code == cudaSuccess) {
            return CKPT_OK;
        }
        (void)cudaGetLastError(); /* "not ready" is no error */
        sched_yield();
    }
    return CKPT_OK;
}

static const char *nccl_library(void *self)
{
    return ((const ckpt_nccl *)self)->version;
}

/* The first message connects a communicator: its call blocks the host until the other rank calls too. In a step both
 * ranks receive before they send, in different communicators, and would wait for each other forever. Therefore the
 * first message, one byte, is sent here, where all ranks keep to one order. */
static ckpt_code first_message(ckpt_nccl *nccl, int other, bool out, void *byte, ckpt_err *err)
{
    nccl_slot slot = {0};
    CKPT_TRY(nccl_prepare(nccl, &slot, err));
    ckpt_code code =
        out ? nccl_send(nccl, &slot, other, 0, byte, 1, err) : nccl_receive(nccl, &slot, other, 0, byte, 1, err);
    code = code == CKPT_OK ? nccl_wait(nccl, &slot, err) : code;
    nccl_release(nccl, &slot);
    return code;
}

/* The channel to or from another rank. */
static ckpt_code connect_to(ckpt_nccl *nccl, int other, bool out, const ncclUniqueId *id, void *byte, ckpt_err *err)
{
    channel *const to = out ? &nccl->out[other] : &nccl->in[other];
    CKPT_TRY(ckpt_cuda_check(cudaStreamCreateWithFlags(&to->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags",
                             err));
    CKPT_TRY(check(nccl, nccl->api.ncclCommInitRank(&to->comm, 2, *id, out ? 0 : 1), "ncclCommInitRank", err));
    return first_message(nccl, other, out, byte, err);
}

/* Connects pair after pair in the same order on all ranks, so that the first pair never waits for another. */
static ckpt_code connect_pairs(ckpt_nccl *nccl, const unsigned char *all, size_t each, void *byte, ckpt_err *err)
{
    const int me = nccl->rank;
    for (int low = 0; low < nccl->count; low++) {
        const ncclUniqueId *const id = ((const greeting *)(const void *)(all + (size_t)low * each))->id;
        for (int high = low + 1; high < nccl->count; high++) {
            const int other = low == me ? high : low;
            if (low == me || high == me) { /* up, then down */
                CKPT_TRY(connect_to(nccl, other, low == me, &id[2 * high], byte, err));
                CKPT_TRY(connect_to(nccl, other, high == me, &id[2 * high + 1], byte, err));
            }
        }
    }
    return CKPT_OK;
}

static ckpt_code connect_all(ckpt_nccl *nccl, const unsigned char *all, size_t each, ckpt_err *err)
{
    void *byte = NULL;
    CKPT_TRY(ckpt_cuda_check(cudaMalloc(&byte, 1), "cudaMalloc", err));
    CKPT_TRY(connect_pairs(nccl, all, each, byte, err)); /* after a failure, freeing would wait forever */
    return ckpt_cuda_check(cudaFree(byte), "cudaFree", err);
}

/* All ranks take part, or all fail with the message of the first that cannot. */
static ckpt_code agree(const ckpt_carrier_group *group, const unsigned char *all, size_t each, ckpt_err *err)
{
    for (int i = 0; i < group->count; i++) {
        const greeting *const said = (const void *)(all + (size_t)i * each);
        if (said->why[0] != '\0') {
            return CKPT_FAIL(err, CKPT_DEVICE, "rank %d: %.*s", i, WORDS - 1, said->why);
        }
    }
    return CKPT_OK;
}

static ckpt_code come_together(ckpt_nccl *nccl, const ckpt_carrier_group *group, ckpt_err *err)
{
    const size_t each = sizeof(greeting) + 2 * (size_t)group->count * sizeof(ncclUniqueId);
    greeting *const mine = ckpt_memory_get(each);
    unsigned char *const all = ckpt_memory_get(each * (size_t)group->count);
    ckpt_code code = CKPT_NO_MEMORY;
    if (mine == NULL || all == NULL) {
        (void)CKPT_FAIL(err, code, "no memory: wanted %zu bytes for NCCL's addresses",
                        each * ((size_t)group->count + 1));
    } else {
        ckpt_err own = {0};
        code = load(nccl, &own);
        code = code == CKPT_OK ? invite(nccl, mine->id, &own) : code;
        if (code != CKPT_OK) {
            snprintf(mine->why, sizeof mine->why, "%.*s", WORDS - 1, own.msg);
        }
        code = group->allgather(group->context, mine, all, (ckpt_bytes)each, err);
        code = code == CKPT_OK ? agree(group, all, each, err) : code;
        code = code == CKPT_OK ? connect_all(nccl, all, each, err) : code;
    }
    ckpt_memory_put(mine);
    ckpt_memory_put(all);
    return code;
}

ckpt_code ckpt_nccl_open(ckpt_device *device, const ckpt_carrier_group *group, const ckpt_carrier **carrier,
                         void **self, ckpt_err *err)
{
    static const ckpt_carrier nccl_carrier = {.on_device = true,
                                              .slot_bytes = sizeof(nccl_slot),
                                              .prepare = nccl_prepare,
                                              .release = nccl_release,
                                              .send = nccl_send,
                                              .receive = nccl_receive,
                                              .wait = nccl_wait,
                                              .library = nccl_library,
                                              .close = nccl_close};
    ckpt_nccl *const nccl = ckpt_memory_get(sizeof *nccl);
    channel *const out = ckpt_memory_get((size_t)group->count * sizeof *out);
    channel *const in = ckpt_memory_get((size_t)group->count * sizeof *in);
    (void)device; /* CUDA's current device: the one this thread has opened */
    if (nccl == NULL || out == NULL || in == NULL) {
        ckpt_memory_put(nccl);
        ckpt_memory_put(out);
        ckpt_memory_put(in);
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the channels of %d ranks", group->count);
    }
    *nccl = (ckpt_nccl){.rank = group->rank, .count = group->count, .out = out, .in = in};
    const ckpt_code code = come_together(nccl, group, err);
    if (code != CKPT_OK) { /* closing channels would wait for the rank that failed; the process ends anyway */
        ckpt_memory_put(out);
        ckpt_memory_put(in);
        ckpt_memory_put(nccl);
        return code;
    }
    *carrier = &nccl_carrier;
    *self = nccl;
    return CKPT_OK;
}

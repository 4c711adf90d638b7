/* Joining, leaving, and messages in slots. */
#include "ranks/ranks.h"

#include <stdio.h>
#include <string.h>

#include "core/base/memory.h"
#include "ranks/ranks_impl.h"

static ckpt_code open_mpi(ckpt_ranks *ranks, const ckpt_launch *launch, bool *one_host, ckpt_err *err)
{
    const ckpt_mpi_api *mpi = NULL;
    int rank = 0, count = 0;
    CKPT_TRY(ckpt_mpi_load(&mpi, err));
    CKPT_TRY(mpi->open(launch->moves != 0, &rank, &count, one_host, ranks->library, sizeof ranks->library, err));
    if (count != launch->count || rank != launch->rank) {
        return CKPT_FAIL(err, CKPT_DEVICE,
                         "the environment says rank %d of %d, %s says rank %d of %d: wanted the mpirun of that library",
                         launch->rank, launch->count, ranks->library, rank, count);
    }
    ranks->mpi = mpi;
    ranks->carrier = &mpi->carrier;
    return CKPT_OK;
}

/* How to reach rank 0: with MPI it broadcasts where it listens; a launcher has told every rank. */
static ckpt_code call_ranks(ckpt_ranks *ranks, const ckpt_launch *launch, bool one_host, ckpt_star_call *call,
                            ckpt_err *err)
{
    ckpt_code code = CKPT_OK;
    ckpt_err own = {0};
    if (!launch->mpi) {
        *call = (ckpt_star_call){.talk = 1, .address_count = 1};
        if (strlen(launch->address) >= sizeof call->address[0] || strlen(launch->port) >= sizeof call->port) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "environment: MASTER_ADDR or MASTER_PORT is longer than a name");
        }
        snprintf(call->address[0], sizeof call->address[0], "%s", launch->address);
        snprintf(call->port, sizeof call->port, "%s", launch->port);
    }
    if (ranks->rank == 0) {
        code = ckpt_star_listen(ranks->star, launch->address, launch->port, one_host, call, &own);
    }
    if (launch->mpi) { /* even if rank 0 cannot listen: the others wait for it */
        CKPT_TRY(ranks->mpi->broadcast(0, call, sizeof *call, err));
    }
    if (code != CKPT_OK && err != NULL) {
        *err = own;
    }
    return code;
}

static ckpt_code join(ckpt_ranks *ranks, const ckpt_launch *launch, int seconds, ckpt_err *err)
{
    bool one_host = false;
    ckpt_star_call call;
    if (launch->mpi) {
        CKPT_TRY(open_mpi(ranks, launch, &one_host, err));
    }
    CKPT_TRY(call_ranks(ranks, launch, one_host, &call, err));
    return ckpt_star_join(ranks->star, &call, seconds, err);
}

static void *slot_memory(const ckpt_ranks *ranks, int slot)
{
    return ranks->slot + (size_t)slot * ranks->carrier->slot_bytes;
}

static void release_slots(ckpt_ranks *ranks)
{
    for (int i = 0; i < ranks->slot_count && ranks->carrier != NULL && ranks->carrier->release != NULL; i++) {
        ranks->carrier->release(ranks->carrier_self, slot_memory(ranks, i));
    }
    ranks->slot_count = 0;
}

static void discard(ckpt_ranks *ranks)
{
    if (ranks->mpi != NULL) {
        ranks->mpi->halt();
    }
    ckpt_star_destroy(ranks->star);
    ckpt_memory_put(ranks->slot);
    ckpt_memory_put(ranks->busy);
    ckpt_memory_put(ranks);
}

ckpt_code ckpt_ranks_open(ckpt_ranks **ranks, ckpt_err *err)
{
    ckpt_launch launch;
    CKPT_TRY(ckpt_launch_read(&launch, err));
    ckpt_ranks *const made = ckpt_memory_get(sizeof *made);
    if (made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory: wanted %zu bytes for the ranks", sizeof *made);
    }
    made->rank = launch.rank;
    made->count = launch.count;
    made->local = launch.local;
    snprintf(made->library, sizeof made->library, "none");
    ckpt_code code = CKPT_OK;
    if (launch.count > 1) { /* memory first: if there is none, no other rank waits for us yet */
        code = ckpt_star_create(&made->star, launch.rank, launch.count, err);
        code = code == CKPT_OK ? join(made, &launch, launch.seconds, err) : code;
    }
    if (code != CKPT_OK) {
        discard(made);
        return code;
    }
    *ranks = made;
    return CKPT_OK;
}

void ckpt_ranks_close(ckpt_ranks *ranks)
{
    if (ranks == NULL) {
        return;
    }
    const bool together = ranks->star == NULL || ckpt_star_leave(ranks->star);
    if (together) { /* closing would wait for a dead rank */
        release_slots(ranks);
        if (ranks->carrier != NULL && ranks->carrier->close != NULL) {
            ranks->carrier->close(ranks->carrier_self);
        }
        if (ranks->mpi != NULL) {
            ranks->mpi->close();
        }
    }
    discard(ranks);
}

int ckpt_ranks_rank(const ckpt_ranks *ranks)
{
    return ranks->rank;
}

int ckpt_ranks_count(const ckpt_ranks *ranks)
{
    return ranks->count;
}

int ckpt_ranks_local(const ckpt_ranks *ranks)
{
    return ranks->local;
}

const char *ckpt_ranks_library(const ckpt_ranks *ranks)
{
    return ranks->library;
}

bool ckpt_ranks_on_device(const ckpt_ranks *ranks)
{
    return ranks->carrier != NULL && ranks->carrier->on_device;
}

ckpt_code ckpt_ranks_watch(ckpt_ranks *ranks, ckpt_ranks_lost *lost, void *context, ckpt_err *err)
{
    return ranks->star != NULL ? ckpt_star_watch(ranks->star, lost, context, err) : CKPT_OK;
}

void ckpt_ranks_note(ckpt_ranks *ranks, const char *note)
{
    if (ranks->star != NULL) {
        ckpt_star_note(ranks->star, note);
    }
}

void ckpt_ranks_give_up(ckpt_ranks *ranks, const char *why)
{
    if (ranks != NULL && ranks->star != NULL) {
        ckpt_star_give_up(ranks->star, why);
    }
}

/* A failed message often means that a rank has died. The watching thread reports that death, so give it time to do
 * so. */
static ckpt_code explained(const ckpt_ranks *ranks, ckpt_code code)
{
    if (code != CKPT_OK && ranks->star != NULL) {
        ckpt_star_linger(ranks->star);
    }
    return code;
}

static ckpt_code allgather_for(void *context, const void *mine, void *all, ckpt_bytes bytes, ckpt_err *err)
{
    return ckpt_ranks_allgather(context, mine, all, bytes, err);
}

ckpt_code ckpt_ranks_carry(ckpt_ranks *ranks, ckpt_carrier_open *open, void *device, ckpt_err *err)
{
    const ckpt_carrier_group group = {
        .rank = ranks->rank, .count = ranks->count, .allgather = allgather_for, .context = ranks};
    const ckpt_carrier *carrier = NULL;
    void *self = NULL;
    if (ranks->busy != NULL || ranks->carrier_self != NULL) {
        return CKPT_FAIL(err, CKPT_DEVICE, "a carrier of messages after their slots were made, wanted before");
    }
    CKPT_TRY(explained(ranks, open(device, &group, &carrier, &self, err)));
    ranks->carrier = carrier;
    ranks->carrier_self = self;
    const size_t used = ranks->mpi != NULL ? strlen(ranks->library) : 0;
    if (carrier->library != NULL) {
        snprintf(ranks->library + used, sizeof ranks->library - used, "%s%s", used > 0 ? ", " : "",
                 carrier->library(self));
    }
    return CKPT_OK;
}

ckpt_code ckpt_ranks_slots(ckpt_ranks *ranks, int count, ckpt_err *err)
{
    if (count < 0 || ranks->busy != NULL) {
        return CKPT_FAIL(err, CKPT_DEVICE, "slots of messages: found %d%s, wanted them once, 0 or more", count,
                         ranks->busy != NULL ? " a second time" : "");
    }
    const size_t each = ranks->carrier != NULL ? ranks->carrier->slot_bytes : 0, wanted = (size_t)count * each;
    unsigned char *const slot = ckpt_memory_get(wanted + 1);
    bool *const busy = ckpt_memory_get((size_t)count + 1);
    if (slot == NULL || busy == NULL) {
        ckpt_memory_put(slot);
        ckpt_memory_put(busy);
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory: wanted %zu bytes for %d slots of messages",
                         wanted + (size_t)count, count);
    }
    ranks->slot = slot;
    ranks->busy = busy;
    for (; ranks->slot_count < count; ranks->slot_count++) {
        if (ranks->carrier != NULL && ranks->carrier->prepare != NULL) {
            CKPT_TRY(ranks->carrier->prepare(ranks->carrier_self, slot_memory(ranks, ranks->slot_count), err));
        }
    }
    return CKPT_OK;
}

/* May a message with `other` start in `slot`? */
static ckpt_code check_message(const ckpt_ranks *ranks, int slot, int other, int tag, ckpt_bytes bytes, ckpt_err *err)
{
    if (ranks->carrier == NULL) {
        return CKPT_FAIL(err, CKPT_DEVICE,
                         "nothing carries messages between ranks: found %d ranks without mpirun and "
                         "without NCCL",
                         ranks->count);
    }
    if (slot < 0 || slot >= ranks->slot_count || ranks->busy[slot]) {
        return CKPT_FAIL(err, CKPT_DEVICE, "a message in slot %d%s, wanted a free one of %d", slot,
                         slot >= 0 && slot < ranks->slot_count ? ", where one is under way" : "", ranks->slot_count);
    }
    if (other < 0 || other >= ranks->count || other == ranks->rank) {
        return CKPT_FAIL(err, CKPT_DEVICE, "a message between rank %d and rank %d, wanted another of %d ranks",
                         ranks->rank, other, ranks->count);
    }
    if (tag < 0 || tag >= CKPT_TAGS || bytes < 0) {
        return CKPT_FAIL(err, CKPT_DEVICE, "a message with tag %d and %lld bytes, wanted a tag from 0 to %d", tag,
                         (long long)bytes, CKPT_TAGS - 1);
    }
    return CKPT_OK;
}

ckpt_code ckpt_ranks_send(ckpt_ranks *ranks, int slot, int to, int tag, const void *memory, ckpt_bytes bytes,
                          ckpt_err *err)
{
    CKPT_TRY(check_message(ranks, slot, to, tag, bytes, err));
    CKPT_TRY(explained(
        ranks, ranks->carrier->send(ranks->carrier_self, slot_memory(ranks, slot), to, tag, memory, bytes, err)));
    ranks->busy[slot] = true;
    return CKPT_OK;
}

ckpt_code ckpt_ranks_receive(ckpt_ranks *ranks, int slot, int from, int tag, void *memory, ckpt_bytes bytes,
                             ckpt_err *err)
{
    CKPT_TRY(check_message(ranks, slot, from, tag, bytes, err));
    CKPT_TRY(explained(
        ranks, ranks->carrier->receive(ranks->carrier_self, slot_memory(ranks, slot), from, tag, memory, bytes, err)));
    ranks->busy[slot] = true;
    return CKPT_OK;
}

ckpt_code ckpt_ranks_wait(ckpt_ranks *ranks, int slot, ckpt_err *err)
{
    if (slot < 0 || slot >= ranks->slot_count) {
        return CKPT_FAIL(err, CKPT_DEVICE, "waiting for slot %d, wanted one of %d", slot, ranks->slot_count);
    }
    if (!ranks->busy[slot]) {
        return CKPT_OK;
    }
    ranks->busy[slot] = false;
    return explained(ranks, ranks->carrier->wait(ranks->carrier_self, slot_memory(ranks, slot), err));
}

ckpt_code ckpt_ranks_broadcast(ckpt_ranks *ranks, int root, void *memory, ckpt_bytes bytes, ckpt_err *err)
{
    if (root < 0 || root >= ranks->count || bytes < 0) {
        return CKPT_FAIL(err, CKPT_DEVICE, "broadcast of %lld bytes from rank %d, wanted one of %d", (long long)bytes,
                         root, ranks->count);
    }
    if (ranks->mpi != NULL) {
        return explained(ranks, ranks->mpi->broadcast(root, memory, bytes, err));
    }
    return ranks->star != NULL ? explained(ranks, ckpt_star_broadcast(ranks->star, root, memory, bytes, err)) : CKPT_OK;
}

ckpt_code ckpt_ranks_allgather(ckpt_ranks *ranks, const void *mine, void *all, ckpt_bytes bytes, ckpt_err *err)
{
    if (bytes < 0) {
        return CKPT_FAIL(err, CKPT_DEVICE, "all-gather of %lld bytes, wanted 0 or more", (long long)bytes);
    }
    if (ranks->mpi != NULL) {
        return explained(ranks, ranks->mpi->allgather(mine, all, bytes, err));
    }
    if (ranks->star != NULL) {
        return explained(ranks, ckpt_star_allgather(ranks->star, mine, all, bytes, err));
    }
    if (bytes > 0) {
        memcpy(all, mine, (size_t)bytes);
    }
    return CKPT_OK;
}

ckpt_code ckpt_ranks_barrier(ckpt_ranks *ranks, ckpt_err *err)
{
    if (ranks->mpi != NULL) {
        return explained(ranks, ranks->mpi->barrier(err));
    }
    return ranks->star != NULL ? explained(ranks, ckpt_star_allgather(ranks->star, NULL, NULL, 0, err)) : CKPT_OK;
}

/* Messages by MPI: libckpt_mpi.so, the only file that sees mpi.h.
 *
 * Everything is started without blocking and then polled, by who waits for it or, while nobody does, by a thread of our
 * own (progress_impl.h); only one thread at a time calls MPI (MPI_THREAD_SERIALIZED). */
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "ranks/progress_impl.h"
#include "ranks/ranks_impl.h"

/* MPI does not free all its memory, and it unloads the components that a report of leaks would have to name. Nothing of
 * ours is allocated while MPI starts and ends, so the leak sanitizer ignores what is allocated then. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#else
#define __lsan_disable() ((void)0)
#define __lsan_enable()  ((void)0)
#endif

enum { PIECE = 1024 * 1024 /* bytes; INT_MAX pieces are 2^51 bytes */ };

typedef struct mpi_slot {
    struct mpi_slot *before, *behind; /* among those under way */
    MPI_Request request[2];           /* whole pieces, the rest */
    int parts;                        /* requests that are under way */
    int expected[2];                  /* counts; -1: a send */
    MPI_Datatype type[2];
} mpi_slot;

static struct {
    MPI_Comm comm;
    MPI_Datatype piece; /* piece_bytes bytes */
    int piece_bytes;
    int64_t limit;   /* bytes of a message that is not split */
    bool began;      /* by us: MPI_Init */
    mpi_slot *first; /* of the messages that are under way */
    ckpt_progress progress;
} mpi = {.piece_bytes = PIECE, .limit = INT_MAX};

static ckpt_code failed(int code, const char *what, ckpt_err *err)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) {
        snprintf(text, sizeof text, "error %d", code);
    }
    return CKPT_FAIL(err, CKPT_DEVICE, "MPI: %s: %s", what, text);
}

#define TRY_MPI(call, what)                                                                                            \
    do {                                                                                                               \
        const int try_code = (call);                                                                                   \
        if (try_code != MPI_SUCCESS) {                                                                                 \
            return failed(try_code, (what), err);                                                                      \
        }                                                                                                              \
    } while (0)

/* Entered: MPI_Waitall, but it gives the processor to others while it waits. */
static int wait_for(int count, MPI_Request *request, MPI_Status *status)
{
    int code = MPI_SUCCESS, done = 0;
    ckpt_progress_wait(&mpi.progress, true);
    for (int asked = 0;; asked += asked < INT_MAX) {
        code = MPI_Testall(count, request, &done, status);
        if (code != MPI_SUCCESS || done != 0) {
            break;
        }
        ckpt_progress_leave(&mpi.progress);
        ckpt_progress_pause(asked);
        ckpt_progress_enter(&mpi.progress);
    }
    ckpt_progress_wait(&mpi.progress, false);
    return code;
}

/* What a ckpt_progress polls. A call that asks for one message moves all of them; a message is done only for who waits
 * for it. An error is that one's too. */
static bool poll_all(void *context)
{
    (void)context;
    for (const mpi_slot *s = mpi.first; s != NULL; s = s->behind) {
        for (int i = 0; i < s->parts; i++) {
            int done = 0;
            if (MPI_Request_get_status(s->request[i], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0) {
                return true;
            }
        }
    }
    return false;
}

static void add_slot(mpi_slot *slot)
{
    slot->before = NULL;
    slot->behind = mpi.first;
    if (mpi.first != NULL) {
        mpi.first->before = slot;
    }
    mpi.first = slot;
    ckpt_progress_moves(&mpi.progress);
}

static void remove_slot(mpi_slot *slot)
{
    if (slot->before != NULL) {
        slot->before->behind = slot->behind;
    } else {
        mpi.first = slot->behind;
    }
    if (slot->behind != NULL) {
        slot->behind->before = slot->before;
    }
}

/* "Open MPI 4.1.4" of "Open MPI v4.1.4, package: ...", "MPICH Version: 4.0.2" of its first line. */
static void name_library(char *library, size_t room)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "";
    int length = 0;
    (void)MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = '\0';
    size_t used = 0;
    for (const char *c = text; *c != '\0' && used + 1 < room; c++) {
        const bool blank = *c == ' ' || *c == '\t';
        if (blank && (used == 0 || library[used - 1] == ' ')) {
            continue;
        }
        if (*c == 'v' && c[1] >= '0' && c[1] <= '9') {
            continue;
        }
        library[used++] = blank ? ' ' : *c;
    }
    library[used] = '\0';
}

static ckpt_code begin(ckpt_err *err)
{
    int began = 0, ended = 0, level = 0;
    TRY_MPI(MPI_Finalized(&ended), "asking whether it has ended");
    if (ended != 0) {
        return CKPT_FAIL(err, CKPT_DEVICE, "MPI: was closed in this process before, and starts once only");
    }
    TRY_MPI(MPI_Initialized(&began), "asking whether it has begun");
    if (began == 0) {
        TRY_MPI(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level), "starting");
        mpi.began = true;
    }
    TRY_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "a communicator");
    TRY_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &mpi.comm), "a communicator");
    TRY_MPI(MPI_Comm_set_errhandler(mpi.comm, MPI_ERRORS_RETURN), "a communicator");
    return CKPT_OK;
}

static ckpt_code make_piece(int bytes, ckpt_err *err)
{
    TRY_MPI(MPI_Type_contiguous(bytes, MPI_BYTE, &mpi.piece), "a type");
    TRY_MPI(MPI_Type_commit(&mpi.piece), "a type");
    mpi.piece_bytes = bytes;
    return CKPT_OK;
}

/* A library that one thread alone may call does without. */
static ckpt_code start_progress(ckpt_err *err)
{
    int level = MPI_THREAD_SINGLE;
    TRY_MPI(MPI_Query_thread(&level), "asking which threads may call it");
    return level < MPI_THREAD_SERIALIZED ? CKPT_OK : ckpt_progress_start(&mpi.progress, err);
}

static ckpt_code begin_all(bool moves, int *rank, int *count, bool *one_host, char *library, size_t room, ckpt_err *err)
{
    MPI_Comm host;
    int here = 0;
    CKPT_TRY(begin(err));
    CKPT_TRY(make_piece(PIECE, err));
    TRY_MPI(MPI_Comm_rank(mpi.comm, rank), "this rank");
    TRY_MPI(MPI_Comm_size(mpi.comm, count), "the number of ranks");
    TRY_MPI(MPI_Comm_split_type(mpi.comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host), "the ranks of this host");
    TRY_MPI(MPI_Comm_size(host, &here), "the ranks of this host");
    TRY_MPI(MPI_Comm_free(&host), "the ranks of this host");
    *one_host = here == *count;
    name_library(library, room);
    return moves ? start_progress(err) : CKPT_OK;
}

static ckpt_code mpi_open(bool moves, int *rank, int *count, bool *one_host, char *library, size_t room, ckpt_err *err)
{
    __lsan_disable();
    ckpt_progress_init(&mpi.progress, poll_all, NULL);
    const ckpt_code code = begin_all(moves, rank, count, one_host, library, room, err);
    __lsan_enable();
    return code;
}

static void mpi_halt(void)
{
    ckpt_progress_stop(&mpi.progress);
}

static void mpi_close(void)
{
    mpi_halt();
    __lsan_disable();
    MPI_Type_free(&mpi.piece);
    MPI_Comm_free(&mpi.comm);
    if (mpi.began) {
        MPI_Finalize();
        mpi.began = false;
    }
    __lsan_enable();
}

static void mpi_split(int64_t limit, int piece)
{
    MPI_Type_free(&mpi.piece);
    mpi.limit = make_piece(piece, NULL) == CKPT_OK ? limit : INT_MAX;
}

/* Cuts a message into parts: their counts and types. A message of no bytes has one part. */
static ckpt_code cut(mpi_slot *slot, ckpt_bytes bytes, int count[2], ckpt_err *err)
{
    if (bytes <= mpi.limit) {
        slot->parts = 1;
        slot->type[0] = MPI_BYTE;
        count[0] = (int)bytes;
        return CKPT_OK;
    }
    if (bytes / mpi.piece_bytes > INT_MAX) {
        return CKPT_FAIL(err, CKPT_DEVICE, "MPI: found a message of %lld bytes, wanted at most %d pieces of %d",
                         (long long)bytes, INT_MAX, mpi.piece_bytes);
    }
    slot->parts = 2;
    slot->type[0] = mpi.piece;
    slot->type[1] = MPI_BYTE;
    count[0] = (int)(bytes / mpi.piece_bytes);
    count[1] = (int)(bytes % mpi.piece_bytes);
    return CKPT_OK;
}

/* Where part `part` of a message begins. */
static size_t part_offset(int part, const int count[2])
{
    return part == 0 ? 0 : (size_t)count[0] * (size_t)mpi.piece_bytes;
}

static ckpt_code start_send(mpi_slot *s, int to, int tag, const void *memory, ckpt_bytes bytes, ckpt_err *err)
{
    int count[2] = {0};
    CKPT_TRY(cut(s, bytes, count, err));
    for (int i = 0; i < s->parts; i++) {
        s->expected[i] = -1;
        TRY_MPI(MPI_Isend((const char *)memory + part_offset(i, count), count[i], s->type[i], to, tag, mpi.comm,
                          &s->request[i]),
                "sending");
    }
    add_slot(s);
    return CKPT_OK;
}

static ckpt_code mpi_send(void *self, void *slot, int to, int tag, const void *memory, ckpt_bytes bytes, ckpt_err *err)
{
    (void)self;
    ckpt_progress_enter(&mpi.progress);
    const ckpt_code code = start_send(slot, to, tag, memory, bytes, err);
    ckpt_progress_leave(&mpi.progress);
    return code;
}

static ckpt_code start_receive(mpi_slot *s, int from, int tag, void *memory, ckpt_bytes bytes, ckpt_err *err)
{
    int count[2] = {0};
    CKPT_TRY(cut(s, bytes, count, err));
    for (int i = 0; i < s->parts; i++) {
        s->expected[i] = count[i];
        TRY_MPI(MPI_Irecv((char *)memory + part_offset(i, count), count[i], s->type[i], from, tag, mpi.comm,
                          &s->request[i]),
                "receiving");
    }
    add_slot(s);
    return CKPT_OK;
}

static ckpt_code mpi_receive(void *self, void *slot, int from, int tag, void *memory, ckpt_bytes bytes, ckpt_err *err)
{
    (void)self;
    ckpt_progress_enter(&mpi.progress);
    const ckpt_code code = start_receive(slot, from, tag, memory, bytes, err);
    ckpt_progress_leave(&mpi.progress);
    return code;
}

static ckpt_code wait_for_slot(mpi_slot *s, ckpt_err *err)
{
    MPI_Status status[2];
    const int code = wait_for(s->parts, s->request, status);
    remove_slot(s);
    for (int i = 0; i < s->parts && code == MPI_ERR_IN_STATUS; i++) {
        if (status[i].MPI_ERROR != MPI_SUCCESS && status[i].MPI_ERROR != MPI_ERR_PENDING) {
            return failed(status[i].MPI_ERROR, s->expected[i] < 0 ? "sending" : "receiving", err);
        }
    }
    TRY_MPI(code, "waiting for a message");
    for (int i = 0; i < s->parts; i++) {
        int count = 0;
        if (s->expected[i] < 0) {
            continue;
        }
        TRY_MPI(MPI_Get_count(&status[i], s->type[i], &count), "receiving");
        if (count != s->expected[i]) {
            return CKPT_FAIL(err, CKPT_DEVICE, "MPI: receiving from rank %d: found %d %s, wanted %d",
                             status[i].MPI_SOURCE, count, i + 1 < s->parts ? "pieces" : "bytes", s->expected[i]);
        }
    }
    return CKPT_OK;
}

static ckpt_code mpi_wait(void *self, void *slot, ckpt_err *err)
{
    (void)self;
    ckpt_progress_enter(&mpi.progress);
    const ckpt_code code = wait_for_slot(slot, err);
    ckpt_progress_leave(&mpi.progress);
    return code;
}

static ckpt_code broadcast(int root, void *memory, ckpt_bytes bytes, ckpt_err *err)
{
    for (ckpt_bytes done = 0; done < bytes; done += INT_MAX) {
        const int count = (int)(bytes - done < INT_MAX ? bytes - done : INT_MAX);
        MPI_Request request;
        TRY_MPI(MPI_Ibcast((char *)memory + done, count, MPI_BYTE, root, mpi.comm, &request), "broadcast");
        TRY_MPI(wait_for(1, &request, MPI_STATUSES_IGNORE), "broadcast");
    }
    return CKPT_OK;
}

static ckpt_code mpi_broadcast(int root, void *memory, ckpt_bytes bytes, ckpt_err *err)
{
    ckpt_progress_enter(&mpi.progress);
    const ckpt_code code = broadcast(root, memory, bytes, err);
    ckpt_progress_leave(&mpi.progress);
    return code;
}

static ckpt_code allgather(const void *mine, void *all, ckpt_bytes bytes, ckpt_err *err)
{
    if (bytes > INT_MAX) {
        return CKPT_FAIL(err, CKPT_DEVICE, "MPI: all-gather: found %lld bytes of each rank, wanted at most %d",
                         (long long)bytes, INT_MAX);
    }
    MPI_Request request;
    TRY_MPI(MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, mpi.comm, &request), "all-gather");
    TRY_MPI(wait_for(1, &request, MPI_STATUSES_IGNORE), "all-gather");
    return CKPT_OK;
}

static ckpt_code mpi_allgather(const void *mine, void *all, ckpt_bytes bytes, ckpt_err *err)
{
    ckpt_progress_enter(&mpi.progress);
    const ckpt_code code = allgather(mine, all, bytes, err);
    ckpt_progress_leave(&mpi.progress);
    return code;
}

static ckpt_code barrier(ckpt_err *err)
{
    MPI_Request request;
    TRY_MPI(MPI_Ibarrier(mpi.comm, &request), "barrier");
    TRY_MPI(wait_for(1, &request, MPI_STATUSES_IGNORE), "barrier");
    return CKPT_OK;
}

static ckpt_code mpi_barrier(ckpt_err *err)
{
    ckpt_progress_enter(&mpi.progress);
    const ckpt_code code = barrier(err);
    ckpt_progress_leave(&mpi.progress);
    return code;
}

extern const ckpt_mpi_api ckpt_mpi;
const ckpt_mpi_api ckpt_mpi = {
    .carrier = {.slot_bytes = sizeof(mpi_slot), .send = mpi_send, .receive = mpi_receive, .wait = mpi_wait},
    .open = mpi_open,
    .halt = mpi_halt,
    .close = mpi_close,
    .split = mpi_split,
    .broadcast = mpi_broadcast,
    .allgather = mpi_allgather,
    .barrier = mpi_barrier,
};

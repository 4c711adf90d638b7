/* Broadcast and all-gather of small data without MPI, by way of rank 0. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "ranks/star_impl.h"

/* Wait until `socket` can be read or written. */
static void wait_for(int socket, short events)
{
    struct pollfd polled = {.fd = socket, .events = events};
    poll(&polled, 1, -1);
}

/* Moves all of `bytes` to or from `socket`. */
static ckpt_code move(int socket, bool out, void *memory, ckpt_bytes bytes, int other, ckpt_err *err)
{
    for (ckpt_bytes done = 0; done < bytes;) {
        char *const at = (char *)memory + done;
        const size_t left = (size_t)(bytes - done);
        const ssize_t moved =
            out ? send(socket, at, left, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(socket, at, left, MSG_DONTWAIT);
        if (moved > 0) {
            done += moved;
        } else if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
            wait_for(socket, out ? POLLOUT : POLLIN);
        } else {
            return CKPT_FAIL(err, CKPT_DEVICE, "the connection with rank %d: %s", other,
                             moved == 0 ? "it has ended" : strerror(errno));
        }
    }
    return CKPT_OK;
}

/* The number of bytes goes first, so that the receiver can check it. */
static ckpt_code put(const ckpt_star *star, int to, const void *memory, ckpt_bytes bytes, ckpt_err *err)
{
    unsigned char size[8];
    for (int i = 0; i < 8; i++) {
        size[i] = (unsigned char)((uint64_t)bytes >> (56 - 8 * i));
    }
    CKPT_TRY(move(star->peer[to].talk, true, size, sizeof size, to, err));
    return move(star->peer[to].talk, true, (void *)(uintptr_t)memory, bytes, to, err);
}

static ckpt_code take(const ckpt_star *star, int from, void *memory, ckpt_bytes bytes, ckpt_err *err)
{
    unsigned char size[8];
    uint64_t found = 0;
    CKPT_TRY(move(star->peer[from].talk, false, size, sizeof size, from, err));
    for (int i = 0; i < 8; i++) {
        found = found << 8 | size[i];
    }
    if (found != (uint64_t)bytes) {
        return CKPT_FAIL(err, CKPT_DEVICE, "from rank %d: found %llu bytes, wanted %lld", from,
                         (unsigned long long)found, (long long)bytes);
    }
    return move(star->peer[from].talk, false, memory, bytes, from, err);
}

ckpt_code ckpt_star_broadcast(ckpt_star *star, int root, void *memory, ckpt_bytes bytes, ckpt_err *err)
{
    if (star->rank > 0) {
        return star->rank == root ? put(star, 0, memory, bytes, err) : take(star, 0, memory, bytes, err);
    }
    if (root > 0) {
        CKPT_TRY(take(star, root, memory, bytes, err));
    }
    for (int i = 1; i < star->count; i++) {
        if (i != root) {
            CKPT_TRY(put(star, i, memory, bytes, err));
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_star_allgather(ckpt_star *star, const void *mine, void *all, ckpt_bytes bytes, ckpt_err *err)
{
    ckpt_bytes total = 0;
    if (__builtin_mul_overflow(bytes, star->count, &total)) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "all-gather of %lld bytes of each of %d ranks: more than 63 bits",
                         (long long)bytes, star->count);
    }
    if (star->rank > 0) {
        CKPT_TRY(put(star, 0, mine, bytes, err));
        return take(star, 0, all, total, err);
    }
    if (bytes > 0) {
        memcpy(all, mine, (size_t)bytes);
    }
    for (int i = 1; i < star->count; i++) {
        CKPT_TRY(take(star, i, (char *)all + i * bytes, bytes, err));
    }
    for (int i = 1; i < star->count; i++) {
        CKPT_TRY(put(star, i, all, total, err));
    }
    return CKPT_OK;
}

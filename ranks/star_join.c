/* How ranks connect: rank 0 listens, the others connect and say who they are.
 *
 *     hello, 36 bytes:   "ckptrank" | word (16) | rank | count | line       numbers of 4 bytes, highest first
 *     answer, 8 bytes:   0 welcome, 1 another count, 2 that rank is here | a number
 *
 * Rank 0 closes a connection that does not send the word. MPI broadcasts the word, so only ranks of this job know it. A
 * launcher's environment has no word: anybody who reaches the port and knows the number of ranks can pose as a rank, as
 * with PyTorch's own store. */
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "ranks/star_impl.h"

enum {
    HELLO = 36,
    ANSWER = 8,
    STRANGER_MS = 5000, /* the time a connection has to say who it is, and rank 0 to answer */
    RETRY_MS = 50,      /* between two tries to reach rank 0 */
    GRACE_MS = 5000     /* rank 0 gives up first, since it can say who is missing */
};

typedef enum ckpt_star_answer { WELCOME, OTHER_COUNT, RANK_TAKEN } ckpt_star_answer;

static void put_number(unsigned char *at, unsigned number)
{
    for (int i = 0; i < 4; i++) {
        at[i] = (unsigned char)(number >> (24 - 8 * i));
    }
}

static unsigned get_number(const unsigned char *at)
{
    return (unsigned)at[0] << 24 | (unsigned)at[1] << 16 | (unsigned)at[2] << 8 | at[3];
}

/* Small messages go out at once, and a host that vanishes is noticed within half a minute. */
static void set_socket(int socket)
{
    static const int on = 1, idle = 10, interval = 5, tries = 4;
    fcntl(socket, F_SETFD, FD_CLOEXEC); /* a child must not keep it open */
    fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof tries);
}

/* ---- rank 0 takes a port ---- */

static int listen_at(const struct addrinfo *at)
{
    static const int on = 1, off = 0;
    const int made = socket(at->ai_family, SOCK_STREAM, 0);
    if (made < 0) {
        return -1;
    }
    set_socket(made);
    setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (at->ai_family == AF_INET6) {
        setsockopt(made, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    if (bind(made, at->ai_addr, at->ai_addrlen) == 0 && listen(made, SOMAXCONN) == 0) {
        return made;
    }
    const int why = errno;
    close(made);
    errno = why;
    return -1;
}

/* Listens on the first address of `host` that works (NULL: on every address). -1: none, and `why` says so. */
static int listen_on(const char *host, const char *port, char *why, size_t room)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list = NULL;
    const int code = getaddrinfo(host, port, &hints, &list);
    if (code != 0) {
        snprintf(why, room, "%s", gai_strerror(code));
        return -1;
    }
    int made = -1, last = 0;
    for (int family = AF_INET6; family != 0 && made < 0; family = family == AF_INET6 ? AF_INET : 0) {
        for (const struct addrinfo *at = list; at != NULL && made < 0; at = at->ai_next) {
            made = at->ai_family == family ? listen_at(at) : -1; /* of all addresses IPv6's takes both kinds */
            if (made < 0) {
                last = at->ai_family == family ? errno : last;
            }
        }
    }
    freeaddrinfo(list);
    snprintf(why, room, "%s", strerror(last));
    errno = last;
    return made;
}

/* The addresses of this host that others may reach; none without a network. */
static int own_addresses(ckpt_star_call *call)
{
    struct ifaddrs *list = NULL;
    int count = 0;
    if (getifaddrs(&list) != 0) {
        return 0;
    }
    for (const struct ifaddrs *at = list; at != NULL && count < CKPT_STAR_ADDRESSES; at = at->ifa_next) {
        const int family = at->ifa_addr != NULL ? at->ifa_addr->sa_family : AF_UNSPEC;
        const socklen_t length = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        if ((family == AF_INET || family == AF_INET6) &&
            getnameinfo(at->ifa_addr, length, call->address[count], sizeof call->address[count], NULL, 0,
                        NI_NUMERICHOST) == 0 &&
            strncmp(call->address[count], "127.", 4) != 0 && strcmp(call->address[count], "::1") != 0) {
            count++;
        }
    }
    freeifaddrs(list);
    return count;
}

static bool draw_word(unsigned char *word)
{
    const int file = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    const bool drawn = file >= 0 && read(file, word, CKPT_STAR_WORD) == CKPT_STAR_WORD;
    if (file >= 0) {
        close(file);
    }
    return drawn;
}

static ckpt_code no_listener(ckpt_star_call *call, const char *where, const char *why, ckpt_err *err)
{
    call->address_count = 0;
    snprintf(call->port, sizeof call->port, "%.200s", why);
    return CKPT_FAIL(err, CKPT_DEVICE, "rank 0 cannot listen on %.200s: %s", where, why);
}

/* MASTER_ADDR may lead here without being an address of this host: then listen on every address. */
static ckpt_code listen_by_launcher(ckpt_star *star, const char *address, const char *port, ckpt_star_call *call,
                                    ckpt_err *err)
{
    char why[200] = "", where[400];
    star->listener = listen_on(address, port, why, sizeof why);
    if (star->listener < 0 && errno == EADDRNOTAVAIL) {
        star->listener = listen_on(NULL, port, why, sizeof why);
    }
    if (star->listener < 0) {
        snprintf(where, sizeof where, "MASTER_ADDR=%.250s, MASTER_PORT=%.100s", address, port);
        return no_listener(call, where, why, err);
    }
    return CKPT_OK;
}

ckpt_code ckpt_star_listen(ckpt_star *star, const char *address, const char *port, bool one_host, ckpt_star_call *call,
                           ckpt_err *err)
{
    struct sockaddr_storage own;
    socklen_t length = sizeof own;
    char why[200] = "no address";
    if (address != NULL) {
        return listen_by_launcher(star, address, port, call, err);
    }
    *call = (ckpt_star_call){0};
    if (!draw_word(call->word)) {
        return no_listener(call, "a port", "no random bytes from /dev/urandom", err);
    }
    star->listener = listen_on(one_host ? "127.0.0.1" : NULL, "0", why, sizeof why);
    if (star->listener < 0 || getsockname(star->listener, (struct sockaddr *)&own, &length) != 0 ||
        getnameinfo((struct sockaddr *)&own, length, NULL, 0, call->port, sizeof call->port, NI_NUMERICSERV) != 0) {
        return no_listener(call, one_host ? "127.0.0.1" : "any address", why, err);
    }
    snprintf(call->address[0], sizeof call->address[0], "127.0.0.1");
    call->address_count = one_host ? 1 : own_addresses(call);
    return call->address_count > 0 ? CKPT_OK
                                   : no_listener(call, "this host", "it has no address that others can reach", err);
}

/* ---- rank 0 lets the others in ---- */

typedef struct stranger {
    int socket; /* -1: free */
    int have;
    int64_t until;
    unsigned char hello[HELLO];
} stranger;

static void answer(int socket, ckpt_star_answer code, unsigned number)
{
    unsigned char bytes[ANSWER];
    put_number(bytes, (unsigned)code);
    put_number(bytes + 4, number);
    (void)!send(socket, bytes, sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void dismiss(stranger *who)
{
    close(who->socket);
    who->socket = -1;
}

/* The hello is complete: it comes from a rank, or from a stranger. */
static void admit(ckpt_star *star, const ckpt_star_call *call, stranger *who)
{
    const unsigned rank = get_number(who->hello + 24), count = get_number(who->hello + 28),
                   line = get_number(who->hello + 32);
    if (memcmp(who->hello, "ckptrank", 8) != 0 || memcmp(who->hello + 8, call->word, CKPT_STAR_WORD) != 0) {
        dismiss(who);
        return;
    }
    if (count != (unsigned)star->count || rank == 0 || rank >= count || line > (unsigned)call->talk) {
        answer(who->socket, OTHER_COUNT, (unsigned)star->count);
        dismiss(who);
        return;
    }
    int *const place = line == 0 ? &star->peer[rank].watch : &star->peer[rank].talk;
    if (*place >= 0) {
        answer(who->socket, RANK_TAKEN, rank);
        dismiss(who);
        return;
    }
    answer(who->socket, WELCOME, rank);
    *place = who->socket;
    who->socket = -1;
}

static void hear(ckpt_star *star, const ckpt_star_call *call, stranger *who)
{
    const ssize_t got = recv(who->socket, who->hello + who->have, (size_t)(HELLO - who->have), MSG_DONTWAIT);
    if (got > 0) {
        who->have += (int)got;
        if (who->have == HELLO) {
            admit(star, call, who);
        }
    } else if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
        dismiss(who);
    }
}

static void greet(const ckpt_star *star, stranger *pending)
{
    stranger *place = pending; /* a free one, or who has been silent for longest */
    const int made = accept(star->listener, NULL, NULL);
    if (made < 0) {
        return;
    }
    for (int i = 0; i < CKPT_STAR_PENDING && place->socket >= 0; i++) {
        place = pending[i].socket < 0 || pending[i].until < place->until ? &pending[i] : place;
    }
    if (place->socket >= 0) {
        dismiss(place);
    }
    set_socket(made);
    *place = (stranger){.socket = made, .until = ckpt_star_now_ms() + STRANGER_MS};
}

/* Serves the listener and the connections without a hello yet, for at most 100 ms. */
static void receive_ranks(ckpt_star *star, const ckpt_star_call *call, stranger *pending)
{
    nfds_t count = 0;
    star->polled[count++] = (struct pollfd){.fd = star->listener, .events = POLLIN};
    for (int i = 0; i < CKPT_STAR_PENDING; i++) {
        if (pending[i].socket >= 0 && ckpt_star_now_ms() >= pending[i].until) {
            dismiss(&pending[i]);
        }
        if (pending[i].socket >= 0) {
            star->polled_peer[count] = i;
            star->polled[count++] = (struct pollfd){.fd = pending[i].socket, .events = POLLIN};
        }
    }
    if (poll(star->polled, count, 100) <= 0) {
        return;
    }
    for (nfds_t k = 1; k < count; k++) {
        if (star->polled[k].revents != 0) {
            hear(star, call, &pending[star->polled_peer[k]]);
        }
    }
    if (star->polled[0].revents != 0) {
        greet(star, pending);
    }
}

/* The first rank that is missing; `count` if none is. */
static int missing(const ckpt_star *star, int lines, int *others)
{
    int first = star->count;
    *others = 0;
    for (int i = star->count - 1; i > 0; i--) {
        if (star->peer[i].watch < 0 || (lines > 1 && star->peer[i].talk < 0)) {
            *others += first < star->count;
            first = i;
        }
    }
    return first;
}

static ckpt_code gather(ckpt_star *star, const ckpt_star_call *call, stranger *pending, int seconds, ckpt_err *err)
{
    const int64_t until = ckpt_star_now_ms() + (int64_t)seconds * 1000;
    int others = 0;
    for (int first = missing(star, call->talk + 1, &others); first < star->count;
         first = missing(star, call->talk + 1, &others)) {
        int rank = 0;
        const char *text = "";
        if (ckpt_star_now_ms() >= until) {
            char more[40] = "";
            if (others > 0) {
                snprintf(more, sizeof more, " and %d other%s", others, others > 1 ? "s" : "");
            }
            return CKPT_FAIL(err, CKPT_DEVICE, "rank %d of %d%s did not come within %d s", first, star->count, more,
                             seconds);
        }
        receive_ranks(star, call, pending);
        const ckpt_star_kind kind = ckpt_star_look(star, 0, &rank, &text);
        if (kind == CKPT_STAR_DIED || kind == CKPT_STAR_GAVE_UP) {
            return CKPT_FAIL(err, CKPT_DEVICE, "while ranks come together: rank %d %s%s", rank,
                             kind == CKPT_STAR_DIED ? "has died" : "gave up: ", text);
        }
    }
    return CKPT_OK;
}

static ckpt_code receive_all(ckpt_star *star, const ckpt_star_call *call, int seconds, ckpt_err *err)
{
    stranger pending[CKPT_STAR_PENDING];
    ckpt_err own = {0};
    for (int i = 0; i < CKPT_STAR_PENDING; i++) {
        pending[i].socket = -1;
    }
    const ckpt_code code = gather(star, call, pending, seconds, &own);
    for (int i = 0; i < CKPT_STAR_PENDING; i++) {
        if (pending[i].socket >= 0) {
            dismiss(&pending[i]);
        }
    }
    close(star->listener);
    star->listener = -1;
    for (int i = 1; i < star->count; i++) {
        ckpt_star_tell(star->peer[i].watch, code == CKPT_OK ? CKPT_STAR_HERE : CKPT_STAR_GAVE_UP, 0, own.msg);
    }
    if (code != CKPT_OK && err != NULL) {
        *err = own;
    }
    return code;
}

/* ---- the others connect ---- */

static bool wait_until(int socket, short events, int64_t until)
{
    for (;;) {
        struct pollfd polled = {.fd = socket, .events = events};
        const int64_t left = until - ckpt_star_now_ms();
        const int code = left > 0 ? poll(&polled, 1, (int)left) : 0;
        if (code >= 0 || errno != EINTR) {
            return code > 0;
        }
    }
}

/* A connection to one address; -1: none, errno says why. */
static int connect_at(const struct addrinfo *at, int64_t until)
{
    int why = 0;
    socklen_t length = sizeof why;
    const int made = socket(at->ai_family, SOCK_STREAM, 0);
    if (made < 0) {
        return -1;
    }
    set_socket(made);
    if (connect(made, at->ai_addr, at->ai_addrlen) == 0) {
        return made;
    }
    why = errno;
    if (why == EINPROGRESS) {
        why = ETIMEDOUT;
        if (wait_until(made, POLLOUT, until)) {
            getsockopt(made, SOL_SOCKET, SO_ERROR, &why, &length);
        }
    }
    if (why == 0) {
        return made;
    }
    close(made);
    errno = why;
    return -1;
}

/* Says who we are. 1: welcome, 0: that was not rank 0, -1: rank 0 refuses us, and `err` says why. */
static int say_hello(const ckpt_star *star, const ckpt_star_call *call, int socket, int line, int64_t until,
                     ckpt_err *err)
{
    unsigned char hello[HELLO] = "ckptrank", said[ANSWER];
    size_t have = 0;
    memcpy(hello + 8, call->word, CKPT_STAR_WORD);
    put_number(hello + 24, (unsigned)star->rank);
    put_number(hello + 28, (unsigned)star->count);
    put_number(hello + 32, (unsigned)line);
    if (send(socket, hello, sizeof hello, MSG_NOSIGNAL) != HELLO) {
        return 0;
    }
    while (have < ANSWER) {
        if (!wait_until(socket, POLLIN, until)) {
            return 0;
        }
        const ssize_t got = recv(socket, said + have, ANSWER - have, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
            return 0;
        }
        have += got > 0 ? (size_t)got : 0;
    }
    const unsigned code = get_number(said), number = get_number(said + 4);
    if (code == OTHER_COUNT) {
        (void)CKPT_FAIL(err, CKPT_DEVICE, "rank 0 was started with %u ranks, this one as rank %d of %d", number,
                        star->rank, star->count);
    } else if (code == RANK_TAKEN) {
        (void)CKPT_FAIL(err, CKPT_DEVICE, "two processes were started as rank %d of %d", star->rank, star->count);
    }
    return code == WELCOME ? 1 : code == OTHER_COUNT || code == RANK_TAKEN ? -1 : 0;
}

/* Try every address once: 1 joined, 0 not yet (`why` tells), -1 never. */
static int try_addresses(ckpt_star *star, const ckpt_star_call *call, int line, int *place, char *why, size_t room,
                         ckpt_err *err)
{
    int joined = 0;
    for (int i = 0; i < call->address_count && joined == 0; i++) {
        const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
        struct addrinfo *list = NULL;
        const int code = getaddrinfo(call->address[i], call->port, &hints, &list);
        if (code != 0) {
            snprintf(why, room, "%s", gai_strerror(code));
            continue;
        }
        for (const struct addrinfo *at = list; at != NULL && joined == 0; at = at->ai_next) {
            const int made = connect_at(at, ckpt_star_now_ms() + STRANGER_MS);
            if (made < 0) {
                snprintf(why, room, "%s", strerror(errno));
                continue;
            }
            snprintf(why, room, "what listens there does not answer as rank 0 of this job");
            joined = say_hello(star, call, made, line, ckpt_star_now_ms() + STRANGER_MS, err);
            if (joined > 0) {
                *place = made;
            } else {
                close(made);
            }
        }
        freeaddrinfo(list);
    }
    return joined;
}

static ckpt_code reach(ckpt_star *star, const ckpt_star_call *call, int line, int64_t until, ckpt_err *err)
{
    int *const place = line == 0 ? &star->peer[0].watch : &star->peer[0].talk;
    char why[200] = "";
    for (;;) {
        const int joined = try_addresses(star, call, line, place, why, sizeof why, err);
        if (joined != 0) {
            return joined > 0 ? CKPT_OK : CKPT_DEVICE;
        }
        if (ckpt_star_now_ms() >= until) {
            return CKPT_FAIL(err, CKPT_DEVICE, "rank %d of %d cannot reach rank 0 at %.200s, port %.40s: %s",
                             star->rank, star->count, call->address[0], call->port, why);
        }
        nanosleep(&(struct timespec){.tv_nsec = RETRY_MS * 1000000}, NULL);
    }
}

/* Rank 0 says when all are here. */
static ckpt_code await_all(ckpt_star *star, int64_t until, ckpt_err *err)
{
    while (ckpt_star_now_ms() < until) {
        int rank = 0;
        const char *text = "";
        const ckpt_star_kind kind = ckpt_star_look(star, 100, &rank, &text);
        if (kind == CKPT_STAR_HERE) {
            return CKPT_OK;
        }
        if (kind == CKPT_STAR_DIED || kind == CKPT_STAR_GAVE_UP) {
            return CKPT_FAIL(err, CKPT_DEVICE, "while ranks come together: rank %d %s%s", rank,
                             kind == CKPT_STAR_DIED ? "has died" : "gave up: ", text);
        }
    }
    return CKPT_FAIL(err, CKPT_DEVICE, "rank 0 did not say in time that all are here");
}

ckpt_code ckpt_star_join(ckpt_star *star, const ckpt_star_call *call, int seconds, ckpt_err *err)
{
    const int64_t until = ckpt_star_now_ms() + (int64_t)seconds * 1000;
    if (star->rank == 0) {
        return receive_all(star, call, seconds, err);
    }
    if (call->address_count == 0) {
        return CKPT_FAIL(err, CKPT_DEVICE, "rank 0 cannot listen: %s", call->port);
    }
    for (int line = 0; line <= call->talk; line++) {
        CKPT_TRY(reach(star, call, line, until, err));
    }
    return await_all(star, until + GRACE_MS, err);
}

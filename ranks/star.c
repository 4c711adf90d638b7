/* Watching: who has died, who gives up, and the one line to say about it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "core/base/memory.h"
#include "ranks/star_impl.h"

enum {
    LINGER_MS = 1000, /* so long an error of ours waits for the news that explains it */
};

int64_t ckpt_star_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void set_flags(int file)
{
    fcntl(file, F_SETFD, FD_CLOEXEC);
    fcntl(file, F_SETFL, fcntl(file, F_GETFL) | O_NONBLOCK);
}

ckpt_code ckpt_star_create(ckpt_star **star, int rank, int count, ckpt_err *err)
{
    const int peers = rank == 0 ? count : 1;
    const size_t polled = (size_t)peers + CKPT_STAR_PENDING + 2;
    ckpt_star *const made = ckpt_memory_get(sizeof *made);
    ckpt_star_peer *const peer = ckpt_memory_get((size_t)peers * sizeof *peer);
    struct pollfd *const list = ckpt_memory_get(polled * sizeof *list);
    int *const list_peer = ckpt_memory_get(polled * sizeof *list_peer);
    if (made == NULL || peer == NULL || list == NULL || list_peer == NULL) {
        ckpt_memory_put(made);
        ckpt_memory_put(peer);
        ckpt_memory_put(list);
        ckpt_memory_put(list_peer);
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory: wanted %zu bytes for the connections of %d ranks",
                         sizeof *made + (size_t)peers * sizeof *peer + polled * (sizeof *list + sizeof(int)), peers);
    }
    *made = (ckpt_star){.rank = rank,
                        .count = count,
                        .listener = -1,
                        .wake = {-1, -1},
                        .peer = peer,
                        .peers = peers,
                        .polled = list,
                        .polled_peer = list_peer};
    for (int i = 0; i < peers; i++) {
        peer[i].watch = peer[i].talk = -1;
    }
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    if (pipe(made->wake) != 0) {
        ckpt_star_destroy(made);
        return CKPT_FAIL(err, CKPT_DEVICE, "a pipe: %s", strerror(errno));
    }
    set_flags(made->wake[0]);
    set_flags(made->wake[1]);
    *star = made;
    return CKPT_OK;
}

static void close_file(int file)
{
    if (file >= 0) {
        close(file);
    }
}

void ckpt_star_destroy(ckpt_star *star)
{
    if (star == NULL) {
        return;
    }
    for (int i = 0; i < star->peers; i++) {
        close_file(star->peer[i].watch);
        close_file(star->peer[i].talk);
    }
    close_file(star->listener);
    close_file(star->wake[0]);
    close_file(star->wake[1]);
    pthread_mutex_destroy(&star->lock);
    pthread_cond_destroy(&star->changed);
    ckpt_memory_put(star->polled_peer);
    ckpt_memory_put(star->polled);
    ckpt_memory_put(star->peer);
    ckpt_memory_put(star);
}

/* A record is small and rare: it fits the socket's buffer. Where it cannot be sent, the other's connection
 * has ended. */
void ckpt_star_tell(int socket, ckpt_star_kind kind, int rank, const char *text)
{
    ckpt_star_record record = {.kind = (unsigned char)kind};
    if (socket < 0) {
        return;
    }
    for (int i = 0; i < 4; i++) {
        record.rank[i] = (unsigned char)((unsigned)rank >> (24 - 8 * i));
    }
    snprintf(record.text, sizeof record.text, "%s", text);
    (void)!send(socket, &record, sizeof record, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* The record is whole: what it says. The text becomes one line. */
static ckpt_star_kind read_record(const ckpt_star *star, ckpt_star_peer *peer, int from, int *rank, const char **text)
{
    const unsigned char *const r = peer->in.rank;
    const unsigned about = (unsigned)r[0] << 24 | (unsigned)r[1] << 16 | (unsigned)r[2] << 8 | r[3];
    const unsigned char kind = peer->in.kind;
    peer->have = 0;
    peer->in.text[sizeof peer->in.text - 1] = '\0';
    for (char *c = peer->in.text; *c != '\0'; c++) {
        *c = (unsigned char)*c < ' ' ? ' ' : *c;
    }
    if (kind < CKPT_STAR_HERE || kind > CKPT_STAR_BYE || about >= (unsigned)star->count) {
        *rank = from; /* no rank of ours speaks like that */
        return CKPT_STAR_DIED;
    }
    *rank = star->rank == 0 ? from : (int)about; /* nobody speaks for others but rank 0 */
    *text = peer->in.text;
    peer->left = peer->left || kind == CKPT_STAR_BYE;
    return (ckpt_star_kind)kind;
}

static ckpt_star_kind read_peer(const ckpt_star *star, ckpt_star_peer *peer, int from, int *rank, const char **text)
{
    const ssize_t got = recv(peer->watch, (char *)&peer->in + peer->have, sizeof peer->in - peer->have, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        return CKPT_STAR_NOTHING;
    }
    if (got <= 0) {
        close(peer->watch);
        peer->watch = -1;
        *rank = from;
        return CKPT_STAR_DIED;
    }
    peer->have += (size_t)got;
    return peer->have == sizeof peer->in ? read_record(star, peer, from, rank, text) : CKPT_STAR_NOTHING;
}

ckpt_star_kind ckpt_star_look(ckpt_star *star, int milliseconds, int *rank, const char **text)
{
    nfds_t count = 0;
    star->polled[count++] = (struct pollfd){.fd = star->wake[0], .events = POLLIN};
    for (int i = 0; i < star->peers; i++) {
        if (star->peer[i].watch >= 0) {
            star->polled_peer[count] = i;
            star->polled[count++] = (struct pollfd){.fd = star->peer[i].watch, .events = POLLIN};
        }
    }
    *text = "";
    if (poll(star->polled, count, milliseconds) <= 0) {
        return CKPT_STAR_NOTHING;
    }
    for (nfds_t k = 1; k < count; k++) {
        if (star->polled[k].revents != 0) {
            const int i = star->polled_peer[k];
            const ckpt_star_kind kind = read_peer(star, &star->peer[i], i, rank, text);
            if (kind != CKPT_STAR_NOTHING) {
                return kind;
            }
        }
    }
    char byte = 0;
    if (star->polled[0].revents != 0) {
        (void)!read(star->wake[0], &byte, 1);
    }
    return CKPT_STAR_NOTHING;
}

static void tell_all(const ckpt_star *star, ckpt_star_kind kind, int rank, const char *text)
{
    for (int i = 0; i < star->peers; i++) {
        ckpt_star_tell(star->peer[i].watch, kind, rank, text);
    }
}

/* Whoever comes first writes the last line, the program or the thread; the other waits for the end. */
static void take_the_end(ckpt_star *star)
{
    pthread_mutex_lock(&star->lock);
    const bool first = !star->ended;
    star->ended = true;
    pthread_mutex_unlock(&star->lock);
    while (!first) {
        pause();
    }
}

/* Tell the program, which ends the process. */
static void lose(ckpt_star *star, ckpt_star_kind kind, int rank, const char *text)
{
    char note[CKPT_STAR_NOTE], line[CKPT_STAR_TEXT + CKPT_STAR_NOTE + 128];
    take_the_end(star);
    if (star->rank == 0) {
        tell_all(star, kind, rank, text);
    }
    pthread_mutex_lock(&star->lock);
    snprintf(note, sizeof note, "%s", star->note);
    pthread_mutex_unlock(&star->lock);
    snprintf(line, sizeof line, "rank %d of %d: rank %d %s%s%s%s", star->rank, star->count, rank,
             kind == CKPT_STAR_DIED ? "has died" : "gave up: ", text, note[0] != '\0' ? "; " : "", note);
    star->lost(star->context, line);
}

/* Have all come to the end? Rank 0 knows, and tells. */
static bool settle(ckpt_star *star)
{
    pthread_mutex_lock(&star->lock);
    bool all = star->leaving;
    for (int i = 0; i < star->peers; i++) {
        all = all && (star->peer[i].left || i == star->rank);
    }
    if (all && !star->released) {
        star->released = true;
        if (star->rank == 0) {
            tell_all(star, CKPT_STAR_BYE, 0, "");
        }
        pthread_cond_broadcast(&star->changed);
    }
    pthread_mutex_unlock(&star->lock);
    return all;
}

static void *watch(void *argument)
{
    ckpt_star *const star = argument;
    while (!settle(star)) {
        int rank = 0;
        const char *text = "";
        const ckpt_star_kind kind = ckpt_star_look(star, -1, &rank, &text);
        if (kind == CKPT_STAR_DIED || kind == CKPT_STAR_GAVE_UP) {
            lose(star, kind, rank, text);
        }
    }
    return NULL;
}

ckpt_code ckpt_star_watch(ckpt_star *star, ckpt_ranks_lost *lost, void *context, ckpt_err *err)
{
    if (star->watching) {
        return CKPT_FAIL(err, CKPT_DEVICE, "ranks are watched already, wanted once");
    }
    sigset_t all, before;
    star->lost = lost;
    star->context = context;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the program's */
    const int code = pthread_create(&star->thread, NULL, watch, star);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0) {
        return CKPT_FAIL(err, CKPT_DEVICE, "a thread to watch the other ranks: %s", strerror(code));
    }
    star->watching = true;
    return CKPT_OK;
}

void ckpt_star_note(ckpt_star *star, const char *note)
{
    pthread_mutex_lock(&star->lock);
    snprintf(star->note, sizeof star->note, "%s", note);
    pthread_mutex_unlock(&star->lock);
}

void ckpt_star_give_up(ckpt_star *star, const char *why)
{
    take_the_end(star);
    if (star->rank == 0) {
        tell_all(star, CKPT_STAR_GAVE_UP, 0, why);
    } else {
        ckpt_star_tell(star->peer[0].watch, CKPT_STAR_GAVE_UP, star->rank, why);
    }
}

void ckpt_star_linger(ckpt_star *star)
{
    if (star->watching) {
        const int64_t until = ckpt_star_now_ms() + LINGER_MS;
        while (ckpt_star_now_ms() < until) { /* signals may wake us */
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        }
    }
}

static bool leave_alone(ckpt_star *star)
{
    while (!settle(star)) {
        int rank = 0;
        const char *text = "";
        const ckpt_star_kind kind = ckpt_star_look(star, -1, &rank, &text);
        if (kind == CKPT_STAR_DIED || kind == CKPT_STAR_GAVE_UP) {
            return false;
        }
    }
    return true;
}

bool ckpt_star_leave(ckpt_star *star)
{
    pthread_mutex_lock(&star->lock);
    star->leaving = true;
    pthread_mutex_unlock(&star->lock);
    if (star->rank > 0) {
        ckpt_star_tell(star->peer[0].watch, CKPT_STAR_BYE, star->rank, "");
    }
    if (!star->watching) {
        return leave_alone(star);
    }
    (void)!write(star->wake[1], "w", 1);
    pthread_mutex_lock(&star->lock);
    while (!star->released) {
        pthread_cond_wait(&star->changed, &star->lock);
    }
    pthread_mutex_unlock(&star->lock);
    pthread_join(star->thread, NULL);
    star->watching = false;
    return true;
}

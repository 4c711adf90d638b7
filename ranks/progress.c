/* The thread that moves messages. It knows no MPI, so that ThreadSanitizer can watch it
 * (tests/ranks/progress_threads.c). */
#include "ranks/progress_impl.h"

#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <time.h>

enum {
    YIELDS = 500,    /* polls that only yield: about 100 microseconds */
    SLEEP_NS = 20000 /* of sleep between later polls; the kernel's timer adds to it */
};

void ckpt_progress_init(ckpt_progress *progress, bool (*poll)(void *context), void *context)
{
    memset(progress, 0, sizeof *progress);
    progress->poll = poll;
    progress->context = context;
    pthread_mutex_init(&progress->lock, NULL);
    pthread_cond_init(&progress->changed, NULL);
    atomic_init(&progress->wanted, 0);
}

void ckpt_progress_pause(int asked)
{
    if (asked < YIELDS) {
        sched_yield();
    } else {
        nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    }
}

/* A mutex goes to whoever asks when it is free, and this thread asks all the time. */
static void let_others_enter(ckpt_progress *progress)
{
    while (atomic_load(&progress->wanted) > 0) {
        sched_yield();
    }
}

static void *move(void *argument)
{
    ckpt_progress *const progress = argument;
    int asked = 0;
    pthread_mutex_lock(&progress->lock);
    while (!progress->over) {
        if (!progress->under_way || progress->waited_for) {
            pthread_cond_wait(&progress->changed, &progress->lock);
            asked = 0;
            continue;
        }
        progress->under_way = progress->poll(progress->context);
        pthread_mutex_unlock(&progress->lock);
        ckpt_progress_pause(asked);
        asked += asked < INT_MAX;
        let_others_enter(progress);
        pthread_mutex_lock(&progress->lock);
    }
    pthread_mutex_unlock(&progress->lock);
    return NULL;
}

ckpt_code ckpt_progress_start(ckpt_progress *progress, ckpt_err *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the program's */
    progress->over = false;
    const int code = pthread_create(&progress->thread, NULL, move, progress);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    progress->running = code == 0;
    return code == 0 ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "a thread that moves messages: %s", strerror(code));
}

void ckpt_progress_stop(ckpt_progress *progress)
{
    if (!progress->running) {
        return;
    }
    ckpt_progress_enter(progress);
    progress->over = true;
    pthread_cond_signal(&progress->changed);
    ckpt_progress_leave(progress);
    pthread_join(progress->thread, NULL);
    progress->running = false;
}

void ckpt_progress_enter(ckpt_progress *progress)
{
    atomic_fetch_add(&progress->wanted, 1);
    pthread_mutex_lock(&progress->lock);
    atomic_fetch_sub(&progress->wanted, 1);
}

void ckpt_progress_leave(ckpt_progress *progress)
{
    pthread_mutex_unlock(&progress->lock);
}

static void wake(ckpt_progress *progress)
{
    if (progress->running && progress->under_way && !progress->waited_for) {
        pthread_cond_signal(&progress->changed);
    }
}

void ckpt_progress_moves(ckpt_progress *progress)
{
    const bool before = progress->under_way;
    progress->under_way = true;
    if (!before) {
        wake(progress);
    }
}

void ckpt_progress_wait(ckpt_progress *progress, bool waits)
{
    progress->waited_for = waits;
    wake(progress);
}

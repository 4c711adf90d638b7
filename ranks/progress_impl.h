/* A thread that moves messages while the thread that trains computes. MPI does something only inside its calls, and a
 * thread that computes makes none: without another that calls, a message that was started during backward would begin
 * to move when it is waited for.
 *
 * The library may be called by one thread at a time: between ckpt_progress_enter and ckpt_progress_leave. The thread
 * polls while something is under way and nobody waits for it; who waits polls himself. It sleeps otherwise. */
#ifndef CKPT_RANKS_PROGRESS_IMPL_H
#define CKPT_RANKS_PROGRESS_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "core/base/status.h"

typedef struct ckpt_progress {
    bool (*poll)(void *context); /* entered: move what is under way; false: nothing is any more */
    void *context;
    pthread_t thread;
    bool running;
    pthread_mutex_t lock; /* of the library, and of what follows */
    pthread_cond_t changed;
    atomic_int wanted; /* threads that want to enter: they come first */
    bool under_way, waited_for, over;
} ckpt_progress;

/* To be called once, before anything else. */
void ckpt_progress_init(ckpt_progress *progress, bool (*poll)(void *context), void *context);
/* Starts the thread. Without it all else works as well, and nothing moves by itself. Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_progress_start(ckpt_progress *progress, ckpt_err *err);
/* Ends it, if it runs. */
void ckpt_progress_stop(ckpt_progress *progress);

void ckpt_progress_enter(ckpt_progress *progress);
void ckpt_progress_leave(ckpt_progress *progress);
/* Entered: something has been started. */
void ckpt_progress_moves(ckpt_progress *progress);
/* Entered: the caller now polls until it calls this with false. */
void ckpt_progress_wait(ckpt_progress *progress, bool waits);

/* Between two polls, of which `asked` found nothing so far: gives the processor to others, after the first polls by a
 * short sleep. There may be more ranks than processors, and a rank that waits must not take one from a rank that
 * computes. */
void ckpt_progress_pause(int asked);

#endif

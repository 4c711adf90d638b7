/* The thread that moves messages, with a library that is nothing but counters in place of MPI, so that ThreadSanitizer can
 * watch it (preset tsan). Counters are plain: whoever touches them without having entered is a race. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "ranks/progress_impl.h"

enum { MESSAGES = 8, ROUNDS = 300, POLLS = 3 };

/* A message is there after POLLS polls. */
typedef struct library {
    ckpt_progress progress;
    int left[MESSAGES];
    long polls, by_thread; /* all, and those of the thread that moves messages */
    pthread_t trains;
    int wrong;
} library;

static bool poll_all(void *context)
{
    library *const l = context;
    bool some = false;
    l->polls++;
    l->by_thread += !pthread_equal(pthread_self(), l->trains);
    for (int m = 0; m < MESSAGES; m++) {
        l->left[m] -= l->left[m] > 0;
        some = some || l->left[m] > 0;
    }
    return some;
}

static void start(library *l, int m)
{
    ckpt_progress_enter(&l->progress);
    l->left[m] = POLLS;
    ckpt_progress_moves(&l->progress);
    ckpt_progress_leave(&l->progress);
}

static void wait_for(library *l, int m)
{
    ckpt_progress_enter(&l->progress);
    ckpt_progress_wait(&l->progress, true);
    const long before = l->by_thread;
    for (int asked = 0; l->left[m] > 0; asked++) {
        (void)poll_all(l);
        ckpt_progress_leave(&l->progress);
        ckpt_progress_pause(asked);
        ckpt_progress_enter(&l->progress);
    }
    l->wrong += l->by_thread != before; /* who waits polls himself, and alone */
    ckpt_progress_wait(&l->progress, false);
    ckpt_progress_leave(&l->progress);
}

static long read_entered(library *l, const long *number)
{
    ckpt_progress_enter(&l->progress);
    const long value = *number;
    ckpt_progress_leave(&l->progress);
    return value;
}

static int all_there(library *l)
{
    int left = 0;
    ckpt_progress_enter(&l->progress);
    for (int m = 0; m < MESSAGES; m++) {
        left += l->left[m];
    }
    ckpt_progress_leave(&l->progress);
    return left == 0;
}

static void sleep_a_little(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static int fail(const char *what)
{
    fprintf(stderr, "FAILED: %s\n", what);
    return 1;
}

/* Messages arrive while nobody waits for them, also those that are started while others move, and then nobody polls. */
static int moves_by_itself(library *l)
{
    for (int round = 0; round < ROUNDS; round++) {
        for (int m = 0; m < MESSAGES; m++) {
            start(l, m);
        }
        while (!all_there(l)) { /* a test that hangs here has found something */
            sched_yield();
        }
        for (int m = 0; m < MESSAGES && round % 2 == 0; m++) {
            wait_for(l, m); /* of what is there already */
        }
    }
    sleep_a_little();
    const long before = read_entered(l, &l->polls);
    sleep_a_little();
    return read_entered(l, &l->polls) != before ? fail("polls where nothing is under way") : 0;
}

static int moves_for_who_waits(library *l)
{
    for (int round = 0; round < ROUNDS; round++) {
        for (int m = 0; m < MESSAGES; m++) {
            start(l, m);
            if (round % 3 == 0) {
                wait_for(l, m);
            }
        }
        for (int m = MESSAGES - 1; m >= 0; m--) {
            wait_for(l, m);
        }
    }
    return l->wrong > 0 ? fail("two threads poll") : 0;
}

int main(void)
{
    static library l;
    ckpt_err err = {0};
    int failed = 0;
    l.trains = pthread_self();
    ckpt_progress_init(&l.progress, poll_all, &l);
    failed += moves_for_who_waits(&l); /* there is no thread yet */
    failed += l.by_thread != 0 ? fail("a thread that was not started") : 0;
    ckpt_progress_stop(&l.progress);
    for (int times = 0; times < 3; times++) {
        if (ckpt_progress_start(&l.progress, &err) != CKPT_OK) {
            return fail(err.msg);
        }
        failed += moves_by_itself(&l);
        failed += moves_for_who_waits(&l);
        start(&l, times); /* under way when it ends */
        ckpt_progress_stop(&l.progress);
        ckpt_progress_stop(&l.progress);
        wait_for(&l, times);
    }
    return failed > 0;
}

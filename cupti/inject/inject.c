/* libckpt_inject.so: the CUDA driver loads it into a program ($CUDA_INJECTION64_PATH) when the program initialises
 * CUDA, and calls InitializeInjection; NVTX does the same with $NVTX_INJECTION64_PATH. It records into a spool in
 * $CKPT_INJECT_SPOOL until the process ends.
 *
 * It is a guest in the program: it prints nothing (except with CKPT_INJECT_VERBOSE), touches no signal handler, keeps
 * errno and leaves no file open, and its errors end the recording and nothing else. It returns 1 (success) to the
 * driver even when it records nothing, because 0 would be a failed injection, which the program would notice. A forked
 * child has neither our thread nor CUDA, so nothing is recorded in it until it executes a program of its own. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr */
#endif
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cupti/cupti_impl.h"
#include "cupti/recorder.h"
#include "cupti/spool.h"

enum {
    FLUSH_MS = 100, /* between two flushes; what was flushed survives SIGKILL and _exit */
    PATIENCE_S = 5,
    STACK_BYTES = 1 << 20,
    INSTANCES = 64,      /* of NVTX before CUDA is initialised */
    BROKEN_NVTX = 130000 /* CUPTI 13.0.0 crashes in nvtxNameOsThreadA (NVIDIA/NVTX#125); 13.0.1 does not */
};

int InitializeInjection(void);
int InitializeInjectionNvtx(void *get_export_table);
int InitializeInjectionNvtx2(void *get_export_table);

static pthread_mutex_t spool_lock = PTHREAD_MUTEX_INITIALIZER; /* of spool */
static pthread_mutex_t flush_lock = PTHREAD_MUTEX_INITIALIZER; /* held while the recorder is flushed; taken first */
static ckpt_spool *spool;
static ckpt_recorder *recorder;
static pid_t owner; /* the process that records */
static atomic_bool started, ended, nvtx_refused;

/* NVTX must be connected to the libcupti that records. Only this process knows which one that is, because the program
 * may bring its own. NVTX may start before CUDA, when CUPTI must not be touched: 13.2 crashes without a working driver,
 * and the program may never use CUDA. So an instance of NVTX gets "success" and does nothing until recording begins,
 * when we hand it to CUPTI. That works because NVTX looks at its table of functions at every call. */
typedef enum nvtx_entry { NVTX_1, NVTX_2, NVTX_ENTRIES } nvtx_entry;
typedef struct nvtx_instance {
    nvtx_entry entry;
    void *get_export_table;
    void *library; /* that contains it, to detect that it was unloaded */
} nvtx_instance;
static struct {
    pthread_mutex_t lock;
    int (*initialise[NVTX_ENTRIES])(void *); /* of libcupti; NULL: not yet, or never */
    nvtx_instance instance[INSTANCES];       /* waiting */
    int count;
    bool decided; /* it is known whether we record: no instance waits any more */
} nvtx = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void explain(const char *what, const char *more)
{
    if (getenv("CKPT_INJECT_VERBOSE") != NULL) {
        fprintf(stderr, "libckpt_inject.so, process %ld: %s%s\n", (long)getpid(), what, more);
    }
}

/* Waits for a few seconds at most: the program must never hang because of us. */
static bool lock_soon(pthread_mutex_t *lock)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    return pthread_mutex_timedlock(lock, &until) == 0;
}

/* Is it a call that starts nothing on a GPU and touches none of its memory? PyTorch makes several for every kernel, and
 * no event of a trace comes from them. */
static bool only_asks(const ckpt_activity *activity)
{
    static const char *const what[] = {"Get",        "Set",     "Peek",      "Stream",  "Event",  "DeviceGet",
                                       "DeviceSync", "CtxGet",  "CtxSet",    "CtxPush", "CtxPop", "CtxSync",
                                       "FuncGet",    "FuncSet", "Occupancy", "Pointer"};
    if (activity->kind != CKPT_ACTIVITY_CALL || strncmp(activity->name, "cu", 2) != 0) {
        return false;
    }
    const char *const name = activity->name + (strncmp(activity->name, "cuda", 4) == 0 ? 4 : 2);
    for (size_t i = 0; i < sizeof what / sizeof *what; i++) {
        if (strncmp(name, what[i], strlen(what[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* From the recorder: one call at a time. */
static void keep(void *context, const ckpt_activity *activity)
{
    (void)context;
    if (!atomic_load(&ended) && !only_asks(activity)) {
        const int kept = errno;
        pthread_mutex_lock(&spool_lock);
        ckpt_spool_add(spool, activity);
        pthread_mutex_unlock(&spool_lock);
        errno = kept;
    }
}

/* Writes which recorder it is and what it cost so far. Called without spool_lock, because the recorder holds a lock of
 * its own while it calls `keep`. */
static void say_recorder(void)
{
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    const char *text = ckpt_recorder_describe(recorder, &arena);
    if (text != NULL && atomic_load(&nvtx_refused)) {
        text = ckpt_arena_format(
            &arena, "%s; no NVTX ranges, because this CUPTI crashes programs that name threads (NVIDIA/NVTX#125)",
            text);
    }
    if (text != NULL) {
        pthread_mutex_lock(&spool_lock);
        ckpt_spool_say(spool, CKPT_SPOOL_RECORDER, text);
        pthread_mutex_unlock(&spool_lock);
    }
    ckpt_arena_fini(&arena);
}

/* Called with flush_lock. */
static void flush(bool last)
{
    ckpt_err err;
    const ckpt_code code = last ? ckpt_recorder_flush_last(recorder, &err) : ckpt_recorder_flush(recorder, &err);
    if (code != CKPT_OK) {
        explain("flush: ", err.msg);
    }
    if (last) {
        say_recorder();
    }
    pthread_mutex_lock(&spool_lock);
    if (last) {
        ckpt_spool_say(spool, CKPT_SPOOL_ENDED, "");
    }
    ckpt_spool_flush(spool);
    pthread_mutex_unlock(&spool_lock);
}

/* If the file is full or gone, stop CUPTI: the program may run for days. */
static void stop_when_full(void)
{
    pthread_mutex_lock(&spool_lock);
    const bool full = ckpt_spool_stopped(spool);
    pthread_mutex_unlock(&spool_lock);
    if (full) {
        ckpt_recorder_stop(recorder);
        atomic_store(&ended, true);
    }
}

static void *flush_often(void *context)
{
    (void)context;
    const struct timespec pause = {FLUSH_MS / 1000, FLUSH_MS % 1000 * 1000000L};
    while (!atomic_load(&ended)) {
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&flush_lock);
        if (!atomic_load(&ended)) {
            flush(false);
            stop_when_full();
        }
        pthread_mutex_unlock(&flush_lock);
    }
    return NULL;
}

/* Runs at exit, before the destructors of libcupti, which was loaded earlier. The recorder stays open: closing it while
 * other threads still use CUDA can crash the program. */
static void finish(void)
{
    if (atomic_load(&ended) || getpid() != owner) {
        return;
    }
    const int kept = errno;
    if (lock_soon(&flush_lock)) {
        flush(true);
        atomic_store(&ended, true);
        pthread_mutex_unlock(&flush_lock);
    }
    atomic_store(&ended, true);
    errno = kept;
}

static void in_child(void)
{
    atomic_store(&ended, true);
}

/* Starts our thread. It gets no signals: those are for the program. */
static bool start_thread(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) {
        return false;
    }
    const bool made = pthread_attr_setstacksize(&attributes, STACK_BYTES) == 0 &&
                      pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0 &&
                      pthread_create(&thread, &attributes, flush_often, NULL) == 0;
    pthread_attr_destroy(&attributes);
    return made;
}

static void program_name(char *name, size_t room)
{
    FILE *const file = fopen("/proc/self/comm", "re");
    if (file == NULL || fgets(name, (int)room, file) == NULL) {
        snprintf(name, room, "unknown program");
    }
    if (file != NULL) {
        fclose(file);
    }
    name[strcspn(name, "\n")] = '\0';
}

/* Connects NVTX to the libcupti that records. */
static void hand_over_nvtx(void)
{
    static const char *const names[NVTX_ENTRIES] = {"InitializeInjectionNvtx", "InitializeInjectionNvtx2"};
    ckpt_cupti cupti;
    ckpt_err err;
    Dl_info where;
    if (ckpt_cupti_load(NULL, &cupti, &err) != CKPT_OK) {
        return;
    }
    if (cupti.version == BROKEN_NVTX) {
        atomic_store(&nvtx_refused, true);
        return;
    }
    void *const function = *(void **)&cupti.cuptiGetVersion;
    void *const library = dladdr(function, &where) != 0 ? dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    pthread_mutex_lock(&nvtx.lock);
    for (int i = 0; library != NULL && i < NVTX_ENTRIES; i++) {
        *(void **)&nvtx.initialise[i] = dlsym(library, names[i]);
    }
    for (int i = 0; i < nvtx.count; i++) {
        const nvtx_instance *const one = &nvtx.instance[i];
        if (nvtx.initialise[one->entry] != NULL && dladdr(one->get_export_table, &where) != 0 &&
            where.dli_fbase == one->library) {
            nvtx.initialise[one->entry](one->get_export_table);
        }
    }
    nvtx.decided = true;
    pthread_mutex_unlock(&nvtx.lock);
}

/* Starts recording. If that fails, the spool says why. */
static void record(const char *folder)
{
    char name[64];
    ckpt_err err = {.msg = ""};
    program_name(name, sizeof name);
    const ckpt_spool_options options = {.folder = folder, .program = name};
    if (ckpt_spool_create(&options, &spool, &err) != CKPT_OK) {
        explain("nothing is recorded: ", err.msg);
        return;
    }
    owner = getpid();
    const ckpt_recorder_options wanted = {.memory = true, .calls = true, .ranges = true, .sink = keep};
    if (ckpt_recorder_open(&wanted, &recorder, &err) != CKPT_OK) {
        explain("nothing is recorded: ", err.msg);
        ckpt_spool_say(spool, CKPT_SPOOL_REFUSED, err.msg);
        ckpt_spool_flush(spool);
        atomic_store(&ended, true);
        return;
    }
    hand_over_nvtx();
    say_recorder();
    pthread_mutex_lock(&spool_lock);
    ckpt_spool_flush(spool);
    pthread_mutex_unlock(&spool_lock);
    if (pthread_atfork(NULL, NULL, in_child) != 0 || atexit(finish) != 0 || !start_thread()) {
        explain("only what is flushed by itself will be recorded: ", "no thread or no handler could be made");
    }
    at_quick_exit(finish);
    explain("records into ", folder);
}

int InitializeInjection(void)
{
    const int kept = errno;
    const char *const folder = getenv("CKPT_INJECT_SPOOL");
    if (!atomic_exchange(&started, true) && folder != NULL && folder[0] == '/') {
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before); /* threads made here, CUPTI's included, inherit the mask */
        record(folder);
        pthread_mutex_lock(&nvtx.lock);
        nvtx.decided = true;
        pthread_mutex_unlock(&nvtx.lock);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    errno = kept;
    return 1;
}

/* Called when an instance of NVTX initialises itself; each library that was built with NVTX has its own. */
static int take_nvtx(nvtx_entry entry, void *get_export_table)
{
    Dl_info where;
    const int kept = errno;
    const char *const folder = getenv("CKPT_INJECT_SPOOL");
    int done = 0;                 /* 0: NVTX is off in the program, as without us */
    if (!lock_soon(&nvtx.lock)) { /* a forked child cannot get a lock that another thread of the parent held */
        return 0;
    }
    if (nvtx.initialise[entry] != NULL && !atomic_load(&ended)) {
        done = nvtx.initialise[entry](get_export_table);
    } else if (!nvtx.decided && folder != NULL && access(folder, W_OK) == 0 && nvtx.count < INSTANCES &&
               dladdr(get_export_table, &where) != 0) {
        nvtx.instance[nvtx.count++] = (nvtx_instance){entry, get_export_table, where.dli_fbase};
        done = 1;
    }
    pthread_mutex_unlock(&nvtx.lock);
    errno = kept;
    return done;
}

int InitializeInjectionNvtx(void *get_export_table)
{
    return take_nvtx(NVTX_1, get_export_table);
}

int InitializeInjectionNvtx2(void *get_export_table)
{
    return take_nvtx(NVTX_2, get_export_table);
}

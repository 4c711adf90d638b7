/* A program of somebody else that uses CUDA, where there is no CUDA: it does what the driver does when a program
 * initialises it (load $CUDA_INJECTION64_PATH, call InitializeInjection, look at nothing that comes back), and what it
 * "launches" is told to the double of libcupti ($CKPT_CUPTI), as the driver would tell the real one. All it prints and
 * how it ends must be the same with and without injection.
 *
 *     victim MODE...      each in turn; see `modes` below. Prints on standard output what it launched */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define HAVE_NVTX
#endif

#ifdef __SANITIZE_ADDRESS__
/* gcc 12's sanitizer takes no care of forks: a child that looks for leaks at its end would wait for ever for the lock
 * of an allocation that another thread of its parent was in. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}
#endif

enum { STEPS = 10, PATIENCE_S = 30, LAST_FD = 200, SIGNALS = 64 };

static char **arguments;
static int (*run)(const char *);   /* of the double; NULL: nobody records */
static int (*calls)(const char *); /* how often a function of it was called */

static void die(const char *what)
{
    fprintf(stderr, "victim: %s: %s\n", what, strerror(errno));
    exit(99);
}

static void nap(void)
{
    nanosleep(&(const struct timespec){0, 10 * 1000 * 1000}, NULL);
}

/* The signals a program has: who handles them, and which are blocked. */
typedef struct signals {
    void (*handler[SIGNALS])(int);
    sigset_t blocked;
} signals;

static void look_at_signals(signals *found)
{
    memset(found, 0, sizeof *found);
    for (int i = 1; i < SIGNALS; i++) {
        struct sigaction action;
        found->handler[i] = sigaction(i, NULL, &action) == 0 ? action.sa_handler : SIG_ERR;
    }
    pthread_sigmask(SIG_SETMASK, NULL, &found->blocked);
}

/* As libcuda's cuInit. */
static void init(void)
{
    const char *const path = getenv("CUDA_INJECTION64_PATH"), *const double_path = getenv("CKPT_CUPTI");
    void *const library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library != NULL) {
        int (*entry)(void) = NULL;
        signals before, after;
        *(void **)&entry = dlsym(library, "InitializeInjection");
        look_at_signals(&before);
        errno = 77;
        if (entry == NULL || entry() != 1 || errno != 77) {
            die("injection is no success, or errno is another");
        }
        look_at_signals(&after);
        for (int i = 1; i < SIGNALS; i++) {
            if (before.handler[i] != after.handler[i] ||
                sigismember(&before.blocked, i) != sigismember(&after.blocked, i)) {
                die("injection changed a signal");
            }
        }
    } else if (path != NULL) {
        die(dlerror());
    }
    void *const cupti = double_path != NULL ? dlopen(double_path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (cupti != NULL) {
        *(void **)&run = dlsym(cupti, "ckpt_cupti_double_run");
        *(void **)&calls = dlsym(cupti, "ckpt_cupti_double_calls");
    }
}

static void launch(const char *items)
{
    if (run != NULL && run(items) != 0) {
        die(items);
    }
}

/* One step of training: 6 kernels, 2 copies, a fill, an allocation and its release; each under "step". */
static void train_step(const char *thread)
{
    char items[1000];
    snprintf(items, sizeof items,
             "range step; stream 7; copy to_device 4096 300; range forward%s; kernel gemm 1000; kernel gelu 200; "
             "kernel gemm 900; end; fill 512 50; range backward; kernel gemm_backward 2000; stream 13; "
             "kernel gelu_backward 300; stream 7; kernel update 100; end; copy to_host 4 20; end",
             thread);
    launch(items);
}

static void train(void)
{
    launch("allocate 1000000 0x7f0000000000; allocate 250000 0x7f0000200000");
    for (int i = 0; i < STEPS; i++) {
        train_step("");
    }
    launch("release 0x7f0000200000");
    printf("kernels %d copies %d fills %d allocations 2 releases 1 peak 1250000\n", 6 * STEPS, 2 * STEPS, STEPS);
    fflush(stdout);
}

/* Until what was launched before is recorded: the flush after the next one begins. */
static void settle(void)
{
    const time_t give_up = time(NULL) + PATIENCE_S;
    const int before = calls != NULL ? calls("cuptiActivityFlushAll") : 0;
    while (calls != NULL && calls("cuptiActivityFlushAll") < before + 2) {
        if (time(NULL) > give_up) {
            die("nobody flushes");
        }
        nap();
    }
}

/* Calls that start nothing. */
static void ask(void)
{
    launch("call 10; call 10; driver; call 10");
}

/* Until nobody records any more. */
static void stopped(void)
{
    const time_t give_up = time(NULL) + PATIENCE_S;
    while (calls != NULL && calls("cuptiActivityDisable") == 0) {
        if (time(NULL) > give_up) {
            die("recording goes on");
        }
        nap();
    }
}

static void exit_seven(void)
{
    exit(7);
}

static void quick(void)
{
    quick_exit(4);
}

static void leave(void)
{
    _exit(3);
}

static void kill_me(void)
{
    raise(SIGKILL);
}

static void wait_for(pid_t child, int wanted)
{
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != wanted) {
        die("a child ended in another way");
    }
}

/* A child that ends by exit runs its parent's handlers, and must leave the parent's recording alone. */
static void fork_child(void)
{
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        nap();
        exit(5);
    }
    wait_for(child, 5);
}

/* A child that becomes a program of its own records for itself. */
static void fork_exec(void)
{
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        execl(arguments[0], arguments[0], "init", "step", "exit7", (char *)NULL);
        _exit(98);
    }
    wait_for(child, 7);
}

/* A child that is the first to use CUDA. */
static void fork_init(void)
{
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        init();
        train();
        exit(6);
    }
    wait_for(child, 6);
}

static void exec_self(void)
{
    fflush(stdout);
    execl(arguments[0], arguments[0], "init", "train", (char *)NULL);
    die("exec");
}

static void *thread_steps(void *name)
{
    for (int i = 0; i < STEPS; i++) {
        train_step(name);
    }
    return NULL;
}

static void threads(void)
{
    static char names[4][2] = {"A", "B", "C", "D"};
    pthread_t thread[4];
    for (int i = 0; i < 4; i++) {
        if (pthread_create(&thread[i], NULL, thread_steps, names[i]) != 0) {
            die("a thread");
        }
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
    }
    printf("threads: kernels %d copies %d fills %d\n", 24 * STEPS, 8 * STEPS, 4 * STEPS);
}

/* Close all that is open, as a daemon does, and have every number by files of our own: nobody else may write there. */
static void close_all(void)
{
    char path[100];
    struct stat status;
    for (int fd = 3; fd < LAST_FD; fd++) {
        close(fd);
    }
    for (int fd = 3; fd < LAST_FD; fd++) {
        snprintf(path, sizeof path, "victim-fd-%d", fd);
        if (open(path, O_RDWR | O_CREAT | O_TRUNC, 0600) != fd) {
            die("a number that was closed is taken");
        }
    }
    train();
    settle();
    for (int fd = 3; fd < LAST_FD; fd++) {
        snprintf(path, sizeof path, "victim-fd-%d", fd);
        if (fstat(fd, &status) != 0 || status.st_size != 0) {
            die("somebody wrote to a file of ours");
        }
        unlink(path);
    }
    printf("files are as they were\n");
}

static void go_elsewhere(void)
{
    if (chdir("/") != 0) {
        die("chdir");
    }
}

/* All that lies in $TMPDIR/x is removed: two levels. */
static void empty_tmp(void)
{
    const char *const tmp = getenv("TMPDIR");
    DIR *const top = opendir(tmp != NULL ? tmp : "");
    for (struct dirent *entry = top != NULL ? readdir(top) : NULL; entry != NULL; entry = readdir(top)) {
        if (entry->d_name[0] == '.') {
            continue;
        }
        const int fd = openat(dirfd(top), entry->d_name, O_RDONLY | O_DIRECTORY);
        DIR *const folder = fd >= 0 ? fdopendir(fd) : NULL;
        for (struct dirent *file = folder != NULL ? readdir(folder) : NULL; file != NULL; file = readdir(folder)) {
            unlinkat(fd, file->d_name, 0);
        }
        if (folder != NULL) {
            closedir(folder);
        }
        unlinkat(dirfd(top), entry->d_name, AT_REMOVEDIR);
    }
    if (top != NULL) {
        closedir(top);
    }
}

/* No file may grow beyond 600 bytes: who writes more gets SIGXFSZ. */
static void limit_files(void)
{
    const struct rlimit low = {600, 600};
    if (setrlimit(RLIMIT_FSIZE, &low) != 0) {
        die("setrlimit");
    }
}

static void step(void)
{
    train_step("");
    printf("one step\n");
}

/* What a program with NVTX calls, through NVIDIA's own header. */
static void nvtx(void)
{
#ifdef HAVE_NVTX
    nvtxNameOsThreadA(1, "main");
    nvtxRangePushA("outer");
    nvtxMarkA("here");
    nvtxRangePop();
#endif
    printf("nvtx\n");
}

/* A step inside a range that is pushed through NVTX. */
static void epoch(void)
{
#ifdef HAVE_NVTX
    nvtxRangePushA("epoch");
    step();
    nvtxRangePop();
#endif
}

static void has_nvtx(void)
{
#ifndef HAVE_NVTX
    exit(1);
#endif
}

/* Wait for a signal; our parent is told by a file that it may send one. */
static void wait_signal(void)
{
    const int fd = open("victim-waits", O_WRONLY | O_CREAT, 0600);
    close(fd);
    for (int i = 0; i < PATIENCE_S * 100; i++) {
        nap();
    }
}

static const struct {
    const char *name;
    void (*act)(void);
} modes[] = {
    {"init", init},
    {"train", train},
    {"step", step},
    {"settle", settle},
    {"ask", ask},
    {"stopped", stopped},
    {"exit7", exit_seven},
    {"quick", quick},
    {"_exit", leave},
    {"kill", kill_me},
    {"abort", abort},
    {"fork", fork_child},
    {"forkinit", fork_init},
    {"forkexec", fork_exec},
    {"exec", exec_self},
    {"threads", threads},
    {"close", close_all},
    {"chdir", go_elsewhere},
    {"rmtmp", empty_tmp},
    {"limit", limit_files},
    {"nvtx", nvtx},
    {"epoch", epoch},
    {"hasnvtx", has_nvtx},
    {"wait", wait_signal},
};

int main(int argc, char **argv)
{
    arguments = argv;
    for (int i = 1; i < argc; i++) {
        size_t mode = 0;
        while (mode < sizeof modes / sizeof *modes && strcmp(modes[mode].name, argv[i]) != 0) {
            mode++;
        }
        if (mode == sizeof modes / sizeof *modes) {
            die(argv[i]);
        }
        modes[mode].act();
    }
    return 0;
}

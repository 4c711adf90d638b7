/* Runs a command as a shell would: in our process group, with our files and its own signal handling. Signals from the
 * terminal reach the command directly and are ignored here. Signals that another process sends to us are passed on,
 * because `timeout` and batch systems know only our process. */
#include "programs/profile/command_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const int passed[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
enum { PASSED = sizeof passed / sizeof *passed };

/* Our own handling of other signals. A process that ignores SIGCHLD is not told when its child ends. Neither a line for
 * a reader that is gone nor a file that may not grow is a reason to end without the trace and the command's exit
 * code. */
static const struct {
    int number;
    void (*action)(int);
} own[] = {{SIGCHLD, SIG_DFL}, {SIGPIPE, SIG_IGN}, {SIGXFSZ, SIG_IGN}};
enum { OWN = sizeof own / sizeof *own };

static volatile sig_atomic_t command_process; /* 0: none runs */

static void pass_on(int number, siginfo_t *info, void *context)
{
    (void)context;
    const int kept = errno;
    if (command_process > 0 && info->si_code <= 0 && info->si_pid != command_process) {
        kill((pid_t)command_process, number);
    }
    errno = kept;
}

static void our_signals(sigset_t *set)
{
    sigemptyset(set);
    for (int i = 0; i < PASSED; i++) {
        sigaddset(set, passed[i]);
    }
}

void ckpt_command_take_signals(ckpt_command_signals *before)
{
    struct sigaction ours = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigset_t all;
    sigemptyset(&ours.sa_mask);
    our_signals(&all);
    sigprocmask(SIG_BLOCK, &all, &before->mask);
    for (int i = 0; i < PASSED; i++) {
        sigaction(passed[i], NULL, &before->action[i]);
        if (before->action[i].sa_handler != SIG_IGN) { /* an ignored signal stays ignored (nohup) */
            sigaction(passed[i], &ours, NULL);
        }
    }
    for (int i = 0; i < OWN; i++) {
        const struct sigaction action = {.sa_handler = own[i].action};
        sigaction(own[i].number, &action, &before->ours[i]);
    }
}

void ckpt_command_return_signals(const ckpt_command_signals *before)
{
    for (int i = 0; i < PASSED; i++) {
        sigaction(passed[i], &before->action[i], NULL);
    }
    for (int i = 0; i < OWN; i++) {
        sigaction(own[i].number, &before->ours[i], NULL);
    }
    sigprocmask(SIG_SETMASK, &before->mask, NULL);
}

bool ckpt_command_interrupted(void)
{
    sigset_t pending;
    bool found = false;
    if (sigpending(&pending) == 0) {
        for (int i = 0; i < PASSED; i++) {
            found = found || sigismember(&pending, passed[i]) == 1;
        }
    }
    return found;
}

/* Runs in the new process. Writes errno to `report` if the program cannot be started. */
static void become(char *const *argv, char **environment, const ckpt_command_signals *before, int report)
{
    ckpt_command_return_signals(before);
    environ = environment;
    execvp(argv[0], argv);
    const int why = errno;
    const ssize_t unused = write(report, &why, sizeof why);
    (void)unused;
    _exit(127);
}

/* 0: the program started; else errno of the exec. */
static int read_report(int report)
{
    int why = 0;
    ssize_t count = 0;
    do {
        count = read(report, &why, sizeof why);
    } while (count < 0 && errno == EINTR);
    return count == (ssize_t)sizeof why ? why : 0;
}

static ckpt_code wait_for(pid_t process, int *exit_code, ckpt_err *err)
{
    int status = 0;
    pid_t ended = 0;
    do {
        ended = waitpid(process, &status, 0);
    } while (ended < 0 && errno == EINTR);
    if (ended != process) {
        return CKPT_FAIL(err, CKPT_IO, "the command cannot be waited for: %s", strerror(errno));
    }
    *exit_code = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    return CKPT_OK;
}

ckpt_code ckpt_command_run(char *const *argv, char **environment, const ckpt_command_signals *before, bool *started,
                           int *exit_code, ckpt_err *err)
{
    sigset_t all;
    int report[2];
    if (pipe(report) != 0) {
        return CKPT_FAIL(err, CKPT_IO, "no pipe to start %.200s: %s", argv[0], strerror(errno));
    }
    fcntl(report[1], F_SETFD, FD_CLOEXEC);
    fcntl(report[0], F_SETFD, FD_CLOEXEC);
    our_signals(&all);
    const pid_t process = fork();
    if (process == 0) {
        close(report[0]);
        become(argv, environment, before, report[1]);
    }
    const int no_process = errno;
    close(report[1]);
    command_process = process > 0 ? process : 0;
    sigprocmask(SIG_SETMASK, &before->mask, NULL);
    ckpt_code code = CKPT_OK;
    if (process < 0) {
        code = CKPT_FAIL(err, CKPT_IO, "no process for %.200s: %s", argv[0], strerror(no_process));
    } else {
        const int why = read_report(report[0]);
        code = wait_for(process, exit_code, err);
        *started = why == 0;
        if (why != 0) {
            code = CKPT_FAIL(err, CKPT_BAD_INPUT, "%.200s: %s", argv[0], strerror(why));
        }
    }
    sigprocmask(SIG_BLOCK, &all, NULL);
    command_process = 0;
    close(report[0]);
    return code;
}

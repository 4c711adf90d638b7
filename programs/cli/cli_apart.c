/* A process for what ends processes. Where memory is refused, fontconfig, Pango, GLib and Graphviz abort, exit or write
 * through a null pointer, after hundreds of lines on standard error: none of them returns an error to hand on. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "programs/cli/cli.h"

/* What the process hands back before its bytes. None: it ended in the work. */
typedef struct answer {
    ckpt_err err;
    size_t length;
} answer;

static bool read_all(int from, void *to, size_t length)
{
    for (size_t done = 0; done < length;) {
        const ssize_t count = read(from, (char *)to + done, length - done);
        if (count == 0 || (count < 0 && errno != EINTR)) {
            return false;
        }
        done += count > 0 ? (size_t)count : 0;
    }
    return true;
}

static bool write_all(int to, const void *from, size_t length)
{
    for (size_t done = 0; done < length;) {
        const ssize_t count = write(to, (const char *)from + done, length - done);
        if (count < 0 && errno != EINTR) {
            return false;
        }
        done += count > 0 ? (size_t)count : 0;
    }
    return true;
}

static void work_apart(ckpt_cli_work work, const void *what, int to)
{
    answer found = {.length = 0};
    ckpt_text text;
#ifdef __linux__
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* whose reports are to be read */
    const int nowhere = open("/dev/null", O_WRONLY);
    (void)dup2(nowhere, STDERR_FILENO);
#endif
    ckpt_text_init(&text);
    found.err.code = work(what, &text, &found.err);
    if (found.err.code == CKPT_OK) {
        found.err.code = ckpt_text_end(&text, &found.err);
    }
    found.length = found.err.code == CKPT_OK ? text.length : 0;
    _exit(write_all(to, &found, sizeof found) && write_all(to, text.bytes, found.length) ? 0 : 1);
}

/* The least limit under which this process is refused memory; RLIM_INFINITY: there is none. */
static rlim_t least_limit(void)
{
    struct rlimit limit;
    const rlim_t addresses = getrlimit(RLIMIT_AS, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
    const rlim_t data = getrlimit(RLIMIT_DATA, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
    return addresses < data ? addresses : data;
}

/* The process ended in the work. Why is known only where memory is limited: these libraries end so when they are refused
 * some. A control group refuses none: it kills. */
static ckpt_code ended(const char *doing, int status, ckpt_err *err)
{
    char how[96];
    const rlim_t limit = least_limit();
    if (WIFSIGNALED(status)) {
        snprintf(how, sizeof how, "signal %d, %s", WTERMSIG(status), strsignal(WTERMSIG(status)));
    } else {
        snprintf(how, sizeof how, "exit code %d", WEXITSTATUS(status));
    }
    if (limit != RLIM_INFINITY) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %s within %llu bytes: the libraries that draw ended (%s)",
                         doing, (unsigned long long)limit, how);
    }
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY,
                         "%s: the process that draws was killed (%s), as the system does when memory runs out", doing,
                         how);
    }
    return CKPT_FAIL(err, CKPT_IO, "%s: the libraries that draw ended (%s), and nothing limits their memory", doing,
                     how);
}

static ckpt_code take(const char *doing, int bytes, ckpt_text *text, size_t length, ckpt_err *err)
{
    char block[1 << 16];
    while (length > 0) {
        const size_t count = length < sizeof block ? length : sizeof block;
        if (!read_all(bytes, block, count)) {
            return CKPT_FAIL(err, CKPT_IO, "%s: the process that did it was ended", doing);
        }
        ckpt_text_put(text, block, count);
        length -= count;
    }
    return ckpt_text_end(text, err);
}

static ckpt_code collect(const char *doing, pid_t process, int from, ckpt_text *text, ckpt_err *err)
{
    answer found;
    int status = 0;
    const bool answered = read_all(from, &found, sizeof found);
    const ckpt_code code = answered && found.err.code == CKPT_OK ? take(doing, from, text, found.length, err) : CKPT_OK;
    while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
    }
    if (!answered) {
        return ended(doing, status, err);
    }
    if (found.err.code != CKPT_OK && err != NULL) {
        *err = found.err;
    }
    return code != CKPT_OK ? code : found.err.code;
}

ckpt_code ckpt_cli_apart(const char *doing, ckpt_cli_work work, const void *what, ckpt_text *text, ckpt_err *err)
{
    const struct sigaction usual = {.sa_handler = SIG_DFL};
    int end[2];
    if (pipe(end) != 0) {
        return CKPT_FAIL(err, CKPT_IO, "%s: no pipe: %s", doing, strerror(errno));
    }
    sigaction(SIGCHLD, &usual, NULL); /* one who ignores it is not told how a process ended */
    const pid_t process = fork();
    if (process == 0) {
        close(end[0]);
        work_apart(work, what, end[1]);
    }
    const int why = errno;
    close(end[1]);
    const ckpt_code code =
        process > 0 ? collect(doing, process, end[0], text, err)
                    : CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %s: no process: %s", doing, strerror(why));
    close(end[0]);
    return code;
}

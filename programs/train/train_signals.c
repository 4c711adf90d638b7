/* Signals of ckpt-train: a stopped training saves its state first. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "programs/train/train_request_impl.h"

static volatile sig_atomic_t stop_wanted;
static const ckpt_data *volatile mapped_data[2]; /* for data_gone; NULL: none */

static void want_stop(int signal)
{
    (void)signal;
    stop_wanted = 1;
}

bool ckpt_train_stop_wanted(void)
{
    return stop_wanted != 0;
}

void ckpt_train_watch_data(const ckpt_data *data, const ckpt_data *validation)
{
    mapped_data[0] = data;
    mapped_data[1] = validation;
}

static void say_at_once(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0) {
        _exit(2);
    }
}

void ckpt_train_lost_rank(void *context, const char *line)
{
    (void)context;
    dprintf(STDERR_FILENO, "ckpt-train: %s\n", line); /* what standard output still holds is lost */
    _exit(ckpt_exit_code(CKPT_DEVICE));
}

/* The data are read through mappings, and a mapped file that another program cuts short raises SIGBUS. */
static void data_gone(int number, siginfo_t *info, void *context)
{
    (void)context;
    const char *path = NULL;
    for (int i = 0; i < 2 && path == NULL; i++) {
        path = mapped_data[i] != NULL ? ckpt_data_file_at(mapped_data[i], info->si_addr) : NULL;
    }
    if (path == NULL) {
        signal(number, SIG_DFL); /* not in our data: raised again, it ends the program */
        return;
    }
    say_at_once("ckpt-train: ");
    say_at_once(path);
    say_at_once(": cannot be read any more: it has become shorter since training began\n");
    _exit(2);
}

/* An interrupt, also the one that else leaves a core dump, a closed terminal, or a reader of the output that is gone. */
void ckpt_train_catch_signals(void)
{
    static const int stopping[] = {SIGINT, SIGTERM, SIGQUIT, SIGPIPE, SIGHUP};
    struct sigaction action = {.sa_handler = want_stop, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof stopping / sizeof stopping[0]; i++) {
        struct sigaction before;
        if (stopping[i] != SIGHUP || (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)) {
            sigaction(stopping[i], &action, NULL); /* leave it ignored under nohup */
        }
    }
    struct sigaction gone = {.sa_sigaction = data_gone, .sa_flags = SA_SIGINFO};
    sigemptyset(&gone.sa_mask);
    sigaction(SIGBUS, &gone, NULL);
}

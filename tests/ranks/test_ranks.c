/* Who is who and who is alive, without MPI: processes of this test on 127.0.0.1, started as a launcher would. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ranks/ranks.h"
#include "ranks/star_impl.h"
#include "tests/support/support_ranks.h"
#include "tests/support/support_test.h"

enum { MOST = 8, PATIENCE_S = 60 };

typedef struct process {
    pid_t id;
    int said;        /* what its standard error carries */
    char text[4096]; /* after finish() */
    int code;        /* exit code, or 128 + signal */
} process;

static int port;
static process all[MOST];

static void sleep_ms(long milliseconds)
{
    nanosleep(&(struct timespec){.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000}, NULL);
}

static struct sockaddr_in here(int at)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)at)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

/* A port that nobody has, for the next job. It stays bound here, without a listener, until the next: so no connection
 * can leave from it, not that of a rank that looks for rank 0 either; who listens there must
 * reuse it, as rank 0 does. */
static void take_port(void)
{
    static const int on = 1;
    static int held = -1;
    struct sockaddr_in address = here(0);
    socklen_t length = sizeof address;
    if (held >= 0) {
        close(held);
    }
    held = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(held, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(setsockopt(held, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    assert_int_equal(getsockname(held, (struct sockaddr *)&address, &length), 0);
    port = ntohs(address.sin_port);
}

static void set_number(const char *name, int number)
{
    char text[16];
    snprintf(text, sizeof text, "%d", number);
    setenv(name, text, 1);
}

/* A process with rank `rank` that runs `body` and ends with what it gives. */
static void start(int rank, int count, int (*body)(int rank))
{
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    fflush(stdout);
    const pid_t id = fork();
    assert_true(id >= 0);
    if (id == 0) {
        close(pipes[0]);
        dup2(pipes[1], STDERR_FILENO);
        close(pipes[1]);
        alarm(PATIENCE_S);
        set_number("RANK", rank);
        set_number("WORLD_SIZE", count);
        set_number("MASTER_PORT", port);
        setenv("MASTER_ADDR", "127.0.0.1", 1);
        _exit(body(rank));
    }
    close(pipes[1]);
    all[rank] = (process){.id = id, .said = pipes[0]};
}

/* Wait for its end and read what it said. */
static void finish(process *p)
{
    size_t used = 0;
    ssize_t got = 0;
    int status = 0;
    while ((got = read(p->said, p->text + used, sizeof p->text - 1 - used)) > 0) {
        used += (size_t)got;
    }
    p->text[used] = '\0';
    close(p->said);
    assert_int_equal(waitpid(p->id, &status, 0), p->id);
    p->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void finish_all(int count)
{
    for (int i = 0; i < count; i++) {
        finish(&all[i]);
    }
}

static void check_quiet(int count)
{
    finish_all(count);
    for (int i = 0; i < count; i++) {
        CHECK(all[i].code == 0 && all[i].text[0] == '\0', "rank %d of %d: exit %d, said: %s", i, count, all[i].code,
              all[i].text);
    }
}

/* In a rank: end with a line of what went wrong. */
static int complain(const ckpt_err *err)
{
    dprintf(STDERR_FILENO, "error: %s\n", err->msg);
    return 9;
}

#define TRY_HERE(call)                                                                                                 \
    do {                                                                                                               \
        if ((call) != CKPT_OK) {                                                                                       \
            return complain(&err);                                                                                     \
        }                                                                                                              \
    } while (0)

#define HERE(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            dprintf(STDERR_FILENO, "line %d: %s\n", __LINE__, #condition);                                             \
            return 8;                                                                                                  \
        }                                                                                                              \
    } while (0)

static int join(ckpt_ranks **ranks)
{
    ckpt_err err = {0};
    TRY_HERE(ckpt_ranks_open(ranks, &err));
    TRY_HERE(ckpt_ranks_watch(*ranks, ckpt_test_lost_rank, "prog", &err));
    return 0;
}

#define JOIN(ranks)                                                                                                    \
    do {                                                                                                               \
        const int joined = join(ranks);                                                                                \
        if (joined != 0) {                                                                                             \
            return joined;                                                                                             \
        }                                                                                                              \
    } while (0)

/* ---- the environment ---- */

static void set_or_not(const char *name, const char *value)
{
    if (value == NULL) {
        unsetenv(name);
    } else {
        setenv(name, value, 1);
    }
}

static void environment(void **state)
{
    static const char *const names[] = {
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",    "PMI_SIZE",        "RANK",
        "WORLD_SIZE",           "MASTER_ADDR",          "MASTER_PORT", "CKPT_RANKS_WAIT", "CKPT_RANKS_PROGRESS"};
    static const struct {
        const char *value[10];
        int count;          /* 0: refused */
        const char *wanted; /* in the message */
    } rows[] = {
        {{NULL}, 1, NULL},
        {{"2", "4"}, 4, NULL},
        {{NULL, NULL, "1", "3"}, 3, NULL},
        {{"2", "4", NULL, NULL, "2", "4"}, 4, NULL},
        {{"2", "4", NULL, NULL, "2", "8"}, 0, "WORLD_SIZE=8"},
        {{NULL, NULL, NULL, NULL, "7", NULL}, 1, NULL}, /* a name that others use, too */
        {{NULL, NULL, NULL, NULL, "0", "1"}, 1, NULL},
        {{NULL, NULL, NULL, NULL, "1", "2", "host", "29500"}, 2, NULL},
        {{NULL, NULL, NULL, NULL, NULL, "2", "host", "29500"}, 0, "without RANK"},
        {{NULL, NULL, NULL, NULL, "2", "2", "host", "29500"}, 0, "RANK=2"},
        {{NULL, NULL, NULL, NULL, "1", "2", NULL, "29500"}, 0, "MASTER_ADDR"},
        {{NULL, NULL, NULL, NULL, "1", "2", "host", ""}, 0, "MASTER_PORT"},
        {{NULL, NULL, NULL, NULL, "1", "two", "host", "29500"}, 0, "WORLD_SIZE=two"},
        {{NULL, NULL, NULL, NULL, "-1", "2", "host", "29500"}, 0, "RANK=-1"},
        {{NULL, NULL, NULL, NULL, "1", "99999999999999999999", "host", "29500"}, 0, "WORLD_SIZE=9999"},
        {{NULL, "0"}, 0, "OMPI_COMM_WORLD_SIZE=0"},
        {{NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, "soon"}, 0, "CKPT_RANKS_WAIT=soon"},
        {{[9] = "no"}, 0, "CKPT_RANKS_PROGRESS=no"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int count = 0;
        ckpt_err err = {0};
        for (int k = 0; k < 10; k++) {
            set_or_not(names[k], rows[i].value[k]);
        }
        const ckpt_code code = ckpt_ranks_started(&count, &err);
        if (rows[i].count > 0) {
            CHECK(code == CKPT_OK && count == rows[i].count, "row %zu: code %d, count %d: %s", i, (int)code, count,
                  err.msg);
        } else {
            CHECK(code == CKPT_BAD_INPUT && strstr(err.msg, rows[i].wanted) != NULL, "row %zu: code %d: %s", i,
                  (int)code, err.msg);
        }
    }
    for (int k = 0; k < 10; k++) {
        unsetenv(names[k]);
    }
}

/* Who sits beside whom: what the launcher says; else as if all ranks were of one host. */
static void seats(void **state)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "MPI_LOCALRANKID",
                                        "MPI_LOCALNRANKS",
                                        "RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_RANK",
                                        "LOCAL_WORLD_SIZE",
                                        "MASTER_ADDR",
                                        "MASTER_PORT"};
    static const struct {
        const char *value[14];
        int seat, seats;
    } rows[] = {
        {{NULL}, 0, 1},
        {{"5", "8", "1", "4"}, 1, 4},
        {{"5", "8", "1"}, 1, 8},
        {{"5", "8"}, 5, 8},
        {{[4] = "3", "4", "1", "2"}, 1, 2},
        {{[8] = "3", "4", "1", "2", "host", "29500"}, 1, 2},
        {{[8] = "3", "4", NULL, NULL, "host", "29500"}, 3, 4},
        {{[10] = "3", "4"}, 0, 1},      /* of another program: this one is alone */
        {{"5", "8", "one", "4"}, 0, 1}, /* refused by all else */
        {{[8] = "3", "4", "1", "2"}, 0, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int seat = -1, all_seats = -1;
        for (int k = 0; k < 14; k++) {
            set_or_not(names[k], rows[i].value[k]);
        }
        ckpt_ranks_seat(&seat, &all_seats);
        CHECK(seat == rows[i].seat && all_seats == rows[i].seats, "row %zu: seat %d of %d", i, seat, all_seats);
    }
    for (int k = 0; k < 14; k++) {
        unsetenv(names[k]);
    }
}

/* One process is a job, too: it needs nobody. */
static void alone(void **state)
{
    ckpt_ranks *ranks = NULL;
    ckpt_err err = {0};
    char mine = 'x', got = 0;
    (void)state;
    CHECK_OK(ckpt_ranks_open(&ranks, &err), err);
    CHECK_OK(ckpt_ranks_watch(ranks, ckpt_test_lost_rank, "prog", &err), err);
    CHECK_OK(ckpt_ranks_slots(ranks, 4, &err), err);
    assert_int_equal(ckpt_ranks_count(ranks), 1);
    assert_int_equal(ckpt_ranks_rank(ranks), 0);
    assert_string_equal(ckpt_ranks_library(ranks), "none");
    assert_false(ckpt_ranks_on_device(ranks));
    CHECK_OK(ckpt_ranks_broadcast(ranks, 0, &mine, 1, &err), err);
    CHECK_OK(ckpt_ranks_allgather(ranks, &mine, &got, 1, &err), err);
    CHECK_OK(ckpt_ranks_barrier(ranks, &err), err);
    assert_int_equal(got, 'x');
    ckpt_ranks_note(ranks, "a note");
    assert_int_equal(ckpt_ranks_send(ranks, 0, 0, 0, &mine, 1, &err), CKPT_DEVICE);
    ckpt_ranks_close(ranks);
    ckpt_ranks_close(NULL);
    ckpt_ranks_give_up(NULL, "nothing");
    assert_int_equal(ckpt_memory_live(), 0);
}

/* ---- together ---- */

static unsigned char byte_of(int rank, size_t i)
{
    return (unsigned char)((size_t)rank * 31 + i * 7 + (i >> 9));
}

static int talk(int rank)
{
    static const size_t sizes[] = {0, 1, 77, 300001};
    static unsigned char mine[300001], both[MOST * 300001];
    ckpt_ranks *ranks = NULL;
    ckpt_err err = {0};
    JOIN(&ranks);
    HERE(ckpt_ranks_rank(ranks) == rank);
    const int count = ckpt_ranks_count(ranks);
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        for (size_t i = 0; i < sizes[k]; i++) {
            mine[i] = byte_of(rank, i);
        }
        TRY_HERE(ckpt_ranks_allgather(ranks, mine, both, (ckpt_bytes)sizes[k], &err));
        for (size_t i = 0; i < sizes[k] * (size_t)count; i++) {
            HERE(both[i] == byte_of((int)(i / sizes[k]), i % sizes[k]));
        }
        for (int root = 0; root < count; root++) {
            memset(both, rank == root ? 40 + root : 0, sizes[k]);
            TRY_HERE(ckpt_ranks_broadcast(ranks, root, both, (ckpt_bytes)sizes[k], &err));
            for (size_t i = 0; i < sizes[k]; i++) {
                HERE(both[i] == 40 + root);
            }
        }
        TRY_HERE(ckpt_ranks_barrier(ranks, &err));
    }
    HERE(ckpt_ranks_broadcast(ranks, count, mine, 1, &err) == CKPT_DEVICE);
    TRY_HERE(ckpt_ranks_slots(ranks, 3, &err));
    HERE(ckpt_ranks_send(ranks, 0, (rank + 1) % count, 0, mine, 1, &err) == CKPT_DEVICE); /* nothing carries it */
    HERE(ckpt_ranks_wait(ranks, 2, &err) == CKPT_OK);
    ckpt_ranks_close(ranks);
    HERE(ckpt_memory_live() == 0);
    return 0;
}

static void star(void **state)
{
    for (int count = 2; count <= 5; count += count == 2 ? 2 : 1) {
        take_port();
        for (int i = count - 1; i >= 0; i--) { /* rank 0 last: the others try again */
            start(i, count, talk);
        }
        check_quiet(count);
    }
}

/* Ranks that do not mean the same bytes. */
static int misunderstand(int rank)
{
    ckpt_ranks *ranks = NULL;
    ckpt_err err = {0};
    char bytes[6] = "abcde";
    JOIN(&ranks);
    if (rank == 0) {
        TRY_HERE(ckpt_ranks_broadcast(ranks, 0, bytes, 5, &err));
        TRY_HERE(ckpt_ranks_barrier(ranks, &err));
        return 7;
    }
    HERE(ckpt_ranks_broadcast(ranks, 0, bytes, 6, &err) == CKPT_DEVICE);
    ckpt_ranks_give_up(ranks, err.msg);
    return 0;
}

static void misunderstanding(void **state)
{
    take_port();
    start(0, 2, misunderstand);
    start(1, 2, misunderstand);
    finish_all(2);
    assert_string_equal(all[0].text, "prog: rank 0 of 2: rank 1 gave up: from rank 0: found 5 bytes, wanted 6\n");
    assert_int_equal(all[0].code, 3);
    assert_int_equal(all[1].code, 0);
}

/* A normal end is no death, whoever is first. */
static int drift_apart(int rank)
{
    ckpt_ranks *ranks = NULL;
    JOIN(&ranks);
    sleep_ms((rank * 37 + port * 11) % 60);
    ckpt_ranks_close(ranks);
    sleep_ms((rank * 17 + port * 7) % 60);
    return 0;
}

static int unwatched(int rank)
{
    ckpt_ranks *ranks = NULL;
    ckpt_err err = {0};
    TRY_HERE(ckpt_ranks_open(&ranks, &err));
    sleep_ms(rank * 5);
    ckpt_ranks_close(ranks);
    return 0;
}

static void ends(void **state)
{
    for (uint64_t round = 0; round < ckpt_test_rounds(12, 4); round++) {
        take_port();
        for (int i = 0; i < 4; i++) {
            start(i, 4, round % 3 == 2 ? unwatched : drift_apart);
        }
        check_quiet(4);
    }
}

/* ---- deaths ---- */

/* Trains for ever. */
static int train(int rank)
{
    ckpt_ranks *ranks = NULL;
    ckpt_err err = {0};
    int mine = rank, every[MOST];
    JOIN(&ranks);
    for (int step = 0;; step++) {
        ckpt_ranks_note(ranks, "the last state is s.bin");
        TRY_HERE(ckpt_ranks_allgather(ranks, &mine, every, sizeof mine, &err));
        if (step == 0 && rank == 0) {
            dprintf(STDERR_FILENO, "!"); /* everybody has come so far */
        }
        sleep_ms(step % 3);
    }
}

/* ... and handles SIGTERM itself, as ckpt-train does. */
static int train_on(int rank)
{
    signal(SIGTERM, SIG_IGN);
    return train(rank);
}

/* Wait for the sign of rank 0 that training has begun. */
static void begun(void)
{
    char sign = 0;
    assert_int_equal(read(all[0].said, &sign, 1), 1);
    CHECK(sign == '!', "rank 0 said '%c' first", sign);
}

/* One line that names one of the dead (a set of bits), and exit code 3. */
static void check_line(int rank, int count, unsigned dead)
{
    const process *const p = &all[rank];
    bool right = false;
    for (int i = 0; i < count; i++) {
        char line[200];
        snprintf(line, sizeof line, "prog: rank %d of %d: rank %d has died; the last state is s.bin\n", rank, count, i);
        right = right || ((dead >> i & 1) != 0 && strcmp(p->text, line) == 0);
    }
    CHECK(right && p->code == 3, "rank %d of %d, dead %x: exit %d, said: %s", rank, count, dead, p->code, p->text);
}

static void kill_some(int count, unsigned dead, bool stop_others)
{
    take_port();
    for (int i = 0; i < count; i++) {
        start(i, count, stop_others ? train_on : train);
    }
    begun();
    sleep_ms((long)ckpt_test_draw(20));
    for (int i = 0; i < count; i++) { /* all at once: no one of them shall live to see another's death */
        int status = 0;
        if ((dead >> i & 1) != 0) {
            kill(all[i].id, SIGSTOP);
            assert_int_equal(waitpid(all[i].id, &status, WUNTRACED), all[i].id);
            assert_true(WIFSTOPPED(status));
        }
    }
    for (int i = 0; i < count; i++) {
        if ((dead >> i & 1) != 0) {
            kill(all[i].id, SIGKILL);
        }
    }
    for (int i = 0; i < count && stop_others; i++) { /* as mpirun does */
        if ((dead >> i & 1) == 0) {
            kill(all[i].id, SIGTERM);
        }
    }
    finish_all(count);
    for (int i = 0; i < count; i++) {
        if ((dead >> i & 1) != 0) {
            assert_int_equal(all[i].code, 128 + SIGKILL);
        } else {
            check_line(i, count, dead);
        }
    }
}

static void deaths(void **state)
{
    for (uint64_t round = 0; round < ckpt_test_rounds(20, 8); round++) {
        const int count = 2 + (int)ckpt_test_draw(3);
        kill_some(count, 1u << (round < (uint64_t)count ? round : ckpt_test_draw((uint64_t)count)), round % 2 == 1);
    }
}

static void two_deaths(void **state)
{
    kill_some(4, 3, false);
    kill_some(4, 6, true);
    kill_some(4, 12, false);
    kill_some(4, 9, true);
}

/* SIGTERM without a death ends the process as it does without us. */
static void stopped(void **state)
{
    take_port();
    start(0, 2, train);
    start(1, 2, train);
    begun();
    kill(all[1].id, SIGTERM);
    finish_all(2);
    assert_int_equal(all[1].code, 128 + SIGTERM);
    assert_string_equal(all[1].text, "");
    check_line(0, 2, 2);
}

/* ---- giving up ---- */

static int give_up_in(int rank, int who)
{
    ckpt_ranks *ranks = NULL;
    ckpt_err err = {0};
    JOIN(&ranks);
    TRY_HERE(ckpt_ranks_barrier(ranks, &err));
    if (rank == who) {
        ckpt_ranks_give_up(ranks, "no room on\nthe disk");
        dprintf(STDERR_FILENO, "prog: no room on the disk\n");
        sleep_ms(300); /* its own thread must say nothing */
        return 2;
    }
    TRY_HERE(ckpt_ranks_barrier(ranks, &err));
    return 7;
}

static int give_up_0(int rank)
{
    return give_up_in(rank, 0);
}

static int give_up_2(int rank)
{
    return give_up_in(rank, 2);
}

static void give_up(void **state)
{
    for (int who = 0; who <= 2; who += 2) {
        take_port();
        for (int i = 0; i < 4; i++) {
            start(i, 4, who == 0 ? give_up_0 : give_up_2);
        }
        finish_all(4);
        for (int i = 0; i < 4; i++) {
            char line[200];
            snprintf(line, sizeof line, "prog: rank %d of 4: rank %d gave up: no room on the disk\n", i, who);
            const char *const wanted = i == who ? "prog: no room on the disk\n" : line;
            CHECK(strcmp(all[i].text, wanted) == 0 && all[i].code == (i == who ? 2 : 3),
                  "rank %d when rank %d gives up: exit %d, said: %s", i, who, all[i].code, all[i].text);
        }
    }
}

/* All give up at once: each has its own line, or that of another rank. */
static int all_give_up(int rank)
{
    ckpt_ranks *ranks = NULL;
    ckpt_err err = {0};
    JOIN(&ranks);
    TRY_HERE(ckpt_ranks_barrier(ranks, &err));
    ckpt_ranks_give_up(ranks, "a wrong model");
    dprintf(STDERR_FILENO, "prog: a wrong model\n");
    return rank == 99 ? 0 : 2;
}

static void give_up_together(void **state)
{
    for (int round = 0; round < 5; round++) {
        take_port();
        for (int i = 0; i < 4; i++) {
            start(i, 4, all_give_up);
        }
        finish_all(4);
        for (int i = 0; i < 4; i++) {
            const char *const end = strchr(all[i].text, '\n');
            CHECK(end != NULL && end[1] == '\0' && strstr(all[i].text, "a wrong model\n") != NULL &&
                      all[i].code == (strncmp(all[i].text, "prog: rank ", 11) == 0 ? 3 : 2),
                  "rank %d: exit %d, said: %s", i, all[i].code, all[i].text);
        }
    }
}

/* ---- coming together ---- */

static void check_said(int rank, int code, const char *part)
{
    const process *const p = &all[rank];
    const char *const end = strchr(p->text, '\n');
    CHECK(p->code == code && strstr(p->text, part) != NULL && end != NULL && end[1] == '\0',
          "rank %d: exit %d, wanted %d and \"%s\", said: %s", rank, p->code, code, part, p->text);
}

static void never_comes(void **state)
{
    setenv("CKPT_RANKS_WAIT", "3", 1); /* where the machine is busy rank 1 takes its time, too */
    take_port();
    start(0, 4, talk);
    start(1, 4, talk);
    finish_all(2);
    check_said(0, 9, "rank 2 of 4 and 1 other did not come within 3 s");
    check_said(1, 9, "rank 0 gave up: rank 2 of 4 and 1 other did not come");
    setenv("CKPT_RANKS_WAIT", "1", 1);
    take_port();
    start(1, 2, talk); /* rank 0 is the one */
    finish(&all[1]);
    check_said(1, 9, "rank 1 of 2 cannot reach rank 0 at 127.0.0.1, port ");
    unsetenv("CKPT_RANKS_WAIT");
}

static int connect_here(void)
{
    const struct sockaddr_in address = here(port);
    for (int i = 0; i < 500; i++) {
        const int made = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(made, (const struct sockaddr *)&address, sizeof address) == 0) {
            return made;
        }
        close(made);
        sleep_ms(10);
    }
    fail_msg("rank 0 does not listen");
    return -1;
}

/* The hello of a rank, without a word: 1 when rank 0 says welcome. */
static bool say_hello(int to, int rank, int count, int line)
{
    unsigned char hello[36] = "ckptrank", candidates[8];
    hello[27] = (unsigned char)rank;
    hello[31] = (unsigned char)count;
    hello[35] = (unsigned char)line;
    assert_int_equal(send(to, hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    assert_int_equal(recv(to, candidates, sizeof candidates, MSG_WAITALL), sizeof candidates);
    return candidates[3] == 0;
}

static void death_before_all_are_here(void **state)
{
    const struct sockaddr_in address = here((take_port(), port));
    static const int on = 1;
    unsigned char hello[36];
    (void)state;
    start(0, 3, talk); /* we are rank 1, for a while */
    const int rank_1 = connect_here();
    assert_true(say_hello(rank_1, 1, 3, 0));
    close(rank_1);
    finish(&all[0]);
    check_said(0, 9, "while ranks come together: rank 1 has died");

    const int listener = socket(AF_INET, SOCK_STREAM, 0); /* we are rank 0, for a while */
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    assert_int_equal(bind(listener, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 5), 0);
    start(1, 3, talk);
    int lines[2];
    for (int i = 0; i < 2; i++) {
        lines[i] = accept(listener, NULL, NULL);
        assert_int_equal(recv(lines[i], hello, sizeof hello, MSG_WAITALL), sizeof hello);
        assert_int_equal(hello[27] * 100 + hello[31] * 10 + hello[35], 130 + i);
        assert_int_equal(send(lines[i], "\0\0\0\0\0\0\0\0", 8, MSG_NOSIGNAL), 8);
    }
    close(listener);
    close(lines[0]);
    close(lines[1]);
    finish(&all[1]);
    check_said(1, 9, "while ranks come together: rank 0 has died");
}

static void others_are_wrong(void **state)
{
    take_port();
    start(0, 2, talk);
    start(1, 3, talk); /* another count */
    finish(&all[1]);
    check_said(1, 9, "rank 0 was started with 2 ranks, this one as rank 1 of 3");
    start(1, 2, talk);
    check_quiet(2);
    take_port();
    start(0, 3, talk);
    const int first = connect_here();
    assert_true(say_hello(first, 1, 3, 0));
    start(1, 3, talk); /* the same rank */
    finish(&all[1]);
    check_said(1, 9, "two processes were started as rank 1 of 3");
    close(first);
    finish(&all[0]);
    check_said(0, 9, "rank 1 has died");
}

static void port_is_taken(void **state)
{
    take_port();
    static const int on = 1;
    const int made = socket(AF_INET, SOCK_STREAM, 0);
    const struct sockaddr_in address = here(port);
    assert_int_equal(setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    assert_int_equal(bind(made, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(made, 5), 0);
    setenv("CKPT_RANKS_WAIT", "1", 1);
    start(0, 2, talk);
    finish(&all[0]);
    check_said(0, 9, "rank 0 cannot listen on MASTER_ADDR=127.0.0.1, MASTER_PORT=");
    close(made);
    unsetenv("CKPT_RANKS_WAIT");
}

/* Forty who say nothing, one who talks nonsense, one who leaves in the middle of a hello, one with a wrong word. */
static void strangers(void **state)
{
    static const unsigned char wrong[36] = "ckptrank\1\2\3";
    enum { SILENT = 40 };
    int silent[SILENT], nonsense = -1;
    char candidates = 0;
    (void)state;
    take_port();
    start(0, 3, talk);
    for (int i = 0; i < SILENT; i++) {
        silent[i] = connect_here();
    }
    assert_int_equal(recv(silent[0], &candidates, 1, 0),
                     0); /* there is room for fewer: who has waited longest is let go */
    nonsense = connect_here();
    assert_int_equal(send(nonsense, "GET / HTTP/1.1\r\nHost: 127.0.0.1:29500\r\n\r\n", 41, MSG_NOSIGNAL), 41);
    const int half = connect_here();
    assert_int_equal(send(half, "ckptr", 5, MSG_NOSIGNAL), 5);
    close(half);
    const int guess = connect_here();
    assert_int_equal(send(guess, wrong, sizeof wrong, MSG_NOSIGNAL), sizeof wrong);
    assert_int_equal(recv(guess, &candidates, 1, 0), 0); /* let go without a word */
    start(1, 3, talk);
    start(2, 3, talk);
    check_quiet(3);
    for (int i = 0; i < SILENT; i++) {
        close(silent[i]);
    }
    close(nonsense);
    close(guess);
}

/* As under mpirun: rank 0 listens where it can, and tells by a way of its own. Who has another word is no rank. */
static int called(ckpt_star_call *call, int rank, int seconds)
{
    ckpt_star *star = NULL;
    ckpt_err err = {0};
    TRY_HERE(ckpt_star_create(&star, rank, 2, &err));
    TRY_HERE(ckpt_star_join(star, call, seconds, &err));
    HERE(ckpt_star_leave(star));
    ckpt_star_destroy(star);
    return 0;
}

static void called_by_word(bool one_host, bool right)
{
    ckpt_star_call call;
    ckpt_star *star = NULL;
    ckpt_err err = {0};
    int status = 0;
    CHECK_OK(ckpt_star_create(&star, 0, 2, &err), err);
    if (ckpt_star_listen(star, NULL, NULL, one_host, &call, &err) != CKPT_OK) {
        CHECK(!one_host && strstr(err.msg, "no address that others can reach") != NULL, "%s", err.msg);
        assert_int_equal(call.address_count, 0);
        print_message("no network here\n");
        ckpt_star_destroy(star);
        return;
    }
    for (int i = 0; i < call.address_count; i++) {
        assert_true(one_host == (strcmp(call.address[i], "127.0.0.1") == 0));
    }
    fflush(stdout);
    const pid_t id = fork();
    if (id == 0) {
        alarm(PATIENCE_S);
        call.word[7] = (unsigned char)(call.word[7] ^ !right);
        close(STDERR_FILENO);
        _exit(called(&call, 1, right ? PATIENCE_S : 1));
    }
    const ckpt_code code = ckpt_star_join(star, &call, right ? PATIENCE_S : 1, &err);
    assert_int_equal(code, right ? CKPT_OK : CKPT_DEVICE);
    assert_true(!right || ckpt_star_leave(star));
    ckpt_star_destroy(star);
    assert_int_equal(waitpid(id, &status, 0), id);
    assert_int_equal(WEXITSTATUS(status), right ? 0 : 9);
}

static void words(void **state)
{
    called_by_word(true, true);
    called_by_word(true, false);
    called_by_word(false, true);
    assert_int_equal(ckpt_memory_live(), 0);
}

/* ---- no memory ---- */

static ckpt_code open_and_close(void *context, ckpt_err *err)
{
    ckpt_ranks *ranks = NULL;
    (void)context;
    CKPT_TRY(ckpt_ranks_open(&ranks, err));
    ckpt_code code = ckpt_ranks_watch(ranks, ckpt_test_lost_rank, "prog", err);
    code = code == CKPT_OK ? ckpt_ranks_slots(ranks, 5, err) : code;
    if (code == CKPT_OK) {
        code = ckpt_ranks_barrier(ranks, err);
    }
    ckpt_ranks_close(ranks);
    return code;
}

static int starve(int rank)
{
    const int64_t allowed = ckpt_test_starve(open_and_close, NULL); /* all ranks fail alike */
    HERE(allowed > 4);
    return rank == 99;
}

static void starved(void **state)
{
    take_port();
    start(0, 3, starve);
    start(1, 3, starve);
    start(2, 3, starve);
    check_quiet(3);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(environment),
        cmocka_unit_test(seats),
        cmocka_unit_test(alone),
        cmocka_unit_test(star),
        cmocka_unit_test(misunderstanding),
        cmocka_unit_test(ends),
        cmocka_unit_test(deaths),
        cmocka_unit_test(two_deaths),
        cmocka_unit_test(stopped),
        cmocka_unit_test(give_up),
        cmocka_unit_test(give_up_together),
        cmocka_unit_test(never_comes),
        cmocka_unit_test(death_before_all_are_here),
        cmocka_unit_test(others_are_wrong),
        cmocka_unit_test(port_is_taken),
        cmocka_unit_test(strangers),
        cmocka_unit_test(words),
        cmocka_unit_test(starved),
    };
    ckpt_test_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

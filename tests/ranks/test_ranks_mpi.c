/* Messages between ranks, by MPI: this program starts itself under mpirun with 1, 2 and 4 ranks. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ranks/ranks.h"
#include "ranks/ranks_impl.h"
#include "tests/support/support_ranks.h"
#include "tests/support/support_test.h"

enum { SLOTS = 12, BIG = 100000000 };

static const char *program;
static ckpt_ranks *ranks;

/* Bytes that are unique to this sender, tag and message. */
static void fill(unsigned char *bytes, size_t count, int from, int tag, int number)
{
    uint64_t x = (uint64_t)(from * 7919 + tag * 104729 + number * 1299709 + 1);
    for (size_t i = 0; i < count; i += sizeof x) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        memcpy(bytes + i, &x, count - i < sizeof x ? count - i : sizeof x);
    }
}

static void check_filled(const unsigned char *bytes, size_t count, int from, int tag, int number)
{
    unsigned char *const wanted = ckpt_memory_get(count + 1);
    assert_non_null(wanted);
    fill(wanted, count, from, tag, number);
    CHECK(memcmp(bytes, wanted, count) == 0, "rank %d: message %d of rank %d, tag %d, %zu bytes: other bytes arrived",
          ckpt_ranks_rank(ranks), number, from, tag, count);
    ckpt_memory_put(wanted);
}

static void sleep_ms(long milliseconds)
{
    nanosleep(&(struct timespec){.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000}, NULL);
}

/* Every rank sends `bytes` to the next one and receives as many from the previous one at the same time. */
static void around(size_t bytes)
{
    const int rank = ckpt_ranks_rank(ranks), count = ckpt_ranks_count(ranks);
    const int to = (rank + 1) % count, from = (rank + count - 1) % count;
    unsigned char *const out = ckpt_memory_get(bytes + 2), *const in = ckpt_memory_get(bytes + 2);
    ckpt_err err = {0};
    assert_true(out != NULL && in != NULL);
    fill(out, bytes, rank, 5, 0);
    in[bytes] = 77;
    CHECK_OK(ckpt_ranks_send(ranks, 0, to, 5, out, (ckpt_bytes)bytes, &err), err);
    CHECK_OK(ckpt_ranks_receive(ranks, 1, from, 5, in, (ckpt_bytes)bytes, &err), err);
    CHECK_OK(ckpt_ranks_wait(ranks, 1, &err), err);
    CHECK_OK(ckpt_ranks_wait(ranks, 0, &err), err);
    CHECK_OK(ckpt_ranks_wait(ranks, 0, &err), err); /* a free slot */
    check_filled(in, bytes, from, 5, 0);
    assert_int_equal(in[bytes], 77);
    ckpt_memory_put(out);
    ckpt_memory_put(in);
}

static void sizes(void **state)
{
    static const size_t all[] = {0, 1, 3, 4095, 65537, 1048577, BIG + 1};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0] && ckpt_ranks_count(ranks) > 1; i++) {
        around(all[i]);
    }
}

/* Messages beyond an MPI count are split: tests all sizes around a limit of 1000 bytes with pieces of 7. */
static void split(void **state)
{
    static const size_t all[] = {0, 999, 1000, 1001, 1007, 1008, 100003};
    (void)state;
    if (ckpt_ranks_count(ranks) == 1) {
        return;
    }
    ranks->mpi->split(1000, 7);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        around(all[i]);
    }
    ranks->mpi->split(INT32_MAX, 1048576);
}

/* Four messages of each of two tags to every other rank, received tag by tag, the later tag first. */
static void order(void **state)
{
    enum { EACH = 3, BYTES = 5000 };
    static unsigned char out[2 * EACH][BYTES], in[2 * EACH][BYTES];
    const int rank = ckpt_ranks_rank(ranks), count = ckpt_ranks_count(ranks);
    ckpt_err err = {0};
    (void)state;
    for (int step = 1; step < count; step++) {
        const int to = (rank + step) % count, from = (rank + count - step) % count;
        for (int i = 0; i < 2 * EACH; i++) {
            fill(out[i], BYTES, rank, i % 2, i / 2);
            CHECK_OK(ckpt_ranks_send(ranks, i, to, i % 2, out[i], BYTES, &err), err);
        }
        for (int i = 0; i < 2 * EACH; i++) {
            CHECK_OK(ckpt_ranks_receive(ranks, 2 * EACH + i, from, i < EACH ? 1 : 0, in[i], BYTES, &err), err);
        }
        for (int i = 4 * EACH - 1; i >= 0; i--) {
            CHECK_OK(ckpt_ranks_wait(ranks, i, &err), err);
        }
        for (int i = 0; i < 2 * EACH; i++) {
            check_filled(in[i], BYTES, from, i < EACH ? 1 : 0, i % EACH);
        }
    }
}

/* As backward does, this thread only looks at memory until all messages are there: large ones, which both ranks must
 * move. Looks for at most a minute. */
static void while_nobody_waits(void **state)
{
    enum { MESSAGES = 3, BYTES = 8000000 };
    const int rank = ckpt_ranks_rank(ranks), count = ckpt_ranks_count(ranks);
    unsigned char *const out = ckpt_memory_get(BYTES), *const in = ckpt_memory_get(MESSAGES * BYTES);
    ckpt_err err = {0};
    (void)state;
    assert_true(out != NULL && in != NULL);
    memset(out, 0xA0 + rank, BYTES);
    for (int m = 0; m < MESSAGES && count > 1; m++) {
        CHECK_OK(ckpt_ranks_receive(ranks, m, (rank + 1) % count, m, in + m * BYTES, BYTES, &err), err);
        CHECK_OK(ckpt_ranks_send(ranks, MESSAGES + m, (rank + count - 1) % count, m, out, BYTES, &err), err);
        sleep_ms(5 * rank); /* ranks do not start together */
    }
    for (int i = 0; i < MESSAGES * BYTES && count > 1; i += 1000) {
        const volatile unsigned char *const byte = &in[i];
        for (int ms = 0; *byte != 0xA0 + (rank + 1) % count; ms++) {
            CHECK(ms < 60000, "rank %d of %d: byte %d has not come", rank, count, i);
            sleep_ms(1);
        }
    }
    for (int m = 0; m < 2 * MESSAGES && count > 1; m++) {
        CHECK_OK(ckpt_ranks_wait(ranks, m, &err), err);
    }
    CHECK_OK(ckpt_ranks_barrier(ranks, &err), err);
    ckpt_memory_put(out);
    ckpt_memory_put(in);
}

/* Slots are reused many times, and we allocate nothing. */
static void reused(void **state)
{
    const int64_t live = ckpt_memory_live();
    const int rank = ckpt_ranks_rank(ranks), count = ckpt_ranks_count(ranks);
    int out = 0, in = -1;
    ckpt_err err = {0};
    ckpt_memory_fail_after(0);
    for (int i = 0; i < 1000 && count > 1; i++) {
        const int slot = i % (SLOTS / 2);
        out = i * count + rank;
        CHECK_OK(ckpt_ranks_receive(ranks, slot, (rank + 1) % count, i, &in, sizeof in, &err), err);
        CHECK_OK(ckpt_ranks_send(ranks, SLOTS / 2 + slot, (rank + count - 1) % count, i, &out, sizeof out, &err), err);
        CHECK_OK(ckpt_ranks_wait(ranks, slot, &err), err);
        CHECK_OK(ckpt_ranks_wait(ranks, SLOTS / 2 + slot, &err), err);
        assert_int_equal(in, i * count + (rank + 1) % count);
    }
    ckpt_memory_fail_after(-1);
    assert_int_equal(ckpt_memory_live(), live);
}

static void together(void **state)
{
    const int rank = ckpt_ranks_rank(ranks), count = ckpt_ranks_count(ranks);
    ckpt_err err = {0};
    (void)state;
    for (int root = 0; root < count; root++) {
        unsigned char bytes[1001] = {0};
        if (rank == root) {
            fill(bytes, sizeof bytes, root, 9, 9);
        }
        CHECK_OK(ckpt_ranks_broadcast(ranks, root, bytes, sizeof bytes, &err), err);
        check_filled(bytes, sizeof bytes, root, 9, 9);
    }
    unsigned char mine[77], all[8][77];
    fill(mine, sizeof mine, rank, 3, 4);
    CHECK_OK(ckpt_ranks_allgather(ranks, mine, all, sizeof mine, &err), err);
    for (int i = 0; i < count; i++) {
        check_filled(all[i], sizeof mine, i, 3, 4);
    }
    CHECK_OK(ckpt_ranks_broadcast(ranks, 0, NULL, 0, &err), err);
    CHECK_OK(ckpt_ranks_barrier(ranks, &err), err);
}

static void wrong(void **state)
{
    const int rank = ckpt_ranks_rank(ranks), count = ckpt_ranks_count(ranks);
    char byte = 0;
    ckpt_err err = {0};
    (void)state;
    assert_int_equal(ckpt_ranks_slots(ranks, 1, &err), CKPT_DEVICE); /* a second time */
    const int other = count > 1 ? (rank + 1) % count : 0;
    const int bad[][3] = {{-1, other, 0}, {SLOTS, other, 0}, {0, -1, 0},        {0, count, 0},
                          {0, rank, 0},   {0, other, -1},    {0, other, 32768}, {0, count + 1, 0}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(ckpt_ranks_send(ranks, bad[i][0], bad[i][1], bad[i][2], &byte, 1, &err), CKPT_DEVICE);
        assert_int_equal(ckpt_ranks_receive(ranks, bad[i][0], bad[i][1], bad[i][2], &byte, 1, &err), CKPT_DEVICE);
    }
    assert_int_equal(ckpt_ranks_wait(ranks, SLOTS, &err), CKPT_DEVICE);
    if (count > 1) { /* a slot in use; a message that is shorter than wanted, or longer */
        char four[4] = "abc";
        CHECK_OK(ckpt_ranks_send(ranks, 0, other, 32767, "0123456", count == 2 ? 3 : 5, &err), err);
        CHECK_OK(ckpt_ranks_receive(ranks, 1, (rank + count - 1) % count, 32767, four, 4, &err), err);
        assert_int_equal(ckpt_ranks_send(ranks, 1, other, 1, four, 4, &err), CKPT_DEVICE);
        assert_int_equal(ckpt_ranks_wait(ranks, 1, &err), CKPT_DEVICE);
        assert_non_null(strstr(err.msg, "receiving"));
        CHECK_OK(ckpt_ranks_wait(ranks, 0, &err), err);
    }
    CHECK_OK(ckpt_ranks_barrier(ranks, &err), err);
}

/* Messages in a ring until rank `victim` dies or gives up at some moment. */
static int until_death(int victim, bool gives_up)
{
    const int rank = ckpt_ranks_rank(ranks), count = ckpt_ranks_count(ranks);
    static unsigned char out[100000], in[100000];
    ckpt_err err = {0};
    ckpt_code code = CKPT_OK;
    signal(SIGTERM, SIG_IGN); /* from mpirun after the death of a rank; ckpt-train handles it too */
    ckpt_ranks_note(ranks, "the last state is s.bin");
    const int last = 1 + (int)(time(NULL) * 7919 % 200);
    for (int i = 0; code == CKPT_OK; i++) {
        if (rank == victim && i == last && !gives_up) {
            raise(SIGKILL);
        }
        if (rank == victim && i == last) {
            ckpt_ranks_give_up(ranks, "no room on the disk");
            return 2;
        }
        code = ckpt_ranks_receive(ranks, 0, (rank + 1) % count, 1, in, sizeof in, &err);
        code = code == CKPT_OK ? ckpt_ranks_send(ranks, 1, (rank + count - 1) % count, 1, out, sizeof out, &err) : code;
        code = code == CKPT_OK ? ckpt_ranks_wait(ranks, 0, &err) : code;
        code = code == CKPT_OK ? ckpt_ranks_wait(ranks, 1, &err) : code;
    }
    fprintf(stderr, "rank %d: %s\n", rank, err.msg);
    return 1;
}

/* Where rank `rank` writes what it says in death_beside_work. */
static const char *said_by(int rank)
{
    static char path[512];
    snprintf(path, sizeof path, "%.400s/said.%d", ckpt_work_dir(), rank);
    return path;
}

/* Rank `victim` dies while large messages move to it and from it, and the others wait for nothing. They are processes of
 * which mpirun does not know: it kills those that it knows at its own time, on a busy machine before they can speak. */
static int death_beside_work(int victim)
{
    const int rank = ckpt_ranks_rank(ranks), count = ckpt_ranks_count(ranks);
    unsigned char *const out = ckpt_memory_get(BIG), *const in = ckpt_memory_get(BIG);
    ckpt_err err = {0};
    signal(SIGTERM, SIG_IGN);
    ckpt_ranks_note(ranks, "the last state is s.bin");
    if (freopen(said_by(rank), "w", stderr) == NULL) {
        return 1;
    }
    if (out == NULL || in == NULL || ckpt_ranks_barrier(ranks, &err) != CKPT_OK ||
        ckpt_ranks_receive(ranks, 0, (rank + 1) % count, 1, in, BIG, &err) != CKPT_OK ||
        ckpt_ranks_send(ranks, 1, (rank + count - 1) % count, 1, out, BIG, &err) != CKPT_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, err.msg);
        return 1;
    }
    if (rank == victim) {
        sleep_ms(time(NULL) % 20);
        raise(SIGKILL);
    }
    sleep_ms(100000); /* mpirun is ended before that */
    return 1;
}

static int as_rank(const char *mode)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(split),
        cmocka_unit_test(order),
        cmocka_unit_test(reused),
        cmocka_unit_test(together),
        cmocka_unit_test(wrong),
        cmocka_unit_test(while_nobody_waits),
    };
    ckpt_err err = {0};
    if (ckpt_ranks_open(&ranks, &err) != CKPT_OK ||
        ckpt_ranks_watch(ranks, ckpt_test_lost_rank, "test_ranks_mpi", &err) != CKPT_OK ||
        ckpt_ranks_slots(ranks, SLOTS, &err) != CKPT_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    if (mode != NULL && mode[0] == 'w') { /* "work 1" */
        return death_beside_work(mode[strlen(mode) - 1] - '0');
    }
    if (mode != NULL) { /* "die 2", "give 0" */
        return until_death(mode[strlen(mode) - 1] - '0', mode[0] == 'g');
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed != 0) {
        ckpt_ranks_give_up(ranks, "a test failed");
        return 1;
    }
    ckpt_ranks_close(ranks);
    return ckpt_memory_live() == 0 ? 0 : 1;
}

static void one(void **state)
{
    ckpt_test_ranks(program, 1, NULL);
}

static void two(void **state)
{
    ckpt_test_ranks(program, 2, NULL);
}

static void four(void **state)
{
    ckpt_test_ranks(program, 4, NULL);
}

static int count_of(const char *text, const char *part)
{
    int count = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) {
        count++;
    }
    return count;
}

/* Adds what the three ranks that are left have written to files, within a minute, and removes those. */
static void add_said(int victim, char *output, size_t room)
{
    for (int rank = 0; rank < 4; rank++) {
        const size_t used = strlen(output);
        for (int ms = 0; rank != victim && output[used] == '\0' && ms < 60000; ms += 10) {
            FILE *const file = fopen(said_by(rank), "r");
            if (file != NULL) {
                output[used + fread(output + used, 1, room - 1 - used, file)] = '\0';
                fclose(file);
            }
            sleep_ms(output[used] == '\0' ? 10 : 0);
        }
        remove(said_by(rank));
    }
}

/* Rank `victim` of four ends: each of the others prints one line, and nothing else of ours is printed. */
static void end_of(int victim, const char *how)
{
    char mode[16], output[16384], line[200];
    const bool gives_up = strcmp(how, "give") == 0;
    snprintf(mode, sizeof mode, "%s %d", how, victim);
    const int code = ckpt_test_mpirun(program, 4, mode, output, sizeof output);
    if (mode[0] == 'w') {
        add_said(victim, output, sizeof output);
    }
    CHECK(code != 0 && code != 124, "%s: mpirun: exit %d:\n%s", mode, code, output);
    for (int i = 0; i < 4; i++) {
        snprintf(line, sizeof line, "test_ranks_mpi: rank %d of 4: rank %d %s; the last state is s.bin\n", i, victim,
                 gives_up ? "gave up: no room on the disk" : "has died");
        CHECK(count_of(output, line) == (i != victim), "%s: rank %d said it %d times:\n%s", mode, i,
              count_of(output, line), output);
    }
    CHECK(count_of(output, "test_ranks_mpi: rank ") == 3 && count_of(output, "MPI: ") == 0, "%s: more was said:\n%s",
          mode, output);
}

static void deaths(void **state)
{
    end_of(0, "die");
    end_of(2, "die");
    end_of(0, "work");
    end_of(3, "work");
}

static void giving_up(void **state)
{
    end_of(3, "give");
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(one), cmocka_unit_test(two), cmocka_unit_test(four),
                                              cmocka_unit_test(deaths), cmocka_unit_test(giving_up)};
    program = argv[0];
    if (ckpt_test_is_rank() && argc > 1 && argv[1][0] == 'w') {
        const pid_t rank = fork();
        if (rank > 0) {
            return waitpid(rank, NULL, 0) == rank ? 3 : 1;
        }
        setsid();
    }
    if (ckpt_test_is_rank()) {
        return as_rank(argc > 1 ? argv[1] : NULL);
    }
    const int no = ckpt_test_no_mpirun();
    return no != 0 ? no : cmocka_run_group_tests(tests, NULL, NULL);
}

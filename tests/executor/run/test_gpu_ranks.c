/* labels: unit gpu */
/* Messages between the memories of GPUs: processes of this test, each with an emulated device, and a double of libnccl
 * that carries their bytes (tests/nccl_double). */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranks/ranks.h"
#include "tests/emulation/emulation.h"
#include "tests/support/support_ranks.h"
#include "tests/support/support_test.h"

enum { SLOTS = 16, ROOM = 3000001, MOST = 4 };

/* In a rank: end with a line of what went wrong. */
#define HERE(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, err.msg);                                       \
            return 8;                                                                                                  \
        }                                                                                                              \
    } while (0)

#define HERE_OK(call) HERE((call) == CKPT_OK)

typedef struct gpu_rank {
    ckpt_ranks *ranks;
    ckpt_device *device;
    unsigned char *base; /* on the device: ROOM bytes to send from, ROOM for each other rank to receive into */
    int rank, count;
} gpu_rank;

static int take_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int made = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(made, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(getsockname(made, (struct sockaddr *)&address, &length), 0);
    close(made);
    return ntohs(address.sin_port);
}

static void set_number(const char *name, int number)
{
    char text[16];
    snprintf(text, sizeof text, "%d", number);
    setenv(name, text, 1);
}

/* `count` processes that run `body`, each of which must give 0. */
static void run(int count, int (*body)(int rank))
{
    pid_t id[MOST];
    int status = 0;
    set_number("MASTER_PORT", take_port());
    set_number("WORLD_SIZE", count);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    fflush(stdout);
    for (int i = 0; i < count; i++) {
        id[i] = fork();
        assert_true(id[i] >= 0);
        if (id[i] == 0) {
            alarm(60);
            set_number("RANK", i);
            _exit(body(i));
        }
    }
    for (int i = 0; i < count; i++) {
        assert_int_equal(waitpid(id[i], &status, 0), id[i]);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "rank %d of %d: exit %d, signal %d", i, count,
              WEXITSTATUS(status), WTERMSIG(status));
    }
    unsetenv("WORLD_SIZE");
}

/* The device and its messages; what carries them is named by CKPT_NCCL. */
static int open_all(gpu_rank *r)
{
    ckpt_err err = {0};
    ckpt_emulated_guard(false); /* the double's thread moves the bytes */
    HERE_OK(ckpt_device_emulated.open(0, 1, &r->device, &err));
    HERE_OK(ckpt_ranks_open(&r->ranks, &err));
    HERE_OK(ckpt_ranks_watch(r->ranks, ckpt_test_lost_rank, "test_gpu_ranks", &err));
    HERE(!ckpt_ranks_on_device(r->ranks));
    HERE_OK(ckpt_ranks_carry(r->ranks, ckpt_device_carry, r->device, &err));
    HERE(ckpt_ranks_on_device(r->ranks));
    HERE(strcmp(ckpt_ranks_library(r->ranks), "NCCL 2.99.1") == 0);
    HERE_OK(ckpt_ranks_slots(r->ranks, SLOTS, &err));
    HERE(ckpt_ranks_carry(r->ranks, ckpt_device_carry, r->device, &err) == CKPT_DEVICE); /* too late */
    r->rank = ckpt_ranks_rank(r->ranks);
    r->count = ckpt_ranks_count(r->ranks);
    void *base = NULL;
    HERE_OK(r->device->api->reserve(r->device, (ckpt_bytes)(1 + MOST) * ROOM, &base, &err));
    r->base = base;
    return 0;
}

static int close_all(gpu_rank *r)
{
    ckpt_err err = {0};
    HERE_OK(ckpt_ranks_barrier(r->ranks, &err));
    ckpt_ranks_close(r->ranks);
    r->device->api->release(r->device, r->base, (ckpt_bytes)(1 + MOST) * ROOM);
    ckpt_device_close(r->device);
    HERE(ckpt_memory_live() == 0);
    return 0;
}

static unsigned char byte_of(int from, int number, size_t i)
{
    return (unsigned char)((size_t)from * 71 + (size_t)number * 13 + i * 5 + (i >> 10));
}

static int put(const gpu_rank *r, size_t at, size_t bytes, int number)
{
    static unsigned char host[ROOM];
    ckpt_err err = {0};
    for (size_t i = 0; i < bytes; i++) {
        host[i] = byte_of(r->rank, number, i);
    }
    HERE_OK(r->device->api->upload(r->device, r->base + at, host, (ckpt_bytes)bytes, &err));
    return 0;
}

/* Where rank `from`'s bytes came to: they, and behind them what was there. */
static int check(const gpu_rank *r, int from, size_t at, size_t bytes, int number)
{
    static unsigned char host[ROOM];
    ckpt_err err = {0};
    HERE_OK(r->device->api->download(r->device, host, r->base + (size_t)(1 + from) * ROOM + at, (ckpt_bytes)bytes + 1,
                                     &err));
    for (size_t i = 0; i < bytes; i++) {
        HERE(host[i] == byte_of(from, number, i));
    }
    HERE(host[bytes] == 0);
    return 0;
}

/* All to all, receives first or sends first, waited for in the other order. */
static int all_to_all(int rank)
{
    static const size_t sizes[] = {0, 1, 255, 70001, ROOM - 1};
    gpu_rank r = {0};
    ckpt_err err = {0};
    (void)rank;
    HERE(open_all(&r) == 0);
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        int slot = 0;
        HERE_OK(r.device->api->fill(r.device, r.base, 0, (ckpt_bytes)(1 + MOST) * ROOM, &err));
        HERE(put(&r, 0, sizes[k], (int)k) == 0);
        HERE_OK(r.device->api->finish(r.device, &err));
        for (int pass = 0; pass < 2; pass++) {
            for (int q = 0; q < r.count; q++) {
                if (q != r.rank && (pass == 0) == (k % 2 == 0)) {
                    HERE_OK(ckpt_ranks_receive(r.ranks, slot++, q, 3, r.base + (size_t)(1 + q) * ROOM,
                                               (ckpt_bytes)sizes[k], &err));
                } else if (q != r.rank) {
                    HERE_OK(ckpt_ranks_send(r.ranks, slot++, q, 3, r.base, (ckpt_bytes)sizes[k], &err));
                }
            }
        }
        while (slot-- > 0) {
            HERE_OK(ckpt_ranks_wait(r.ranks, slot, &err));
        }
        for (int q = 0; q < r.count; q++) {
            HERE(q == r.rank || check(&r, q, 0, sizes[k], (int)k) == 0);
        }
    }
    return close_all(&r);
}

/* Stages: values up and gradients down, three micro-batches under way at once, as 1F1B sends them. A send is waited for
 * late; if both directions shared a queue, the ranks would wait for each other. */
static int stages(int rank)
{
    enum { MICRO = 6, BYTES = 5000, AHEAD = 3 };
    gpu_rank r = {0};
    ckpt_err err = {0};
    HERE(open_all(&r) == 0);
    const int up = rank + 1, down = rank - 1, last = r.count - 1;
    HERE_OK(r.device->api->fill(r.device, r.base, 0, (ckpt_bytes)(1 + MOST) * ROOM, &err));
    for (int i = 0; i < MICRO + AHEAD; i++) {
        const int forward = i, backward = i - AHEAD;
        if (forward < MICRO && rank > 0) {
            HERE_OK(ckpt_ranks_receive(r.ranks, 0, down, 0, r.base + (size_t)(1 + down) * ROOM, BYTES, &err));
            HERE_OK(ckpt_ranks_wait(r.ranks, 0, &err));
            HERE(check(&r, down, 0, BYTES, forward) == 0);
        }
        if (forward < MICRO && rank < last) {
            const int slot = 1 + forward % (AHEAD + 1);
            HERE_OK(ckpt_ranks_wait(r.ranks, slot, &err));
            HERE(put(&r, (size_t)slot * 8192, BYTES, forward) == 0);
            HERE_OK(ckpt_ranks_send(r.ranks, slot, up, 0, r.base + (size_t)slot * 8192, BYTES, &err));
        }
        if (backward >= 0 && rank < last) {
            HERE_OK(ckpt_ranks_receive(r.ranks, 6, up, 1, r.base + (size_t)(1 + up) * ROOM, BYTES, &err));
            HERE_OK(ckpt_ranks_wait(r.ranks, 6, &err));
            HERE(check(&r, up, 0, BYTES, 100 + backward) == 0);
        }
        if (backward >= 0 && rank > 0) {
            const int slot = 7 + backward % (AHEAD + 1);
            HERE_OK(ckpt_ranks_wait(r.ranks, slot, &err));
            HERE(put(&r, (size_t)slot * 8192, BYTES, 100 + backward) == 0);
            HERE_OK(ckpt_ranks_send(r.ranks, slot, down, 1, r.base + (size_t)slot * 8192, BYTES, &err));
        }
    }
    for (int slot = 0; slot < SLOTS; slot++) {
        HERE_OK(ckpt_ranks_wait(r.ranks, slot, &err));
    }
    return close_all(&r);
}

/* What the library says later comes out of the wait. */
static int sizes_differ(int rank)
{
    gpu_rank r = {0};
    ckpt_err err = {0};
    HERE(open_all(&r) == 0);
    if (rank == 0) {
        HERE_OK(ckpt_ranks_send(r.ranks, 0, 1, 0, r.base, 10, &err));
    } else {
        HERE_OK(ckpt_ranks_receive(r.ranks, 0, 0, 0, r.base, 11, &err));
    }
    HERE(ckpt_ranks_wait(r.ranks, 0, &err) == CKPT_DEVICE);
    HERE(strcmp(err.msg, "NCCL: a message: an error of the double") == 0);
    return close_all(&r); /* the other has not asked yet, perhaps */
}

/* One rank cannot: all say why, and none waits for it. */
static int one_cannot(int rank)
{
    gpu_rank r = {0};
    ckpt_err err = {0};
    if (rank == 0) {
        setenv("NCCL_DOUBLE_FAILS", "1", 1);
    }
    if (rank == 1) {
        setenv("CKPT_NCCL", "/no/such/libnccl.so", 1);
    }
    HERE_OK(ckpt_device_emulated.open(0, 1, &r.device, &err));
    HERE_OK(ckpt_ranks_open(&r.ranks, &err));
    HERE(ckpt_ranks_carry(r.ranks, ckpt_device_carry, r.device, &err) == CKPT_DEVICE);
    HERE(strncmp(err.msg, "rank 0: NCCL: ncclGetUniqueId: ", 31) == 0);
    unsetenv("NCCL_DOUBLE_FAILS");
    HERE(ckpt_ranks_carry(r.ranks, ckpt_device_carry, r.device, &err) == CKPT_DEVICE);
    HERE(strstr(err.msg, "rank 1: several ranks on GPUs need NCCL, which cannot be loaded: /no/such") == err.msg);
    ckpt_ranks_close(r.ranks);
    ckpt_device_close(r.device);
    HERE(ckpt_memory_live() == 0);
    return 0;
}

static void exchange(void **state)
{
    run(2, all_to_all);
    run(4, all_to_all);
}

static void pipeline(void **state)
{
    run(2, stages);
    run(4, stages);
}

static void late_error(void **state)
{
    run(2, sizes_differ);
}

static void refused(void **state)
{
    ckpt_ranks *ranks = NULL;
    ckpt_device *device = NULL;
    ckpt_err err = {0};
    (void)state;
    run(3, one_cannot);
    CHECK_OK(ckpt_ranks_open(&ranks, &err), err);
    CHECK_OK(ckpt_device_open("cpu", 1, &device, &err), err);
    assert_int_equal(ckpt_ranks_carry(ranks, ckpt_device_carry, device, &err), CKPT_DEVICE);
    assert_string_equal(err.msg, "device cpu: messages are in the host's memory");
    ckpt_device_close(device);
    ckpt_ranks_close(ranks);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(exchange), cmocka_unit_test(pipeline),
                                              cmocka_unit_test(late_error), cmocka_unit_test(refused)};
    setenv("CKPT_NCCL", ckpt_bin_file("libnccl_double.so"), 1);
    setenv("CKPT_RANKS_WAIT", "20", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The chain DP alone: CPU time and peak memory on made-up chains. bench_chain_dp [POINTS [CHAIN [PERCENT [BLOCKS]]]].
 * Each case runs in a process of its own, so that its peak memory is its own. The budget is a part of what keeping all
 * takes. Chains: equal blocks; random (sizes, times and peaks of every block independent); resnet (bottleneck blocks of
 * three stages, batch norm and ReLU, shortcuts joined: three kinds of equal blocks and the first one of each stage);
 * gpt (attention and MLP halves, equal layers, a large head). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "planner/chain/chain_dp.h"

enum { BLOCKS_MAX = 2000 };

typedef struct made {
    ckpt_dp_block block[BLOCKS_MAX + 1];
    ckpt_dp_keep keep[BLOCKS_MAX + 1];
    ckpt_dp_leaf leaf[BLOCKS_MAX + 1];
    int count;
} made;

static uint64_t roll(uint64_t *state, uint64_t low, uint64_t high)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return low + *state % (high - low + 1);
}

/* A block that saves `inside` bytes beside what it hands on. */
static void add(made *m, ckpt_bytes crossing, ckpt_bytes inside, ckpt_bytes extra, ckpt_ns time)
{
    const int k = ++m->count;
    const ckpt_bytes before = k > 1 ? m->block[k - 1].crossing_bytes : 0;
    const ckpt_bytes saved = crossing + inside;
    m->block[k] = (ckpt_dp_block){
        .keep = &m->keep[k],
        .leaf = &m->leaf[k],
        .keep_count = 1,
        .leaf_count = 1,
        .gradient_bytes = crossing,
        .crossing_bytes = crossing,
    };
    m->keep[k] = (ckpt_dp_keep){.bytes = saved, .back_peak = saved + before + crossing + extra};
    for (int pass = 0; pass < CKPT_DP_PASSES; pass++) {
        m->block[k].drop_time[pass] = time;
        m->block[k].drop_peak[pass] = crossing + extra + inside / 4;
        m->block[k].going_peak[pass] = before + crossing + extra + inside / 4;
        m->keep[k].time[pass] = 3 * time;
        m->keep[k].forward_peak[pass] = saved + extra;
        m->leaf[k].time[pass] = 3 * time;
        m->leaf[k].peak[pass] = m->keep[k].back_peak;
    }
}

static void make(made *m, const char *name, int count)
{
    uint64_t state = 88172645463325252u;
    const int stages[] = {4, 2, 1};
    for (int i = 0; i < count; i++) {
        const int stage = 3 * i / count;
        const ckpt_bytes wide = (ckpt_bytes)16 * 1024 * 1024 * stages[stage];
        if (strcmp(name, "equal") == 0) {
            add(m, 1048576, 7 * 1048576 + 4096, 1000, 1000000);
        } else if (strcmp(name, "random") == 0) {
            const ckpt_bytes crossing = (ckpt_bytes)roll(&state, 100000, 10000000);
            const ckpt_bytes inside = (ckpt_bytes)roll(&state, 0, 30000000);
            add(m, crossing, inside, (ckpt_bytes)roll(&state, 0, 5000000), (ckpt_ns)roll(&state, 100000, 10000000));
        } else if (strcmp(name, "resnet") == 0) {
            const bool first = i == 0 || stage != 3 * (i - 1) / count;
            add(m, wide, 2 * wide + 512 + (first ? 2 * wide : 0), wide / 4, 900000 + (first ? 400000 : 0));
        } else if (i + 1 == count) {
            add(m, 4, (ckpt_bytes)8 * 1024 * 50257 * 4, 0, 30000000);
        } else {
            const ckpt_bytes row = (ckpt_bytes)8 * 1024 * 4;
            add(m, row * 1600, i % 2 == 0 ? row * (6 * 1600 + 26) : row * (10 * 1600 + 2), row * 100,
                i % 2 == 0 ? 4100000 : 7300000);
        }
    }
}

static void run(const char *name, int count, int percent, int points)
{
    static made m;
    ckpt_arena out;
    ckpt_arena_init(&out);
    make(&m, name, count);
    const ckpt_dp_chain chain = {m.block, m.count, NULL};
    ckpt_bytes whole = 0;
    ckpt_ns base = 0;
    for (int k = 1; k <= m.count; k++) {
        whole += m.keep[k].bytes;
        base += m.keep[k].time[0];
    }
    const ckpt_plan_options options = {0};
    const ckpt_dp_effort effort = {.points = points};
    ckpt_dp_result candidates;
    ckpt_err err = {0};
    const clock_t start = clock();
    const ckpt_code code = ckpt_dp_solve(&chain, whole / 100 * percent, &effort, &options, &out, &candidates, &err);
    const double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    if (code != CKPT_OK) {
        printf("%s\n", err.msg);
    } else if (candidates.schedule.count == 0) {
        printf("%-7s %5d %5d %%  infeasible %33.3f %9.1f\n", name, count, percent, seconds,
               (double)usage.ru_maxrss / 1024);
    } else {
        const double time = 100 * ((double)candidates.schedule.time / (double)base - 1);
        const double bound = 100 * ((double)candidates.bound / (double)base - 1);
        printf("%-7s %5d %5d %% %10.4f %% %10.4f %%  %-7s %9.3f %9.1f %9.1f\n", name, count, percent, time, bound,
               candidates.exact ? "exact" : "", seconds, (double)usage.ru_maxrss / 1024,
               (double)candidates.work * 1e-6);
    }
    fflush(stdout);
    ckpt_arena_fini(&out);
}

int main(int argc, char **argv)
{
    const struct {
        const char *name;
        int count;
    } all[] = {{"equal", 400}, {"equal", 1000}, {"random", 400}, {"resnet", 333}, {"gpt", 193}};
    const int percents[] = {70, 50, 30, 15, 8, 4, 3, 2, 1};
    const int points = argc > 1 ? atoi(argv[1]) : 0;
    printf("%-7s %5s %7s %12s %12s  %-7s %9s %9s %9s\n", "chain", "L", "budget", "overhead", "bound", "", "CPU s", "MB",
           "M steps");
    fflush(stdout);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        for (size_t p = 0; p < sizeof percents / sizeof *percents; p++) {
            if ((argc > 2 && strcmp(argv[2], all[i].name) != 0) || (argc > 3 && atoi(argv[3]) != percents[p])) {
                continue;
            }
            const pid_t child = fork();
            if (child == 0) {
                run(all[i].name, argc > 4 ? atoi(argv[4]) : all[i].count, percents[p], points);
                _exit(0);
            }
            waitpid(child, NULL, 0);
        }
    }
    return 0;
}

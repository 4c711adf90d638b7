/* How long packing takes, and what it comes to: bench_pack FILE.csv[:CAPACITY] ...; without arguments, tests/arenas.
 * One core; processor time, the median of five runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "planner/placement/pack.h"
#include "programs/cli/cli.h"

enum { RUNS = 5 };

static int compare_seconds(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool bench(const char *path, const char *capacity)
{
    const ckpt_plan_options options = {.effort = CKPT_EFFORT_NORMAL};
    double seconds[RUNS];
    ckpt_text summary;
    ckpt_text_init(&summary);
    bool within = false;
    for (int run = 0; run < RUNS; run++) {
        ckpt_err err = {0};
        ckpt_text_fini(&summary);
        ckpt_text_init(&summary);
        const clock_t start = clock();
        if (ckpt_pack_file(path, "/dev/null", capacity, &options, &summary, &within, &err) != CKPT_OK) {
            fprintf(stderr, "bench_pack: %s\n", err.msg);
            ckpt_text_fini(&summary);
            return false;
        }
        seconds[run] = (double)(clock() - start) / (double)CLOCKS_PER_SEC;
    }
    qsort(seconds, RUNS, sizeof *seconds, compare_seconds);
    const char *const name = strrchr(path, '/');
    printf("%-20s %.3f s (%.3f to %.3f): %s", name != NULL ? name + 1 : path, seconds[RUNS / 2], seconds[0],
           seconds[RUNS - 1], summary.bytes != NULL ? summary.bytes : "\n");
    ckpt_text_fini(&summary);
    return within;
}

int main(int argc, char **argv)
{
    static const char *const known[] = {"A.1048576.csv:1048576", "B.1048576.csv:1048576", "C.1048576.csv:1048576",
                                        "D.1048576.csv:1048576", "E.1048576.csv:1048576", "F.1048576.csv:1048576",
                                        "C.1048576.csv",         "resnet50.csv"};
    const int count = argc > 1 ? argc - 1 : (int)(sizeof known / sizeof *known);
    bool all = true;
    for (int i = 0; i < count; i++) {
        char path[4096];
        const int length = argc > 1 ? snprintf(path, sizeof path, "%s", argv[i + 1])
                                    : snprintf(path, sizeof path, "tests/arenas/%s", known[i]);
        if (length < 0 || length >= (int)sizeof path) {
            fprintf(stderr, "bench_pack: a name of %d characters is too long\n", length);
            return 2;
        }
        char *const capacity = strrchr(path, ':');
        if (capacity != NULL) {
            *capacity = '\0';
        }
        all = bench(path, capacity != NULL ? capacity + 1 : NULL) && all;
    }
    return all ? 0 : 1;
}

/* How fast and how good local search is: bench_search PERCENT MOVES graph.json... (PERCENT of keep-all's live peak).
 * Prints time over keep-all, elementary moves (a pair of an op and a stage more or less) per second of CPU time. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "planner/search/search.h"
#include "planner/search/search_impl.h"

static ckpt_code run(const char *path, double percent, int64_t moves, ckpt_arena *arena, ckpt_err *err)
{
    const ckpt_graph *graph = NULL;
    ckpt_search keep;
    CKPT_TRY(ckpt_graph_read(path, arena, &graph, err));
    CKPT_TRY(ckpt_search_init(graph, arena, &keep, err));
    const ckpt_bytes limit = (ckpt_bytes)((double)keep.most[1] * percent / 100);
    const ckpt_plan_options options = {0};
    ckpt_candidates candidates = {.min_peak = {.peak = CKPT_BYTES_MAX, .time = INT64_MAX}};
    const clock_t start = clock();
    CKPT_TRY(ckpt_search_improve(graph, limit, moves, &options, arena, &candidates, err));
    const double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    const ckpt_candidate *const best = candidates.count > 0 ? &candidates.candidate[0] : &candidates.min_peak;
    printf("%s  %d ops  %s  peak %.2f %%  overhead %.3f %%  %.2f s  %.2f M moves/s\n", path, graph->op_count,
           candidates.count > 0 ? "fits" : "least", 100 * (double)best->peak / (double)keep.most[1],
           100 * ((double)best->time / (double)keep.time - 1), seconds, (double)moves / seconds * 1e-6);
    return CKPT_OK;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "bench_search: usage: bench_search PERCENT MOVES graph.json...\n");
        return 2;
    }
    int worst = 0;
    for (int i = 3; i < argc; i++) {
        ckpt_arena arena;
        ckpt_arena_init(&arena);
        ckpt_err err = {0};
        const ckpt_code code = run(argv[i], strtod(argv[1], NULL), strtoll(argv[2], NULL, 10), &arena, &err);
        if (code != CKPT_OK) {
            fprintf(stderr, "bench_search: %s\n", err.msg);
        }
        worst = ckpt_exit_code(code) > worst ? ckpt_exit_code(code) : worst;
        ckpt_arena_fini(&arena);
    }
    return worst;
}

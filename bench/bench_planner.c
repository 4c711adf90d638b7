/* Times every strategy on graph files: bench_planner PERCENT graph.json... (PERCENT of keep-all's peak). Prints peak,
 * overhead, fragmentation (arena over live bytes) and the planner's time. */
#include <stdio.h>
#include <stdlib.h>

#include "planner/planner.h"
#include "planner/replay.h"

static int run(const char *path, double percent, const char *strategy)
{
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_err err = {0};
    const ckpt_graph *graph = NULL;
    ckpt_plan *plan = NULL;
    ckpt_bytes peak = 0;
    ckpt_ns time = 0;
    ckpt_code code = ckpt_graph_read(path, &arena, &graph, &err);
    code = code == CKPT_OK ? ckpt_keep_all_measure(graph, &arena, &peak, &time, &err) : code;
    const ckpt_plan_options options = {.budget_bytes = (ckpt_bytes)((double)peak * percent / 100)};
    code = code == CKPT_OK ? ckpt_plan_make(graph, strategy, &options, &arena, &plan, &err) : code;
    if (code != CKPT_OK) {
        fprintf(stderr, "bench_planner: %s\n", err.msg);
    } else if (plan->verdict == CKPT_INFEASIBLE) {
        printf("%-14s infeasible, least %.1f %% of keep-all, %.3f s  %s\n", strategy,
               100 * (double)plan->least_budget_bytes / (double)peak, plan->solver_seconds, path);
    } else {
        const double live = (double)(plan->peak_bytes - plan->static_bytes);
        printf("%-14s peak %5.1f %%  overhead %6.2f %%  bound %6.2f %%  arena/live %.4f  %.3f s  %s\n", strategy,
               100 * (double)plan->peak_bytes / (double)peak, 100 * ((double)plan->time_ns / (double)time - 1),
               100 * ((double)plan->bound_ns / (double)time - 1), (double)plan->arena_bytes / live,
               plan->solver_seconds, path);
    }
    ckpt_arena_fini(&arena);
    return ckpt_exit_code(code);
}

int main(int argc, char **argv)
{
    int worst = argc < 3 ? 2 : 0;
    if (worst != 0) {
        fprintf(stderr, "bench_planner: usage: bench_planner PERCENT graph.json...\n");
    }
    for (int i = 2; i < argc; i++) {
        for (int s = 0; ckpt_strategy_table[s] != NULL; s++) {
            const int code = run(argv[i], strtod(argv[1], NULL), ckpt_strategy_table[s]->name);
            worst = code > worst ? code : worst;
        }
    }
    return worst;
}

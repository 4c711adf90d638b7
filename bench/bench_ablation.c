/* What each part of the strategy `auto` is worth: every graph is planned with all parts, and with each part left out.
 *
 *     bench_ablation EFFORT SHARE,... PART,... [link] graph.json...
 *
 * Budgets are the minimum budget plus SHARE percent of what keep-all takes more. PART: names of the table below, or
 * "all". A part that does not begin when all parts are at work is not left out: nothing would change. `link`: each graph
 * has a link that copies all that is written in half a step.
 *
 * One line per plan, columns divided by tabs: graph, ops, share ("none": the minimum budget itself), part left out ("":
 * none), verdict, time in ns (infeasible: minimum budget), bound, CPU seconds of the thread. bench/ablation.py makes a
 * table of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "planner/api/planner.h"
#include "planner/ilp/solver.h"

static const struct part {
    unsigned bits;
    const char *name;
} parts[] = {
    {0, ""},
    {CKPT_PART_CHAIN, "chain"},
    {CKPT_PART_HIERARCHY, "hierarchy"},
    {CKPT_PART_MICRO, "micro"},
    {CKPT_PART_BOUND, "bound"},
    {CKPT_PART_PROGRAM, "program"},
    {CKPT_PART_NEIGHBOURHOOD, "neighbourhood"},
    {CKPT_PART_PROGRAM | CKPT_PART_NEIGHBOURHOOD, "solver"},
    {CKPT_PART_SEARCH, "search"},
    {CKPT_PART_EXACT, "exact"},
    {CKPT_PART_JOINT, "joint"},
    {CKPT_PART_PRICE, "price"},
};
enum { PARTS = sizeof parts / sizeof *parts };

static void note_part(void *context, const ckpt_plan_progress *progress)
{
    unsigned *const begun = context;
    for (int i = 1; i < PARTS; i++) {
        *begun |= strcmp(parts[i].name, progress->part) == 0 ? parts[i].bits : 0;
    }
}

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

typedef struct job {
    const char *path, *shares, *wanted; /* wanted: names of parts, "all" */
    const ckpt_graph *graph;
    int effort;
    bool link;
} job;

/* One line; `begun`: the parts that began. */
static ckpt_code plan(const job *j, ckpt_bytes budget, const char *share, const struct part *without, unsigned *begun,
                      ckpt_bytes *min_budget, ckpt_bytes *whole, ckpt_arena *arena, ckpt_err *err)
{
    const ckpt_plan_options options = {.budget_bytes = budget,
                                       .effort = j->effort,
                                       .solver = &ckpt_solver_glpk,
                                       .without = without->bits,
                                       .progress = note_part,
                                       .context = begun};
    ckpt_plan *made = NULL;
    const double start = cpu_seconds();
    CKPT_TRY(ckpt_plan_make(j->graph, "auto", &options, arena, &made, err));
    const double seconds = cpu_seconds() - start;
    const bool fits = made->verdict == CKPT_FITS;
    const char *const slash = strrchr(j->path, '/');
    const char *const name = slash != NULL ? slash + 1 : j->path;
    printf("%.*s%s\t%d\t%s\t%s\t%s\t%lld\t%lld\t%.4f\n", (int)strcspn(name, "."), name, j->link ? " link" : "",
           j->graph->op_count, share, without->name, fits ? "fits" : "infeasible",
           (long long)(fits ? made->time_ns : made->min_budget_bytes),
           (long long)(fits ? made->bound_ns : made->no_schedule_below_bytes), seconds);
    fflush(stdout);
    *min_budget = made->min_budget_bytes;
    *whole = made->keep_all_peak_bytes;
    return CKPT_OK;
}

/* One budget with all parts, then without each that began. */
static ckpt_code plan_budget(const job *j, ckpt_bytes budget, const char *share, ckpt_bytes *min_budget,
                             ckpt_bytes *whole, ckpt_err *err)
{
    unsigned all = 0, ignored = 0;
    ckpt_bytes low = 0, high = 0;
    ckpt_code code = CKPT_OK;
    for (int i = 0; i < PARTS && code == CKPT_OK; i++) {
        const bool wanted = strcmp(j->wanted, "all") == 0 || strstr(j->wanted, parts[i].name) != NULL;
        if (i == 0 || (wanted && (parts[i].bits & all) != 0)) {
            ckpt_arena arena;
            ckpt_arena_init(&arena);
            code = plan(j, budget, share, &parts[i], i == 0 ? &all : &ignored, i == 0 ? min_budget : &low,
                        i == 0 ? whole : &high, &arena, err);
            ckpt_arena_fini(&arena);
        }
    }
    return code;
}

/* A link that copies all that is written in half a step. */
static void add_link(ckpt_graph *graph)
{
    double bytes = 0, time = 1;
    for (int b = 0; b < graph->buffer_count; b++) {
        bytes += (double)graph->buffer[b].bytes;
    }
    for (int o = 0; o < graph->op_count; o++) {
        time += (double)graph->op[o].time_ns;
    }
    graph->has_link = true;
    graph->d2h_bytes_per_s = graph->h2d_bytes_per_s = (int64_t)(bytes * 2e9 / time) + 1;
}

static ckpt_code run(job *j, ckpt_arena *arena, ckpt_err *err)
{
    const ckpt_graph *read = NULL;
    ckpt_bytes low = 0, high = 0, ignored = 0;
    CKPT_TRY(ckpt_graph_read(j->path, arena, &read, err));
    ckpt_graph graph = *read;
    if (j->link) {
        add_link(&graph);
    }
    j->graph = &graph;
    job whole = *j;
    whole.wanted = "";
    whole.effort = CKPT_EFFORT_NORMAL; /* the same budgets at every effort */
    CKPT_TRY(plan_budget(&whole, 1, "none", &low, &high, err));
    for (const char *at = j->shares; *at != '\0'; at += strcspn(at, ","), at += *at == ',') {
        char share[16];
        snprintf(share, sizeof share, "%.*s", (int)strcspn(at, ","), at);
        const ckpt_bytes budget = low + (ckpt_bytes)((double)(high - low) * strtod(share, NULL) / 100);
        CKPT_TRY(plan_budget(j, budget, share, &ignored, &ignored, err));
    }
    return CKPT_OK;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "bench_ablation: usage: bench_ablation EFFORT SHARE,... PART,... [link] graph.json...\n");
        return 2;
    }
    const bool link = strcmp(argv[4], "link") == 0;
    int worst = 0;
    for (int i = link ? 5 : 4; i < argc; i++) {
        ckpt_arena arena;
        ckpt_arena_init(&arena);
        ckpt_err err = {0};
        job j = {.path = argv[i],
                 .effort = (int)strtol(argv[1], NULL, 10),
                 .shares = argv[2],
                 .wanted = argv[3],
                 .link = link};
        const ckpt_code code = run(&j, &arena, &err);
        if (code != CKPT_OK) {
            fprintf(stderr, "bench_ablation: %s\n", err.msg);
        }
        worst = ckpt_exit_code(code) > worst ? ckpt_exit_code(code) : worst;
        ckpt_arena_fini(&arena);
    }
    return worst;
}

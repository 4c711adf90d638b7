/* Plans a small step built in memory, in C. With libckpt-dev installed:
 *     cc plan.c $(pkg-config --cflags --libs ckpt) -o plan */
#include <ckpt.h>
#include <inttypes.h>
#include <stdio.h>

enum { LAYERS = 6 };

/* Forward keeps an activation per layer, which backward reads: 1 MB each, and 2 MB of weights. */
static ckpt_graph *build(void)
{
    ckpt_graph *const graph = ckpt_graph_create("example");
    int32_t activation[LAYERS];
    int32_t gradient = -1;
    char name[32];
    if (graph == NULL) {
        return NULL;
    }
    ckpt_graph_add_static(graph, "weights", 2000000);
    for (int i = 0; i < LAYERS; i++) {
        snprintf(name, sizeof name, "layer%d", i);
        const int32_t op = ckpt_graph_add_op(graph, name, CKPT_PHASE_FORWARD, 100000, 0);
        activation[i] = ckpt_graph_add_buffer(graph, name, 1000000, CKPT_BUFFER_ACTIVATION);
        ckpt_op_writes(graph, op, activation[i]);
        if (i > 0) {
            ckpt_op_reads(graph, op, activation[i - 1]);
        }
    }
    for (int i = LAYERS - 1; i >= 0; i--) {
        snprintf(name, sizeof name, "layer%d/grad", i);
        const int32_t op = ckpt_graph_add_op(graph, name, CKPT_PHASE_BACKWARD, 200000, 0);
        ckpt_op_reads(graph, op, activation[i]);
        if (gradient >= 0) {
            ckpt_op_reads(graph, op, gradient);
        }
        gradient = ckpt_graph_add_buffer(graph, name, 1000000, CKPT_BUFFER_GRADIENT);
        ckpt_op_writes(graph, op, gradient);
    }
    return graph;
}

int main(void)
{
    ckpt_error error = {.message = "no memory"};
    ckpt_graph *const graph = build();
    ckpt_options *const options = ckpt_options_create();
    ckpt_plan *plan = NULL;
    const int failed = graph == NULL || options == NULL || ckpt_graph_finish(graph, &error) != CKPT_SUCCESS ||
                       ckpt_options_set(options, "budget", "75%", &error) != CKPT_SUCCESS ||
                       ckpt_plan_create(graph, options, &plan, &error) != CKPT_SUCCESS;
    if (failed) {
        fprintf(stderr, "%s\n", error.message);
    } else {
        static const char *const actions[] = {"run", "free", "offload", "fetch"};
        ckpt_plan_summary sum;
        int32_t count = 0;
        ckpt_plan_summarize(plan, &sum);
        const ckpt_plan_step *const step = ckpt_plan_steps(plan, &count);
        printf("peak %" PRId64 " of %" PRId64 " bytes, time +%.1f %%\n", sum.peak_bytes, sum.keep_all_peak_bytes,
               100.0 * (double)sum.recompute_ns / (double)sum.keep_all_time_ns);
        for (int32_t i = 0; i < count; i++) {
            printf("%s %s%s\n", actions[step[i].action], step[i].name, step[i].recomputed ? " (recomputed)" : "");
        }
    }
    ckpt_plan_destroy(plan);
    ckpt_options_destroy(options);
    ckpt_graph_destroy(graph);
    return failed;
}

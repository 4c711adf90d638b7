// Plans a small step built in memory, in C++. With libckpt-dev installed:
//     c++ plan.cpp $(pkg-config --cflags --libs ckpt) -o plan
#include <ckpt.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

using Graph = std::unique_ptr<ckpt_graph, decltype(&ckpt_graph_destroy)>;
using Options = std::unique_ptr<ckpt_options, decltype(&ckpt_options_destroy)>;
using Plan = std::unique_ptr<ckpt_plan, decltype(&ckpt_plan_destroy)>;

static void check(int status, const ckpt_error &error)
{
    if (status != CKPT_SUCCESS) {
        throw std::runtime_error(error.message);
    }
}

static Graph build(int layers)
{
    Graph graph(ckpt_graph_create("example"), ckpt_graph_destroy);
    std::vector<int32_t> activation;
    int32_t gradient = -1;
    if (!graph) {
        throw std::bad_alloc();
    }
    ckpt_graph_add_static(graph.get(), "weights", 2000000);
    for (int i = 0; i < layers; i++) {
        const std::string name = "layer" + std::to_string(i);
        const int32_t op = ckpt_graph_add_op(graph.get(), name.c_str(), CKPT_PHASE_FORWARD, 100000, 0);
        activation.push_back(ckpt_graph_add_buffer(graph.get(), name.c_str(), 1000000, CKPT_BUFFER_ACTIVATION));
        ckpt_op_writes(graph.get(), op, activation[i]);
        if (i > 0) {
            ckpt_op_reads(graph.get(), op, activation[i - 1]);
        }
    }
    for (int i = layers - 1; i >= 0; i--) {
        const std::string name = "layer" + std::to_string(i) + "/grad";
        const int32_t op = ckpt_graph_add_op(graph.get(), name.c_str(), CKPT_PHASE_BACKWARD, 200000, 0);
        ckpt_op_reads(graph.get(), op, activation[i]);
        if (gradient >= 0) {
            ckpt_op_reads(graph.get(), op, gradient);
        }
        gradient = ckpt_graph_add_buffer(graph.get(), name.c_str(), 1000000, CKPT_BUFFER_GRADIENT);
        ckpt_op_writes(graph.get(), op, gradient);
    }
    return graph;
}

int main()
{
    try {
        ckpt_error error;
        const Graph graph = build(6);
        const Options options(ckpt_options_create(), ckpt_options_destroy);
        ckpt_plan *made = nullptr;
        check(ckpt_graph_finish(graph.get(), &error), error);
        check(ckpt_options_set(options.get(), "budget", "75%", &error), error);
        check(ckpt_plan_create(graph.get(), options.get(), &made, &error), error);
        const Plan plan(made, ckpt_plan_destroy);
        ckpt_plan_summary sum;
        ckpt_plan_summarize(plan.get(), &sum);
        std::printf("peak %lld of %lld bytes, time +%.1f %%\n", static_cast<long long>(sum.peak_bytes),
                    static_cast<long long>(sum.keep_all_peak_bytes),
                    100.0 * static_cast<double>(sum.recompute_ns) / static_cast<double>(sum.keep_all_time_ns));
        return 0;
    } catch (const std::exception &wrong) {
        std::fprintf(stderr, "%s\n", wrong.what());
        return 1;
    }
}

/* Written by scripts/fit_device from the recordings in traces/cpu-2-threads/profiles: docs/explanation/cost-model.md.
 * Per op what its time is, times the roofline's, forward, backward, and of updates. */
static const ckpt_op_factor cpu_factors[] = {
    {"add", {0.93, 1.1, 0}},
    {"attention", {1.5, 1.4, 0}},
    {"avgpool2d", {2.1, 3.1, 0}},
    {"batchnorm", {2.4, 1.3, 0}},
    {"concat", {1, 1, 0}},
    {"conv2d", {0.91, 1.1, 0}},
    {"cross_entropy", {3.3, 2.3, 0}},
    {"dropout", {4.7, 4.7, 0}},
    {"embedding", {0.86, 0.4, 0}},
    {"flatten", {3.9, 3.8, 0}},
    {"gelu", {4.1, 3.1, 0}},
    {"global_avgpool", {2.8, 2.1, 0}},
    {"layernorm", {2.2, 1.5, 0}},
    {"linear", {0.89, 0.92, 0}},
    {"lstm_cell", {1.2, 1.1, 0}},
    {"maxpool2d", {1.4, 1.9, 0}},
    {"positional_embedding", {1.1, 0.98, 0}},
    {"relu", {0.88, 0.86, 0}},
    {"relu6", {0.93, 0.88, 0}},
    {"split", {1, 1, 0}},
    {"update", {0, 0, 0.59}},
    {"upsample", {2, 3.3, 0}},
    {NULL, {0}},
};
/* clang-format off */
#define CPU_FITTED \
    .flop_per_s = 1.9e+11, \
    .flop_per_s16 = 1.9e+11, \
    .bytes_per_s = 3.6e+10, \
    .cache_bytes_per_s = 1.61e+11, \
    .cache_bytes = 19900000, \
    .launch_ns = 828, \
    .factor = cpu_factors, \
    .fitted_to = "cpu: AMD EPYC, 2 threads"

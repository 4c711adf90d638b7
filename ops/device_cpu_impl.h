/* Written by scripts/fit_device from the recordings in traces/cpu-2-threads/profiles: docs/cost-model.md.
 * Per op what its time is, times the roofline's, forward, backward, and of updates. */
static const ckpt_op_factor cpu_factors[] = {
    {"add", {0.95, 1.1, 0}},
    {"attention", {1.6, 1.4, 0}},
    {"avgpool2d", {2.3, 3.3, 0}},
    {"batchnorm", {2.5, 1.2, 0}},
    {"concat", {1, 1.1, 0}},
    {"conv2d", {0.91, 1.1, 0}},
    {"cross_entropy", {3.7, 2.4, 0}},
    {"dropout", {4.5, 4.5, 0}},
    {"embedding", {1.2, 0.45, 0}},
    {"flatten", {4, 3.8, 0}},
    {"gelu", {4.7, 4, 0}},
    {"global_avgpool", {2.7, 2.3, 0}},
    {"layernorm", {2.2, 1.4, 0}},
    {"linear", {0.87, 0.9, 0}},
    {"lstm_cell", {1.2, 1.1, 0}},
    {"maxpool2d", {1.4, 1.9, 0}},
    {"positional_embedding", {0.95, 0.97, 0}},
    {"relu", {0.88, 0.87, 0}},
    {"relu6", {0.94, 0.9, 0}},
    {"split", {1.1, 1, 0}},
    {"update", {0, 0, 0.62}},
    {"upsample", {2.1, 3.2, 0}},
    {NULL, {0}},
};
#define CPU_FITTED \
    .flop_per_s = 1.85e+11, \
    .flop_per_s16 = 1.85e+11, \
    .bytes_per_s = 4.79e+10, \
    .cache_bytes_per_s = 1.6e+11, \
    .cache_bytes = 20000000, \
    .launch_ns = 771, \
    .factor = cpu_factors, \
    .fitted_to = "cpu: AMD EPYC, 2 threads"

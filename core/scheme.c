/* How a step is spread over micro-batches, replicas and stages. */
#include "core/scheme.h"

const ckpt_scheme ckpt_scheme_alone = {
    .micro_batches = 1,
    .replicas = 1,
    .stages = 1,
    .bucket_bytes = (ckpt_bytes)25 << 20,
    .network_bytes_per_s = 10000000000,
};

bool ckpt_scheme_is_plain(const ckpt_scheme *scheme)
{
    return scheme->micro_batches == 1 && scheme->replicas == 1 && scheme->stages == 1 && !scheme->fused;
}

int ckpt_scheme_ranks(const ckpt_scheme *scheme)
{
    return scheme->replicas * scheme->stages;
}

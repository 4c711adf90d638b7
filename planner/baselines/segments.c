/* Writes the order of runs for a chain in segments. */
#include "planner/baselines/segments_impl.h"

void ckpt_segments_write(const ckpt_chain *chain, const int *end, int segments, ckpt_order *order)
{
    for (int k = 1; k <= chain->count; k++) {
        ckpt_chain_forward(chain, k, CKPT_DP_FIRST, 0, order);
    }
    for (int i = segments - 1; i >= 0; i--) {
        const int first = i > 0 ? end[i - 1] + 1 : 1;
        for (int k = first; i < segments - 1 && k <= end[i]; k++) {
            /* nobody inside the segment reads what crosses behind its last block */
            ckpt_chain_forward(chain, k, CKPT_DP_RECOMPUTED,
                               k < end[i] ? CKPT_IN_OUT | CKPT_IN_BACKWARD : CKPT_IN_BACKWARD, order);
        }
        for (int k = end[i]; k >= first; k--) {
            ckpt_chain_backward(chain, k, order);
        }
    }
}

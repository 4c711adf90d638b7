/* With which layer's backward the gradients of a layer's parameters are complete. */
#include "ops/lower_impl.h"
#include "ops/network_impl.h"

ckpt_code ckpt_lower_gradients(ckpt_lowering *l, ckpt_err *err)
{
    const ckpt_network *const network = l->network;
    CKPT_TRY(ckpt_network_reach(network, l->out, &l->has_backward, err));
    l->completes = CKPT_NEW(l->out, int, network->node_count);
    if (l->completes == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "gradients of %d layers", network->node_count);
    }
    for (int n = 0; n < network->node_count; n++) {
        l->completes[n] = -1;
    }
    for (int n = network->node_count - 1; n >= 0; n--) { /* as backward goes: the lowest layer is the last */
        const ckpt_node *const node = &network->node[n];
        for (int k = 0; k < node->param_count && l->has_backward[n]; k++) {
            l->completes[node->param[k].tied >= 0 ? node->param[k].tied : n] = n;
        }
    }
    return CKPT_OK;
}

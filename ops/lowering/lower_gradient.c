/* With which layer's backward the gradients of a layer's parameters are complete. */
#include "ops/lowering/lower_impl.h"
#include "ops/lowering/network_impl.h"

ckpt_code ckpt_lower_gradients(ckpt_lowering *l, ckpt_err *err)
{
    const ckpt_network *const network = l->network;
    CKPT_TRY(ckpt_network_reach(network, l->out, &l->has_backward, err));
    l->completes = CKPT_NEW(l->out, int, network->node_count);
    if (l->completes == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "gradients of %d layers", network->node_count);
    }
    ckpt_network_completes(network, l->has_backward, l->completes);
    return CKPT_OK;
}

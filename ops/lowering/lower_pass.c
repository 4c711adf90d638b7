/* One buffer for several gradients.
 *
 * The gradient of a sum is the gradient of each of its inputs. On a GPU, where a copy costs a pass over memory, the
 * inputs whose gradients nobody has written yet get the sum's own buffer: a residual stream has one buffer for its
 * gradient all the way down, the branches read it, and what they contribute is added to it.
 *
 * That is right as long as no gradient changes while another that is in the same buffer is still to be read. An input's
 * gradient is read by the backward of its producer, and changed by the backwards of its other readers, which run in
 * decreasing order of layers. So of the inputs that get one buffer,
 *     - the one with the first producer may be added to, by layers before the producers of all others;
 *     - the others may not be added to at all,
 * and only the last of them to be read may hand the buffer on. Plans keep every addition where the reference order has
 * it, between the reads before and behind it (planner/replay/check.c). */
#include "ops/lowering/lower_impl.h"

/* The last layer before `node` that adds to the gradient of that storage; -1: none does. */
static int find_adder(const ckpt_lowering *l, const ckpt_node *node, int storage)
{
    for (int n = node->index - 1; n > l->network->value[storage].node; n--) {
        const ckpt_node *const other = &l->network->node[n];
        for (int k = 0; k < other->in_count && l->has_backward[n] && ckpt_lower_here(l, n); k++) {
            if ((other->grad_in >> k & 1) != 0 && l->network->value[other->in_value[k]].storage == storage) {
                return n;
            }
        }
    }
    return -1;
}

/* Is the gradient of input k still unwritten and of the output's shape (one that was stretched is summed), is it of this
 * stage alone (one that is sent back is read only after those before it), and does no other input have the same
 * storage? */
static bool is_free(const ckpt_lowering *l, const ckpt_node *node, int k)
{
    const ckpt_value *const value = l->network->value;
    const int storage = value[node->in_value[k]].storage;
    bool is = (node->grad_in >> k & 1) != 0 && *ckpt_lower_grad(l, storage) < 0 && l->route_of[storage] < 0 &&
              ckpt_shape_equal(&node->in[k].shape, &node->out[0].shape);
    for (int i = 0; i < node->in_count; i++) {
        is = is && (i == k || value[node->in_value[i]].storage != storage);
    }
    return is;
}

uint64_t ckpt_lower_pass(ckpt_lowering *l, const ckpt_node *node)
{
    const int buffer = *ckpt_lower_grad(l, node->out_value[0]);
    if (!node->op->passes_gradient || l->network->threads != CKPT_ON_GPU || buffer < 0 ||
        (l->pass_end[buffer] >= 0 && l->pass_end[buffer] != node->index)) {
        return 0;
    }
    uint64_t passed = 0;
    int stream = -1, stream_at = -1, first = node->index; /* the input with the first producer; that of all others */
    for (int k = 0; k < node->in_count; k++) {
        const int storage = l->network->value[node->in_value[k]].storage, at = l->network->value[storage].node;
        if (!is_free(l, node, k)) {
            continue;
        }
        if (find_adder(l, node, storage) < 0) {
            passed |= (uint64_t)1 << k;
            first = at < first ? at : first;
        } else if (stream < 0 || at < stream_at) {
            stream = k;
            stream_at = at;
        }
    }
    if (stream >= 0 && stream_at < first &&
        find_adder(l, node, l->network->value[node->in_value[stream]].storage) < first) {
        passed |= (uint64_t)1 << stream;
        first = stream_at;
    }
    for (int k = 0; k < node->in_count; k++) {
        if ((passed >> k & 1) != 0) {
            *ckpt_lower_grad(l, node->in_value[k]) = buffer;
        }
    }
    if (passed != 0) {
        l->pass_end[buffer] = first;
    }
    return passed;
}

/* What a layer takes that the CPU runs in float32 in a bfloat16 network. */
#include "ops/widened.h"

#include "ops/ops_impl.h"

/* Those of `mask` that are bfloat16. */
static uint64_t narrow_of(const ckpt_tensor *tensor, int count, uint64_t mask)
{
    uint64_t bits = 0;
    for (int k = 0; k < count; k++) {
        bits |= tensor[k].dtype == CKPT_BFLOAT16 ? mask & UINT64_C(1) << k : 0;
    }
    return bits;
}

bool ckpt_node_widens(const ckpt_node *node)
{
    return node->dtype == CKPT_BFLOAT16 && node->threads != CKPT_ON_GPU && !node->native16 && !node->alias &&
           (narrow_of(node->in, node->in_count, UINT64_MAX) | narrow_of(node->out, node->out_count, UINT64_MAX) |
            narrow_of(node->saved, node->saved_count, UINT64_MAX)) != 0;
}

bool ckpt_widened_in_pieces(const ckpt_node *node)
{
    return node->by_element && ckpt_shape_count(&node->in[0].shape) > CKPT_WIDENED_PIECE;
}

ckpt_widened ckpt_widened_of(const ckpt_node *node, bool backward, const ckpt_way *way)
{
    const uint64_t params = (UINT64_C(1) << node->param_count) - 1;
    const uint64_t saved = !backward ? ckpt_node_saves(node, way) : way != NULL ? way->saved : node->backward_saved;
    const uint64_t in = !backward ? UINT64_MAX : way != NULL ? way->in : node->backward_in;
    const uint64_t out = !backward ? UINT64_MAX : way != NULL ? way->out : node->backward_out;
    return (ckpt_widened){.in = narrow_of(node->in, node->in_count, in),
                          .out = narrow_of(node->out, node->out_count, out),
                          .saved = narrow_of(node->saved, node->saved_count, saved),
                          .grad_out = backward ? narrow_of(node->out, node->out_count, UINT64_MAX) : 0,
                          .grad_in = backward ? narrow_of(node->in, node->in_count, node->grad_in) : 0,
                          .param = node->op->param16 & params};
}

/* Of float32 copies of the tensors in `mask`, or, if in_pieces, of a thread's pieces of them. */
static ckpt_bytes copies(const ckpt_tensor *tensor, int count, uint64_t mask, bool in_pieces)
{
    ckpt_bytes bytes = 0;
    for (int k = 0; k < count; k++) {
        const int64_t elements = in_pieces ? CKPT_WIDENED_PIECE : ckpt_shape_count(&tensor[k].shape);
        const ckpt_bytes one = ckpt_aligned(ckpt_times(4, elements));
        bytes = (mask >> k & 1) != 0 ? ckpt_plus(bytes, one) : bytes;
    }
    return bytes;
}

ckpt_bytes ckpt_widened_bytes(const ckpt_node *node, const ckpt_widened *widened)
{
    const bool in_pieces = ckpt_widened_in_pieces(node);
    ckpt_bytes bytes = copies(node->in, node->in_count, widened->in, in_pieces);
    bytes = ckpt_plus(bytes, copies(node->in, node->in_count, widened->grad_in, in_pieces));
    bytes = ckpt_plus(bytes, copies(node->out, node->out_count, widened->out, in_pieces));
    bytes = ckpt_plus(bytes, copies(node->out, node->out_count, widened->grad_out, in_pieces));
    bytes = ckpt_plus(bytes, copies(node->saved, node->saved_count, widened->saved, in_pieces));
    for (int k = 0; k < node->param_count; k++) {
        bytes = ckpt_plus(bytes, copies(&node->param[k].tensor, 1, widened->param >> k & 1, false));
    }
    return in_pieces ? ckpt_times(node->threads, bytes) : bytes;
}

ckpt_bytes ckpt_widened_most(const ckpt_node *node, bool backward)
{
    ckpt_widened widened = ckpt_widened_of(node, backward, NULL);
    ckpt_bytes most = ckpt_widened_bytes(node, &widened);
    for (int i = 0; i < node->way_count; i++) {
        const ckpt_way *const way = &node->way[i];
        if (way->backward == backward && way->workspace_bytes < 0 && !way->measured) {
            widened = ckpt_widened_of(node, backward, way);
            const ckpt_bytes bytes = ckpt_widened_bytes(node, &widened);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

void ckpt_widened_allow(ckpt_node *node)
{
    node->forward_workspace_bytes =
        ckpt_plus(ckpt_aligned(node->forward_workspace_bytes), ckpt_widened_most(node, false));
    node->backward_workspace_bytes =
        ckpt_plus(ckpt_aligned(node->backward_workspace_bytes), ckpt_widened_most(node, true));
    for (int i = 0; i < node->way_count; i++) {
        ckpt_way *const way = &node->way[i];
        if (way->workspace_bytes >= 0) {
            const ckpt_widened widened = ckpt_widened_of(node, way->backward, way);
            way->workspace_bytes = ckpt_plus(ckpt_aligned(way->workspace_bytes), ckpt_widened_bytes(node, &widened));
        }
    }
}

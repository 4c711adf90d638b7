/* Other ways of a layer become variants of its forward and backward op. */
#include <string.h>

#include "ops/lowering/lower_impl.h"
#include "ops/ops_impl.h"

bool ckpt_lower_has_ways(const ckpt_lowering *l, const ckpt_node *node)
{
    return node->way_count > 0 && l->has_backward[node->index];
}

/* As measured; of a profile that has not measured it, the own way's time in proportion to the roofline's times. */
static ckpt_ns way_time(const ckpt_lowering *l, const ckpt_node *node, const ckpt_way *way,
                        const ckpt_profile_way *measured, const ckpt_graph_op *op, const ckpt_op_role *role)
{
    if (measured != NULL) {
        return measured->timing.median_ns;
    }
    if (way->measured) { /* the graph is the same with every profile, and no plan chooses it without a time */
        return ckpt_plus(op->time_ns, 1);
    }
    const ckpt_direction direction = way->backward ? CKPT_DIRECTION_BACKWARD : CKPT_DIRECTION_FORWARD;
    const ckpt_bytes own_moved = way->backward ? node->backward_moved_bytes : node->forward_moved_bytes;
    ckpt_op_role mine = *role;
    mine.flop = way->flop;
    mine.moved_bytes = ckpt_plus(way->moved_bytes, role->moved_bytes - own_moved); /* adding included */
    const double own_ns = (double)ckpt_lower_roofline(l, node, direction, role);
    const double way_ns = (double)ckpt_lower_roofline(l, node, direction, &mine);
    const double ns = own_ns > 0 ? (double)op->time_ns * (way_ns / own_ns) : way_ns;
    return ns < 9e18 ? (ckpt_ns)ns : INT64_MAX;
}

static const ckpt_profile_way *find_measured(const ckpt_profile_row *row, const ckpt_way *way)
{
    const ckpt_direction direction = way->backward ? CKPT_DIRECTION_BACKWARD : CKPT_DIRECTION_FORWARD;
    for (int i = 0; row != NULL && i < row->way_count; i++) {
        if (row->way[i].direction == direction && strcmp(row->way[i].name, way->name) == 0) {
            return &row->way[i];
        }
    }
    return NULL;
}

/* The workspace of a way that says nothing of it is the own way's. */
static ckpt_code fill_workspace(const ckpt_node *node, const ckpt_way *way, const ckpt_profile_way *measured,
                                const ckpt_op_role *role, ckpt_graph_op *variant, ckpt_err *err)
{
    const ckpt_bytes wanted = measured != NULL ? measured->workspace_bytes : way->workspace_bytes;
    if (wanted < 0) {
        return CKPT_OK;
    }
    const ckpt_bytes staging = way->backward ? ckpt_staging_bytes(node, role->grad_in_adds, role->grad_param_adds) : 0;
    return ckpt_lower_workspace(staging, wanted, &variant->workspace_bytes, err);
}

/* Forward reads the same and writes other saved tensors; backward writes the same and reads other tensors. */
static ckpt_code fill_lists(const ckpt_lowering *l, const ckpt_node *node, const ckpt_way *way, ckpt_graph_op *variant,
                            ckpt_err *err)
{
    ckpt_collected list = {.count = 0};
    if (way->backward) {
        ckpt_lower_needs(l, node, way->in, way->out, way->saved, &list);
        return ckpt_lower_keep(l, &list, &variant->reads, err);
    }
    for (int k = 0; k < node->out_count; k++) {
        ckpt_lower_collect(&list, *ckpt_lower_value(l, node->out_value[k]));
    }
    for (int k = 0; k < node->saved_count; k++) {
        if ((way->saved >> k & 1) != 0) {
            ckpt_lower_collect(&list, *ckpt_lower_saved(l, node, k));
        }
    }
    return ckpt_lower_keep(l, &list, &variant->writes, err);
}

ckpt_code ckpt_lower_ways(ckpt_lowering *l, const ckpt_node *node, const ckpt_profile_row *row, ckpt_graph_op *op,
                          const ckpt_op_role *role, ckpt_err *err)
{
    const bool backward = role->phase == CKPT_BACKWARD;
    if (!ckpt_lower_has_ways(l, node)) {
        return CKPT_OK;
    }
    op->variant = backward ? node->backward_way : node->forward_way;
    op->first_variant = l->variant_count; /* behind the ops, of which more are to come */
    for (int i = 0; i < node->way_count; i++) {
        const ckpt_way *const way = &node->way[i];
        if (way->backward != backward) {
            continue;
        }
        const ckpt_profile_way *const measured = find_measured(row, way);
        ckpt_graph_op *const variant = &l->variant[l->variant_count];
        *variant = *op;
        variant->variant = way->name;
        variant->inexact = way->inexact;
        variant->variant_count = 0;
        variant->base = (int)(op - l->op);
        variant->time_ns = way_time(l, node, way, measured, op, role);
        CKPT_TRY(fill_workspace(node, way, measured, role, variant, err));
        CKPT_TRY(fill_lists(l, node, way, variant, err));
        l->way[l->variant_count] = way;
        l->variant_count++;
        op->variant_count++;
    }
    return CKPT_OK;
}

/* The in-place pairs of its op, of inputs that it reads. */
static ckpt_code keep_inplace(const ckpt_lowering *l, ckpt_graph_op *variant, ckpt_err *err)
{
    const ckpt_graph_op *const op = &l->op[variant->base];
    ckpt_inplace *const pair = CKPT_NEW(l->out, ckpt_inplace, op->inplace_count);
    if (pair == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "in-place pairs of %s", op->name);
    }
    variant->inplace = pair;
    variant->inplace_count = 0;
    for (int i = 0; i < op->inplace_count; i++) {
        if (ckpt_list_has(&variant->reads, op->inplace[i].in)) {
            pair[variant->inplace_count++] = op->inplace[i];
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_lower_join_ways(ckpt_lowering *l, ckpt_graph *graph, ckpt_err *err)
{
    for (int i = 0; i < l->variant_count; i++) {
        CKPT_TRY(keep_inplace(l, &l->variant[i], err));
        l->op[l->op_count + i] = l->variant[i];
    }
    for (int o = 0; o < l->op_count; o++) {
        l->op[o].first_variant = l->op[o].variant_count > 0 ? l->op_count + l->op[o].first_variant : 0;
    }
    graph->op = l->op;
    graph->op_count = l->op_count;
    graph->variant_count = l->variant_count;
    return CKPT_OK;
}

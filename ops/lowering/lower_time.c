/* How long an op takes: as it was measured, as the model states, or by the roofline; and what a link does. */
#include <string.h>

#include "ops/lowering/lower_impl.h"
#include "ops/ops_impl.h"

static ckpt_bytes output_bytes(const ckpt_node *node)
{
    ckpt_bytes bytes = 0;
    for (int k = 0; k < node->out_count; k++) {
        bytes = ckpt_plus(bytes, ckpt_tensor_bytes(&node->out[k]));
    }
    return bytes;
}

/* What the layer `did` when it was profiled, and `does` now; 0: the profile does not say. */
static ckpt_code match_bytes(const ckpt_lowering *l, const ckpt_node *node, const char *did, const char *does,
                             ckpt_bytes there, ckpt_bytes here, ckpt_err *err)
{
    char a[CKPT_UNITS_TEXT], b[CKPT_UNITS_TEXT];
    if (there == 0 || there == here) {
        return CKPT_OK;
    }
    return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: layer %s %s %s there and %s %s in %s: profile this model",
                     l->profile->source, node->name, did, ckpt_bytes_show(there, a), does, ckpt_bytes_show(here, b),
                     l->network->model->source);
}

/* Every layer that will run must have been measured, as what it is now: another batch gives other sizes, and other
 * heads of attention save others. */
ckpt_code ckpt_lower_match_profile(ckpt_lowering *l, ckpt_err *err)
{
    const ckpt_profile *const profile = l->profile;
    for (int n = 0; profile != NULL && n < l->network->node_count; n++) {
        const ckpt_node *const node = &l->network->node[n];
        /* Rows mostly stand in layer order: look there first, so that large models stay linear. */
        const bool in_place = n < profile->row_count && strcmp(profile->row[n].layer, node->name) == 0;
        const ckpt_profile_row *const row = in_place ? &profile->row[n] : ckpt_profile_find(profile, node->name);
        if (row == NULL && !node->alias && !node->op->planned_only) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s has no row for layer %s (%s) of %s: profile this model",
                             profile->source, node->name, node->op->name, l->network->model->source);
        }
        if (row != NULL && strcmp(row->op, node->op->name) != 0) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: layer %s is \"%s\" there and \"%s\" in %s: profile this model",
                             profile->source, node->name, row->op, node->op->name, l->network->model->source);
        }
        if (row != NULL) {
            CKPT_TRY(match_bytes(l, node, "gave", "gives", row->output_bytes, output_bytes(node), err));
            CKPT_TRY(match_bytes(l, node, "saved", "saves", row->saved_bytes, ckpt_node_saved_bytes(node), err));
        }
        l->row[n] = row;
    }
    return CKPT_OK;
}

ckpt_ns ckpt_lower_roofline(const ckpt_lowering *l, const ckpt_node *node, ckpt_direction direction,
                            const ckpt_op_role *role)
{
    return ckpt_roofline_ns(l->device, node->op->name, direction, l->network->model->dtype, role->flop,
                            role->moved_bytes);
}

ckpt_ns ckpt_lower_time(const ckpt_lowering *l, const ckpt_node *node, ckpt_direction direction,
                        const ckpt_timing *measured, ckpt_ns stated, const ckpt_op_role *role)
{
    /* A file written by hand may give a time and no repeats. */
    if (measured != NULL && (measured->repeats > 0 || measured->median_ns > 0)) {
        return measured->median_ns;
    }
    return stated >= 0 ? stated : ckpt_lower_roofline(l, node, direction, role);
}

ckpt_ns ckpt_lower_network_ns(const ckpt_lowering *l, ckpt_bytes bytes)
{
    const int64_t rate = l->network->scheme.network_bytes_per_s;
    const double ns = (double)bytes * 1e9 / (double)rate;
    return ns < 9e18 ? (ckpt_ns)ns : INT64_MAX;
}

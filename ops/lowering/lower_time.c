/* How long an op takes: as it was measured, as the model states, or by the roofline; and what a link does.
 *
 * An op has one time, and a run again may take another time than the first, which finds other things in the caches. A
 * profile taken in the step has both. The op then has the time of a run again, which is what a plan decides about, and
 * what the first run takes more or less is in the time of the layer's backward op, which runs once for each first run. So
 * the sum is right for any number of runs. What the step takes beside its runs is in the time of the last op. */
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

/* By `more`, which may be less than 0; at least half of a time is left. */
static void shift_time(ckpt_graph_op *op, ckpt_ns more)
{
    const ckpt_ns least = op->time_ns / 2;
    op->time_ns = ckpt_plus(op->time_ns, more > 0 ? more : 0) + (more < 0 ? more : 0);
    op->time_ns = op->time_ns > least ? op->time_ns : least;
}

static void shift_variants(ckpt_lowering *l, const ckpt_graph_op *op, ckpt_ns more)
{
    for (int i = 0; i < op->variant_count; i++) {
        shift_time(&l->variant[op->first_variant + i], more);
    }
}

/* The pair of a layer's ops together takes what it took. */
static void take_again(ckpt_lowering *l, int forward_op, int backward_op, ckpt_ns again)
{
    ckpt_graph_op *const forward = &l->op[forward_op], *const backward = &l->op[backward_op];
    const ckpt_ns both = ckpt_plus(forward->time_ns, backward->time_ns);
    const ckpt_ns more = (again < both ? again : both) - forward->time_ns;
    forward->time_ns += more;
    backward->time_ns = both - forward->time_ns;
    l->op_role[forward_op].again_more_ns = more;
    l->op_role[backward_op].again_more_ns = -more;
    shift_variants(l, forward, more);
    shift_variants(l, backward, -more);
}

/* Per micro-batch and node: its backward op; -1: none. */
static int *find_backwards(const ckpt_lowering *l)
{
    const size_t nodes = (size_t)l->network->node_count, all = (size_t)l->network->scheme.micro_batches * nodes;
    int *const of = CKPT_NEW(l->out, int, all);
    for (size_t i = 0; of != NULL && i < all; i++) {
        of[i] = -1;
    }
    for (int o = 0; of != NULL && o < l->op_count; o++) {
        const ckpt_op_role *const role = &l->op_role[o];
        if (role->task == CKPT_TASK_LAYER && role->phase == CKPT_BACKWARD) {
            of[(size_t)role->batch * nodes + (size_t)role->node] = o;
        }
    }
    return of;
}

ckpt_code ckpt_lower_settle_times(ckpt_lowering *l, ckpt_err *err)
{
    if (l->profile == NULL || !ckpt_profile_is_in_step(l->profile) || l->op_count == 0) {
        return CKPT_OK;
    }
    const ckpt_mark mark = ckpt_arena_mark(l->out);
    const int *const backward = find_backwards(l);
    if (backward == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "times of %d ops", l->op_count);
    }
    for (int o = 0; o < l->op_count; o++) {
        const ckpt_op_role *const role = &l->op_role[o];
        if (role->task != CKPT_TASK_LAYER || role->phase != CKPT_FORWARD) {
            continue;
        }
        const ckpt_profile_row *const row = l->row[role->node];
        const int back = backward[(size_t)role->batch * (size_t)l->network->node_count + (size_t)role->node];
        if (row != NULL && row->recompute.repeats > 0 && back >= 0) {
            take_again(l, o, back, row->recompute.median_ns);
        }
    }
    ckpt_graph_op *const last = &l->op[l->op_count - 1];
    last->time_ns = ckpt_plus(last->time_ns, l->profile->step.overhead_ns);
    shift_variants(l, last, l->profile->step.overhead_ns);
    ckpt_arena_rewind(l->out, mark);
    return CKPT_OK;
}

ckpt_ns ckpt_lower_network_ns(const ckpt_lowering *l, ckpt_bytes bytes)
{
    const int64_t rate = l->network->scheme.network_bytes_per_s;
    const double ns = (double)bytes * 1e9 / (double)rate;
    return ns < 9e18 ? (ckpt_ns)ns : INT64_MAX;
}

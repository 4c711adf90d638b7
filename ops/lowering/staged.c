/* A network cut into stages and lowered, in the order in which programs need it. */
#include "ops/lowering/staged.h"

static ckpt_code lower(ckpt_staged *s, ckpt_arena *out, ckpt_err *err)
{
    const ckpt_network *spread = s->network;
    if (!ckpt_scheme_is_plain(&s->scheme)) {
        CKPT_TRY(ckpt_network_spread(s->network, &s->scheme, out, &spread, err));
    }
    return ckpt_network_lower(spread, s->profile, s->device, out, &s->lowered, err);
}

/* As the layers say, or else balanced. */
static ckpt_code cut(ckpt_staged *s, const ckpt_lowered *whole, ckpt_arena *out, ckpt_err *err)
{
    int given = 0;
    if (s->scheme.first_layer != NULL) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_partition_given(s->network, out, &given, &s->scheme.first_layer, err));
    if (given == 0) {
        return ckpt_partition_choose(s->network, whole, &s->scheme, CKPT_PARTITION_MEMORY_WEIGHT, out,
                                     &s->scheme.first_layer, err);
    }
    return given == s->scheme.stages
               ? CKPT_OK
               : CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: found %d pipeline stages, but \"stage\" of its layers makes %d",
                           s->network->model->source, s->scheme.stages, given);
}

/* Each op of the whole graph with the stage it is in. */
static ckpt_code mark_stages(ckpt_staged *s, const ckpt_lowered *whole, ckpt_arena *out, ckpt_err *err)
{
    const ckpt_graph *const graph = whole->graph;
    ckpt_graph *const marked = CKPT_NEW(out, ckpt_graph, 1);
    ckpt_graph_op *const op = ckpt_graph_copy_ops(graph, out);
    if (marked == NULL || op == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "stages of %d ops", graph->op_count);
    }
    for (int o = 0; o < graph->op_count; o++) {
        const int node = whole->op_role[o].node;
        op[o].stage = node >= 0 ? s->lowered->network->stage_of[node] + 1 : 0;
    }
    *marked = *graph;
    marked->op = op;
    s->whole = marked;
    return CKPT_OK;
}

ckpt_code ckpt_staged_lower(const ckpt_network *network, const ckpt_profile *profile, const ckpt_device_model *device,
                            const ckpt_scheme *scheme, ckpt_arena *out, ckpt_staged *staged, ckpt_err *err)
{
    const ckpt_lowered *whole = NULL;
    ckpt_staged s = {.network = network, .profile = profile, .device = device, .scheme = *scheme};
    if (scheme->stages == 1) {
        CKPT_TRY(lower(&s, out, err));
        *staged = s;
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_network_lower(network, profile, device, out, &whole, err));
    CKPT_TRY(cut(&s, whole, out, err));
    CKPT_TRY(lower(&s, out, err));
    CKPT_TRY(mark_stages(&s, whole, out, err));
    CKPT_TRY(ckpt_partition_describe(network, whole, &s.scheme, out, &s.part, err));
    *staged = s;
    return CKPT_OK;
}

ckpt_code ckpt_staged_next(const ckpt_staged *other, int stage, ckpt_arena *out, ckpt_staged *staged, ckpt_err *err)
{
    ckpt_staged s = *other;
    s.scheme.stage = stage;
    CKPT_TRY(lower(&s, out, err));
    *staged = s;
    return CKPT_OK;
}

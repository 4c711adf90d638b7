/* The length of all gradients, as one vector, and from it what the updates multiply them by.
 *
 * The sum of squares has one order: per node, node after node. With replicas a node's sum is made of what lies in each
 * replica's chunks, piece by piece, replica after replica: so a rank that has only its own chunk's sums (a sharded
 * optimizer) comes to the same number as one that has all. With stages every rank gets the others' nodes. */
#include <string.h>

#include "executor/run/run_impl.h"

static double *sums_at(const ckpt_program *program)
{
    return (double *)(void *)((unsigned char *)ckpt_program_scale(program, 0) + 64);
}

/* One after the other into the doubles of their nodes: the device does it all. */
static ckpt_code square_alone(const ckpt_program *program, const ckpt_action *action, ckpt_err *err)
{
    ckpt_device *const device = program->device;
    for (int i = 0; i < action->square_count; i++) {
        const ckpt_square *const square = &action->square[i];
        CKPT_TRY(device->api->square_sum(device, square->from, square->count, sums_at(program) + square->node,
                                         action->args.workspace, err));
    }
    return CKPT_OK;
}

static void add_all(double *to, const double *from, int count)
{
    for (int i = 0; i < count; i++) {
        to[i] += from[i];
    }
}

/* The sums of this rank's nodes into mine[], over the replicas whose sums it has. */
static ckpt_code square_pieces(const ckpt_program *program, const ckpt_action *action, double *mine, double *part,
                               ckpt_err *err)
{
    ckpt_device *const device = program->device;
    const int nodes = program->lowered->network->node_count;
    memset(mine, 0, (size_t)nodes * sizeof *mine);
    memset(part, 0, (size_t)nodes * sizeof *part);
    for (int i = 0; i < action->square_count; i++) {
        const ckpt_square *const square = &action->square[i];
        double *const at = sums_at(program) + square->node;
        double sum = 0;
        if (i > 0 && square->replica != action->square[i - 1].replica) {
            add_all(mine, part, nodes);
            memset(part, 0, (size_t)nodes * sizeof *part);
        }
        CKPT_TRY(device->api->square_sum(device, square->from, square->count, at, action->args.workspace, err));
        CKPT_TRY(device->api->download(device, &sum, at, (ckpt_bytes)sizeof sum, err));
        part[square->node] += sum;
    }
    add_all(mine, part, nodes);
    return CKPT_OK;
}

/* Every node's sum from the ranks that have it. */
static void join_sums(const ckpt_program *program, const double *all, double *sum)
{
    const ckpt_network *const network = program->lowered->network;
    const ckpt_scheme *const scheme = &network->scheme;
    const size_t nodes = (size_t)network->node_count;
    for (size_t n = 0; n < nodes; n++) {
        const int stage = network->stage_of[n];
        const int first = scheme->shard_optimizer ? 0 : program->replica;
        const int end = scheme->shard_optimizer ? scheme->replicas : program->replica + 1;
        sum[n] = 0;
        for (int r = first; r < end; r++) {
            sum[n] += all[(size_t)(r * scheme->stages + stage) * nodes + n];
        }
    }
}

static ckpt_code square_together(const ckpt_run *run, const ckpt_action *action, ckpt_err *err)
{
    const ckpt_program *const program = run->program;
    const size_t nodes = (size_t)program->lowered->network->node_count;
    const ckpt_bytes bytes = (ckpt_bytes)(nodes * sizeof(double));
    double *const mine = run->squares, *const part = mine + nodes, *const all = part + nodes;
    CKPT_TRY(square_pieces(program, action, mine, part, err));
    CKPT_TRY(ckpt_ranks_allgather(program->ranks, mine, all, bytes, err));
    join_sums(program, all, part);
    return program->device->api->upload(program->device, sums_at(program), part, bytes, err);
}

ckpt_code ckpt_run_norm(const ckpt_run *run, const ckpt_action *action, ckpt_err *err)
{
    const ckpt_program *const program = run->program;
    const ckpt_network *const network = program->lowered->network;
    CKPT_TRY(run->squares == NULL ? square_alone(program, action, err) : square_together(run, action, err));
    return program->device->api->clip_scale(program->device, sums_at(program), network->node_count,
                                            ckpt_program_base_scale(program), network->clip_norm,
                                            ckpt_program_scale(program, 0), err);
}

/* Messages to and from other ranks in a step: values and gradients between stages, gradients and weights between
 * replicas. Set-up has counted and addressed everything (wire_messages.c, wire_exchange.c).
 *
 * Messages are read and written piece by piece where the numbers lie: a bucket is never packed. A GPU's messages go
 * through page-locked memory of the host, or, where NCCL carries them, out of its own memory when all that was started
 * before has finished. */
#include "executor/run/run_impl.h"

static int other_rank(const ckpt_program *program, int replica)
{
    const ckpt_scheme *const scheme = &program->lowered->network->scheme;
    return replica * scheme->stages + scheme->stage;
}

/* Messages out of the device's memory do not wait for its streams. */
static ckpt_code settle(const ckpt_program *program, ckpt_err *err)
{
    const bool direct = program->device->api->gpu && ckpt_ranks_on_device(program->ranks);
    return direct ? program->device->api->finish(program->device, err) : CKPT_OK;
}

/* Copy within the device; on a GPU in pieces through the host. */
static ckpt_code copy_within(const ckpt_program *program, void *to, const void *from, ckpt_bytes bytes, ckpt_err *err)
{
    ckpt_device *const device = program->device;
    if (!device->api->gpu) {
        return device->api->upload(device, to, from, bytes, err);
    }
    for (ckpt_bytes done = 0; done < bytes; done += CKPT_CHUNK_BYTES) {
        const ckpt_bytes now = bytes - done < CKPT_CHUNK_BYTES ? bytes - done : CKPT_CHUNK_BYTES;
        CKPT_TRY(device->api->download(device, program->memory.chunk, (const unsigned char *)from + done, now, err));
        CKPT_TRY(device->api->upload(device, (unsigned char *)to + done, program->memory.chunk, now, err));
    }
    return CKPT_OK;
}

static ckpt_code send(const ckpt_program *program, const ckpt_transfer *t, ckpt_err *err)
{
    ckpt_device *const device = program->device;
    if (t->staging != NULL) {
        CKPT_TRY(device->api->download(device, t->staging, t->from, t->bytes, err));
        return ckpt_ranks_send(program->ranks, t->slot, t->rank, t->tag, t->staging, t->bytes, err);
    }
    CKPT_TRY(copy_within(program, t->message, t->from, t->bytes, err));
    CKPT_TRY(settle(program, err));
    return ckpt_ranks_send(program->ranks, t->slot, t->rank, t->tag, t->message, t->bytes, err);
}

static ckpt_code receive(const ckpt_program *program, const ckpt_transfer *t, ckpt_err *err)
{
    ckpt_device *const device = program->device;
    void *const to = t->staging != NULL ? t->staging : t->message;
    CKPT_TRY(settle(program, err));
    CKPT_TRY(ckpt_ranks_receive(program->ranks, t->slot, t->rank, t->tag, to, t->bytes, err));
    CKPT_TRY(ckpt_ranks_wait(program->ranks, t->slot, err));
    return t->staging != NULL ? device->api->upload(device, t->message, t->staging, t->bytes, err) : CKPT_OK;
}

/* A collective of one bucket, as replica `me` sees it. */
typedef struct exchanging {
    const ckpt_program *program;
    const ckpt_action *action;
    const ckpt_exchange *x;
    int me, replicas;
    int slot; /* the next one */
    ckpt_err *err;
} exchanging;

static exchanging exchange_of(const ckpt_program *program, const ckpt_action *action, ckpt_err *err)
{
    return (exchanging){.program = program,
                        .action = action,
                        .x = action->exchange,
                        .me = program->replica,
                        .replicas = program->lowered->network->scheme.replicas,
                        .slot = action->exchange->slot,
                        .err = err};
}

/* Where what replica q sends of the own chunk arrives. */
static float *staged(const exchanging *e, float *base, int q)
{
    return base + (q < e->me ? q : q - 1) * e->x->bucket->chunk;
}

static int64_t own_start(const exchanging *e)
{
    return e->me * e->x->bucket->chunk;
}

static ckpt_bytes piece_bytes(const ckpt_piece *piece)
{
    return piece->count * (ckpt_bytes)sizeof(float);
}

static ckpt_code send_piece(exchanging *e, int i, int q, int tag)
{
    const ckpt_piece *const piece = &e->x->piece[i];
    const float *const from = e->x->mirror != NULL ? e->x->mirror + piece->at : e->action->piece[i];
    return ckpt_ranks_send(e->program->ranks, e->slot++, other_rank(e->program, q), tag, from, piece_bytes(piece),
                           e->err);
}

static ckpt_code receive_piece(exchanging *e, int i, int q, int tag, float *to)
{
    return ckpt_ranks_receive(e->program->ranks, e->slot++, other_rank(e->program, q), tag, to,
                              piece_bytes(&e->x->piece[i]), e->err);
}

/* To the mirror, or from it, the pieces of replica q's chunk. */
static ckpt_code mirror(const exchanging *e, int q, bool down)
{
    ckpt_device *const device = e->program->device;
    for (int i = e->x->first[q]; e->x->mirror != NULL && i < e->x->first[q + 1]; i++) {
        float *const host = e->x->mirror + e->x->piece[i].at, *const here = e->action->piece[i];
        const ckpt_bytes bytes = piece_bytes(&e->x->piece[i]);
        CKPT_TRY(down ? device->api->download(device, host, here, bytes, e->err)
                      : device->api->upload(device, here, host, bytes, e->err));
    }
    return CKPT_OK;
}

/* The reduce-scatter: every replica receives what all others have of its chunk. */
static ckpt_code start_reduce_scatter(const ckpt_program *program, const ckpt_action *action, ckpt_err *err)
{
    exchanging e = exchange_of(program, action, err);
    const int *const first = e.x->first;
    float *const base = e.x->incoming != NULL ? e.x->incoming : action->staging;
    CKPT_TRY(settle(program, err));
    for (int q = 0; q < e.replicas; q++) {
        for (int i = first[e.me]; q != e.me && i < first[e.me + 1]; i++) {
            CKPT_TRY(receive_piece(&e, i, q, CKPT_TAG_REDUCE_SCATTER,
                                   staged(&e, base, q) + (e.x->piece[i].at - own_start(&e))));
        }
    }
    for (int q = 0; q < e.replicas; q++) {
        CKPT_TRY(q != e.me ? mirror(&e, q, true) : CKPT_OK);
        for (int i = first[q]; q != e.me && i < first[q + 1]; i++) {
            CKPT_TRY(send_piece(&e, i, q, CKPT_TAG_REDUCE_SCATTER));
        }
    }
    return CKPT_OK;
}

static ckpt_code wait_messages(const ckpt_program *program, const ckpt_exchange *x, ckpt_err *err)
{
    for (int i = 0; i < x->slot_count; i++) {
        CKPT_TRY(ckpt_ranks_wait(program->ranks, x->slot + i, err));
    }
    return CKPT_OK;
}

/* ((g0 + g1) + g2) + ..., the own gradient in its turn. a + b is b + a in float: the gradients before the own one are
 * summed in the memory of the first, and then added to it. */
static ckpt_code sum_up(const ckpt_program *program, const ckpt_action *action, ckpt_err *err)
{
    const exchanging e = exchange_of(program, action, err);
    ckpt_device *const device = program->device;
    const int from = e.x->first[e.me], to = e.x->first[e.me + 1];
    if (from == to) {
        return CKPT_OK;
    }
    const ckpt_piece *const last = &e.x->piece[to - 1];
    const int64_t own = last->at + last->count - own_start(&e);
    for (int q = 1; q < e.me; q++) {
        CKPT_TRY(device->api->add(device, CKPT_FLOAT32, staged(&e, action->staging, 0), staged(&e, action->staging, q),
                                  own, err));
    }
    for (int i = from; i < to; i++) {
        const int64_t at = e.x->piece[i].at - own_start(&e), count = e.x->piece[i].count;
        if (e.me > 0) {
            CKPT_TRY(device->api->add(device, CKPT_FLOAT32, action->piece[i], staged(&e, action->staging, 0) + at,
                                      count, err));
        }
        for (int q = e.me + 1; q < e.replicas; q++) {
            CKPT_TRY(device->api->add(device, CKPT_FLOAT32, action->piece[i], staged(&e, action->staging, q) + at,
                                      count, err));
        }
    }
    return CKPT_OK;
}

/* The all-gather: every replica receives the chunks of all others. */
static ckpt_code start_all_gather(const ckpt_program *program, const ckpt_action *action, int tag, ckpt_err *err)
{
    exchanging e = exchange_of(program, action, err);
    const int *const first = e.x->first;
    CKPT_TRY(settle(program, err));
    for (int q = 0; q < e.replicas; q++) {
        for (int i = first[q]; q != e.me && i < first[q + 1]; i++) {
            float *const to = e.x->mirror != NULL ? e.x->mirror + e.x->piece[i].at : action->piece[i];
            CKPT_TRY(receive_piece(&e, i, q, tag, to));
        }
    }
    CKPT_TRY(mirror(&e, e.me, true));
    for (int q = 0; q < e.replicas; q++) {
        for (int i = first[e.me]; q != e.me && i < first[e.me + 1]; i++) {
            CKPT_TRY(send_piece(&e, i, q, tag));
        }
    }
    return CKPT_OK;
}

static ckpt_code wait_all_gather(const ckpt_program *program, const ckpt_action *action, ckpt_err *err)
{
    const exchanging e = exchange_of(program, action, err);
    CKPT_TRY(wait_messages(program, action->exchange, err));
    for (int q = 0; q < e.replicas; q++) {
        CKPT_TRY(q != e.me ? mirror(&e, q, false) : CKPT_OK);
    }
    return CKPT_OK;
}

static ckpt_code reduce(const ckpt_program *program, const ckpt_action *action, ckpt_err *err)
{
    const ckpt_scheme *const scheme = &program->lowered->network->scheme;
    const ckpt_exchange *const x = action->exchange;
    CKPT_TRY(scheme->overlap ? CKPT_OK : start_reduce_scatter(program, action, err));
    CKPT_TRY(wait_messages(program, x, err));
    if (x->incoming != NULL) {
        CKPT_TRY(
            program->device->api->upload(program->device, action->staging, x->incoming, x->bucket->staging_bytes, err));
    }
    CKPT_TRY(sum_up(program, action, err));
    if (scheme->shard_optimizer) {
        return CKPT_OK;
    }
    CKPT_TRY(start_all_gather(program, action, CKPT_TAG_SUMS, err));
    return scheme->overlap ? CKPT_OK : wait_all_gather(program, action, err);
}

/* Narrows what has arrived: bfloat16 copies would be half the bytes, but as many messages. */
static ckpt_code gather_weights(const ckpt_program *program, const ckpt_action *action, ckpt_err *err)
{
    const exchanging e = exchange_of(program, action, err);
    ckpt_device *const device = program->device;
    CKPT_TRY(start_all_gather(program, action, CKPT_TAG_WEIGHTS, err));
    CKPT_TRY(wait_all_gather(program, action, err));
    for (int i = 0; i < e.x->first[e.replicas]; i++) {
        const ckpt_piece *const piece = &e.x->piece[i];
        unsigned char *const narrow = ckpt_program_param16(program, piece->node, piece->param);
        if (narrow != NULL && (i < e.x->first[e.me] || i >= e.x->first[e.me + 1])) {
            CKPT_TRY(device->api->narrow(device, narrow + 2 * piece->first, action->piece[i], piece->count, err));
        }
    }
    return CKPT_OK;
}

/* Holder h's gradient, where messages read and write it. */
static float *copy_at(const ckpt_tied_gradients *c, int h)
{
    return c->staging != NULL ? c->staging + h * c->count : c->at[h];
}

/* Send the gradients of this stage's copies to every other stage that has copies, once per stage. */
static ckpt_code send_copies(const ckpt_program *program, const ckpt_tied_gradients *c, int *slot, ckpt_err *err)
{
    const ckpt_scheme *const scheme = &program->lowered->network->scheme;
    const ckpt_bytes bytes = c->count * (ckpt_bytes)sizeof(float);
    for (int h = 0; h < c->holders; h++) {
        if (c->stage[h] == scheme->stage && c->staging != NULL) {
            CKPT_TRY(program->device->api->download(program->device, copy_at(c, h), c->at[h], bytes, err));
        }
        for (int i = 0; c->stage[h] == scheme->stage && i < c->holders; i++) {
            const bool first = i == 0 || c->stage[i] != c->stage[i - 1]; /* holders come in the order of stages */
            if (first && c->stage[i] != scheme->stage) {
                CKPT_TRY(ckpt_ranks_send(program->ranks, (*slot)++, program->replica * scheme->stages + c->stage[i],
                                         CKPT_TAG_TIED, copy_at(c, h), bytes, err));
            }
        }
    }
    return CKPT_OK;
}

/* The all-reduce of a tied group: every stage computes ((h0 + h1) + h2) + ... in the order of holders. */
static ckpt_code reduce_tied(const ckpt_program *program, const ckpt_tied_gradients *c, ckpt_err *err)
{
    const ckpt_scheme *const scheme = &program->lowered->network->scheme;
    ckpt_device *const device = program->device;
    const ckpt_bytes bytes = c->count * (ckpt_bytes)sizeof(float);
    int slot = c->slot;
    CKPT_TRY(program->ranks != NULL ? settle(program, err) : CKPT_OK);
    for (int h = 0; h < c->holders; h++) {
        if (c->stage[h] != scheme->stage) {
            CKPT_TRY(ckpt_ranks_receive(program->ranks, slot++, program->replica * scheme->stages + c->stage[h],
                                        CKPT_TAG_TIED, copy_at(c, h), bytes, err));
        }
    }
    CKPT_TRY(send_copies(program, c, &slot, err));
    for (int i = c->slot; i < slot; i++) {
        CKPT_TRY(ckpt_ranks_wait(program->ranks, i, err));
    }
    for (int h = 0; h < c->holders; h++) {
        if (c->stage[h] != scheme->stage && c->staging != NULL) {
            CKPT_TRY(device->api->upload(device, c->at[h], copy_at(c, h), bytes, err));
        }
        CKPT_TRY(h > 0 ? device->api->add(device, CKPT_FLOAT32, c->at[0], c->at[h], c->count, err) : CKPT_OK);
    }
    for (int h = 1; h < c->holders; h++) {
        CKPT_TRY(c->stage[h] == scheme->stage ? copy_within(program, c->at[h], c->at[0], bytes, err) : CKPT_OK);
    }
    return CKPT_OK;
}

ckpt_code ckpt_run_exchange(const ckpt_program *program, const ckpt_action *action, ckpt_err *err)
{
    switch (action->task) {
    case CKPT_TASK_SEND: return send(program, &action->transfer, err);
    case CKPT_TASK_SENT: return ckpt_ranks_wait(program->ranks, action->transfer.slot, err);
    case CKPT_TASK_RECEIVE: return receive(program, &action->transfer, err);
    case CKPT_TASK_REDUCE_START: return start_reduce_scatter(program, action, err);
    case CKPT_TASK_REDUCE: return reduce(program, action, err);
    case CKPT_TASK_REDUCE_END: return wait_all_gather(program, action, err);
    case CKPT_TASK_ALL_GATHER: return gather_weights(program, action, err);
    case CKPT_TASK_REDUCE_TIED: return reduce_tied(program, &action->tied, err);
    case CKPT_TASK_LAYER:
    case CKPT_TASK_NORM: break;
    }
    return CKPT_OK;
}

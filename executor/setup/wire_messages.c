/* What goes to other ranks: slots of messages, pieces of buckets, and the page-locked memory that messages are staged
 * in where they do not come from the device itself. */
#include "executor/setup/wire_impl.h"

enum { SLOT_RECEIVE, SLOT_FIRST };

/* Slots and page-locked bytes, handed out one after the other. */
typedef struct handing {
    ckpt_wiring *wiring;
    const ckpt_program *program;
    bool staged; /* are messages staged at all? */
    int64_t slots;
    ckpt_bytes bytes;
    bool overflow;
    ckpt_err *err;
} handing;

/* An offset, which staging_at makes an address once the memory is reserved. */
static ckpt_bytes take_staging(handing *h, ckpt_bytes bytes)
{
    const ckpt_bytes offset = h->bytes;
    if (!ckpt_sum(h->bytes, ckpt_round_up(bytes, CKPT_ALIGN), &h->bytes)) {
        h->overflow = true;
    }
    return offset;
}

static void *staging_at(const handing *h, ckpt_bytes offset)
{
    return h->staged ? h->program->memory.post.at + offset : NULL;
}

static bool is_message(const ckpt_op_role *role)
{
    return role->task == CKPT_TASK_SEND || role->task == CKPT_TASK_RECEIVE;
}

/* A slot for every send, which SENT waits for, and one for all receipts, which are waited for at once. */
static void hand_messages(handing *h, ckpt_bytes *staging)
{
    const ckpt_program *const program = h->program;
    const ckpt_lowered *const lowered = program->lowered;
    const int stages = lowered->network->scheme.stages;
    ckpt_bytes most = 0;
    for (int o = 0; o < lowered->graph->op_count; o++) {
        const ckpt_op_role *const role = &lowered->op_role[o];
        if (!is_message(role)) {
            continue;
        }
        const bool sends = role->task == CKPT_TASK_SEND;
        h->wiring->transfer[o] = (ckpt_transfer){
            .bytes = ckpt_tensor_bytes(&lowered->network->value[role->value].tensor),
            .rank = program->replica * stages + role->peer,
            .tag = role->gradient ? CKPT_TAG_GRADIENT : CKPT_TAG_VALUE,
            .slot = sends ? (int)h->slots++ : SLOT_RECEIVE,
        };
        most = h->wiring->transfer[o].bytes > most ? h->wiring->transfer[o].bytes : most;
        staging[o] = sends ? take_staging(h, h->wiring->transfer[o].bytes) : -1;
    }
    const ckpt_bytes receipts = take_staging(h, most);
    for (int o = 0; o < lowered->graph->op_count; o++) {
        staging[o] = is_message(&lowered->op_role[o]) && staging[o] < 0 ? receipts : staging[o];
    }
}

/* The pieces of all chunks; counted only while `to` is NULL. */
static int list_pieces(const ckpt_program *program, const ckpt_bucket *bucket, ckpt_piece *to, int *first)
{
    const ckpt_network *const network = program->lowered->network;
    int count = 0;
    for (int r = 0; r < network->scheme.replicas; r++) {
        const int64_t from = r * bucket->chunk, end = from + bucket->chunk;
        ckpt_piece piece = {.node = -1};
        first[r] = count;
        while (ckpt_bucket_next(network, bucket, from, end < bucket->count ? end : bucket->count, &piece)) {
            if (to != NULL) {
                to[count] = piece;
            }
            count++;
        }
    }
    first[network->scheme.replicas] = count;
    return count;
}

static ckpt_code hand_bucket(handing *h, int k, ckpt_bytes *staging)
{
    const ckpt_program *const program = h->program;
    const int replicas = program->lowered->network->scheme.replicas;
    const ckpt_bucket *const bucket = &program->lowered->bucket[k];
    int *const first = CKPT_NEW(h->wiring->out, int, replicas + 1);
    if (first == NULL) {
        return CKPT_FAIL(h->err, CKPT_NO_MEMORY, "no host memory for the pieces of buckets");
    }
    const int count = list_pieces(program, bucket, NULL, first);
    ckpt_piece *const piece = CKPT_NEW(h->wiring->out, ckpt_piece, count);
    if (piece == NULL) {
        return CKPT_FAIL(h->err, CKPT_NO_MEMORY, "no host memory for the pieces of buckets");
    }
    list_pieces(program, bucket, piece, first);
    const int own = first[program->replica + 1] - first[program->replica];
    const int64_t slots = (int64_t)(replicas - 1) * own + (count - own);
    h->wiring->exchange[k] = (ckpt_exchange){
        .bucket = bucket, .piece = piece, .first = first, .slot = (int)h->slots, .slot_count = (int)slots};
    h->slots += slots;
    staging[0] = take_staging(h, bucket->count * (ckpt_bytes)sizeof(float));
    staging[1] = take_staging(h, bucket->staging_bytes);
    return CKPT_OK;
}

/* With overlap several buckets are under way at once; without, all use the same slots and bytes. */
static ckpt_code hand_buckets(handing *h, ckpt_bytes *staging)
{
    const ckpt_lowered *const lowered = h->program->lowered;
    const handing before = *h;
    handing most = *h;
    for (int k = 0; k < lowered->bucket_count; k++) {
        if (!lowered->network->scheme.overlap) {
            h->slots = before.slots;
            h->bytes = before.bytes;
        }
        CKPT_TRY(hand_bucket(h, k, &staging[2 * k]));
        most.slots = h->slots > most.slots ? h->slots : most.slots;
        most.bytes = h->bytes > most.bytes ? h->bytes : most.bytes;
    }
    h->slots = most.slots;
    h->bytes = most.bytes;
    return CKPT_OK;
}

/* Tied parameters are reduced one after the other: slots and staging that suffice for each of them. */
static ckpt_bytes hand_tied(handing *h)
{
    const ckpt_network *const network = h->program->lowered->network;
    ckpt_bytes most = 0;
    int holders = 0;
    for (int i = 0; i < network->tied_group_count; i++) {
        const ckpt_tied_group *const group = &network->tied_group[i];
        const ckpt_bytes each = ckpt_tensor_bytes(&network->node[group->owner].param[group->param].tensor);
        ckpt_bytes all = 0;
        h->overflow = h->overflow || !ckpt_product(each, group->holder_count, &all);
        most = all > most ? all : most;
        holders = group->holder_count > holders ? group->holder_count : holders;
    }
    h->wiring->tied_slot = (int)h->slots;
    h->slots += (int64_t)holders * (holders + 1); /* each from another, and every own one to each of those */
    return take_staging(h, most);
}

static ckpt_code reserve_post(handing *h)
{
    ckpt_program *const program = h->wiring->program;
    if (h->overflow || h->slots > INT32_MAX) {
        return CKPT_FAIL(h->err, CKPT_OVERFLOW, "%s: messages beyond what can be counted", program->plan->source);
    }
    return ckpt_reserve_host(program->device, h->staged ? h->bytes : 0, "messages", &program->memory.post, h->err);
}

ckpt_code ckpt_wire_messages(ckpt_wiring *wiring, ckpt_err *err)
{
    const ckpt_program *const program = wiring->program;
    const ckpt_lowered *const lowered = program->lowered;
    const int ops = lowered->graph->op_count, buckets = lowered->bucket_count;
    if (ckpt_scheme_ranks(&lowered->network->scheme) == 1) {
        return CKPT_OK;
    }
    ckpt_bytes *const staging = CKPT_NEW(wiring->out, ckpt_bytes, ops);
    ckpt_bytes *const bucket_staging = CKPT_NEW(wiring->out, ckpt_bytes, 2 * (size_t)buckets);
    wiring->transfer = CKPT_NEW(wiring->out, ckpt_transfer, ops);
    wiring->exchange = CKPT_NEW(wiring->out, ckpt_exchange, buckets);
    if (staging == NULL || bucket_staging == NULL || wiring->transfer == NULL || wiring->exchange == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no host memory for the messages of %d ops", ops);
    }
    handing h = {.wiring = wiring,
                 .program = program,
                 .staged = program->device->api->gpu && !ckpt_ranks_on_device(program->ranks),
                 .slots = SLOT_FIRST,
                 .err = err};
    hand_messages(&h, staging);
    CKPT_TRY(hand_buckets(&h, bucket_staging));
    const ckpt_bytes tied = hand_tied(&h);
    CKPT_TRY(reserve_post(&h));
    wiring->tied_staging = staging_at(&h, tied);
    for (int o = 0; o < ops; o++) {
        wiring->transfer[o].staging = is_message(&lowered->op_role[o]) ? staging_at(&h, staging[o]) : NULL;
    }
    for (int k = 0; k < buckets; k++) {
        wiring->exchange[k].mirror = staging_at(&h, bucket_staging[2 * k]);
        wiring->exchange[k].incoming = staging_at(&h, bucket_staging[2 * k + 1]);
    }
    return ckpt_ranks_slots(program->ranks, (int)h.slots, err);
}

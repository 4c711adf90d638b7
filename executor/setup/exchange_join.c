/* Set-up of what goes to other ranks: slots of messages, pieces of buckets, and the rooms that messages go through
 * where they do not come from the device itself. */
#include "executor/executor_impl.h"

enum { SLOT_RECEIVE, SLOT_FIRST };

/* Slots and page-locked rooms, handed out one after the other. */
typedef struct handing {
    ckpt_executor *executor;
    bool rooms; /* are any needed? */
    int64_t slots;
    ckpt_bytes bytes;
    bool overflow;
    ckpt_err *err;
} handing;

/* Offset of a room, to be made an address when the block is there. */
static ckpt_bytes take_room(handing *h, ckpt_bytes bytes)
{
    const ckpt_bytes offset = h->bytes;
    if (!ckpt_sum(h->bytes, ckpt_round_up(bytes, CKPT_ALIGN), &h->bytes)) {
        h->overflow = true;
    }
    return offset;
}

static void *room_at(const handing *h, ckpt_bytes offset)
{
    return h->rooms ? h->executor->post + offset : NULL;
}

static bool is_message(const ckpt_op_role *role)
{
    return role->task == CKPT_TASK_SEND || role->task == CKPT_TASK_RECEIVE;
}

/* A slot for every send, which SENT waits for, and one for all receipts, which are waited for at once. */
static ckpt_code hand_messages(handing *h, ckpt_bytes *room)
{
    ckpt_executor *const executor = h->executor;
    const ckpt_lowered *const lowered = executor->lowered;
    const int stages = lowered->network->scheme.stages;
    ckpt_bytes most = 0;
    for (int o = 0; o < lowered->graph->op_count; o++) {
        const ckpt_op_role *const role = &lowered->op_role[o];
        if (!is_message(role)) {
            continue;
        }
        const bool sends = role->task == CKPT_TASK_SEND;
        executor->transfer[o] = (ckpt_transfer){
            .bytes = ckpt_tensor_bytes(&lowered->network->value[role->value].tensor),
            .rank = executor->replica * stages + role->peer,
            .tag = role->gradient ? CKPT_TAG_GRADIENT : CKPT_TAG_VALUE,
            .slot = sends ? (int)h->slots++ : SLOT_RECEIVE,
        };
        most = executor->transfer[o].bytes > most ? executor->transfer[o].bytes : most;
        room[o] = sends ? take_room(h, executor->transfer[o].bytes) : -1;
    }
    const ckpt_bytes receipts = take_room(h, most);
    for (int o = 0; o < lowered->graph->op_count; o++) {
        room[o] = is_message(&lowered->op_role[o]) && room[o] < 0 ? receipts : room[o];
    }
    return CKPT_OK;
}

/* The pieces of all chunks; counted only while `to` is NULL. */
static int list_pieces(const ckpt_executor *executor, const ckpt_bucket *bucket, ckpt_piece *to, int *first)
{
    const ckpt_network *const network = executor->lowered->network;
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

static ckpt_code hand_bucket(handing *h, int k, ckpt_bytes *room)
{
    ckpt_executor *const executor = h->executor;
    const int replicas = executor->lowered->network->scheme.replicas;
    const ckpt_bucket *const bucket = &executor->lowered->bucket[k];
    int *const first = CKPT_NEW(&executor->arena, int, replicas + 1);
    if (first == NULL) {
        return CKPT_FAIL(h->err, CKPT_NO_MEMORY, "no host memory for the pieces of buckets");
    }
    const int count = list_pieces(executor, bucket, NULL, first);
    ckpt_piece *const piece = CKPT_NEW(&executor->arena, ckpt_piece, count);
    if (piece == NULL) {
        return CKPT_FAIL(h->err, CKPT_NO_MEMORY, "no host memory for the pieces of buckets");
    }
    list_pieces(executor, bucket, piece, first);
    const int own = first[executor->replica + 1] - first[executor->replica];
    const int64_t slots = (int64_t)(replicas - 1) * own + (count - own);
    executor->exchange[k] = (ckpt_exchange){
        .bucket = bucket, .piece = piece, .first = first, .slot = (int)h->slots, .slot_count = (int)slots};
    h->slots += slots;
    room[0] = take_room(h, bucket->count * (ckpt_bytes)sizeof(float));
    room[1] = take_room(h, bucket->staging_bytes);
    return CKPT_OK;
}

/* With overlap several buckets are on their way at once. */
static ckpt_code hand_buckets(handing *h, ckpt_bytes *room)
{
    const ckpt_lowered *const lowered = h->executor->lowered;
    const handing before = *h;
    handing most = *h;
    for (int k = 0; k < lowered->bucket_count; k++) {
        if (!lowered->network->scheme.overlap) {
            h->slots = before.slots;
            h->bytes = before.bytes;
        }
        CKPT_TRY(hand_bucket(h, k, &room[2 * k]));
        most.slots = h->slots > most.slots ? h->slots : most.slots;
        most.bytes = h->bytes > most.bytes ? h->bytes : most.bytes;
    }
    h->slots = most.slots;
    h->bytes = most.bytes;
    return CKPT_OK;
}

/* Parameters that stages share, one after the other: slots and a room that do for each of them. */
static ckpt_bytes hand_shared(handing *h)
{
    const ckpt_network *const network = h->executor->lowered->network;
    ckpt_bytes most = 0;
    int holders = 0;
    for (int i = 0; i < network->shared_count; i++) {
        const ckpt_shared *const shared = &network->shared[i];
        const ckpt_bytes each = ckpt_tensor_bytes(&network->node[shared->owner].param[shared->param].tensor);
        ckpt_bytes all = 0;
        h->overflow = h->overflow || !ckpt_product(each, shared->holder_count, &all);
        most = all > most ? all : most;
        holders = shared->holder_count > holders ? shared->holder_count : holders;
    }
    h->executor->shared_slot = (int)h->slots;
    h->slots += (int64_t)holders * (holders + 1); /* each from another, and every own one to each of those */
    return take_room(h, most);
}

static ckpt_code take_post(handing *h)
{
    ckpt_executor *const executor = h->executor;
    if (h->overflow || h->slots > INT32_MAX) {
        return CKPT_FAIL(h->err, CKPT_OVERFLOW, "%s: messages beyond what can be counted", executor->plan->source);
    }
    if (h->rooms && h->bytes > 0) {
        void *base = NULL;
        CKPT_TRY_WHILE(h->err, executor->device->api->reserve_host(executor->device, h->bytes, &base, h->err),
                       "reserving the host's %lld bytes for messages", (long long)h->bytes);
        executor->post = base;
        executor->post_bytes = h->bytes;
    }
    return CKPT_OK;
}

/* Sums of losses of all ranks; sums of squares of this one, of one replica at a time, and of all ranks. */
static ckpt_code take_sums(ckpt_executor *executor, int ranks, ckpt_err *err)
{
    const ckpt_network *const network = executor->lowered->network;
    executor->losses = CKPT_NEW(&executor->arena, double, ranks);
    if (network->clip_norm > 0) {
        executor->squares = CKPT_NEW(&executor->arena, double, (size_t)network->node_count *((size_t)ranks + 2));
    }
    return executor->losses == NULL || (network->clip_norm > 0 && executor->squares == NULL)
               ? CKPT_FAIL(err, CKPT_NO_MEMORY, "no host memory for the sums of %d ranks", ranks)
               : CKPT_OK;
}

ckpt_code ckpt_executor_join(ckpt_executor *executor, ckpt_err *err)
{
    const ckpt_lowered *const lowered = executor->lowered;
    const int ranks = ckpt_scheme_ranks(&lowered->network->scheme), ops = lowered->graph->op_count;
    if (ranks == 1) {
        return CKPT_OK;
    }
    ckpt_bytes *const room = CKPT_NEW(&executor->arena, ckpt_bytes, ops);
    ckpt_bytes *const rooms = CKPT_NEW(&executor->arena, ckpt_bytes, 2 * (size_t)lowered->bucket_count);
    executor->transfer = CKPT_NEW(&executor->arena, ckpt_transfer, ops);
    executor->exchange = CKPT_NEW(&executor->arena, ckpt_exchange, lowered->bucket_count);
    if (room == NULL || rooms == NULL || executor->transfer == NULL || executor->exchange == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no host memory for the messages of %d ops", ops);
    }
    handing h = {.executor = executor,
                 .rooms = executor->device->api->gpu && !ckpt_ranks_on_device(executor->options.ranks),
                 .slots = SLOT_FIRST,
                 .err = err};
    CKPT_TRY(take_sums(executor, ranks, err));
    CKPT_TRY(hand_messages(&h, room));
    CKPT_TRY(hand_buckets(&h, rooms));
    const ckpt_bytes shared = hand_shared(&h);
    CKPT_TRY(take_post(&h));
    executor->shared_room = room_at(&h, shared);
    for (int o = 0; o < ops; o++) {
        executor->transfer[o].room = is_message(&lowered->op_role[o]) ? room_at(&h, room[o]) : NULL;
    }
    for (int k = 0; k < lowered->bucket_count; k++) {
        executor->exchange[k].mirror = room_at(&h, rooms[2 * k]);
        executor->exchange[k].incoming = room_at(&h, rooms[2 * k + 1]);
    }
    return ckpt_ranks_slots(executor->options.ranks, (int)h.slots, err);
}

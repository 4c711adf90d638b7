/* A network that is trained by a scheme: which stage has which layers, and which gradients are reduced together. */
#include <assert.h>
#include <string.h>

#include "ops/lowering/network.h"
#include "ops/lowering/network_impl.h"

enum { CHUNK_ELEMENTS = 16 }; /* chunks start where vectors and cache lines do */

/* ---- stages ---- */

static int find_node(const ckpt_network *network, const char *name)
{
    for (int n = 0; n < network->node_count; n++) {
        if (strcmp(network->node[n].name, name) == 0) {
            return n;
        }
    }
    return -1;
}

static ckpt_code cut(const ckpt_network *network, const ckpt_scheme *scheme, int *stage_of, ckpt_err *err)
{
    int from = 0;
    for (int s = 0; s < scheme->stages; s++) {
        const int n = find_node(network, scheme->first_layer[s]);
        if (n < 0 || (s == 0 ? n != 0 : n <= from)) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: stage %d of %d begins with layer %.80s, which %s",
                             network->model->source, s, scheme->stages, scheme->first_layer[s],
                             n < 0    ? "the model does not have"
                             : s == 0 ? "is not the model's first"
                                      : "does not come after the stage before has begun");
        }
        from = n;
        for (int i = n; i < network->node_count; i++) {
            stage_of[i] = s;
        }
    }
    return CKPT_OK;
}

/* ---- tied parameters of several stages ---- */

/* Tables: [node * CKPT_PARAM_MAX + k], of the owner's parameter. */
typedef struct tying {
    const ckpt_network *network;
    const ckpt_scheme *scheme;
    const int *stage_of;
    ckpt_node *node;             /* of the network that is made */
    int *latest;                 /* the holder that was found last; only with `holders` */
    int *holders;                /* layers that have the parameter or a copy of it */
    ckpt_tied_group *tied_group; /* of several holders */
    int count;
} tying;

/* The node that holds parameter k of `owner` for node n, which is the owner or tied to it; nodes before n have theirs.
 * In the owner's stage it is the owner, in another stage the first node there that is tied to it; with scheme.apart
 * every node holds its own. */
static int holder_of(const tying *s, int owner, int k, int n)
{
    if (n == owner || s->scheme->apart) {
        return n;
    }
    if (s->stage_of[n] == s->stage_of[owner]) {
        return owner;
    }
    const int at = owner * CKPT_PARAM_MAX + k;
    return s->holders[at] > 0 && s->stage_of[s->latest[at]] == s->stage_of[n] ? s->latest[at] : n;
}

static void find_holders(tying *s)
{
    for (int n = 0; n < s->network->node_count; n++) {
        for (int k = 0; k < s->node[n].param_count; k++) {
            ckpt_param *const param = &s->node[n].param[k];
            const int owner = param->tied >= 0 ? param->tied : n;
            const int holder = holder_of(s, owner, k, n);
            if (holder == n) {
                s->latest[owner * CKPT_PARAM_MAX + k] = n;
                s->holders[owner * CKPT_PARAM_MAX + k]++;
            }
            if (n != owner) {
                param->tied = holder == n ? -1 : holder;
                param->copy_of = holder == n ? owner : -1;
            }
        }
    }
}

/* The tied groups, in the order of their owners; the holders of each, the last first. */
static ckpt_code list_holders(tying *s, ckpt_arena *out, ckpt_err *err)
{
    const int params = s->network->node_count * CKPT_PARAM_MAX;
    int all = 0;
    for (int i = 0; i < params; i++) {
        all += s->holders[i] > 1 ? s->holders[i] : 0;
    }
    int *const holder = CKPT_NEW(out, int, all);
    s->tied_group = CKPT_NEW(out, ckpt_tied_group, all / 2);
    if (holder == NULL || s->tied_group == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "layers that share parameters");
    }
    int *number = s->latest; /* which tied group; -1: of one holder */
    for (int i = 0, at = 0; i < params; i++) {
        number[i] = s->holders[i] > 1 ? s->count++ : -1;
        if (number[i] >= 0) {
            s->tied_group[number[i]] =
                (ckpt_tied_group){.owner = i / CKPT_PARAM_MAX, .param = i % CKPT_PARAM_MAX, .holder = &holder[at]};
            at += s->holders[i];
        }
    }
    for (int n = s->network->node_count - 1; n >= 0; n--) {
        for (int k = 0; k < s->node[n].param_count; k++) {
            const ckpt_param *const param = &s->node[n].param[k];
            const int owner = param->copy_of >= 0 ? param->copy_of : n;
            const int at = number[owner * CKPT_PARAM_MAX + k];
            if (param->tied < 0 && at >= 0) {
                holder[s->tied_group[at].holder - holder + s->tied_group[at].holder_count++] = n;
            }
        }
    }
    return CKPT_OK;
}

/* A copy that no gradient reaches would never be updated. */
static ckpt_code check_reached(const tying *s, ckpt_arena *out, ckpt_err *err)
{
    const bool *backward = NULL;
    CKPT_TRY(ckpt_network_reach(s->network, out, &backward, err));
    for (int i = 0; i < s->count; i++) {
        const ckpt_tied_group *const group = &s->tied_group[i];
        for (int h = 0; h < group->holder_count; h++) {
            if (!backward[group->holder[h]]) {
                return CKPT_FAIL(err, CKPT_BAD_INPUT,
                                 "%s: layer %s shares parameters over stages with %s, and no gradient comes to it",
                                 s->network->model->source, s->network->node[group->holder[h]].name,
                                 s->network->node[group->holder[h > 0 ? 0 : 1]].name);
            }
        }
    }
    return CKPT_OK;
}

static ckpt_code copy_tied(const ckpt_network *network, ckpt_network *spread, ckpt_arena *out, ckpt_err *err)
{
    const size_t params = (size_t)network->node_count * CKPT_PARAM_MAX;
    tying s = {.network = network,
               .scheme = &spread->scheme,
               .stage_of = spread->stage_of,
               .node = CKPT_NEW(out, ckpt_node, network->node_count),
               .latest = CKPT_NEW(out, int, params),
               .holders = CKPT_NEW(out, int, params)};
    if (s.node == NULL || s.latest == NULL || s.holders == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "layers that share parameters");
    }
    for (int n = 0; n < network->node_count; n++) {
        s.node[n] = network->node[n];
        CKPT_TRY(ckpt_node_own(&s.node[n], out, err));
    }
    find_holders(&s);
    CKPT_TRY(list_holders(&s, out, err));
    CKPT_TRY(check_reached(&s, out, err));
    spread->node = s.node;
    spread->tied_group = s.tied_group;
    spread->tied_group_count = s.count;
    if (s.count > 0 && spread->scheme.shard_optimizer) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "%s: layers %s and %s share parameters over stages, which a sharded optimizer cannot: leave "
                         "--shard out",
                         network->model->source, network->node[s.tied_group[0].holder[1]].name,
                         network->node[s.tied_group[0].holder[0]].name);
    }
    return CKPT_OK;
}

ckpt_code ckpt_network_spread(const ckpt_network *network, const ckpt_scheme *scheme, ckpt_arena *out,
                              const ckpt_network **spread, ckpt_err *err)
{
    assert(network->tied_group_count == 0); /* its ties would be gone */
    CKPT_TRY(ckpt_scheme_check(scheme, err));
    ckpt_network *const made = CKPT_NEW(out, ckpt_network, 1);
    int *const stage_of = CKPT_NEW(out, int, network->node_count);
    if (made == NULL || stage_of == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "stages of %d layers", network->node_count);
    }
    if (scheme->stages > 1) {
        if (scheme->first_layer == NULL) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: %d stages, and nothing says where they begin",
                             network->model->source, scheme->stages);
        }
        CKPT_TRY(cut(network, scheme, stage_of, err));
    }
    if (scheme->fused && network->clip_norm > 0) {
        return CKPT_FAIL(
            err, CKPT_BAD_INPUT,
            "%s: clip_norm %g needs the length of all gradients at once, and with fused gradients the first "
            "are gone before the last are there: --gradients static",
            network->model->source, network->clip_norm);
    }
    if (scheme->shard_optimizer && network->optimizer->slot_bytes != NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "%s: %s updates a parameter as a whole, so that its state cannot be sharded: without --shard",
                         network->model->source, network->optimizer->name);
    }
    *made = *network;
    made->scheme = *scheme;
    made->stage_of = stage_of;
    if (scheme->stages > 1 || scheme->apart) {
        CKPT_TRY(copy_tied(network, made, out, err));
    }
    *spread = made;
    return CKPT_OK;
}

/* ---- which layers gradients reach ---- */

ckpt_code ckpt_network_reach(const ckpt_network *network, ckpt_arena *out, const bool **backward, ckpt_err *err)
{
    bool *const reached = CKPT_NEW(out, bool, network->value_count); /* per storage: it has a gradient */
    bool *const has = CKPT_NEW(out, bool, network->node_count);
    if (reached == NULL || has == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "gradients of %d layers", network->node_count);
    }
    const ckpt_node *const last = &network->node[network->node_count - 1];
    const int end = network->value[network->value[last->out_value[0]].storage].node;
    for (int n = network->node_count - 1; n >= 0; n--) {
        const ckpt_node *const node = &network->node[n];
        bool here = n == end;
        for (int k = 0; k < node->out_count; k++) {
            here = here || reached[network->value[node->out_value[k]].storage];
        }
        has[n] = here && !node->alias && (ckpt_node_learns(node) || node->grad_in != 0);
        for (int k = 0; has[n] && k < node->in_count; k++) {
            reached[network->value[node->in_value[k]].storage] |= (node->grad_in >> k & 1) != 0;
        }
    }
    *backward = has;
    return CKPT_OK;
}

void ckpt_network_completes(const ckpt_network *network, const bool *backward, int *completes)
{
    for (int n = 0; n < network->node_count; n++) {
        completes[n] = -1;
    }
    for (int n = network->node_count - 1; n >= 0; n--) { /* as backward goes: the lowest layer is the last */
        const ckpt_node *const node = &network->node[n];
        for (int k = 0; k < node->param_count && backward[n]; k++) {
            completes[node->param[k].tied >= 0 ? node->param[k].tied : n] = n;
        }
    }
}

/* ---- buckets ---- */

typedef struct packing {
    const ckpt_network *network;
    const bool *backward;
    int *complete;      /* per node: the node whose backward completes its own parameters' gradients; -1: none comes */
    int *first, *lower; /* per node, 1 more than a node: of those it completes, the one with the highest number; of
                           those that the same node completes, the next lower one; 0: none */
    int *order;         /* nodes, as their gradients become complete */
    int order_count;
    uint8_t *reached; /* see ckpt_bucket */
} packing;

static void order_nodes(packing *p)
{
    const ckpt_network *const network = p->network;
    ckpt_network_completes(network, p->backward, p->complete);
    for (int n = 0; n < network->node_count; n++) {
        const ckpt_node *const node = &network->node[n];
        for (int k = 0; p->backward[n] && k < node->param_count; k++) {
            p->reached[node->param[k].tied >= 0 ? node->param[k].tied : n] |= (uint8_t)(1u << k);
        }
    }
    /* Those that one node completes, the last first: lists, each layer before those with lower numbers. */
    for (int n = 0; n < network->node_count; n++) {
        const int at = p->complete[n];
        if (at >= 0 && network->stage_of[n] == network->scheme.stage) {
            p->lower[n] = p->first[at];
            p->first[at] = n + 1;
        }
    }
    for (int at = network->node_count - 1; at >= 0; at--) {
        for (int n = p->first[at]; n > 0; n = p->lower[n - 1]) {
            p->order[p->order_count++] = n - 1;
        }
    }
}

/* Elements of a node's own parameters that gradients reach. */
static ckpt_code node_elements(const packing *p, int n, int64_t *count, ckpt_err *err)
{
    const ckpt_node *const node = &p->network->node[n];
    *count = 0;
    for (int k = 0; k < node->param_count; k++) {
        if ((p->reached[n] >> k & 1) != 0 && !ckpt_sum(*count, ckpt_shape_count(&node->param[k].tensor.shape), count)) {
            return CKPT_FAIL(err, CKPT_OVERFLOW, "parameters of %s", node->name);
        }
    }
    return CKPT_OK;
}

static ckpt_code close_bucket(const packing *p, ckpt_bucket *bucket, ckpt_bytes *shard, ckpt_err *err)
{
    const int64_t replicas = p->network->scheme.replicas;
    ckpt_bytes bytes = 0;
    const int64_t even = bucket->count / replicas + (bucket->count % replicas != 0);
    bucket->shard = *shard;
    bucket->chunk = even;
    const bool fits = ckpt_sum(even, CHUNK_ELEMENTS - 1, &bucket->chunk);
    bucket->chunk -= bucket->chunk % CHUNK_ELEMENTS;
    if (!fits || !ckpt_product(bucket->chunk, (int64_t)sizeof(float), &bytes) || !ckpt_sum(*shard, bytes, shard) ||
        !ckpt_product(bytes, replicas - 1, &bucket->staging_bytes)) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "a bucket of %lld gradients", (long long)bucket->count);
    }
    return CKPT_OK;
}

static ckpt_code fill_buckets(const packing *p, ckpt_bucket *bucket, int *count, ckpt_err *err)
{
    ckpt_bytes shard = 0;
    int made = 0;
    for (int i = 0; i < p->order_count; i++) {
        int64_t elements = 0;
        CKPT_TRY(node_elements(p, p->order[i], &elements, err));
        ckpt_bucket *const now = &bucket[made];
        now->node = now->node_count == 0 ? &p->order[i] : now->node;
        now->node_count++;
        if (!ckpt_sum(now->count, elements, &now->count)) {
            return CKPT_FAIL(err, CKPT_OVERFLOW, "a bucket of gradients");
        }
        const int64_t enough = (p->network->scheme.bucket_bytes - 1) / (int64_t)sizeof(float) + 1;
        if (now->count >= enough || i + 1 == p->order_count) {
            CKPT_TRY(close_bucket(p, now, &shard, err));
            made++;
        }
    }
    *count = made;
    return CKPT_OK;
}

ckpt_code ckpt_network_buckets(const ckpt_network *network, ckpt_arena *out, const ckpt_bucket **bucket, int *count,
                               ckpt_err *err)
{
    *bucket = NULL;
    *count = 0;
    if (network->scheme.replicas <= 1) {
        return CKPT_OK;
    }
    packing p = {.network = network};
    CKPT_TRY(ckpt_network_reach(network, out, &p.backward, err));
    p.complete = CKPT_NEW(out, int, network->node_count);
    p.first = CKPT_NEW(out, int, network->node_count);
    p.lower = CKPT_NEW(out, int, network->node_count);
    p.order = CKPT_NEW(out, int, network->node_count);
    p.reached = CKPT_NEW(out, uint8_t, network->node_count);
    ckpt_bucket *const made = CKPT_NEW(out, ckpt_bucket, network->node_count);
    if (p.complete == NULL || p.first == NULL || p.lower == NULL || p.order == NULL || p.reached == NULL ||
        made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "buckets of %d layers", network->node_count);
    }
    order_nodes(&p);
    for (int i = 0; i < network->node_count; i++) {
        made[i].reached = p.reached;
    }
    *bucket = made;
    return fill_buckets(&p, made, count, err);
}

bool ckpt_bucket_next(const ckpt_network *network, const ckpt_bucket *bucket, int64_t from, int64_t to,
                      ckpt_piece *piece)
{
    int64_t at = 0; /* number of the parameter's first element in the bucket */
    const int64_t behind = piece->node < 0 ? from : piece->at + piece->count;
    for (int i = 0; i < bucket->node_count; i++) {
        const ckpt_node *const node = &network->node[bucket->node[i]];
        for (int k = 0; k < node->param_count; k++) {
            if ((bucket->reached[node->index] >> k & 1) == 0) {
                continue;
            }
            const int64_t end = at + ckpt_shape_count(&node->param[k].tensor.shape);
            const int64_t first = at > behind ? at : behind, last = end < to ? end : to;
            if (first < last) {
                *piece = (ckpt_piece){
                    .node = node->index, .param = k, .first = first - at, .count = last - first, .at = first};
                return true;
            }
            at = end;
        }
    }
    return false;
}

/* labels: unit */
/* Steps of several replicas: what they do besides the step of one, where, and how long that takes. */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/support_scheme.h"

enum { ROUNDS = 1500, FEW = 300, LAYERS = 24 };

typedef struct spread_step {
    test_model m;
    ckpt_network alone;         /* as inferred */
    const ckpt_network *one;    /* one replica */
    const ckpt_network *spread; /* several */
    const ckpt_lowered *plain, *lowered;
} spread_step;

/* A random step of a random stage; the same with one replica and an optimizer that is not sharded. */
static void build(spread_step *s)
{
    test_random_model(&s->m, LAYERS);
    ckpt_scheme scheme = ckpt_scheme_alone;
    scheme.micro_batches = 1 + (int)ckpt_test_draw(3);
    scheme.stages = 1 + (int)ckpt_test_draw(3);
    scheme.fused = ckpt_test_draw(2) == 0;
    scheme.apart = ckpt_test_draw(4) == 0;
    scheme.replicas = 2 + (int)ckpt_test_draw(3);
    scheme.shard_optimizer = ckpt_test_draw(2) == 0;
    scheme.overlap = ckpt_test_draw(2) == 0;
    scheme.bucket_bytes = 1 + (ckpt_bytes)ckpt_test_draw(ckpt_test_draw(2) == 0 ? 600 : 4000);
    scheme.network_bytes_per_s = 1 + (int64_t)ckpt_test_draw(1000000000);
    s->alone = *test_infer(&s->m);
    s->alone.clip_norm = !scheme.fused && ckpt_test_draw(2) == 0 ? 0.5 : 0;
    scheme = test_spread(&s->m, &s->alone, scheme)->scheme;
    const int stage = (int)ckpt_test_draw((uint64_t)scheme.stages);
    s->spread = test_stage(&s->m, &s->alone, scheme, stage);
    scheme.replicas = 1;
    scheme.shard_optimizer = false;
    scheme.overlap = false;
    s->one = test_stage(&s->m, &s->alone, scheme, stage);
    s->plain = test_lower_network(&s->m, s->one);
    s->lowered = test_lower_network(&s->m, s->spread);
}

static int find_bucket_op(const ckpt_lowered *lowered, ckpt_task task, int bucket)
{
    int found = -1;
    for (int i = 0; i < lowered->graph->op_count; i++) {
        if (lowered->op_role[i].task == task && lowered->op_role[i].bucket == bucket) {
            CHECK(found < 0, "%s stands there twice", lowered->graph->op[i].name);
            found = i;
        }
    }
    return found;
}

static bool is_reduction(const ckpt_op_role *role)
{
    return role->task == CKPT_TASK_REDUCE_START || role->task == CKPT_TASK_REDUCE ||
           role->task == CKPT_TASK_REDUCE_END || role->task == CKPT_TASK_ALL_GATHER;
}

static bool is_update(const ckpt_op_role *role)
{
    return role->task == CKPT_TASK_LAYER && role->phase == CKPT_UPDATE;
}

static const char *show(test_model *m, const ckpt_lowered *lowered, int i)
{
    const ckpt_graph_op *const op = &lowered->graph->op[i];
    const ckpt_op_role *const role = &lowered->op_role[i];
    const char *const text = ckpt_arena_format(
        &m->arena, "%s | %s > %s + %s | %llx %lld", op->name, test_names(m, lowered->graph, op->reads),
        test_names(m, lowered->graph, op->writes), test_names(m, lowered->graph, op->adds),
        (unsigned long long)role->grad_param_adds, (long long)op->workspace_bytes);
    assert_non_null(text);
    return text;
}

/* Each replica updates its part of a sharded optimizer. */
static void check_share(const spread_step *s, int one, int several)
{
    const ckpt_scheme *const scheme = &s->spread->scheme;
    const int parts = scheme->shard_optimizer ? scheme->replicas : 1;
    const ckpt_bytes whole = s->plain->op_role[one].moved_bytes;
    const ckpt_bytes part = s->lowered->op_role[several].moved_bytes;
    const ckpt_bytes rounded = 64 * parts; /* of a few numbers per element */
    assert_true(part * parts <= whole && part * parts > whole - rounded);
}

/* Besides reductions it is the step of one replica: all but updates in the same order, updates in the same number, and
 * where they all come at the end in the same order too. */
static void compare_with_one(spread_step *s)
{
    int a = 0, updates = 0;
    for (int b = 0; b < s->lowered->graph->op_count; b++) {
        const ckpt_op_role *const role = &s->lowered->op_role[b];
        if (is_reduction(role)) {
            continue;
        }
        if (is_update(role) && s->spread->scheme.fused) {
            const int other = ckpt_graph_find_op(s->plain->graph, s->lowered->graph->op[b].name);
            assert_true(other >= 0);
            assert_string_equal(show(&s->m, s->plain, other), show(&s->m, s->lowered, b));
            check_share(s, other, b);
            updates++;
            continue;
        }
        while (s->spread->scheme.fused && a < s->plain->graph->op_count && is_update(&s->plain->op_role[a])) {
            updates--;
            a++;
        }
        assert_true(a < s->plain->graph->op_count);
        const char *const wanted = show(&s->m, s->plain, a);
        const char *const found = show(&s->m, s->lowered, b);
        CHECK(strcmp(wanted, found) == 0, "found\n%s\nwanted\n%s", found, wanted);
        if (is_update(role)) {
            check_share(s, a, b);
        }
        a++;
    }
    while (a < s->plain->graph->op_count && is_update(&s->plain->op_role[a])) {
        updates--;
        a++;
    }
    assert_int_equal(a, s->plain->graph->op_count);
    assert_int_equal(updates, 0);
}

/* The op behind which nothing gives to the gradients of a bucket, found by looking at each layer's backward. */
static int last_giver(const ckpt_lowered *lowered, const ckpt_bucket *bucket)
{
    int last = -1;
    for (int i = 0; i < lowered->graph->op_count; i++) {
        const ckpt_op_role *const role = &lowered->op_role[i];
        if (role->task != CKPT_TASK_LAYER || role->phase != CKPT_BACKWARD) {
            continue;
        }
        const ckpt_node *const node = &lowered->network->node[role->node];
        for (int n = 0; n < bucket->node_count; n++) {
            for (int k = 0; k < node->param_count; k++) {
                const int owner = node->param[k].tied >= 0 ? node->param[k].tied : node->index;
                last = owner == bucket->node[n] ? i : last;
            }
        }
    }
    return last;
}

/* The last op of backward. */
static int end_of_backward(const ckpt_lowered *lowered)
{
    int last = -1;
    for (int i = 0; i < lowered->graph->op_count; i++) {
        const ckpt_op_role *const role = &lowered->op_role[i];
        last = role->task == CKPT_TASK_LAYER && role->phase == CKPT_BACKWARD ? i : last;
    }
    return last;
}

static bool lists(ckpt_list list, int buffer)
{
    for (int i = 0; i < list.count; i++) {
        if (list.at[i] == buffer) {
            return true;
        }
    }
    return false;
}

/* A list has just the gradients of the bucket that are buffers. */
static void check_gradients(const ckpt_lowered *lowered, const ckpt_bucket *bucket, ckpt_list list)
{
    int wanted = 0;
    for (int b = 0; b < lowered->graph->buffer_count; b++) {
        const ckpt_buffer_role *const role = &lowered->buffer_role[b];
        bool mine = false;
        for (int n = 0; n < bucket->node_count; n++) {
            mine = mine || (role->holds == CKPT_HOLDS_PARAM_GRADIENT && role->node == bucket->node[n]);
        }
        wanted += mine;
        assert_true(!mine || lists(list, b));
    }
    assert_int_equal(list.count, wanted);
}

/* Its parts are no larger than they must be, and its pieces are all elements that a gradient comes to, once. */
static void check_parts(const spread_step *s, const ckpt_bucket *bucket)
{
    const int64_t replicas = s->spread->scheme.replicas;
    assert_int_equal(bucket->chunk % 16, 0);
    assert_true(bucket->chunk * replicas >= bucket->count && (bucket->chunk - 16) * replicas < bucket->count);
    assert_int_equal(bucket->staging_bytes, (replicas - 1) * bucket->chunk * 4);
    int64_t count = 0;
    ckpt_piece piece = {.node = -1};
    while (ckpt_bucket_next(s->spread, bucket, 0, bucket->count, &piece)) {
        bool given = false;
        for (int i = 0; i < s->lowered->graph->op_count; i++) {
            const ckpt_op_role *const role = &s->lowered->op_role[i];
            const ckpt_node *const node = role->task == CKPT_TASK_LAYER ? &s->spread->node[role->node] : NULL;
            given = given || (node != NULL && role->phase == CKPT_BACKWARD && piece.param < node->param_count &&
                              (node->index == piece.node || node->param[piece.param].tied == piece.node));
        }
        assert_true(given);
        assert_int_equal(piece.at, count);
        count += piece.count;
    }
    assert_int_equal(count, bucket->count);
}

static void check_bucket(const spread_step *s, int k)
{
    const ckpt_lowered *const lowered = s->lowered;
    const ckpt_graph *const g = lowered->graph;
    const ckpt_bucket *const bucket = &lowered->bucket[k];
    const ckpt_scheme *const scheme = &s->spread->scheme;
    const int start = find_bucket_op(lowered, CKPT_TASK_REDUCE_START, k);
    const int reduce = find_bucket_op(lowered, CKPT_TASK_REDUCE, k);
    const int summed = find_bucket_op(lowered, CKPT_TASK_REDUCE_END, k);
    const int gather = find_bucket_op(lowered, CKPT_TASK_ALL_GATHER, k);
    const int complete = last_giver(lowered, bucket), end = end_of_backward(lowered);
    const int next = find_bucket_op(lowered, CKPT_TASK_REDUCE_START, k + 1);
    assert_true(complete >= 0 && reduce > complete);
    check_parts(s, bucket);
    assert_int_equal(start >= 0, scheme->overlap);
    assert_int_equal(summed >= 0, scheme->overlap && !scheme->shard_optimizer);
    assert_int_equal(gather >= 0, scheme->shard_optimizer);
    /* Where its exchange begins: right behind what completes it, or at the end. */
    const int begins = scheme->overlap ? start : reduce;
    if (scheme->overlap || scheme->fused) {
        for (int i = complete + 1; i < begins; i++) {
            assert_true(lowered->op_role[i].task == CKPT_TASK_SEND || is_reduction(&lowered->op_role[i]) ||
                        is_update(&lowered->op_role[i]));
        }
    } else {
        assert_true(begins > end);
    }
    const ckpt_bytes staging = (bucket->staging_bytes + 63) / 64 * 64;
    if (scheme->overlap) {
        assert_int_equal(g->op[start].writes.count, 1);
        const int buffer = g->op[start].writes.at[0];
        assert_int_equal(lowered->buffer_role[buffer].holds, CKPT_HOLDS_BUCKET);
        assert_int_equal(lowered->buffer_role[buffer].bucket, k);
        assert_int_equal(g->buffer[buffer].bytes, staging);
        assert_true(lists(g->op[reduce].reads, buffer) && g->op[reduce].reads.count == 1);
        assert_true(next >= 0 ? reduce == next - 1 : reduce > end);
        check_gradients(lowered, bucket, g->op[start].reads);
    }
    assert_int_equal(g->op[reduce].workspace_bytes, scheme->overlap ? 0 : staging);
    check_gradients(lowered, bucket, g->op[reduce].adds);
    if (summed >= 0) {
        check_gradients(lowered, bucket, g->op[summed].adds);
    }
    /* Its updates: all of them, behind its sums and before the parameters are spread. */
    int updates = 0, first = -1, last = -1;
    for (int i = 0; i < g->op_count; i++) {
        if (is_update(&lowered->op_role[i]) && lowered->op_role[i].bucket == k) {
            first = first < 0 ? i : first;
            last = i;
            updates++;
        }
    }
    assert_int_equal(updates, bucket->node_count);
    assert_true(first > reduce && (summed < 0 || (summed > reduce && summed < first)));
    assert_true(gather < 0 || gather == last + 1);
    if (scheme->fused && !scheme->overlap && s->spread->tied_group_count == 0) {
        assert_int_equal(first, reduce + 1);
    }
}

/* Parameters that gradients come to in this stage, those that are copies left out. */
static ckpt_bytes norm_bytes(const spread_step *s)
{
    ckpt_bytes bytes = 0;
    for (int n = 0; n < s->spread->node_count; n++) {
        for (int k = 0; k < s->spread->node[n].param_count; k++) {
            const ckpt_param *const param = &s->spread->node[n].param[k];
            bool given = false;
            for (int i = 0; i < s->lowered->graph->op_count; i++) {
                const ckpt_op_role *const role = &s->lowered->op_role[i];
                const ckpt_node *const node = role->task == CKPT_TASK_LAYER ? &s->spread->node[role->node] : NULL;
                given = given || (node != NULL && role->phase == CKPT_BACKWARD && k < node->param_count &&
                                  (node->index == n || node->param[k].tied == n));
            }
            bytes += given && param->tied < 0 && param->copy_of < 0 ? ckpt_tensor_bytes(&param->tensor) : 0;
        }
    }
    return bytes;
}

/* The norm is of sums, and all updates are scaled by it. */
static void check_norm(const spread_step *s)
{
    const ckpt_graph *const g = s->lowered->graph;
    const int norm = ckpt_graph_find_op(g, "@norm");
    assert_int_equal(norm >= 0, s->spread->clip_norm > 0);
    for (int i = 0; norm >= 0 && i < g->op_count; i++) {
        const ckpt_op_role *const role = &s->lowered->op_role[i];
        assert_true(role->task == CKPT_TASK_NORM ? i == norm : true);
        if (i == norm) {
            const int parts = s->spread->scheme.shard_optimizer ? s->spread->scheme.replicas : 1;
            assert_int_equal(role->moved_bytes, norm_bytes(s) / parts);
        }
        assert_true(is_update(role) || role->task == CKPT_TASK_ALL_GATHER ? i > norm : i <= norm);
    }
}

static void test_replicas_do_a_step_and_reduce(void **state)
{
    const uint64_t rounds = ckpt_test_rounds(ROUNDS, FEW);
    int buckets = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        spread_step s;
        build(&s);
        compare_with_one(&s);
        int updates = 0;
        for (int k = 0; k < s.lowered->bucket_count; k++) {
            check_bucket(&s, k);
            updates += s.lowered->bucket[k].node_count;
        }
        for (int i = 0; i < s.lowered->graph->op_count; i++) {
            const ckpt_op_role *const role = &s.lowered->op_role[i];
            updates -= is_update(role);
            assert_false(role->task != CKPT_TASK_LAYER && s.lowered->graph->op[i].recompute);
        }
        assert_int_equal(updates, 0);
        check_norm(&s);
        buckets += s.lowered->bucket_count;
        test_model_fini(&s.m);
    }
    assert_true(buckets > (int)rounds);
}

/* Who holds a tied parameter: its owner, in another stage the first of those tied to it; or all of them. */
static void check_holders(const spread_step *s)
{
    const ckpt_network *const before = &s->alone, *const after = s->spread;
    for (int n = 0; n < before->node_count; n++) {
        for (int k = 0; k < before->node[n].param_count; k++) {
            const int owner = before->node[n].param[k].tied;
            if (owner < 0) {
                assert_true(after->node[n].param[k].tied < 0 && after->node[n].param[k].copy_of < 0);
                continue;
            }
            int wanted = after->stage_of[n] == after->stage_of[owner] ? owner : -1;
            for (int i = 0; i <= n && wanted < 0; i++) {
                const bool shares = k < before->node[i].param_count && before->node[i].param[k].tied == owner;
                wanted = shares && after->stage_of[i] == after->stage_of[n] ? i : -1;
            }
            wanted = after->scheme.apart ? n : wanted;
            assert_int_equal(after->node[n].param[k].tied, wanted == n ? -1 : wanted);
            assert_int_equal(after->node[n].param[k].copy_of, wanted == n ? owner : -1);
        }
    }
}

/* The others' copies come over the network; then all are summed up, and given to those that are here. */
static void check_sum_time(const spread_step *s, const ckpt_tied_group *group, ckpt_bytes bytes, int i)
{
    const ckpt_op_role *const role = &s->lowered->op_role[i];
    int64_t others = 0;
    for (int h = 0; h < group->holder_count; h++) {
        others += s->spread->stage_of[group->holder[h]] != s->spread->scheme.stage;
    }
    const ckpt_ns network = (ckpt_ns)((double)(others * bytes) * 1e9 / (double)s->spread->scheme.network_bytes_per_s);
    const ckpt_ns sum = ckpt_roofline_ns(&ckpt_device_models[0], NULL, CKPT_DIRECTION_UPDATE, CKPT_FLOAT32, role->flop,
                                         role->moved_bytes);
    assert_int_equal(s->lowered->graph->op[i].time_ns, network + sum);
}

/* The order in which stages of one replica come to their parts of a sum over stages is one; and each is behind all of
 * backward. */
static void test_sums_of_copies(void **state)
{
    const uint64_t rounds = ckpt_test_rounds(ROUNDS, FEW);
    int sums = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        spread_step s;
        build(&s);
        int last = -1;
        const ckpt_lowered *const lowered = s.lowered;
        check_holders(&s);
        for (int i = 0; i < lowered->graph->op_count; i++) {
            const ckpt_op_role *const role = &lowered->op_role[i];
            if (role->task != CKPT_TASK_REDUCE_TIED) {
                continue;
            }
            const ckpt_tied_group *const group = &s.spread->tied_group[role->tied_group];
            assert_true(role->tied_group > last && i > end_of_backward(lowered));
            last = role->tied_group;
            bool here = false;
            for (int h = 0; h < group->holder_count; h++) {
                here = here || s.spread->stage_of[group->holder[h]] == s.spread->scheme.stage;
                for (int u = 0; u < i; u++) {
                    assert_false(is_update(&lowered->op_role[u]) && lowered->op_role[u].node == group->holder[h]);
                }
            }
            for (int u = i; u < lowered->graph->op_count; u++) {
                assert_false(lowered->op_role[u].task == CKPT_TASK_REDUCE ||
                             lowered->op_role[u].task == CKPT_TASK_REDUCE_END ||
                             lowered->op_role[u].task == CKPT_TASK_SENT);
            }
            const ckpt_tensor *const tensor = &s.spread->node[group->owner].param[group->param].tensor;
            assert_true(here);
            assert_int_equal(lowered->graph->op[i].workspace_bytes,
                             (group->holder_count - 1) * ((ckpt_tensor_bytes(tensor) + 63) / 64 * 64));
            check_sum_time(&s, group, ckpt_tensor_bytes(tensor), i);
            sums++;
        }
        int wanted = 0;
        for (int i = 0; i < s.spread->tied_group_count; i++) {
            bool here = false;
            for (int h = 0; h < s.spread->tied_group[i].holder_count; h++) {
                here = here || s.spread->stage_of[s.spread->tied_group[i].holder[h]] == s.spread->scheme.stage;
            }
            wanted += here;
        }
        for (int i = 0; i < lowered->graph->op_count; i++) {
            wanted -= lowered->op_role[i].task == CKPT_TASK_REDUCE_TIED;
        }
        assert_int_equal(wanted, 0);
        test_model_fini(&s.m);
    }
    CHECK(sums > (int)rounds / 100, "%d sums in %d rounds", sums, (int)rounds);
}

static ckpt_ns total(const ckpt_lowered *lowered, bool reductions)
{
    ckpt_ns sum = 0;
    for (int i = 0; i < lowered->graph->op_count; i++) {
        sum += is_reduction(&lowered->op_role[i]) == reductions ? lowered->graph->op[i].time_ns : 0;
    }
    return sum;
}

/* What goes over the network takes its time; overlap hides as much of it as there is backward to hide it behind, and
 * no more. */
static void test_times(void **state)
{
    const uint64_t rounds = ckpt_test_rounds(ROUNDS, FEW);
    uint64_t hidden = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        spread_step s;
        build(&s);
        ckpt_scheme scheme = s.spread->scheme;
        const int stage = scheme.stage;
        scheme.overlap = false;
        const ckpt_lowered *const waiting = test_lower_network(&s.m, test_stage(&s.m, &s.alone, scheme, stage));
        scheme.overlap = true;
        const ckpt_lowered *const overlapped = test_lower_network(&s.m, test_stage(&s.m, &s.alone, scheme, stage));
        ckpt_ns network = 0; /* each way once, there and back */
        for (int k = 0; k < waiting->bucket_count; k++) {
            network +=
                2 * (ckpt_ns)((double)waiting->bucket[k].staging_bytes * 1e9 / (double)scheme.network_bytes_per_s);
        }
        const ckpt_ns sums = total(waiting, true) - network;
        assert_true(sums >= 0);
        assert_int_equal(total(waiting, false), total(overlapped, false));
        const ckpt_ns left = total(overlapped, true) - sums;
        assert_true(left >= 0 && left <= network);
        assert_true(left + total(overlapped, false) + sums >= network);
        hidden += left < network;
        /* With nothing to wait for, what is left is the summing up. */
        scheme.network_bytes_per_s = INT64_MAX;
        const ckpt_lowered *const fast = test_lower_network(&s.m, test_stage(&s.m, &s.alone, scheme, stage));
        assert_int_equal(total(fast, true), sums);
        test_model_fini(&s.m);
    }
    assert_true(hidden > rounds / 4);
}

/* A copy that no gradient comes to would never be updated. */
static void test_copies_without_a_gradient_are_refused(void **state)
{
    test_model m;
    test_model_rows(&m, 4, 8);
    test_layer(&m, "a", "linear", "x", "features=8");
    test_layer(&m, "nowhere", "linear", "x", "features=8")->tie = 0;
    test_layer(&m, "b", "linear", "a", "features=8");
    test_layer(&m, "loss", "mse", "b t", "");
    const char *const first[] = {"a", "nowhere"};
    ckpt_scheme scheme = ckpt_scheme_alone;
    scheme.stages = 2;
    scheme.first_layer = first;
    const ckpt_network *spread = NULL;
    ckpt_err err = {0};
    assert_int_equal(ckpt_network_spread(test_infer(&m), &scheme, &m.arena, &spread, &err), CKPT_BAD_INPUT);
    assert_string_equal(err.msg,
                        "test.json: layer nowhere shares parameters over stages with a, and no gradient comes to it");
    test_model_fini(&m);
}

static void test_by_hand(void **state)
{
    test_model m;
    test_model_init(&m);
    test_input(&m, "x", CKPT_FLOAT32, 2, (int64_t[]){4, 8});
    test_input(&m, "t", CKPT_FLOAT32, 2, (int64_t[]){4, 1});
    test_layer(&m, "a", "linear", "x", "features=8");
    test_layer(&m, "b", "linear", "a", "features=8")->tie = 0;
    test_layer(&m, "c", "linear", "b", "features=1 bias=false");
    test_layer(&m, "d", "linear", "c", "features=1");
    test_layer(&m, "loss", "mse", "d t", "");
    ckpt_network network = *test_infer(&m);
    network.clip_norm = 1;
    ckpt_scheme scheme = ckpt_scheme_alone;
    scheme.apart = true;
    /* b is a copy: 72 weights of a, 8 of c, 2 of d. */
    const ckpt_lowered *const apart = test_lower_network(&m, test_stage(&m, &network, scheme, 0));
    assert_int_equal(apart->op_role[ckpt_graph_find_op(apart->graph, "@norm")].moved_bytes, 4 * (72 + 8 + 2));
    scheme.replicas = 11;
    scheme.bucket_bytes = 9; /* 2 elements are not enough, with 8 more there are */
    const ckpt_lowered *const many = test_lower_network(&m, test_stage(&m, &network, scheme, 0));
    assert_int_equal(many->bucket_count, 3);
    assert_int_equal(many->bucket[0].count, 2 + 8);
    assert_int_equal(many->bucket[0].chunk, 16); /* fewer elements than replicas */
    assert_int_equal(many->bucket[1].count, 72);
    test_model_fini(&m);
}

/* Once written beyond an array on the stack. */
static void test_hundreds_of_copies(void **state)
{
    enum { COPIES = 200 };
    test_model m;
    test_model_rows(&m, 4, 8);
    for (int i = 0; i < COPIES; i++) {
        ckpt_layer *const layer =
            test_layer(&m, ckpt_arena_format(&m.arena, "n%d", i), "linear", i == 0 ? "x" : "", "features=8");
        layer->tie = i > 0 ? 0 : -1;
    }
    test_layer(&m, "loss", "mse", ckpt_arena_format(&m.arena, "n%d t", COPIES - 1), "");
    ckpt_scheme scheme = ckpt_scheme_alone;
    scheme.apart = true;
    scheme.fused = true;
    const ckpt_lowered *const lowered = test_lower_network(&m, test_stage(&m, test_infer(&m), scheme, 0));
    const int sum = ckpt_graph_find_op(lowered->graph, "@shared.0/reduce");
    assert_true(sum >= 0);
    assert_int_equal(lowered->graph->op[sum].adds.count, COPIES);
    test_model_fini(&m);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replicas_do_a_step_and_reduce),
        cmocka_unit_test(test_sums_of_copies),
        cmocka_unit_test(test_copies_without_a_gradient_are_refused),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_hundreds_of_copies),
        cmocka_unit_test(test_times),
    };
    ckpt_test_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

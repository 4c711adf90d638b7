/* labels: unit */
/* All stages of a random network together: they are the step of the whole network and messages; what one sends another
 * receives, in the same order; and no two wait for each other. */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/support_scheme.h"

enum { ROUNDS = 250, FEW = 50, LAYERS = 30, STAGES = 6, BATCHES = 12, REPLICAS = 3 };

typedef struct pipeline {
    test_model m;
    const ckpt_network *network;
    const ckpt_lowered *whole;
    const ckpt_lowered *stage[STAGES];
    int stages;
} pipeline;

/* `replicas`: draw their number, and what they do with gradients; else there is one. */
static void build(pipeline *p, int layers, bool replicas)
{
    test_random_model(&p->m, layers);
    ckpt_scheme scheme = ckpt_scheme_alone;
    scheme.replicas = replicas ? 1 + (int)ckpt_test_draw(REPLICAS) : 1;
    scheme.overlap = scheme.replicas > 1 && ckpt_test_draw(2) == 0;
    scheme.bucket_bytes = 1 + (ckpt_bytes)ckpt_test_draw(2000);
    scheme.micro_batches = 1 + (int)ckpt_test_draw(BATCHES);
    scheme.fused = ckpt_test_draw(2) == 0;
    scheme.apart = true; /* else tied layers of the whole network would have one parameter, and stages have copies */
    const ckpt_network *const network = test_infer(&p->m);
    p->whole = test_lower_network(&p->m, test_spread(&p->m, network, scheme));
    scheme.stages = 2 + (int)ckpt_test_draw(STAGES - 1);
    p->network = test_spread(&p->m, network, scheme);
    p->stages = p->network->scheme.stages;
    for (int s = 0; s < p->stages; s++) {
        p->stage[s] = test_lower_network(&p->m, test_stage(&p->m, network, p->network->scheme, s));
    }
}

/* An op that the whole network's step does not have, or not so often. */
static bool is_message(const ckpt_op_role *role)
{
    return role->task == CKPT_TASK_SEND || role->task == CKPT_TASK_SENT || role->task == CKPT_TASK_RECEIVE ||
           role->task == CKPT_TASK_REDUCE_TIED;
}

/* What an op does, in words. */
static const char *show(test_model *m, const ckpt_lowered *lowered, int i)
{
    const ckpt_graph_op *const op = &lowered->graph->op[i];
    const ckpt_op_role *const role = &lowered->op_role[i];
    const char *const text = ckpt_arena_format(
        &m->arena, "%s | %s | %s: %s > %s + %s | %d %d %llx %llx | %lld %lld | %s", op->name, op->layer,
        ckpt_phase_name(op->phase), test_names(m, lowered->graph, op->reads), test_names(m, lowered->graph, op->writes),
        test_names(m, lowered->graph, op->adds), role->node, role->batch, (unsigned long long)role->grad_in_adds,
        (unsigned long long)role->grad_param_adds, (long long)op->time_ns, (long long)op->workspace_bytes,
        op->segment != NULL ? op->segment : "-");
    assert_non_null(text);
    return text;
}

/* The next op at or behind `i` that is none of those and of that micro-batch. */
static int next_op(const ckpt_lowered *lowered, int i, int batch)
{
    while (i < lowered->graph->op_count && (is_message(&lowered->op_role[i]) || lowered->op_role[i].batch != batch)) {
        i++;
    }
    return i;
}

/* Each micro-batch (-1: the updates) of each stage has the whole network's ops of its layers in their order, with the
 * same buffers read, written and added to. */
static int compare_stage(pipeline *p, int s, int batch)
{
    const ckpt_lowered *const part = p->stage[s];
    const ckpt_lowered *const whole = p->whole;
    int a = 0, count = 0;
    for (int b = next_op(part, 0, batch); b < part->graph->op_count; b = next_op(part, b + 1, batch)) {
        assert_int_equal(p->network->stage_of[part->op_role[b].node], s);
        a = next_op(whole, a, batch);
        while (a < whole->graph->op_count && p->network->stage_of[whole->op_role[a].node] != s) {
            a = next_op(whole, a + 1, batch);
        }
        assert_true(a < whole->graph->op_count);
        const char *const wanted = show(&p->m, whole, a);
        const char *const found = show(&p->m, part, b);
        CHECK(strcmp(wanted, found) == 0, "stage %d: found\n%s\nwanted\n%s", s, found, wanted);
        a++;
        count++;
    }
    return count;
}

static void test_stages_are_the_whole_step(void **state)
{
    const uint64_t rounds = ckpt_test_rounds(ROUNDS, FEW);
    for (uint64_t round = 0; round < rounds; round++) {
        pipeline p;
        build(&p, LAYERS, false);
        int count = 0, outputs = 0;
        for (int s = 0; s < p.stages; s++) {
            for (int j = -1; j < p.network->scheme.micro_batches; j++) {
                count += compare_stage(&p, s, j);
            }
            outputs += p.stage[s]->graph->outputs.count;
        }
        for (int i = 0; i < p.whole->graph->op_count; i++) {
            count -= !is_message(&p.whole->op_role[i]);
        }
        assert_int_equal(count, 0);
        assert_int_equal(outputs, p.whole->graph->outputs.count);
        test_model_fini(&p.m);
    }
}

/* The number of messages of `task` between two stages; the n-th of them when wanted. */
static int find_message(const ckpt_lowered *lowered, ckpt_task task, int peer, int n)
{
    int seen = 0;
    for (int i = 0; i < lowered->graph->op_count; i++) {
        const ckpt_op_role *const role = &lowered->op_role[i];
        if (role->task == task && role->peer == peer && seen++ == n) {
            return i;
        }
    }
    return -1 - seen;
}

static void compare_message(const pipeline *p, int from, int send, int to, int receive)
{
    const ckpt_lowered *const a = p->stage[from];
    const ckpt_lowered *const b = p->stage[to];
    const ckpt_op_role *const one = &a->op_role[send];
    const ckpt_op_role *const other = &b->op_role[receive];
    const ckpt_graph_op *const op = &a->graph->op[send];
    const ckpt_graph_op *const end = &b->graph->op[receive];
    assert_int_equal(one->value, other->value);
    assert_int_equal(one->batch, other->batch);
    assert_int_equal(one->gradient, other->gradient);
    assert_int_equal(from < to, !one->gradient);
    assert_int_equal(op->reads.count, 1);
    assert_int_equal(op->writes.count, 1);
    assert_int_equal(end->reads.count, 0);
    assert_int_equal(end->writes.count, 1);
    assert_false(op->recompute || end->recompute);
    /* The same name at both ends, and the same size on the way. */
    assert_string_equal(a->graph->buffer[op->reads.at[0]].name, b->graph->buffer[end->writes.at[0]].name);
    assert_int_equal(a->graph->buffer[op->reads.at[0]].bytes, a->graph->buffer[op->writes.at[0]].bytes);
    assert_int_equal(a->graph->buffer[op->reads.at[0]].bytes, b->graph->buffer[end->writes.at[0]].bytes);
    assert_int_equal(p->network->value[one->value].storage, one->value);
    assert_true(p->network->value[one->value].node >= 0);
    assert_true(!one->gradient || p->network->value[one->value].needs_grad);
    const int *const table = one->gradient ? b->grad_buffer : b->value_buffer;
    assert_int_equal(table[one->batch * p->network->value_count + one->value], end->writes.at[0]);
    const ckpt_bytes bytes = ckpt_tensor_bytes(&p->network->value[one->value].tensor);
    assert_int_equal(end->time_ns, bytes * 1000000000 / p->network->scheme.network_bytes_per_s);
    /* It is of use there. */
    bool used = false;
    for (int i = receive + 1; i < b->graph->op_count; i++) {
        const bool layer = b->op_role[i].task == CKPT_TASK_LAYER && b->op_role[i].batch == one->batch;
        for (int k = 0; k < b->graph->op[i].reads.count; k++) {
            used = used || ((layer || one->gradient) && b->graph->op[i].reads.at[k] == end->writes.at[0]);
        }
    }
    assert_true(used);
    /* Nothing in this stage gives to the gradient behind what was sent. */
    for (int i = send + 1; i < a->graph->op_count; i++) {
        for (int k = 0; k < a->graph->op[i].adds.count; k++) {
            assert_int_not_equal(a->graph->op[i].adds.at[k], op->reads.at[0]);
        }
    }
}

/* Of every send: the one "sent" that reads its message. */
static void check_sent(const ckpt_lowered *lowered, int send)
{
    const ckpt_graph *const g = lowered->graph;
    const ckpt_op_role *const role = &lowered->op_role[send];
    int sent = -1;
    for (int i = 0; i < g->op_count; i++) {
        for (int k = 0; k < g->op[i].reads.count; k++) {
            if (g->op[i].reads.at[k] == g->op[send].writes.at[0]) {
                assert_int_equal(sent, -1);
                sent = i;
            }
        }
    }
    const ckpt_op_role *const other = &lowered->op_role[sent];
    assert_true(sent > send && other->task == CKPT_TASK_SENT);
    assert_int_equal(lowered->buffer_role[g->op[send].writes.at[0]].batch, role->batch);
    assert_true(other->peer == role->peer && other->batch == role->batch && other->value == role->value &&
                other->gradient == role->gradient && other->phase == role->phase);
}

/* The clock of 1F1B: when `stage` of `stages` has the forward or the backward of a micro-batch. */
static int clock_of(int stages, int stage, int batch, bool backward)
{
    return backward ? 2 * (batch + stages) - 1 - stage : stage + 2 * batch;
}

/* Each wait for a message stands at the first beginning of a forward or backward at which the other has it. Gives their
 * number. Every forward and every backward must have an op of its own. */
static int check_clock(const pipeline *p, int s)
{
    const ckpt_lowered *const l = p->stage[s];
    int before = -1, checked = 0, layers = 0;
    for (int i = 0; i < l->graph->op_count; i++) {
        const ckpt_op_role *const role = &l->op_role[i];
        const bool runs = role->task == CKPT_TASK_LAYER && role->batch >= 0;
        const int now = runs ? clock_of(p->stages, s, role->batch, role->phase == CKPT_BACKWARD) : before;
        layers += now != before;
        before = now;
    }
    before = -1;
    for (int i = 0; i < l->graph->op_count && layers == 2 * p->network->scheme.micro_batches; i++) {
        const ckpt_op_role *const role = &l->op_role[i];
        if (role->task == CKPT_TASK_LAYER && role->batch >= 0) {
            before = clock_of(p->stages, s, role->batch, role->phase == CKPT_BACKWARD);
        }
        int next = i;
        while (next < l->graph->op_count && (l->op_role[next].task != CKPT_TASK_LAYER || l->op_role[next].batch < 0)) {
            next++;
        }
        if (role->task == CKPT_TASK_SENT) {
            const int due = clock_of(p->stages, role->peer, role->batch, role->gradient);
            assert_true(before < due);
            assert_true(next == l->graph->op_count ||
                        clock_of(p->stages, s, l->op_role[next].batch, l->op_role[next].phase == CKPT_BACKWARD) >= due);
            checked++;
        }
    }
    return checked;
}

static void test_messages_are_waited_for_when_they_have_come(void **state)
{
    const uint64_t rounds = ckpt_test_rounds(ROUNDS, FEW);
    int checked = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        pipeline p;
        build(&p, LAYERS, false);
        for (int s = 0; s < p.stages; s++) {
            checked += check_clock(&p, s);
        }
        test_model_fini(&p.m);
    }
    assert_true(checked > 2 * (int)rounds);
}

static void test_every_send_is_received(void **state)
{
    const uint64_t rounds = ckpt_test_rounds(ROUNDS, FEW);
    int messages = 0, relayed = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        pipeline p;
        build(&p, LAYERS, false);
        for (int from = 0; from < p.stages; from++) {
            for (int to = 0; to < p.stages; to++) {
                const int sends = -1 - find_message(p.stage[from], CKPT_TASK_SEND, to, -1);
                assert_int_equal(sends, -1 - find_message(p.stage[to], CKPT_TASK_RECEIVE, from, -1));
                assert_int_equal(sends, -1 - find_message(p.stage[from], CKPT_TASK_SENT, to, -1));
                assert_true(from != to || sends == 0);
                for (int n = 0; n < sends; n++) {
                    const int send = find_message(p.stage[from], CKPT_TASK_SEND, to, n);
                    compare_message(&p, from, send, to, find_message(p.stage[to], CKPT_TASK_RECEIVE, from, n));
                    check_sent(p.stage[from], send);
                    relayed += p.network->stage_of[p.network->value[p.stage[from]->op_role[send].value].node] != from;
                }
                messages += sends;
            }
        }
        test_model_fini(&p.m);
    }
    assert_true(messages > 10 * (int)rounds && relayed > (int)rounds);
}

/* A rank: the op it stands before; how many messages it has sent to each other stage and taken from it. */
typedef struct process {
    int at;
    int sent[STAGES], taken[STAGES];
} process;

/* The number of messages to `peer` up to the one whose message a "sent" waits for. */
static int sent_number(const ckpt_lowered *lowered, int sent)
{
    int number = 0;
    for (int i = 0; i < sent; i++) {
        const ckpt_op_role *const role = &lowered->op_role[i];
        number += role->task == CKPT_TASK_SEND && role->peer == lowered->op_role[sent].peer;
        if (role->task == CKPT_TASK_SEND &&
            lowered->graph->op[i].writes.at[0] == lowered->graph->op[sent].reads.at[0]) {
            return number;
        }
    }
    fail_msg("nothing was sent");
    return 0;
}

/* Has another stage come to its part of the sum of copies, if it has one? */
static bool has_come(const ckpt_lowered *other, int at, int group)
{
    for (int i = 0; i < other->graph->op_count; i++) {
        if (other->op_role[i].task == CKPT_TASK_REDUCE_TIED && other->op_role[i].tied_group == group) {
            return at >= i;
        }
    }
    return true;
}

/* Can replica `r` of stage `s` go past its next op, were all that ranks do together a barrier? */
static bool may_pass(const pipeline *p, const process *all, int r, int s)
{
    const int at = all[r * STAGES + s].at;
    const ckpt_op_role *const role = &p->stage[s]->op_role[at];
    for (int q = 0; q < p->network->scheme.replicas; q++) {
        for (int t = 0; t < p->stages; t++) {
            const int other = all[q * STAGES + t].at;
            const bool reduces = role->task == CKPT_TASK_REDUCE || role->task == CKPT_TASK_REDUCE_END;
            if ((reduces && t == s && other < at) ||
                (role->task == CKPT_TASK_REDUCE_TIED && q == r && !has_come(p->stage[t], other, role->tied_group))) {
                return false;
            }
        }
    }
    return true;
}

/* How ranks run: messages go at once, not when they are taken; forward ops alone, as in an evaluation. */
typedef struct manner {
    bool eager, forward;
} manner;

/* Let it do its next op if it can. */
static bool proceed(const pipeline *p, process *all, int r, int s, manner how)
{
    const ckpt_lowered *const lowered = p->stage[s];
    process *const mine = &all[r * STAGES];
    process *const me = &mine[s];
    if (how.forward && me->at < lowered->graph->op_count && lowered->op_role[me->at].phase != CKPT_FORWARD) {
        me->at++;
        return true;
    }
    if (me->at == lowered->graph->op_count || !may_pass(p, all, r, s)) {
        return false;
    }
    const ckpt_op_role *const role = &lowered->op_role[me->at];
    if (role->task == CKPT_TASK_SEND) {
        me->sent[role->peer]++;
    } else if (role->task == CKPT_TASK_RECEIVE) {
        if (mine[role->peer].sent[s] == me->taken[role->peer]) {
            return false;
        }
        me->taken[role->peer]++;
    } else if (role->task == CKPT_TASK_SENT && !how.eager && mine[role->peer].taken[s] < sent_number(lowered, me->at)) {
        return false;
    }
    me->at++;
    return true;
}

/* Ranks run by turns that are drawn, until none can go on. */
static void run_all(const pipeline *p, manner how)
{
    process all[REPLICAS * STAGES] = {{0}};
    const int replicas = p->network->scheme.replicas, ranks = replicas * p->stages;
    for (bool moved = true; moved;) {
        moved = false;
        const int first = (int)ckpt_test_draw((uint64_t)ranks);
        for (int i = 0; i < ranks; i++) {
            const int rank = (first + i) % ranks;
            int steps = 1 + (int)ckpt_test_draw(20);
            while (steps-- > 0 && proceed(p, all, rank / p->stages, rank % p->stages, how)) {
                moved = true;
            }
        }
    }
    for (int rank = 0; rank < ranks; rank++) {
        const int s = rank % p->stages, at = all[rank / p->stages * STAGES + s].at;
        CHECK(at == p->stage[s]->graph->op_count, "stage %d of %d, %d micro-batches, waits at %s for ever", s,
              p->stages, p->network->scheme.micro_batches, p->stage[s]->graph->op[at].name);
    }
}

static void test_no_ranks_wait_for_each_other(void **state)
{
    const uint64_t rounds = ckpt_test_rounds(2 * ROUNDS, FEW);
    for (uint64_t round = 0; round < rounds; round++) {
        pipeline p;
        build(&p, LAYERS, true);
        for (int how = 0; how < 4; how++) {
            run_all(&p, (manner){.eager = how % 2 == 1, .forward = how >= 2});
        }
        test_model_fini(&p.m);
    }
}

/* As few micro-batches as 1F1B says are between their forward and their backward. */
static void test_micro_batches_under_way(void **state)
{
    for (int batches = 1; batches <= 8; batches++) {
        test_model m;
        test_model_rows(&m, 4, 8);
        const char *const first[] = {"l0", "l1", "l2", "l3"};
        for (int i = 0; i < 4; i++) {
            test_layer(&m, first[i], "linear", "", "features=8");
        }
        test_layer(&m, "loss", "mse", "l3 t", "");
        for (int s = 0; s < 4; s++) {
            ckpt_scheme scheme = ckpt_scheme_alone;
            scheme.micro_batches = batches;
            scheme.stages = 4;
            scheme.stage = s;
            scheme.first_layer = first;
            const ckpt_network *spread = NULL;
            ckpt_err err = {0};
            CHECK_OK(ckpt_network_spread(test_infer(&m), &scheme, &m.arena, &spread, &err), err);
            const ckpt_lowered *const lowered = test_lower_network(&m, spread);
            int under_way = 0, most = 0, backward = 0;
            for (int i = 0; i < lowered->graph->op_count; i++) {
                const ckpt_op_role *const role = &lowered->op_role[i];
                const bool mine = role->task == CKPT_TASK_LAYER && role->node == s;
                under_way += mine && role->phase == CKPT_FORWARD;
                most = under_way > most ? under_way : most;
                if (mine && role->phase == CKPT_BACKWARD) {
                    assert_int_equal(role->batch, backward++);
                    under_way--;
                }
            }
            assert_int_equal(most, batches < 4 - s ? batches : 4 - s);
        }
        test_model_fini(&m);
    }
}

/* A skip over two stages, by hand: the value goes by the stage that reads it, its gradient comes back the same way. */
static void test_relay_by_hand(void **state)
{
    test_model m;
    test_model_rows(&m, 4, 8);
    test_layer(&m, "a", "linear", "", "features=8");
    test_layer(&m, "b", "linear", "a", "features=8");
    test_layer(&m, "c", "gelu", "b", "");
    test_layer(&m, "d", "add", "c a", "");
    test_layer(&m, "loss", "mse", "d t", "");
    const char *const first[] = {"a", "b", "c", "d"};
    static const char *const wanted[] = {
        "a/forward: > a\na/send:a > a/message\na/grad/receive: > a/grad\na/sent:a/message >\n"
        "a/backward:a/grad >\na/update: >\n",
        "a/receive: > a\na/send:a > a/message\nb/forward:a > b\nb/send:b > b/message\n"
        "b/grad/receive: > b/grad\na/grad/receive: > a/grad\na/sent:a/message >\nb/sent:b/message >\n"
        "b/backward:b/grad a > + a/grad\na/grad/send:a/grad > a/grad/message\na/grad/sent:a/grad/message >\n"
        "b/update: >\n",
        "b/receive: > b\nc/forward:b > c\nc/send:c > c/message\n"
        "c/grad/receive: > c/grad\nc/sent:c/message >\nc/backward:c/grad b > b/grad\n"
        "b/grad/send:b/grad > b/grad/message\nb/grad/sent:b/grad/message >\n",
        "a/receive: > a\nc/receive: > c\nd/forward:c a > d\nloss/forward:d > loss\n"
        "loss/backward:d > d/grad\nd/backward:d/grad > c/grad a/grad\nc/grad/send:c/grad > c/grad/message\n"
        "a/grad/send:a/grad > a/grad/message\nc/grad/sent:c/grad/message >\na/grad/sent:a/grad/message >\n",
    };
    for (int s = 0; s < 4; s++) {
        ckpt_scheme scheme = ckpt_scheme_alone;
        scheme.stages = 4;
        scheme.stage = s;
        scheme.first_layer = first;
        const ckpt_network *spread = NULL;
        ckpt_err err = {0};
        CHECK_OK(ckpt_network_spread(test_infer(&m), &scheme, &m.arena, &spread, &err), err);
        const ckpt_lowered *const lowered = test_lower_network(&m, spread);
        const char *text = "";
        for (int i = 0; i < lowered->graph->op_count; i++) {
            const ckpt_graph_op *const op = &lowered->graph->op[i];
            const char *const writes = test_names(&m, lowered->graph, op->writes);
            text = ckpt_arena_format(&m.arena, "%s%s:%s >%s%s%s%s\n", text, op->name,
                                     test_names(&m, lowered->graph, op->reads), writes[0] != '\0' ? " " : "", writes,
                                     op->adds.count > 0 ? " + " : "", test_names(&m, lowered->graph, op->adds));
        }
        CHECK(strcmp(text, wanted[s]) == 0, "stage %d: found\n%s\nwanted\n%s", s, text, wanted[s]);
    }
    test_model_fini(&m);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stages_are_the_whole_step),
        cmocka_unit_test(test_every_send_is_received),
        cmocka_unit_test(test_messages_are_waited_for_when_they_have_come),
        cmocka_unit_test(test_no_ranks_wait_for_each_other),
        cmocka_unit_test(test_micro_batches_under_way),
        cmocka_unit_test(test_relay_by_hand),
    };
    ckpt_test_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

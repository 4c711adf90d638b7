/* labels: unit */
/* A measured trace says where things lie for the steps, whatever the plan says: an executor whose addresses are changed
 * behind the plan's back is seen. That they are the plan's otherwise is checked by every test that trains. */
#include "tests/support/support_test.h"

#include <string.h>

#include "executor/executor_impl.h"
#include "tests/support/support_train.h"

typedef struct subject {
    test_train t;
    const ckpt_plan *plan;
    ckpt_executor *executor;
    ckpt_arena arena;
} subject;

static void set_up(subject *s)
{
    test_train_open(&s->t, "tests/models/fork.json", "");
    s->plan = test_train_hand_plan(&s->t, true, true);
    s->executor = test_train_executor(&s->t, s->plan, NULL);
    ckpt_arena_init(&s->arena);
}

static void tear_down(subject *s)
{
    ckpt_arena_fini(&s->arena);
    ckpt_executor_destroy(s->executor);
    test_train_close(&s->t);
}

static const ckpt_trace *trace_of(subject *s)
{
    ckpt_err err = {0};
    ckpt_trace *trace = NULL;
    CHECK_OK(ckpt_executor_trace_create(s->executor, &s->arena, &trace, &err), err);
    return trace;
}

static int count_places(const ckpt_trace *trace, const char *name)
{
    int count = 0;
    for (int i = 0; i < trace->allocation_count; i++) {
        count += strcmp(trace->allocation[i].name, name) == 0;
    }
    return count;
}

static const ckpt_trace_allocation *place_at(const ckpt_trace *trace, const char *name, int step)
{
    for (int i = 0; i < trace->allocation_count; i++) {
        const ckpt_trace_allocation *const p = &trace->allocation[i];
        if (strcmp(p->name, name) == 0 && p->from <= step && step <= p->to) {
            return p;
        }
    }
    return NULL;
}

/* The first run whose node reads a buffer of the arena at least CKPT_ALIGN from its start. */
static int find_reader(const subject *s, int *which)
{
    for (int k = 0; k < s->plan->step_count; k++) {
        const ckpt_action *const action = &s->executor->program.action[k];
        for (int i = 0; action->kind == CKPT_RUN && action->phase == CKPT_FORWARD && i < action->args.node->in_count;
             i++) {
            const unsigned char *const at = action->args.in[i];
            if (s->t.lowered->value_buffer[action->args.node->in_value[i]] >= 0 &&
                at >= s->executor->program.memory.arena.at + CKPT_ALIGN) {
                *which = i;
                return k;
            }
        }
    }
    fail_msg("no step reads a buffer");
    return -1;
}

/* A reader that is given another address than the writer: the buffer has two allocations. */
static void a_step_that_reads_elsewhere_is_seen(void **state)
{
    subject s;
    set_up(&s);
    int which = 0;
    const int step = find_reader(&s, &which);
    ckpt_kernel_args *const args = &s.executor->program.action[step].args;
    const int buffer = s.t.lowered->value_buffer[args->node->in_value[which]];
    const char *const name = s.t.lowered->graph->buffer[buffer].name;
    const ckpt_trace *const before = trace_of(&s);
    const ckpt_trace_allocation *const planned = place_at(before, name, step);
    assert_non_null(planned);
    assert_true(planned->from < step && planned->to > step);

    const void **const in = (const void **)(uintptr_t)args->in;
    in[which] = (const unsigned char *)in[which] - CKPT_ALIGN;
    const ckpt_trace *const after = trace_of(&s);
    assert_true(count_places(after, name) > count_places(before, name));
    assert_int_equal(place_at(after, name, step - 1)->offset, planned->offset);
    assert_int_equal(place_at(after, name, step - 1)->to, step - 1);
    assert_int_equal(place_at(after, name, step)->offset, planned->offset - CKPT_ALIGN);
    assert_int_equal(place_at(after, name, step)->from, step);
    tear_down(&s);
}

/* Nor may anything lie before the arena or end behind it. */
static void what_lies_outside_is_an_error(void **state)
{
    subject s;
    set_up(&s);
    int which = 0;
    const int step = find_reader(&s, &which);
    const void **const in = (const void **)(uintptr_t)s.executor->program.action[step].args.in;
    const unsigned char *const outside[] = {s.executor->program.memory.arena.at - CKPT_ALIGN,
                                            s.executor->program.memory.arena.at + s.plan->arena_bytes};
    for (int i = 0; i < 2; i++) {
        ckpt_err err = {0};
        ckpt_trace *trace = NULL;
        in[which] = outside[i];
        assert_int_equal(ckpt_executor_trace_create(s.executor, &s.arena, &trace, &err), CKPT_DEVICE);
        CHECK(strstr(err.msg, "from the start of the arena") != NULL, "%s", err.msg);
    }
    tear_down(&s);
}

/* A workspace, too. */
static void a_workspace_elsewhere_is_seen(void **state)
{
    subject s;
    set_up(&s);
    int moved = 0;
    for (int k = 0; k < s.plan->step_count; k++) {
        ckpt_kernel_args *const args = &s.executor->program.action[k].args;
        if (s.executor->program.action[k].kind == CKPT_RUN && args->workspace_bytes > 0) {
            args->workspace = s.executor->program.memory.arena.at;
            assert_int_equal(place_at(trace_of(&s), "workspace", k)->offset, 0);
            moved++;
        }
    }
    assert_true(moved > 0);
    tear_down(&s);
}

static void the_machine_has_memory(void **state)
{
    subject s;
    set_up(&s);
    const ckpt_trace *const trace = trace_of(&s);
    CHECK(trace->capacity_bytes > s.plan->static_bytes + s.plan->arena_bytes, "%lld bytes of memory in all",
          (long long)trace->capacity_bytes);
    assert_int_equal(trace->step_ns_count, 0);
    tear_down(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_that_reads_elsewhere_is_seen),
        cmocka_unit_test(what_lies_outside_is_an_error),
        cmocka_unit_test(a_workspace_elsewhere_is_seen),
        cmocka_unit_test(the_machine_has_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

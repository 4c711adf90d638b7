/* Two plans and the outlines of their graphs, compared by name: both sides are sorted and walked together. */
#include "planner/analysis/review.h"

#include <stdlib.h>
#include <string.h>

/* What has a name in an outline: an op with its time, a buffer or a static block with its bytes; a layer's decision. */
typedef struct named {
    const char *name;
    int64_t value;
} named;

typedef struct comparer {
    ckpt_plan_changes *changes;
    ckpt_graph_change *graph;
    ckpt_layer_change *layer;
    const char *what;
} comparer;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const named *)a)->name, ((const named *)b)->name);
}

static void add_change(comparer *c, ckpt_change_kind kind, const char *name, int64_t was, int64_t now)
{
    c->graph[c->changes->graph_count++] = (ckpt_graph_change){kind, c->what, name, was, now};
}

/* One difference. `was` and `now`: the time of an op, the decision of a layer, else bytes. */
static void see_op(comparer *c, const named *was, const named *now)
{
    if (was == NULL || now == NULL) {
        add_change(c, was == NULL ? CKPT_CAME : CKPT_WENT, was == NULL ? now->name : was->name, 0, 0);
    } else {
        c->changes->retimed += was->value != now->value;
    }
}

static void see_bytes(comparer *c, const named *was, const named *now)
{
    if (was == NULL || now == NULL) {
        add_change(c, was == NULL ? CKPT_CAME : CKPT_WENT, was == NULL ? now->name : was->name,
                   was != NULL ? was->value : 0, now != NULL ? now->value : 0);
    } else if (was->value != now->value) {
        add_change(c, CKPT_RESIZED, was->name, was->value, now->value);
    }
}

static void see_layer(comparer *c, const named *was, const named *now)
{
    if (was != NULL && now != NULL && was->value != now->value) {
        c->layer[c->changes->layer_count++] =
            (ckpt_layer_change){was->name, (ckpt_decision)was->value, (ckpt_decision)now->value};
    }
}

/* Sorts both, and calls `see` for each name with what either side has of it. */
static void walk(comparer *c, named *was, int was_count, named *now, int now_count,
                 void (*see)(comparer *, const named *, const named *))
{
    qsort(was, (size_t)was_count, sizeof *was, by_name);
    qsort(now, (size_t)now_count, sizeof *now, by_name);
    for (int i = 0, k = 0; i < was_count || k < now_count;) {
        const int order = i == was_count ? 1 : k == now_count ? -1 : by_name(&was[i], &now[k]);
        see(c, order <= 0 ? &was[i] : NULL, order >= 0 ? &now[k] : NULL);
        i += order <= 0;
        k += order >= 0;
    }
}

static int take_statics(const ckpt_outline *o, named *list)
{
    for (int i = 0; i < o->static_count; i++) {
        list[i] = (named){o->statics[i].name, o->statics[i].bytes};
    }
    return o->static_count;
}

static int take_buffers(const ckpt_outline *o, named *list)
{
    for (int i = 0; i < o->buffer_count; i++) {
        list[i] = (named){o->buffer[i].name, o->buffer[i].bytes};
    }
    return o->buffer_count;
}

static int take_ops(const ckpt_outline *o, named *list)
{
    for (int i = 0; i < o->op_count; i++) {
        list[i] = (named){o->op[i].name, o->op[i].time_ns};
    }
    return o->op_count;
}

static int take_layers(const ckpt_plan *plan, named *list)
{
    for (int i = 0; i < plan->layer_count; i++) {
        list[i] = (named){plan->layer[i].layer, (int64_t)plan->layer[i].decision};
    }
    return plan->layer_count;
}

static void compare_outlines(comparer *c, const ckpt_outline *was, const ckpt_outline *now, named *a, named *b)
{
    c->what = "static block";
    walk(c, a, take_statics(was, a), b, take_statics(now, b), see_bytes);
    c->what = "buffer";
    walk(c, a, take_buffers(was, a), b, take_buffers(now, b), see_bytes);
    c->what = "op";
    walk(c, a, take_ops(was, a), b, take_ops(now, b), see_op);
}

/* Largest difference first, among those of one kind of one thing. */
static int by_difference(const void *a, const void *b)
{
    const ckpt_graph_change *const x = a;
    const ckpt_graph_change *const y = b;
    const int what = strcmp(y->what, x->what); /* static blocks, ops, buffers */
    const int64_t dx = x->was > x->now ? x->was - x->now : x->now - x->was;
    const int64_t dy = y->was > y->now ? y->was - y->now : y->now - y->was;
    return what != 0            ? what
           : x->kind != y->kind ? (x->kind > y->kind) - (x->kind < y->kind)
           : dx != dy           ? (dx < dy) - (dx > dy)
                                : strcmp(x->name, y->name);
}

/* The plan as its file says it, without seconds, source of times and options, and without steps, places and outline, which
 * are most of the file. */
static ckpt_code write_plain(const ckpt_plan *plan, ckpt_text *text, ckpt_err *err)
{
    ckpt_plan plain = *plan;
    plain.step_count = plain.allocation_count = 0;
    plain.outline = (ckpt_outline){0};
    plain.solver_seconds = 0;
    plain.costs = "";
    plain.option_count = 0;
    plain.algorithms_count = 0;
    ckpt_plan_write(&plain, text);
    return ckpt_text_end(text, err);
}

static ckpt_code compare_texts(const ckpt_plan *was, const ckpt_plan *now, bool *same, ckpt_err *err)
{
    ckpt_text a;
    ckpt_text b;
    ckpt_text_init(&a);
    ckpt_text_init(&b);
    ckpt_code code = write_plain(was, &a, err);
    code = code == CKPT_OK ? write_plain(now, &b, err) : code;
    *same = code == CKPT_OK && a.length == b.length && memcmp(a.bytes, b.bytes, a.length) == 0;
    ckpt_text_fini(&a);
    ckpt_text_fini(&b);
    return code;
}

static bool have_same_steps(const ckpt_plan *a, const ckpt_plan *b)
{
    bool same = a->step_count == b->step_count && a->allocation_count == b->allocation_count;
    for (int i = 0; same && i < a->step_count; i++) {
        const ckpt_step *const x = &a->step[i];
        const ckpt_step *const y = &b->step[i];
        same = x->kind == y->kind && x->recomputed == y->recomputed && x->inplace == y->inplace &&
               strcmp(x->name, y->name) == 0;
    }
    for (int i = 0; same && i < a->allocation_count; i++) {
        const ckpt_allocation *const x = &a->allocation[i];
        const ckpt_allocation *const y = &b->allocation[i];
        same = x->from == y->from && x->to == y->to && x->offset == y->offset && x->bytes == y->bytes &&
               strcmp(x->name, y->name) == 0;
    }
    return same;
}

/* True also if one of them is unknown. */
static bool have_same_outline(const ckpt_outline *a, const ckpt_outline *b)
{
    bool same = a->static_count == b->static_count && a->buffer_count == b->buffer_count && a->op_count == b->op_count;
    for (int i = 0; same && i < a->static_count; i++) {
        same = a->statics[i].bytes == b->statics[i].bytes && strcmp(a->statics[i].name, b->statics[i].name) == 0;
    }
    for (int i = 0; same && i < a->buffer_count; i++) {
        const ckpt_buffer *const x = &a->buffer[i];
        const ckpt_buffer *const y = &b->buffer[i];
        same = x->bytes == y->bytes && x->kind == y->kind && strcmp(x->name, y->name) == 0;
    }
    for (int i = 0; same && i < a->op_count; i++) {
        const ckpt_outline_op *const x = &a->op[i];
        const ckpt_outline_op *const y = &b->op[i];
        same = x->phase == y->phase && x->time_ns == y->time_ns && strcmp(x->name, y->name) == 0 &&
               strcmp(x->layer, y->layer) == 0;
    }
    return same || a->op_count == 0 || b->op_count == 0;
}

static int most_names(const ckpt_plan *plan)
{
    const ckpt_outline *const o = &plan->outline;
    const int most = o->op_count > o->buffer_count ? o->op_count : o->buffer_count;
    const int more = o->static_count > plan->layer_count ? o->static_count : plan->layer_count;
    return most > more ? most : more;
}

static int all_names(const ckpt_outline *o)
{
    return o->static_count + o->buffer_count + o->op_count;
}

ckpt_code ckpt_plan_compare(const ckpt_plan *was, const ckpt_plan *now, ckpt_arena *out, ckpt_plan_changes *changes,
                            ckpt_err *err)
{
    *changes = (ckpt_plan_changes){.other_graph = strcmp(was->graph_sha256, now->graph_sha256) != 0,
                                   .same_steps = have_same_steps(was, now)};
    comparer c = {.changes = changes};
    c.graph = CKPT_NEW(out, ckpt_graph_change, all_names(&was->outline) + all_names(&now->outline));
    c.layer = CKPT_NEW(out, ckpt_layer_change, was->layer_count);
    const ckpt_mark mark = ckpt_arena_mark(out);
    named *const a = CKPT_NEW(out, named, most_names(was));
    named *const b = CKPT_NEW(out, named, most_names(now));
    if (c.graph == NULL || c.layer == NULL || a == NULL || b == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "changes of a plan");
    }
    if (was->outline.op_count > 0 && now->outline.op_count > 0) {
        compare_outlines(&c, &was->outline, &now->outline, a, b);
        qsort(c.graph, (size_t)changes->graph_count, sizeof *c.graph, by_difference);
    }
    walk(&c, a, take_layers(was, a), b, take_layers(now, b), see_layer);
    ckpt_arena_rewind(out, mark);
    changes->graph = c.graph;
    changes->layer = c.layer;
    if (!changes->same_steps || !have_same_outline(&was->outline, &now->outline)) {
        return CKPT_OK;
    }
    return compare_texts(was, now, &changes->same, err);
}

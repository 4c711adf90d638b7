/* Golden pictures and the made-up step. */
#include "tests/support/support_golden.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support_test.h"

void ckpt_golden_check(const char *name, const char *bytes, size_t length)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tests/golden/%s", ckpt_source_dir(), name);
    const char *const update = getenv("CKPT_UPDATE_GOLDEN");
    if (update != NULL && strcmp(update, "1") == 0) {
        FILE *const file = fopen(path, "wb");
        CHECK(file != NULL && fwrite(bytes, 1, length, file) == length && fclose(file) == 0, "cannot write %s", path);
        return;
    }
    FILE *const file = fopen(path, "rb");
    CHECK(file != NULL, "%s is missing; CKPT_UPDATE_GOLDEN=1 writes it", path);
    int line = 1;
    for (size_t i = 0; i <= length; i++) {
        const int want = fgetc(file);
        const int found = i < length ? (unsigned char)bytes[i] : EOF;
        CHECK(want == found,
              "%s:%d differs at byte %zu: found \"%.40s\"; look at the picture, then CKPT_UPDATE_GOLDEN=1", path, line,
              i, i < length ? bytes + i : "(end)");
        line += want == '\n';
    }
    (void)fclose(file);
}

enum { LIVE = 8192 };

typedef struct maker {
    ckpt_trace *trace;
    ckpt_event *event;
    ckpt_trace_allocation *allocation;
    int *live, live_count; /* numbers of places that are in memory */
    ckpt_arena *arena;
    ckpt_bytes bytes[CKPT_CATEGORY_COUNT];
    ckpt_ns now;
    const ckpt_golden_step *step;
} maker;

static ckpt_bytes size_of(const ckpt_golden_step *step, int layer)
{
    const ckpt_bytes unit = step->unit > 0 ? step->unit : 1000000;
    return unit * (4 + layer % 3 * 3) / 4;
}

/* At the lowest free address, from the next event on. */
static void allocation(maker *m, int layer, const char *what, ckpt_category category, ckpt_bytes bytes)
{
    ckpt_bytes offset = 0;
    for (int i = 0; i < m->live_count; i++) {
        const ckpt_trace_allocation *const there = &m->allocation[m->live[i]];
        if (offset < there->offset + there->bytes && there->offset < offset + bytes) {
            offset = there->offset + there->bytes;
            i = -1; /* what was passed by may be in the way now */
        }
    }
    ckpt_trace_allocation *const p = &m->allocation[m->trace->allocation_count];
    *p = (ckpt_trace_allocation){.name = ckpt_arena_format(m->arena, "h.%d%s", layer, what),
                                 .category = category,
                                 .from = m->trace->event_count,
                                 .to = -1,
                                 .offset = offset,
                                 .bytes = bytes};
    CHECK(p->name != NULL && m->live_count < LIVE, "no memory");
    m->live[m->live_count++] = m->trace->allocation_count++;
    m->trace->arena_bytes = offset + bytes > m->trace->arena_bytes ? offset + bytes : m->trace->arena_bytes;
}

/* Until the event `to`. */
static void leave(maker *m, int layer, const char *what, int to)
{
    char name[32];
    snprintf(name, sizeof name, "h.%d%s", layer, what);
    int i = 0;
    while (i < m->live_count && strcmp(m->allocation[m->live[i]].name, name) != 0) {
        i++;
    }
    CHECK(i < m->live_count, "%s is not in memory", name);
    m->allocation[m->live[i]].to = to;
    m->live[i] = m->live[--m->live_count];
}

static void add(maker *m, ckpt_span span, int layer, const char *what, ckpt_bytes workspace, ckpt_ns ns)
{
    if (workspace > 0) {
        allocation(m, layer, "/workspace", CKPT_CAT_WORKSPACE, workspace);
        m->allocation[m->trace->allocation_count - 1].name = "workspace";
        m->allocation[m->live[--m->live_count]].to = m->trace->event_count;
    }
    const int i = m->trace->event_count++;
    ckpt_event *const e = &m->event[i];
    ns = m->step->measured ? ns + ns / 7 + i % 5 * 100 : ns;
    *e = (ckpt_event){.step = i,
                      .name = ckpt_arena_format(m->arena, "h.%d%s", layer, what),
                      .layer = ckpt_arena_format(m->arena, "h.%d", layer),
                      .stream = "compute",
                      .span = span,
                      .start_ns = m->now,
                      .end_ns = m->now + ns};
    CHECK(e->name != NULL && e->layer != NULL, "no memory");
    m->now += ns;
    memcpy(e->bytes, m->bytes, sizeof e->bytes);
    e->bytes[CKPT_CAT_WORKSPACE] = workspace;
    e->bytes[CKPT_CAT_OUTSIDE] = m->step->measured ? 4096 : 0;
    if (i == m->step->wrong_step) {
        e->bytes[CKPT_CAT_ACTIVATIONS] += m->step->wrong_bytes;
    }
    ckpt_bytes sum = 0;
    for (int c = 0; c < CKPT_CAT_OUTSIDE; c++) {
        sum += e->bytes[c];
    }
    if (sum > m->trace->peak_bytes) {
        m->trace->peak_bytes = sum;
        m->trace->peak_event = i;
    }
}

static void forward(maker *m, int layer, ckpt_span span)
{
    const ckpt_bytes size = size_of(m->step, layer);
    m->bytes[CKPT_CAT_ACTIVATIONS] += size;
    m->bytes[CKPT_CAT_SAVED] += size / 4;
    allocation(m, layer, "", CKPT_CAT_ACTIVATIONS, size);
    allocation(m, layer, "/saved", CKPT_CAT_SAVED, size / 4);
    add(m, span, layer, "/forward", layer % 3 == 1 ? size : 0, 4000 + 1000 * (layer % 3));
}

static void drop(maker *m, int layer)
{
    m->bytes[CKPT_CAT_ACTIVATIONS] -= size_of(m->step, layer);
    m->bytes[CKPT_CAT_SAVED] -= size_of(m->step, layer) / 4;
    leave(m, layer, "", m->trace->event_count);
    leave(m, layer, "/saved", m->trace->event_count);
    add(m, CKPT_SPAN_FREE, layer, "", 0, 0);
}

const ckpt_trace *ckpt_golden_trace(const ckpt_golden_step *step, ckpt_arena *arena)
{
    maker m = {.arena = arena, .step = step};
    m.trace = CKPT_NEW(arena, ckpt_trace, 1);
    m.event = CKPT_NEW(arena, ckpt_event, (size_t)step->layers * 8 + 8);
    m.allocation = CKPT_NEW(arena, ckpt_trace_allocation, (size_t)step->layers * 10 + 8);
    m.live = CKPT_NEW(arena, int, LIVE);
    CHECK(m.trace != NULL && m.event != NULL && m.allocation != NULL && m.live != NULL, "no memory");
    const int n = step->layers, segment = step->segment > 0 ? step->segment : n;
    const ckpt_bytes weights = size_of(step, 1) * 3;
    m.bytes[CKPT_CAT_WEIGHTS] = weights;
    m.bytes[CKPT_CAT_GRADIENTS] = weights;
    m.bytes[CKPT_CAT_OPTIMIZER] = 2 * weights;
    m.bytes[CKPT_CAT_INPUTS] = weights / 8;
    m.trace->static_bytes = 4 * weights + weights / 8;
    /* Forward keeps the last layer of each segment but the last segment, of which it keeps all. */
    for (int i = 0; i < n; i++) {
        forward(&m, i, CKPT_SPAN_FORWARD);
        if (i > 0 && i % segment != 0 && i - i % segment + segment < n) {
            drop(&m, i - 1);
        }
    }
    for (int first = (n - 1) / segment * segment; first >= 0; first -= segment) {
        const int last = first + segment < n ? first + segment - 1 : n - 1;
        for (int i = first; i < last && last < n - 1; i++) {
            forward(&m, i, CKPT_SPAN_RECOMPUTE);
        }
        for (int i = last; i >= first; i--) {
            if (i == n - 1) {
                m.bytes[CKPT_CAT_GRADIENTS] += size_of(step, i);
                allocation(&m, i, "/grad", CKPT_CAT_GRADIENTS, size_of(step, i));
            }
            if (i > 0) {
                m.bytes[CKPT_CAT_GRADIENTS] += size_of(step, i - 1);
                allocation(&m, i - 1, "/grad", CKPT_CAT_GRADIENTS, size_of(step, i - 1));
            }
            add(&m, CKPT_SPAN_BACKWARD, i, "/backward", size_of(step, i) / 2, 9000 + 2000 * (i % 3));
            m.bytes[CKPT_CAT_GRADIENTS] -= size_of(step, i);
            leave(&m, i, "/grad", m.trace->event_count - 1);
            drop(&m, i);
        }
    }
    for (int i = 0; i < n; i++) {
        add(&m, CKPT_SPAN_UPDATE, i, "/update", 0, 1500);
    }
    CHECK(m.live_count == 0, "%d places are never left", m.live_count);
    m.trace->event = m.event;
    m.trace->allocation = m.allocation;
    m.trace->source = step->measured ? "measured.json" : "predicted.json";
    m.trace->name = "tiny-gpt";
    m.trace->plan = step->segment > 0 ? "sqrt" : "keep-all";
    m.trace->measured = step->measured;
    m.trace->budget_bytes = ((m.trace->static_bytes + m.trace->arena_bytes) / 1000000 + 2) * 1000000;
    m.trace->time_ns = m.now;
    m.trace->machine = (ckpt_machine){"cpu: a made-up machine, 2 threads",
                                      "",
                                      "",
                                      "made-up libraries 1.0",
                                      "0000000",
                                      "ckpt-train --plan plan.json tiny-gpt.json",
                                      "2026-01-02T03:04:05Z",
                                      2,
                                      false};
    m.trace->process_peak_bytes = step->measured ? m.trace->peak_bytes + 30000000 : 0;
    return m.trace;
}

static ckpt_list list_of(ckpt_arena *arena, int count, int a, int b)
{
    int *const at = CKPT_NEW(arena, int, 2);
    CHECK(at != NULL, "no memory");
    at[0] = a;
    at[1] = b;
    return (ckpt_list){at, count};
}

const ckpt_graph *ckpt_golden_graph(int layers, ckpt_arena *arena)
{
    static const char *const kind[] = {"norm", "linear", "relu", "add"};
    ckpt_graph *const graph = CKPT_NEW(arena, ckpt_graph, 1);
    ckpt_buffer *const buffer = CKPT_NEW(arena, ckpt_buffer, 2 * layers);
    ckpt_graph_op *const op = CKPT_NEW(arena, ckpt_graph_op, 2 * layers);
    ckpt_static *const statics = CKPT_NEW(arena, ckpt_static, 1);
    CHECK(graph != NULL && buffer != NULL && op != NULL && statics != NULL, "no memory");
    for (int i = 0; i < layers; i++) {
        const char *const layer = ckpt_arena_format(arena, "h.%d.%s", i / 4, kind[i % 4]);
        CHECK(layer != NULL, "no memory");
        /* Layer i is op i, and backward op 2 * layers - 1 - i; its output is buffer i, its gradient layers + i. */
        const bool skip = i % 4 == 3;
        buffer[i] = (ckpt_buffer){layer, 1000000 * (1 + i % 4), CKPT_ACTIVATION};
        buffer[layers + i] = (ckpt_buffer){ckpt_arena_format(arena, "%s/grad", layer), buffer[i].bytes, CKPT_GRADIENT};
        op[i] = (ckpt_graph_op){.name = ckpt_arena_format(arena, "%s/forward", layer),
                                .phase = CKPT_FORWARD,
                                .layer = layer,
                                .reads = list_of(arena, (i > 0) + skip, i - 1, i - 3),
                                .writes = list_of(arena, 1, i, 0),
                                .time_ns = 1000 * (3 + i % 7),
                                .recompute = true};
        op[2 * layers - 1 - i] = (ckpt_graph_op){.name = ckpt_arena_format(arena, "%s/backward", layer),
                                                 .phase = CKPT_BACKWARD,
                                                 .layer = layer,
                                                 .reads = list_of(arena, 1 + (i + 1 < layers), i, layers + i + 1),
                                                 .writes = list_of(arena, 1, layers + i, 0),
                                                 .time_ns = 2000 * (3 + i % 7)};
        CHECK(buffer[layers + i].name != NULL && op[i].name != NULL && op[2 * layers - 1 - i].name != NULL,
              "no memory");
    }
    statics[0] = (ckpt_static){"weights", 12000000};
    *graph = (ckpt_graph){.source = "tiny.json",
                          .name = "tiny",
                          .statics = statics,
                          .static_count = 1,
                          .buffer = buffer,
                          .buffer_count = 2 * layers,
                          .op = op,
                          .op_count = 2 * layers,
                          .outputs = list_of(arena, 1, 0, 0)};
    ckpt_err err = {0};
    CHECK_OK(ckpt_graph_check(graph, arena, &err), err);
    return graph;
}

const ckpt_plan *ckpt_golden_plan(const ckpt_graph *graph, ckpt_arena *arena)
{
    const int layers = graph->op_count / 2;
    ckpt_plan *const plan = CKPT_NEW(arena, ckpt_plan, 1);
    ckpt_layer_decision *const layer = CKPT_NEW(arena, ckpt_layer_decision, layers);
    CHECK(plan != NULL && layer != NULL, "no memory");
    for (int i = 0; i < layers; i++) {
        const ckpt_decision decision = i == 5 ? CKPT_OFFLOADED : i / 4 % 2 == 1 && i != 7 ? CKPT_RECOMPUTE : CKPT_KEEP;
        layer[i] = (ckpt_layer_decision){graph->op[i].layer, decision};
    }
    *plan = (ckpt_plan){.source = "plan.json",
                        .graph_name = graph->name,
                        .budget_bytes = 30000000,
                        .peak_bytes = 29000000,
                        .static_bytes = graph->static_bytes,
                        .arena_bytes = 17000000,
                        .solver = "sqrt",
                        .costs = "",
                        .layer = layer,
                        .layer_count = layers};
    return plan;
}

/* Per block three forward and two backward ops, in mirrored order; buffers y, r, bits, y/grad, r/grad; two variants, of
 * the convolution and of the relu's backward. The first block reads nothing, the last one's gradient falls from heaven:
 * r/grad of the last block is not there. */
const ckpt_graph *ckpt_golden_ways(int blocks, ckpt_arena *arena)
{
    ckpt_graph *const graph = CKPT_NEW(arena, ckpt_graph, 1);
    ckpt_buffer *const buffer = CKPT_NEW(arena, ckpt_buffer, 5 * blocks);
    ckpt_graph_op *const op = CKPT_NEW(arena, ckpt_graph_op, 7 * blocks);
    CHECK(graph != NULL && buffer != NULL && op != NULL, "no memory");
    for (int i = 0; i < blocks; i++) {
        const int y = 5 * i, r = y + 1, bits = y + 2, y_grad = y + 3, r_grad = y + 4;
        const bool last = i + 1 == blocks;
        const char *const conv = ckpt_arena_format(arena, "h.%d.conv", i);
        const char *const relu = ckpt_arena_format(arena, "h.%d.relu", i);
        const char *const pack = ckpt_arena_format(arena, "h.%d.pack", i);
        buffer[y] = (ckpt_buffer){conv, 4000000, CKPT_ACTIVATION};
        buffer[r] = (ckpt_buffer){relu, 4000000, CKPT_ACTIVATION};
        buffer[bits] = (ckpt_buffer){pack, 125000, CKPT_SAVED};
        buffer[y_grad] = (ckpt_buffer){ckpt_arena_format(arena, "%s/grad", conv), 4000000, CKPT_GRADIENT};
        buffer[r_grad] = (ckpt_buffer){ckpt_arena_format(arena, "%s/grad", relu), last ? 0 : 4000000, CKPT_GRADIENT};
        ckpt_graph_op *const forward = &op[3 * i], *const backward = &op[5 * blocks - 2 * (i + 1)];
        const int winograd = 5 * blocks + i, from_bits = 7 * blocks - 1 - i; /* in the order of their ops */
        forward[0] = (ckpt_graph_op){.name = ckpt_arena_format(arena, "%s/forward", conv),
                                     .layer = conv,
                                     .reads = list_of(arena, i > 0, r - 5, 0),
                                     .writes = list_of(arena, 1, y, 0),
                                     .time_ns = 90000,
                                     .recompute = true,
                                     .variant = "gemm",
                                     .first_variant = winograd,
                                     .variant_count = 1};
        forward[1] = (ckpt_graph_op){.name = ckpt_arena_format(arena, "%s/forward", relu),
                                     .layer = relu,
                                     .reads = list_of(arena, 1, y, 0),
                                     .writes = list_of(arena, 1, r, 0),
                                     .time_ns = 8000,
                                     .recompute = true};
        forward[2] = (ckpt_graph_op){.name = ckpt_arena_format(arena, "%s/forward", pack),
                                     .layer = pack,
                                     .reads = list_of(arena, 1, r, 0),
                                     .writes = list_of(arena, 1, bits, 0),
                                     .time_ns = 5000,
                                     .recompute = true,
                                     .optional = true};
        backward[0] = (ckpt_graph_op){.name = ckpt_arena_format(arena, "%s/backward", relu),
                                      .phase = CKPT_BACKWARD,
                                      .layer = relu,
                                      .reads = list_of(arena, last ? 1 : 2, r, r_grad),
                                      .writes = list_of(arena, 1, y_grad, 0),
                                      .time_ns = 9000,
                                      .variant = "output",
                                      .first_variant = from_bits,
                                      .variant_count = 1};
        backward[1] = (ckpt_graph_op){.name = ckpt_arena_format(arena, "%s/backward", conv),
                                      .phase = CKPT_BACKWARD,
                                      .layer = conv,
                                      .reads = list_of(arena, 1 + (i > 0), y_grad, r - 5),
                                      .writes = list_of(arena, i > 0, r_grad - 5, 0),
                                      .time_ns = 180000};
        op[winograd] = forward[0];
        op[winograd].variant = "winograd";
        op[winograd].base = 3 * i;
        op[winograd].time_ns = 40000;
        op[winograd].workspace_bytes = 16000000;
        op[winograd].inexact = true;
        op[from_bits] = backward[0];
        op[from_bits].variant = "bits";
        op[from_bits].base = 5 * blocks - 2 * (i + 1);
        op[from_bits].reads = list_of(arena, last ? 1 : 2, bits, r_grad);
        op[from_bits].time_ns = 9500;
    }
    *graph = (ckpt_graph){.source = "ways.json",
                          .name = "ways",
                          .buffer = buffer,
                          .buffer_count = 5 * blocks - 1, /* the last one's gradient is not there */
                          .op = op,
                          .op_count = 5 * blocks,
                          .variant_count = 2 * blocks};
    ckpt_err err = {0};
    CHECK_OK(ckpt_graph_check(graph, arena, &err), err);
    return graph;
}

const ckpt_plan *ckpt_golden_ways_plan(const ckpt_graph *graph, int fast, ckpt_arena *arena)
{
    const int blocks = graph->op_count / 5;
    ckpt_plan *const plan = CKPT_NEW(arena, ckpt_plan, 1);
    ckpt_layer_decision *const layer = CKPT_NEW(arena, ckpt_layer_decision, 3 * blocks);
    ckpt_step *const step = CKPT_NEW(arena, ckpt_step, graph->op_count);
    CHECK(plan != NULL && layer != NULL && step != NULL, "no memory");
    *plan = (ckpt_plan){.graph_name = graph->name, .solver = "hand", .budget_bytes = 100000000, .layer = layer};
    for (int i = 0; i < graph->op_count; i++) {
        const bool forward = i < 3 * blocks;
        const int block = forward ? i / 3 : (graph->op_count - 1 - i) / 2;
        const bool bits = block < fast;
        if (forward) {
            layer[i] = (ckpt_layer_decision){graph->op[i].layer, CKPT_KEEP};
        }
        if (!graph->op[i].optional || bits) {
            step[plan->step_count++] =
                ckpt_step_run(graph, bits && graph->op[i].variant_count > 0 ? graph->op[i].first_variant : i);
        }
    }
    plan->layer_count = 3 * blocks;
    plan->step = step;
    return plan;
}

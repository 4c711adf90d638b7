/* From a graph with micro-batches to one of the first, and back with what is set there. */
#include "planner/schedule/batches.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS_MAX = 9 };

int ckpt_batch_of(const char *label, int *length)
{
    const char *const at = label != NULL ? strrchr(label, '@') : NULL;
    int digits = 0;
    if (length != NULL) {
        *length = label != NULL ? (int)strlen(label) : 0;
    }
    while (at != NULL && isdigit((unsigned char)at[1 + digits])) {
        digits++;
    }
    if (at == NULL || at == label || digits == 0 || digits > DIGITS_MAX || at[1 + digits] != '\0' ||
        (digits > 1 && at[1] == '0')) {
        return -1;
    }
    if (length != NULL) {
        *length = (int)(at - label);
    }
    return (int)strtol(at + 1, NULL, 10);
}

/* An op says its micro-batch in its label and, at the same place, in its name. */
static bool is_named_so(const ckpt_graph_op *op)
{
    return ckpt_batch_of(op->layer, NULL) >= 0 && strncmp(op->name, op->layer, strlen(op->layer)) == 0;
}

int ckpt_batch_count(const ckpt_graph *graph)
{
    int count = 0;
    for (int o = 0; o < graph->op_count; o++) {
        const ckpt_graph_op *const op = &graph->op[o];
        if (op->phase == CKPT_FORWARD && !is_named_so(op)) {
            return 0;
        }
        const int batch = op->phase == CKPT_FORWARD ? ckpt_batch_of(op->layer, NULL) : -1;
        count = batch >= count ? batch + 1 : count;
    }
    return count <= graph->op_count ? count : 0;
}

/* A name without the micro-batch of its label. */
static const char *plain_name(const char *name, const char *label, ckpt_arena *out)
{
    int length = 0;
    const int batch = ckpt_batch_of(label, &length);
    return batch < 0 || strncmp(name, label, strlen(label)) != 0
               ? name
               : ckpt_arena_format(out, "%.*s%s", length, label, name + strlen(label));
}

/* "h.0@2/h.0.mlp@2" without its micro-batch, and the other way round. */
static const char *plain_path(const char *path, ckpt_arena *out)
{
    char *const text = path != NULL ? ckpt_arena_format(out, "%s", path) : NULL;
    char *to = text;
    for (const char *at = path; text != NULL; at++) {
        const size_t part = strcspn(at, "/");
        char *const start = to;
        memcpy(to, at, part);
        to[part] = '\0';
        int length = 0;
        (void)ckpt_batch_of(start, &length);
        to += length;
        at += part;
        *to = *at;
        if (*at == '\0') {
            break;
        }
        to++;
    }
    return text;
}

static const char *batch_path(const char *path, int batch, ckpt_arena *out)
{
    const char *made = "";
    for (const char *at = path; made != NULL; at++) {
        const int part = (int)strcspn(at, "/");
        made = ckpt_arena_format(out, "%s%s%.*s@%d", made, at != path ? "/" : "", part, at, batch);
        at += part;
        if (*at == '\0') {
            break;
        }
    }
    return made;
}

typedef struct first {
    const ckpt_graph *graph;
    int *number; /* per buffer: in the smaller graph; -1: not there */
    ckpt_arena *out;
    ckpt_err *err;
} first;

static ckpt_code map_list(const first *f, const ckpt_list *from, ckpt_list *to)
{
    int *const at = CKPT_NEW(f->out, int, from->count);
    int count = 0;
    for (int i = 0; at != NULL && i < from->count; i++) {
        if (f->number[from->at[i]] >= 0) {
            at[count++] = f->number[from->at[i]];
        }
    }
    *to = (ckpt_list){at, count};
    return at != NULL ? CKPT_OK : CKPT_FAIL(f->err, CKPT_NO_MEMORY, "buffers of an op");
}

static ckpt_code map_op(const first *f, const ckpt_graph_op *from, ckpt_graph_op *to)
{
    ckpt_inplace *const pair = CKPT_NEW(f->out, ckpt_inplace, from->inplace_count);
    *to = *from;
    CKPT_TRY(map_list(f, &from->reads, &to->reads));
    CKPT_TRY(map_list(f, &from->writes, &to->writes));
    CKPT_TRY(map_list(f, &from->adds, &to->adds));
    to->inplace = pair;
    to->inplace_count = 0;
    for (int i = 0; pair != NULL && i < from->inplace_count; i++) {
        const ckpt_inplace mapped = {f->number[from->inplace[i].out], f->number[from->inplace[i].in]};
        if (mapped.out >= 0 && mapped.in >= 0) {
            pair[to->inplace_count++] = mapped;
        }
    }
    to->variant = NULL;
    to->first_variant = to->variant_count = 0;
    int length = 0;
    (void)ckpt_batch_of(from->layer, &length);
    to->layer = ckpt_arena_format(f->out, "%.*s", length, from->layer);
    to->name = plain_name(from->name, from->layer, f->out);
    to->segment = plain_path(from->segment, f->out);
    return pair != NULL && to->layer != NULL && to->name != NULL && (from->segment == NULL || to->segment != NULL)
               ? CKPT_OK
               : CKPT_FAIL(f->err, CKPT_NO_MEMORY, "op of a micro-batch");
}

static bool is_first(const ckpt_graph_op *op)
{
    return (op->phase == CKPT_FORWARD || op->phase == CKPT_BACKWARD) && ckpt_batch_of(op->layer, NULL) == 0 &&
           is_named_so(op);
}

/* Buffers and ops of the first micro-batch. A buffer keeps its full name: nobody looks for it. */
static ckpt_code copy_first(first *f, ckpt_graph *made)
{
    const ckpt_graph *const graph = f->graph;
    ckpt_buffer *const buffer = CKPT_NEW(f->out, ckpt_buffer, graph->buffer_count);
    ckpt_graph_op *const op = CKPT_NEW(f->out, ckpt_graph_op, graph->op_count);
    f->number = CKPT_NEW(f->out, int, graph->buffer_count);
    if (buffer == NULL || op == NULL || f->number == NULL) {
        return CKPT_FAIL(f->err, CKPT_NO_MEMORY, "first micro-batch of %d ops", graph->op_count);
    }
    made->buffer_count = made->op_count = made->variant_count = 0;
    for (int b = 0; b < graph->buffer_count; b++) {
        const ckpt_graph_op *const writer = &graph->op[graph->writer[b]];
        f->number[b] = is_first(writer) && ckpt_list_has(&writer->writes, b) ? made->buffer_count : -1;
        if (f->number[b] >= 0) {
            buffer[made->buffer_count++] = graph->buffer[b];
        }
    }
    for (int o = 0; o < graph->op_count; o++) {
        if (is_first(&graph->op[o])) {
            CKPT_TRY(map_op(f, &graph->op[o], &op[made->op_count++]));
        }
    }
    made->buffer = buffer;
    made->op = op;
    return map_list(f, &graph->outputs, &made->outputs);
}

ckpt_code ckpt_batch_first(const ckpt_graph *graph, ckpt_arena *out, const ckpt_graph **made, ckpt_err *err)
{
    ckpt_graph *const small = CKPT_NEW(out, ckpt_graph, 1);
    first f = {.graph = graph, .out = out, .err = err};
    if (small == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "first micro-batch");
    }
    *small = *graph;
    CKPT_TRY(copy_first(&f, small));
    CKPT_TRY(ckpt_graph_check(small, out, err));
    *made = small;
    return CKPT_OK;
}

typedef struct known {
    const char *name;
    const ckpt_graph_op *op;
} known;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const known *)a)->name, ((const known *)b)->name);
}

static ckpt_code set_op(ckpt_graph_op *op, const ckpt_graph_op *like, ckpt_arena *out, ckpt_err *err)
{
    const int batch = ckpt_batch_of(op->layer, NULL);
    op->checkpoint = like != NULL ? like->checkpoint : CKPT_UNSET;
    op->offload = like != NULL ? like->offload : op->offload; /* of no layer: see choose.c */
    op->policy = like != NULL ? like->policy : CKPT_NO_POLICY;
    op->segment = like != NULL ? like->segment : NULL;
    if (op->segment != NULL && batch >= 0) {
        op->segment = batch_path(op->segment, batch, out);
        return op->segment != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "units of op %.80s", op->name);
    }
    return CKPT_OK;
}

ckpt_code ckpt_batch_spread(const ckpt_graph *graph, const ckpt_graph *from, ckpt_arena *out, const ckpt_graph **spread,
                            ckpt_err *err)
{
    ckpt_graph *const made = CKPT_NEW(out, ckpt_graph, 1);
    ckpt_graph_op *const op = ckpt_graph_copy_ops(graph, out);
    known *const list = CKPT_NEW(out, known, from->op_count);
    if (made == NULL || op == NULL || list == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "choices for %d ops", graph->op_count);
    }
    for (int o = 0; o < from->op_count; o++) {
        list[o] = (known){from->op[o].name, &from->op[o]};
    }
    qsort(list, (size_t)from->op_count, sizeof *list, by_name);
    for (int o = 0; o < graph->op_count; o++) {
        if (op[o].phase != CKPT_FORWARD) {
            continue;
        }
        const char *const name = plain_name(op[o].name, op[o].layer, out);
        if (name == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "name of an op");
        }
        const known *const found = bsearch(&(known){.name = name}, list, (size_t)from->op_count, sizeof *list, by_name);
        CKPT_TRY(set_op(&op[o], found != NULL ? found->op : NULL, out, err));
    }
    *made = *graph;
    made->op = op;
    *spread = made;
    return CKPT_OK;
}

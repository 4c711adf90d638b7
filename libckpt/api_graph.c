/* The graphs of the API: built call by call, or of a text. */
#include <assert.h>
#include <string.h>

#include "libckpt/handles_impl.h"

static_assert((int)CKPT_BUFFER_ACTIVATION == (int)CKPT_ACTIVATION && (int)CKPT_BUFFER_SAVED == (int)CKPT_SAVED &&
                  (int)CKPT_BUFFER_GRADIENT == (int)CKPT_GRADIENT && (int)CKPT_PHASE_FORWARD == (int)CKPT_FORWARD &&
                  (int)CKPT_PHASE_BACKWARD == (int)CKPT_BACKWARD && (int)CKPT_PHASE_UPDATE == (int)CKPT_UPDATE &&
                  (int)CKPT_PHASE_REDUCE == (int)CKPT_REDUCE,
              "kinds and phases of the API are those of core/formats/graph.h");

enum { VARIANT = 1 << 30 }; /* and more: numbers of variants, where ops are named by index */

typedef enum role { READS, WRITES, ADDS, INPLACE, OUTPUT, ROLES } role;

typedef struct use {
    int op, buffer, in; /* in: of INPLACE */
} use;

typedef struct entries {
    void *at;
    int count, room;
} entries;

struct ckpt_build {
    entries statics, buffers, ops, variants, uses[ROLES];
    int *variant_at;      /* per variant: where it stands behind the ops, those of an op together; set when finished */
    entries recomputable; /* per op: 0 and 1 as told, -1: not told */
    ckpt_err err;         /* the first one */
};

const ckpt_owned_graph *ckpt_graph_owner(const ckpt_graph *graph)
{
    return (const ckpt_owned_graph *)(const void *)graph;
}

static ckpt_owned_graph *owner(ckpt_graph *graph)
{
    return (ckpt_owned_graph *)(void *)graph;
}

static ckpt_owned_graph *create(void)
{
    ckpt_owned_graph *const own = ckpt_handle_create(sizeof *own, offsetof(ckpt_owned_graph, arena));
    if (own != NULL) {
        atomic_init(&own->users, 1);
    }
    return own;
}

ckpt_owned_graph *ckpt_graph_hold(const ckpt_graph *graph)
{
    ckpt_owned_graph *const own = (ckpt_owned_graph *)(uintptr_t)graph;
    atomic_fetch_add(&own->users, 1);
    return own;
}

void ckpt_graph_destroy(ckpt_graph *graph)
{
    ckpt_owned_graph *const own = owner(graph);
    if (own != NULL && atomic_fetch_sub(&own->users, 1) == 1) {
        ckpt_arena_fini(&own->arena);
        ckpt_memory_put(own);
    }
}

/* ---- of a text ---- */

static ckpt_code read_graph(ckpt_owned_graph *own, const ckpt_document *document, const ckpt_options *options,
                            ckpt_err *err)
{
    CKPT_TRY(ckpt_options_check(options, err));
    if (ckpt_options_staged(options)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "a graph is of one stage, and there are %d: name one by --stage K",
                         options->scheme.stages);
    }
    CKPT_TRY(ckpt_source_read(document, options, &own->arena, &own->source, err));
    return ckpt_options_model_words(options, &own->arena, &own->word, &own->word_count, err);
}

int ckpt_graph_from_json(const char *name, const char *json, size_t length, const ckpt_options *options,
                         ckpt_graph **graph, ckpt_error *error)
{
    ckpt_err err = {0};
    ckpt_options defaults;
    ckpt_options_init(&defaults);
    ckpt_owned_graph *const own = create();
    if (own == NULL) {
        return ckpt_status_of(CKPT_FAIL(&err, CKPT_NO_MEMORY, "no memory for a graph"), &err, error);
    }
    own->named = name != NULL && name[0] != '\0';
    const ckpt_document document = {own->named ? name : "graph", json != NULL ? json : "", json != NULL ? length : 0};
    const ckpt_code code = read_graph(own, &document, options != NULL ? options : &defaults, &err);
    if (code == CKPT_OK) {
        own->graph = *own->source.graph;
        own->finished = true;
        *graph = &own->graph;
    } else {
        ckpt_graph_destroy(&own->graph);
    }
    return ckpt_status_of(code, &err, error);
}

/* ---- built ---- */

/* What may be added to; NULL: nothing, and the reason is kept. */
static struct ckpt_build *building(ckpt_owned_graph *own)
{
    return own->build != NULL && own->build->err.code == CKPT_OK ? own->build : NULL;
}

/* Room for one more; NULL: there is none. */
static void *append(ckpt_owned_graph *own, entries *list, size_t size)
{
    if (list->count == list->room) {
        const int room = list->room < 16 ? 16 : list->room < 1 << 29 ? 2 * list->room : 0;
        void *const wider = room > 0 ? ckpt_arena_take(&own->arena, (size_t)room, size) : NULL;
        if (wider == NULL) {
            CKPT_FAIL(&own->build->err, CKPT_NO_MEMORY, "no memory for entry %d of a graph", list->count);
            return NULL;
        }
        if (list->count > 0) {
            memcpy(wider, list->at, (size_t)list->count * size);
        }
        list->at = wider;
        list->room = room;
    }
    return (char *)list->at + (size_t)list->count++ * size;
}

static const char *keep_text(ckpt_owned_graph *own, const char *text)
{
    const char *const kept = ckpt_arena_text(&own->arena, text != NULL ? text : "");
    if (kept == NULL) {
        CKPT_FAIL(&own->build->err, CKPT_NO_MEMORY, "no memory for a name");
    }
    return kept;
}

/* An unnamed thing is refused here: an index says which. */
static const char *take_name(ckpt_owned_graph *own, const char *what, int index, const char *name)
{
    if (name == NULL || name[0] == '\0') {
        CKPT_FAIL(&own->build->err, CKPT_BAD_INPUT, "%s %d: found no name", what, index);
        return NULL;
    }
    return keep_text(own, name);
}

ckpt_graph *ckpt_graph_create(const char *name)
{
    ckpt_owned_graph *const own = create();
    if (own == NULL) {
        return NULL;
    }
    own->build = CKPT_NEW(&own->arena, struct ckpt_build, 1);
    own->graph.source = "";
    own->graph.name = ckpt_arena_text(&own->arena, name != NULL ? name : "");
    if (own->build == NULL || own->graph.name == NULL) {
        ckpt_graph_destroy(&own->graph);
        return NULL;
    }
    return &own->graph;
}

void ckpt_graph_add_static(ckpt_graph *graph, const char *name, int64_t bytes)
{
    ckpt_owned_graph *const own = owner(graph);
    struct ckpt_build *const build = building(own);
    const char *const kept = build != NULL ? take_name(own, "static block", build->statics.count, name) : NULL;
    ckpt_static *const added = kept != NULL ? append(own, &build->statics, sizeof *added) : NULL;
    if (added != NULL) {
        *added = (ckpt_static){kept, bytes};
    }
}

int32_t ckpt_graph_add_buffer(ckpt_graph *graph, const char *name, int64_t bytes, ckpt_buffer_kind kind)
{
    ckpt_owned_graph *const own = owner(graph);
    struct ckpt_build *const build = building(own);
    const char *const kept = build != NULL ? take_name(own, "buffer", build->buffers.count, name) : NULL;
    if (kept != NULL && ((int)kind < CKPT_ACTIVATION || (int)kind > CKPT_GRADIENT)) {
        CKPT_FAIL(&build->err, CKPT_BAD_INPUT, "%.80s: found kind %d, wanted one of ckpt_buffer_kind", name, (int)kind);
        return -1;
    }
    ckpt_buffer *const added = kept != NULL ? append(own, &build->buffers, sizeof *added) : NULL;
    if (added == NULL) {
        return -1;
    }
    *added = (ckpt_buffer){kept, bytes, (ckpt_kind)kind};
    return build->buffers.count - 1;
}

int32_t ckpt_graph_add_op(ckpt_graph *graph, const char *name, ckpt_op_phase phase, int64_t time_ns,
                          int64_t workspace_bytes)
{
    ckpt_owned_graph *const own = owner(graph);
    struct ckpt_build *const build = building(own);
    const char *const kept = build != NULL ? take_name(own, "op", build->ops.count, name) : NULL;
    if (kept != NULL && ((int)phase < CKPT_FORWARD || (int)phase > CKPT_REDUCE)) {
        CKPT_FAIL(&build->err, CKPT_BAD_INPUT, "%.80s: found phase %d, wanted one of ckpt_op_phase", name, (int)phase);
        return -1;
    }
    int *const told = kept != NULL ? append(own, &build->recomputable, sizeof *told) : NULL;
    ckpt_graph_op *const added = told != NULL ? append(own, &build->ops, sizeof *added) : NULL;
    if (added == NULL) {
        return -1;
    }
    *told = -1;
    *added = (ckpt_graph_op){
        .name = kept, .phase = (ckpt_phase)phase, .layer = "", .time_ns = time_ns, .workspace_bytes = workspace_bytes};
    return build->ops.count - 1;
}

/* The op of that index; NULL: none, which is kept as the error. */
static ckpt_graph_op *find_op(ckpt_owned_graph *own, int32_t op)
{
    struct ckpt_build *const build = building(own);
    if (build == NULL) {
        return NULL;
    }
    if (op < 0 || op >= build->ops.count) {
        CKPT_FAIL(&build->err, CKPT_BAD_INPUT, "found op %d, and there are %d", (int)op, build->ops.count);
        return NULL;
    }
    return (ckpt_graph_op *)build->ops.at + op;
}

/* Whether there is an op or a variant of that number; if not, that is kept as the error. */
static bool has_run(ckpt_owned_graph *own, int32_t run)
{
    const struct ckpt_build *const build = building(own);
    return (build != NULL && run >= VARIANT && run - VARIANT < build->variants.count) || find_op(own, run) != NULL;
}

static void add_use(ckpt_graph *graph, role as, int32_t op, int32_t buffer, int32_t in)
{
    ckpt_owned_graph *const own = owner(graph);
    use *const added = has_run(own, op) ? append(own, &own->build->uses[as], sizeof *added) : NULL;
    if (added != NULL) {
        *added = (use){op, buffer, in};
    }
}

void ckpt_op_reads(ckpt_graph *graph, int32_t op, int32_t buffer)
{
    add_use(graph, READS, op, buffer, 0);
}

void ckpt_op_writes(ckpt_graph *graph, int32_t op, int32_t buffer)
{
    add_use(graph, WRITES, op, buffer, 0);
}

void ckpt_op_adds(ckpt_graph *graph, int32_t op, int32_t buffer)
{
    add_use(graph, ADDS, op, buffer, 0);
}

void ckpt_op_inplace(ckpt_graph *graph, int32_t op, int32_t out, int32_t in)
{
    add_use(graph, INPLACE, op, out, in);
}

int32_t ckpt_op_variant(ckpt_graph *graph, int32_t op, const char *name, int64_t time_ns, int64_t workspace_bytes,
                        int32_t exact)
{
    ckpt_owned_graph *const own = owner(graph);
    const bool found = find_op(own, op) != NULL;
    const char *const kept = found ? take_name(own, "variant", own->build->variants.count, name) : NULL;
    ckpt_graph_op *const added = kept != NULL ? append(own, &own->build->variants, sizeof *added) : NULL;
    if (added == NULL) {
        return -1;
    }
    *added = (ckpt_graph_op){
        .variant = kept, .base = op, .time_ns = time_ns, .workspace_bytes = workspace_bytes, .inexact = exact == 0};
    return VARIANT + own->build->variants.count - 1;
}

void ckpt_op_own_variant(ckpt_graph *graph, int32_t op, const char *name)
{
    ckpt_owned_graph *const own = owner(graph);
    ckpt_graph_op *const of = find_op(own, op);
    const char *const kept = of != NULL ? take_name(own, "own way of op", op, name) : NULL;
    if (kept != NULL) {
        of->variant = kept;
    }
}

void ckpt_op_optional(ckpt_graph *graph, int32_t op, int32_t optional)
{
    ckpt_graph_op *const of = find_op(owner(graph), op);
    if (of != NULL) {
        of->optional = optional != 0;
    }
}

void ckpt_op_recomputable(ckpt_graph *graph, int32_t op, int32_t recomputable)
{
    ckpt_owned_graph *const own = owner(graph);
    if (find_op(own, op) != NULL) {
        ((int *)own->build->recomputable.at)[op] = recomputable != 0;
    }
}

void ckpt_op_layer(ckpt_graph *graph, int32_t op, const char *layer, const char *kind)
{
    ckpt_owned_graph *const own = owner(graph);
    ckpt_graph_op *const of = find_op(own, op);
    const char *const kept = of != NULL ? keep_text(own, layer) : NULL;
    const char *const kept_kind = kept != NULL && kind != NULL ? keep_text(own, kind) : NULL;
    if (kept != NULL) {
        of->layer = kept;
        of->kind = kept_kind;
    }
}

void ckpt_graph_add_output(ckpt_graph *graph, int32_t buffer)
{
    ckpt_owned_graph *const own = owner(graph);
    use *const added = building(own) != NULL ? append(own, &own->build->uses[OUTPUT], sizeof *added) : NULL;
    if (added != NULL) {
        *added = (use){0, buffer, 0};
    }
}

void ckpt_graph_set_link(ckpt_graph *graph, int64_t to_host_bytes_per_s, int64_t from_host_bytes_per_s)
{
    if (building(owner(graph)) != NULL) {
        graph->has_link = true;
        graph->d2h_bytes_per_s = to_host_bytes_per_s;
        graph->h2d_bytes_per_s = from_host_bytes_per_s;
    }
}

static ckpt_list *list_of(ckpt_graph_op *op, role as)
{
    return as == WRITES ? &op->writes : as == ADDS ? &op->adds : &op->reads;
}

/* The ops with their variants behind them, those of an op together in the order they were added. */
static ckpt_code lay_variants(ckpt_owned_graph *own, ckpt_graph_op **op, ckpt_err *err)
{
    struct ckpt_build *const build = own->build;
    const int ops = build->ops.count, variants = build->variants.count;
    const ckpt_graph_op *const each = build->variants.at;
    *op = build->ops.at;
    if (variants == 0) {
        return CKPT_OK;
    }
    build->variant_at = CKPT_NEW(&own->arena, int, variants);
    *op = CKPT_NEW(&own->arena, ckpt_graph_op, (size_t)ops + (size_t)variants);
    if (build->variant_at == NULL || *op == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d variants", variants);
    }
    memcpy(*op, build->ops.at, (size_t)ops * sizeof **op);
    for (int v = 0; v < variants; v++) {
        (*op)[each[v].base].variant_count++;
    }
    for (int o = 0, at = ops; o < ops; o++) {
        (*op)[o].first_variant = at;
        at += (*op)[o].variant_count;
        (*op)[o].variant_count = 0; /* counted again below */
    }
    for (int v = 0; v < variants; v++) {
        ckpt_graph_op *const base = &(*op)[each[v].base];
        build->variant_at[v] = base->first_variant + base->variant_count++;
        (*op)[build->variant_at[v]] = each[v];
    }
    return CKPT_OK;
}

/* Where an op or variant stands in the finished graph. */
static int run_at(const struct ckpt_build *build, int run)
{
    return run >= VARIANT ? build->variant_at[run - VARIANT] : run;
}

/* What variants share with their ops, once that is known. */
static void complete_variants(ckpt_graph_op *op, int ops, int variants)
{
    for (int v = ops; v < ops + variants; v++) {
        const ckpt_graph_op *const base = &op[op[v].base];
        op[v].name = base->name;
        op[v].phase = base->phase;
        op[v].layer = base->layer;
        op[v].kind = base->kind;
        op[v].recompute = base->recompute;
    }
}

/* The buffers of each op's list lie together, in the order they were added. */
static ckpt_code lay_lists(ckpt_owned_graph *own, ckpt_graph_op *op, ckpt_err *err)
{
    const struct ckpt_build *const build = own->build;
    const int runs = build->ops.count + build->variants.count;
    for (int r = 0; r < ROLES; r++) {
        const entries *const uses = &build->uses[r];
        const use *const each = uses->at;
        int *const buffer = CKPT_NEW(&own->arena, int, uses->count);
        ckpt_inplace *const pair = CKPT_NEW(&own->arena, ckpt_inplace, r == INPLACE ? uses->count : 0);
        int *const next = CKPT_NEW(&own->arena, int, (size_t)runs + 1); /* behind each op's last one */
        if (buffer == NULL || pair == NULL || next == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the lists of a graph");
        }
        for (int i = 0; i < uses->count; i++) {
            next[run_at(build, each[i].op) + 1]++;
        }
        for (int o = 0; o < runs; o++) {
            next[o + 1] += next[o];
            const int count = next[o + 1] - next[o];
            if (r == INPLACE) {
                op[o].inplace = &pair[next[o]];
                op[o].inplace_count = count;
            } else if (r != OUTPUT) {
                *list_of(&op[o], (role)r) = (ckpt_list){&buffer[next[o]], count};
            }
        }
        for (int i = 0; i < uses->count; i++) {
            const int at = r == OUTPUT ? i : next[run_at(build, each[i].op)]++;
            buffer[at] = each[i].buffer;
            if (r == INPLACE) {
                pair[at] = (ckpt_inplace){each[i].buffer, each[i].in};
            }
        }
        if (r == OUTPUT) {
            own->graph.outputs = (ckpt_list){buffer, uses->count};
        }
    }
    return CKPT_OK;
}

static ckpt_code finish(ckpt_owned_graph *own, ckpt_err *err)
{
    struct ckpt_build *const build = own->build;
    if (build == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found a graph that is finished, wanted one that is being built");
    }
    if (build->err.code != CKPT_OK) {
        *err = build->err;
        return err->code;
    }
    ckpt_graph *const graph = &own->graph;
    ckpt_graph_op *op = NULL;
    CKPT_TRY(lay_variants(own, &op, err));
    graph->statics = build->statics.at;
    graph->static_count = build->statics.count;
    graph->buffer = build->buffers.at;
    graph->buffer_count = build->buffers.count;
    graph->op = op;
    graph->op_count = build->ops.count;
    graph->variant_count = build->variants.count;
    CKPT_TRY(lay_lists(own, op, err));
    for (int o = 0; o < graph->op_count; o++) {
        const int told = ((const int *)build->recomputable.at)[o];
        op[o].recompute = told >= 0 ? told : op[o].phase == CKPT_FORWARD && op[o].adds.count == 0;
    }
    complete_variants(op, graph->op_count, graph->variant_count);
    CKPT_TRY(ckpt_graph_check(graph, &own->arena, err));
    own->source = (ckpt_graph_source){.name = graph->name,
                                      .graph = graph,
                                      .costs = "times of a graph in memory",
                                      .notes = "",
                                      .scheme = ckpt_scheme_alone};
    own->build = NULL;
    own->finished = true;
    return CKPT_OK;
}

int ckpt_graph_finish(ckpt_graph *graph, ckpt_error *error)
{
    ckpt_err err = {0};
    return ckpt_status_of(finish(owner(graph), &err), &err, error);
}

/* ---- looked at ---- */

int32_t ckpt_graph_op_count(const ckpt_graph *graph)
{
    const struct ckpt_build *const build = ckpt_graph_owner(graph)->build;
    return build != NULL ? build->ops.count : graph->op_count;
}

int32_t ckpt_graph_buffer_count(const ckpt_graph *graph)
{
    const struct ckpt_build *const build = ckpt_graph_owner(graph)->build;
    return build != NULL ? build->buffers.count : graph->buffer_count;
}

char *ckpt_graph_json(const ckpt_graph *graph, size_t *length, ckpt_error *error)
{
    ckpt_err err = {0};
    ckpt_text text;
    if (!ckpt_graph_owner(graph)->finished) {
        ckpt_status_of(CKPT_FAIL(&err, CKPT_BAD_INPUT, "found a graph that is being built, wanted a finished one"),
                       &err, error);
        return NULL;
    }
    ckpt_text_init(&text);
    ckpt_graph_write(graph, &text);
    return ckpt_json_give(&text, length, error);
}

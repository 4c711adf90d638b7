/* ckpt-graph/1: one training step as operations and buffers. Nothing in it knows what a layer is. */
#ifndef CKPT_CORE_FORMATS_GRAPH_H
#define CKPT_CORE_FORMATS_GRAPH_H

#include <stdbool.h>

#include "core/base/digest.h"
#include "core/base/memory.h"
#include "core/base/status.h"
#include "core/base/text.h"
#include "core/base/units.h"
#include "core/formats/model.h"

typedef enum ckpt_phase { CKPT_FORWARD, CKPT_BACKWARD, CKPT_UPDATE, CKPT_REDUCE } ckpt_phase;
typedef enum ckpt_kind { CKPT_ACTIVATION, CKPT_SAVED, CKPT_GRADIENT } ckpt_kind;

typedef struct ckpt_static {
    const char *name; /* "weights", "gradients", "optimizer", "statistics", "inputs", "weights16" in lowered models */
    ckpt_bytes bytes;
} ckpt_static;

typedef struct ckpt_buffer {
    const char *name; /* unique among buffers */
    ckpt_bytes bytes; /* >= 0 */
    ckpt_kind kind;
} ckpt_buffer;

typedef struct ckpt_list {
    const int *at; /* `count` buffer indices, each once */
    int count;
} ckpt_list;

/* Cost: O(count). */
bool ckpt_list_has(const ckpt_list *list, int buffer);

typedef struct ckpt_inplace {
    int out, in; /* `out` may take the place of `in`, which is destroyed; same bytes, out written, in read */
} ckpt_inplace;

/* What a policy says of an op; the names are those of PyTorch's CheckpointPolicy. */
typedef enum ckpt_policy {
    CKPT_NO_POLICY,
    CKPT_MUST_SAVE,
    CKPT_PREFER_SAVE,
    CKPT_MUST_RECOMPUTE,
    CKPT_PREFER_RECOMPUTE,
} ckpt_policy;

typedef struct ckpt_graph_op {
    const char *name; /* unique among ops */
    ckpt_phase phase;
    const char *layer; /* label for people; "" when there is none */
    ckpt_list reads, writes, adds;
    const ckpt_inplace *inplace;
    int inplace_count;
    ckpt_ns time_ns;
    ckpt_bytes workspace_bytes;
    bool recompute;         /* may run again; default: forward ops without adds */
    ckpt_choice checkpoint; /* the user's flag on the layer this op comes from (key "checkpoint": true|false) */
    const char *segment; /* the flagged unit it belongs to (key "segment"); NULL: none; one in another: "h.0/h.0.mlp" */
    const char *kind;    /* of the layer it comes from (key "op"), "linear"; NULL: unknown */
    ckpt_choice offload; /* the user's flag, as `checkpoint` */
    int stage;           /* pipeline partition + 1; 0: none is set */
    ckpt_policy policy;  /* of --policy; in no file */

    /* Variants: other ways to do the same. They stand behind the ops in ckpt_graph.op, complete in themselves. */
    const char *variant;              /* the name of this way; NULL: none, as in most ops */
    bool inexact;                     /* a variant: what it writes has other bits than what the op's own way writes */
    bool optional;                    /* an op: need not run at all */
    int base;                         /* a variant: the op it belongs to */
    int first_variant, variant_count; /* an op: op[first_variant] .. op[first_variant + variant_count - 1] */
} ckpt_graph_op;

/* How an op is run is a number of its own, the run: an op's own way has the op's index, variants have the indices
 * behind the ops. Sequences name runs; steps of plans name ops and variants.
 *
 * Equations that ckpt_graph_check tests, in this order:
 *   every name unique; every index in range; sizes and times >= 0 and their sums within 63 bits
 *   every buffer is written by exactly one op, in any of its ways; read and added to only by later ops in reference
 *   order
 *   adds only to gradients; recompute only without adds; in-place pairs of equal size, out written, in read
 *   ops in their own way, without optional ones, find all that they read
 *   static_bytes = sum of static sizes */
typedef struct ckpt_graph {
    const char *source; /* file name, for messages */
    const char *name;
    const ckpt_static *statics;
    int static_count;
    const ckpt_buffer *buffer;
    int buffer_count;
    const ckpt_graph_op *op; /* ops in reference order, then variants, those of an op together */
    int op_count;
    int variant_count; /* of all ops together */
    ckpt_list outputs; /* must be in memory at the end */
    bool order_free;   /* key "order": "free": plans may run ops in another order, see ckpt_op_may_move */
    bool has_link;
    int64_t d2h_bytes_per_s, h2d_bytes_per_s; /* > 0 when has_link */
    ckpt_bytes static_bytes;
    const int *writer; /* per buffer: the op that writes it */
} ckpt_graph;

/* The op that a run is of. */
static inline int ckpt_run_base(const ckpt_graph *graph, int run)
{
    return run < graph->op_count ? run : graph->op[run].base;
}

/* Whether a reordered plan may run op o for the first time at another place among the ops: one that may be recomputed,
 * adds to nothing, does nothing in place and has no variants. All others keep their order. */
bool ckpt_op_may_move(const ckpt_graph *graph, int o);

/* A copy of the ops and their variants, to be changed; NULL: no memory. */
ckpt_graph_op *ckpt_graph_copy_ops(const ckpt_graph *graph, ckpt_arena *out);

/* There is a choice of variants, or an op that need not run. Cost: O(1) with variants, else O(ops). */
bool ckpt_graph_has_variants(const ckpt_graph *graph);

/* Errors: CKPT_BAD_INPUT ("file:line:column: found, wanted"), CKPT_OVERFLOW, CKPT_IO, CKPT_NO_MEMORY.
 * Cost: O(file) time and memory. */
CKPT_MUST_USE ckpt_code ckpt_graph_read(const char *path, ckpt_arena *out, const ckpt_graph **graph, ckpt_err *err);

/* The same of a document that is open. */
CKPT_MUST_USE ckpt_code ckpt_graph_item(const ckpt_item *root, ckpt_arena *out, const ckpt_graph **graph,
                                        ckpt_err *err);

/* Check a graph that was built in memory and fill its derived fields (static_bytes, writer). */
CKPT_MUST_USE ckpt_code ckpt_graph_check(ckpt_graph *graph, ckpt_arena *out, ckpt_err *err);

/* The graph as JSON appended to `text`. Reading it back gives an equal graph. */
void ckpt_graph_write(const ckpt_graph *graph, ckpt_text *text);

/* SHA-256 of the graph's structure: name, statics, buffers, ops with reads, writes, adds, in-place pairs,
 * recompute and phase, outputs, variants. Times, workspaces, link and labels are left out: another profile
 * changes them, and a plan stays executable. The exact canonical text is in docs/reference/formats.md. */
CKPT_MUST_USE ckpt_code ckpt_graph_digest(const ckpt_graph *graph, char text[CKPT_DIGEST_TEXT], ckpt_err *err);

const char *ckpt_phase_name(ckpt_phase phase);
const char *ckpt_kind_name(ckpt_kind kind);

/* The buffer or op of that name, -1 when there is none. Cost: O(count). */
int ckpt_graph_find_buffer(const ckpt_graph *graph, const char *name);
int ckpt_graph_find_op(const ckpt_graph *graph, const char *name);

#endif

/* Where a graph comes from: a ckpt-graph, or a model that is lowered with the costs of a profile or a device; and what is
 * set on its ops. */
#ifndef CKPT_LIBCKPT_SOURCE_H
#define CKPT_LIBCKPT_SOURCE_H

#include "core/formats/plan.h"
#include "libckpt/options.h"

/* Why a graph takes no options of models; for its name. */
#define CKPT_GRAPH_HAS_ITS_OWN                                                                                         \
    "%s is a graph and has its own sizes and times: --profile, --device, --set, --dtype, --threads and --maximize "    \
    "are for models"

struct ckpt_staged; /* ops/lowering/staged.h */

typedef struct ckpt_graph_source {
    const char *name;        /* of the file, as it was given; NULL: nameless */
    const ckpt_graph *graph; /* with what the options set, from ckpt_source_choose on */
    const ckpt_model *model; /* NULL: the file is a graph */
    const char *costs;
    const ckpt_layer_algorithms *algorithms; /* that the profile measured, by layer */
    int algorithms_count;
    bool roofline;
    int threads; /* CKPT_ON_GPU: for a GPU; 0 too when the file is a graph */
    bool gpu;
    ckpt_bytes capacity;              /* of the GPU's memory; 0: unknown, or no GPU */
    bool flagged;                     /* the model itself sets something, and that is not ignored */
    bool chosen;                      /* something is set, here or in another pipeline stage */
    const char *notes;                /* lines on what was set and is left out */
    const struct ckpt_staged *staged; /* of a model; NULL: the file is a graph */
    ckpt_scheme scheme;               /* of the graph; a graph file's is plain */
} ckpt_graph_source;

/* Read a graph or a model, and lower the model by its options.
 *   document   its `text` NULL: the file of that name
 * Errors: CKPT_BAD_INPUT, CKPT_OVERFLOW, CKPT_IO, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_source_read(const ckpt_document *document, const ckpt_options *options, ckpt_arena *out,
                                         ckpt_graph_source *source, ckpt_err *err);

/* Another pipeline stage of the same model. Errors: of lowering. */
CKPT_MUST_USE ckpt_code ckpt_source_stage(const ckpt_graph_source *other, int stage, ckpt_arena *out,
                                          ckpt_graph_source *source, ckpt_err *err);

/* Put the link and what is set for ops on the graph. Errors: CKPT_BAD_INPUT, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_source_choose(ckpt_graph_source *source, const ckpt_options *options, ckpt_arena *out,
                                           ckpt_err *err);

/* The same graph with a link of that rate, "50GB/s", as a copy in `out`. Errors: CKPT_BAD_INPUT, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_graph_linked(const ckpt_graph *graph, const char *rate, ckpt_arena *out,
                                          const ckpt_graph **linked, ckpt_err *err);

/* Open an option's document, as ckpt_json_open. */
CKPT_MUST_USE ckpt_code ckpt_document_open(const ckpt_document *document, const char *kind, ckpt_json **json,
                                           ckpt_item *root, ckpt_err *err);

#endif

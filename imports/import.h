/* What other tools wrote, as ckpt's own files. Nothing in these files is ever executed, and nothing they say about
 * sizes is believed before it is checked. */
#ifndef CKPT_IMPORTS_IMPORT_H
#define CKPT_IMPORTS_IMPORT_H

#include "core/formats/graph.h"
#include "core/formats/trace.h"

typedef enum ckpt_import_kind {
    CKPT_IMPORT_SNAPSHOT, /* PyTorch's memory snapshot, torch.cuda.memory._dump_snapshot: a pickle */
    CKPT_IMPORT_CHROME,   /* Kineto's or any Chrome trace with memory events: {"traceEvents": [...]} or [...] */
    CKPT_IMPORT_EXECUTION /* PyTorch's ExecutionTraceObserver: {"schema": ..., "nodes": [...]} */
} ckpt_import_kind;

/* By its first bytes and keys. Errors: CKPT_BAD_INPUT (none of these: the message says what was found), CKPT_IO. */
CKPT_MUST_USE ckpt_code ckpt_import_recognise(const char *path, ckpt_import_kind *kind, ckpt_err *err);

/* Allocations, frees and what ran, over time. `note` (NULL: nobody listens) is called with one line for each thing
 * that the file holds and the trace does not. Errors: CKPT_BAD_INPUT (file, place, found, wanted), CKPT_IO,
 * CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_import_snapshot(const char *path, void (*note)(const char *line), ckpt_arena *out,
                                             ckpt_trace **trace, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_import_chrome(const char *path, void (*note)(const char *line), ckpt_arena *out,
                                           ckpt_trace **trace, ckpt_err *err);

/* One training step as a graph that ckpt-plan plans. `times` is a Kineto trace of the same run, from which the ops'
 * times come; NULL: from the bytes they move at `bytes_per_s`. Errors: as above, and CKPT_BAD_INPUT when the trace
 * holds too little for a graph (no backward, no tensor sizes): the message says what is missing. */
CKPT_MUST_USE ckpt_code ckpt_import_execution(const char *path, const char *times, double bytes_per_s,
                                              void (*note)(const char *line), ckpt_arena *out, ckpt_graph **graph,
                                              ckpt_err *err);

#endif

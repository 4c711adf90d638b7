/* Imports other tools' files as ckpt traces and graphs.
 *
 * This folder knows the file formats of PyTorch, Kineto and Chrome. It executes nothing from a file, and checks every
 * size in a file before use. It knows nothing of the planner, the executor or devices. */
#ifndef CKPT_IMPORTS_IMPORT_H
#define CKPT_IMPORTS_IMPORT_H

#include "core/formats/graph.h"
#include "core/formats/trace.h"

typedef enum ckpt_import_kind {
    CKPT_IMPORT_SNAPSHOT, /* PyTorch's memory snapshot, torch.cuda.memory._dump_snapshot: a pickle */
    CKPT_IMPORT_CHROME,   /* Kineto's or any Chrome trace with memory events: {"traceEvents": [...]} or [...] */
    CKPT_IMPORT_EXECUTION /* PyTorch's ExecutionTraceObserver: {"schema": ..., "nodes": [...]} */
} ckpt_import_kind;

/* Finds the kind by the file's first bytes and keys. Errors: CKPT_BAD_INPUT (another kind; the message says which),
 * CKPT_IO. */
CKPT_MUST_USE ckpt_code ckpt_import_recognise(const char *path, ckpt_import_kind *kind, ckpt_err *err);

/* Imports allocations, frees and work over time. `note` (may be NULL) is called with one line for everything in the
 * file that the trace lacks. Errors: CKPT_BAD_INPUT (file, place, found, wanted), CKPT_IO, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_import_snapshot(const char *path, void (*note)(const char *line), ckpt_arena *out,
                                             ckpt_trace **trace, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_import_chrome(const char *path, void (*note)(const char *line), ckpt_arena *out,
                                           ckpt_trace **trace, ckpt_err *err);

/* Imports one training step as a graph that ckpt-plan plans. `times` is a Kineto trace of the same run, which gives the
 * ops' times, and where it has them workspaces and modules; NULL: an op takes the time to move its bytes at
 * `bytes_per_s`. Errors: as above, and CKPT_BAD_INPUT if the trace is not enough for a graph (no backward, no tensor
 * sizes); the message says what is missing. */
CKPT_MUST_USE ckpt_code ckpt_import_execution(const char *path, const char *times, double bytes_per_s,
                                              void (*note)(const char *line), ckpt_arena *out, ckpt_graph **graph,
                                              ckpt_err *err);

#endif

/* An outline in a plan file. */
#ifndef CKPT_CORE_FORMATS_OUTLINE_IMPL_H
#define CKPT_CORE_FORMATS_OUTLINE_IMPL_H

#include "core/formats/outline.h"
#include "core/json/json.h"
#include "core/json/json_write.h"

/* Reads "static", "buffers" and "ops" of a plan's member "graph": all of them, or none. The sum of times fits 63 bits. */
CKPT_MUST_USE ckpt_code ckpt_outline_read(const ckpt_item *graph, ckpt_arena *out, ckpt_outline *outline,
                                          ckpt_err *err);

/* Writes the same members. */
void ckpt_outline_write(const ckpt_outline *outline, ckpt_json_writer *w);

/* Errors: CKPT_BAD_INPUT with the first difference from the graph. Times may differ: another profile changes them. */
CKPT_MUST_USE ckpt_code ckpt_outline_compare(const ckpt_outline *outline, const ckpt_graph *graph, ckpt_err *err);

#endif

/* Runs in another way than their op's own, in words. */
#ifndef CKPT_VIZ_TIMELINE_VARIANTS_H
#define CKPT_VIZ_TIMELINE_VARIANTS_H

#include "core/formats/trace.h"

/* The name of an event, with its variant: "conv/forward by winograd (inexact)". Appended, or in `out` (NULL without
 * memory). */
void ckpt_event_put(ckpt_text *text, const ckpt_event *event);
const char *ckpt_event_called(const ckpt_event *event, ckpt_arena *out);

/* Whether two events are the same run, in the same way, or the free of the same buffer. */
bool ckpt_event_same_run(const ckpt_event *a, const ckpt_event *b);

/* "12 of 340 runs in another way, 8 inexact", "conv/forward 8 × winograd (inexact)", "relu/backward 4 × bits", ...: the
 * most frequent kinds of op and way, an op called by what repeated blocks share of its name. Gives the number of lines; 0:
 * all runs are in the op's own way; -1: no memory.
 *   runs   of the trace. Cost: O(n log n) in runs in other ways. */
enum { CKPT_VARIANT_LINES = 6 };
int ckpt_variants_say(const ckpt_trace *trace, int runs, const char *line[CKPT_VARIANT_LINES], ckpt_arena *out);

#endif

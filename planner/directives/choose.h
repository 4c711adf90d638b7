/* The rules of the command line, set on the ops of a graph beside the model's own flags. Knows graphs, no schedule and
 * no strategy. */
#ifndef CKPT_PLANNER_DIRECTIVES_CHOOSE_H
#define CKPT_PLANNER_DIRECTIVES_CHOOSE_H

#include "core/formats/graph.h"

typedef enum ckpt_rule_kind {
    CKPT_RULE_CHECKPOINT,
    CKPT_RULE_KEEP,
    CKPT_RULE_OFFLOAD,
    CKPT_RULE_POLICY
} ckpt_rule_kind;

/* `text`: of a policy "linear=save,*=prefer-recompute", else a pattern over dotted names of layers and blocks; "*" and
 * "?" match no dot, "[0-5]" one character. */
typedef struct ckpt_rule {
    ckpt_rule_kind kind;
    const char *text;
} ckpt_rule;

/* The same graph with the rules set on its ops. A rule that matches a name holds for all layers below that name. Of
 * several matched names the longest decides, of several rules for one name the last. A name matched by
 * CKPT_RULE_CHECKPOINT inside another such name is a unit inside a unit. Of a policy the first clause that matches
 * decides. In a graph with micro-batches (planner/schedule/batches.h) names are without micro-batch, and a rule holds
 * in all micro-batches; units and groups belong to one micro-batch each.
 *
 *   ignore    forget the model's own flags first
 *   grouping  NULL, or one that ckpt_grouping_known: units become segments
 *   notes     receives a line for everything that was left out
 *
 * Errors: CKPT_BAD_INPUT (matches nothing, cannot be, more than 64 units inside each other), CKPT_NO_MEMORY. Cost:
 * O(ops * rules). */
CKPT_MUST_USE ckpt_code ckpt_choose(const ckpt_graph *graph, const ckpt_rule *rule, int count, bool ignore,
                                    const char *grouping, ckpt_arena *out, const ckpt_graph **chosen, ckpt_text *notes,
                                    ckpt_err *err);

/* The same for one pipeline stage. Names, groups and units are those of `whole`, the graph of one micro-batch on one
 * rank with the stage of each op, so a unit that a stage's end splits is none on either side. A setting of an op of
 * `whole` is copied to the ops of that name in `graph`, in every micro-batch.
 *
 *   set   receives `whole` with the settings
 *
 * Errors and cost as ckpt_choose. */
CKPT_MUST_USE ckpt_code ckpt_choose_spread(const ckpt_graph *whole, const ckpt_graph *graph, const ckpt_rule *rule,
                                           int count, bool ignore, const char *grouping, ckpt_arena *out,
                                           const ckpt_graph **set, const ckpt_graph **chosen, ckpt_text *notes,
                                           ckpt_err *err);

/* Whether anything is set on any op. */
bool ckpt_chosen_any(const ckpt_graph *graph);

/* "each", "contiguous", "group_N" and "segments:N" group the units of a sequence. Units are the flagged ones; without
 * flags, the copies of repeated blocks; without such blocks, the parts between narrow cuts. */
bool ckpt_grouping_known(const char *name);

extern const char *const ckpt_grouping_help[]; /* pairs of a name and a line; NULL ends it */

#endif

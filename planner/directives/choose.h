/* What the user sets on the command line, put on the ops of a graph beside what the model says. */
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

/* The same graph with that set on its ops. What a name is matched by decides for all below it; of several names the
 * longest, of several rules for it the last, and one matched by CKPT_RULE_CHECKPOINT inside another is a unit inside a
 * unit. Of a policy the first clause that matches decides. In a graph with micro-batches (planner/schedule/batches.h)
 * names are those without micro-batch, and a rule holds in all of them; units and groups are of one micro-batch each.
 *
 *   ignore    what the model says is forgotten first
 *   grouping  NULL, or one that ckpt_grouping_known: units become segments
 *   notes     receives a line for everything that was left out
 *
 * Errors: CKPT_BAD_INPUT (matches nothing, cannot be, more than 64 units inside each other), CKPT_NO_MEMORY. Cost:
 * O(ops * rules). */
CKPT_MUST_USE ckpt_code ckpt_choose(const ckpt_graph *graph, const ckpt_rule *rule, int count, bool ignore,
                                    const char *grouping, ckpt_arena *out, const ckpt_graph **chosen, ckpt_text *notes,
                                    ckpt_err *err);

/* The same for one pipeline stage: names, groups and units are those of `whole`, the graph of one micro-batch on one
 * rank with the stage of each op, so a unit that is split is none on either side. What is set on an op there is set on
 * the op of that name here, in every micro-batch.
 *
 *   set   receives `whole` with that set
 *
 * Errors and cost as ckpt_choose. */
CKPT_MUST_USE ckpt_code ckpt_choose_spread(const ckpt_graph *whole, const ckpt_graph *graph, const ckpt_rule *rule,
                                           int count, bool ignore, const char *grouping, ckpt_arena *out,
                                           const ckpt_graph **set, const ckpt_graph **chosen, ckpt_text *notes,
                                           ckpt_err *err);

/* Something is set on an op. */
bool ckpt_chosen_any(const ckpt_graph *graph);

/* "each", "contiguous", "group_N" and "segments:N" of the units of a sequence: what is flagged; where nothing is, each
 * copy of a repeated block; where there is none, what lies between narrow cuts. */
bool ckpt_grouping_known(const char *name);

extern const char *const ckpt_grouping_help[]; /* pairs of a name and a line; NULL ends it */

#endif

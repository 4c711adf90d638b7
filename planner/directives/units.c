/* Units of a sequence and their grouping: the strategies of SageMaker's model parallel library and of PyTorch's
 * checkpoint_sequential. Names carry all of it: ops with the same segment are one unit, and a group gives the segments
 * of its units one name. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/chain/chain.h"
#include "planner/directives/units.h"
#include "planner/replay/clock.h"

const char *const ckpt_grouping_help[] = {
    "each",       "every unit a segment: what is flagged, else each copy of a repeated block, else between narrow cuts",
    "contiguous", "all units of one pipeline partition a segment",
    "group_N",    "N units a segment, none over a pipeline partition's end",
    "segments:N", "N segments of as many units; the last, which takes the rest, is kept (checkpoint_sequential)",
    NULL,
};

/* The number behind `start`; 0: the name is another. */
static int number_behind(const char *name, const char *start)
{
    const size_t length = strlen(start);
    int number = 0;
    return strncmp(name, start, length) == 0 && isdigit((unsigned char)name[length]) &&
                   ckpt_int_parse(name + length, 0, 999999999, &number)
               ? number
               : 0;
}

bool ckpt_grouping_known(const char *name)
{
    return strcmp(name, "each") == 0 || strcmp(name, "contiguous") == 0 || number_behind(name, "group_") > 0 ||
           number_behind(name, "segments:") > 0;
}

/* Length of the part of a layer's name that says in which copy of a repeated block it is; 0: in none. */
static int copy_length(const char *layer)
{
    int length = 0;
    int start = 0;
    bool number = true;
    for (int i = 0; layer[i] != '\0'; i++) {
        if (layer[i] == '.') {
            length = number && i > start && start > 0 ? i : length;
            start = i + 1;
            number = true;
        } else {
            number = number && isdigit((unsigned char)layer[i]);
        }
    }
    return length;
}

/* A kept op stays kept inside the unit. */
static ckpt_code flag_op(ckpt_graph_op *op, const char *unit, ckpt_arena *out, ckpt_err *err)
{
    const bool kept = op->checkpoint == CKPT_NO;
    op->segment = kept && unit != NULL ? ckpt_arena_format(out, "%s/kept", unit) : unit;
    op->checkpoint = kept ? CKPT_NO : CKPT_YES;
    return op->segment != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "name of a unit");
}

/* Flag the ops of repeated blocks. Gives whether there are any. */
static ckpt_code flag_copies(const ckpt_graph *graph, ckpt_graph_op *op, ckpt_arena *out, bool *any, ckpt_err *err)
{
    *any = false;
    for (int o = 0; o < graph->op_count; o++) {
        const int length = op[o].layer != NULL && op[o].phase == CKPT_FORWARD ? copy_length(op[o].layer) : 0;
        if (length > 0) {
            char *const name = ckpt_arena_format(out, "%.*s", length, op[o].layer);
            for (int i = 0; name != NULL && name[i] != '\0'; i++) {
                name[i] = name[i] == '/' ? '.' : name[i]; /* a slash is for units in units */
            }
            CKPT_TRY(flag_op(&op[o], name, out, err));
            *any = true;
        }
    }
    return CKPT_OK;
}

static ckpt_code flag_chain(const ckpt_graph *graph, ckpt_graph_op *op, ckpt_arena *out, ckpt_err *err)
{
    ckpt_chain *chain = NULL;
    CKPT_TRY(ckpt_chain_build(graph, false, out, &chain, err));
    for (int k = 1; k <= chain->count; k++) {
        const char *const name = ckpt_arena_format(out, "block %d", k);
        for (int o = chain->block[k].from; o < chain->block[k].to; o++) {
            CKPT_TRY(flag_op(&op[o], name, out, err));
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_units_flag(const ckpt_graph *graph, ckpt_graph_op *op, ckpt_arena *out, ckpt_err *err)
{
    bool any = false;
    for (int o = 0; o < graph->op_count && !any; o++) {
        any = op[o].phase == CKPT_FORWARD && op[o].checkpoint == CKPT_YES;
    }
    CKPT_TRY(any ? CKPT_OK : flag_copies(graph, op, out, &any, err));
    return any ? CKPT_OK : flag_chain(graph, op, out, err);
}

/* ---- units that a partition's end runs through ---- */

typedef struct unit {
    const char *name; /* of its segment, from the outermost */
    int first, stage;
    int other; /* a second partition it has ops of; -1: none */
    const char *segment;
} unit;

typedef struct units {
    unit *at; /* by name */
    int count;
} units;

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const unit *)a)->name, ((const unit *)b)->name);
}

static int compare_first(const void *a, const void *b)
{
    return ((const unit *)a)->first - ((const unit *)b)->first;
}

static unit *find(const units *u, const char *name)
{
    return bsearch(&(unit){.name = name}, u->at, (size_t)u->count, sizeof *u->at, compare_names);
}

static int component(const char *path)
{
    return (int)strcspn(path, "/");
}

/* The text that names the units of a forward op; NULL: it is in none. */
static const char *path_of(const ckpt_graph_op *op)
{
    const bool in_one = op->checkpoint == CKPT_YES ||
                        (op->checkpoint == CKPT_NO && op->segment != NULL && strchr(op->segment, '/') != NULL);
    return op->phase != CKPT_FORWARD || !in_one ? NULL : op->segment != NULL ? op->segment : op->name;
}

/* All units, or the outermost alone. */
static ckpt_code list_units(const ckpt_graph *graph, const ckpt_graph_op *op, bool outermost, ckpt_arena *out, units *u,
                            ckpt_err *err)
{
    size_t most = 0;
    for (int o = 0; o < graph->op_count; o++) {
        const char *const path = path_of(&op[o]);
        for (int i = 0; path != NULL && path[i] != '\0'; i++) {
            most += path[i] == '/';
        }
        most++;
    }
    *u = (units){.at = CKPT_NEW(out, unit, most)};
    int count = 0;
    for (int o = 0; o < graph->op_count && u->at != NULL; o++) {
        const char *const path = path_of(&op[o]);
        for (int end = path == NULL ? -1 : op[o].segment == NULL ? (int)strlen(path) : component(path); end >= 0;) {
            const char *const name = ckpt_arena_format(out, "%.*s", end, path);
            if (name == NULL) {
                return CKPT_FAIL(err, CKPT_NO_MEMORY, "name of a unit");
            }
            if (op[o].checkpoint == CKPT_YES || path[end] != '\0') { /* what is kept is no unit itself */
                u->at[count++] = (unit){.name = name, .first = o, .stage = op[o].stage, .other = -1};
            }
            end = path[end] == '\0' || outermost ? -1 : end + 1 + component(path + end + 1);
        }
    }
    if (u->at == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "units of %d ops", graph->op_count);
    }
    qsort(u->at, (size_t)count, sizeof *u->at, compare_names);
    for (int i = 0; i < count; i++) {
        unit *const before = u->count > 0 ? &u->at[u->count - 1] : NULL;
        if (before == NULL || strcmp(before->name, u->at[i].name) != 0) {
            u->at[u->count++] = u->at[i];
            continue;
        }
        before->first = before->first < u->at[i].first ? before->first : u->at[i].first;
        before->other = u->at[i].stage != before->stage ? u->at[i].stage : before->other;
    }
    return CKPT_OK;
}

/* The path of an op, without the units that are split. */
static ckpt_code leave_split(const units *u, ckpt_graph_op *op, ckpt_arena *out, ckpt_err *err)
{
    const char *const path = path_of(op);
    const char *left = "";
    bool yes = false;
    for (int start = 0, end = component(path); left != NULL;) {
        const char *const name = ckpt_arena_format(out, "%.*s", end, path);
        const unit *const found = name != NULL ? find(u, name) : NULL;
        const bool itself = op->checkpoint == CKPT_NO && path[end] == '\0';
        if (itself || (found != NULL && found->other < 0)) {
            left = ckpt_arena_format(out, "%s%s%.*s", left, left[0] != '\0' ? "/" : "", end - start, path + start);
            yes = true;
        }
        if (path[end] == '\0') {
            break;
        }
        start = end + 1;
        end = start + component(path + start);
    }
    op->segment = left != NULL && left[0] != '\0' ? left : NULL;
    op->checkpoint = op->checkpoint == CKPT_YES && !yes ? CKPT_UNSET : op->checkpoint;
    return left != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "name of a unit");
}

ckpt_code ckpt_units_whole(const ckpt_graph *graph, ckpt_graph_op *op, ckpt_arena *out, ckpt_text *notes, ckpt_err *err)
{
    units u;
    CKPT_TRY(list_units(graph, op, false, out, &u, err));
    bool any = false;
    for (int i = 0; i < u.count; i++) {
        if (u.at[i].other >= 0) {
            const char *const slash = strrchr(u.at[i].name, '/');
            char shown[2][24] = {"none", "none"};
            for (int k = 0; k < 2; k++) {
                const int stage = k == 0 ? u.at[i].stage : u.at[i].other;
                if (stage > 0) {
                    snprintf(shown[k], sizeof shown[k], "%d", stage - 1);
                }
            }
            ckpt_text_add(notes,
                          "warning: %.200s is split over pipeline partitions (%s and %s): it is not checkpointed\n",
                          slash != NULL ? slash + 1 : u.at[i].name, shown[0], shown[1]);
            any = true;
        }
    }
    for (int o = 0; o < graph->op_count && any; o++) {
        if (path_of(&op[o]) != NULL && op[o].segment != NULL) {
            CKPT_TRY(leave_split(&u, &op[o], out, err));
        }
    }
    return CKPT_OK;
}

/* ---- groups ---- */

/* The group of unit i of n, as if there were no partitions; -1: it is kept. */
static int group_of(const char *grouping, int i, int n)
{
    const int each = number_behind(grouping, "group_");
    const int segments = number_behind(grouping, "segments:");
    if (segments > 0) {
        const int k = i / (n / segments);
        return k < segments - 1 ? k : -1;
    }
    return each > 0 ? i / each : 0;
}

/* Groups are counted from 0 again after the end of a partition. `u` is in the order of the sequence. */
static ckpt_code name_groups(units *u, const char *grouping, ckpt_arena *out, ckpt_err *err)
{
    const bool whole = number_behind(grouping, "segments:") > 0; /* which counts over all */
    int start = 0;
    for (int i = 0, from = 0; i < u->count; i = from) {
        start = i > 0 && u->at[i].stage != u->at[i - 1].stage && !whole ? i : start;
        const int group = group_of(grouping, i - start, u->count);
        while (from < u->count && u->at[from].stage == u->at[i].stage &&
               group_of(grouping, from - start, u->count) == group) {
            from++;
        }
        const char *const name =
            from == i + 1 ? u->at[i].name : ckpt_arena_format(out, "%s..%s", u->at[i].name, u->at[from - 1].name);
        if (name == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "name of a group");
        }
        for (int k = i; k < from; k++) {
            u->at[k].segment = group >= 0 ? name : NULL;
        }
    }
    return CKPT_OK;
}

/* The outermost unit around an op becomes that of its group. */
static ckpt_code regroup(const units *u, ckpt_graph_op *op, ckpt_arena *out, ckpt_err *err)
{
    const char *const path = path_of(op);
    const int length = op->segment != NULL ? component(path) : (int)strlen(path);
    const char *const name = ckpt_arena_format(out, "%.*s", length, path);
    const unit *const found = name != NULL ? find(u, name) : NULL;
    if (found == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "name of a unit");
    }
    const char *const rest = path + length;
    if (found->segment != NULL) {
        op->segment = ckpt_arena_format(out, "%s%s", found->segment, rest);
        return op->segment != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "name of a group");
    }
    op->segment = rest[0] == '/' ? rest + 1 : NULL;
    op->checkpoint = op->segment == NULL ? CKPT_UNSET : op->checkpoint;
    return CKPT_OK;
}

ckpt_code ckpt_units_group(const ckpt_graph *graph, ckpt_graph_op *op, const char *grouping, ckpt_arena *out,
                           ckpt_err *err)
{
    units u;
    if (strcmp(grouping, "each") == 0) {
        return CKPT_OK;
    }
    CKPT_TRY(list_units(graph, op, true, out, &u, err));
    const int segments = number_behind(grouping, "segments:");
    if (segments > u.count) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found strategy %s, but the sequence has %d units", grouping, u.count);
    }
    qsort(u.at, (size_t)u.count, sizeof *u.at, compare_first);
    CKPT_TRY(name_groups(&u, grouping, out, err));
    qsort(u.at, (size_t)u.count, sizeof *u.at, compare_names);
    for (int o = 0; o < graph->op_count; o++) {
        CKPT_TRY(path_of(&op[o]) != NULL ? regroup(&u, &op[o], out, err) : CKPT_OK);
    }
    return CKPT_OK;
}

/* Rules of the command line on the ops of a graph. */
#include "planner/directives/choose.h"

#include <string.h>

#include "planner/directives/units.h"
#include "planner/schedule/batches.h"

enum { NAMES_MAX = 64, WORD_MAX = 64 }; /* names of an op that something is set for */

/* A setting for a name of an op: its layer's name or the beginning of it. */
typedef struct setting {
    const char *name;
    int length;
    bool keep;
} setting;

typedef struct settings {
    setting at[NAMES_MAX]; /* by rising length */
    int count;
    bool full; /* there was one more */
} settings;

static void set(settings *s, setting added)
{
    int k = s->count;
    while (k > 0 && s->at[k - 1].length > added.length) {
        k--;
    }
    if (k > 0 && s->at[k - 1].length == added.length) {
        s->at[k - 1] = added;
    } else if (s->count < NAMES_MAX) {
        memmove(&s->at[k + 1], &s->at[k], (size_t)(s->count - k) * sizeof s->at[0]);
        s->at[k] = added;
        s->count++;
    } else {
        s->full = true;
    }
}

/* What the model says: units around the op, and whether the last of them is kept. */
static void set_by_model(settings *s, const ckpt_graph_op *op)
{
    const char *const path = op->segment != NULL ? op->segment : op->name;
    for (const char *at = path; op->checkpoint != CKPT_UNSET && at != NULL;) {
        const char *const slash = op->segment != NULL ? strchr(at, '/') : NULL;
        const int length = (int)(slash != NULL ? (size_t)(slash - at) : strlen(at));
        set(s, (setting){at, length, slash == NULL && op->checkpoint == CKPT_NO});
        at = slash != NULL ? slash + 1 : NULL;
    }
}

/* Every name of the op that the pattern matches. Gives whether there is one. */
static bool set_by_rule(settings *s, const ckpt_rule *rule, const char *layer)
{
    bool any = false;
    for (int i = 1; layer[0] != '\0'; i++) {
        if ((layer[i] == '\0' || layer[i] == '.') && ckpt_pattern_matches(rule->text, layer, i)) {
            any = true;
            if (s != NULL) {
                set(s, (setting){layer, i, rule->kind == CKPT_RULE_KEEP});
            }
        }
        if (layer[i] == '\0') {
            break;
        }
    }
    return any;
}

/* A kept op keeps the name of the unit around it, for its result is read inside that unit. */
static ckpt_code write_settings(const settings *s, ckpt_graph_op *op, ckpt_arena *out, ckpt_err *err)
{
    const char *path = NULL;
    op->checkpoint = CKPT_UNSET;
    for (int k = 0; k < s->count; k++) {
        char *const name = ckpt_arena_format(out, "%.*s", s->at[k].length, s->at[k].name);
        for (int i = 0; name != NULL && name[i] != '\0'; i++) {
            name[i] = name[i] == '/' ? '.' : name[i]; /* a slash is for units in units */
        }
        const bool inside = op->checkpoint == CKPT_YES;
        path = name == NULL || !inside ? name : ckpt_arena_format(out, "%s/%s", path, name);
        if (path == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "units of op %.80s", op->name);
        }
        op->checkpoint = s->at[k].keep ? CKPT_NO : CKPT_YES;
    }
    op->segment = path;
    return CKPT_OK;
}

static ckpt_code no_match(const ckpt_graph *graph, const ckpt_rule *rule, ckpt_arena *out, ckpt_err *err)
{
    static const char *const option[] = {"--checkpoint", "--keep", "--offload"};
    const char *close = NULL;
    CKPT_TRY(ckpt_pattern_close(graph, rule->text, out, &close, err));
    return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s '%.60s' matches no layer or block%s%.120s", option[rule->kind],
                     rule->text, close[0] != '\0' ? "; close names: " : "", close);
}

static ckpt_code apply_names(const ckpt_graph *graph, const ckpt_rule *rule, int count, ckpt_graph_op *op,
                             ckpt_arena *out, ckpt_err *err)
{
    bool *const matched = CKPT_NEW(out, bool, count);
    if (matched == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d rules", count);
    }
    for (int o = 0; o < graph->op_count; o++) {
        if (op[o].phase != CKPT_FORWARD || op[o].layer == NULL) {
            continue;
        }
        settings s = {.count = 0};
        bool any = false;
        set_by_model(&s, &op[o]);
        for (int i = 0; i < count; i++) {
            if (rule[i].kind == CKPT_RULE_POLICY) {
                matched[i] = true;
            } else if (set_by_rule(rule[i].kind != CKPT_RULE_OFFLOAD ? &s : NULL, &rule[i], op[o].layer)) {
                matched[i] = true;
                any = any || rule[i].kind != CKPT_RULE_OFFLOAD;
                op[o].offload = rule[i].kind == CKPT_RULE_OFFLOAD ? CKPT_YES : op[o].offload;
            }
        }
        if (any && s.full) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%.80s: found more than %d units inside each other", op[o].layer,
                             NAMES_MAX);
        }
        if (any) {
            CKPT_TRY(write_settings(&s, &op[o], out, err));
        }
    }
    for (int i = 0; i < count; i++) {
        if (!matched[i] && rule[i].kind != CKPT_RULE_POLICY) {
            return no_match(graph, &rule[i], out, err);
        }
    }
    return CKPT_OK;
}

/* "prefer-recompute" or "prefer_recompute"; false: none of them. */
static bool read_policy(const char *word, ckpt_policy *policy, bool *offload)
{
    static const struct {
        const char *word;
        ckpt_policy policy;
    } table[] = {{"save", CKPT_MUST_SAVE},
                 {"must_save", CKPT_MUST_SAVE},
                 {"prefer_save", CKPT_PREFER_SAVE},
                 {"recompute", CKPT_MUST_RECOMPUTE},
                 {"must_recompute", CKPT_MUST_RECOMPUTE},
                 {"prefer_recompute", CKPT_PREFER_RECOMPUTE},
                 {"offload", CKPT_NO_POLICY}};
    char plain[WORD_MAX + 1];
    size_t n = 0;
    for (; word[n] != '\0' && n < WORD_MAX; n++) {
        plain[n] = word[n];
        if (word[n] == '-') {
            plain[n] = '_';
        }
    }
    plain[n] = '\0';
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(plain, table[i].word) == 0) {
            *policy = table[i].policy;
            *offload = table[i].policy == CKPT_NO_POLICY;
            return true;
        }
    }
    return false;
}

static ckpt_code list_kinds(const ckpt_graph *graph, ckpt_arena *out, const char **kinds, ckpt_err *err)
{
    *kinds = "";
    for (int o = 0; o < graph->op_count && strlen(*kinds) < 120; o++) {
        const char *const kind = graph->op[o].kind;
        bool known = kind == NULL;
        for (int p = 0; p < o && !known; p++) {
            known = graph->op[p].kind != NULL && strcmp(graph->op[p].kind, kind) == 0;
        }
        *kinds = known ? *kinds : ckpt_arena_format(out, "%s%s%.40s", *kinds, (*kinds)[0] != '\0' ? ", " : "", kind);
        if (*kinds == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "kinds of ops");
        }
    }
    return CKPT_OK;
}

static ckpt_code apply_clause(const ckpt_graph *graph, const char *pattern, const char *word, ckpt_graph_op *op,
                              bool *decided, ckpt_arena *out, ckpt_err *err)
{
    ckpt_policy policy = CKPT_NO_POLICY;
    bool offload = false;
    if (!read_policy(word, &policy, &offload)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "--policy: found '%.60s=%.60s', wanted save, recompute, must-save, prefer-save, "
                         "must-recompute, prefer-recompute or offload behind the =",
                         pattern, word);
    }
    int matched = 0;
    int may = 0;
    const char *stuck = "";
    for (int o = 0; o < graph->op_count; o++) {
        if (op[o].phase != CKPT_FORWARD || op[o].kind == NULL ||
            !ckpt_pattern_matches(pattern, op[o].kind, (int)strlen(op[o].kind))) {
            continue;
        }
        matched++;
        may += op[o].recompute;
        stuck = op[o].recompute ? stuck : op[o].name;
        if (!decided[o]) {
            decided[o] = true;
            op[o].policy = policy;
            op[o].offload = offload ? CKPT_YES : op[o].offload;
        }
    }
    if (matched == 0) {
        const char *kinds = NULL;
        CKPT_TRY(list_kinds(graph, out, &kinds, err));
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "--policy '%.60s=%.30s' matches no op; %s%.140s", pattern, word,
                         kinds[0] != '\0' ? "there are " : "this graph does not say what its ops are", kinds);
    }
    return may == 0 && policy == CKPT_MUST_RECOMPUTE
               ? CKPT_FAIL(err, CKPT_BAD_INPUT, "--policy '%.60s=%.30s' cannot be: %.80s may not be recomputed",
                           pattern, word, stuck)
               : CKPT_OK;
}

static ckpt_code apply_policy(const ckpt_graph *graph, const char *policy, ckpt_graph_op *op, bool *decided,
                              ckpt_arena *out, ckpt_err *err)
{
    char *const text = ckpt_arena_format(out, "%s", policy);
    if (text == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "policy");
    }
    for (char *clause = text; clause != NULL;) {
        char *const comma = strchr(clause, ',');
        if (comma != NULL) {
            *comma = '\0';
        }
        char *const equals = strchr(clause, '=');
        if (equals == NULL || equals == clause) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "--policy: found '%.80s', wanted OP=WHAT such as linear=save",
                             clause);
        }
        *equals = '\0';
        CKPT_TRY(apply_clause(graph, clause, equals + 1, op, decided, out, err));
        clause = comma != NULL ? comma + 1 : NULL;
    }
    return CKPT_OK;
}

/* No directive, and no op has a flag: the graph is what is chosen, and needs no copy. */
static bool asks_nothing(const ckpt_graph *graph)
{
    bool nothing = true;
    for (int o = 0; o < graph->op_count && nothing; o++) {
        const ckpt_graph_op *const op = &graph->op[o];
        nothing = op->checkpoint == CKPT_UNSET && op->segment == NULL && op->offload == CKPT_UNSET;
    }
    return nothing;
}

/* On a graph without micro-batches. */
static ckpt_code choose_plain(const ckpt_graph *graph, const ckpt_rule *rule, int count, bool ignore,
                              const char *grouping, ckpt_arena *out, const ckpt_graph **chosen, ckpt_text *notes,
                              ckpt_err *err)
{
    if (count == 0 && grouping == NULL && asks_nothing(graph)) {
        *chosen = graph;
        return CKPT_OK;
    }
    ckpt_graph *const made = CKPT_NEW(out, ckpt_graph, 1);
    ckpt_graph_op *const op = ckpt_graph_copy_ops(graph, out);
    bool *const decided = CKPT_NEW(out, bool, graph->op_count);
    if (made == NULL || op == NULL || decided == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "choices for %d ops", graph->op_count);
    }
    for (int o = 0; o < graph->op_count; o++) {
        op[o].checkpoint = ignore ? CKPT_UNSET : op[o].checkpoint;
        op[o].segment = ignore ? NULL : op[o].segment;
        /* Not a flag of the user: an op without a layer writes what another rank waits for. */
        const bool flag = op[o].kind != NULL || op[o].offload == CKPT_YES;
        op[o].offload = ignore && flag ? CKPT_UNSET : op[o].offload;
    }
    *made = *graph;
    made->op = op;
    CKPT_TRY(apply_names(made, rule, count, op, out, err));
    for (int i = 0; i < count; i++) {
        CKPT_TRY(rule[i].kind == CKPT_RULE_POLICY ? apply_policy(made, rule[i].text, op, decided, out, err) : CKPT_OK);
    }
    if (grouping != NULL) {
        CKPT_TRY(ckpt_units_flag(made, op, out, err));
    }
    CKPT_TRY(ckpt_units_whole(made, op, out, notes, err));
    if (grouping != NULL) {
        CKPT_TRY(ckpt_units_group(made, op, grouping, out, err));
    }
    *chosen = made;
    return CKPT_OK;
}

ckpt_code ckpt_choose_spread(const ckpt_graph *whole, const ckpt_graph *graph, const ckpt_rule *rule, int count,
                             bool ignore, const char *grouping, ckpt_arena *out, const ckpt_graph **set,
                             const ckpt_graph **chosen, ckpt_text *notes, ckpt_err *err)
{
    CKPT_TRY(choose_plain(whole, rule, count, ignore, grouping, out, set, notes, err));
    return ckpt_batch_spread(graph, *set, out, chosen, err);
}

ckpt_code ckpt_choose(const ckpt_graph *graph, const ckpt_rule *rule, int count, bool ignore, const char *grouping,
                      ckpt_arena *out, const ckpt_graph **chosen, ckpt_text *notes, ckpt_err *err)
{
    const ckpt_graph *first = NULL;
    if (ckpt_batch_count(graph) == 0) {
        return choose_plain(graph, rule, count, ignore, grouping, out, chosen, notes, err);
    }
    CKPT_TRY(ckpt_batch_first(graph, out, &first, err));
    return ckpt_choose_spread(first, graph, rule, count, ignore, grouping, out, &first, chosen, notes, err);
}

bool ckpt_chosen_any(const ckpt_graph *graph)
{
    bool any = false;
    for (int o = 0; o < graph->op_count && !any; o++) {
        const ckpt_graph_op *const op = &graph->op[o];
        any = op->checkpoint != CKPT_UNSET || op->policy != CKPT_NO_POLICY || op->offload == CKPT_YES;
    }
    return any;
}

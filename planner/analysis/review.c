/* What --check says: one line when all is well, else a line for each thing that is not, and the command
 * that mends it. */
#include "planner/analysis/review.h"

#include <inttypes.h>
#include <string.h>

#include "planner/analysis/analysis.h"

enum { NAMES_SHOWN = 4 };

bool ckpt_review_is_good(const ckpt_review *r)
{
    return r->fits && (r->changes.same || (r->unrepeatable != NULL && !r->changes.other_graph));
}

/* The first `most` bytes of a text from a file, without control characters, for the terminal. */
static void add_clean(ckpt_text *text, const char *string, size_t most)
{
    for (size_t i = 0; string[i] != '\0' && i < most; i++) {
        const unsigned char byte = (unsigned char)string[i];
        ckpt_text_put(text, byte < 0x20 || byte == 0x7F ? "?" : &string[i], 1);
    }
}

static void add_name(ckpt_text *text, const char *name)
{
    add_clean(text, name, 80);
}

/* "3 buffers came (a, b, c)": changes of one kind of one thing. */
static void add_changes(const ckpt_graph_change *change, int count, ckpt_text *text)
{
    static const char *const words[] = {"came", "went", "of another size"};
    char a[CKPT_UNITS_TEXT];
    char b[CKPT_UNITS_TEXT];
    ckpt_text_add(text, "%d %s%s %s (", count, change->what, count > 1 ? "s" : "", words[change->kind]);
    for (int i = 0; i < count && i < NAMES_SHOWN; i++) {
        ckpt_text_add(text, "%s", i > 0 ? ", " : "");
        add_name(text, change[i].name);
        if (change->kind == CKPT_RESIZED) {
            ckpt_text_add(text, " %s -> %s", ckpt_bytes_show(change[i].was, a), ckpt_bytes_show(change[i].now, b));
        }
    }
    if (count > NAMES_SHOWN) {
        ckpt_text_add(text, ", %d more", count - NAMES_SHOWN);
    }
    ckpt_text_add(text, ")");
}

/* How many entries from here on have the same kind and name the same thing. */
static int group_of(const ckpt_plan_changes *changes, int from)
{
    const ckpt_graph_change *const first = &changes->graph[from];
    int count = 1;
    while (from + count < changes->graph_count && first[count].kind == first->kind &&
           strcmp(first[count].what, first->what) == 0) {
        count++;
    }
    return count;
}

static void add_graph(const ckpt_review *r, ckpt_text *text)
{
    const ckpt_plan_changes *const changes = &r->changes;
    ckpt_text_add(text, "graph      changed: ");
    if (changes->graph_count == 0) {
        ckpt_text_add(text, r->was->outline.op_count > 0 ? "the same ops and buffers, put together otherwise"
                                                         : "the plan does not say what it was");
    }
    for (int i = 0; i < changes->graph_count; i += group_of(changes, i)) {
        ckpt_text_add(text, "%s", i > 0 ? "; " : "");
        add_changes(&changes->graph[i], group_of(changes, i), text);
    }
    ckpt_text_add(text, "\n");
}

static void add_planner(const ckpt_review *r, ckpt_text *text)
{
    const ckpt_plan *const was = r->was;
    const ckpt_plan *const now = r->now;
    char a[CKPT_UNITS_TEXT];
    char b[CKPT_UNITS_TEXT];
    if (now->verdict != CKPT_FITS) {
        ckpt_text_add(text, "planner    finds no plan within %s; one was found within %s\n",
                      ckpt_bytes_show(now->budget_bytes, a), ckpt_bytes_show(now->min_budget_bytes, b));
        return;
    }
    if (was->verdict != CKPT_FITS) {
        ckpt_text_add(text, "planner    finds a plan: peak %s, step %s\n", ckpt_bytes_show(now->peak_bytes, a),
                      ckpt_ns_show(now->time_ns, b));
        return;
    }
    const bool alike = was->peak_bytes == now->peak_bytes && was->time_ns == now->time_ns;
    ckpt_text_add(text, "planner    %s: peak %s",
                  !alike                  ? "another plan"
                  : r->changes.same_steps ? "the same steps and allocations, of which the file says something else"
                                          : "another plan with the same peak and time",
                  ckpt_bytes_show(was->peak_bytes, a));
    if (was->peak_bytes != now->peak_bytes) {
        ckpt_text_add(text, " -> %s (%+" PRId64 " bytes)", ckpt_bytes_show(now->peak_bytes, b),
                      now->peak_bytes - was->peak_bytes);
    }
    ckpt_text_add(text, ", step %s", ckpt_ns_show(was->time_ns, a));
    if (was->time_ns != now->time_ns) {
        ckpt_text_add(text, " -> %s (%+.2f %%)", ckpt_ns_show(now->time_ns, b),
                      100 * ckpt_excess(now->time_ns, was->time_ns));
    }
    ckpt_text_add(text, "\n");
}

/* What the workspaces are for. */
static void add_target(const ckpt_plan *plan, ckpt_text *text)
{
    if (plan->gpu) {
        ckpt_text_add(text, "a GPU");
    } else if (plan->threads > 0) {
        ckpt_text_add(text, "%d thread%s", plan->threads, plan->threads > 1 ? "s" : "");
    } else {
        ckpt_text_add(text, "not said");
    }
}

static void add_targets(const ckpt_review *r, ckpt_text *text)
{
    if (r->was->gpu != r->now->gpu || r->was->threads != r->now->threads) {
        ckpt_text_add(text, "target     ");
        add_target(r->was, text);
        ckpt_text_add(text, " -> ");
        add_target(r->now, text);
        ckpt_text_add(text, "\n");
    }
}

static void add_layers(const ckpt_review *r, ckpt_text *text)
{
    const ckpt_plan_changes *const changes = &r->changes;
    ckpt_text_add(text, "layers     %d of %d decided otherwise: ", changes->layer_count, r->was->layer_count);
    for (int i = 0; i < changes->layer_count && i < NAMES_SHOWN; i++) {
        const ckpt_layer_change *const layer = &changes->layer[i];
        ckpt_text_add(text, "%s", i > 0 ? ", " : "");
        add_name(text, layer->layer);
        ckpt_text_add(text, " %s -> %s", ckpt_decision_name(layer->was), ckpt_decision_name(layer->now));
    }
    if (changes->layer_count > NAMES_SHOWN) {
        ckpt_text_add(text, ", %d more", changes->layer_count - NAMES_SHOWN);
    }
    ckpt_text_add(text, "\n");
}

/* A word for a shell: as it is, or in single quotes. */
static void add_word(const char *word, ckpt_text *text)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789%+,-./:=@_";
    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
        ckpt_text_add(text, " %s", word);
        return;
    }
    ckpt_text_add(text, " '");
    for (; *word != '\0'; word++) {
        if (*word == '\'') {
            ckpt_text_add(text, "'\\''");
        } else {
            add_clean(text, word, 1);
        }
    }
    ckpt_text_add(text, "'");
}

static void add_good(const ckpt_review *r, ckpt_text *text)
{
    const ckpt_plan *const was = r->was;
    char a[CKPT_UNITS_TEXT];
    char b[CKPT_UNITS_TEXT];
    ckpt_text_add(text, "%s: %s", was->source, r->unrepeatable == NULL ? "as planned: " : "fits: ");
    add_name(text, was->graph_name);
    ckpt_text_add(text, ", peak %s of %s", ckpt_bytes_show(was->peak_bytes, a),
                  ckpt_bytes_show(r->now->budget_bytes, b));
    ckpt_text_add(text, ", step %s: %+.2f %% over keep-all", ckpt_ns_show(was->time_ns, a),
                  100 * ckpt_excess(was->time_ns, was->keep_all_time_ns));
    if (r->unrepeatable != NULL) {
        ckpt_text_add(text, "; made with %s, so whether it would be planned again cannot be told", r->unrepeatable);
    }
    ckpt_text_add(text, "\n");
}

void ckpt_review_text(const ckpt_review *r, ckpt_text *text)
{
    const ckpt_plan_changes *const changes = &r->changes;
    char a[CKPT_UNITS_TEXT];
    char b[CKPT_UNITS_TEXT];
    if (ckpt_review_is_good(r)) {
        add_good(r, text);
        return;
    }
    ckpt_text_add(text, "%s: %s\n", r->was->source,
                  changes->other_graph ? "of another graph than now"
                  : !r->fits           ? "does not fit"
                                       : "not what the planner gives");
    if (changes->other_graph || changes->graph_count > 0) {
        add_graph(r, text);
    }
    if (changes->retimed > 0) {
        ckpt_text_add(text, "times      of %d op%s changed\n", changes->retimed, changes->retimed > 1 ? "s" : "");
    }
    add_targets(r, text);
    if (r->was->budget_bytes != r->now->budget_bytes) {
        ckpt_text_add(text, "budget     %s -> %s\n", ckpt_bytes_show(r->was->budget_bytes, a),
                      ckpt_bytes_show(r->now->budget_bytes, b));
    }
    if (!r->fits && !changes->other_graph) {
        ckpt_text_add(text, "fits       no: ");
        add_clean(text, r->why, 400);
        ckpt_text_add(text, "\n");
    }
    if (!changes->same && r->unrepeatable == NULL) {
        add_planner(r, text);
    }
    if (changes->layer_count > 0) {
        add_layers(r, text);
    }
    if (r->command_count > 0) {
        ckpt_text_add(text, "write it  ");
        for (int i = 0; i < r->command_count; i++) {
            add_word(r->command[i], text);
        }
        ckpt_text_add(text, "\n");
    } else if (r->unrepeatable != NULL) {
        ckpt_text_add(text, "made with  %s, so what would be planned now is not known\n", r->unrepeatable);
    }
}

/* ---- JSON ---- */

static void put_known(ckpt_json_writer *w, const char *key, bool known, bool value)
{
    ckpt_json_join(w);
    if (known) {
        ckpt_json_put_bool(w, key, value);
    } else {
        ckpt_json_put_null(w, key);
    }
}

static void put_joined(ckpt_json_writer *w, const char *key, const char *value)
{
    ckpt_json_join(w);
    ckpt_json_put_text(w, key, value);
}

static void put_figures(ckpt_json_writer *w, const char *key, const ckpt_plan *plan)
{
    ckpt_json_begin_object(w, key, CKPT_JSON_LINE);
    ckpt_json_put_text(w, "verdict", plan->verdict == CKPT_FITS ? "fits" : "infeasible");
    CKPT_JSON_INTS(w, {"budget_bytes", plan->budget_bytes}, {"peak_bytes", plan->peak_bytes},
                   {"arena_bytes", plan->arena_bytes}, {"time_ns", plan->time_ns},
                   {"least_budget_bytes", plan->min_budget_bytes});
    ckpt_json_put_text(w, "target", plan->gpu ? "gpu" : plan->threads > 0 ? "cpu" : NULL);
    ckpt_json_put_int(w, "threads", plan->threads > 0 ? plan->threads : 0);
    ckpt_json_end(w);
}

static void put_changes(ckpt_json_writer *w, const ckpt_plan_changes *changes)
{
    static const char *const kinds[] = {"came", "went", "resized"};
    ckpt_json_begin_array(w, "graph_changes", CKPT_JSON_LINE);
    for (int i = 0; i < changes->graph_count; i++) {
        const ckpt_graph_change *const change = &changes->graph[i];
        ckpt_json_break(w, 4);
        ckpt_json_begin_object(w, NULL, CKPT_JSON_LINE);
        ckpt_json_put_text(w, "change", kinds[change->kind]);
        ckpt_json_put_text(w, "what", change->what);
        ckpt_json_put_text(w, "name", change->name);
        CKPT_JSON_INTS(w, {"was_bytes", change->was}, {"now_bytes", change->now});
        ckpt_json_end(w);
    }
    ckpt_json_end(w);
    ckpt_json_put_int(w, "retimed_ops", changes->retimed);
    ckpt_json_begin_array(w, "layers", CKPT_JSON_LINE);
    for (int i = 0; i < changes->layer_count; i++) {
        const ckpt_layer_change *const layer = &changes->layer[i];
        ckpt_json_break(w, 4);
        ckpt_json_begin_object(w, NULL, CKPT_JSON_LINE);
        ckpt_json_put_text(w, "layer", layer->layer);
        ckpt_json_put_text(w, "was", ckpt_decision_name(layer->was));
        ckpt_json_put_text(w, "now", ckpt_decision_name(layer->now));
        ckpt_json_end(w);
    }
    ckpt_json_end(w);
}

void ckpt_review_json(const ckpt_review *r, ckpt_text *text)
{
    const ckpt_plan_changes *const changes = &r->changes;
    const bool repeatable = r->unrepeatable == NULL;
    ckpt_json_writer w;
    ckpt_json_begin(&w, text);
    ckpt_json_begin_object(&w, NULL, CKPT_JSON_LINES);
    ckpt_json_put_text(&w, "plan", r->was->source);
    put_joined(&w, "graph", r->was->graph_name);
    put_known(&w, "good", true, ckpt_review_is_good(r));
    put_known(&w, "same", repeatable, changes->same);
    put_known(&w, "same_graph", true, !changes->other_graph);
    put_known(&w, "fits", !changes->other_graph, r->fits);
    if (repeatable) {
        put_known(&w, "same_steps", true, changes->same_steps);
    }
    if (!r->fits && !changes->other_graph) {
        put_joined(&w, "why", r->why);
    }
    if (!repeatable) {
        put_joined(&w, "unrepeatable", r->unrepeatable);
    }
    put_figures(&w, "was", r->was);
    if (repeatable) {
        put_figures(&w, "now", r->now);
    }
    put_changes(&w, changes);
    ckpt_json_put_texts(&w, "command", r->command, r->command_count);
    ckpt_json_end(&w);
}

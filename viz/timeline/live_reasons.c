/* Why a live range is in memory, in words that only say what the trace shows; of one, or of several at once. */
#include "viz/timeline/live_ranges_impl.h"

#include <limits.h>
#include <string.h>

#include "core/base/text.h"
#include "viz/timeline/variants.h"

static ckpt_why why_without_plan(const ckpt_trace *trace, const ckpt_live_range *range)
{
    const ckpt_event *const end = &trace->event[range->to];
    if (end->span == CKPT_SPAN_FREE && end->address == range->address) {
        return CKPT_WHY_FREED;
    }
    return range->to + 1 < trace->event_count ? CKPT_WHY_LOST : CKPT_WHY_NEVER;
}

ckpt_why ckpt_live_range_why(const ckpt_live_ranges *ranges, int which)
{
    const ckpt_trace *const trace = ranges->trace;
    const ckpt_live_range *const range = &ranges->range[which];
    if (trace->allocation_count == 0) {
        return why_without_plan(trace, range);
    }
    if (range->kind == CKPT_LIVE_WORKSPACE) {
        return CKPT_WHY_SCRATCH;
    }
    if (range->copied >= 0) {
        return CKPT_WHY_COPIED;
    }
    if (range->last < 0) {
        return range->to + 1 == trace->event_count ? CKPT_WHY_OUTPUT : CKPT_WHY_UNKNOWN;
    }
    if (range->last == range->born) {
        return CKPT_WHY_UNREAD;
    }
    const ckpt_span born = trace->event[range->born].span, last = trace->event[range->last].span;
    const bool recomputes = last == CKPT_SPAN_RECOMPUTE;
    if (range->kind == CKPT_LIVE_OFFLOADED) {
        return recomputes ? CKPT_WHY_FETCHED_TO_RECOMPUTE : CKPT_WHY_FETCHED;
    }
    if (born == CKPT_SPAN_RECOMPUTE) {
        return recomputes ? CKPT_WHY_RECOMPUTED_TO_RECOMPUTE : CKPT_WHY_RECOMPUTED;
    }
    if (born == CKPT_SPAN_FORWARD && last != CKPT_SPAN_FORWARD) {
        return recomputes ? CKPT_WHY_KEPT_TO_RECOMPUTE : CKPT_WHY_KEPT;
    }
    return range->kind == CKPT_LIVE_GRADIENT ? CKPT_WHY_PASSED_BACK : CKPT_WHY_IN_USE;
}

/* The clauses. A letter behind % stands for a word of the range: n its name, y its layer ("" or " in h.3"); b and B the
 * step and the name of what put it there, l and L of the last run, c the step of the copy, e the last step; f and t the
 * first and the last event. Of several, T is what they are for, S the steps of those runs, E the steps that end them. */
static const struct {
    const char *one, *alone, *several; /* alone: without who allocated it, which the row says already */
} clauses[] = {
    [CKPT_WHY_SCRATCH] = {"scratch of %n while it runs", NULL, "scratch of what runs"},
    [CKPT_WHY_COPIED] = {"copied to the host from step %c and freed at step %e", NULL,
                         "copied to the host and freed at %E"},
    [CKPT_WHY_OUTPUT] = {"an output: stays to the end", NULL, "outputs: stay to the end"},
    [CKPT_WHY_UNREAD] = {"written by %B (step %b), read by nothing", NULL, "written and read by nothing"},
    [CKPT_WHY_FETCHED] = {"fetched back at step %b for %L (step %l)", NULL, "fetched back for %T%S"},
    [CKPT_WHY_FETCHED_TO_RECOMPUTE] = {"fetched back at step %b to recompute %L (step %l)", NULL,
                                       "fetched back to recompute %T%S"},
    [CKPT_WHY_RECOMPUTED] = {"recomputed at step %b for %L (step %l)", NULL, "recomputed for %T%S"},
    [CKPT_WHY_RECOMPUTED_TO_RECOMPUTE] = {"recomputed at step %b to recompute %L (step %l)", NULL,
                                          "recomputed to recompute %T%S"},
    [CKPT_WHY_KEPT] = {"kept since step %b for %L (step %l)", NULL, "kept for %T%S"},
    [CKPT_WHY_KEPT_TO_RECOMPUTE] = {"kept since step %b to recompute %L (step %l)", NULL, "kept to recompute %T%S"},
    [CKPT_WHY_PASSED_BACK] = {"passed back to %L (step %l)", NULL, "passed back to %T%S"},
    [CKPT_WHY_IN_USE] = {"in use until %L (step %l)", NULL, "in use until %T%S"},
    [CKPT_WHY_UNKNOWN] = {"in memory until step %e", NULL, "in memory until %E"},
    [CKPT_WHY_FREED] = {"allocated by %n%y, freed at event %t", "since event %f, freed at event %t", "freed at %E"},
    [CKPT_WHY_LOST] = {"allocated by %n%y, its free is not recorded", "since event %f, its free is not recorded",
                       "not freed in the recording"},
    [CKPT_WHY_NEVER] = {"allocated by %n%y, never freed", "since event %f, never freed", "never freed"},
};

const char *ckpt_why_clause(ckpt_why why)
{
    return clauses[why].one;
}

static void put_word(const ckpt_live_ranges *ranges, int which, char word, ckpt_text *text)
{
    const ckpt_event *const event = ranges->trace->event;
    const ckpt_live_range *const range = &ranges->range[which];
    switch (word) {
    case 'n':
        if (range->kind == CKPT_LIVE_WORKSPACE && ranges->trace->allocation_count > 0) {
            ckpt_event_put(text, &event[range->born]);
        } else {
            ckpt_text_add(text, "%s", range->name);
        }
        break;
    case 'y': ckpt_text_add(text, "%s%s", range->layer[0] != '\0' ? " in " : "", range->layer); break;
    case 'B': ckpt_event_put(text, &event[range->born]); break;
    case 'L': ckpt_event_put(text, &event[range->last]); break;
    case 'b': ckpt_text_add(text, "%d", event[range->born].step); break;
    case 'l': ckpt_text_add(text, "%d", event[range->last].step); break;
    case 'c': ckpt_text_add(text, "%d", event[range->copied].step); break;
    case 'e': ckpt_text_add(text, "%d", event[range->to].step); break;
    case 'f': ckpt_text_add(text, "%d", range->from); break;
    case 't': ckpt_text_add(text, "%d", range->to); break;
    default: break;
    }
}

/* `clause` with its words; `several` are those of T, S and E. */
static const char *expand(const ckpt_live_ranges *ranges, int which, const char *clause, const char *const several[3],
                          ckpt_arena *out)
{
    static const char kinds[] = "TSE";
    ckpt_text text;
    ckpt_text_init(&text);
    for (const char *c = clause; *c != '\0'; c++) {
        const char *const of_several = *c == '%' ? strchr(kinds, c[1]) : NULL;
        if (*c != '%') {
            ckpt_text_put(&text, c, 1);
        } else if (of_several != NULL) {
            ckpt_text_add(&text, "%s", several[of_several - kinds]);
            c++;
        } else {
            put_word(ranges, which, *++c, &text);
        }
    }
    const char *const words = text.failed ? NULL : ckpt_arena_text(out, text.bytes);
    ckpt_text_fini(&text);
    return words;
}

const char *ckpt_live_range_reason(const ckpt_live_ranges *ranges, int which, ckpt_arena *out)
{
    return expand(ranges, which, clauses[ckpt_live_range_why(ranges, which)].one, NULL, out);
}

/* "h.0…5.att/backward, ", "their own backward, ", "backward, " or, where they have nothing in common, "". NULL without
 * memory. */
static const char *targets(const ckpt_live_ranges *ranges, const int *which, int count, bool deep, ckpt_arena *out)
{
    const char **const name = CKPT_NEW(out, const char *, count);
    bool own = true, backward = true, alike = true;
    const char *first = NULL;
    for (int i = 0; name != NULL && i < count; i++) {
        const ckpt_live_range *const range = &ranges->range[which[i]];
        const ckpt_event *const last = &ranges->trace->event[range->last];
        name[i] = last->name;
        backward = backward && last->span == CKPT_SPAN_BACKWARD;
        own = own && range->layer[0] != '\0' && last->layer != NULL && strcmp(last->layer, range->layer) == 0;
        const char *const pattern = ckpt_name_pattern(last->name, deep, out);
        first = i == 0 ? pattern : first;
        if (pattern == NULL || first == NULL) {
            return NULL;
        }
        alike = alike && strcmp(pattern, first) == 0;
    }
    if (name == NULL) {
        return NULL;
    }
    if (backward && (own || !alike)) {
        const bool gradients = ckpt_live_range_why(ranges, which[0]) == CKPT_WHY_PASSED_BACK;
        return own ? "their own backward, " : gradients ? "" : "backward, ";
    }
    alike = alike && strspn(first, "#./:_-") < strlen(first); /* numbers alone name nothing */
    const char *const folded = alike ? ckpt_name_fold(name, count, deep, out) : "";
    return folded == NULL || !alike ? folded : ckpt_arena_format(out, "%s, ", folded);
}

/* "step 8", or "steps 8 to 11": at which the ranges end, or at which runs what they are in memory for. */
static const char *steps(const ckpt_live_ranges *ranges, const int *which, int count, bool ends, ckpt_arena *out)
{
    const bool plan = ranges->trace->allocation_count > 0;
    int first = INT_MAX, last = 0;
    for (int i = 0; i < count; i++) {
        const ckpt_live_range *const range = &ranges->range[which[i]];
        const int step = ranges->trace->event[ends ? range->to : range->last].step;
        first = step < first ? step : first;
        last = step > last ? step : last;
    }
    return first == last ? ckpt_arena_format(out, "%s %d", plan ? "step" : "event", first)
                         : ckpt_arena_format(out, "%s %d to %d", plan ? "steps" : "events", first, last);
}

const char *ckpt_live_range_group_reason(const ckpt_live_ranges *ranges, const int *which, int count, bool deep,
                                         ckpt_arena *out)
{
    const ckpt_why why = ckpt_live_range_why(ranges, which[0]);
    const char *clause = clauses[why].several;
    if (count == 1 && clauses[why].alone != NULL) {
        return expand(ranges, which[0], clauses[why].alone, NULL, out);
    }
    const bool runs = strchr(clause, '%') != NULL && strstr(clause, "%E") == NULL;
    const char *what = runs ? targets(ranges, which, count, deep, out) : "";
    if (runs && what != NULL && what[0] == '\0') {
        what = strstr(clause, "recompute %T") != NULL ? "others, " : what;
        clause = why == CKPT_WHY_PASSED_BACK ? "passed back until %S" : clause;
    }
    const char *const when = strchr(clause, '%') != NULL ? steps(ranges, which, count, !runs, out) : "";
    return what != NULL && when != NULL ? expand(ranges, which[0], clause, (const char *const[]){what, when, when}, out)
                                        : NULL;
}

/* Why a stay is in memory, in words that only say what the trace shows; of one stay, or of several at once. */
#include "viz/timeline/alive_impl.h"

#include <limits.h>
#include <string.h>

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
    const bool remakes = last == CKPT_SPAN_RECOMPUTE;
    if (range->kind == CKPT_LIVE_OFFLOADED) {
        return remakes ? CKPT_WHY_FETCHED_TO_REMAKE : CKPT_WHY_FETCHED;
    }
    if (born == CKPT_SPAN_RECOMPUTE) {
        return remakes ? CKPT_WHY_REMADE_TO_REMAKE : CKPT_WHY_REMADE;
    }
    if (born == CKPT_SPAN_FORWARD && last != CKPT_SPAN_FORWARD) {
        return remakes ? CKPT_WHY_KEPT_TO_REMAKE : CKPT_WHY_KEPT;
    }
    return range->kind == CKPT_LIVE_GRADIENT ? CKPT_WHY_PASSED_BACK : CKPT_WHY_IN_USE;
}

/* Around what it is in memory for: "fetched back at" step 700 "for" an op; of several "fetched back for" ops. */
typedef struct phrase {
    const char *since, *why, *of_several; /* since NULL: it does not matter */
} phrase;

static phrase phrase_of(ckpt_why why)
{
    switch (why) {
    case CKPT_WHY_FETCHED: return (phrase){"fetched back at", "for", "fetched back for"};
    case CKPT_WHY_FETCHED_TO_REMAKE: return (phrase){"fetched back at", "to recompute", "fetched back to recompute"};
    case CKPT_WHY_REMADE: return (phrase){"recomputed at", "for", "recomputed for"};
    case CKPT_WHY_REMADE_TO_REMAKE: return (phrase){"recomputed at", "to recompute", "recomputed to recompute"};
    case CKPT_WHY_KEPT: return (phrase){"kept since", "for", "kept for"};
    case CKPT_WHY_KEPT_TO_REMAKE: return (phrase){"kept since", "to recompute", "kept to recompute"};
    case CKPT_WHY_PASSED_BACK: return (phrase){NULL, "passed back to", "passed back to"};
    default: return (phrase){NULL, "in use until", "in use until"};
    }
}

/* How a stay without a plan ends. */
static const char *end_of(const ckpt_live_range *range, ckpt_why why, ckpt_arena *out)
{
    switch (why) {
    case CKPT_WHY_FREED: return ckpt_arena_format(out, "freed at event %d", range->to);
    case CKPT_WHY_LOST: return ckpt_arena_text(out, "its free is not recorded");
    default: return ckpt_arena_text(out, "never freed");
    }
}

static const char *allocated(const ckpt_live_range *range, ckpt_why why, ckpt_arena *out)
{
    const char *const end = end_of(range, why, out);
    return end != NULL ? ckpt_arena_format(out, "allocated by %s%s%s, %s", range->name,
                                           range->layer[0] != '\0' ? " in " : "", range->layer, end)
                       : NULL;
}

const char *ckpt_live_range_reason(const ckpt_live_ranges *ranges, int which, ckpt_arena *out)
{
    const ckpt_event *const event = ranges->trace->event;
    const ckpt_live_range *const range = &ranges->range[which];
    const int end = event[range->to].step;
    const ckpt_why why = ckpt_live_range_why(ranges, which);
    switch (why) {
    case CKPT_WHY_SCRATCH: return ckpt_arena_format(out, "scratch of %s while it runs", range->name);
    case CKPT_WHY_COPIED:
        return ckpt_arena_format(out, "copied to the host from step %d and freed at step %d", event[range->copied].step,
                                 end);
    case CKPT_WHY_OUTPUT: return ckpt_arena_text(out, "an output: stays to the end");
    case CKPT_WHY_UNREAD:
        return ckpt_arena_format(out, "written by %s (step %d), read by nothing", event[range->born].name,
                                 event[range->born].step);
    case CKPT_WHY_UNKNOWN: return ckpt_arena_format(out, "in memory until step %d", end);
    case CKPT_WHY_FREED:
    case CKPT_WHY_LOST:
    case CKPT_WHY_NEVER: return allocated(range, why, out);
    default: break;
    }
    const phrase said = phrase_of(why);
    const ckpt_event *const last = &event[range->last];
    return said.since != NULL ? ckpt_arena_format(out, "%s step %d %s %s (step %d)", said.since,
                                                  event[range->born].step, said.why, last->name, last->step)
                              : ckpt_arena_format(out, "%s %s (step %d)", said.why, last->name, last->step);
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

/* "step 8", or "steps 8 to 11": at which the stays end, or what they are in memory for runs. */
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

static const char *since(const ckpt_live_range *range, ckpt_why why, ckpt_arena *out)
{
    const char *const end = end_of(range, why, out);
    return end != NULL ? ckpt_arena_format(out, "since event %d, %s", range->from, end) : NULL;
}

static const char *words_and(const char *words, const char *more, ckpt_arena *out)
{
    return more != NULL ? ckpt_arena_format(out, "%s%s", words, more) : NULL;
}

const char *ckpt_live_range_group_reason(const ckpt_live_ranges *ranges, const int *which, int count, bool deep,
                                         ckpt_arena *out)
{
    const ckpt_why why = ckpt_live_range_why(ranges, which[0]);
    if (count == 1 && ranges->trace->allocation_count == 0) {
        return since(&ranges->range[which[0]], why, out);
    }
    switch (why) {
    case CKPT_WHY_SCRATCH: return ckpt_arena_text(out, "scratch of what runs");
    case CKPT_WHY_COPIED:
        return words_and("copied to the host and freed at ", steps(ranges, which, count, true, out), out);
    case CKPT_WHY_OUTPUT: return ckpt_arena_text(out, "outputs: stay to the end");
    case CKPT_WHY_UNREAD: return ckpt_arena_text(out, "written and read by nothing");
    case CKPT_WHY_UNKNOWN: return words_and("in memory until ", steps(ranges, which, count, true, out), out);
    case CKPT_WHY_FREED: return words_and("freed at ", steps(ranges, which, count, true, out), out);
    case CKPT_WHY_LOST: return ckpt_arena_text(out, "not freed in the recording");
    case CKPT_WHY_NEVER: return ckpt_arena_text(out, "never freed");
    default: break;
    }
    const bool remakes =
        why == CKPT_WHY_KEPT_TO_REMAKE || why == CKPT_WHY_REMADE_TO_REMAKE || why == CKPT_WHY_FETCHED_TO_REMAKE;
    const char *what = targets(ranges, which, count, deep, out);
    const char *said = phrase_of(why).of_several;
    if (what != NULL && what[0] == '\0') {
        what = remakes ? "others, " : what;
        said = why == CKPT_WHY_PASSED_BACK ? "passed back until" : said;
    }
    const char *const when = steps(ranges, which, count, false, out);
    return what != NULL && when != NULL ? ckpt_arena_format(out, "%s %s%s", said, what, when) : NULL;
}

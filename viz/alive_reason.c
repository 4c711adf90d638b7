/* Why a stay is in memory, in words that only say what the trace shows; of one stay, or of several at once. */
#include "viz/alive_impl.h"

#include <stdio.h>
#include <string.h>

static ckpt_why why_without_plan(const ckpt_trace *trace, const ckpt_life *life)
{
    const ckpt_event *const end = &trace->event[life->to];
    if (end->span == CKPT_SPAN_FREE && end->address == life->address) {
        return CKPT_WHY_FREED;
    }
    return life->to + 1 < trace->event_count ? CKPT_WHY_LOST : CKPT_WHY_NEVER;
}

ckpt_why ckpt_life_why(const ckpt_lives *lives, int which)
{
    const ckpt_trace *const trace = lives->trace;
    const ckpt_life *const life = &lives->life[which];
    if (trace->place_count == 0) {
        return why_without_plan(trace, life);
    }
    if (life->kind == CKPT_LIFE_WORKSPACE) {
        return CKPT_WHY_SCRATCH;
    }
    if (life->copied >= 0) {
        return CKPT_WHY_COPIED;
    }
    if (life->last < 0) {
        return life->to + 1 == trace->event_count ? CKPT_WHY_OUTPUT : CKPT_WHY_UNKNOWN;
    }
    if (life->last == life->born) {
        return CKPT_WHY_UNREAD;
    }
    const ckpt_span born = trace->event[life->born].span, last = trace->event[life->last].span;
    const bool remakes = last == CKPT_SPAN_RECOMPUTE;
    if (life->kind == CKPT_LIFE_OFFLOADED) {
        return remakes ? CKPT_WHY_FETCHED_TO_REMAKE : CKPT_WHY_FETCHED;
    }
    if (born == CKPT_SPAN_RECOMPUTE) {
        return remakes ? CKPT_WHY_REMADE_TO_REMAKE : CKPT_WHY_REMADE;
    }
    if (born == CKPT_SPAN_FORWARD && last != CKPT_SPAN_FORWARD) {
        return remakes ? CKPT_WHY_KEPT_TO_REMAKE : CKPT_WHY_KEPT;
    }
    return life->kind == CKPT_LIFE_GRADIENT ? CKPT_WHY_PASSED_BACK : CKPT_WHY_IN_USE;
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

static const char *allocated(const ckpt_life *life, const char *end, ckpt_arena *out)
{
    return ckpt_arena_format(out, "allocated by %s%s%s, %s", life->name, life->layer[0] != '\0' ? " in " : "",
                             life->layer, end);
}

const char *ckpt_life_reason(const ckpt_lives *lives, int which, ckpt_arena *out)
{
    const ckpt_event *const event = lives->trace->event;
    const ckpt_life *const life = &lives->life[which];
    const int end = event[life->to].step;
    const ckpt_why why = ckpt_life_why(lives, which);
    switch (why) {
    case CKPT_WHY_SCRATCH: return ckpt_arena_format(out, "scratch of %s while it runs", life->name);
    case CKPT_WHY_COPIED:
        return ckpt_arena_format(out, "copied to the host from step %d and freed at step %d", event[life->copied].step,
                                 end);
    case CKPT_WHY_OUTPUT: return ckpt_arena_text(out, "an output: stays to the end");
    case CKPT_WHY_UNREAD:
        return ckpt_arena_format(out, "written by %s (step %d), read by nothing", event[life->born].name,
                                 event[life->born].step);
    case CKPT_WHY_UNKNOWN: return ckpt_arena_format(out, "in memory until step %d", end);
    case CKPT_WHY_FREED: {
        char text[40];
        snprintf(text, sizeof text, "freed at event %d", life->to);
        return allocated(life, text, out);
    }
    case CKPT_WHY_LOST: return allocated(life, "its free is not recorded", out);
    case CKPT_WHY_NEVER: return allocated(life, "never freed", out);
    default: break;
    }
    const phrase said = phrase_of(why);
    const ckpt_event *const last = &event[life->last];
    return said.since != NULL ? ckpt_arena_format(out, "%s step %d %s %s (step %d)", said.since, event[life->born].step,
                                                  said.why, last->name, last->step)
                              : ckpt_arena_format(out, "%s %s (step %d)", said.why, last->name, last->step);
}

/* "h.0…5.att/backward, ", "their own backward, ", "backward, " or, where they have nothing in common, "". NULL without
 * memory. */
static const char *targets(const ckpt_lives *lives, const int *which, int count, bool deep, ckpt_arena *out)
{
    const char **const name = CKPT_NEW(out, const char *, count);
    bool own = true, backward = true, alike = true;
    const char *first = NULL;
    for (int i = 0; name != NULL && i < count; i++) {
        const ckpt_life *const life = &lives->life[which[i]];
        const ckpt_event *const last = &lives->trace->event[life->last];
        name[i] = last->name;
        backward = backward && last->span == CKPT_SPAN_BACKWARD;
        own = own && last->layer != NULL && strcmp(last->layer, life->layer) == 0;
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
        const bool gradients = ckpt_life_why(lives, which[0]) == CKPT_WHY_PASSED_BACK;
        return own ? "their own backward, " : gradients ? "" : "backward, ";
    }
    const char *const folded = alike ? ckpt_name_fold(name, count, deep, out) : "";
    return folded == NULL || !alike ? folded : ckpt_arena_format(out, "%s, ", folded);
}

static const char *steps(int from, int to, ckpt_arena *out)
{
    return from == to ? ckpt_arena_format(out, "step %d", from) : ckpt_arena_format(out, "steps %d to %d", from, to);
}

const char *ckpt_life_group_reason(const ckpt_lives *lives, const int *which, int count, bool deep, ckpt_arena *out)
{
    const ckpt_event *const event = lives->trace->event;
    const ckpt_why why = ckpt_life_why(lives, which[0]);
    int first_end = event[lives->life[which[0]].to].step, last_end = first_end, first_use = 0, last_use = 0;
    for (int i = 0; i < count; i++) {
        const ckpt_life *const life = &lives->life[which[i]];
        const int end = event[life->to].step, use = life->last >= 0 ? event[life->last].step : 0;
        first_end = end < first_end ? end : first_end;
        last_end = end > last_end ? end : last_end;
        first_use = i == 0 || use < first_use ? use : first_use;
        last_use = i == 0 || use > last_use ? use : last_use;
    }
    const char *const ends = steps(first_end, last_end, out), *const uses = steps(first_use, last_use, out);
    if (ends == NULL || uses == NULL) {
        return NULL;
    }
    switch (why) {
    case CKPT_WHY_SCRATCH: return ckpt_arena_text(out, "scratch of what runs");
    case CKPT_WHY_COPIED: return ckpt_arena_format(out, "copied to the host and freed at %s", ends);
    case CKPT_WHY_OUTPUT: return ckpt_arena_text(out, "outputs: stay to the end");
    case CKPT_WHY_UNREAD: return ckpt_arena_text(out, "written and read by nothing");
    case CKPT_WHY_UNKNOWN: return ckpt_arena_format(out, "in memory until %s", ends);
    case CKPT_WHY_FREED:
        return first_end == last_end ? ckpt_arena_format(out, "freed at event %d", first_end)
                                     : ckpt_arena_format(out, "freed at events %d to %d", first_end, last_end);
    case CKPT_WHY_LOST: return ckpt_arena_text(out, "not freed in the recording");
    case CKPT_WHY_NEVER: return ckpt_arena_text(out, "never freed");
    default: break;
    }
    const char *const what = targets(lives, which, count, deep, out);
    return what != NULL ? ckpt_arena_format(out, "%s %s%s", phrase_of(why).of_several, what, uses) : NULL;
}

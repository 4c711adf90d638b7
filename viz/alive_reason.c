/* Why a stay is in memory, in words that only say what the trace shows. */
#include <string.h>

#include "viz/alive.h"

static const char *without_plan(const ckpt_trace *trace, const ckpt_life *life, ckpt_arena *out)
{
    const ckpt_event *const end = &trace->event[life->to];
    const bool freed = end->span == CKPT_SPAN_FREE && end->address == life->address;
    const bool again = !freed && life->to + 1 < trace->event_count; /* the next block at the address comes next */
    const char *const in = life->layer[0] != '\0' ? " in " : "";
    if (freed) {
        return ckpt_arena_format(out, "allocated by %s%s%s, freed at event %d", life->name, in, life->layer, life->to);
    }
    return ckpt_arena_format(out, "allocated by %s%s%s, %s", life->name, in, life->layer,
                             again ? "its free is not recorded" : "never freed");
}

/* "for h.3.att/backward (step 812)", by what the last run was. */
static const char *purpose(const ckpt_trace *trace, const ckpt_life *life, ckpt_arena *out)
{
    const ckpt_event *const last = &trace->event[life->last];
    return ckpt_arena_format(out, "%s %s (step %d)", last->span == CKPT_SPAN_RECOMPUTE ? "to recompute" : "for",
                             last->name, last->step);
}

static const char *ended(const ckpt_trace *trace, const ckpt_life *life, ckpt_arena *out)
{
    const ckpt_event *const born = &trace->event[life->born], *const last = &trace->event[life->last];
    if (last == born) {
        return ckpt_arena_format(out, "written by %s (step %d), read by nothing", born->name, born->step);
    }
    const bool fetched = life->kind == CKPT_LIFE_OFFLOADED && born->span == CKPT_SPAN_COPY;
    const bool waits = born->span == CKPT_SPAN_FORWARD && last->span != CKPT_SPAN_FORWARD;
    if (!fetched && born->span != CKPT_SPAN_RECOMPUTE && !waits) {
        return ckpt_arena_format(out, "%s %s (step %d)",
                                 life->kind == CKPT_LIFE_GRADIENT ? "passed back to" : "in use until", last->name,
                                 last->step);
    }
    const char *const why = purpose(trace, life, out);
    const char *const how = fetched ? "fetched back at" : waits ? "kept since" : "recomputed at";
    return why != NULL ? ckpt_arena_format(out, "%s step %d %s", how, born->step, why) : NULL;
}

const char *ckpt_life_reason(const ckpt_lives *lives, int which, ckpt_arena *out)
{
    const ckpt_trace *const trace = lives->trace;
    const ckpt_life *const life = &lives->life[which];
    if (trace->place_count == 0) {
        return without_plan(trace, life, out);
    }
    const ckpt_event *const end = &trace->event[life->to];
    if (life->kind == CKPT_LIFE_WORKSPACE) {
        return ckpt_arena_format(out, "scratch of %s while it runs", life->name);
    }
    if (life->copied >= 0) {
        return ckpt_arena_format(out, "copied to the host from step %d and freed at step %d",
                                 trace->event[life->copied].step, end->step);
    }
    if (life->last >= 0) {
        return ended(trace, life, out);
    }
    return life->to + 1 == trace->event_count ? ckpt_arena_text(out, "an output: stays to the end")
                                              : ckpt_arena_format(out, "in memory until step %d", end->step);
}

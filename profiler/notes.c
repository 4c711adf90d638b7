/* Lines to the caller: what the rows of a profile do not show. */
#include <stdarg.h>
#include <stdio.h>

#include "profiler/profiler_impl.h"

void ckpt_profile_note(const ckpt_profiling *profiling, const char *format, ...)
{
    char line[512];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    if (profiling->options.note != NULL) {
        profiling->options.note(profiling->options.context, line);
    }
}

static void note_tally(const ckpt_profiling *profiling)
{
    static const char *const name[] = {"forward", "backward", "update"};
    const ckpt_profile_tally *const tally = &profiling->tally;
    if (tally->lost_runs > 0) {
        ckpt_profile_note(profiling, "%d runs were not recorded whole and are left out", tally->lost_runs);
    }
    if (tally->by_stamps > 0) {
        ckpt_profile_note(profiling,
                          "%d of %d directions of layers have the time between two stamps of the device: fewer than %d "
                          "of their runs were recorded whole",
                          tally->by_stamps, tally->directions, CKPT_PROFILE_REPEATS_MIN);
    }
    if (tally->apart > 0) {
        char stamps[CKPT_UNITS_TEXT], span[CKPT_UNITS_TEXT];
        ckpt_profile_note(profiling,
                          "%d of %d directions of layers took another time by the device's stamps than by its kernels, "
                          "most %s of %s: %s between stamps, %s by kernels",
                          tally->apart, tally->directions, name[tally->direction], tally->layer,
                          ckpt_ns_show(tally->stamps_ns, stamps), ckpt_ns_show(tally->span_ns, span));
    }
}

static void note_tuning(const ckpt_profiling *profiling)
{
    char first[CKPT_UNITS_TEXT], fastest[CKPT_UNITS_TEXT];
    const ckpt_tuning *const t = &profiling->tuning;
    if (t->tuned > 0) {
        ckpt_profile_note(profiling,
                          "%d products, convolutions and directions of attention timed with %d algorithms, %d use "
                          "another than their library's first: %s together instead of %s",
                          t->tuned, t->candidates, t->changed, ckpt_ns_show(t->fastest_ns, fastest),
                          ckpt_ns_show(t->first_ns, first));
    }
    if (t->refused > 0) {
        ckpt_profile_note(profiling, "%d algorithms are refused, the last: %s", t->refused, t->refusal);
    }
}

void ckpt_profile_note_end(const ckpt_profiling *profiling)
{
    note_tuning(profiling);
    if (profiling->options.recorder != NULL) {
        note_tally(profiling);
    }
}

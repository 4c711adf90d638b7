/* What the parts of ckpt-compare share: a difference in the making, and where a metric's numbers come from. */
#ifndef CKPT_VIZ_COMPARE_COMPARE_IMPL_H
#define CKPT_VIZ_COMPARE_COMPARE_IMPL_H

#include "core/base/names.h"
#include "viz/compare/compare.h"

enum { CKPT_COMPARE_VALUES = 32, CKPT_COMPARE_NOTES = 16, CKPT_COMPARE_MISMATCHES = 8, CKPT_COMPARE_SETTINGS = 12 };

/* One difference in the making. Its arrays have the room above. The first failure is kept in `code`; what follows it
 * does nothing, so the parts need not check each step. */
typedef struct ckpt_comparer {
    const ckpt_compare_file *file[2]; /* BASE, NEW */
    const ckpt_compare_options *options;
    double alpha;
    ckpt_difference *d;
    ckpt_compare_value *value;
    const char **note;
    ckpt_compare_mismatch *mismatch, *setting;
    bool other_clock; /* one side's times are predicted, the other's measured */
    ckpt_arena *out;
    ckpt_code code;
    ckpt_err *err;
} ckpt_comparer;

/* True when `code` is CKPT_OK; else it is remembered. */
bool ckpt_compare_ok(ckpt_comparer *c, ckpt_code code);

/* Zeroed elements in c->out, or NULL and a failure; the text, or "" and a failure when it is NULL. */
void *ckpt_compare_take(ckpt_comparer *c, size_t count, size_t size);
const char *ckpt_compare_keep(ckpt_comparer *c, const char *text);
#define CKPT_COMPARE_NEW(c, type, count) ((type *)ckpt_compare_take((c), (size_t)(count), sizeof(type)))
#define CKPT_COMPARE_SAY(c, ...)         ckpt_compare_keep((c), ckpt_arena_format((c)->out, __VA_ARGS__))

/* A number of one file. */
typedef struct ckpt_number {
    bool has;
    int64_t value;
    ckpt_compare_nature nature;
    const int64_t *sample; /* SAMPLED: `samples` of them, in c->out or in the file */
    int samples;
    const char *where, *why; /* a clause: what it is of, where that varies; why it is no more than a bound; "" */
} ckpt_number;

/* Fill what BASE (side 0) or NEW (side 1) has; *number is zero, `why` "". `of` comes from the metric's row. */
typedef void ckpt_number_read(ckpt_comparer *c, int side, int of, ckpt_number *number);

/* Where a metric's number of one kind of file comes from: a field, or a function. */
typedef struct ckpt_source {
    enum { CKPT_NOT_THERE, CKPT_ALWAYS, CKPT_WHEN_EITHER, CKPT_WHEN_POSITIVE, CKPT_WHEN_FITS } has;
    size_t field;           /* offset of an int64_t in ckpt_plan, ckpt_trace, ... */
    ckpt_number_read *read; /* not NULL: instead of the field */
    int of;                 /* what it is to read */
} ckpt_source;

extern const ckpt_metric ckpt_metrics[]; /* name NULL ends it */
const ckpt_metric *ckpt_metric_find(const char *name);

ckpt_number_read ckpt_plan_min_budget, ckpt_plan_excess, ckpt_plan_bound;
ckpt_number_read ckpt_ways_count;
ckpt_number_read ckpt_profile_time, ckpt_profile_bytes, ckpt_profile_copy;
ckpt_number_read ckpt_trace_step_time, ckpt_trace_span, ckpt_trace_process;
ckpt_number_read ckpt_compare_min_budget, ckpt_sweep_step_time, ckpt_sweep_mean;

/* What ckpt_plan_excess and ckpt_profile_time read. */
enum { CKPT_OVER_KEEP_ALL, CKPT_OVER_BOUND };
enum { CKPT_ALL_DIRECTIONS = -1 };

/* What ckpt_ways_count reads. */
enum { CKPT_OTHER_WAYS, CKPT_INEXACT_RUNS };

/* Mismatches and notes of a kind, before anything is compared; then its rows, decisions and contributors. */
void ckpt_match_plans(ckpt_comparer *c);
void ckpt_match_profiles(ckpt_comparer *c);
void ckpt_match_traces(ckpt_comparer *c);
void ckpt_match_sweeps(ckpt_comparer *c);
void ckpt_compare_plans(ckpt_comparer *c);
void ckpt_compare_profiles(ckpt_comparer *c);
void ckpt_compare_traces(ckpt_comparer *c);
void ckpt_compare_sweeps(ckpt_comparer *c);

/* All metrics of the kind that either side has, in the table's order. */
void ckpt_compare_metrics(ckpt_comparer *c);

/* Results of all limits, with what explains those that are exceeded. */
void ckpt_compare_limits(ckpt_comparer *c);

/* A limit on a metric that the kind lacks is CKPT_BAD_INPUT. */
CKPT_MUST_USE ckpt_code ckpt_limits_check(const ckpt_limit *limit, int count, ckpt_compare_kind kind, ckpt_arena *out,
                                          ckpt_err *err);

/* Names of repeated blocks that changed alike, together. `key`: how each changed, in words. group_of[i] is the group of
 * name i; gives how many groups there are, in any order. */
typedef struct ckpt_name_group {
    const char *name; /* "h.0 … h.5.mlp" */
    int count, of;    /* as in ckpt_compare_group */
    int first;        /* number of its first name */
} ckpt_name_group;
int ckpt_name_groups(ckpt_comparer *c, const char *const *name, const char *const *key, int count,
                     ckpt_name_group *group, int *group_of);

/* What each layer has to do with the change, by layer name: shares, decisions, what was added, removed and resized. One
 * side without live ranges (it does not fit, or the file is too old): no shares. */
void ckpt_compare_layers(ckpt_comparer *c, const ckpt_live_ranges ranges[2], const ckpt_static *const statics[2],
                         const int static_count[2]);

/* The model as a setting: "79 layers" and "85 layers: 6 added, 73 resized"; of as many layers "73 resized". None when nothing
 * was added, removed or resized. */
void ckpt_compare_set_model(ckpt_comparer *c, int base_layers, int fresh_layers, int added, int removed, int resized);

/* A layer's name, or a buffer's, without the number of its micro-batch: "h.0.att@1" is h.0.att. */
const char *ckpt_compare_plain(ckpt_comparer *c, const char *name);

/* Lines on why a limit is exceeded (compare_causes.c). */
void ckpt_compare_causes(ckpt_comparer *c, ckpt_limit_result *result);

/* The ops that two plans run in different ways. */
void ckpt_compare_ways(ckpt_comparer *c);

/* What a run of an op takes in that way (NULL: its own); -1: the outline does not tell. */
ckpt_ns ckpt_run_time(const ckpt_outline_op *op, const char *variant);

/* Live ranges of a side, and those at both peaks, matched by name. Static blocks are in memory all the time. */
bool ckpt_compare_ranges(ckpt_comparer *c, const ckpt_trace *trace, const char *source, ckpt_live_ranges *ranges);
void ckpt_compare_peaks(ckpt_comparer *c, const ckpt_live_ranges ranges[2], const ckpt_static *const statics[2],
                        const int static_count[2]);

/* Mismatches that kinds share (compare_match.c): names; where it runs; where times come from ("profile p.json" or
 * "roofline of h200", of which a folder does not count; true when both are known to be the same); machines, with a note
 * where both name their libraries and not the same. */
void ckpt_match_name(ckpt_comparer *c, const char *what, const char *base, const char *fresh);
void ckpt_match_target(ckpt_comparer *c, bool base_gpu, int base_threads, bool gpu, int threads);
bool ckpt_match_costs(ckpt_comparer *c, const char *base, const char *fresh);
void ckpt_match_machines(ckpt_comparer *c, const ckpt_machine *base, const ckpt_machine *fresh);

/* A line of the difference; both sides of a setting, or of a mismatch. */
void ckpt_compare_note(ckpt_comparer *c, const char *text);
void ckpt_compare_set(ckpt_comparer *c, const char *what, const char *base, const char *fresh);
void ckpt_compare_set_bytes(ckpt_comparer *c, const char *what, ckpt_bytes base,
                            ckpt_bytes fresh); /* where they differ */
void ckpt_compare_mismatched(ckpt_comparer *c, const char *what, const char *base, const char *fresh);

/* A name that fits a message: no control characters, at most 60 letters. */
const char *ckpt_compare_name(ckpt_comparer *c, const char *name);

/* One number from those of both sides; and what its change is. */
ckpt_compare_value ckpt_compare_value_of(ckpt_comparer *c, const ckpt_metric *metric, const ckpt_number *base,
                                         const ckpt_number *fresh);
void ckpt_compare_judge(ckpt_comparer *c, ckpt_compare_value *value);
static inline ckpt_number ckpt_exact(int64_t value)
{
    return (ckpt_number){.has = true, .value = value, .where = "", .why = ""};
}

/* The value of that metric; NULL: there is none. */
const ckpt_compare_value *ckpt_compare_find(const ckpt_difference *difference, const ckpt_metric *metric);

/* a + b, but not beyond what 63 bits hold: files may say anything. */
int64_t ckpt_plus(int64_t a, int64_t b);

/* What all forms of a report write alike: "worse"; "exceeded"; "bytes"; "another" model, "other" threads; a name
 * without control characters and of at most so many letters (200 and fewer), NULL without memory. */
const char *ckpt_compare_change_name(ckpt_compare_change change);
const char *ckpt_limit_state_name(ckpt_limit_state state);
const char *ckpt_compare_unit_name(ckpt_compare_unit unit);
const char *ckpt_compare_another(const char *what);
enum { CKPT_COMPARE_LETTERS = 60 };
const char *ckpt_compare_clip(ckpt_arena *out, const char *name, int letters);

/* A number with its unit, "6.00 GB"; the change of it, "+1 B" or ""; and in percent, "+3.10 %", or "" where BASE is 0.
 * Written to `text` (CKPT_UNITS_TEXT bytes) and given back. */
const char *ckpt_compare_show(ckpt_compare_unit unit, int64_t value, char *text);
const char *ckpt_compare_show_change(const ckpt_compare_value *value, char *text);
const char *ckpt_compare_show_percent(const ckpt_compare_value *value, char *text);

/* One line of what is worse, better or exceeded: "peak +75.0 MB (+1.2 %), step time -12.3 ms (-3.1 %)"; of what is not
 * comparable why. NULL without memory. */
const char *ckpt_compare_verdict(const ckpt_difference *difference, ckpt_arena *out);

#endif

/* What the parts of ckpt-compare share: growing a difference, and looking names up. */
#ifndef CKPT_VIZ_COMPARE_COMPARE_IMPL_H
#define CKPT_VIZ_COMPARE_COMPARE_IMPL_H

#include "viz/compare/compare.h"

enum { CKPT_COMPARE_VALUES = 24, CKPT_COMPARE_NOTES = 16, CKPT_COMPARE_MISMATCHES = 8 };

/* One difference in the making. Its arrays have the room above. */
typedef struct ckpt_comparer {
    const ckpt_compare_file *base, *fresh;
    const ckpt_compare_options *options;
    double alpha;
    ckpt_difference *d;
    ckpt_compare_value *value;
    const char **note;
    ckpt_compare_mismatch *mismatch;
    bool other_clock; /* one side's times are predicted, the other's measured */
    ckpt_arena *out;
    ckpt_err *err;
} ckpt_comparer;

/* A limit on a metric that the kind lacks is CKPT_BAD_INPUT. */
CKPT_MUST_USE ckpt_code ckpt_limits_check(const ckpt_limit *limit, int count, ckpt_compare_kind kind, ckpt_arena *out,
                                          ckpt_err *err);

/* Add what the kind has: mismatches first (and notes), then, where the files are compared, everything else. */
CKPT_MUST_USE ckpt_code ckpt_match_plans(ckpt_comparer *c);
CKPT_MUST_USE ckpt_code ckpt_match_profiles(ckpt_comparer *c);
CKPT_MUST_USE ckpt_code ckpt_match_traces(ckpt_comparer *c);
CKPT_MUST_USE ckpt_code ckpt_match_sweeps(ckpt_comparer *c);
CKPT_MUST_USE ckpt_code ckpt_compare_plans(ckpt_comparer *c);
CKPT_MUST_USE ckpt_code ckpt_compare_profiles(ckpt_comparer *c);
CKPT_MUST_USE ckpt_code ckpt_compare_traces(ckpt_comparer *c);
CKPT_MUST_USE ckpt_code ckpt_compare_sweeps(ckpt_comparer *c);

/* a + b, but not beyond what 63 bits hold: files may say anything. */
int64_t ckpt_plus(int64_t a, int64_t b);

/* The decisions that changed, by groups. */
CKPT_MUST_USE ckpt_code ckpt_group_decisions(ckpt_comparer *c);

/* Mismatches that kinds share: names; where it runs; "profile p.json" or "roofline of h200", of which a folder does not
 * count. */
CKPT_MUST_USE ckpt_code ckpt_match_name(ckpt_comparer *c, const char *what, const char *base, const char *fresh);
CKPT_MUST_USE ckpt_code ckpt_match_target(ckpt_comparer *c, bool base_gpu, int base_threads, bool gpu, int threads);
CKPT_MUST_USE ckpt_code ckpt_match_costs(ckpt_comparer *c, const char *base, const char *fresh);
CKPT_MUST_USE ckpt_code ckpt_match_machines(ckpt_comparer *c, const ckpt_machine *base, const ckpt_machine *fresh);

/* A note where both sides name their libraries, and not the same. */
CKPT_MUST_USE ckpt_code ckpt_note_software(ckpt_comparer *c, const ckpt_machine *base, const ckpt_machine *fresh);

/* Stays at both peaks, matched by name. `base_statics` and `statics` are in memory all the time. */
CKPT_MUST_USE ckpt_code ckpt_compare_peaks(ckpt_comparer *c, const ckpt_live_ranges *base,
                                           const ckpt_live_ranges *fresh, const ckpt_static *base_static,
                                           int base_static_count, const ckpt_static *fresh_static,
                                           int fresh_static_count);

/* Results of all limits, with what explains those that are exceeded. */
CKPT_MUST_USE ckpt_code ckpt_compare_limits(ckpt_comparer *c);

/* A line of the difference, or one side of a mismatch. `text` NULL is no memory. */
CKPT_MUST_USE ckpt_code ckpt_compare_note(ckpt_comparer *c, const char *text);
CKPT_MUST_USE ckpt_code ckpt_compare_mismatched(ckpt_comparer *c, const char *what, const char *base,
                                                const char *fresh);

/* A name that fits a message: no control characters, at most as many letters (200 and fewer). NULL without memory. */
enum { CKPT_COMPARE_LETTERS = 60 };
const char *ckpt_compare_clip(ckpt_arena *out, const char *name, int letters);
const char *ckpt_compare_name(ckpt_arena *out, const char *name); /* CKPT_COMPARE_LETTERS of them */

/* A number of that metric, and one appended to the difference. Both sides have it; changes are judged later, once. */
ckpt_compare_value ckpt_compare_number(const char *metric, int64_t base, int64_t fresh);
ckpt_compare_value *ckpt_compare_add(ckpt_comparer *c, const char *metric, int64_t base, int64_t fresh);

/* Samples of both sides (as many as *_count says, NULL for none) make the value a sampled one, and are tested where
 * they are enough. Those of NEW are kept for limits and must stay. */
CKPT_MUST_USE ckpt_code ckpt_compare_samples(ckpt_comparer *c, ckpt_compare_value *value, const ckpt_ns *base,
                                             int base_count, const ckpt_ns *fresh, int fresh_count);

/* "another" model, "other" threads. */
const char *ckpt_compare_another(const char *what);

/* What the change of a value is, from all that is in it. */
CKPT_MUST_USE ckpt_code ckpt_compare_judge(const ckpt_comparer *c, ckpt_compare_value *value);

/* The value of that metric; NULL: there is none. */
const ckpt_compare_value *ckpt_compare_find(const ckpt_difference *difference, const ckpt_metric *metric);

/* Numbers of names, for looking up. A name that comes twice gives the first. */
typedef struct ckpt_name_at {
    const char *name;
    int at;
} ckpt_name_at;
typedef struct ckpt_name_table {
    ckpt_name_at *entry; /* by name */
    int count;
} ckpt_name_table;
CKPT_MUST_USE ckpt_code ckpt_name_table_init(ckpt_name_table *table, int room, ckpt_comparer *c);
void ckpt_name_table_add(ckpt_name_table *table, const char *name, int at);
void ckpt_name_table_sort(ckpt_name_table *table); /* after the last add, before the first find */
int ckpt_name_table_find(const ckpt_name_table *table, const char *name); /* -1: not there */

#endif

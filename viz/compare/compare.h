/* ckpt-compare: what got better or worse between two plans, profiles, traces or sweeps, and which layers and buffers
 * made it so. Data first: ckpt_compare_make fills a report, the writers only show it. */
#ifndef CKPT_VIZ_COMPARE_COMPARE_H
#define CKPT_VIZ_COMPARE_COMPARE_H

#include "core/formats/curve.h"
#include "core/formats/plan.h"
#include "core/formats/profile.h"
#include "core/formats/trace.h"
#include "viz/timeline/live_ranges.h"

typedef enum ckpt_compare_kind {
    CKPT_COMPARE_PLAN,
    CKPT_COMPARE_PROFILE,
    CKPT_COMPARE_TRACE,
    CKPT_COMPARE_SWEEP,
    CKPT_COMPARE_KIND_COUNT
} ckpt_compare_kind;

/* A file that was read; of the four pointers the one of its kind is set. */
typedef struct ckpt_compare_file {
    const char *source;
    ckpt_compare_kind kind;
    const ckpt_plan *plan;
    const ckpt_profile *profile;
    const ckpt_trace *trace;
    const ckpt_curve *curve;
} ckpt_compare_file;

/* What a number counts. All values are whole: a ratio is in millionths. */
typedef enum ckpt_compare_unit {
    CKPT_UNIT_BYTES,
    CKPT_UNIT_NS,
    CKPT_UNIT_RATIO, /* millionths; shown as a percentage */
    CKPT_UNIT_COUNT,
} ckpt_compare_unit;

/* How a number came to be, and so how a change of it is judged. */
typedef enum ckpt_compare_nature {
    CKPT_EXACT,   /* planned, or counted to the byte: any change is one */
    CKPT_SAMPLED, /* a measured time: a change counts when a test finds it significant */
    CKPT_ONCE,    /* measured once and varying: shown, and held against limits, but no change is judged */
} ckpt_compare_nature;

typedef enum ckpt_compare_change {
    CKPT_CHANGE_SAME,
    CKPT_CHANGE_BETTER,
    CKPT_CHANGE_WORSE,
    CKPT_CHANGE_OTHER,    /* changed, and neither is better in itself: a budget */
    CKPT_CHANGE_NOISE,    /* "~": sampled, and not significant; or measured once */
    CKPT_CHANGE_FEW,      /* sampled, with too few samples for a test; `why` says how many */
    CKPT_CHANGE_MISSING,  /* one side does not have it; `why` says which where that needs a word */
    CKPT_CHANGE_UNJUDGED, /* two numbers of different kinds, such as predicted and measured; `why` says which */
} ckpt_compare_change;

/* A metric as users name it in limits. The table of them is in compare_metrics.c. */
typedef struct ckpt_metric {
    const char *name;  /* "step_time": in limits, CSV and JSON */
    const char *label; /* "step time" */
    const char *about; /* one clause, for --list-metrics */
    ckpt_compare_unit unit;
    bool neutral;                     /* neither more nor less is better; else less is */
    const struct ckpt_source *source; /* where its number comes from, per ckpt_compare_kind */
} ckpt_metric;

/* One number on both sides. */
typedef struct ckpt_compare_value {
    const ckpt_metric *metric;
    const char *where; /* what the number is of, where that varies: the budget of a sweep; else "" */
    ckpt_compare_nature nature;
    bool has_base, has_new;
    int64_t base, fresh;        /* of samples: the median */
    ckpt_compare_change change; /* what the verdict is */
    int base_samples, samples;  /* sampled: how many of BASE and of NEW */
    bool tested;                /* the test was made */
    double p;                   /* tested: two-sided, Mann-Whitney U */
    const char *why;            /* a clause beside the verdict; "" for none */
    const int64_t *sample;      /* of NEW, for a limit in absolute terms; NULL: none */
} ckpt_compare_value;

/* A limit as given: --max METRIC=VALUE, or --max-increase METRIC=VALUE. */
typedef struct ckpt_limit {
    const ckpt_metric *metric;
    bool increase; /* NEW may have that much more than BASE; else NEW may have that much */
    bool relative; /* of an increase: `value` is millionths of BASE */
    int64_t value;
    const char *text; /* "--max-increase step_time=3%" */
} ckpt_limit;

typedef enum ckpt_limit_state {
    CKPT_LIMIT_HELD,
    CKPT_LIMIT_EXCEEDED,
    CKPT_LIMIT_OPEN, /* measured, and the samples do not tell: never fails */
} ckpt_limit_state;

/* A line on what exceeded a limit. The changes of all lines add up to the metric's, but where a line says that the rest
 * is not told. */
typedef struct ckpt_because {
    const char *text; /* "h.0 … h.5.fc ×2: +22.7 ms, keep → recompute" */
    bool counts;      /* it has a part in the change; else it says what was set otherwise, or that nothing is known */
    int64_t change;   /* counts: what part, in the metric's unit */
} ckpt_because;

/* What became of a limit. */
typedef struct ckpt_limit_result {
    const ckpt_limit *limit;
    const ckpt_compare_value *value;
    int64_t allowed; /* the most NEW may have */
    ckpt_limit_state state;
    const char *text;            /* one line: what was found and allowed */
    const ckpt_because *because; /* exceeded: what did it, a line each: what was set otherwise, then layers */
    int because_count;
} ckpt_limit_result;

/* In what two files differ before their numbers do: "threads", "2", "1". What makes them not comparable, and what was
 * only set otherwise, are lists of it. */
typedef struct ckpt_compare_mismatch {
    const char *what; /* model, device, threads, costs; budget, options, dtype, inputs */
    const char *base, *fresh;
} ckpt_compare_mismatch;

/* What layers have shares in. Over all layers, and what stands beside them, the changes of shares add up to that of the
 * number that is named here. */
typedef enum ckpt_share {
    CKPT_SHARE_PEAK,       /* the peak: bytes in memory there */
    CKPT_SHARE_TIME,       /* a plan's step time: all runs. Of a trace what ran, and what is beside it is not told */
    CKPT_SHARE_RECOMPUTED, /* recompute time */
    CKPT_SHARE_KEEP_ALL,   /* a plan's keep-all time */
    CKPT_SHARE_COPIED,     /* bytes offloaded */
    CKPT_SHARE_HOST,       /* bytes on the host */
    CKPT_SHARE_OTHER_WAYS, /* runs in another way */
    CKPT_SHARE_INEXACT,    /* inexact runs */
    CKPT_SHARE_FORWARD,    /* of a trace, like the four below: time in that phase */
    CKPT_SHARE_BACKWARD,
    CKPT_SHARE_UPDATE,
    CKPT_SHARE_COPY,
    CKPT_SHARE_WAIT,
    CKPT_SHARE_COUNT
} ckpt_share;

typedef enum ckpt_compare_fate {
    CKPT_LAYER_SAME,
    CKPT_LAYER_RESIZED, /* what it writes, or a static block, is of another size */
    CKPT_LAYER_ADDED,
    CKPT_LAYER_REMOVED,
    CKPT_LAYER_STATIC, /* no layer: a static block of another size, under its name */
    CKPT_LAYER_REST    /* no layer: the rest, under a name of ours, "waits for copies" */
} ckpt_compare_fate;

/* A layer, or what stands beside the layers, that differs in anything. */
typedef struct ckpt_compare_layer {
    const char *layer; /* of an op without one its name */
    ckpt_compare_fate fate;
    const char *what;          /* "added", "9.44 MB → 18.9 MB, keep → recompute", "recomputed more often" */
    bool decided;              /* both plans say what they decided on it */
    ckpt_decision base, fresh; /* decided: what */
    ckpt_bytes base_bytes, fresh_bytes; /* what its forward runs write, of names that both have; 0: none, or unknown */
    int64_t by[CKPT_SHARE_COUNT];       /* NEW less BASE */
    int group;                          /* index in layer_group */
} ckpt_compare_layer;

/* Such layers of repeated blocks that changed alike, together: "h.0 … h.5.mlp", 6 layers; largest change first. */
typedef struct ckpt_compare_group {
    const char *name;
    int count;
    int of; /* blocks from the first to the last, when that is more; else 0 */
    ckpt_compare_fate fate;
    const char *what;
    bool minor; /* it has no share in time, peak or copies: only the ways of its runs differ, say */
    int64_t by[CKPT_SHARE_COUNT];
} ckpt_compare_group;

/* An op that the plans run in different ways, or one of them not at all; all its runs together. */
typedef struct ckpt_way_change {
    const char *op;
    const char *base, *fresh;   /* "gemm", "winograd (inexact)", "output, bits", "not run" */
    bool timed;                 /* the plans tell the times of these ways */
    ckpt_ns time_ns;            /* more time in it, NEW less BASE */
    ckpt_bytes workspace_bytes; /* more workspace, of the largest */
} ckpt_way_change;

/* Such ops of repeated blocks, together, as ckpt_compare_group. */
typedef struct ckpt_way_group {
    const char *name;
    int count, of;
    const char *base, *fresh;
    bool timed;
    ckpt_ns time_ns;
    ckpt_bytes workspace_bytes; /* of the op with the largest change */
} ckpt_way_group;

/* A buffer, workspace or static block at the peaks. Over all of them the changes add up to the peak's. */
typedef struct ckpt_contributor {
    const char *name;
    const char *layer;      /* "" unknown */
    const char *what;       /* ckpt_live_range_kind_name, or "static" */
    ckpt_bytes base, fresh; /* 0: not in memory at that peak */
    const char
        *base_reason;   /* why it is there at BASE's peak (ckpt_live_range_reason); "" where it is not, or unknown, and
                                of those with the smallest changes */
    const char *reason; /* and at NEW's */
} ckpt_contributor;

/* A row of a table beside the metrics: a layer and direction of a profile ("h.0.up", "forward"), a budget of a sweep
 * ("5.20 GB", ""), a category of a trace at its peak ("activations", ""). */
typedef struct ckpt_compare_row {
    const char *name, *part;
    ckpt_bytes budget_bytes;  /* of a sweep; else 0 */
    ckpt_compare_value value; /* p is adjusted for the number of rows (Holm) where it is sampled */
} ckpt_compare_row;

/* NEW against BASE. */
typedef struct ckpt_difference {
    const ckpt_compare_file *base, *fresh;
    const ckpt_compare_mismatch *mismatch; /* none: comparable */
    int mismatch_count;
    const ckpt_compare_mismatch *setting; /* what was set otherwise, the budget first; the model last */
    int setting_count;
    bool compared;           /* false: not comparable and not forced; all that follows is empty */
    const char *const *note; /* lines on what was compared how: costs that changed, a plan that does not fit, ... */
    int note_count;
    const ckpt_compare_value *value; /* all metrics of the kind that either side has */
    int value_count;
    const ckpt_compare_layer *layer; /* of plans and traces: in order of NEW, then what only BASE has */
    int layer_count;
    const ckpt_compare_group *layer_group;
    int layer_group_count;
    bool layers_known;          /* the files say what their layers do: the shares add up */
    const ckpt_way_change *way; /* in order of the ops of NEW */
    int way_count;
    const ckpt_way_group *way_group;
    int way_group_count;
    const char *base_peak, *peak;        /* "h.3.att/backward at step 812": where the peaks are; "" unknown */
    const ckpt_contributor *contributor; /* all that differ, largest change first */
    int contributor_count;
    bool contributors_known;
    const ckpt_compare_row *row; /* most telling first: significant before not, then by size of the change */
    int row_count;
    const char *row_title;        /* "layer", "budget", "category at the peak"; "" when there are no rows */
    const char *first_difference; /* of traces: the first step at which they differ and how; "" none or not a trace */
    const ckpt_limit_result *limit;
    int limit_count;
    int worse, better; /* values that are */
    bool lost;         /* BASE is a plan that fits its budget, and NEW is not; or BASE's sweep has plans, NEW's none */
    bool exceeded;     /* some limit is */
} ckpt_difference;

typedef struct ckpt_compare_options {
    const ckpt_limit *limit;
    int limit_count;
    bool exit_code; /* anything worse fails */
    bool warn_only; /* nothing fails */
    bool force;     /* compare what is not comparable */
    double alpha;   /* level of significance; 0: 0.05 */
} ckpt_compare_options;

typedef struct ckpt_compare_report {
    ckpt_compare_kind kind;
    ckpt_compare_options options;
    const ckpt_difference *difference; /* one per NEW */
    int count;
    int status; /* what to exit with: 0 fine, 1 a limit exceeded (or worse, with exit_code), 4 not comparable */
} ckpt_compare_report;

enum { CKPT_COMPARE_SAMPLES = 5 }; /* fewer on a side are too few */

/* Read a file of any of the four kinds. Errors: CKPT_BAD_INPUT (no JSON, another "format"), those of the readers. */
CKPT_MUST_USE ckpt_code ckpt_compare_read(const char *path, ckpt_arena *out, ckpt_compare_file *file, ckpt_err *err);

/* "peak=6GiB,step_time=500ms" for --max, or "peak=0,step_time=3%" for --max-increase (`increase`): appended to
 * `limit`, of which *count are there and `room` fit. Errors: CKPT_BAD_INPUT (unknown metric, which lists them; a
 * value that is no number of the metric's unit), CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_limits_parse(const char *text, bool increase, ckpt_limit *limit, int room, int *count,
                                          ckpt_arena *out, ckpt_err *err);

/* Each of `fresh` against `base`. The report points into the files.
 * Errors: CKPT_BAD_INPUT (another kind of file; a limit on a metric that the kind lacks, which lists those it has),
 * CKPT_OVERFLOW, CKPT_NO_MEMORY. Cost: O(n log n) in the files' size, beside the tests (rank_tests.h). */
CKPT_MUST_USE ckpt_code ckpt_compare_make(const ckpt_compare_file *base, const ckpt_compare_file *fresh, int count,
                                          const ckpt_compare_options *options, ckpt_arena *out,
                                          const ckpt_compare_report **report, ckpt_err *err);

/* The forms of a report. All but CSV, JSON and JUnit show the same tables (compare_tables.h). Names from files are text in
 * every form, whatever they hold. */

/* For people: aligned, with escapes for colour when `color`. */
void ckpt_compare_text(const ckpt_compare_report *report, bool color, ckpt_text *text);

/* GitHub's Markdown. Tables lose their last rows where the text would pass `room` bytes (0: any length): it says how
 * many. */
void ckpt_compare_markdown(const ckpt_compare_report *report, size_t room, ckpt_text *text);

/* A page that needs nothing else and runs nothing. */
void ckpt_compare_html(const ckpt_compare_report *report, ckpt_text *text);

/* Everything, for programs (docs/reference/compare.md); and one line per number (RFC 4180): metrics, rows, layers,
 * contributors, limits. */
void ckpt_compare_json(const ckpt_compare_report *report, ckpt_text *text);
void ckpt_compare_csv(const ckpt_compare_report *report, ckpt_text *text);

/* JUnit's XML as Jenkins and GitLab read it: a suite per NEW; a test case per metric, and one for whether a plan still
 * fits. Failed is what the exit code fails for, skipped what the files or samples do not tell (with warn_only: what
 * would have failed). What cannot be compared is an error. */
void ckpt_compare_junit(const ckpt_compare_report *report, ckpt_text *text);

/* Workflow commands for GitHub Actions, one a line: an error per exceeded limit (a warning with warn_only), a notice
 * with the verdict. */
void ckpt_compare_annotations(const ckpt_compare_report *report, ckpt_text *text);

/* The metrics of a kind, or of all, one a line, for --list-metrics. */
void ckpt_metrics_text(ckpt_text *text);

const char *ckpt_compare_kind_name(ckpt_compare_kind kind); /* "plan" */

#endif

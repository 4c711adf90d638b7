/* What a plan is asked for, option by option: by the names of ckpt-plan's command line, which takes its rows from here. */
#ifndef CKPT_LIBCKPT_OPTIONS_H
#define CKPT_LIBCKPT_OPTIONS_H

#include "core/formats/scheme.h"
#include "include/ckpt.h"
#include "libckpt/scheme_options.h"
#include "planner/directives/choose.h"

enum { CKPT_SETS_MAX = 64, CKPT_RULES_MAX = 64 };

/* A JSON file that an option names. `text` not NULL: what stands in it, so that it is not looked for. */
typedef struct ckpt_document {
    const char *name; /* NULL: the option is not set */
    const char *text;
    size_t length;
} ckpt_document;

/* Texts are borrowed, but for those that came through ckpt_options_set: they are in `texts`. */
struct ckpt_options {
    ckpt_arena texts;
    char budget_bytes[24]; /* what `budget` points to when it was given as a number */
    const char *budget, *reserve, *strategy, *dtype, *optimizer, *link, *host_memory;
    ckpt_document start, profile, device;
    const char *set[CKPT_SETS_MAX + 1]; /* one more than may be set: for the variable of --maximize */
    int set_count;
    ckpt_rule rule[CKPT_RULES_MAX]; /* in the order given */
    int rule_count;
    bool ignore_flags; /* the model's checkpoint flags */
    bool reorder;
    bool allow_inexact;
    int effort;
    int threads;        /* 0: default */
    double time_limit;  /* seconds; 0: none */
    ckpt_scheme scheme; /* first_layer is not chosen here */
    bool stage_given;
    const char *scheme_option;        /* the first of its options that was given; NULL: none */
    const struct ckpt_solver *solver; /* NULL: none */
    void *solver_library;             /* to close; NULL: none */
    int32_t (*cancel)(void *context);
    void *cancel_context;
    void (*progress)(void *context, const ckpt_progress *progress);
    void *progress_context;
};

/* The options, a row each: name, letter, argument, help, how it is taken and where it is kept. */
#define CKPT_BUDGET_OPTIONS(ROW)                                                                                       \
    ROW("budget", 'b', "SIZE",                                                                                         \
        "the most bytes the step may hold on the device: 6GB, 5.5GiB, 80% of keep-all's peak (no limit); with "        \
        "pipeline stages each, or 6GB,5GB,...",                                                                        \
        text, budget)                                                                                                  \
    ROW("reserve", 0, "SIZE", "part of --budget that is kept free for a GPU's context and libraries (0)", text, reserve)

#define CKPT_MODEL_OPTIONS(ROW)                                                                                        \
    ROW("strategy", 's', "NAME",                                                                                       \
        "use this strategy alone, see --list-strategies (auto: the fastest plan of all of them)", text, strategy)      \
    ROW("effort", 'e', "0..3", "how hard to search (1); 500 ops take up to a second at 1, ten at 2, a minute at 3",    \
        effort, effort)                                                                                                \
    ROW("time-limit", 0, "SECONDS", "stop with the best plan so far, which then depends on the machine's speed",       \
        seconds, time_limit)                                                                                           \
    ROW("checkpoint", 0, "PATTERN",                                                                                    \
        "recompute each layer or block of that name as a unit: 'h.*', 'h.[0-5].mlp'; repeatable", rule, rule)          \
    ROW("keep", 0, "PATTERN", "never recompute layers of that name, or in blocks of that name; repeatable", rule,      \
        rule)                                                                                                          \
    ROW("offload", 0, "PATTERN", "move what layers of that name keep to the host and back; needs a link; repeatable",  \
        rule, rule)                                                                                                    \
    ROW("policy", 0, "OP=WHAT,...",                                                                                    \
        "decide by kind of op: linear=save,*=prefer-recompute; WHAT: [must-|prefer-]save, [must-|prefer-]recompute, "  \
        "offload",                                                                                                     \
        rule, rule)                                                                                                    \
    ROW("ignore-flags", 0, NULL, "ignore the checkpoint and offload flags of the model", flag, ignore_flags)           \
    ROW("allow-inexact", 0, NULL, "use variants of ops whose results have other bits; the plan names them", flag,      \
        allow_inexact)                                                                                                 \
    ROW("reorder", 0, NULL,                                                                                            \
        "run ops in another order where the data flow allows it; always so where the graph says \"order\": \"free\"",  \
        flag, reorder)                                                                                                 \
    ROW("start", 0, "FILE", "begin with this plan of the same graph: if it fits, the result is no slower", document,   \
        start)                                                                                                         \
    ROW("profile", 'p', "FILE", "measured times and workspaces, from ckpt-profile", document, profile)                 \
    ROW("device", 'd', "NAME", "roofline for what no profile covers: a device's name, or its JSON file (cpu)",         \
        document, device)                                                                                              \
    ROW("set", 0, "VAR=N", "override a variable of the model; repeatable", set, set)                                   \
    ROW("dtype", 0, "TYPE", "dtype of activations: float32 or bfloat16 (the model's)", text, dtype)                    \
    ROW("optimizer", 0, "NAME[:KEY=X,...]",                                                                            \
        "another optimizer; lr, weight_decay, clip_norm, loss_scale and ema stay as the model has them", text,         \
        optimizer)                                                                                                     \
    ROW("threads", 't', "N", "threads of the CPU's kernels (the profile's, else all processors; a GPU has none)",      \
        threads, threads)

#define CKPT_LINK_OPTIONS(ROW)                                                                                         \
    ROW("link", 0, "RATE", "speed of copies to the host: 50GB/s, or 50GB/s,25GB/s there and back (as measured)", text, \
        link)                                                                                                          \
    ROW("host-memory", 0, "SIZE", "memory on the host for what is offloaded (no limit)", text, host_memory)

#define CKPT_PLAN_OPTIONS(ROW)                                                                                         \
    CKPT_BUDGET_OPTIONS(ROW) CKPT_MODEL_OPTIONS(ROW) CKPT_SCHEME_OPTIONS(ROW) CKPT_LINK_OPTIONS(ROW)

/* Defaults: no budget, strategy auto, normal effort, no solver, one rank. */
void ckpt_options_init(ckpt_options *options);

/* Set option `name`, without dashes, to `value`, which is borrowed (NULL for a switch). *taken: there is such an option.
 * Errors: CKPT_BAD_INPUT "found, wanted". */
CKPT_MUST_USE ckpt_code ckpt_options_take(ckpt_options *options, const char *name, const char *value, bool *taken,
                                          ckpt_err *err);

/* What does not go together, or is for several graphs. Errors: CKPT_BAD_INPUT. */
CKPT_MUST_USE ckpt_code ckpt_options_check(const ckpt_options *options, ckpt_err *err);

/* All pipeline stages are meant, one plan for each. */
bool ckpt_options_staged(const ckpt_options *options);

/* Options that decide what plan comes out, as words for ckpt-plan's command line: by long name, and the input last.
 *   input      name of the model's or graph's file; NULL: not known
 *   maximize   the variable of --maximize; NULL: none
 * Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_options_words(const ckpt_options *options, const char *input, const char *maximize,
                                           ckpt_arena *out, const char *const **words, int *count, ckpt_err *err);

/* Those of them that a model is lowered by, which then are in its graph. */
CKPT_MUST_USE ckpt_code ckpt_options_model_words(const ckpt_options *options, ckpt_arena *out,
                                                 const char *const **words, int *count, ckpt_err *err);

#endif

/* What a plan is asked for, and when planning ends early. */
#ifndef CKPT_PLANNER_SCHEDULE_OPTIONS_H
#define CKPT_PLANNER_SCHEDULE_OPTIONS_H

#include "core/base/units.h"

struct ckpt_candidate; /* planner/schedule/strategy.h */
struct ckpt_solver;    /* planner/ilp/solver.h */

/* Efforts count work, never seconds: the same input gives the same plan on any machine under any load. The times are
 * what a plan of up to 500 ops takes on one core of a common machine. */
enum { CKPT_EFFORT_LOW, CKPT_EFFORT_NORMAL /* 1 s */, CKPT_EFFORT_MORE /* 10 s */, CKPT_EFFORT_MOST };
enum { CKPT_EFFORT_SOLVER = CKPT_EFFORT_MORE }; /* from here on `auto` asks a solver, where it has one */

/* Parts of the strategy `auto`. */
enum {
    CKPT_PART_CHAIN = 1 << 0,
    CKPT_PART_HIERARCHY = 1 << 1,
    CKPT_PART_MICRO = 1 << 2,
    CKPT_PART_BOUND = 1 << 3,
    CKPT_PART_PROGRAM = 1 << 4,       /* integer programs of the whole graph */
    CKPT_PART_NEIGHBOURHOOD = 1 << 5, /* integer programs of neighbourhoods */
    CKPT_PART_SEARCH = 1 << 6,
    CKPT_PART_EXACT = 1 << 7,
    CKPT_PART_JOINT = 1 << 8,
    CKPT_PART_PRICE = 1 << 9,
};

/* How far planning has come. */
typedef struct ckpt_plan_progress {
    const char *part;       /* what begins now: "chain", "search", "minimum budget", ... */
    ckpt_ns best_ns;        /* time of the fastest schedule so far under the limit being tried; 0: none yet */
    ckpt_ns bound_ns;       /* no schedule under that limit is faster; 0: no bound yet */
    ckpt_bytes limit_bytes; /* live bytes beside the static block; CKPT_BYTES_MAX: no limit */
} ckpt_plan_progress;

/* Begin with ckpt_plan_options_init; a zeroed struct asks for the lowest effort. Everything pointed to must stay as it
 * is during the call. */
typedef struct ckpt_plan_options {
    ckpt_bytes budget_bytes; /* static block and arena; 0: no limit */
    int effort;              /* CKPT_EFFORT_... */
    ckpt_bytes host_bytes;   /* room on the host for what is offloaded; 0: no limit */
    /* Measured schedules that are known: starts, and candidates where they are within the limit. */
    const struct ckpt_candidate *incumbent;
    int incumbent_count;
    const struct ckpt_solver *solver; /* of linear programs; NULL: parts that need one are left out */
    bool allow_inexact;               /* variants of other bits than an op's own may be used */
    bool reorder;                     /* ops may run in another order where the data flow allows it */
    bool no_min_peak;                 /* nobody reads the candidates' min_peak: what only serves it may be left out */
    bool only_min_peak;               /* only that and those of low peak are read; the limit is of no interest */
    ckpt_bytes floor_bytes;           /* no schedule has a lower peak; 0: nothing is known */
    bool own_ways_known;              /* incumbents hold what is found with all ops in their own ways */
    struct ckpt_low_memo *low_memo;   /* what auto finds at any limit, for when it is asked again; NULL: nowhere */

    /* Ending early, with the best plan so far. That plan depends on the machine. */
    ckpt_ns deadline_ns;              /* on ckpt_clock_ns; 0: none */
    bool (*cancelled)(void *context); /* not NULL: planning ends soon after it returns true */
    /* Not NULL: called whenever a part of the planner begins, from the thread that plans. */
    void (*progress)(void *context, const ckpt_plan_progress *progress);
    void *context; /* of both */

    unsigned without;      /* CKPT_PART_...: parts that auto leaves out, to measure what they are worth */
    int64_t *placing_work; /* not NULL: what searches for allocations cost is added, in comparisons */
} ckpt_plan_options;

/* No limits, normal effort, no solver, no end. */
void ckpt_plan_options_init(ckpt_plan_options *options);

/* The effort asked for, or the nearest that there is. */
int ckpt_effort(const ckpt_plan_options *options);

/* True when the search is to end early. Cost: a clock read and `cancelled`; loops ask through a ckpt_poll. */
bool ckpt_plan_stopped(const ckpt_plan_options *options);

/* True when planning is to end and even its quickest parts take a noticeable time on a graph of so many ops. What is
 * cheap on smaller graphs is done under any time limit. */
bool ckpt_plan_hurried(const ckpt_plan_options *options, int ops);

/* Asks ckpt_plan_stopped once in so much work; begin with { .options = options }. */
typedef struct ckpt_poll {
    const ckpt_plan_options *options; /* NULL: never stopped */
    int64_t left;                     /* work until the next question; the first comes at once */
    bool stopped;                     /* stays true */
} ckpt_poll;

/* Work between two questions. A unit is a simple step of a loop, 1 to 20 ns: 1 to 20 ms on a common machine. */
#define CKPT_POLL_WORK ((int64_t)1 << 20)

/* `work` more has been done: true when the loop is to end. */
bool ckpt_poll_stopped(ckpt_poll *poll, int64_t work);

#endif

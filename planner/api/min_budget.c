/* When nothing fits: the minimum budget. */
#include "planner/api/plan_make_impl.h"
#include "planner/replay/replay.h"

enum {
    LOWERED_OPS = 1000, /* larger graphs are not tried at lower limits: every trial is a plan */
    TRIALS = 3,
};

/* Does anything fit within `limit`? `bytes` (may be NULL): what the candidate of minimum peak
 * takes when not; 0: unknown. */
static ckpt_code try_limit(const ckpt_maker *m, ckpt_bytes limit, bool *fits, ckpt_bytes *bytes, ckpt_err *err)
{
    const ckpt_mark mark = ckpt_arena_mark(m->out);
    ckpt_plan_options options = *m->options;
    options.incumbent = NULL; /* whoever asks for the minimum budget later may not have them */
    options.incumbent_count = 0;
    ckpt_maker trial = *m;
    trial.options = &options;
    trial.trial = true;
    trial.limit = limit;
    ckpt_candidates *const candidates = CKPT_NEW(m->out, ckpt_candidates, 1);
    ckpt_plan plan = {0};
    if (candidates == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "looking for the minimum budget");
    }
    CKPT_TRY(ckpt_maker_attempt(&trial, candidates, &plan, fits, err));
    if (!*fits && bytes != NULL && candidates->min_peak.sequence.op != NULL) {
        CKPT_TRY(ckpt_maker_pack_min_peak(&trial, &candidates->min_peak, 0, NULL, bytes, err));
    }
    ckpt_arena_rewind(m->out, mark);
    return CKPT_OK;
}

/* `*lowest` is what the candidate of minimum peak took under another limit. Under this one the strategy may know
 * another candidate; then try what that one takes. */
static ckpt_code confirm(const ckpt_maker *m, ckpt_bytes *lowest, ckpt_err *err)
{
    bool fits = false;
    for (int i = 0; i < TRIALS && !fits; i++) {
        ckpt_bytes bytes = 0;
        CKPT_TRY(try_limit(m, *lowest, &fits, &bytes, err));
        *lowest = bytes > *lowest ? bytes : *lowest;
    }
    return CKPT_OK;
}

/* Try limits between `low`, at which there is no plan, and `*lowest`, at which there is one: step by step, then
 * halfway. */
static ckpt_code lower(const ckpt_maker *m, ckpt_bytes low, ckpt_bytes *lowest, ckpt_err *err)
{
    ckpt_bytes step = *lowest / 50;
    for (int i = 0; i < TRIALS; i++) {
        const ckpt_bytes gap = *lowest - low;
        if (gap <= *lowest / 100 || ckpt_plan_stopped(m->options)) {
            break;
        }
        const ckpt_bytes limit = step > 0 && step < gap ? *lowest - step : low + gap / 2;
        bool fits = false;
        CKPT_TRY(try_limit(m, limit, &fits, NULL, err));
        step = fits ? 2 * step : 0;
        *(fits ? lowest : &low) = limit;
    }
    return CKPT_OK;
}

ckpt_code ckpt_maker_refuse(const ckpt_maker *m, const ckpt_candidate *min_peak, ckpt_plan *plan, ckpt_err *err)
{
    if (min_peak->sequence.op == NULL) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "every plan takes more than 2^63 ns or bytes");
    }
    ckpt_bytes lowest = 0, below = 0;
    ckpt_candidates_progress(&(ckpt_candidates){0}, "minimum budget", m->limit, m->options);
    CKPT_TRY(ckpt_maker_pack_min_peak(m, min_peak, 0, NULL, &lowest, err));
    *plan = (ckpt_plan){.verdict = CKPT_INFEASIBLE, .solver = min_peak->by != NULL ? min_peak->by : m->strategy->name};
    CKPT_TRY(ckpt_maker_head(m, plan, err));
    CKPT_TRY(ckpt_maker_floor(m, &below, err));
    if (m->strategy->budgeted) {
        CKPT_TRY(confirm(m, &lowest, err));
    }
    const bool fragmented = lowest > min_peak->peak;
    if (m->strategy->budgeted && fragmented && m->graph->op_count <= LOWERED_OPS) {
        CKPT_TRY(lower(m, below > m->limit ? below : m->limit, &lowest, err));
    }
    plan->min_budget_bytes = m->graph->static_bytes + lowest;
    plan->no_schedule_below_bytes = m->graph->static_bytes + below;
    return ckpt_plan_check(plan, m->graph, err);
}

/* Do the figures of a plan follow from its own steps, places and outline? Programs without the graph believe them. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/names.h"
#include "core/formats/plan_impl.h"
#include "core/json/json_member.h"

/* A gap in a file is a decimal number. */
#define GAP_ROUNDING 1e-6

ckpt_code ckpt_plan_peak(const ckpt_plan *plan, ckpt_arena *scratch, ckpt_bytes *peak, ckpt_err *err)
{
    /* Unsigned: live bytes are exact wherever they fit, whatever the sums on the way. */
    uint64_t *const change = CKPT_NEW(scratch, uint64_t, plan->step_count + 1);
    if (change == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "figures of %d steps", plan->step_count);
    }
    for (int i = 0; i < plan->allocation_count; i++) {
        change[plan->allocation[i].from] += (uint64_t)plan->allocation[i].bytes;
        change[plan->allocation[i].to + 1] -= (uint64_t)plan->allocation[i].bytes;
    }
    uint64_t live = (uint64_t)plan->static_bytes;
    uint64_t most = live;
    for (int i = 0; i < plan->step_count; i++) {
        live += change[i];
        most = live > most ? live : most;
    }
    *peak = most <= INT64_MAX ? (ckpt_bytes)most : INT64_MAX;
    return CKPT_OK;
}

typedef struct figures {
    const ckpt_plan *plan;
    const int *target, *buffer; /* as ckpt_plan_check_figures */
    const ckpt_item *root;
    ckpt_arena *scratch;
    ckpt_err *err;
} figures;

static ckpt_code differs(const figures *f, const char *object, const char *key, int64_t stated, const char *from,
                         int64_t found)
{
    ckpt_item summary;
    ckpt_item item;
    const bool there = ckpt_item_find(f->root, object, &summary) && ckpt_item_find(&summary, key, &item);
    return ckpt_item_fail(there ? &item : f->root, f->err, "\"%s\" is %" PRId64 ", but %s make %" PRId64, key, stated,
                          from, found);
}

static ckpt_code check_bound(const figures *f)
{
    const ckpt_plan *const plan = f->plan;
    ckpt_item bound;
    ckpt_item item;
    double gap = 0;
    if (!plan->has_bound || !ckpt_item_find(f->root, "bound", &bound)) {
        return CKPT_OK;
    }
    if (plan->bound_ns > plan->time_ns) {
        return ckpt_item_fail(&bound, f->err,
                              "the bound of %" PRId64 " ns is above the plan's own time of %" PRId64 " ns",
                              plan->bound_ns, plan->time_ns);
    }
    if (!ckpt_item_find(&bound, "gap", &item)) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_item_real(&item, &gap, f->err));
    const double found = plan->bound_ns > 0 ? (double)(plan->time_ns - plan->bound_ns) / (double)plan->bound_ns : 0.0;
    return fabs(gap - found) <= GAP_ROUNDING * (1 + found)
               ? CKPT_OK
               : ckpt_item_fail(&item, f->err, "\"gap\" is %g, but the plan's time and the bound make %g", gap, found);
}

/* The time of a run in its way; -1: the outline does not say that variant's. */
static ckpt_ns run_time(const ckpt_outline_op *op, const ckpt_step *step)
{
    if (step->variant == NULL || (op->variant != NULL && strcmp(op->variant, step->variant) == 0)) {
        return op->time_ns;
    }
    for (int k = 0; k < op->way_count; k++) {
        if (strcmp(op->way[k].name, step->variant) == 0) {
            return op->way[k].time_ns;
        }
    }
    return -1;
}

/* Times and copies of the steps by the outline's times and sizes. */
static ckpt_code check_sums(const figures *f)
{
    const ckpt_plan *const plan = f->plan;
    ckpt_ns time = 0;
    ckpt_ns recomputed = 0;
    ckpt_ns all = 0;
    ckpt_bytes offloaded = 0;
    ckpt_bytes host = 0;
    bool copies = false;
    bool *const was = CKPT_NEW(f->scratch, bool, plan->outline.buffer_count);
    if (was == NULL) {
        return CKPT_FAIL(f->err, CKPT_NO_MEMORY, "copies of %d buffers", plan->outline.buffer_count);
    }
    bool fits = true;
    for (int i = 0; i < plan->step_count; i++) {
        const ckpt_step *const step = &plan->step[i];
        const int at = f->target[i];
        copies = copies || step->kind == CKPT_OFFLOAD || step->kind == CKPT_FETCH;
        if (step->kind == CKPT_RUN) {
            const ckpt_ns run = run_time(&plan->outline.op[at], step);
            if (run < 0) {
                return CKPT_OK; /* no such variant: binding to the graph says so */
            }
            fits = fits && ckpt_sum(time, run, &time) && ckpt_sum(recomputed, step->recomputed ? run : 0, &recomputed);
        } else if (step->kind == CKPT_OFFLOAD) {
            const ckpt_bytes bytes = plan->outline.buffer[at].bytes;
            fits = fits && ckpt_sum(offloaded, bytes, &offloaded) && ckpt_sum(host, was[at] ? 0 : bytes, &host);
            was[at] = true;
        }
    }
    for (int o = 0; o < plan->outline.op_count; o++) {
        all += plan->outline.op[o].time_ns; /* the reader has seen that the sum fits */
    }
    if (!fits) {
        return ckpt_item_fail(f->root, f->err, "the steps take more than 63 bits hold");
    }
    if (copies ? plan->time_ns < time : plan->time_ns != time) {
        return differs(f, "summary", "time_ns", plan->time_ns, copies ? "the runs alone" : "the steps", time);
    }
    const struct {
        const char *key;
        int64_t stated, found;
    } exact[] = {
        {"recompute_ns", plan->recompute_ns, recomputed},
        {"offload_bytes", plan->offload_bytes, offloaded},
        {"host_bytes", plan->host_bytes, host},
    };
    for (size_t k = 0; k < sizeof exact / sizeof exact[0]; k++) {
        if (exact[k].stated != exact[k].found) {
            return differs(f, "summary", exact[k].key, exact[k].stated, "the steps", exact[k].found);
        }
    }
    /* Keep-all runs no optional op, and an outline does not say which are. */
    ckpt_item summary;
    ckpt_item keep_all;
    return plan->keep_all_time_ns > all && ckpt_item_find(f->root, "summary", &summary) &&
                   ckpt_item_find(&summary, "keep_all", &keep_all)
               ? differs(&(figures){.root = &summary, .err = f->err}, "keep_all", "time_ns", plan->keep_all_time_ns,
                         "all ops, each once,", all)
               : CKPT_OK;
}

/* Of every op: recomputed, or written by it and offloaded. Its first place begins where a buffer is written. */
static ckpt_code decide(const figures *f, ckpt_decision **decision)
{
    const ckpt_plan *const plan = f->plan;
    ckpt_decision *const of = *decision =
        CKPT_NEW(f->scratch, ckpt_decision, plan->outline.op_count); /* zeroed: keep */
    int *const written = CKPT_NEW(f->scratch, int, plan->outline.buffer_count);
    if (of == NULL || written == NULL) {
        return CKPT_FAIL(f->err, CKPT_NO_MEMORY, "layers of %d ops", plan->outline.op_count);
    }
    for (int b = 0; b < plan->outline.buffer_count; b++) {
        written[b] = plan->step_count;
    }
    for (int i = 0; i < plan->allocation_count; i++) {
        const int b = f->buffer[i];
        if (b >= 0 && plan->allocation[i].from < written[b]) {
            written[b] = plan->allocation[i].from;
        }
    }
    for (int i = 0; i < plan->step_count; i++) {
        const ckpt_step *const step = &plan->step[i];
        if (step->kind == CKPT_RUN && step->recomputed) {
            of[f->target[i]] = CKPT_RECOMPUTE;
        } else if (step->kind == CKPT_OFFLOAD && written[f->target[i]] < plan->step_count) {
            const int first = written[f->target[i]];
            if (plan->step[first].kind == CKPT_RUN && of[f->target[first]] == CKPT_KEEP) {
                of[f->target[first]] = CKPT_OFFLOADED;
            }
        }
    }
    return CKPT_OK;
}

static ckpt_code layer_fail(const figures *f, const char *what, const char *layer)
{
    ckpt_item layers;
    return ckpt_item_fail(ckpt_item_find(f->root, "layers", &layers) ? &layers : f->root, f->err, "\"%.80s\" %s", layer,
                          what);
}

static ckpt_code layer_differs(const figures *f, const ckpt_layer_decision *stated, ckpt_decision found)
{
    ckpt_item layers;
    ckpt_item item;
    const bool there = ckpt_item_find(f->root, "layers", &layers) && ckpt_item_find(&layers, stated->layer, &item);
    return ckpt_item_fail(there ? &item : f->root, f->err, "\"%.80s\" is said to be \"%s\", the steps make it \"%s\"",
                          stated->layer, ckpt_decision_name(stated->decision), ckpt_decision_name(found));
}

/* "layers" is empty, or right for all layers with a forward op. */
static ckpt_code check_layers(const figures *f)
{
    const ckpt_plan *const plan = f->plan;
    ckpt_decision *decision = NULL;
    ckpt_names known;
    if (plan->layer_count == 0) {
        return CKPT_OK;
    }
    CKPT_TRY(decide(f, &decision));
    CKPT_TRY(ckpt_names_init(&known, plan->layer_count, f->scratch, f->err));
    int *const found = CKPT_NEW(f->scratch, int, plan->layer_count); /* 0: not met, else 1 + the decision */
    if (found == NULL) {
        return CKPT_FAIL(f->err, CKPT_NO_MEMORY, "check of %d layers", plan->layer_count);
    }
    for (int i = 0; i < plan->layer_count; i++) {
        if (ckpt_names_add(&known, plan->layer[i].layer, i) >= 0) {
            return layer_fail(f, "stands there twice", plan->layer[i].layer);
        }
    }
    static const int strength[] = {[CKPT_KEEP] = 0, [CKPT_OFFLOADED] = 1, [CKPT_RECOMPUTE] = 2};
    for (int o = 0; o < plan->outline.op_count; o++) {
        const ckpt_outline_op *const op = &plan->outline.op[o];
        if (op->phase != CKPT_FORWARD || op->layer[0] == '\0') {
            continue;
        }
        const int at = ckpt_names_find(&known, op->layer);
        if (at < 0) {
            return layer_fail(f, "is a layer of the forward pass and missing", op->layer);
        }
        if (found[at] == 0 || strength[decision[o]] > strength[found[at] - 1]) {
            found[at] = 1 + (int)decision[o];
        }
    }
    for (int i = 0; i < plan->layer_count; i++) {
        if (found[i] == 0) {
            return layer_fail(f, "is no layer of the forward pass", plan->layer[i].layer);
        }
        if (plan->layer[i].decision != (ckpt_decision)(found[i] - 1)) {
            return layer_differs(f, &plan->layer[i], (ckpt_decision)(found[i] - 1));
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_plan_check_figures(const ckpt_plan *plan, const int *target, const int *buffer, const ckpt_item *root,
                                  ckpt_arena *scratch, ckpt_err *err)
{
    const figures f = {plan, target, buffer, root, scratch, err};
    ckpt_bytes peak = 0;
    if (plan->verdict != CKPT_FITS) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_plan_peak(plan, scratch, &peak, err));
    if (peak != plan->peak_bytes) {
        return differs(&f, "summary", "peak_bytes", plan->peak_bytes, "static_bytes and the places", peak);
    }
    if (plan->static_bytes + plan->arena_bytes > plan->budget_bytes) {
        return ckpt_item_fail(
            root, err, "static block of %" PRId64 " bytes and arena of %" PRId64 " exceed the budget of %" PRId64,
            plan->static_bytes, plan->arena_bytes, plan->budget_bytes);
    }
    CKPT_TRY(target != NULL ? check_sums(&f) : CKPT_OK);
    CKPT_TRY(check_bound(&f));
    return target != NULL ? check_layers(&f) : CKPT_OK;
}

/* What flows prove of recomputations between two moments, and of those behind the second, added up. */
#include <string.h>

#include "planner/bound/bound_flow_impl.h"

static void need_in(ckpt_flow *f, const ckpt_list *list)
{
    for (int i = 0; i < list->count; i++) {
        f->until[list->at[i]] = 1;
    }
}

/* The most that a flow at the first run of op o proves of recomputations between there and the first run of op `end`. */
static int64_t prove_interval(ckpt_flow *f, int o, int end)
{
    memset(f->until, 0, (size_t)f->graph->buffer_count);
    for (int p = o; p < end; p++) {
        if (!f->op[p].optional) {
            need_in(f, &f->op[p].reads);
            need_in(f, &f->op[p].adds);
        }
        need_in(f, &f->op[p].writes); /* not there yet: nothing can be paid for holding it */
    }
    if (end == f->graph->op_count) {
        need_in(f, &f->graph->outputs);
    }
    f->moments = 1;
    f->moment[0] = o;
    f->begin = o;
    f->end = end;
    int64_t best = 0, value = 0;
    for (int64_t number = CKPT_FLOW_GUESS / 128; number < CKPT_FLOW_LAMBDA_MAX && f->work > 0; number *= 2) {
        f->lambda[0] = number;
        ckpt_flow_evaluate(f);
        best = f->value > value ? number : best;
        value = f->value > value ? f->value : value;
    }
    for (int64_t step = best / 4; best > 0 && step > best / 64 && f->work > 0; step /= 2) {
        const int64_t centre = best;
        for (int side = -1; side <= 1; side += 2) {
            f->lambda[0] = ckpt_flow_least(centre + side * step, CKPT_FLOW_LAMBDA_MAX);
            ckpt_flow_evaluate(f);
            best = f->value > value ? f->lambda[0] : best;
            value = f->value > value ? f->value : value;
        }
    }
    f->begin = 0;
    f->end = f->graph->op_count;
    return value;
}

typedef struct place {
    int op;
    ckpt_bytes capacity, excess;
} place;

static void keep_place(place *kept, int *count, int room, place added, bool (*before)(const place *a, const place *b))
{
    int at = *count < room ? (*count)++ : room;
    if (at == room) {
        at--;
        if (!before(&added, &kept[at])) {
            return;
        }
    }
    for (; at > 0 && before(&added, &kept[at - 1]); at--) {
        kept[at] = kept[at - 1];
    }
    kept[at] = added;
}

static bool tighter(const place *a, const place *b)
{
    return a->capacity < b->capacity;
}

static bool fuller(const place *a, const place *b)
{
    return a->excess > b->excess;
}

/* Ops at whose first runs least can be held, those behind them, ops that want most, and some in between: in order. */
static int find_places(ckpt_flow *f, int *op)
{
    enum { TIGHT = 8, FULL = 8, EVEN = 16 };
    place tight[TIGHT], full[FULL];
    int tights = 0, fulls = 0, count = 0;
    const int n = f->graph->op_count;
    f->moments = 0;
    memset(f->until, 0, (size_t)f->graph->buffer_count);
    memset(f->asked, 0, (size_t)f->graph->buffer_count);
    for (int o = 0; o < n; o++) {
        f->again[o] = false;
    }
    ckpt_bytes *const more = ckpt_flow_find_excess(f);
    for (int o = 0; o < n; o++) {
        const place p = {o, f->capacity[o], more[o]};
        if (more[o] > 0 && !f->graph->op[o].optional) {
            keep_place(tight, &tights, TIGHT, p, tighter);
            keep_place(full, &fulls, FULL, p, fuller);
        }
    }
    bool *const chosen = f->again; /* scratch until the next evaluation */
    for (int i = 0; i < tights; i++) {
        chosen[tight[i].op] = true;
        chosen[tight[i].op + (tight[i].op + 1 < n)] = true;
    }
    for (int i = 0; i < fulls; i++) {
        chosen[full[i].op] = true;
    }
    for (int i = 1; i < EVEN; i++) {
        chosen[(int64_t)n * i / EVEN] = true;
    }
    for (int o = 0; o < n && count < CKPT_FLOW_PLACES; o++) {
        if (chosen[o] && !f->graph->op[o].optional) {
            op[count++] = o;
        }
    }
    return count;
}

/* What is recomputed between two moments and what is recomputed behind the second are different runs: what flows prove
 * of both adds up. The best sequence of moments is a longest path. */
void ckpt_flow_chain_intervals(ckpt_flow *f, ckpt_flow_proof *proof)
{
    int op[CKPT_FLOW_PLACES];
    int64_t best[CKPT_FLOW_PLACES] = {0};
    const int count = find_places(f, op);
    for (int k = 0; k < count && f->work > 0; k++) {
        for (int i = 0; i < k; i++) {
            const int64_t value = best[i] + prove_interval(f, op[i], op[k]);
            best[k] = value > best[k] ? value : best[k];
        }
        const int64_t whole = best[k] + prove_interval(f, op[k], f->graph->op_count);
        if (best[k] > 0 && whole > proof->time) {
            proof->time = whole;
            proof->split = op[k];
            proof->before = best[k];
        }
    }
}

/* Profiles: times of layers, each direction tested on its own, and all of them added up run by run. */
#include <stdlib.h>
#include <string.h>

#include "viz/compare/compare_impl.h"
#include "viz/compare/rank_tests.h"

static const char *const directions[CKPT_DIRECTION_COUNT] = {"forward", "backward", "update"};

static const ckpt_timing *timing_of(const ckpt_profile_row *row, int direction)
{
    return direction == CKPT_DIRECTION_FORWARD    ? &row->forward
           : direction == CKPT_DIRECTION_BACKWARD ? &row->backward
                                                  : &row->update;
}

/* False: a failure. */
static bool index_rows(ckpt_comparer *c, const ckpt_profile *profile, ckpt_names *rows)
{
    const bool ok = ckpt_compare_ok(c, ckpt_names_init(rows, profile->row_count, c->out, c->err));
    for (int i = 0; i < profile->row_count && ok; i++) {
        (void)ckpt_names_add(rows, profile->row[i].layer, i);
    }
    return ok;
}

/* What the layers say of the model: as much work on outputs of another size is another type of number. */
static void match_layers(ckpt_comparer *c, const ckpt_names rows[2])
{
    const ckpt_profile *const base = c->file[0]->profile, *const fresh = c->file[1]->profile;
    int only[2] = {0, 0}, resized = 0, dtypes = 0;
    for (int i = 0; i < base->row_count; i++) {
        const ckpt_profile_row *const x = &base->row[i];
        const int at = ckpt_names_find(&rows[1], x->layer);
        const ckpt_profile_row *const y = at >= 0 ? &fresh->row[at] : x;
        only[0] += at < 0;
        resized += x->output_bytes != y->output_bytes || x->parameter_bytes != y->parameter_bytes;
        dtypes += x->output_bytes != y->output_bytes && x->forward.flop > 0 && x->forward.flop == y->forward.flop;
    }
    for (int i = 0; i < fresh->row_count; i++) {
        only[1] += ckpt_names_find(&rows[0], fresh->row[i].layer) < 0;
    }
    if (only[0] == base->row_count && only[0] > 0 && only[1] > 0) {
        ckpt_compare_mismatched(c, "layers", ckpt_compare_name(c, base->row[0].layer),
                                CKPT_COMPARE_SAY(c, "no %s", ckpt_compare_name(c, base->row[0].layer)));
    } else {
        ckpt_compare_set_model(c, base->row_count, fresh->row_count, only[1], only[0], resized);
        if (dtypes > 0) {
            ckpt_compare_note(c, "outputs of another size are as much work: another type of number");
        }
    }
}

void ckpt_match_profiles(ckpt_comparer *c)
{
    const ckpt_profile *const base = c->file[0]->profile, *const fresh = c->file[1]->profile;
    ckpt_names rows[2];
    if (!index_rows(c, base, &rows[0]) || !index_rows(c, fresh, &rows[1])) {
        return;
    }
    ckpt_match_name(c, "model", base->model, fresh->model);
    if (c->d->mismatch_count == 0) {
        match_layers(c, rows);
    }
    ckpt_match_machines(c, &base->machine, &fresh->machine);
    const bool in_step[2] = {ckpt_profile_is_in_step(base), ckpt_profile_is_in_step(fresh)};
    if (in_step[0] != in_step[1]) {
        ckpt_compare_mismatched(c, "times", in_step[0] ? "in the step" : "of layers alone",
                                in_step[1] ? "in the step" : "of layers alone");
    }
    if (base->flushed != fresh->flushed) {
        ckpt_compare_mismatched(c, "caches", base->flushed ? "flushed before each run" : "left warm",
                                fresh->flushed ? "flushed before each run" : "left warm");
    }
}

/* The time of a layer in one direction. */
static ckpt_number time_of(const ckpt_timing *timing)
{
    ckpt_number number = ckpt_exact(timing->median_ns);
    number.nature = CKPT_SAMPLED;
    number.sample = timing->sample_ns;
    number.samples = timing->sample_ns != NULL ? timing->repeats : 0;
    return number;
}

static bool ran(const ckpt_timing *timing, int of, int direction)
{
    return (of == direction || of == CKPT_ALL_DIRECTIONS) && (timing->median_ns > 0 || timing->repeats > 0);
}

/* Of the step that layers were measured in; else of all layers: the samples are every layer's k-th added up, for as many k
 * as all of them have. */
void ckpt_profile_time(ckpt_comparer *c, int side, int of, ckpt_number *number)
{
    const ckpt_profile *const profile = c->file[side]->profile;
    int fewest = -1;
    ckpt_ns *sum = NULL;
    if (of == CKPT_ALL_DIRECTIONS && ckpt_profile_is_in_step(profile)) {
        *number = time_of(&profile->step.time);
        return;
    }
    for (int pass = 0; pass < 2; pass++) { /* how many samples there are; what they add up to */
        for (int i = 0; i < profile->row_count * CKPT_DIRECTION_COUNT; i++) {
            const int direction = i % CKPT_DIRECTION_COUNT;
            const ckpt_timing *const timing = timing_of(&profile->row[i / CKPT_DIRECTION_COUNT], direction);
            const ckpt_number own = time_of(timing);
            if (!ran(timing, of, direction)) {
                continue;
            }
            if (pass == 0) {
                number->value = ckpt_plus(number->value, own.value);
                fewest = fewest < 0 || own.samples < fewest ? own.samples : fewest;
            }
            for (int k = 0; k < fewest && sum != NULL; k++) {
                sum[k] = ckpt_plus(sum[k], own.sample[k]);
            }
        }
        fewest = fewest > 0 ? fewest : 0;
        sum = pass == 0 ? CKPT_COMPARE_NEW(c, ckpt_ns, fewest) : sum;
    }
    number->has = of != CKPT_ALL_DIRECTIONS || number->value > 0;
    number->nature = CKPT_SAMPLED;
    number->sample = sum;
    number->samples = sum != NULL ? fewest : 0;
}

/* Of all layers together; of the workspaces the largest. */
void ckpt_profile_bytes(ckpt_comparer *c, int side, int of, ckpt_number *number)
{
    const ckpt_profile *const profile = c->file[side]->profile;
    *number = ckpt_exact(0);
    for (int i = 0; i < profile->row_count; i++) {
        const ckpt_profile_row *const row = &profile->row[i];
        ckpt_bytes bytes = 0;
        memcpy(&bytes, (const char *)row + of, sizeof bytes);
        if ((size_t)of == offsetof(ckpt_profile_row, forward_workspace_bytes)) {
            bytes = bytes > row->backward_workspace_bytes ? bytes : row->backward_workspace_bytes;
            number->value = bytes > number->value ? bytes : number->value;
        } else {
            number->value = ckpt_plus(number->value, bytes);
        }
    }
}

/* Of 10^9 bytes, at the rate that stands there; only where both have measured it. */
void ckpt_profile_copy(ckpt_comparer *c, int side, int of, ckpt_number *number)
{
    int64_t rate[2];
    for (int s = 0; s < 2; s++) {
        memcpy(&rate[s], (const char *)c->file[s]->profile + of, sizeof rate[s]);
    }
    if (rate[0] > 0 && rate[1] > 0) {
        *number = ckpt_exact((ckpt_ns)(1e18 / (double)rate[side]));
        number->nature = CKPT_ONCE;
    }
}

static bool certain(ckpt_compare_change change)
{
    return change == CKPT_CHANGE_WORSE || change == CKPT_CHANGE_BETTER || change == CKPT_CHANGE_MISSING;
}

/* The most telling first. */
static int by_weight(const void *x, const void *y)
{
    const ckpt_compare_row *const a = x, *const b = y;
    const bool sure_a = certain(a->value.change), sure_b = certain(b->value.change);
    const int64_t own = llabs(a->value.fresh - a->value.base), other = llabs(b->value.fresh - b->value.base);
    const int order = strcmp(a->name, b->name);
    return sure_a != sure_b ? (sure_a ? -1 : 1)
           : own != other   ? (own < other ? 1 : -1)
           : order != 0     ? order
                            : strcmp(a->part, b->part);
}

/* Tested together, and so by Holm's correction. */
static void finish_rows(ckpt_comparer *c, ckpt_compare_row *row, int count)
{
    double **const p = CKPT_COMPARE_NEW(c, double *, count);
    int tested = 0;
    for (int i = 0; i < count && p != NULL; i++) {
        if (row[i].value.tested) {
            p[tested++] = &row[i].value.p;
        }
    }
    if (p == NULL || !ckpt_compare_ok(c, ckpt_holm_adjust(p, tested, c->out, c->err))) {
        return;
    }
    for (int i = 0; i < count; i++) {
        ckpt_compare_judge(c, &row[i].value);
    }
    qsort(row, (size_t)count, sizeof *row, by_weight);
    c->d->row = row;
    c->d->row_count = count;
    c->d->row_title = "layer";
}

/* Rows of one layer, NULL: that side lacks it. Not of those that repeat another's figures. */
static int add_layer(ckpt_comparer *c, const ckpt_profile_row *x, const ckpt_profile_row *y, ckpt_compare_row *row)
{
    const bool own = (x != NULL && x->same_as[0] == '\0') || (y != NULL && y->same_as[0] == '\0');
    int count = 0;
    for (int d = 0; d < CKPT_DIRECTION_COUNT && own; d++) {
        const ckpt_number none = {.where = "", .why = ""};
        const ckpt_number was = x != NULL ? time_of(timing_of(x, d)) : none,
                          is = y != NULL ? time_of(timing_of(y, d)) : none;
        if (was.value != 0 || is.value != 0) {
            row[count++] =
                (ckpt_compare_row){.name = x != NULL ? x->layer : y->layer,
                                   .part = directions[d],
                                   .value = ckpt_compare_value_of(c, ckpt_metric_find(directions[d]), &was, &is)};
        }
    }
    return count;
}

void ckpt_compare_profiles(ckpt_comparer *c)
{
    const ckpt_profile *const base = c->file[0]->profile, *const fresh = c->file[1]->profile;
    ckpt_compare_row *const row = CKPT_COMPARE_NEW(
        c, ckpt_compare_row, ((size_t)base->row_count + (size_t)fresh->row_count) * CKPT_DIRECTION_COUNT);
    ckpt_names rows[2];
    int count = 0;
    if (row == NULL || !index_rows(c, base, &rows[0]) || !index_rows(c, fresh, &rows[1])) {
        return;
    }
    for (int i = 0; i < base->row_count; i++) {
        const int at = ckpt_names_find(&rows[1], base->row[i].layer);
        count += add_layer(c, &base->row[i], at >= 0 ? &fresh->row[at] : NULL, &row[count]);
    }
    for (int i = 0; i < fresh->row_count; i++) {
        if (ckpt_names_find(&rows[0], fresh->row[i].layer) < 0) {
            count += add_layer(c, NULL, &fresh->row[i], &row[count]);
        }
    }
    finish_rows(c, row, count);
}

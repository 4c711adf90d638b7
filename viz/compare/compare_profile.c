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

/* A profile with its rows by name. */
typedef struct side {
    const ckpt_profile *profile;
    ckpt_name_table rows;
} side;

static ckpt_code index_rows(ckpt_comparer *c, const ckpt_profile *profile, side *s)
{
    s->profile = profile;
    CKPT_TRY(ckpt_name_table_init(&s->rows, profile->row_count, c));
    for (int i = 0; i < profile->row_count; i++) {
        ckpt_name_table_add(&s->rows, profile->row[i].layer, i);
    }
    ckpt_name_table_sort(&s->rows);
    return CKPT_OK;
}

/* "cpu: AMD EPYC, 2 threads, Linux 6.18" names a device up to its first comma. */
ckpt_code ckpt_match_machines(ckpt_comparer *c, const ckpt_machine *base, const ckpt_machine *fresh)
{
    const size_t a = strcspn(base->device, ","), b = strcspn(fresh->device, ",");
    if (a > 0 && b > 0 && (a != b || strncmp(base->device, fresh->device, a) != 0)) {
        return ckpt_compare_mismatched(
            c, "device",
            ckpt_compare_name(c->out, ckpt_arena_format(c->out, "%.*s", (int)(a < 200 ? a : 200), base->device)),
            ckpt_compare_name(c->out, ckpt_arena_format(c->out, "%.*s", (int)(b < 200 ? b : 200), fresh->device)));
    }
    return ckpt_match_target(c, base->gpu, base->threads, fresh->gpu, fresh->threads);
}

ckpt_code ckpt_note_software(ckpt_comparer *c, const ckpt_machine *base, const ckpt_machine *fresh)
{
    if (strcmp(base->libraries, fresh->libraries) == 0 || base->libraries[0] == '\0' || fresh->libraries[0] == '\0') {
        return CKPT_OK;
    }
    const char *const was = ckpt_compare_name(c->out, base->libraries), *const is =
                                                                            ckpt_compare_name(c->out, fresh->libraries);
    return ckpt_compare_note(
        c, was != NULL && is != NULL ? ckpt_arena_format(c->out, "other libraries: %s, now %s", was, is) : NULL);
}

static ckpt_code match_layers(ckpt_comparer *c, const side *a, const side *b)
{
    for (int turn = 0; turn < 2; turn++) {
        const side *const has = turn == 0 ? a : b, *const lacks = turn == 0 ? b : a;
        for (int i = 0; i < has->profile->row_count; i++) {
            const char *const layer = has->profile->row[i].layer;
            if (ckpt_name_table_find(&lacks->rows, layer) < 0) {
                const char *const name = ckpt_compare_name(c->out, layer);
                const char *const none = name != NULL ? ckpt_arena_format(c->out, "no %s", name) : NULL;
                return ckpt_compare_mismatched(c, "layers", turn == 0 ? name : none, turn == 0 ? none : name);
            }
        }
    }
    return CKPT_OK;
}

/* Outputs of another size: as much work on them is another type of number, else another batch. */
static ckpt_code match_sizes(ckpt_comparer *c, const side *a, const side *b)
{
    for (int i = 0; i < a->profile->row_count; i++) {
        const ckpt_profile_row *const x = &a->profile->row[i];
        const int at = ckpt_name_table_find(&b->rows, x->layer);
        const ckpt_profile_row *const y = at >= 0 ? &b->profile->row[at] : x;
        if (x->parameter_bytes == y->parameter_bytes && x->output_bytes == y->output_bytes) {
            continue;
        }
        char was[CKPT_UNITS_TEXT], is[CKPT_UNITS_TEXT];
        const bool model = x->parameter_bytes != y->parameter_bytes;
        const bool dtype = !model && x->forward.flop > 0 && x->forward.flop == y->forward.flop;
        const char *const name = ckpt_compare_name(c->out, x->layer);
        if (name == NULL) {
            return ckpt_compare_mismatched(c, "batch", NULL, NULL);
        }
        const char *const of = model ? "parameters in" : "from";
        return ckpt_compare_mismatched(
            c,
            model   ? "layers"
            : dtype ? "dtype"
                    : "batch",
            ckpt_arena_format(c->out, "%s %s %s", ckpt_bytes_show(model ? x->parameter_bytes : x->output_bytes, was),
                              of, name),
            ckpt_arena_format(c->out, "%s %s %s", ckpt_bytes_show(model ? y->parameter_bytes : y->output_bytes, is), of,
                              name));
    }
    return CKPT_OK;
}

ckpt_code ckpt_match_profiles(ckpt_comparer *c)
{
    const ckpt_profile *const base = c->base->profile, *const fresh = c->fresh->profile;
    side a, b;
    CKPT_TRY(index_rows(c, base, &a));
    CKPT_TRY(index_rows(c, fresh, &b));
    CKPT_TRY(ckpt_match_name(c, "model", base->model, fresh->model));
    if (c->d->mismatch_count == 0) {
        CKPT_TRY(match_layers(c, &a, &b));
    }
    if (c->d->mismatch_count == 0) {
        CKPT_TRY(match_sizes(c, &a, &b));
    }
    CKPT_TRY(ckpt_match_machines(c, &base->machine, &fresh->machine));
    if (base->flushed != fresh->flushed) {
        CKPT_TRY(ckpt_compare_mismatched(c, "caches", base->flushed ? "flushed before each run" : "left warm",
                                         fresh->flushed ? "flushed before each run" : "left warm"));
    }
    return ckpt_note_software(c, &base->machine, &fresh->machine);
}

static bool ran(const ckpt_timing *timing, unsigned which, int direction)
{
    return (which & 1U << direction) != 0 && (timing->median_ns > 0 || timing->repeats > 0);
}

/* Every layer's k-th sample added up, for as many k as all of them have. *count 0: some have none. */
static ckpt_code add_up(ckpt_comparer *c, const ckpt_profile *profile, unsigned which, ckpt_ns *median,
                        const ckpt_ns **sample, int *count)
{
    int least = -1;
    *median = 0;
    for (int i = 0; i < profile->row_count; i++) {
        for (int d = 0; d < CKPT_DIRECTION_COUNT; d++) {
            const ckpt_timing *const t = timing_of(&profile->row[i], d);
            if (ran(t, which, d)) {
                const int samples = t->sample_ns != NULL ? t->repeats : 0;
                *median = ckpt_plus(*median, t->median_ns);
                least = least < 0 || samples < least ? samples : least;
            }
        }
    }
    *count = least > 0 ? least : 0;
    ckpt_ns *const sum = CKPT_NEW(c->out, ckpt_ns, *count);
    if (sum == NULL) {
        return CKPT_FAIL(c->err, CKPT_NO_MEMORY, "no memory for %d samples", *count);
    }
    for (int i = 0; i < profile->row_count; i++) {
        for (int d = 0; d < CKPT_DIRECTION_COUNT; d++) {
            const ckpt_timing *const t = timing_of(&profile->row[i], d);
            for (int k = 0; k < *count && ran(t, which, d); k++) {
                sum[k] = ckpt_plus(sum[k], t->sample_ns[k]);
            }
        }
    }
    *sample = sum;
    return CKPT_OK;
}

static ckpt_code add_time(ckpt_comparer *c, const char *metric, unsigned which)
{
    ckpt_ns was = 0, is = 0;
    const ckpt_ns *base = NULL, *fresh = NULL;
    int base_count = 0, count = 0;
    CKPT_TRY(add_up(c, c->base->profile, which, &was, &base, &base_count));
    CKPT_TRY(add_up(c, c->fresh->profile, which, &is, &fresh, &count));
    if (was == 0 && is == 0) {
        return CKPT_OK;
    }
    return ckpt_compare_samples(c, ckpt_compare_add(c, metric, was, is), base, base_count, fresh, count);
}

static void add_bytes(ckpt_comparer *c)
{
    ckpt_bytes sum[2][4] = {{0}};
    for (int s = 0; s < 2; s++) {
        const ckpt_profile *const p = s == 0 ? c->base->profile : c->fresh->profile;
        for (int i = 0; i < p->row_count; i++) {
            const ckpt_profile_row *const row = &p->row[i];
            const ckpt_bytes workspace = row->forward_workspace_bytes > row->backward_workspace_bytes
                                             ? row->forward_workspace_bytes
                                             : row->backward_workspace_bytes;
            sum[s][0] = ckpt_plus(sum[s][0], row->output_bytes);
            sum[s][1] = ckpt_plus(sum[s][1], row->saved_bytes);
            sum[s][2] = workspace > sum[s][2] ? workspace : sum[s][2];
            sum[s][3] = ckpt_plus(sum[s][3], row->parameter_bytes);
        }
    }
    static const char *const metric[4] = {"outputs", "saved", "workspace", "parameters"};
    for (int k = 0; k < 4; k++) {
        ckpt_compare_add(c, metric[k], sum[0][k], sum[1][k]);
    }
}

static void add_link(ckpt_comparer *c, const char *metric, int64_t base, int64_t fresh)
{
    if (base > 0 && fresh > 0) {
        ckpt_compare_add(c, metric, (ckpt_ns)(1e18 / (double)base), (ckpt_ns)(1e18 / (double)fresh))->nature =
            CKPT_ONCE;
    }
}

/* Tested together, and so by Holm's correction; then the most telling first. */
static int by_weight(const void *x, const void *y)
{
    const ckpt_compare_row *const a = x, *const b = y;
    const bool sure_a = a->value.change == CKPT_CHANGE_WORSE || a->value.change == CKPT_CHANGE_BETTER;
    const bool sure_b = b->value.change == CKPT_CHANGE_WORSE || b->value.change == CKPT_CHANGE_BETTER;
    const int64_t own = llabs(a->value.fresh - a->value.base), other = llabs(b->value.fresh - b->value.base);
    const int order = strcmp(a->name, b->name);
    return sure_a != sure_b ? (sure_a ? -1 : 1)
           : own != other   ? (own < other ? 1 : -1)
           : order != 0     ? order
                            : strcmp(a->part, b->part);
}

static ckpt_code finish_rows(ckpt_comparer *c, ckpt_compare_row *row, int count)
{
    double **const p = CKPT_NEW(c->out, double *, count);
    if (p == NULL) {
        return CKPT_FAIL(c->err, CKPT_NO_MEMORY, "no memory for %d layers", count);
    }
    int tested = 0;
    for (int i = 0; i < count; i++) {
        if (row[i].value.tested) {
            p[tested++] = &row[i].value.p;
        }
    }
    CKPT_TRY(ckpt_holm_adjust(p, tested, c->out, c->err));
    for (int i = 0; i < count; i++) {
        CKPT_TRY(ckpt_compare_judge(c, &row[i].value));
    }
    qsort(row, (size_t)count, sizeof *row, by_weight);
    c->d->row = row;
    c->d->row_count = count;
    c->d->row_title = "layer";
    return CKPT_OK;
}

/* Layers that were measured in both, not those that repeat another's figures. */
static ckpt_code add_rows(ckpt_comparer *c, const side *a, const side *b)
{
    ckpt_compare_row *const row =
        CKPT_NEW(c->out, ckpt_compare_row, (size_t)a->profile->row_count * CKPT_DIRECTION_COUNT);
    if (row == NULL) {
        return CKPT_FAIL(c->err, CKPT_NO_MEMORY, "no memory for %d layers", a->profile->row_count);
    }
    int count = 0;
    for (int i = 0; i < a->profile->row_count; i++) {
        const ckpt_profile_row *const x = &a->profile->row[i];
        const int at = ckpt_name_table_find(&b->rows, x->layer);
        const ckpt_profile_row *const y = at >= 0 ? &b->profile->row[at] : NULL;
        if (y == NULL || (x->same_as[0] != '\0' && y->same_as[0] != '\0')) {
            continue;
        }
        for (int d = 0; d < CKPT_DIRECTION_COUNT; d++) {
            const ckpt_timing *const s = timing_of(x, d), *const t = timing_of(y, d);
            if (s->median_ns == 0 && t->median_ns == 0) {
                continue;
            }
            ckpt_compare_row *const r = &row[count++];
            *r = (ckpt_compare_row){.name = x->layer,
                                    .part = directions[d],
                                    .value = ckpt_compare_number(directions[d], s->median_ns, t->median_ns)};
            CKPT_TRY(ckpt_compare_samples(c, &r->value, s->sample_ns, s->sample_ns != NULL ? s->repeats : 0,
                                          t->sample_ns, t->sample_ns != NULL ? t->repeats : 0));
        }
    }
    return finish_rows(c, row, count);
}

ckpt_code ckpt_compare_profiles(ckpt_comparer *c)
{
    side a, b;
    CKPT_TRY(index_rows(c, c->base->profile, &a));
    CKPT_TRY(index_rows(c, c->fresh->profile, &b));
    CKPT_TRY(add_time(c, "step_time", 7));
    for (int d = 0; d < CKPT_DIRECTION_COUNT; d++) {
        CKPT_TRY(add_time(c, directions[d], 1U << d));
    }
    add_bytes(c);
    add_link(c, "copy_out", a.profile->d2h_bytes_per_s, b.profile->d2h_bytes_per_s);
    add_link(c, "copy_in", a.profile->h2d_bytes_per_s, b.profile->h2d_bytes_per_s);
    return add_rows(c, &a, &b);
}

/* The summary of ckpt-profile: a few lines, the most expensive parts of a step first. */
#include <stdlib.h>
#include <string.h>

#include "programs/profile/profile_request_impl.h"

enum { SLOWEST = 5, NAME_SHOWN = 48 };

/* One direction of a distinct layer, with all the layers that are the same. */
typedef struct part {
    const ckpt_profile_row *row;
    ckpt_direction direction;
    const ckpt_timing *timing;
    int layers;
    ckpt_ns total_ns;
} part;

static const ckpt_timing *timing_of(const ckpt_profile_row *row, int direction)
{
    return direction == CKPT_DIRECTION_FORWARD    ? &row->forward
           : direction == CKPT_DIRECTION_BACKWARD ? &row->backward
                                                  : &row->update;
}

static int compare_parts(const void *a, const void *b)
{
    const part *const x = a, *const y = b;
    if (x->total_ns != y->total_ns) {
        return x->total_ns < y->total_ns ? 1 : -1;
    }
    return x->row != y->row ? (x->row > y->row) - (x->row < y->row) : (int)x->direction - (int)y->direction;
}

static const ckpt_profile_kernel *longest_kernel(const part *p)
{
    const ckpt_profile_kernel *longest = NULL;
    for (int k = 0; k < p->row->kernel_count; k++) {
        const ckpt_profile_kernel *const kernel = &p->row->kernel[k];
        if (kernel->direction == p->direction && (longest == NULL || kernel->median_ns > longest->median_ns)) {
            longest = kernel;
        }
    }
    return longest;
}

/* "  23.4 %  2.13 ms  12 x h.0.fc (linear) backward, 61 % of the data sheet's rate, mostly gemm" */
static void add_part(ckpt_text *text, const part *p, ckpt_ns all_ns)
{
    static const char *const name[] = {"forward", "backward", "update"};
    char shown[CKPT_UNITS_TEXT];
    ckpt_text_add(text, "  %4.1f %%  %-8s  ", 100 * (double)p->total_ns / (double)all_ns,
                  ckpt_ns_show(p->total_ns, shown));
    if (p->layers > 1) {
        ckpt_text_add(text, "%d x ", p->layers);
    }
    ckpt_text_add(text, "%s (%s) %s", p->row->layer, p->row->op, name[p->direction]);
    if (p->timing->roofline > 0) {
        ckpt_text_add(text, ", %.0f %% of the data sheet's rate", 100 * p->timing->roofline);
    }
    const ckpt_profile_kernel *const kernel = longest_kernel(p);
    if (kernel != NULL) {
        const bool all = strlen(kernel->name) <= NAME_SHOWN;
        ckpt_text_add(text, ", mostly %.*s%s", NAME_SHOWN, kernel->name, all ? "" : "...");
    }
    ckpt_text_add(text, "\n");
}

static int count_parts(const ckpt_profile *profile, part *at)
{
    int parts = 0;
    for (int i = 0; i < profile->row_count; i++) {
        const ckpt_profile_row *const row = &profile->row[i];
        const ckpt_profile_row *const measured =
            row->same_as[0] == '\0' ? row : ckpt_profile_find(profile, row->same_as);
        for (int d = 0; d < CKPT_DIRECTION_COUNT && measured != NULL; d++) {
            part *const p = &at[(measured - profile->row) * CKPT_DIRECTION_COUNT + d];
            parts += p->layers == 0;
            p->row = measured;
            p->direction = (ckpt_direction)d;
            p->timing = timing_of(measured, d);
            p->layers++;
            p->total_ns += p->timing->median_ns;
        }
    }
    return parts;
}

static void add_link(ckpt_text *text, const ckpt_profile *profile)
{
    if (profile->d2h_bytes_per_s <= 0) {
        return;
    }
    ckpt_text_add(text, "copies to the host and back: %.1f and %.1f GB/s alone", (double)profile->d2h_bytes_per_s / 1e9,
                  (double)profile->h2d_bytes_per_s / 1e9);
    if (profile->d2h_busy_bytes_per_s > 0) {
        ckpt_text_add(text, ", %.1f and %.1f GB/s beside kernels and each other",
                      (double)profile->d2h_busy_bytes_per_s / 1e9, (double)profile->h2d_busy_bytes_per_s / 1e9);
    }
    ckpt_text_add(text, "\n");
}

static void add_directions(ckpt_text *text, const ckpt_ns total[CKPT_DIRECTION_COUNT])
{
    char f[CKPT_UNITS_TEXT], b[CKPT_UNITS_TEXT], u[CKPT_UNITS_TEXT];
    ckpt_text_add(text, "forward %s, backward %s, update %s", ckpt_ns_show(total[0], f), ckpt_ns_show(total[1], b),
                  ckpt_ns_show(total[2], u));
}

/* "; a step by keep-all: 361 ms, median of 5 (forward 120 ms, ..., beside them 20 us)" */
static void add_step(ckpt_text *text, const ckpt_profile_step *step, const ckpt_ns total[CKPT_DIRECTION_COUNT])
{
    char a[CKPT_UNITS_TEXT], o[CKPT_UNITS_TEXT];
    ckpt_text_add(text, "; a step by %s: %s, median of %d (", step->plan, ckpt_ns_show(step->time.median_ns, a),
                  step->time.repeats);
    add_directions(text, total);
    ckpt_text_add(text, ", beside them %s)", ckpt_ns_show(step->overhead_ns, o));
}

ckpt_code ckpt_profile_summary(const ckpt_profile *profile, const ckpt_device_model *roofline, ckpt_ns spent_ns,
                               ckpt_arena *scratch, ckpt_text *text, ckpt_err *err)
{
    const int rows = profile->row_count;
    part *const at = CKPT_NEW(scratch, part, rows * CKPT_DIRECTION_COUNT);
    if (at == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a summary of %d layers", rows);
    }
    ckpt_ns total[CKPT_DIRECTION_COUNT] = {0}, alone = 0;
    int measured = 0;
    for (int i = 0; i < rows; i++) {
        measured += profile->row[i].same_as[0] == '\0';
        for (int d = 0; d < CKPT_DIRECTION_COUNT; d++) {
            total[d] += timing_of(&profile->row[i], d)->median_ns;
            alone += timing_of(&profile->row[i], d)->alone_ns;
        }
    }
    const int parts = count_parts(profile, at);
    qsort(at, (size_t)rows * CKPT_DIRECTION_COUNT, sizeof at[0], compare_parts);
    const ckpt_ns all = total[0] + total[1] + total[2];
    char s[CKPT_UNITS_TEXT], a[CKPT_UNITS_TEXT];
    const char *const caches = profile->flushed ? "flushed before each run" : "not flushed";
    ckpt_text_add(text, "%s: %d layers, %d distinct ones measured in %s on random data", profile->model, rows, measured,
                  ckpt_ns_show(spent_ns, s));
    if (ckpt_profile_is_in_step(profile)) {
        add_step(text, &profile->step, total);
        ckpt_text_add(text, "; the same layers alone, caches %s: %s\n", caches, ckpt_ns_show(alone, a));
    } else {
        ckpt_text_add(text, ", caches %s; a step by their sum: %s (", caches, ckpt_ns_show(all, a));
        add_directions(text, total);
        ckpt_text_add(text, ")\n");
    }
    for (int i = 0; i < SLOWEST && i < parts && at[i].total_ns > 0; i++) {
        add_part(text, &at[i], all);
    }
    if (roofline != NULL) {
        ckpt_text_add(text, "data sheet: %s\n", roofline->about);
    }
    add_link(text, profile);
    if (profile->recorder[0] != '\0') {
        ckpt_text_add(text, "recorded by %s\n", profile->recorder);
    }
    return CKPT_OK;
}

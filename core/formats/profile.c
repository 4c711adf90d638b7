/* ckpt-profile/1 to and from a file, one layer a line. */
#include "core/formats/profile.h"

#include <string.h>

#include "core/base/names.h"
#include "core/formats/machine_impl.h"
#include "core/json/json_member.h"

/* Where an integer of a row or a timing is kept, by its key. */
typedef struct field {
    const char *key;
    size_t offset;
} field;

static const field fields[] = {
    {"output_bytes", offsetof(ckpt_profile_row, output_bytes)},
    {"saved_bytes", offsetof(ckpt_profile_row, saved_bytes)},
    {"forward_workspace_bytes", offsetof(ckpt_profile_row, forward_workspace_bytes)},
    {"backward_workspace_bytes", offsetof(ckpt_profile_row, backward_workspace_bytes)},
    {"parameter_bytes", offsetof(ckpt_profile_row, parameter_bytes)},
    {"gradient_bytes", offsetof(ckpt_profile_row, gradient_bytes)},
    {"optimizer_bytes", offsetof(ckpt_profile_row, optimizer_bytes)},
};
enum { FIELD_COUNT = sizeof fields / sizeof fields[0] };

/* Of a timing, where they are known. */
static const field facts[] = {
    {"alone_ns", offsetof(ckpt_timing, alone_ns)},
    {"flop", offsetof(ckpt_timing, flop)},
    {"moved_bytes", offsetof(ckpt_timing, moved_bytes)},
    {"kernel_ns", offsetof(ckpt_timing, kernel_ns)},
    {"gap_ns", offsetof(ckpt_timing, gap_ns)},
    {"cycles", offsetof(ckpt_timing, cycles)},
    {"instructions", offsetof(ckpt_timing, instructions)},
    {"cache_misses", offsetof(ckpt_timing, cache_misses)},
};
enum { FACT_COUNT = sizeof facts / sizeof facts[0] };

static const char *const directions[CKPT_DIRECTION_COUNT] = {"forward", "backward", "update"};

bool ckpt_profile_is_in_step(const ckpt_profile *profile)
{
    return profile->step.time.repeats > 0;
}

const ckpt_profile_row *ckpt_profile_find(const ckpt_profile *profile, const char *layer)
{
    for (int i = 0; i < profile->row_count; i++) {
        if (strcmp(profile->row[i].layer, layer) == 0) {
            return &profile->row[i];
        }
    }
    return NULL;
}

typedef struct reader {
    ckpt_arena *out;
    ckpt_profile *profile;
    ckpt_err *err;
} reader;

static ckpt_code read_fields(const reader *r, const ckpt_item *item, const field *of, int count, void *into)
{
    for (int f = 0; f < count; f++) {
        int64_t *const value = (int64_t *)(void *)((char *)into + of[f].offset);
        CKPT_TRY(ckpt_member_int(item, of[f].key, 0, INT64_MAX, 0, value, r->err));
    }
    return CKPT_OK;
}

static ckpt_code read_share(const reader *r, const ckpt_item *timing, double *share)
{
    ckpt_item item;
    if (!ckpt_item_find(timing, "roofline", &item)) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_item_real(&item, share, r->err));
    return *share >= 0 ? CKPT_OK : ckpt_item_fail(&item, r->err, "\"roofline\": found %g, wanted 0 or more", *share);
}

/* One time for each of the repeats. */
static ckpt_code read_samples(const reader *r, const ckpt_item *timing, ckpt_timing *into)
{
    ckpt_item array;
    int count = 0;
    if (!ckpt_item_find(timing, "samples_ns", &array)) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_item_array(&array, &count, r->err));
    if (count != into->repeats) {
        return ckpt_item_fail(&array, r->err, "found %d samples of %d repeats", count, into->repeats);
    }
    ckpt_ns *const sample = CKPT_NEW(r->out, ckpt_ns, count);
    if (sample == NULL) {
        return CKPT_FAIL(r->err, CKPT_NO_MEMORY, "%.200s: no memory for %d samples", r->profile->source, count);
    }
    CKPT_TRY(ckpt_ns_list_read(&array, sample, r->err));
    into->sample_ns = count > 0 ? sample : NULL;
    return CKPT_OK;
}

/* A missing timing is zero: a layer without parameters has no update. */
static ckpt_code read_timing(const reader *r, const ckpt_item *row, const char *key, bool required, ckpt_timing *timing)
{
    ckpt_item item;
    int64_t repeats = 0, launches = 0;
    if (!required && !ckpt_item_find(row, key, &item)) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_item_need(row, key, &item, r->err));
    CKPT_TRY(ckpt_need_int(&item, "median_ns", 0, INT64_MAX, &timing->median_ns, r->err));
    CKPT_TRY(ckpt_member_int(&item, "spread_ns", 0, INT64_MAX, 0, &timing->spread_ns, r->err));
    CKPT_TRY(ckpt_member_int(&item, "repeats", 0, INT32_MAX, 0, &repeats, r->err));
    CKPT_TRY(ckpt_member_int(&item, "launches", 0, INT32_MAX, 0, &launches, r->err));
    timing->repeats = (int)repeats;
    timing->launches = (int)launches;
    CKPT_TRY(read_samples(r, &item, timing));
    CKPT_TRY(read_fields(r, &item, facts, FACT_COUNT, timing));
    return read_share(r, &item, &timing->roofline);
}

static ckpt_code read_direction(const reader *r, const ckpt_item *kernel, ckpt_direction *direction)
{
    ckpt_item item;
    const char *text = "";
    CKPT_TRY(ckpt_item_need(kernel, "direction", &item, r->err));
    CKPT_TRY(ckpt_item_text(&item, r->out, &text, r->err));
    for (int d = 0; d < CKPT_DIRECTION_COUNT; d++) {
        if (strcmp(text, directions[d]) == 0) {
            *direction = (ckpt_direction)d;
            return CKPT_OK;
        }
    }
    return ckpt_item_fail(&item, r->err, "found direction \"%.40s\", wanted forward, backward or update", text);
}

static ckpt_code read_kernels(const reader *r, const ckpt_item *item, ckpt_profile_row *row)
{
    ckpt_item array;
    CKPT_TRY(ckpt_member_array(item, "kernels", &array, &row->kernel_count, r->err));
    ckpt_profile_kernel *const kernel = CKPT_NEW(r->out, ckpt_profile_kernel, row->kernel_count);
    if (kernel == NULL) {
        return CKPT_FAIL(r->err, CKPT_NO_MEMORY, "%.200s: no memory for %d kernels", r->profile->source,
                         row->kernel_count);
    }
    for (int k = 0; k < row->kernel_count; k++) {
        ckpt_item one;
        int64_t count = 0;
        ckpt_item_at(&array, k, &one);
        CKPT_TRY(read_direction(r, &one, &kernel[k].direction));
        CKPT_TRY(ckpt_need_text(&one, "name", r->out, &kernel[k].name, r->err));
        CKPT_TRY(ckpt_need_int(&one, "count", 1, INT32_MAX, &count, r->err));
        CKPT_TRY(ckpt_need_int(&one, "median_ns", 0, INT64_MAX, &kernel[k].median_ns, r->err));
        kernel[k].count = (int)count;
    }
    row->kernel = kernel;
    return CKPT_OK;
}

static ckpt_code read_ways(const reader *r, const ckpt_item *item, ckpt_profile_row *row)
{
    ckpt_item array;
    CKPT_TRY(ckpt_member_array(item, "variants", &array, &row->way_count, r->err));
    ckpt_profile_way *const way = CKPT_NEW(r->out, ckpt_profile_way, row->way_count);
    if (way == NULL) {
        return CKPT_FAIL(r->err, CKPT_NO_MEMORY, "%.200s: no memory for %d variants", r->profile->source,
                         row->way_count);
    }
    for (int k = 0; k < row->way_count; k++) {
        ckpt_item one;
        ckpt_item_at(&array, k, &one);
        CKPT_TRY(read_direction(r, &one, &way[k].direction));
        CKPT_TRY(ckpt_need_text(&one, "variant", r->out, &way[k].name, r->err));
        CKPT_TRY(read_timing(r, &one, "time", true, &way[k].timing));
        CKPT_TRY(ckpt_member_int(&one, "workspace_bytes", 0, INT64_MAX, 0, &way[k].workspace_bytes, r->err));
    }
    row->way = way;
    return CKPT_OK;
}

static ckpt_code read_row(const reader *r, const ckpt_item *item, ckpt_profile_row *row)
{
    CKPT_TRY(ckpt_need_text(item, "layer", r->out, &row->layer, r->err));
    CKPT_TRY(ckpt_member_text(item, "op", "", r->out, &row->op, r->err));
    CKPT_TRY(ckpt_member_text(item, "same_as", "", r->out, &row->same_as, r->err));
    CKPT_TRY(read_timing(r, item, "forward", true, &row->forward));
    CKPT_TRY(read_timing(r, item, "backward", false, &row->backward));
    CKPT_TRY(read_timing(r, item, "update", false, &row->update));
    CKPT_TRY(read_timing(r, item, "recompute", false, &row->recompute));
    CKPT_TRY(read_fields(r, item, fields, FIELD_COUNT, row));
    CKPT_TRY(ckpt_member_text(item, "algorithms", "", r->out, &row->algorithms, r->err));
    CKPT_TRY(read_ways(r, item, row));
    return read_kernels(r, item, row);
}

/* Samples and algorithms stand in the row that was measured, and are of its twins too. */
static void share_samples(const ckpt_timing *from, ckpt_timing *timing)
{
    if (timing->sample_ns == NULL && timing->repeats == from->repeats && timing->median_ns == from->median_ns) {
        timing->sample_ns = from->sample_ns;
    }
}

static void share_rows(const ckpt_names *names, ckpt_profile_row *row, int count)
{
    for (int i = 0; i < count; i++) {
        const int twin = row[i].same_as[0] != '\0' ? ckpt_names_find(names, row[i].same_as) : -1;
        if (twin >= 0) {
            share_samples(&row[twin].forward, &row[i].forward);
            share_samples(&row[twin].backward, &row[i].backward);
            share_samples(&row[twin].update, &row[i].update);
            share_samples(&row[twin].recompute, &row[i].recompute);
            for (int k = 0; k < row[i].way_count && row[i].way_count == row[twin].way_count; k++) {
                share_samples(&row[twin].way[k].timing, &row[i].way[k].timing);
            }
            row[i].algorithms = row[i].algorithms[0] == '\0' ? row[twin].algorithms : row[i].algorithms;
        }
    }
}

static ckpt_code read_rows(const reader *r, const ckpt_item *root)
{
    ckpt_item array;
    ckpt_names names;
    int count = 0;
    CKPT_TRY(ckpt_need_array(root, "layers", &array, &count, r->err));
    ckpt_profile_row *const row = CKPT_NEW(r->out, ckpt_profile_row, count);
    if (row == NULL) {
        return CKPT_FAIL(r->err, CKPT_NO_MEMORY, "%.200s: no memory for %d layers", r->profile->source, count);
    }
    CKPT_TRY(ckpt_names_init(&names, count, r->out, r->err));
    for (int i = 0; i < count; i++) {
        ckpt_item item;
        ckpt_item_at(&array, i, &item);
        CKPT_TRY(read_row(r, &item, &row[i]));
        const int first = ckpt_names_add(&names, row[i].layer, i);
        if (first >= 0) {
            return ckpt_item_fail(&item, r->err, "rows %d and %d are both of layer \"%.80s\"", first, i, row[i].layer);
        }
    }
    share_rows(&names, row, count);
    r->profile->row = row;
    r->profile->row_count = count;
    return CKPT_OK;
}

static ckpt_code read_step(const reader *r, const ckpt_item *root, ckpt_profile_step *step)
{
    ckpt_item item;
    step->plan = "";
    if (!ckpt_item_find(root, "step", &item)) {
        return CKPT_OK;
    }
    CKPT_TRY(read_timing(r, &item, "time", true, &step->time));
    CKPT_TRY(ckpt_need_int(&item, "overhead_ns", 0, INT64_MAX, &step->overhead_ns, r->err));
    if (step->time.repeats < 1 || step->overhead_ns > step->time.median_ns) {
        return ckpt_item_fail(&item, r->err,
                              "found %d steps of %lld ns with %lld ns of overhead, wanted one at least, "
                              "and no more overhead than time",
                              step->time.repeats, (long long)step->time.median_ns, (long long)step->overhead_ns);
    }
    return ckpt_member_text(&item, "plan", "", r->out, &step->plan, r->err);
}

static ckpt_code read_profile(const reader *r, const ckpt_item *root)
{
    ckpt_profile *const profile = r->profile;
    ckpt_item link;
    profile->source = ckpt_arena_text(r->out, ckpt_json_source(root->json));
    if (profile->source == NULL) {
        return CKPT_FAIL(r->err, CKPT_NO_MEMORY, "no memory for a file name");
    }
    CKPT_TRY(ckpt_need_text(root, "model", r->out, &profile->model, r->err));
    CKPT_TRY(ckpt_machine_item(root, r->out, &profile->machine, r->err));
    if (ckpt_item_find(root, "link", &link)) {
        CKPT_TRY(ckpt_need_int(&link, "d2h_bytes_per_s", 1, INT64_MAX, &profile->d2h_bytes_per_s, r->err));
        CKPT_TRY(ckpt_need_int(&link, "h2d_bytes_per_s", 1, INT64_MAX, &profile->h2d_bytes_per_s, r->err));
        CKPT_TRY(
            ckpt_member_int(&link, "d2h_busy_bytes_per_s", 1, INT64_MAX, 0, &profile->d2h_busy_bytes_per_s, r->err));
        CKPT_TRY(
            ckpt_member_int(&link, "h2d_busy_bytes_per_s", 1, INT64_MAX, 0, &profile->h2d_busy_bytes_per_s, r->err));
    }
    CKPT_TRY(ckpt_member_text(root, "recorder", "", r->out, &profile->recorder, r->err));
    CKPT_TRY(ckpt_member_bool(root, "flushed", false, &profile->flushed, r->err));
    CKPT_TRY(read_step(r, root, &profile->step));
    return read_rows(r, root);
}

ckpt_code ckpt_profile_item(const ckpt_item *root, ckpt_arena *out, const ckpt_profile **profile, ckpt_err *err)
{
    const reader r = {out, CKPT_NEW(out, ckpt_profile, 1), err};
    if (r.profile == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory", ckpt_json_source(root->json));
    }
    CKPT_TRY(read_profile(&r, root));
    *profile = r.profile;
    return CKPT_OK;
}

ckpt_code ckpt_profile_read(const char *path, ckpt_arena *out, const ckpt_profile **profile, ckpt_err *err)
{
    ckpt_json *json = NULL;
    ckpt_item root;
    CKPT_TRY(ckpt_json_open(path, "ckpt-profile", &json, &root, err));
    const ckpt_code code = ckpt_profile_item(&root, out, profile, err);
    ckpt_json_close(json);
    return code;
}

static int64_t int_at(const void *of, size_t offset)
{
    return *(const int64_t *)(const void *)((const char *)of + offset);
}

static void write_timing(const char *key, const ckpt_timing *timing, bool samples, ckpt_json_writer *w)
{
    const bool listed = samples && timing->sample_ns != NULL; /* on a line of their own: there may be a thousand */
    if (listed) {
        ckpt_json_break(w, 6);
    }
    ckpt_json_begin_object(w, key, CKPT_JSON_LINE);
    CKPT_JSON_INTS(w, {"median_ns", timing->median_ns}, {"spread_ns", timing->spread_ns}, {"repeats", timing->repeats});
    if (timing->launches > 0) {
        ckpt_json_put_int(w, "launches", timing->launches);
    }
    for (int f = 0; f < FACT_COUNT; f++) {
        const int64_t value = int_at(timing, facts[f].offset);
        if (value > 0) {
            ckpt_json_put_int(w, facts[f].key, value);
        }
    }
    if (timing->roofline > 0) {
        ckpt_json_put_real(w, "roofline", timing->roofline);
    }
    if (listed) {
        ckpt_json_break(w, 8);
        ckpt_json_put_int_list(w, "samples_ns", timing->sample_ns, timing->repeats);
    }
    ckpt_json_end(w);
}

static void write_kernels(const ckpt_profile_row *row, ckpt_json_writer *w)
{
    ckpt_json_break(w, 6);
    ckpt_json_begin_array(w, "kernels", CKPT_JSON_LINE);
    for (int k = 0; k < row->kernel_count; k++) {
        const ckpt_profile_kernel *const kernel = &row->kernel[k];
        ckpt_json_break(w, 8);
        ckpt_json_begin_object(w, NULL, CKPT_JSON_LINE);
        ckpt_json_put_text(w, "direction", directions[kernel->direction]);
        ckpt_json_put_text(w, "name", kernel->name);
        CKPT_JSON_INTS(w, {"count", kernel->count}, {"median_ns", kernel->median_ns});
        ckpt_json_end(w);
    }
    ckpt_json_end(w);
}

static void write_ways(const ckpt_profile_row *row, bool measured, ckpt_json_writer *w)
{
    ckpt_json_break(w, 6);
    ckpt_json_begin_array(w, "variants", CKPT_JSON_LINE);
    for (int k = 0; k < row->way_count; k++) {
        const ckpt_profile_way *const way = &row->way[k];
        ckpt_json_break(w, 8);
        ckpt_json_begin_object(w, NULL, CKPT_JSON_LINE);
        ckpt_json_put_text(w, "direction", directions[way->direction]);
        ckpt_json_put_text(w, "variant", way->name);
        ckpt_json_put_int(w, "workspace_bytes", way->workspace_bytes);
        write_timing("time", &way->timing, measured, w);
        ckpt_json_end(w);
    }
    ckpt_json_end(w);
}

/* The rates while computing stand beside those alone, which must be there. */
static void write_link(const ckpt_profile *p, ckpt_json_writer *w)
{
    if (p->d2h_bytes_per_s <= 0 || p->h2d_bytes_per_s <= 0) {
        return;
    }
    ckpt_json_begin_object(w, "link", CKPT_JSON_LINE);
    CKPT_JSON_INTS(w, {"d2h_bytes_per_s", p->d2h_bytes_per_s}, {"h2d_bytes_per_s", p->h2d_bytes_per_s});
    if (p->d2h_busy_bytes_per_s > 0 && p->h2d_busy_bytes_per_s > 0) {
        ckpt_json_break(w, 4);
        CKPT_JSON_INTS(w, {"d2h_busy_bytes_per_s", p->d2h_busy_bytes_per_s},
                       {"h2d_busy_bytes_per_s", p->h2d_busy_bytes_per_s});
    }
    ckpt_json_end(w);
}

static void write_step(const ckpt_profile *p, ckpt_json_writer *w)
{
    if (ckpt_profile_is_in_step(p)) {
        ckpt_json_begin_object(w, "step", CKPT_JSON_LINE);
        ckpt_json_put_given(w, "plan", p->step.plan);
        ckpt_json_put_int(w, "overhead_ns", p->step.overhead_ns);
        write_timing("time", &p->step.time, true, w);
        ckpt_json_end(w);
    }
}

static void write_row(const ckpt_profile_row *row, ckpt_json_writer *w)
{
    const bool measured = row->same_as == NULL || row->same_as[0] == '\0';
    ckpt_json_begin_object(w, NULL, CKPT_JSON_LINE);
    ckpt_json_put_text(w, "layer", row->layer);
    ckpt_json_put_given(w, "op", row->op);
    ckpt_json_put_given(w, "same_as", row->same_as);
    write_timing("forward", &row->forward, measured, w);
    write_timing("backward", &row->backward, measured, w);
    write_timing("update", &row->update, measured, w);
    if (row->recompute.repeats > 0) {
        write_timing("recompute", &row->recompute, measured, w);
    }
    for (int f = 0; f < FIELD_COUNT; f++) {
        ckpt_json_put_int(w, fields[f].key, int_at(row, fields[f].offset));
    }
    if (measured) {
        ckpt_json_put_given(w, "algorithms", row->algorithms);
    }
    if (row->way_count > 0) {
        write_ways(row, measured, w);
    }
    if (row->kernel_count > 0) {
        write_kernels(row, w);
    }
    ckpt_json_end(w);
}

void ckpt_profile_write(const ckpt_profile *profile, ckpt_text *text)
{
    ckpt_json_writer w;
    ckpt_json_begin(&w, text);
    ckpt_json_begin_object(&w, NULL, CKPT_JSON_LINES);
    ckpt_json_put_text(&w, "format", "ckpt-profile/1");
    ckpt_json_put_text(&w, "model", profile->model);
    ckpt_machine_write(&profile->machine, &w);
    ckpt_json_put_given(&w, "recorder", profile->recorder);
    ckpt_json_put_bool(&w, "flushed", profile->flushed);
    write_link(profile, &w);
    write_step(profile, &w);
    ckpt_json_begin_array(&w, "layers", CKPT_JSON_LINES);
    for (int i = 0; i < profile->row_count; i++) {
        write_row(&profile->row[i], &w);
    }
    ckpt_json_end(&w);
    ckpt_json_end(&w);
}

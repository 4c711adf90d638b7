/* Where ckpt-plan gets its graph from: a graph file, or a model that is lowered with the costs of a profile or a
 * device. */
#include <string.h>

#include "core/formats/machine.h"
#include "core/json/json.h"
#include "ops/lowering/staged.h"
#include "programs/plan/plan_job_impl.h"

static ckpt_code read_format(const char *path, ckpt_arena *out, const char **format, ckpt_err *err)
{
    ckpt_json *json = NULL;
    ckpt_item root;
    CKPT_TRY(ckpt_json_open(path, NULL, &json, &root, err));
    ckpt_item member;
    ckpt_code code = ckpt_item_need(&root, "format", &member, err);
    code = code == CKPT_OK ? ckpt_item_text(&member, out, format, err) : code;
    if (code == CKPT_OK && strncmp(*format, "ckpt-model/", 11) != 0 && strncmp(*format, "ckpt-graph/", 11) != 0) {
        code = ckpt_item_fail(&member, err, "found \"%s\", wanted \"ckpt-model/1\" or \"ckpt-graph/1\"", *format);
    }
    ckpt_json_close(json);
    return code;
}

/* What the workspaces are for: what the profile measured, or without one the device. */
static ckpt_code choose_target(const ckpt_request *r, const ckpt_profile *profile, const ckpt_device_model *device,
                               ckpt_source *s, ckpt_err *err)
{
    s->gpu = profile != NULL ? profile->machine.gpu : device->gpu;
    s->capacity = s->gpu && device->gpu ? device->memory_bytes : 0;
    if (s->gpu) {
        s->threads = CKPT_ON_GPU;
        return r->threads == 0 ? CKPT_OK
                               : CKPT_FAIL(err, CKPT_BAD_INPUT, "found --threads %d, but %s is of a GPU: leave it out",
                                           r->threads, profile != NULL ? r->profile : device->name);
    }
    s->threads = r->threads > 0                                    ? r->threads
                 : profile != NULL && profile->machine.threads > 0 ? profile->machine.threads
                                                                   : ckpt_machine_threads();
    if (s->threads > CKPT_THREADS_MAX) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: measured with %d threads, wanted at most %d", r->profile, s->threads,
                         CKPT_THREADS_MAX);
    }
    return CKPT_OK;
}

static void take_staged(ckpt_source *s, const ckpt_staged *staged)
{
    s->staged = staged;
    s->graph = staged->lowered->graph;
    s->scheme = staged->scheme;
}

static ckpt_code find_costs(const ckpt_request *r, const ckpt_profile *profile, const ckpt_device_model *device,
                            ckpt_arena *out, ckpt_source *s, ckpt_err *err)
{
    const int measured = profile != NULL ? profile->machine.threads : 0;
    s->roofline = profile == NULL;
    s->costs = s->roofline ? ckpt_arena_format(out, "roofline of %s", device->name)
               : measured > 0 && s->threads > 0 && measured != s->threads
                   ? ckpt_arena_format(out, "profile %s, with times of %d thread%s", r->profile, measured,
                                       measured == 1 ? "" : "s")
                   : ckpt_arena_format(out, "profile %s", r->profile);
    return s->costs != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "text of the costs");
}

/* What the times are of is what shall run. */
static ckpt_code take_algorithms(const ckpt_profile *profile, ckpt_arena *out, ckpt_source *s, ckpt_err *err)
{
    const int rows = profile != NULL ? profile->row_count : 0;
    ckpt_layer_algorithms *const at = CKPT_NEW(out, ckpt_layer_algorithms, rows);
    if (at == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "algorithms of %d layers", rows);
    }
    s->algorithms = at;
    s->algorithms_count = 0;
    for (int i = 0; i < rows; i++) {
        if (profile->row[i].algorithms[0] != '\0') {
            at[s->algorithms_count++] = (ckpt_layer_algorithms){profile->row[i].layer, profile->row[i].algorithms};
        }
    }
    return CKPT_OK;
}

static ckpt_code read_model(const ckpt_request *r, ckpt_arena *out, ckpt_source *s, ckpt_err *err)
{
    const ckpt_model *model = NULL;
    const ckpt_profile *profile = NULL;
    const ckpt_device_model *device = NULL;
    const ckpt_network *network = NULL;
    ckpt_staged *const staged = CKPT_NEW(out, ckpt_staged, 1);
    if (staged == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "step of %s", r->input);
    }
    CKPT_TRY(ckpt_model_read(r->input, r->set, r->set_count, out, &model, err));
    CKPT_TRY(ckpt_model_with_dtype(model, r->dtype, out, &model, err));
    if (r->profile != NULL) {
        CKPT_TRY(ckpt_profile_read(r->profile, out, &profile, err));
    }
    CKPT_TRY(ckpt_device_model_find(r->device != NULL ? r->device : "cpu", out, &device, err));
    CKPT_TRY(choose_target(r, profile, device, s, err));
    CKPT_TRY(ckpt_network_infer(model, s->threads, out, &network, err));
    CKPT_TRY(ckpt_staged_lower(network, profile, device, &r->scheme, out, staged, err));
    s->model = model;
    take_staged(s, staged);
    CKPT_TRY(take_algorithms(profile, out, s, err));
    return find_costs(r, profile, device, out, s, err);
}

static ckpt_code read_file(const ckpt_request *r, ckpt_arena *out, ckpt_source *s, ckpt_err *err)
{
    const char *format = NULL;
    CKPT_TRY(read_format(r->input, out, &format, err));
    if (strncmp(format, "ckpt-model/", 11) == 0) {
        return read_model(r, out, s, err);
    }
    if (r->scheme_option != NULL) {
        return CKPT_FAIL(
            err, CKPT_BAD_INPUT,
            "%s is a graph, whose step is what it is: --%s is for models (ckpt-graph writes such a graph of "
            "a model)",
            r->input, r->scheme_option);
    }
    if (r->profile != NULL || r->device != NULL || r->set_count > 0 || r->variable != NULL || r->dtype != NULL ||
        r->threads > 0) {
        return CKPT_FAIL(
            err, CKPT_BAD_INPUT,
            "%s is a graph and has its own sizes and times: --profile, --device, --set, --dtype, --threads "
            "and --maximize are for models",
            r->input);
    }
    s->scheme = ckpt_scheme_alone;
    s->costs = ckpt_arena_format(out, "times in %s", r->input);
    return s->costs != NULL ? ckpt_graph_read(r->input, out, &s->graph, err)
                            : CKPT_FAIL(err, CKPT_NO_MEMORY, "text of the costs");
}

/* The same graph with the link of --link. */
static ckpt_code set_link(const ckpt_request *r, ckpt_arena *out, ckpt_source *s, ckpt_err *err)
{
    if (r->link == NULL) {
        return CKPT_OK;
    }
    ckpt_graph *const linked = CKPT_NEW(out, ckpt_graph, 1);
    if (linked == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "graph with another link");
    }
    *linked = *s->graph;
    linked->has_link = true;
    s->graph = linked;
    return ckpt_link_parse(r->link, &linked->d2h_bytes_per_s, &linked->h2d_bytes_per_s, err);
}

static ckpt_code choose_ops(const ckpt_request *r, ckpt_arena *out, ckpt_source *s, ckpt_text *notes, ckpt_err *err)
{
    const bool grouped = r->strategy != NULL && ckpt_grouping_known(r->strategy);
    const char *const grouping = grouped ? r->strategy : NULL;
    const ckpt_graph *whole = s->staged != NULL ? s->staged->whole : NULL;
    if (whole == NULL) {
        CKPT_TRY(ckpt_choose(s->graph, r->rule, r->rule_count, r->ignore_flags, grouping, out, &s->graph, notes, err));
        s->chosen = ckpt_chosen_any(s->graph);
        return CKPT_OK;
    }
    s->flagged = !r->ignore_flags && ckpt_chosen_any(whole);
    CKPT_TRY(ckpt_choose_spread(whole, s->graph, r->rule, r->rule_count, r->ignore_flags, grouping, out, &whole,
                                &s->graph, notes, err));
    s->chosen = ckpt_chosen_any(whole);
    return CKPT_OK;
}

/* What the request sets, on the ops. */
static ckpt_code choose(const ckpt_request *r, ckpt_arena *out, ckpt_source *s, ckpt_err *err)
{
    ckpt_text notes;
    ckpt_text_init(&notes);
    s->flagged = !r->ignore_flags && ckpt_chosen_any(s->graph);
    ckpt_code code = choose_ops(r, out, s, &notes, err);
    code = code == CKPT_OK ? ckpt_text_end(&notes, err) : code;
    s->notes = code == CKPT_OK ? ckpt_arena_text(out, notes.bytes != NULL ? notes.bytes : "") : "";
    ckpt_text_fini(&notes);
    return code != CKPT_OK || s->notes != NULL ? code : CKPT_FAIL(err, CKPT_NO_MEMORY, "notes on what is set");
}

ckpt_code ckpt_source_read(const ckpt_request *request, ckpt_arena *out, ckpt_source *source, ckpt_err *err)
{
    CKPT_TRY(read_file(request, out, source, err));
    CKPT_TRY(set_link(request, out, source, err));
    return choose(request, out, source, err);
}

ckpt_code ckpt_source_read_at(const ckpt_request *request, int64_t value, ckpt_arena *out, ckpt_source *s,
                              ckpt_err *err)
{
    ckpt_request r = *request;
    r.set[r.set_count] = ckpt_arena_format(out, "%s=%lld", r.variable, (long long)value);
    if (r.set[r.set_count++] == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "value of a variable");
    }
    CKPT_TRY(read_model(&r, out, s, err));
    CKPT_TRY(set_link(&r, out, s, err));
    return choose(&r, out, s, err);
}

ckpt_code ckpt_source_stage(const ckpt_request *request, const ckpt_source *other, int stage, ckpt_arena *out,
                            ckpt_source *s, ckpt_err *err)
{
    ckpt_staged *const staged = CKPT_NEW(out, ckpt_staged, 1);
    if (staged == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "stage %d", stage);
    }
    *s = *other;
    CKPT_TRY(ckpt_staged_next(other->staged, stage, out, staged, err));
    take_staged(s, staged);
    CKPT_TRY(set_link(request, out, s, err));
    return choose(request, out, s, err);
}

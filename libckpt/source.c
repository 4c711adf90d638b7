/* From a document to a graph with costs. */
#include "libckpt/source.h"

#include <string.h>

#include "core/formats/machine.h"
#include "ops/import/model_file.h"
#include "ops/lowering/staged.h"

ckpt_code ckpt_document_open(const ckpt_document *document, const char *kind, ckpt_json **json, ckpt_item *root,
                             ckpt_err *err)
{
    return document->text == NULL
               ? ckpt_json_open(document->name, kind, json, root, err)
               : ckpt_json_open_text(document->name, document->text, document->length, kind, json, root, err);
}

/* What the workspaces are for: what the profile measured, or without one the device. */
static ckpt_code choose_target(const ckpt_options *o, const ckpt_profile *profile, const ckpt_device_model *device,
                               ckpt_graph_source *s, ckpt_err *err)
{
    s->gpu = profile != NULL ? profile->machine.gpu : device->gpu;
    s->capacity = s->gpu && device->gpu ? device->memory_bytes : 0;
    if (s->gpu) {
        s->threads = CKPT_ON_GPU;
        return o->threads == 0 ? CKPT_OK
                               : CKPT_FAIL(err, CKPT_BAD_INPUT, "found --threads %d, but %s is of a GPU: leave it out",
                                           o->threads, profile != NULL ? o->profile.name : device->name);
    }
    s->threads = o->threads > 0                                    ? o->threads
                 : profile != NULL && profile->machine.threads > 0 ? profile->machine.threads
                                                                   : ckpt_machine_threads();
    if (s->threads > CKPT_THREADS_MAX) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: measured with %d threads, wanted at most %d", o->profile.name,
                         s->threads, CKPT_THREADS_MAX);
    }
    return CKPT_OK;
}

static void take_staged(ckpt_graph_source *s, const ckpt_staged *staged)
{
    s->staged = staged;
    s->graph = staged->lowered->graph;
    s->scheme = staged->scheme;
}

static ckpt_code find_costs(const ckpt_options *o, const ckpt_profile *profile, const ckpt_device_model *device,
                            ckpt_arena *out, ckpt_graph_source *s, ckpt_err *err)
{
    const int measured = profile != NULL ? profile->machine.threads : 0;
    s->roofline = profile == NULL;
    s->costs = s->roofline ? ckpt_arena_format(out, "roofline of %s", device->name)
               : measured > 0 && s->threads > 0 && measured != s->threads
                   ? ckpt_arena_format(out, "profile %s, with times of %d thread%s", o->profile.name, measured,
                                       measured == 1 ? "" : "s")
                   : ckpt_arena_format(out, "profile %s", o->profile.name);
    return s->costs != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "text of the costs");
}

/* What the times are of is what shall run. */
static ckpt_code take_algorithms(const ckpt_profile *profile, ckpt_arena *out, ckpt_graph_source *s, ckpt_err *err)
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

static ckpt_code read_profile(const ckpt_options *o, ckpt_arena *out, const ckpt_profile **profile, ckpt_err *err)
{
    ckpt_json *json = NULL;
    ckpt_item root;
    if (o->profile.name == NULL) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_document_open(&o->profile, "ckpt-profile", &json, &root, err));
    const ckpt_code code = ckpt_profile_item(&root, out, profile, err);
    ckpt_json_close(json);
    return code;
}

static ckpt_code find_device(const ckpt_options *o, ckpt_arena *out, const ckpt_device_model **device, ckpt_err *err)
{
    ckpt_json *json = NULL;
    ckpt_item root;
    if (o->device.text == NULL) {
        return ckpt_device_model_find(o->device.name != NULL ? o->device.name : "cpu", out, device, err);
    }
    CKPT_TRY(ckpt_document_open(&o->device, NULL, &json, &root, err));
    const ckpt_code code = ckpt_device_model_item(&root, out, device, err);
    ckpt_json_close(json);
    return code;
}

static ckpt_code lower(const ckpt_options *o, const ckpt_model *model, ckpt_arena *out, ckpt_graph_source *s,
                       ckpt_err *err)
{
    const ckpt_profile *profile = NULL;
    const ckpt_device_model *device = NULL;
    const ckpt_network *network = NULL;
    ckpt_staged *const staged = CKPT_NEW(out, ckpt_staged, 1);
    if (staged == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "step of %s", s->name);
    }
    CKPT_TRY(ckpt_model_with_dtype(model, o->dtype, out, &model, err));
    CKPT_TRY(ckpt_model_with_optimizer(model, o->optimizer, out, &model, err));
    CKPT_TRY(read_profile(o, out, &profile, err));
    CKPT_TRY(find_device(o, out, &device, err));
    CKPT_TRY(choose_target(o, profile, device, s, err));
    CKPT_TRY(ckpt_network_infer(model, s->threads, out, &network, err));
    CKPT_TRY(ckpt_staged_lower(network, profile, device, &o->scheme, out, staged, err));
    s->model = model;
    take_staged(s, staged);
    CKPT_TRY(take_algorithms(profile, out, s, err));
    return find_costs(o, profile, device, out, s, err);
}

static ckpt_code read_graph(const ckpt_item *root, const ckpt_options *o, ckpt_arena *out, ckpt_graph_source *s,
                            ckpt_err *err)
{
    if (o->scheme_option != NULL) {
        return CKPT_FAIL(
            err, CKPT_BAD_INPUT,
            "%s is a graph, whose step is what it is: --%s is for models (ckpt-graph writes such a graph of a model)",
            s->name, o->scheme_option);
    }
    if (o->profile.name != NULL || o->device.name != NULL || o->set_count > 0 || o->dtype != NULL ||
        o->optimizer != NULL || o->threads > 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, CKPT_GRAPH_HAS_ITS_OWN, s->name);
    }
    CKPT_TRY(ckpt_json_check_format(root, "ckpt-graph", err));
    s->scheme = ckpt_scheme_alone;
    s->costs = ckpt_arena_format(out, "times in %s", s->name);
    return s->costs != NULL ? ckpt_graph_item(root, out, &s->graph, err)
                            : CKPT_FAIL(err, CKPT_NO_MEMORY, "text of the costs");
}

static ckpt_code read_model(const ckpt_item *root, const ckpt_options *o, ckpt_arena *out, const ckpt_model **model,
                            ckpt_err *err)
{
    CKPT_TRY(ckpt_json_check_format(root, "ckpt-model", err));
    return ckpt_model_item(root, o->set, o->set_count, out, model, err);
}

static ckpt_code read_item(const ckpt_item *root, const ckpt_options *o, ckpt_arena *out, ckpt_graph_source *s,
                           const ckpt_model **model, ckpt_err *err)
{
    ckpt_item member;
    const char *format = NULL;
    if (ckpt_config_is(root)) {
        return ckpt_config_item(root, o->set, o->set_count, out, model, err);
    }
    CKPT_TRY(ckpt_item_need(root, "format", &member, err));
    CKPT_TRY(ckpt_item_text(&member, out, &format, err));
    if (strncmp(format, "ckpt-model/", 11) == 0) {
        return read_model(root, o, out, model, err);
    }
    if (strncmp(format, "ckpt-graph/", 11) == 0) {
        return read_graph(root, o, out, s, err);
    }
    return ckpt_item_fail(&member, err, "found \"%s\", wanted \"ckpt-model/1\" or \"ckpt-graph/1\"", format);
}

ckpt_code ckpt_source_read(const ckpt_document *document, const ckpt_options *options, ckpt_arena *out,
                           ckpt_graph_source *source, ckpt_err *err)
{
    ckpt_json *json = NULL;
    ckpt_item root;
    const ckpt_model *model = NULL;
    *source = (ckpt_graph_source){.name = ckpt_arena_text(out, document->name), .notes = ""};
    if (source->name == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a file name");
    }
    CKPT_TRY(ckpt_document_open(document, NULL, &json, &root, err));
    const ckpt_code code = read_item(&root, options, out, source, &model, err);
    ckpt_json_close(json);
    CKPT_TRY(code);
    return model != NULL ? lower(options, model, out, source, err) : CKPT_OK;
}

ckpt_code ckpt_source_stage(const ckpt_graph_source *other, int stage, ckpt_arena *out, ckpt_graph_source *s,
                            ckpt_err *err)
{
    ckpt_staged *const staged = CKPT_NEW(out, ckpt_staged, 1);
    if (staged == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "stage %d", stage);
    }
    *s = *other;
    CKPT_TRY(ckpt_staged_next(other->staged, stage, out, staged, err));
    take_staged(s, staged);
    return CKPT_OK;
}

ckpt_code ckpt_graph_linked(const ckpt_graph *graph, const char *rate, ckpt_arena *out, const ckpt_graph **linked,
                            ckpt_err *err)
{
    ckpt_graph *const made = CKPT_NEW(out, ckpt_graph, 1);
    if (made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "graph with another link");
    }
    *made = *graph;
    made->has_link = true;
    *linked = made;
    return ckpt_link_parse(rate, &made->d2h_bytes_per_s, &made->h2d_bytes_per_s, err);
}

static ckpt_code choose_ops(const ckpt_options *o, ckpt_arena *out, ckpt_graph_source *s, ckpt_text *notes,
                            ckpt_err *err)
{
    const bool grouped = o->strategy != NULL && ckpt_grouping_known(o->strategy);
    const char *const grouping = grouped ? o->strategy : NULL;
    const ckpt_graph *whole = s->staged != NULL ? s->staged->whole : NULL;
    if (whole == NULL) {
        CKPT_TRY(ckpt_choose(s->graph, o->rule, o->rule_count, o->ignore_flags, grouping, out, &s->graph, notes, err));
        s->chosen = ckpt_chosen_any(s->graph);
        return CKPT_OK;
    }
    s->flagged = !o->ignore_flags && ckpt_chosen_any(whole);
    CKPT_TRY(ckpt_choose_spread(whole, s->graph, o->rule, o->rule_count, o->ignore_flags, grouping, out, &whole,
                                &s->graph, notes, err));
    s->chosen = ckpt_chosen_any(whole);
    return CKPT_OK;
}

ckpt_code ckpt_source_choose(ckpt_graph_source *s, const ckpt_options *o, ckpt_arena *out, ckpt_err *err)
{
    ckpt_text notes;
    CKPT_TRY(o->link == NULL ? CKPT_OK : ckpt_graph_linked(s->graph, o->link, out, &s->graph, err));
    ckpt_text_init(&notes);
    s->flagged = !o->ignore_flags && ckpt_chosen_any(s->graph);
    ckpt_code code = choose_ops(o, out, s, &notes, err);
    code = code == CKPT_OK ? ckpt_text_end(&notes, err) : code;
    s->notes = code == CKPT_OK ? ckpt_arena_text(out, notes.bytes != NULL ? notes.bytes : "") : "";
    ckpt_text_fini(&notes);
    return code != CKPT_OK || s->notes != NULL ? code : CKPT_FAIL(err, CKPT_NO_MEMORY, "notes on what is set");
}

/* How a step is spread over micro-batches, replicas and stages: its numbers and their place in a plan. */
#include "core/formats/scheme.h"

#include <string.h>

#include "core/json/json_member.h"

const ckpt_scheme ckpt_scheme_alone = {
    .micro_batches = 1,
    .replicas = 1,
    .stages = 1,
    .bucket_bytes = (ckpt_bytes)25 << 20,
    .network_bytes_per_s = 10000000000,
};

bool ckpt_scheme_is_plain(const ckpt_scheme *scheme)
{
    return scheme->micro_batches <= 1 && scheme->replicas <= 1 && scheme->stages <= 1 && !scheme->fused &&
           !scheme->apart;
}

ckpt_code ckpt_scheme_title(const ckpt_scheme *scheme, const char *graph, ckpt_arena *out, const char **title,
                            ckpt_err *err)
{
    *title =
        scheme->stages > 1 ? ckpt_arena_format(out, "%s, stage %d of %d", graph, scheme->stage, scheme->stages) : graph;
    return *title != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the name of a stage");
}

int ckpt_scheme_ranks(const ckpt_scheme *scheme)
{
    return scheme->replicas * scheme->stages;
}

static ckpt_code check_count(const char *what, int count, int most, ckpt_err *err)
{
    return count >= 1 && count <= most
               ? CKPT_OK
               : CKPT_FAIL(err, CKPT_BAD_INPUT, "found %d %s, wanted 1 to %d", count, what, most);
}

ckpt_code ckpt_scheme_check(const ckpt_scheme *scheme, ckpt_err *err)
{
    CKPT_TRY(check_count("micro-batches", scheme->micro_batches, CKPT_MICRO_BATCHES_MAX, err));
    CKPT_TRY(check_count("replicas", scheme->replicas, CKPT_RANKS_MAX, err));
    CKPT_TRY(check_count("pipeline stages", scheme->stages, CKPT_RANKS_MAX, err));
    if (scheme->stages > CKPT_RANKS_MAX / scheme->replicas) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found %d replicas of %d stages, wanted at most %d ranks in all",
                         scheme->replicas, scheme->stages, CKPT_RANKS_MAX);
    }
    if (scheme->stage < 0 || scheme->stage >= scheme->stages) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found stage %d, wanted 0 to %d", scheme->stage, scheme->stages - 1);
    }
    if (scheme->shard_optimizer && scheme->replicas == 1) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "the optimizer is sharded over data-parallel ranks, and there is one: "
                         "add --replicas N");
    }
    if (scheme->overlap && scheme->replicas == 1) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "what overlaps with backward are sums over data-parallel ranks, and there "
                         "is one: add --replicas N");
    }
    if (scheme->bucket_bytes < 1 || scheme->network_bytes_per_s < 1) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "found buckets of %lld bytes and a network of %lld bytes per second, "
                         "wanted 1 or more of both",
                         (long long)scheme->bucket_bytes, (long long)scheme->network_bytes_per_s);
    }
    return CKPT_OK;
}

void ckpt_scheme_write(const ckpt_scheme *scheme, ckpt_json_writer *w)
{
    if (ckpt_scheme_is_plain(scheme)) {
        return;
    }
    ckpt_json_begin_object(w, "scheme", CKPT_JSON_LINE);
    ckpt_json_put_int(w, "micro_batches", scheme->micro_batches);
    ckpt_json_put_text(w, "gradients", scheme->fused ? "fused" : "static");
    ckpt_json_put_given(w, "tied", scheme->apart ? "apart" : NULL);
    if (scheme->replicas > 1) {
        CKPT_JSON_INTS(w, {"replicas", scheme->replicas}, {"bucket_bytes", scheme->bucket_bytes});
        ckpt_json_put_given(w, "shard", scheme->shard_optimizer ? "optimizer" : NULL);
        if (scheme->overlap) {
            ckpt_json_put_bool(w, "overlap", true);
        }
    }
    if (scheme->stages > 1) {
        CKPT_JSON_INTS(w, {"stages", scheme->stages}, {"stage", scheme->stage});
        ckpt_json_put_texts(w, "first_layers", scheme->first_layer, scheme->stages);
    }
    if (scheme->replicas > 1 || scheme->stages > 1) {
        ckpt_json_put_int(w, "network_bytes_per_s", scheme->network_bytes_per_s);
    }
    ckpt_json_end(w);
}

static ckpt_code read_count(const ckpt_item *item, const char *key, int least, int most, int *count, ckpt_err *err)
{
    int64_t found = 0;
    CKPT_TRY(ckpt_member_int(item, key, least, most, *count, &found, err));
    *count = (int)found;
    return CKPT_OK;
}

/* A member that is one of two words, the first of which is the default; `no` NULL: the other is its absence. */
static ckpt_code read_word(const ckpt_item *item, const char *key, const char *no, const char *yes, ckpt_arena *out,
                           bool *is, ckpt_err *err)
{
    ckpt_item member;
    const char *word = NULL;
    if (!ckpt_item_find(item, key, &member)) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_item_text(&member, out, &word, err));
    *is = strcmp(word, yes) == 0;
    if (*is || (no != NULL && strcmp(word, no) == 0)) {
        return CKPT_OK;
    }
    return no != NULL ? ckpt_item_fail(&member, err, "found \"%.60s\", wanted \"%s\" or \"%s\"", word, no, yes)
                      : ckpt_item_fail(&member, err, "found \"%.60s\", wanted \"%s\"", word, yes);
}

static ckpt_code read_first_layers(const ckpt_item *item, ckpt_arena *out, ckpt_scheme *scheme, ckpt_err *err)
{
    ckpt_item list;
    int count = 0;
    if (scheme->stages == 1) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_item_need(item, "first_layers", &list, err));
    CKPT_TRY(ckpt_item_array(&list, &count, err));
    if (count != scheme->stages) {
        return ckpt_item_fail(&list, err, "found %d first layers, wanted one for each of %d stages", count,
                              scheme->stages);
    }
    const char **const first = CKPT_NEW(out, const char *, count);
    if (first == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d first layers", count);
    }
    for (int s = 0; s < count; s++) {
        ckpt_item name;
        ckpt_item_at(&list, s, &name);
        CKPT_TRY(ckpt_item_text(&name, out, &first[s], err));
    }
    scheme->first_layer = first;
    return CKPT_OK;
}

ckpt_code ckpt_scheme_read(const ckpt_item *plan, ckpt_arena *out, ckpt_scheme *scheme, ckpt_err *err)
{
    ckpt_scheme read = ckpt_scheme_alone;
    ckpt_item item;
    if (!ckpt_item_find(plan, "scheme", &item)) {
        *scheme = read;
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_item_object(&item, err));
    CKPT_TRY(read_count(&item, "micro_batches", 1, CKPT_MICRO_BATCHES_MAX, &read.micro_batches, err));
    CKPT_TRY(read_count(&item, "replicas", 1, CKPT_RANKS_MAX, &read.replicas, err));
    CKPT_TRY(read_count(&item, "stages", 1, CKPT_RANKS_MAX, &read.stages, err));
    CKPT_TRY(read_count(&item, "stage", 0, read.stages - 1, &read.stage, err));
    CKPT_TRY(read_word(&item, "gradients", "static", "fused", out, &read.fused, err));
    CKPT_TRY(read_word(&item, "tied", "together", "apart", out, &read.apart, err));
    CKPT_TRY(read_word(&item, "shard", NULL, "optimizer", out, &read.shard_optimizer, err));
    CKPT_TRY(ckpt_member_bool(&item, "overlap", false, &read.overlap, err));
    CKPT_TRY(ckpt_member_int(&item, "bucket_bytes", 1, INT64_MAX, read.bucket_bytes, &read.bucket_bytes, err));
    CKPT_TRY(ckpt_member_int(&item, "network_bytes_per_s", 1, INT64_MAX, read.network_bytes_per_s,
                             &read.network_bytes_per_s, err));
    CKPT_TRY(read_first_layers(&item, out, &read, err));
    CKPT_TRY(ckpt_item_blame(&item, ckpt_scheme_check(&read, err), err));
    *scheme = read;
    return CKPT_OK;
}

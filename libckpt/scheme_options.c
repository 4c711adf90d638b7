/* The options of a scheme: one row each, with where its value goes. */
#include "libckpt/scheme_options.h"

#include <string.h>

static ckpt_code take_count(const char *name, const char *value, int least, int *count, ckpt_err *err)
{
    return ckpt_int_parse(value, least, CKPT_RANKS_MAX, count)
               ? CKPT_OK
               : CKPT_FAIL(err, CKPT_BAD_INPUT, "--%s takes a number from %d to %d, found \"%s\"", name, least,
                           CKPT_RANKS_MAX, value);
}

static ckpt_code take_word(const char *name, const char *value, const char *yes, const char *no, bool *is,
                           ckpt_err *err)
{
    *is = strcmp(value, yes) == 0;
    if (*is || (no != NULL && strcmp(value, no) == 0)) {
        return CKPT_OK;
    }
    return CKPT_FAIL(err, CKPT_BAD_INPUT, "--%s takes %s%s%s, found \"%s\"", name, no != NULL ? no : "",
                     no != NULL ? " or " : "", yes, value);
}

static ckpt_code take_bucket(const char *value, ckpt_bytes *bytes, ckpt_err *err)
{
    CKPT_TRY_WHILE(err, ckpt_bytes_parse(value, 0, bytes, err), "reading --bucket");
    return *bytes >= 1 ? CKPT_OK : CKPT_FAIL(err, CKPT_BAD_INPUT, "--bucket takes 1 byte or more, found \"%s\"", value);
}

ckpt_code ckpt_scheme_take(ckpt_scheme *scheme, const char *name, const char *value, bool *taken, bool *stage_given,
                           ckpt_err *err)
{
    *taken = true;
    if (strcmp(name, "micro-batches") == 0) {
        return take_count(name, value, 1, &scheme->micro_batches, err);
    }
    if (strcmp(name, "replicas") == 0) {
        return take_count(name, value, 1, &scheme->replicas, err);
    }
    if (strcmp(name, "pipeline-stages") == 0) {
        return take_count(name, value, 1, &scheme->stages, err);
    }
    if (strcmp(name, "stage") == 0) {
        if (stage_given != NULL) {
            *stage_given = true;
        }
        return take_count(name, value, 0, &scheme->stage, err);
    }
    if (strcmp(name, "gradients") == 0) {
        return take_word(name, value, "fused", "static", &scheme->fused, err);
    }
    if (strcmp(name, "tied") == 0) {
        return take_word(name, value, "apart", "together", &scheme->apart, err);
    }
    if (strcmp(name, "shard") == 0) {
        return take_word(name, value, "optimizer", NULL, &scheme->shard_optimizer, err);
    }
    if (strcmp(name, "overlap") == 0) {
        scheme->overlap = true;
        return CKPT_OK;
    }
    if (strcmp(name, "bucket") == 0) {
        return take_bucket(value, &scheme->bucket_bytes, err);
    }
    if (strcmp(name, "network") == 0) {
        CKPT_TRY_WHILE(err, ckpt_rate_parse(value, &scheme->network_bytes_per_s, err), "reading --network");
        return CKPT_OK;
    }
    *taken = false;
    return CKPT_OK;
}

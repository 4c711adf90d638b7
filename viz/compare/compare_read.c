/* A file of any kind that can be compared, told by its "format". */
#include <stdio.h>
#include <string.h>

#include "core/json/json.h"
#include "viz/compare/compare.h"

static ckpt_code find_kind(const ckpt_item *root, ckpt_arena *out, ckpt_compare_kind *kind, ckpt_err *err)
{
    ckpt_item format;
    const char *text = "";
    CKPT_TRY(ckpt_item_need(root, "format", &format, err));
    CKPT_TRY(ckpt_item_text(&format, out, &text, err));
    for (int k = 0; k < CKPT_COMPARE_KIND_COUNT; k++) {
        const char *const name = ckpt_compare_kind_name((ckpt_compare_kind)k);
        const size_t length = strlen(name);
        if (strncmp(text, "ckpt-", 5) == 0 && strncmp(text + 5, name, length) == 0 && text[5 + length] == '/') {
            char full[40];
            snprintf(full, sizeof full, "ckpt-%s", name);
            *kind = (ckpt_compare_kind)k;
            return ckpt_json_check_format(root, full, err); /* of the version */
        }
    }
    return ckpt_item_fail(&format, err,
                          "found format \"%.60s\", wanted a plan, profile, trace or sweep (ckpt-plan/1, ...)", text);
}

static ckpt_code read_item(const ckpt_item *root, ckpt_arena *out, ckpt_compare_file *file, ckpt_err *err)
{
    ckpt_plan *plan = NULL;
    CKPT_TRY(find_kind(root, out, &file->kind, err));
    switch (file->kind) {
    case CKPT_COMPARE_PLAN:
        CKPT_TRY(ckpt_plan_item(root, out, &plan, err));
        file->plan = plan;
        break;
    case CKPT_COMPARE_PROFILE: return ckpt_profile_item(root, out, &file->profile, err);
    case CKPT_COMPARE_TRACE: return ckpt_trace_item(root, out, &file->trace, err);
    case CKPT_COMPARE_SWEEP: return ckpt_curve_item(root, out, &file->curve, err);
    case CKPT_COMPARE_KIND_COUNT: break;
    }
    return CKPT_OK;
}

ckpt_code ckpt_compare_read(const char *path, ckpt_arena *out, ckpt_compare_file *file, ckpt_err *err)
{
    ckpt_json *json = NULL;
    ckpt_item root;
    ckpt_compare_file read = {.source = strcmp(path, "-") == 0 ? "standard input" : ckpt_arena_text(out, path)};
    if (read.source == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a file name");
    }
    CKPT_TRY(ckpt_json_open(path, NULL, &json, &root, err));
    const ckpt_code code = read_item(&root, out, &read, err);
    ckpt_json_close(json);
    if (code == CKPT_OK) {
        *file = read;
    }
    return code;
}

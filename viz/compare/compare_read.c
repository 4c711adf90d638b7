/* A file of any kind that can be compared, told by its "format". */
#include <string.h>

#include "core/json/json.h"
#include "viz/compare/compare.h"

static ckpt_code read_format(const char *path, ckpt_arena *out, ckpt_compare_kind *kind, ckpt_err *err)
{
    ckpt_json *json = NULL;
    ckpt_item root, format;
    const char *text = "";
    CKPT_TRY(ckpt_json_open(path, NULL, &json, &root, err));
    ckpt_code code = ckpt_item_need(&root, "format", &format, err);
    code = code == CKPT_OK ? ckpt_item_text(&format, out, &text, err) : code;
    int k = 0;
    while (code == CKPT_OK && k < CKPT_COMPARE_KIND_COUNT) {
        const char *const name = ckpt_compare_kind_name((ckpt_compare_kind)k);
        const size_t length = strlen(name);
        if (strncmp(text, "ckpt-", 5) == 0 && strncmp(text + 5, name, length) == 0 && text[5 + length] == '/') {
            break; /* the kind's reader says what it thinks of the version */
        }
        k++;
    }
    if (code == CKPT_OK && k == CKPT_COMPARE_KIND_COUNT) {
        code = ckpt_item_fail(
            &format, err, "found format \"%.60s\", wanted a plan, profile, trace or sweep (ckpt-plan/1, ...)", text);
    }
    ckpt_json_close(json);
    *kind = (ckpt_compare_kind)k;
    return code;
}

ckpt_code ckpt_compare_read(const char *path, ckpt_arena *out, ckpt_compare_file *file, ckpt_err *err)
{
    ckpt_compare_file read = {.source = strcmp(path, "-") == 0 ? "standard input" : ckpt_arena_text(out, path)};
    if (read.source == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a file name");
    }
    CKPT_TRY(read_format(path, out, &read.kind, err));
    ckpt_plan *plan = NULL;
    switch (read.kind) {
    case CKPT_COMPARE_PLAN:
        CKPT_TRY(ckpt_plan_read(path, out, &plan, err));
        read.plan = plan;
        break;
    case CKPT_COMPARE_PROFILE: CKPT_TRY(ckpt_profile_read(path, out, &read.profile, err)); break;
    case CKPT_COMPARE_TRACE: CKPT_TRY(ckpt_trace_read(path, out, &read.trace, err)); break;
    case CKPT_COMPARE_SWEEP: CKPT_TRY(ckpt_curve_read(path, out, &read.curve, err)); break;
    case CKPT_COMPARE_KIND_COUNT: break;
    }
    *file = read;
    return CKPT_OK;
}

/* The table of families that the build wrote, opened by model_type. */
#include "ops/import/family_impl.h"

static ckpt_code open_file(const ckpt_family_file *file, const char *source, ckpt_json **json, ckpt_item *family,
                           ckpt_err *err)
{
    return ckpt_json_open_text(source, file->text, file->length, "ckpt-family", json, family, err);
}

ckpt_code ckpt_family_type(const ckpt_item *family, const char *model_type, ckpt_item *type, ckpt_err *err)
{
    ckpt_item types;
    CKPT_TRY(ckpt_item_need(family, "types", &types, err));
    return ckpt_item_need(&types, model_type, type, err);
}

ckpt_code ckpt_family_open(const char *model_type, const char *source, ckpt_json **json, ckpt_item *family,
                           ckpt_err *err)
{
    for (const ckpt_family_file *file = ckpt_family_files; file->name != NULL; file++) {
        ckpt_item type;
        CKPT_TRY(open_file(file, source, json, family, err));
        if (ckpt_family_type(family, model_type, &type, NULL) == CKPT_OK) {
            return CKPT_OK;
        }
        ckpt_json_close(*json);
        *json = NULL;
    }
    return CKPT_OK;
}

ckpt_code ckpt_family_list(ckpt_text *text, ckpt_err *err)
{
    const char *comma = "";
    for (const ckpt_family_file *file = ckpt_family_files; file->name != NULL; file++) {
        ckpt_json *json = NULL;
        ckpt_item family, types, type;
        CKPT_TRY(open_file(file, file->name, &json, &family, err));
        if (ckpt_item_find(&family, "types", &types)) {
            for (int i = 0; ckpt_item_next(&types, &i, &type); comma = ", ") {
                ckpt_text_add(text, "%s%s", comma, type.key);
            }
        }
        ckpt_json_close(json);
    }
    return ckpt_text_end(text, err);
}

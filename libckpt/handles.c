/* Errors, texts and memory of the API. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/handles_impl.h"

static_assert((int)CKPT_SUCCESS == (int)CKPT_OK && (int)CKPT_ERROR_INPUT == (int)CKPT_BAD_INPUT &&
                  (int)CKPT_ERROR_OVERFLOW == (int)CKPT_OVERFLOW && (int)CKPT_ERROR_MEMORY == (int)CKPT_NO_MEMORY &&
                  (int)CKPT_ERROR_FILE == (int)CKPT_IO && (int)CKPT_ERROR_MISSING == (int)CKPT_DEVICE &&
                  (int)CKPT_ERROR_CANCELLED == (int)CKPT_INTERRUPTED,
              "codes of the API are those of core/base/status.h");

const char *ckpt_version(void)
{
    return CKPT_VERSION;
}

int ckpt_status_of(ckpt_code code, const ckpt_err *err, ckpt_error *error)
{
    if (error != NULL) {
        *error = (ckpt_error){.code = code};
        if (code != CKPT_OK) {
            error->line = err->text_line;
            error->column = err->text_column;
            snprintf(error->message, sizeof error->message, "%s", err->msg);
        }
    }
    return (int)code;
}

char *ckpt_json_give(ckpt_text *text, size_t *length, ckpt_error *error)
{
    ckpt_err err = {0};
    const ckpt_code code = ckpt_text_end(text, &err);
    ckpt_status_of(code, &err, error);
    if (code != CKPT_OK) {
        ckpt_text_fini(text);
        return NULL;
    }
    if (length != NULL) {
        *length = text->length;
    }
    return text->bytes;
}

void ckpt_json_free(char *json)
{
    ckpt_memory_put(json);
}

void *ckpt_handle_create(size_t size, size_t arena)
{
    char *const handle = ckpt_memory_get(size);
    if (handle != NULL) {
        ckpt_arena_init((ckpt_arena *)(void *)(handle + arena));
    }
    return handle;
}

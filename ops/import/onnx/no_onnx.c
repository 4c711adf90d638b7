/* Programs that are built without protobuf read no ONNX. */
#include "ops/import/onnx/onnx.h"

ckpt_code ckpt_onnx_text(const char *path, const char *const *set, int set_count, ckpt_arena *out, const char **text,
                         size_t *length, ckpt_err *err)
{
    (void)path;
    (void)set;
    (void)set_count;
    (void)out;
    (void)text;
    (void)length;
    (void)err;
    return CKPT_OK;
}

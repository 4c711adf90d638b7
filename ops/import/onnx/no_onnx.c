/* Programs that are built without protobuf read no ONNX. */
#include "ops/import/model_file.h"
#include "ops/import/onnx/onnx.h"

static ckpt_code refuse(const char *path, ckpt_err *err)
{
    return ckpt_onnx_is(path) ? CKPT_FAIL(err, CKPT_BAD_INPUT,
                                          "%.200s: is ONNX, which this program was built without (libprotobuf-c)", path)
                              : CKPT_OK;
}

ckpt_code ckpt_onnx_text(const char *path, const char *const *set, int set_count, ckpt_arena *out, const char **text,
                         size_t *length, ckpt_err *err)
{
    (void)set;
    (void)set_count;
    (void)out;
    (void)text;
    (void)length;
    return refuse(path, err);
}

ckpt_code ckpt_onnx_model(const char *path, const char *const *set, int set_count, ckpt_arena *out,
                          const ckpt_model **model, ckpt_err *err)
{
    CKPT_TRY(refuse(path, err));
    return ckpt_model_file_read(path, set, set_count, out, model, err);
}

ckpt_code ckpt_onnx_weights(const ckpt_network *network, const char *path, const char *const *set, int set_count,
                            ckpt_arena *out, ckpt_weights **weights, ckpt_err *err)
{
    (void)set;
    (void)set_count;
    (void)out;
    CKPT_TRY(refuse(path, err));
    return ckpt_weights_open(network, path, weights, err);
}

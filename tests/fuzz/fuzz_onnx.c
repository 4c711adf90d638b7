/* ONNX: the model that is made of a graph, and its weights. */
#include "tests/fuzz/fuzz.h"

#include "ops/import/onnx/onnx.h"

enum { LAYERS_MAX = 500 };

static ckpt_code read_onnx(const char *path, ckpt_arena *arena, ckpt_text *written, ckpt_err *err)
{
    const ckpt_model *model = NULL;
    const ckpt_network *network = NULL;
    ckpt_weights *weights = NULL;
    CKPT_TRY(ckpt_onnx_model(path, NULL, 0, arena, &model, err));
    if (model->layer_count > LAYERS_MAX) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_network_infer(model, 1, arena, &network, err));
    CKPT_TRY(ckpt_onnx_weights(network, path, NULL, 0, arena, &weights, err));
    ckpt_weights_close(weights);
    return CKPT_OK;
}

const fuzz_reader fuzz_the_reader = {.name = "onnx", .split = fuzz_split_protobuf, .read = read_onnx};

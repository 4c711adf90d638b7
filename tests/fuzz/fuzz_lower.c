/* Models and configurations of others, down to the graph of a training step. Models of many layers are left alone: they
 * take long and say little. */
#include "tests/fuzz/fuzz.h"

#include "ops/device_model.h"
#include "ops/import/model_file.h"
#include "ops/lowering/network.h"

enum { LAYERS_MAX = 500 };

static ckpt_code read_and_lower(const char *path, ckpt_arena *arena, ckpt_text *written, ckpt_err *err)
{
    const ckpt_model *model = NULL;
    const ckpt_network *network = NULL;
    const ckpt_device_model *device = NULL;
    const ckpt_lowered *lowered = NULL;
    CKPT_TRY(ckpt_model_file_read(path, NULL, 0, arena, &model, err));
    if (model->layer_count > LAYERS_MAX) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_network_infer(model, 1, arena, &network, err));
    CKPT_TRY(ckpt_device_model_find("cpu", arena, &device, err));
    CKPT_TRY(ckpt_network_lower(network, NULL, device, arena, &lowered, err));
    ckpt_graph_write(lowered->graph, written);
    return ckpt_text_end(written, err);
}

const fuzz_reader fuzz_the_reader = {
    .name = "lower", .split = fuzz_split_text, .writes = "graph", .read = read_and_lower};

/* How training starts: every value of a parameter is its own Philox number, keyed by seed, layer, parameter and
 * element, so that neither the layout nor the number of threads shows in the weights. */
#include <math.h>
#include <string.h>

#include "executor/state/state_impl.h"
#include "kernels/philox.h"

enum { FIRST_STREAM = 2 }; /* stream 2 + k starts parameter k; 0 and 1 are dropout's */

static const float two_pi = 6.28318530717958647692f;

/* Four values from one block of four words. Normal: Box and Muller, Ann. Math. Statist. 29(2), 1958. */
static void four_values(ckpt_init init, float scale, const uint32_t word[4], float value[4])
{
    float u[4];
    for (int i = 0; i < 4; i++) {
        u[i] = ckpt_philox_uniform(word[i]);
    }
    if (init == CKPT_INIT_UNIFORM) {
        for (int i = 0; i < 4; i++) {
            value[i] = scale * (2.0f * u[i] - 1.0f);
        }
        return;
    }
    for (int i = 0; i < 4; i += 2) {
        const float radius = scale * sqrtf(-2.0f * logf(u[i]));
        value[i] = radius * cosf(two_pi * u[i + 1]);
        value[i + 1] = radius * sinf(two_pi * u[i + 1]);
    }
}

/* Elements first .. first + count - 1 of a parameter; first is a multiple of 4. */
static void fill_values(const ckpt_program *program, uint64_t seed, const ckpt_node *node, int k, int64_t first,
                        int64_t count, float *to)
{
    const ckpt_param *const param = &node->param[k];
    if (param->init == CKPT_INIT_ZERO || param->init == CKPT_INIT_ONE) {
        for (int64_t i = 0; i < count; i++) {
            to[i] = param->init == CKPT_INIT_ONE ? 1.0f : 0.0f;
        }
        return;
    }
    const uint32_t layer = (uint32_t)node->index, stream = (uint32_t)(FIRST_STREAM + k);
    const float scale = (float)param->scale;
    const int64_t blocks = (count + 3) / 4;
    const int threads = ckpt_program_threads(program);
    (void)threads;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t b = 0; b < blocks; b++) {
        uint32_t word[4];
        float value[4];
        ckpt_philox_block(seed, 0, layer, stream, (uint64_t)(first / 4 + b), word);
        four_values(param->init, scale, word, value);
        const int64_t left = count - 4 * b;
        memcpy(to + 4 * b, value, (size_t)(left < 4 ? left : 4) * sizeof value[0]);
    }
}

static ckpt_code start_param(const ckpt_program *program, uint64_t seed, const ckpt_node *node, int k, ckpt_err *err)
{
    const int64_t step = CKPT_CHUNK_BYTES / (int64_t)sizeof(float);
    const int64_t count = ckpt_shape_count(&node->param[k].tensor.shape);
    float *const to = ckpt_program_param(program, program->layout.weights, node->index, k);
    const int copy_of = node->param[k].copy_of;
    const ckpt_node *const from = copy_of >= 0 ? &program->lowered->network->node[copy_of] : node;
    float *const chunk = (float *)(void *)program->memory.chunk;
    for (int64_t done = 0; done < count; done += step) {
        const int64_t now = count - done < step ? count - done : step;
        fill_values(program, seed, from, k, done, now, chunk);
        CKPT_TRY(program->device->api->upload(program->device, to + done, chunk, now * (ckpt_bytes)sizeof(float), err));
    }
    return CKPT_OK;
}

static ckpt_code start_stat(const ckpt_program *program, const ckpt_node *node, int k, ckpt_err *err)
{
    const int64_t step = CKPT_CHUNK_BYTES / (int64_t)sizeof(float);
    const int64_t count = ckpt_shape_count(&node->stat[k].tensor.shape);
    float *const to = ckpt_program_statistic(program, node->index, k);
    float *const chunk = (float *)(void *)program->memory.chunk;
    for (int64_t i = 0; i < (count < step ? count : step); i++) {
        chunk[i] = (float)node->stat[k].initial;
    }
    for (int64_t done = 0; done < count; done += step) {
        const int64_t now = count - done < step ? count - done : step;
        CKPT_TRY(program->device->api->upload(program->device, to + done, chunk, now * (ckpt_bytes)sizeof(float), err));
    }
    return CKPT_OK;
}

/* What gradients are multiplied by where no norm says otherwise, and what the loss's gradient starts with. */
static ckpt_code start_scales(const ckpt_program *program, ckpt_err *err)
{
    const float scale[2] = {(float)ckpt_program_base_scale(program), (float)program->lowered->network->loss_scale};
    float *const to = ckpt_program_scale(program, 0);
    return to == NULL ? CKPT_OK
                      : program->device->api->upload(program->device, to, scale, (ckpt_bytes)sizeof scale, err);
}

ckpt_code ckpt_state_initialise(const ckpt_program *program, uint64_t seed, ckpt_err *err)
{
    const ckpt_network *const network = program->lowered->network;
    ckpt_program_touch_weights(program);
    for (int n = 0; n < network->node_count; n++) {
        const ckpt_node *const node = &network->node[n];
        for (int k = 0; k < node->param_count; k++) {
            if (node->param[k].tied < 0 && program->layout.param[n * CKPT_PARAM_MAX + k] >= 0) {
                CKPT_TRY(start_param(program, seed, node, k, err));
            }
        }
        for (int k = 0; k < node->stat_count; k++) {
            if (program->layout.stat[n * CKPT_STAT_MAX + k] >= 0) {
                CKPT_TRY(start_stat(program, node, k, err));
            }
        }
    }
    CKPT_TRY(start_scales(program, err));
    return ckpt_program_narrow(program, err);
}

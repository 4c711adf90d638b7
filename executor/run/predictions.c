#include "executor/run/predictions.h"

#include <string.h>

#include "core/base/memory.h"

/* Rows and weights come to the host in pieces of so many bytes. */
enum { PIECE_BYTES = 1 << 20 };

static bool is_fused(const ckpt_node *node)
{
    return strcmp(node->op->name, "linear_cross_entropy") == 0;
}

bool ckpt_predictions_are(const ckpt_node *node)
{
    return is_fused(node) || strcmp(node->op->name, "cross_entropy") == 0 || strcmp(node->op->name, "nll_loss") == 0;
}

bool ckpt_predictions_held(const ckpt_node *node)
{
    return ckpt_predictions_are(node) && !is_fused(node);
}

int64_t ckpt_predictions_rows(const ckpt_node *node)
{
    return ckpt_shape_count(&node->in[1].shape);
}

/* Elements of input 0 that belong to a row: logits, or features of a fused loss. */
static int64_t row_length(const ckpt_node *node)
{
    return ckpt_shape_count(&node->in[0].shape) / ckpt_predictions_rows(node);
}

int64_t ckpt_predictions_classes(const ckpt_node *node)
{
    return is_fused(node) ? node->param[0].tensor.shape.dim[0] : row_length(node);
}

/* `count` rows of input 0 from row `first` on, widened to float32. `host` has room for `count` rows with their gaps. */
static ckpt_code get_rows(ckpt_device *device, const ckpt_kernel_args *args, int64_t first, int64_t count, float *host,
                          ckpt_err *err)
{
    const ckpt_tensor *const in = &args->node->in[0];
    const int64_t length = row_length(args->node), step = in->pitch > 0 ? in->pitch : length;
    const ckpt_bytes size = ckpt_dtype_bytes(in->dtype);
    const unsigned char *const from = (const unsigned char *)args->in[0] + first * step * size;
    CKPT_TRY(device->api->download(device, host, from, ((count - 1) * step + length) * size, err));
    if (in->dtype == CKPT_BFLOAT16) {
        const uint16_t *const narrow = (const uint16_t *)(const void *)host;
        for (int64_t i = (count - 1) * step + length - 1; i >= 0; i--) { /* from the end: it grows in place */
            uint16_t bits;
            memcpy(&bits, narrow + i, sizeof bits);
            host[i] = ckpt_bfloat16_value(bits);
        }
    }
    return CKPT_OK;
}

/* logits = W x + b, some rows of W at a time. */
static ckpt_code multiply(ckpt_device *device, const ckpt_kernel_args *args, const float *x, float *weight, int64_t fit,
                          float *logits, ckpt_err *err)
{
    const ckpt_node *const node = args->node;
    const int64_t classes = ckpt_predictions_classes(node), length = row_length(node);
    for (int64_t first = 0; first < classes; first += fit) {
        const int64_t count = classes - first < fit ? classes - first : fit;
        CKPT_TRY(device->api->download(device, weight, args->param[0] + first * length,
                                       count * length * (ckpt_bytes)sizeof(float), err));
        for (int64_t c = 0; c < count; c++) {
            float sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int64_t i = 0; i < length; i++) {
                sum += weight[c * length + i] * x[i];
            }
            logits[first + c] = sum;
        }
    }
    if (node->param_count > 1) {
        CKPT_TRY(device->api->download(device, weight, args->param[1], classes * (ckpt_bytes)sizeof(float), err));
        for (int64_t c = 0; c < classes; c++) {
            logits[c] += weight[c];
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_predictions_row(ckpt_device *device, const ckpt_kernel_args *args, int64_t row, float *logits,
                               ckpt_err *err)
{
    const ckpt_node *const node = args->node;
    if (!is_fused(node)) {
        return get_rows(device, args, row, 1, logits, err);
    }
    const int64_t length = row_length(node), classes = ckpt_predictions_classes(node);
    int64_t fit = PIECE_BYTES / (length * (int64_t)sizeof(float));
    fit = fit > 0 ? fit : 1;
    int64_t room = fit * length;
    room = room > classes ? room : classes; /* the bias */
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    float *const x = CKPT_NEW(&arena, float, length), *const weight = CKPT_NEW(&arena, float, room);
    ckpt_code code = x != NULL && weight != NULL ? get_rows(device, args, row, 1, x, err)
                                                 : CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a row of logits");
    if (code == CKPT_OK) {
        code = multiply(device, args, x, weight, fit, logits, err);
    }
    ckpt_arena_fini(&arena);
    return code;
}

static int64_t largest(const float *logits, int64_t count)
{
    int64_t best = 0;
    for (int64_t c = 1; c < count; c++) {
        best = logits[c] > logits[best] ? c : best;
    }
    return best;
}

static ckpt_code count_rows(ckpt_device *device, const ckpt_kernel_args *args, float *logits, int64_t fit,
                            int32_t *target, int64_t *right, int64_t *counted, ckpt_err *err)
{
    const ckpt_node *const node = args->node;
    const int64_t rows = ckpt_predictions_rows(node), classes = row_length(node);
    const int64_t step = node->in[0].pitch > 0 ? node->in[0].pitch : classes;
    const bool may_ignore = strcmp(node->op->name, "cross_entropy") == 0;
    const int64_t ignored = may_ignore ? ckpt_node_int(node, "ignore_index") : INT64_MIN;
    CKPT_TRY(device->api->download(device, target, args->in[1], rows * (ckpt_bytes)sizeof *target, err));
    for (int64_t first = 0; first < rows; first += fit) {
        const int64_t count = rows - first < fit ? rows - first : fit;
        CKPT_TRY(get_rows(device, args, first, count, logits, err));
        for (int64_t r = 0; r < count; r++) {
            if (target[first + r] != ignored) {
                *counted += 1;
                *right += largest(logits + r * step, classes) == target[first + r];
            }
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_predictions_count(ckpt_device *device, const ckpt_kernel_args *args, int64_t *right, int64_t *counted,
                                 ckpt_err *err)
{
    const ckpt_node *const node = args->node;
    if (!ckpt_predictions_held(node)) {
        return CKPT_OK;
    }
    const int64_t rows = ckpt_predictions_rows(node), classes = row_length(node);
    const int64_t step = node->in[0].pitch > 0 ? node->in[0].pitch : classes;
    int64_t fit = PIECE_BYTES / (step * (int64_t)sizeof(float));
    fit = fit < 1 ? 1 : fit > rows ? rows : fit;
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    float *const logits = CKPT_NEW(&arena, float, fit *step);
    int32_t *const target = CKPT_NEW(&arena, int32_t, rows);
    const ckpt_code code = logits != NULL && target != NULL
                               ? count_rows(device, args, logits, fit, target, right, counted, err)
                               : CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %lld rows of logits", (long long)fit);
    ckpt_arena_fini(&arena);
    return code;
}

/* Finding ops and optimizers in the tables that the build writes. */
#include "ops/op.h"

#include <string.h>

#include "ops/optimizer.h"

const ckpt_op *ckpt_op_find(const char *name)
{
    for (const ckpt_op *const *op = ckpt_op_table; *op != NULL; op++) {
        if (strcmp((*op)->name, name) == 0) {
            return *op;
        }
    }
    return NULL;
}

const ckpt_optimizer *ckpt_optimizer_find(const char *name)
{
    for (const ckpt_optimizer *const *optimizer = ckpt_optimizer_table; *optimizer != NULL; optimizer++) {
        if (strcmp((*optimizer)->name, name) == 0) {
            return *optimizer;
        }
    }
    return NULL;
}

ckpt_matrix ckpt_matrix_of(const ckpt_param *param)
{
    const ckpt_shape *const shape = &param->tensor.shape;
    const int64_t count = ckpt_shape_count(shape), stack = param->stack > 0 ? param->stack : 1;
    const int64_t rows = shape->rank < 2 ? 1 : param->stack > 0 ? shape->dim[1] : shape->dim[0];
    return (ckpt_matrix){.stack = stack, .rows = rows, .columns = count / stack / rows, .hidden = param->hidden};
}

ckpt_numbers ckpt_numbers_plain(const ckpt_optimizer *optimizer, const double *hyper, uint64_t step)
{
    ckpt_numbers numbers = {.average = 0, .clip = 1};
    optimizer->numbers(hyper, 1.0, step, numbers.of[0]);
    return numbers;
}

ckpt_bytes ckpt_optimizer_slot_bytes(const ckpt_optimizer *optimizer, const ckpt_param *param, int slot)
{
    const ckpt_matrix matrix = ckpt_matrix_of(param);
    return optimizer->slot_bytes != NULL ? optimizer->slot_bytes(&matrix, slot) : ckpt_param_bytes(param);
}

ckpt_bytes ckpt_optimizer_workspace(const ckpt_optimizer *optimizer, const ckpt_param *param, bool gpu)
{
    const ckpt_matrix matrix = ckpt_matrix_of(param);
    return optimizer->workspace != NULL ? optimizer->workspace(&matrix, gpu) : 0;
}

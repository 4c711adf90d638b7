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

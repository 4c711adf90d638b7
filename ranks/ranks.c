/* Who is who. */
#include "ranks/ranks.h"

ckpt_code ckpt_ranks_started(int *count, ckpt_err *err)
{
    (void)err;
    *count = 1;
    return CKPT_OK;
}

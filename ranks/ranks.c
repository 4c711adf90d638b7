/* Who is who. */
#include "ranks/ranks.h"

ckpt_code ckpt_ranks_started(int *count, ckpt_err *err)
{
    (void)err;
    *count = 1;
    return CKPT_OK;
}

int ckpt_ranks_rank(const ckpt_ranks *ranks)
{
    (void)ranks;
    return 0;
}

int ckpt_ranks_count(const ckpt_ranks *ranks)
{
    (void)ranks;
    return 1;
}

ckpt_code ckpt_ranks_open(ckpt_ranks **ranks, ckpt_err *err)
{
    (void)ranks;
    return CKPT_FAIL(err, CKPT_DEVICE, "no ranks yet");
}

void ckpt_ranks_close(ckpt_ranks *ranks)
{
    (void)ranks;
}

ckpt_code ckpt_ranks_share(ckpt_ranks *ranks, int root, void *memory, ckpt_bytes bytes, ckpt_err *err)
{
    (void)ranks, (void)root, (void)memory, (void)bytes;
    return CKPT_FAIL(err, CKPT_DEVICE, "no ranks yet");
}

ckpt_code ckpt_ranks_collect(ckpt_ranks *ranks, const void *mine, void *all, ckpt_bytes bytes, ckpt_err *err)
{
    (void)ranks, (void)mine, (void)all, (void)bytes;
    return CKPT_FAIL(err, CKPT_DEVICE, "no ranks yet");
}

ckpt_code ckpt_ranks_meet(ckpt_ranks *ranks, ckpt_err *err)
{
    (void)ranks;
    return CKPT_FAIL(err, CKPT_DEVICE, "no ranks yet");
}

ckpt_code ckpt_ranks_watch(ckpt_ranks *ranks, const char *program, ckpt_err *err)
{
    (void)ranks, (void)program;
    return CKPT_FAIL(err, CKPT_DEVICE, "no ranks yet");
}

void ckpt_ranks_note(ckpt_ranks *ranks, const char *note)
{
    (void)ranks, (void)note;
}

void ckpt_ranks_give_up(ckpt_ranks *ranks, const char *why)
{
    (void)ranks, (void)why;
}

/* libckpt.so keeps nothing of pipes: different threads read files at once. */
#include "core/base/pipes.h"

bool ckpt_pipe_find(const char *path, char **bytes, size_t *length)
{
    (void)path;
    (void)bytes;
    (void)length;
    return false;
}

bool ckpt_pipe_keep(const char *path, char *bytes, size_t length)
{
    (void)path;
    (void)bytes;
    (void)length;
    return false;
}

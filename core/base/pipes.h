/* A pipe gives its bytes once. Programs keep those of standard input and of the last other pipe for a second reader:
 * pipes.c. libckpt.so has no state of its own and keeps none: libckpt/no_pipes.c takes the place of pipes.c there. */
#ifndef CKPT_CORE_BASE_PIPES_H
#define CKPT_CORE_BASE_PIPES_H

#include <stdbool.h>
#include <stddef.h>

/* What was kept of the pipe of that name. */
bool ckpt_pipe_find(const char *path, char **bytes, size_t *length);

/* Keep `bytes` (of ckpt_memory_get) until the process ends, for another name than "-" until the next pipe. false: they are
 * still the caller's, for there is no memory or nothing is kept here. */
bool ckpt_pipe_keep(const char *path, char *bytes, size_t length);

#endif

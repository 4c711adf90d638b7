/* The line that names a layer's algorithms (ckpt_kernel.choice): pieces "key=text" with ";" between them, each made and
 * read by the library's own file. A text has no ";". */
#ifndef CKPT_KERNELS_CUDA_CHOICE_H
#define CKPT_KERNELS_CUDA_CHOICE_H

#include <stddef.h>

enum { CKPT_PIECE_TEXT = 320, CKPT_CHOICE_TEXT = 2048 };

/* Adds "key=piece" to `choice` of CKPT_CHOICE_TEXT bytes. */
void ckpt_choice_add(char *choice, const char *key, const char *piece);

/* The piece of that key, copied to `piece` of CKPT_PIECE_TEXT bytes; "" where `choice` does not have it. NULL where
 * `choice` is NULL: the library chooses. */
const char *ckpt_choice_get(const char *choice, const char *key, char *piece);

#endif

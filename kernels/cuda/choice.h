/* The line that names a layer's algorithms (ckpt_kernel.choice): pieces "key=text", separated by ";". The file of each
 * library writes and reads the texts, which have no ";". */
#ifndef CKPT_KERNELS_CUDA_CHOICE_H
#define CKPT_KERNELS_CUDA_CHOICE_H

#include <stddef.h>

enum { CKPT_PIECE_TEXT = 320, CKPT_CHOICE_TEXT = 2048 };

/* Adds "key=piece" to `choice` of CKPT_CHOICE_TEXT bytes. */
void ckpt_choice_add(char *choice, const char *key, const char *piece);

/* The text of a key, copied to `piece` of CKPT_PIECE_TEXT bytes; "" if `choice` lacks the key. NULL if `choice` is
 * NULL: the library chooses. */
const char *ckpt_choice_get(const char *choice, const char *key, char *piece);

#endif

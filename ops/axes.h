/* Lists of axes of an index space, as kernels walk it. An axis is a struct of int64_t that begins with its number of
 * positions; what follows is the elements between two of them in each tensor. One that is inserted may have more members. */
#ifndef CKPT_OPS_AXES_H
#define CKPT_OPS_AXES_H

#include <stddef.h>
#include <stdint.h>

/* Inserts `more` (of `size` bytes; in no place of the list) where the member at `key` bytes puts it, the greatest first. An
 * axis of one position is left out. */
void ckpt_axes_insert(void *axis, int *count, size_t size, size_t key, const void *more);

/* Merges neighbours that stay neighbours in every tensor; one axis at least is left. Returns the number of indices. */
int64_t ckpt_axes_merge(void *axis, int *count, size_t size);

#endif

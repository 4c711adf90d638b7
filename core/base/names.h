/* A hash table from names to indices. */
#ifndef CKPT_CORE_BASE_NAMES_H
#define CKPT_CORE_BASE_NAMES_H

#include "core/base/memory.h"

/* Keys are borrowed; everything else lives in the arena. */
typedef struct ckpt_names {
    const char **key;
    int *index;
    size_t room; /* power of two, at least twice the names */
} ckpt_names;

/* Room for `count` names. */
CKPT_MUST_USE ckpt_code ckpt_names_init(ckpt_names *names, int count, ckpt_arena *arena, ckpt_err *err);

/* -1: the name was added. Else the index that the name already has; nothing changes. */
int ckpt_names_add(ckpt_names *names, const char *key, int index);
int ckpt_names_find(const ckpt_names *names, const char *key); /* -1: not there */

#endif

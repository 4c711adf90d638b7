/* Shared by the spool's writer and reader; spool.h has the layout. */
#ifndef CKPT_CUPTI_SPOOL_IMPL_H
#define CKPT_CUPTI_SPOOL_IMPL_H

#include "cupti/spool.h"

#define CKPT_SPOOL_MAGIC "ckptspol"

enum {
    CKPT_SPOOL_VERSION = 1,
    CKPT_SPOOL_NAMES = 8192,      /* numbers of names; a later name with the same number replaces the earlier */
    CKPT_SPOOL_TEXT_MAX = 8191,   /* longer names are cut */
    CKPT_SPOOL_VARINT_MAX = 10,   /* bytes of a 64-bit number */
    CKPT_SPOOL_KIND_NAME = 32,    /* number, text; activities have their ckpt_activity_kind */
    CKPT_SPOOL_KIND_WORD = 64,    /* + ckpt_spool_word; text */
    CKPT_SPOOL_RECORD_MAX = 8320, /* the longest text, its number and kind */
};

/* Differences may be negative: 0, -1, 1, -2, ... are written as 0, 1, 2, 3, ... */
static inline uint64_t ckpt_spool_zigzag(uint64_t difference)
{
    return difference << 1 ^ (uint64_t) - (int64_t)(difference >> 63);
}

static inline uint64_t ckpt_spool_unzigzag(uint64_t number)
{
    return number >> 1 ^ (uint64_t) - (int64_t)(number & 1);
}

#endif

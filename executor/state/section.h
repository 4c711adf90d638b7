/* Sections of the static block, of which a training state and digests are made, and what validations brought. */
#ifndef CKPT_EXECUTOR_STATE_SECTION_H
#define CKPT_EXECUTOR_STATE_SECTION_H

#include <stdbool.h>

typedef enum ckpt_section {
    CKPT_SECTION_WEIGHTS,
    CKPT_SECTION_GRADIENTS,
    CKPT_SECTION_OPTIMIZER,
    CKPT_SECTION_STATISTICS
} ckpt_section;

/* What the validations of a training brought; a state carries it. */
typedef struct ckpt_validated {
    float best; /* the lowest loss so far; infinite before the first */
    int stale;  /* validations since that one */
    bool due;   /* the one after the latest step was interrupted, and is still to be made */
} ckpt_validated;

enum { CKPT_DIGEST_LEAF = 1 << 16 }; /* bytes of a piece that is hashed by itself (ckpt_executor_digest) */

#endif

/* Sections of the static block, of which a training state and digests are made. */
#ifndef CKPT_EXECUTOR_STATE_SECTION_H
#define CKPT_EXECUTOR_STATE_SECTION_H

typedef enum ckpt_section {
    CKPT_SECTION_WEIGHTS,
    CKPT_SECTION_GRADIENTS,
    CKPT_SECTION_OPTIMIZER,
    CKPT_SECTION_STATISTICS
} ckpt_section;

enum { CKPT_DIGEST_LEAF = 1 << 16 }; /* bytes of a piece that is hashed by itself (ckpt_executor_digest) */

#endif

/* Sections of the static block as one rank with the whole network and an unsharded optimizer has them: the form of
 * state files and digests, whatever the scheme. */
#ifndef CKPT_EXECUTOR_STATE_SECTIONS_IMPL_H
#define CKPT_EXECUTOR_STATE_SECTIONS_IMPL_H

#include "executor/state/state_impl.h"

/* Bytes [at, at + bytes) of a whole section, which lie together on one rank. */
typedef struct ckpt_section_part {
    ckpt_bytes at, bytes;
    int stage, replica; /* who has it; replica -1: all of the stage's, and the first speaks for them */
    ckpt_bytes local;   /* in this rank's static block; -1: it is not here */
    bool copy;          /* the same bytes as the part before, held by another layer too: not written to the file */
} ckpt_section_part;

typedef struct ckpt_whole {
    ckpt_bytes bytes;
    const ckpt_section_part *part; /* in order of `at`; what lies between them is zero */
    int part_count;
} ckpt_whole;

/* The network of one rank and one micro-batch that this rank's part was cut from, its tensors without gaps: what
 * is the same on every device. Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_whole_network(const ckpt_program *program, ckpt_arena *out, ckpt_network *network,
                                           ckpt_err *err);

/* Where a section's bytes are; the same list on all ranks, but for `local`. Cost: O(parameters). Errors: CKPT_BAD_INPUT
 * (fused gradients are gone), CKPT_OVERFLOW, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_whole_section(const ckpt_program *program, ckpt_section section, ckpt_arena *out,
                                           ckpt_whole *whole, ckpt_err *err);

/* All bytes of a section in order, `take` being called on rank 0 with at most CKPT_CHUNK_BYTES of them at a time.
 * Collective: every rank hands out what it has. */
typedef ckpt_code (*ckpt_whole_take)(void *context, const unsigned char *bytes, ckpt_bytes count, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_whole_walk(const ckpt_program *program, const ckpt_whole *whole, ckpt_whole_take take,
                                        void *context, ckpt_err *err);

#endif

/* SHA-256: the identity of a graph, and of trained weights. */
#ifndef CKPT_CORE_BASE_DIGEST_H
#define CKPT_CORE_BASE_DIGEST_H

#include <stddef.h>

enum { CKPT_DIGEST_TEXT = 65 }; /* 64 hexadecimal digits and the end */

typedef struct ckpt_digest ckpt_digest;

/* The digest of contiguous bytes; allocates nothing. */
void ckpt_digest_once(const void *bytes, size_t length, char text[CKPT_DIGEST_TEXT]);

/* NULL when there is no memory; ckpt_digest_end writes the text and destroys. */
ckpt_digest *ckpt_digest_create(void);
void ckpt_digest_add(ckpt_digest *digest, const void *bytes, size_t length);
void ckpt_digest_end(ckpt_digest *digest, char text[CKPT_DIGEST_TEXT]);

#endif

/* A thin cover over libmd, so that its context stays out of our headers. */
#include "core/base/digest.h"

#include <sys/types.h>

#include <sha2.h>

#include "core/base/memory.h"

struct ckpt_digest {
    SHA2_CTX context;
};

void ckpt_digest_once(const void *bytes, size_t length, char text[CKPT_DIGEST_TEXT])
{
    SHA2_CTX context;
    SHA256Init(&context);
    SHA256Update(&context, bytes, length);
    SHA256End(&context, text);
}

ckpt_digest *ckpt_digest_create(void)
{
    ckpt_digest *const digest = ckpt_memory_get(sizeof *digest);
    if (digest != NULL) {
        SHA256Init(&digest->context);
    }
    return digest;
}

void ckpt_digest_add(ckpt_digest *digest, const void *bytes, size_t length)
{
    SHA256Update(&digest->context, bytes, length);
}

void ckpt_digest_end(ckpt_digest *digest, char text[CKPT_DIGEST_TEXT])
{
    SHA256End(&digest->context, text);
    ckpt_memory_put(digest);
}

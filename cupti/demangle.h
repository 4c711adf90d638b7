/* Readable names of C++ kernels. */
#ifndef CKPT_CUPTI_DEMANGLE_H
#define CKPT_CUPTI_DEMANGLE_H

#include "core/base/memory.h"

/* "void gemm<float>(int)" for "_Z4gemmIfEvi", in `out`. Gives `name` itself if it is not a C++ name or the machine has
 * no libstdc++.so.6. NULL: no memory. Cost: microseconds. For one thread at a time. */
const char *ckpt_demangle(const char *name, ckpt_arena *out);

#endif

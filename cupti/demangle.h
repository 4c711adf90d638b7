/* Names of C++ kernels as people write them. */
#ifndef CKPT_CUPTI_DEMANGLE_H
#define CKPT_CUPTI_DEMANGLE_H

#include "core/base/memory.h"

/* "void gemm<float>(int)" for "_Z4gemmIfEvi", in `out`; `name` itself when it is none of C++ or the machine has no
 * libstdc++.so.6, which is opened for this. NULL: no memory. Cost: microseconds. Threads: one. */
const char *ckpt_demangle(const char *name, ckpt_arena *out);

#endif

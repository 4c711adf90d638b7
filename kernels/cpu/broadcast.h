/* Ops on two tensors that may be broadcast (ops/broadcast.h): add, sub, mul, div. An op writes loops over a row; the
 * walk over rows, and the sums of gradients, are here. */
#ifndef CKPT_KERNELS_CPU_BROADCAST_H
#define CKPT_KERNELS_CPU_BROADCAST_H

#include "kernels/kernel.h"

/* to[i] = f(dy[i], a[i * a_step], b[i * b_step]). A pointer is NULL where the op has not declared that it reads it. `to`
 * may be a or b with step 1. */
typedef void ckpt_broadcast_loop(int64_t n, const float *dy, const float *a, int64_t a_step, const float *b,
                                 int64_t b_step, float *to);

/* A ckpt_broadcast_loop, from a macro `f(dy, a, b)`. Most rows have steps of 0 or 1, and then it is a vector loop. */
#define CKPT_BROADCAST_LOOP(name, f)                                                                                   \
    static void name(int64_t n, const float *dy, const float *a, int64_t a_step, const float *b, int64_t b_step,       \
                     float *to)                                                                                        \
    {                                                                                                                  \
        (void)dy;                                                                                                      \
        (void)a;                                                                                                       \
        (void)b;                                                                                                       \
        if (a_step == 1 && b_step == 1) {                                                                              \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                        \
            {                                                                                                          \
                to[i] = f(dy[i], a[i], b[i]);                                                                          \
            }                                                                                                          \
        } else if (a_step == 1 && b_step == 0) {                                                                       \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                        \
            {                                                                                                          \
                to[i] = f(dy[i], a[i], b[0]);                                                                          \
            }                                                                                                          \
        } else if (a_step == 0 && b_step == 1) {                                                                       \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                        \
            {                                                                                                          \
                to[i] = f(dy[i], a[0], b[i]);                                                                          \
            }                                                                                                          \
        } else {                                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                to[i] = f(dy[i], a[i * a_step], b[i * b_step]);                                                        \
            }                                                                                                          \
        }                                                                                                              \
    }

/* For ckpt_kernel.workspace. */
void ckpt_broadcast_kernel_workspace(const ckpt_node *node, const void *state, ckpt_bytes *forward,
                                     ckpt_bytes *backward);

/* y = value(a, b). */
void ckpt_broadcast_forward(const ckpt_kernel_args *args, ckpt_broadcast_loop *value);

/* The gradients that are wanted, summed where an input was stretched. slope[k] gives input k's share of dy; NULL: dy
 * itself. */
void ckpt_broadcast_backward(const ckpt_kernel_args *args, ckpt_broadcast_loop *const slope[2]);

#endif

/* The CUDA device on a machine without a GPU: the project's own host code and kernels (kernels/cuda), compiled by the
 * host's compilers against the headers in this folder. Threads of a block are fibers, streams are queues, and the two
 * libraries are plain loops (blas_host.cpp, cudnn_host.cpp). Device memory is host memory that only the device's own
 * work may touch: whoever reads it on the host by its address faults, as with a GPU.
 *
 * All of it is one shared library that shows only these names, so a test may link the real device beside it. */
#ifndef CKPT_TESTS_EMULATION_EMULATION_H
#define CKPT_TESTS_EMULATION_EMULATION_H

#include "kernels/device.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* kind "cuda", opened by ckpt_device_emulated.open(0, 1, ...). */
extern const ckpt_device_api ckpt_device_emulated;

/* seed 0: what is started is done at once (the default). Else every stream is a queue; whenever somebody waits, and at
 * random between, the head of a random queue runs, as far as events allow, and only as much as the wait needs: copies
 * read and write when they run, late. Waits for what is still queued first. */
void ckpt_emulated_schedule(uint64_t seed);

/* Calls of cudaStreamWaitEvent since the last schedule; and make the n-th of them (from 0) do nothing, -1: none. Inside
 * a capture a wait counts when it is captured, and a lost one is lost in every replay. */
int64_t ckpt_emulated_waits(void);
void ckpt_emulated_lose_wait(int64_t n);

/* Bytes of device and of page-locked memory that are reserved now, and calls that reserved any, ever. */
int64_t ckpt_emulated_device_bytes(void);
int64_t ckpt_emulated_host_bytes(void);
int64_t ckpt_emulated_reservations(void);

/* Kernels, products, copies and fills that were started or captured, ever. */
int64_t ckpt_emulated_starts(void);

/* True (the default): the host is killed when it touches the device's memory, at the price of a system call around all
 * that the device does, a millisecond where the memory is large. */
void ckpt_emulated_guard(bool guarded);

/* What the two libraries offer to choose from. 0 (the default): one algorithm. CKPT_EMULATED_NO_SUMS: one, and none
 * with sums. Any other number: several, some of which must not be chosen; their times are made up by the number.
 * CKPT_EMULATED_WRONG_SUMS is one of those, and all products with sums leave out the last term.
 * CKPT_EMULATED_ALL_ROOM: one algorithm; a product that is tuned uses all the workspace that it is offered. */
enum { CKPT_EMULATED_NO_SUMS = -1, CKPT_EMULATED_ALL_ROOM = -2, CKPT_EMULATED_WRONG_SUMS = 1000 };
void ckpt_emulated_candidates(int which);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif

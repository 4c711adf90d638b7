/* What the emulation's own files share: random order, the device's memory, and running a grid. One host thread. */
#ifndef CKPT_TESTS_EMULATED_IMPL_H
#define CKPT_TESTS_EMULATED_IMPL_H

#include <stdint.h>

#include <functional>

#include "cuda_runtime.h"

enum : size_t {
    EMULATED_SHARED_MOST = 227 * 1024, /* of compute capability 9.0 */
    EMULATED_SHARED_FREE = 48 * 1024,  /* without asking */
};

/* splitmix64, Steele et al. 2014: 0 .. below - 1. */
uint64_t emulated_random(uint64_t below);
void emulated_random_seed(uint64_t seed);

/* Runs every thread of every block; false, and the reason kept for cudaGetErrorString, when the device would fail. */
bool emulated_run_grid(dim3 grid, dim3 block, size_t shared, const std::function<void()> &thread);

/* A fault nobody recovers from but ckpt_emulated_schedule: later calls give cudaErrorLaunchFailure. */
void emulated_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool emulated_failed();

void emulated_recover();

/* Keeps `code` for cudaGetLastError and gives it back. */
cudaError_t emulated_refuse(cudaError_t code);

/* While one lives, the device works and its memory can be touched; else it is closed to the host. */
struct emulated_working {
    emulated_working();
    ~emulated_working();
    emulated_working(const emulated_working &) = delete;
};

/* Do all `bytes` lie in one block of the device's (or of page-locked) memory? */
bool emulated_is_device(const void *address, size_t bytes);
bool emulated_is_pinned(const void *address, size_t bytes);

/* Is any stream recording? Many calls are refused then, and the recording is lost. */
bool emulated_capturing();
cudaError_t emulated_break_captures();
/* Runs everything that is queued. */
void emulated_drain();
/* How far the device is from the default one, from the schedule's seed: so that no result depends on it. */
int emulated_multiprocessors();

/* What ckpt_emulated_candidates said; and let the device's clock go on by a made-up time. */
int emulated_candidates();
void emulated_spend(int64_t ns);

#endif

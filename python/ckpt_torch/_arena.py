"""options={"arena": True}: every allocation of a step on the GPU comes from one block, at planned addresses.

PyTorch's own allocator is replaced by the functions of ckpt.h's "device memory of a framework", which must happen before
anything is on the GPU: use_arena(). The first step is recorded, the next ones are served.
"""

import ctypes
import os
import warnings
from ctypes import POINTER, Structure, byref, c_int32, c_int64, c_size_t, c_uint64, c_void_p

import torch

from . import _lib

KEPT_BY_THE_POOL = 2**64 - 1  # bytes that CUDA's pool keeps for the next allocation: all
RELEASE_THRESHOLD = 4  # cudaMemPoolAttrReleaseThreshold


class DeviceCounts(Structure):
    _fields_ = [(name, c_int64) for name in ("live_bytes", "peak_bytes", "taken_bytes", "taken_peak_bytes", "failed")]


class ArenaCounts(Structure):
    _fields_ = [(name, c_int64) for name in ("arena_bytes", "served", "outlived", "missed", "missed_bytes")]


_lib.declare("gpu_memory_from", None, c_void_p, c_void_p)
_lib.declare("gpu_memory_counts", None, POINTER(DeviceCounts), c_int32)
_lib.declare("step_arena_create", c_int32, POINTER(c_void_p), POINTER(_lib.Error))
_lib.declare("step_arena_destroy", None, c_void_p)
_lib.declare("step_arena_begin", c_int32, c_void_p, c_void_p, POINTER(_lib.Error))
_lib.declare("step_arena_end", c_int32, c_void_p, POINTER(ArenaCounts), POINTER(_lib.Error))
_lib.declare("step_arena_forget", None, c_void_p)

_runtime = None  # CUDA's, once use_arena() was called
_pools = []


def _loaded_runtime():
    """The libcudart that PyTorch runs with."""
    with open("/proc/self/maps", encoding="utf-8") as lines:
        for line in lines:
            path = line.split(maxsplit=5)[-1].strip()
            if os.path.basename(path).startswith("libcudart"):
                return ctypes.CDLL(path)
    raise RuntimeError("ckpt: this PyTorch has no CUDA runtime, so nothing can be allocated on a GPU")


def use_arena():
    """Replace PyTorch's allocator on the GPU. Call it once, before any tensor is there."""
    global _runtime
    if _runtime is not None:
        return
    runtime = _loaded_runtime()
    for index in range(torch.cuda.device_count()):
        pool = c_void_p()
        failed = runtime.cudaDeviceGetDefaultMemPool(byref(pool), index) or runtime.cudaMemPoolSetAttribute(
            pool, RELEASE_THRESHOLD, byref(c_uint64(KEPT_BY_THE_POOL)))
        if failed:
            raise RuntimeError(f"ckpt: GPU {index} has no memory pool (CUDA error {failed})")
        _pools.append(pool)
    _lib.library.ckpt_gpu_memory_from(ctypes.cast(runtime.cudaMallocAsync, c_void_p), ctypes.cast(runtime.cudaFreeAsync, c_void_p))
    torch.cuda.memory.change_current_allocator(
        torch.cuda.memory.CUDAPluggableAllocator(_lib.library._name, "ckpt_gpu_malloc", "ckpt_gpu_free"))
    _runtime = runtime


def in_use():
    return _runtime is not None


def memory(device, reset_peak=False):
    """(bytes allocated on the GPU now, the most since it was last reset), by whoever allocates there."""
    if in_use():
        counts = DeviceCounts()
        _lib.library.ckpt_gpu_memory_counts(byref(counts), reset_peak)
        return counts.live_bytes, counts.peak_bytes
    now, peak = torch.cuda.memory_allocated(device), torch.cuda.max_memory_allocated(device)
    if reset_peak:
        torch.cuda.reset_peak_memory_stats(device)
    return now, peak


class Arena:
    """The arena of one planned step.

    counts   ArenaCounts of the last step that ended
    """

    def __init__(self, device):
        if not in_use():
            raise ValueError("ckpt: option arena wants ckpt_torch.use_arena() to be called before anything is on the GPU")
        self.device, self.counts, self._handle = device, ArenaCounts(), c_void_p()
        _lib.call("step_arena_create", byref(self._handle))

    def begin(self):
        try:
            _lib.call("step_arena_begin", self._handle, torch.cuda.current_stream(self.device).cuda_stream)
        except ValueError as error:  # the step runs all the same
            warnings.warn(f"ckpt: {error}", stacklevel=2)

    def end(self):
        known = self.counts.arena_bytes
        _lib.call("step_arena_end", self._handle, byref(self.counts))
        if self.counts.missed:
            _lib.library.ckpt_step_arena_forget(self._handle)
        elif not known:  # what the recorded step took is free now, and the block needs room
            torch.cuda.synchronize(self.device)
            _runtime.cudaMemPoolTrimTo(_pools[self.device.index or 0], c_size_t(0))

    def said(self):
        return {name: getattr(self.counts, name) for name, _ in ArenaCounts._fields_}

    def __del__(self):
        if self._handle:
            _lib.library.ckpt_step_arena_destroy(self._handle)

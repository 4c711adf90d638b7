"""Offload: copies of buffers to the host and back, on streams of their own beside the step's.

    offload   the copy starts once the step's stream has made the tensor
    free      the step's stream waits until it has arrived, so that the memory may be taken by what comes next
    fetch     memory is taken in the step's stream, and the copy back starts
    run       the first op that reads it waits for the copy

On the CPU a copy is made at once and frees nothing.
"""

import functools
import time

import torch
from torch.fx.node import has_side_effect

SAMPLE = 1 << 26  # bytes of a copy that measures the link
_events = {}  # address of what a copy writes -> its end


@functools.cache
def _stream(device, way):
    return torch.cuda.Stream(device)


def _copy(to, source, device, way):
    stream = _stream(device, way)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        to.copy_(source, non_blocking=True)
    _events[to.data_ptr()] = stream.record_event()
    return to


def offload(x):
    """A copy of x on the host, which begins now."""
    if not x.is_cuda:
        return x.clone()
    return _copy(torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, pin_memory=True), x, x.device, "to host")


@has_side_effect
def free(x, host):
    """x may be given up: its copy has arrived."""
    if x.is_cuda:
        torch.cuda.current_stream(x.device).wait_event(_events.pop(host.data_ptr()))


def fetch(host, device):
    """A copy of it on the device, which begins now; ready() before it is read."""
    if device.type != "cuda":
        return host.clone()
    return _copy(torch.empty_strided(host.size(), host.stride(), dtype=host.dtype, device=device), host, device, "from host")


def ready(x):
    if x.is_cuda:
        torch.cuda.current_stream(x.device).wait_event(_events.pop(x.data_ptr()))
    return x


@functools.cache
def link(device):
    """The measured rates to the host and back, as the option "link" takes them."""
    here = torch.empty(SAMPLE, dtype=torch.uint8, device=device)
    host = torch.empty(SAMPLE, dtype=torch.uint8, pin_memory=True)

    def rate(to, source):
        seconds = []
        for _ in range(6):  # the first one warms up
            torch.cuda.synchronize(device)
            start = time.perf_counter()
            to.copy_(source, non_blocking=True)
            torch.cuda.synchronize(device)
            seconds.append(time.perf_counter() - start)
        return int(SAMPLE / min(seconds[1:]))
    return f"{rate(host, here)}B/s,{rate(here, host)}B/s"

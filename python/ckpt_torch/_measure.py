"""What every node costs, measured once on the device it runs on: time, workspace, and the bytes its outputs really take.

Nodes with the same target and the same arguments but for their numbers cost the same; they are measured once and kept in
a file by device, threads and versions. And the peak of a step, as PyTorch's own counters see it.
"""

import contextlib
import hashlib
import json
import os
import sys
import time

import torch
from torch.fx import Node, map_arg
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from . import _files, _progress
from ._arena import memory
from ._inplace import arguments_to_take
from ._joint import Cost, device_of, storage_of, storages, tensors
from ._random import functions


def cache_file(device):
    """The file of the measurements of this device, these threads and versions."""
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device) + " " + str(torch.version.cuda)
    else:
        name = _processor()
    key = f"3 {device.type} {name} {torch.get_num_threads()} {torch.__version__} {sys.version_info[:2]}"
    return _files.folder() / f"costs-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"


def _processor():
    with contextlib.suppress(OSError):
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    return "cpu"


def signature(node):
    """The target and all of its arguments that may make a difference to its cost."""
    def word(x):
        if isinstance(x, torch.Tensor):
            return f"{x.dtype}{list(x.shape)}{list(x.stride())}{x.device.type}"
        return repr(x)
    arguments = map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
    return f"{node.target}(" + ", ".join(word(x) for x in pytree.tree_leaves(arguments)) + ")"


def _real(x, on_host):
    """A tensor like a fake one, with numbers that no op refuses: 0 for indices.

    on_host   storages that lie on the host although PyTorch's description says otherwise
    """
    if not isinstance(x, torch.Tensor):
        return x
    if storage_of(x) in on_host:
        return torch.zeros(x.shape, dtype=x.dtype)
    size = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride())) if x.numel() else 0
    flat = torch.empty(size, dtype=x.dtype, device=x.device)
    if x.dtype.is_floating_point or x.dtype.is_complex:
        flat.fill_(0.5) if x.dtype.itemsize < 2 else flat.uniform_(0.1, 1) if not x.dtype.is_complex else flat.fill_(0.5)
    else:
        flat.fill_(x.dtype == torch.bool)
    return flat.as_strided(x.shape, x.stride())


class _Case:
    """One distinct node, ready to run."""

    def __init__(self, node, on_host=frozenset()):
        self.node = node
        arguments = map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
        self.arguments, self.keywords = pytree.tree_map(lambda x: _real(x, on_host), arguments)

    def run(self):
        return functions.get(self.node.target, self.node.target)(*self.arguments, **self.keywords)


def allocated(nbytes, device):
    """Bytes that so many take of a device: on a GPU, allocators give multiples of 512."""
    return -(-nbytes // 512) * 512 if device.type == "cuda" else nbytes


def _outputs_of(case, out):
    """Of each storage that the node makes, in the order of joint.writes, its bytes, 0 where it made a view; and which of
    them, by number, lie on the host although they are described as on a GPU: what attention says of its random numbers."""
    inside = {storage_of(t) for t in tensors((case.arguments, case.keywords))}
    real, host = {}, set()
    for fake, tensor in zip(tensors(case.node.meta["val"]), tensors(out)):
        if fake.device.type != tensor.device.type:
            host.add(storage_of(fake))
        real.setdefault(storage_of(fake), 0 if storage_of(tensor) in inside else allocated(
            tensor.untyped_storage().nbytes(), tensor.device))
    known = {s for n in case.node.all_input_nodes for s in storages(n)}
    made = [s for s in real if s not in known]
    return [0 if s in host else real[s] for s in made], [i for i, s in enumerate(made) if s in host]


class MemoryEvents:
    """PyTorch's allocations on the CPU between start() and stop(), as its profiler sees them."""

    def start(self):
        self._profile = torch.autograd.profiler.profile(use_cpu=True, profile_memory=True)
        with _silent_stderr():
            self._profile.__enter__()

    def stop(self):
        with _silent_stderr():
            self._profile.__exit__(None, None, None)
        events = [e for e in self._profile.kineto_results.events()
                  if e.name() == "[memory]" and e.device_type() == torch.autograd.DeviceType.CPU]
        self._events = sorted((e.start_ns(), e.nbytes()) for e in events)
        self._profile = None

    def peak(self, start_ns, end_ns):
        """The most bytes beyond what was there at `start_ns` of time.time_ns(), until `end_ns`."""
        now = peak = 0
        for at, nbytes in self._events:
            if start_ns <= at <= end_ns:
                now += nbytes
                peak = max(peak, now)
        return peak

    def left(self, start_ns, end_ns):
        """Bytes beyond what was there at `start_ns`, at `end_ns`."""
        return sum(nbytes for at, nbytes in self._events if start_ns <= at <= end_ns)


@contextlib.contextmanager
def _silent_stderr():
    """PyTorch's profiler writes lines to standard error, whatever its log level, when it starts and stops."""
    sys.stderr.flush()
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def _memory_on_gpu(case, device):
    before, _ = memory(device, reset_peak=True)
    out = case.run()
    return memory(device)[1] - before, out


def _time_on_gpu(case, device):
    """ns of a run among its like, which a GPU gets before it has done the one before: the host's time for it if that is
    longer."""
    def several(count):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(count):
            case.run()
        end.record()
        end.synchronize()
        return 1e6 * begin.elapsed_time(end) / count
    with torch.cuda.device(device):
        first = several(3)
        count = int(min(50, max(3, 3e6 / max(1, first))))
        return int(min(several(count) for _ in range(3)))


def _time(case, device):
    """The least ns of a few runs: what else the machine does only adds."""
    if device.type == "cuda":
        return _time_on_gpu(case, device)
    runs, total = [], 0
    while len(runs) < 5 or (total < 1e7 and len(runs) < 50):
        start = time.perf_counter_ns()
        case.run()
        runs.append(time.perf_counter_ns() - start)
        total += runs[-1]
        if total > 3e8:
            break
    return min(runs)


def _guess(node):
    """Where a node cannot be run alone: bytes moved at 10 GB/s, no workspace."""
    return {"ns": sum(sum(storages(n).values()) for n in [node, *node.all_input_nodes]) // 10 + 1000, "workspace": 0,
            "bytes": None, "host": [], "inplace": [], "guess": True}


def unchanged(device, rows):
    """Whether {signature: row} of costs_of() is what is measured today."""
    known = _read(cache_file(device))
    return all(known.get(key) == row for key, row in rows.items())


def costs_of(joint, tell=lambda text: None, kernels=()):
    """A function from an Op of `joint` that is a node to its Cost; and {signature: row} of all that was measured.

    kernels   nodes that Inductor's kernels compute: such a kernel takes of the time of its nodes, each run alone, the share
              that its bytes read and written are of theirs; and no workspace
    """
    nodes = {node: signature(node) for op in joint.ops if op.kind == "node" for node in [op.node, *joint.computed_with(op.node)]}
    device = next((d for d in (device_of(node) for node in nodes) if d.type == "cuda"), torch.device("cpu"))
    path = cache_file(device)
    known = _read(path)
    if any(key not in known for key in nodes.values()):
        _measure(joint, nodes, known, tell)
        _write(path, known)
    rows = {key: known[key] for key in nodes.values()}

    def cost(op):
        row = rows[nodes[op.node]]
        ns, workspace = row["ns"], row["workspace"]
        if op.node in kernels:
            members = [op.node, *joint.computed_with(op.node)]
            moved = sum(sum(storages(n).values()) for node in members for n in [node, *node.all_input_nodes])
            ns, workspace = sum(rows[nodes[n]]["ns"] for n in members) * joint.bytes_moved(op) // max(1, moved), 0
        return Cost(max(1, ns), workspace, dict(zip(op.writes, row["bytes"] or [])), row["inplace"])
    return cost, {key: row for key, row in rows.items() if not row.get("guess")}


def _measure(joint, nodes, known, tell):
    """Adds to `known` what is not there of `nodes`, {node of the joint graph: signature}."""
    state = torch.get_rng_state()
    states = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    progress = _Progress(2 * len(set(nodes.values()) - set(known)), tell)
    events = None if torch.autograd._profiler_enabled() else MemoryEvents()
    runs, on_host = {}, set()  # runs: signature -> (node, what _memory saw)
    try:
        with _disable_current_modes(), torch.no_grad(), torch._C._DisableAutocast():  # AOTAutograd is tracing
            if events:
                events.start()
            for node, key in nodes.items():
                if key not in known and key not in runs:
                    runs[key] = node, _try(_memory, _Case(node, on_host))
                    progress.step()
                host = known[key]["host"] if key in known else runs[key][1][-1] if runs[key][1] else ()
                on_host.update(joint.op_of[node].writes[i] for i in host)
            if events:
                events.stop()
            for key, (node, seen) in runs.items():
                known[key] = (seen and _try(_row, _Case(node, on_host), seen, events)) or _guess(node)
                progress.step()
    finally:
        torch.set_rng_state(state)
        if states is not None:
            torch.cuda.set_rng_state_all(states)


class _Progress:
    def __init__(self, total, tell):
        self.total, self.tell, self.done, self.start = total, tell, 0, time.monotonic()
        self.last = self.start + _progress.SECONDS_QUIET - 1

    def step(self):
        self.done += 1
        now = time.monotonic()
        if now - self.last > 1:
            self.last = now
            left = (now - self.start) / self.done * (self.total - self.done)
            self.tell(f"measured {self.done // 2} of {self.total // 2} kinds of ops, about {left:.0f} s left")


def _try(function, *arguments):
    """None where a node cannot be run alone, with numbers of no meaning."""
    try:
        return function(*arguments)
    except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError, AssertionError):
        return None


def _memory(case):
    """(start, end, *_outputs_of) of a run; on a GPU the peak and None in place of the times."""
    device = device_of(case.node)
    if device.type == "cuda":
        peak, out = _memory_on_gpu(case, device)
        return peak, None, *_outputs_of(case, out)
    start = time.time_ns()
    out = case.run()
    end = time.time_ns()
    return start, end, *_outputs_of(case, out)


def _row(case, seen, events):
    start, end, size, host = seen
    if end is None:
        peak = start
    else:
        peak = events.peak(start, end) if events else sum(size)
    return {"ns": _time(case, device_of(case.node)), "workspace": max(0, peak - sum(size)), "bytes": size, "host": host,
            "inplace": arguments_to_take(case)}


def _read(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def _write(path, rows):
    """Another process may have added rows meanwhile; the file is replaced whole."""
    with contextlib.suppress(OSError):
        rows = {**_read(path), **{k: v for k, v in rows.items() if not v.get("guess")}}
        _files.replace(path, json.dumps(rows).encode())


class StepMeter:
    """The most bytes that PyTorch allocated beyond what was there when forward began.

    On a GPU that is what its allocator counts until the end of backward. On the CPU the profiler counts, once for forward
    and once for backward: stopped anywhere else, PyTorch 2.15 lets it write into memory that it has given back. So what
    the caller allocates between the two is not seen there; the tangents are known.
    """

    def __init__(self, device):
        self.device, self.peak, self._before = device, 0, 0

    def possible(self):
        """False: somebody else is profiling."""
        return self.device.type == "cuda" or not torch.autograd._profiler_enabled()

    def run(self, part, args, base):
        """part(args), measured; `base` bytes of it were there already beyond what was there before forward. Gives its
        result and what it left behind."""
        if self.device.type == "cuda":
            if not base:
                self._before, _ = memory(self.device, reset_peak=True)
            out = part(args)
            self.peak = memory(self.device)[1] - self._before
            return out, 1
        events = MemoryEvents()
        events.start()
        start = time.time_ns()
        try:
            out = part(args)
        finally:
            end = time.time_ns()
            events.stop()
        self.peak = max(self.peak, base + events.peak(start, end))
        return out, base + events.left(start, end)

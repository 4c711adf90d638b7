#!/usr/bin/env python3
"""Memory snapshots for the importer's tests, with PyTorch on the CPU: python3 make_snapshot.py (writes beside itself).

snapshot_none.pickle      torch.cuda.memory._dump_snapshot() itself, as it writes it with no GPU: nothing in it.
snapshot_profile.pickle   torch.cuda._memory_viz._profile_to_snapshot() of a profiled training run, pickled as profile_plot
                          does: the one place where PyTorch makes a snapshot of memory on the CPU. No times, no addresses
                          of blocks, categories instead.
snapshot_training.pickle  What a GPU would have given, as nothing in PyTorch fills a snapshot's history without one: the
                          frame of snapshot_none, filled with the allocations of a real training run on the CPU (sizes,
                          order, times, stacks, as the profiler saw them), placed by a small model of the caching
                          allocator: 512-byte rounding, segments of 2 and 20 MiB, best fit, free blocks joined.
snapshot_ring.pickle      The same with only the last 60 of every 100 entries, as a full ring leaves them.

PyTorch's own reader, torch.cuda._memory_viz, must accept all that PyTorch could have written."""
import os
import pickle

import torch
from torch._C._profiler import _EventType
from torch.cuda import _memory_viz

HERE = os.path.dirname(os.path.abspath(__file__))
BASE = 0x7F3C00000000
FRAMES_MAX = 16


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.MaxPool2d(2))
        self.head = torch.nn.Linear(16 * 8 * 8, 10)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


def step(net, optimizer):
    x, y = torch.randn(32, 3, 16, 16), torch.randint(0, 10, (32,))
    with torch.profiler.record_function("forward"):
        loss = torch.nn.functional.cross_entropy(net(x), y)
    with torch.profiler.record_function("backward"):
        loss.backward()
    with torch.profiler.record_function("optimizer"):
        optimizer.step()
        optimizer.zero_grad()


def profiled(steps):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    kept = [(t.untyped_storage().data_ptr(), t.untyped_storage().nbytes()) for t in net.state_dict().values()]
    with torch.profiler.profile(profile_memory=True, record_shapes=True, with_stack=True) as profile:
        for _ in range(steps):
            step(net, optimizer)
    return profile, kept


class Allocator:
    """Segments of blocks [address, size, requested or None, frames]; entries as the caching allocator records them."""

    def __init__(self):
        self.segments, self.entries, self.next = [], [], BASE

    def record(self, action, address, size, frames, metadata, time_us):
        self.entries.append({"action": action, "addr": address, "size": size, "stream": 0, "time_us": time_us,
                             "frames": frames, "user_metadata": metadata, "pool_id": (0, 0)})

    def alloc(self, requested, *about):
        size = -(-requested // 512) * 512
        small = size <= 1 << 20
        fits = [(b[1], s, i) for s, seg in enumerate(self.segments) if seg["small"] == small
                for i, b in enumerate(seg["blocks"]) if b[2] is None and b[1] >= size]
        if not fits:
            room = 2 << 20 if small else max(20 << 20, -(-size // (2 << 20)) * (2 << 20))
            self.segments.append({"small": small, "address": self.next, "size": room,
                                  "blocks": [[self.next, room, None, []]]})
            self.record("segment_alloc", self.next, room, *about)
            self.next += room
            fits = [(room, len(self.segments) - 1, 0)]
        _, s, i = min(fits)
        blocks = self.segments[s]["blocks"]
        address, room = blocks[i][:2]
        blocks[i:i + 1] = [[address, size, requested, about[0]]] + (
            [[address + size, room - size, None, []]] if room > size else [])
        self.record("alloc", address, requested, *about)
        return address

    def free(self, address, *about):
        blocks = next(seg["blocks"] for seg in self.segments if seg["address"] <= address < seg["address"] + seg["size"])
        i = next(i for i, b in enumerate(blocks) if b[0] == address)
        for action in "free_requested", "free_completed":
            self.record(action, address, blocks[i][2], *about)
        blocks[i][2:] = [None, []]
        for k in i, i - 1:  # join with the free block behind, then with the one before
            if 0 <= k < len(blocks) - 1 and blocks[k][2] is None and blocks[k + 1][2] is None:
                blocks[k][1] += blocks.pop(k + 1)[1]

    def final(self, device):
        made = []
        for seg in self.segments:
            used = [b for b in seg["blocks"] if b[2] is not None]
            made.append({
                "device": device, "address": seg["address"], "total_size": seg["size"],
                "allocated_size": sum(b[1] for b in used), "active_size": sum(b[1] for b in used),
                "requested_size": sum(b[2] for b in used), "stream": 0,
                "segment_type": "small" if seg["small"] else "large", "segment_pool_id": (0, 0),
                "is_expandable": False, "frames": [],
                "blocks": [{"address": b[0], "size": b[1], "requested_size": b[2] or 0, "frames": b[3],
                            "state": "active_allocated" if b[2] is not None else "inactive"} for b in seg["blocks"]]})
        return made


def about(event, ranges, frames_of):
    """Stack, metadata and time of an event of the profiler's tree. The metadata is what the program would have set with
    _set_memory_metadata in its own thread; those of autograd, which run the backward, never have it."""
    calls, parent = [], event.parent
    while parent is not None:
        if parent.tag in (_EventType.PyCall, _EventType.PyCCall):
            calls.append(parent.name)
        parent = parent.parent
    metadata = next((r.name for r in ranges if r.start_time_ns <= event.start_time_ns <= r.end_time_ns), "")
    metadata = "" if metadata == "backward" else metadata
    key = tuple(calls[:FRAMES_MAX])
    if key not in frames_of:
        frames_of[key] = [frame(name) for name in key]
    return frames_of[key], metadata, event.start_time_ns // 1000


def frame(name):
    if ".py(" in name:
        path, rest = name.split("(", 1)
        line, function = rest.split("): ", 1)
        if path.endswith("make_snapshot.py"):  # not where it lies on the machine that made the file
            path = "/home/user/make_snapshot.py"
        return {"filename": path, "line": int(line), "name": function}
    return {"filename": "??", "line": 0, "name": name}


def training(steps):
    profile, kept = profiled(steps)
    allocator, address_of, frames_of = Allocator(), {}, {}
    for pointer, size in kept:
        address_of[pointer] = allocator.alloc(size, [], "", 0)
    allocator.entries.clear()  # the recording begins here
    todo, events = list(profile.profiler.kineto_results.experimental_event_tree()), []
    while todo:
        event = todo.pop()
        events.append(event)
        todo += event.children
    ranges = [e for e in events if e.name in ("forward", "backward", "optimizer")]
    annotations = [(r.start_time_ns // 1000, r.name, "START") for r in ranges]
    annotations += [(r.end_time_ns // 1000, r.name, "END") for r in ranges]
    for event in sorted(events, key=lambda e: e.start_time_ns):
        if event.tag != _EventType.Allocation:
            continue
        fields = event.extra_fields
        if fields.alloc_size > 0:
            address_of[fields.ptr] = allocator.alloc(fields.alloc_size, *about(event, ranges, frames_of))
        elif fields.ptr in address_of:
            allocator.free(address_of.pop(fields.ptr), *about(event, ranges, frames_of))
    snapshot = torch.cuda.memory._snapshot()
    snapshot["segments"] = allocator.final(0)
    other = Allocator()
    other.alloc(512, [], "", allocator.entries[0]["time_us"])
    snapshot["segments"] += other.final(1)
    snapshot["device_traces"] = [allocator.entries, other.entries]
    snapshot["external_annotations"] = [{"name": name, "stage": stage, "device": 0, "time_us": time_us}
                                        for time_us, name, stage in sorted(annotations)]
    return snapshot


def write(name, snapshot):
    path = os.path.join(HERE, name)
    with open(path, "wb") as f:
        pickle.dump(snapshot, f)
    assert os.path.getsize(path) < 150000, f"{name}: {os.path.getsize(path)} bytes"
    with open(path, "rb") as f:
        read = pickle.load(f)
    _memory_viz.segsum(read)
    if name != "snapshot_profile.pickle":  # trace() wants allocated_size, which PyTorch leaves out there
        _memory_viz.trace(read)
    _memory_viz.trace_plot(read)
    _memory_viz.memory(read, format_flamegraph=lambda lines: lines)
    print(f"{name}: {os.path.getsize(path)} bytes, entries {[len(t) for t in read['device_traces']]}, "
          f"{len(read['segments'])} segments")


def main():
    torch.cuda.memory._dump_snapshot(os.path.join(HERE, "snapshot_none.pickle"))
    write("snapshot_profile.pickle", _memory_viz._profile_to_snapshot(profiled(1)[0]))
    snapshot = training(2)
    write("snapshot_training.pickle", snapshot)
    entries = snapshot["device_traces"][0]
    snapshot["device_traces"][0] = entries[len(entries) * 40 // 100:]
    write("snapshot_ring.pickle", snapshot)


if __name__ == "__main__":
    main()

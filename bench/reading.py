#!/usr/bin/env python3
"""What reading, lowering and writing cost: a chain of N ops with unequal sizes, a Kineto trace of as many events, a
memory snapshot of PyTorch's of as many entries, a profile of as many layers, and a small model of nearly 10^6 layers,
through the programs that read and write them. Planning itself is left out: the plan keeps all.

    bench/reading.py [PROGRAMS [OPS [MOST]]]     default: build/release/bin 1000000

With MOST, exit code 1 where a program that reads a file takes more than MOST times its bytes, beside 32 MB; the model is
left out.
"""
import json
import os
import pickle
import resource
import sys
import tempfile

# command, what it reads (to be compared with; "": more than one thing is done), what it writes
COMMANDS = [
    ("ckpt-plan -s keep-all -b 100% -o p.json --trace t.json g.json", "", "p.json t.json"),
    ("ckpt-graph g.json -o again.json", "g.json", "again.json"),
    ("ckpt-graph g.json -o g.svg", "g.json", "g.svg"),
    ("ckpt-view p.json -o p.svg", "p.json", "p.svg"),
    ("ckpt-view p.json -o p.html", "p.json", "p.html"),
    ("ckpt-view t.json -o t.svg", "t.json", "t.svg"),
    ("ckpt-compare p.json p.json", "p.json p.json", ""),
    ("ckpt-compare t.json t.json", "t.json t.json", ""),
    ("ckpt-compare profile.json profile.json", "profile.json profile.json", ""),
    ("ckpt-profile --import kineto.json -o k.json", "kineto.json", "k.json"),
    ("ckpt-profile --import snapshot.pickle -o k.json", "snapshot.pickle", "k.json"),
]
LOWER = ("ckpt-graph deep.json -o lowered.json", "", "lowered.json")


def chain(count):
    """`count` forward ops, then their backward."""
    a = [{"name": f"a{i}", "bytes": 512 + 64 * (i % 7), "kind": "activation"} for i in range(count)]
    g = [{"name": f"g{i}", "bytes": 512, "kind": "gradient"} for i in reversed(range(count))]
    f = [{"name": f"f{i}", "phase": "forward", "reads": [f"a{i - 1}"] if i else [], "writes": [f"a{i}"],
          "time_ns": 100 + i % 13, "workspace_bytes": 64} for i in range(count)]
    b = [{"name": f"b{i}", "phase": "backward", "reads": [f"a{i}"] + ([f"g{i + 1}"] if i + 1 < count else []),
          "writes": [f"g{i}"], "time_ns": 200, "workspace_bytes": 64} for i in reversed(range(count))]
    return {"format": "ckpt-graph/1", "name": "chain", "static": [], "buffers": a + g, "ops": f + b, "outputs": []}


def deep():
    """99^3 layers: blocks in blocks in blocks."""
    layers = [{"name": "r", "op": "relu"}]
    for name in "cba":
        layers = [{"repeat": 99, "name": name, "layers": layers}]
    ends = [{"name": "out", "op": "linear", "features": 8}, {"name": "loss", "op": "mse", "in": ["out", "y"]}]
    return {"format": "ckpt-model/1", "name": "deep", "inputs": [{"name": n, "shape": [2, 8]} for n in "xy"],
            "layers": [{"name": "in", "op": "linear", "in": ["x"], "features": 8}] + layers + ends}


def profile(count):
    layers = [{"layer": f"l{i}", "op": "relu", "forward": {"median_ns": 10 + i % 7, "spread_ns": 1, "repeats": 5, "samples_ns": [10, 9, 12, 10, 11]},
               "backward": {"median_ns": 20}, "output_bytes": 64, "forward_workspace_bytes": 0} for i in range(count)]
    return {"format": "ckpt-profile/1", "model": "chain", "machine": {"device": "cpu", "threads": 2}, "recorder": "none", "flushed": True,
            "link": {"d2h_bytes_per_s": 1000, "h2d_bytes_per_s": 1000}, "layers": layers}


def kineto(count):
    """Kernels, and allocations of which every third goes again."""
    events, live, total = [], [], 0
    for i in range(count // 2):
        events.append({"ph": "X", "cat": "kernel", "name": "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>",
                       "pid": 0, "tid": 7, "ts": 7 * i, "dur": 5.1, "args": {"External id": i, "correlation": i, "stream": 7, "device": 0}})
        address, size = (1 << 40) + 1024 * i, 512 * (1 + i % 9)
        if live and i % 3 == 0:
            address, size = live.pop(0)
            size = -size
        else:
            live.append((address, size))
        total += size
        events.append({"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 2, "ts": 7 * i + 1,
                       "args": {"Total Allocated": total, "Bytes": size, "Addr": address, "Device Id": 0, "Device Type": 1, "Ev Idx": i}})
    return {"schemaVersion": 1, "traceEvents": events}


def snapshot(count):
    """What torch.cuda.memory._dump_snapshot writes: an allocation, then the request to free an older one and its completion. Dicts of
    frames are shared by all stacks; one allocation and free in eight has a stack, as fewer make the file smaller beside what is read."""
    frames = [{"name": f"forward_{i}", "filename": f"/home/user/net/layer_{i % 90}.py", "line": 10 + i} for i in range(3000)]
    entries, live = [], []

    def add(action, address, size, stack):
        entries.append({"action": action, "addr": address, "size": size, "stream": 0, "time_us": 1700000000000000 + 5 * len(entries),
                        "frames": stack, "user_metadata": "", "pool_id": (0, 0)})

    for i in range(count // 3):
        def stack(step):
            return [frames[(7 * i + step * k) % len(frames)] for k in range(24)] if i % 8 == 0 else []
        address, size = 0x7F3C00000000 + 512 * i, 512 * (1 + i % 977)
        live.append((address, size))
        add("alloc", address, size, stack(13))
        if len(live) > 500:
            address, size = live.pop(i % 500)
            freed = stack(17)
            add("free_requested", address, size, freed)
            add("free_completed", address, size, freed)
    segments = [{"device": 0, "address": a, "total_size": s, "allocated_size": s, "active_size": s, "requested_size": s, "stream": 0,
                 "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
                 "blocks": [{"address": a, "size": s, "requested_size": s, "state": "active_allocated", "frames": []}]} for a, s in live]
    return {"segments": segments, "device_traces": [entries], "allocator_settings": {}, "external_annotations": []}


def run(programs, command):
    """(exit status, user seconds, largest resident MB)"""
    child = os.fork()
    if child == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        name, *rest = command.split()
        os.execv(os.path.join(programs, name), [name] + rest)
    _, status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_utime, usage.ru_maxrss / 1000


def size(names):
    return sum(os.path.getsize(name) for name in names.split() if os.path.exists(name)) / 1e6


def main():
    programs = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build/release/bin")
    ops = int(sys.argv[2]) if len(sys.argv) > 2 else 1000000
    most = float(sys.argv[3]) if len(sys.argv) > 3 else None
    status = 0
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        writer = os.fork()  # the memory of a process counts as that of its children until they start a program
        if writer == 0:
            for name, content in (("g.json", chain(ops // 2)), ("kineto.json", kineto(ops)), ("profile.json", profile(ops)),
                                  ("deep.json", deep())):
                with open(name, "w", encoding="utf-8") as file:
                    file.write(json.dumps(content))
            with open("snapshot.pickle", "wb") as file:
                pickle.dump(snapshot(ops), file)
            os._exit(0)
        os.waitpid(writer, 0)
        print("| command | reads MB | user seconds | MB | writes MB |\n|---|---|---|---|---|")
        for command, reads, writes in COMMANDS + ([] if most else [LOWER]):
            code, seconds, megabytes = run(programs, command)
            read, written = size(reads), size(writes)
            line = f"| `{command}` | {f'{read:.0f}' if reads else ''} | {seconds:.1f} | {megabytes:.0f} | {f'{written:.0f}' if writes else ''} |"
            wrong = code != 0 or (most and reads and megabytes > most * read + 32)
            status = 1 if wrong else status
            print(line + (f" exit {code}, more than {most} times what it reads" if wrong else ""), flush=True)
        os.chdir("/")
    return status


if __name__ == "__main__":
    sys.exit(main())

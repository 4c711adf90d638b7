#!/usr/bin/env python3
"""A synthetic training step of about N ops, for measuring how planning scales: layers of random sizes and times in stages,
residual connections, some branches; backward reads inputs or outputs at random. The same N and SEED (20000) give the same file.

Usage: bench/synthetic_graph.py N [SEED] > graph.json
"""
import json
import random
import sys

wanted = int(sys.argv[1])
draw = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 20000)
buffers, forward, backward = [], [], []
size, last, residual = 64 << 20, None, None


def buffer(name, size_bytes, kind):
    buffers.append({"name": name, "bytes": size_bytes, "kind": kind})
    return name


layers = []  # (inputs, output, saved, reads of backward, time, bytes)
for k in range(wanted // 2):
    if k % 400 == 399:
        size = max(size // 2, 1 << 16)
    inputs = [] if last is None else [last]
    if residual is not None and k % 7 == 6:
        inputs.append(residual)
    nbytes = size * draw.choice([1, 1, 1, 2, 4])
    out = buffer(f"a{k}", nbytes, "activation")
    saved = [buffer(f"s{k}", nbytes // 64, "saved")] if draw.random() < 0.3 else []
    time = int(nbytes / 64 * draw.choice([1, 1, 2, 8, 20]))
    forward.append({"name": f"f{k}", "phase": "forward", "layer": f"l{k}", "reads": inputs, "writes": [out, *saved], "time_ns": time,
                    "workspace_bytes": draw.choice([0, 0, nbytes // 4])})
    kept = draw.choice([inputs, [out], inputs + [out], []]) + saved
    layers.append((k, inputs, kept, time, nbytes))
    residual = out if k % 7 == 0 else residual
    last = out
users = {}
for k, inputs, *_ in layers:
    for b in inputs:
        users.setdefault(b, []).append(k)
written = set()
for k, inputs, kept, time, nbytes in reversed(layers):
    out = f"a{k}"
    reads = [b for b in kept if b]
    if out in users:
        reads.append(f"g{k}")
    writes, adds = [], []
    for b in inputs:
        j = int(b[1:])
        name = f"g{j}"
        if name in written:
            adds.append(name)
        else:
            written.add(name)
            writes.append(buffer(name, layers[j][4], "gradient"))
    backward.append({"name": f"b{k}", "phase": "backward", "layer": f"l{k}", "reads": reads, "writes": writes, "adds": adds, "time_ns": 2 * time})
json.dump({"format": "ckpt-graph/1", "name": f"synthetic-{wanted}", "static": [{"name": "weights", "bytes": 1 << 30}], "buffers": buffers,
           "ops": forward + backward, "outputs": []}, sys.stdout)

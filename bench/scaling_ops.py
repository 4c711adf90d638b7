#!/usr/bin/env python3
"""How planning scales with the number of ops: chains, residual chains and layered graphs of unequal ops.

    bench/scaling_ops.py graph KIND OPS > graph.json
    bench/scaling_ops.py measure BIN_FOLDER FOLDER OPS,... [--budget SHARE] [--svg FILE] > table.md

KIND is chain, residual or layered; OPS counts forward and backward ops. The same KIND and OPS give the same file. `measure`
writes the graphs to FOLDER where they are not there yet, plans each at SHARE (60%) of keep-all and prints, as a Markdown
table, seconds and peak memory of the whole program, of which planning, time over keep-all, gap to the bound, and how long it
took to answer SIGTERM and --time-limit, which come in the middle of planning. FILE is a picture of seconds and memory over
ops, both axes logarithmic.
"""
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

KINDS = ("chain", "residual", "layered")
WIDTH = 8  # ops of a layer


def chain(count, _draw):
    """The chain of the test planning_large_chain: every op reads the one before, its backward op too."""
    for k in range(count):
        yield [k - 1] if k else [], 512 + 64 * (k % 7), 100 + k % 13, 200, "inputs"


def residual(count, draw):
    """Blocks of three ops and a sum with what entered the block; the backward of a sum reads nothing."""
    start = 0
    for k in range(count):
        nbytes = 512 + 64 * draw.randrange(8)
        place = k % 4
        inputs = [k - 1] if k else []
        if place == 3:
            yield [k - 1, start], 1024, 40, 60, "nothing"
            start = k
        else:
            yield inputs, 1024 if place == 2 else nbytes, draw.randrange(60, 400), 300, draw.choice(("inputs", "outputs"))


def layered(count, draw):
    """Layers of ops that read two of the layer before and, one in eight, one of up to four layers before."""
    for k in range(count):
        layer, place = divmod(k, WIDTH)
        inputs = [] if layer == 0 else [(layer - 1) * WIDTH + place, (layer - 1) * WIDTH + (place + 1) % WIDTH]
        if layer > 1 and draw.randrange(8) == 0:
            inputs.append(draw.randrange(max(0, layer - 4), layer - 1) * WIDTH + draw.randrange(WIDTH))
        yield sorted(set(inputs)), 256 * draw.randrange(1, 9), draw.randrange(50, 500), 300, draw.choice(("inputs", "outputs"))


def graph(kind, ops, out):
    """The step of `ops` ops as JSON: gradients are written by the backward of the last reader, the others add."""
    nodes = list({"chain": chain, "residual": residual, "layered": layered}[kind](ops // 2, random.Random(ops)))
    written = set()
    backward, gradients = [], []
    has_reader = set(b for inputs, *_ in nodes for b in inputs)
    for k in range(len(nodes) - 1, -1, -1):
        inputs, _, _, back, saved = nodes[k]
        reads = [f"a{b}" for b in inputs] if saved == "inputs" else [f"a{k}"] if saved == "outputs" else []
        reads += [f"g{k}"] if k in has_reader else []
        writes = [f"g{b}" for b in inputs if b not in written]
        adds = [f"g{b}" for b in inputs if b in written]
        gradients += [b for b in inputs if b not in written]
        written.update(inputs)
        backward.append({"name": f"b{k}", "phase": "backward", "layer": f"l{k}", "reads": reads, "writes": writes, "adds": adds,
                         "time_ns": back, "workspace_bytes": 64})
    out.write(f'{{"format": "ckpt-graph/1", "name": "{kind}-{ops}", "static": [], "buffers": [\n')
    out.write(",\n".join([f'{{"name": "a{k}", "bytes": {node[1]}, "kind": "activation"}}' for k, node in enumerate(nodes)] +
                         [f'{{"name": "g{k}", "bytes": {nodes[k][1] if kind != "chain" else 512}, "kind": "gradient"}}' for k in gradients]))
    out.write('], "ops": [\n')
    for k, (inputs, _, forward, _, _) in enumerate(nodes):
        op = {"name": f"f{k}", "phase": "forward", "layer": f"l{k}", "reads": [f"a{b}" for b in inputs], "writes": [f"a{k}"],
              "time_ns": forward, "workspace_bytes": 64}
        out.write(json.dumps(op) + ",\n")
    out.write(",\n".join(json.dumps(op) for op in backward))
    out.write('], "outputs": []}\n')


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "graph" and sys.argv[2] in KINDS:
        graph(sys.argv[2], int(sys.argv[3]), sys.stdout)
    else:
        sys.exit(__doc__)

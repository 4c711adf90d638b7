#!/usr/bin/env python3
"""How planning scales with the number of ops: chains, residual chains and layered graphs of unequal ops.

    bench/scaling_ops.py graph KIND OPS > graph.json
    bench/scaling_ops.py measure BIN_FOLDER FOLDER OPS,... [--budget SHARE] [--svg FILE] > table.md
    bench/scaling_ops.py limits BIN_FOLDER FOLDER OPS,... [--budget SHARE] [--tries N] > table.md

KIND is chain, residual or layered; OPS counts forward and backward ops. The same KIND and OPS give the same file. Graphs are
written to FOLDER where they are not there yet, and planned at SHARE (60%) of keep-all; tables are Markdown. `measure`:
processor seconds and peak memory of the whole program, time over keep-all and gap to the bound. FILE is a picture of seconds
and memory over ops, both axes logarithmic. `limits`: how long planning went on after --time-limit, as ckpt-plan tells it, and
how long after SIGTERM, sent half a second into planning, the program ended, its plan written; the shortest of N tries (3), for
the machine may be busy with others. At effort 3, so that planning is not over by then.
"""
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
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


def planned(command):
    """The report of a plan as text, its user + system seconds and peak memory in MB."""
    with tempfile.TemporaryFile("w+") as report:
        child = subprocess.Popen(command, stdout=report, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        report.seek(0)
        return report.read(), child.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def found(pattern, report):
    match = re.search(pattern, report)
    return match.group(1) if match else ""


def plans(child):
    """Whether the program catches SIGTERM: it does so while it plans."""
    with open(f"/proc/{child.pid}/status") as status:
        return int(found(r"SigCgt:\s*(\w+)", status.read()) or "0", 16) >> signal.SIGTERM - 1 & 1


def stopped_after(command):
    """Wall seconds from SIGTERM, half a second into planning, to the end, and the report."""
    with tempfile.TemporaryFile("w+") as report:
        child = subprocess.Popen(command, stdout=report, stderr=subprocess.DEVNULL)
        while child.poll() is None and not plans(child):
            time.sleep(0.01)
        time.sleep(0.5)
        sent = time.monotonic()
        child.send_signal(signal.SIGTERM)
        child.wait()
        took = time.monotonic() - sent
        report.seek(0)
        return took, report.read()


def graph_file(folder, kind, ops):
    path = f"{folder}/{kind}-{ops}.json"
    if not os.path.exists(path):
        with open(path, "w") as out:
            graph(kind, ops, out)
    return path


def over_keep_all(report):
    return found(r"step time .*: (\S+ %)", report) or "no plan"


def limits(bin_folder, folder, sizes, budget, tries):
    print("| graph | ops | over `--time-limit 0.1` by | plan | over `--time-limit 1` by | plan | SIGTERM: ended after | plan |")
    print("|---|---|---|---|---|---|---|---|")
    for kind in KINDS:
        for ops in sizes:
            command = [f"{bin_folder}/ckpt-plan", "--effort", "3", "--budget", budget, "-o", f"{folder}/plan.json", graph_file(folder, kind, ops)]
            row = []
            for limit in (0.1, 1):
                reports = [planned([command[0], "--time-limit", str(limit), *command[1:]])[0] for _ in range(tries)]
                seconds, report = min((float(found(r"(?:planned in|searched for) ([\d.]+) s", r)), r) for r in reports)
                row += [f"{max(0.0, seconds - limit):.2f} s", over_keep_all(report)]
            took, report = min(stopped_after(command) for _ in range(tries))
            print(f"| {kind} | {ops:,} |", " | ".join([*row, f"{took:.2f} s", over_keep_all(report)]), "|", flush=True)


def measure(bin_folder, folder, sizes, budget, svg):
    print("| graph | ops | CPU s | MB | time over keep-all | gap |")
    print("|---|---|---|---|---|---|")
    points = []
    for kind in KINDS:
        for ops in sizes:
            command = [f"{bin_folder}/ckpt-plan", "--budget", budget, "-o", f"{folder}/plan.json", graph_file(folder, kind, ops)]
            report, _, seconds, megabytes = planned(command)
            points.append((kind, ops, seconds, megabytes))
            gap = found(r"gap (\S+ %)", report)
            print(f"| {kind} | {ops:,} | {seconds:.1f} | {megabytes:.0f} | {over_keep_all(report)} | {gap} |", flush=True)
    if svg:
        draw(points, svg)


def draw(points, path):
    """Seconds and memory over ops, both axes logarithmic."""
    colours = dict(zip(KINDS, ("#0072b2", "#d55e00", "#009e73")))
    panels = (("CPU seconds", 2), ("peak memory, MB", 3))
    text = ['<svg xmlns="http://www.w3.org/2000/svg" width="760" height="300" font-family="sans-serif" font-size="11">', '<rect width="760" height="300" fill="white"/>']
    low_x, high_x = math.log10(min(p[1] for p in points)), math.log10(max(p[1] for p in points))
    for panel, (title, column) in enumerate(panels):
        left, top, wide, high = 60 + 370 * panel, 30, 290, 210
        values = [max(p[column], 0.01) for p in points]
        low, top_value = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))

        def x_of(ops, left=left, wide=wide):
            return left + wide * (math.log10(ops) - low_x) / max(high_x - low_x, 1e-9)

        def y_of(value, low=low, top_value=top_value, high=high, top=top):
            return top + high - high * (math.log10(max(value, 0.01)) - low) / max(top_value - low, 1)

        text.append(f'<text x="{left}" y="18">{title}</text>')
        for power in range(low, top_value + 1):
            y = y_of(10.0**power)
            text.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + wide}" y2="{y:.1f}" stroke="#ddd"/><text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
        for ops in sorted({p[1] for p in points}):
            text.append(f'<text x="{x_of(ops):.1f}" y="{top + high + 16}" text-anchor="middle">{ops:,}</text>')
        text.append(f'<text x="{left + wide / 2}" y="{top + high + 34}" text-anchor="middle">ops</text>')
        for row, kind in enumerate(KINDS):
            line = " ".join(f"{x_of(p[1]):.1f},{y_of(p[column]):.1f}" for p in points if p[0] == kind)
            text.append(f'<polyline points="{line}" fill="none" stroke="{colours[kind]}" stroke-width="2"/>')
            text.append(f'<text x="{left + 8}" y="{top + 14 + 14 * row}" fill="{colours[kind]}">{kind}</text>')
    text.append("</svg>")
    with open(path, "w") as out:
        out.write("\n".join(text) + "\n")


def main(words):
    options = {"--budget": "60%", "--svg": None, "--tries": "3"}
    plain = []
    while words:
        word = words.pop(0)
        if word in options and words:
            options[word] = words.pop(0)
        else:
            plain.append(word)
    if len(plain) == 3 and plain[0] == "graph" and plain[1] in KINDS:
        graph(plain[1], int(plain[2]), sys.stdout)
    elif len(plain) == 4 and plain[0] == "measure":
        measure(plain[1], plain[2], [int(n) for n in plain[3].split(",")], options["--budget"], options["--svg"])
    elif len(plain) == 4 and plain[0] == "limits":
        limits(plain[1], plain[2], [int(n) for n in plain[3].split(",")], options["--budget"], int(options["--tries"]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])

#!/usr/bin/env python3
"""Imports what PyTorch records on a GPU, and compares it with PyTorch's own figures of the same run.

    python3 bench/gpu/import_check.py --bin build/cuda/bin --out OUT                              # on the GPU
    python3 bench/gpu/import_check.py --bin build/release/bin --out OUT --device cpu --tiny       # what a CPU records

A transformer with AdamW is trained a few steps under each of PyTorch's recorders, what they write goes through
`ckpt-profile --import`, and the result is held against

  snapshot       requested_bytes.all.peak of torch.cuda.memory_stats(), to the byte; recorded from the start, and begun late
  Kineto trace   allocated_bytes.all.peak, to the byte (the profiler reports rounded blocks); the sum of the kernels', copies'
                 and fills' durations in the file, and how many there are
  ExecutionTrace what the profiler saw allocated in the step over what was there before, within 5 %: a graph has no
                 rounding and frees after the last use; the share of that step's kernels that some op got, at least 95 %

OUT gets imports.md, what was recorded and what came of it. Exit 1: a figure differs, or an import failed. A CPU has no
snapshots: the one PyTorch makes of a profile is imported and compared with nothing.
"""
import argparse
import json
import os
import pickle
import subprocess
import sys
import warnings

import torch
from torch import nn
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule

HERE = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--bin", required=True, help="folder of ckpt-profile and ckpt-plan")
parser.add_argument("--out", required=True, help="folder of the results")
parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
parser.add_argument("--tiny", action="store_true")
args = parser.parse_args()
gpu = args.device == "cuda"
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "imports"))
sys.argv[1:] = [args.out]  # make_execution.py's folder
import make_execution  # noqa: E402

SIZE = dict(rows=61, width=32, heads=2, blocks=2) if args.tiny else dict(rows=8192, width=768, heads=12, blocks=6)
BATCH, TOKENS = (4, 16) if args.tiny else (8, 512)
ACTIVITIES = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if gpu else [])
RAN = ("kernel", "gpu_memcpy", "gpu_memset")
rows, wrong = [], 0


class Training:
    def __init__(self):
        torch.manual_seed(0)
        self.model = make_execution.name_layers(make_execution.Transformer(**SIZE)).to(args.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        shape = (BATCH, TOKENS)
        self.x, self.y = (torch.randint(0, SIZE["rows"], shape, device=args.device) for _ in range(2))

    def step(self):
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(self.x), self.y.flatten()).backward()
        self.optimizer.step()


def path(name):
    return os.path.join(args.out, name)


def load(name):
    with open(path(name)) as file:
        return json.load(file)


def run(program, *rest):
    """Runs a program, which must succeed; returns its standard error."""
    done = subprocess.run([os.path.join(args.bin, program), *rest], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{program} {' '.join(rest)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stderr.strip().splitlines()


def compare(what, imported, recorded, within=0.0):
    """A row; `recorded` None: nothing to compare with."""
    global wrong
    verdict = "not compared"
    if recorded is not None:
        bad = abs(imported - recorded) > within * recorded
        wrong += bad
        verdict = "DIFFERS" if bad else "equal" if imported == recorded else f"{100 * (imported / recorded - 1):+.3f} %"
    rows.append(f"| {what} | {imported} | {'' if recorded is None else recorded} | {verdict} |")
    print(rows[-1], flush=True)
    device = torch.cuda.get_device_name() if gpu else "CPU"
    with open(path("imports.md"), "w") as file:  # after each: what follows may fail
        file.write("\n".join(["| what | imported | PyTorch | |", "|---|---|---|---|", *rows, "",
                              f"{device}, PyTorch {torch.__version__}"]) + "\n")


def start_counting():
    if gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()


def peak_of(kind):
    torch.cuda.synchronize()
    return torch.cuda.memory_stats()[f"{kind}_bytes.all.peak"]


def snapshot(name, late):
    """Recorded from the start, or only after a step, as users do when memory runs short."""
    if late:
        training = Training()
        training.step()
    start_counting()
    torch.cuda.memory._record_memory_history(stacks="python", max_entries=1000000)  # C++ frames take minutes to name
    if not late:
        training = Training()
    for _ in range(2):
        training.step()
    peak = peak_of("requested")
    torch.cuda.memory._dump_snapshot(path(f"{name}.pickle"))
    torch.cuda.memory._record_memory_history(enabled=None)
    run("ckpt-profile", "--import", path(f"{name}.pickle"), "-o", path(f"{name}.json"))
    compare(f"{name.replace('_', ' ')}, peak", load(f"{name}.json")["peak_bytes"], peak)


def snapshot_of_cpu():
    training = Training()
    with profile(activities=ACTIVITIES, profile_memory=True, record_shapes=True, with_stack=True) as profiler:
        training.step()
    from torch.cuda import _memory_viz
    with open(path("snapshot.pickle"), "wb") as file:
        pickle.dump(_memory_viz._profile_to_snapshot(profiler), file)
    run("ckpt-profile", "--import", path("snapshot.pickle"), "-o", path("snapshot.json"))
    compare("snapshot of a profile, peak", load("snapshot.json")["peak_bytes"], None)


def kineto():
    training = Training()
    training.step()
    start_counting()
    with profile(activities=ACTIVITIES, profile_memory=True, with_stack=True) as profiler:
        for _ in range(2):
            training.step()
        if gpu:
            torch.cuda.synchronize()
    profiler.export_chrome_trace(path("kineto.json"))
    run("ckpt-profile", "--import", path("kineto.json"), "-o", path("kineto.trace.json"))
    events, trace = load("kineto.json")["traceEvents"], load("kineto.trace.json")
    if gpu:
        peak = peak_of("allocated")
    else:
        peak = max(e["args"]["Total Allocated"] for e in events if e["name"] == "[memory]")
    compare("Kineto trace, peak", trace["peak_bytes"], peak)
    if gpu:
        recorded = [e for e in events if e.get("cat") in RAN]
        imported = [e for e in trace["events"] if e["phase"] not in ("allocate", "free")]
        compare("Kineto trace, kernels, copies, fills", len(imported), len(recorded))
        compare("Kineto trace, their time in ns", sum(e["end_ns"] - e["start_ns"] for e in imported),
                sum(round(1000 * e["dur"]) for e in recorded), within=1e-4)


def execution():
    training = Training()
    observer = ExecutionTraceObserver().register_callback(path("et.json"))
    with profile(activities=ACTIVITIES, profile_memory=True, record_shapes=True, execution_trace_observer=observer,
                 schedule=schedule(wait=2, warmup=1, active=1, repeat=1)) as profiler:
        for _ in range(4):
            training.step()
            if gpu:
                torch.cuda.synchronize()
            profiler.step()
    profiler.export_chrome_trace(path("et.kineto.json"))
    told = run("ckpt-profile", "--import", path("et.json"), "--times", path("et.kineto.json"), "-o", path("et.graph.json"))
    run("ckpt-plan", "--strategy", "keep-all", "-o", path("et.plan.json"), path("et.graph.json"))
    graph, summary = load("et.graph.json"), load("et.plan.json")["summary"]
    events = load("et.kineto.json")["traceEvents"]
    step = max((e for e in events if e["name"].startswith("ProfilerStep#") and e.get("cat") == "user_annotation"), key=lambda e: e["ts"])
    begin = min(e["ts"] for e in events if e.get("cat") == "cpu_op" and e["ts"] >= step["ts"])
    level = peak = 0
    for e in sorted((e for e in events if e["name"] == "[memory]"), key=lambda e: e["ts"]):
        if e["args"]["Device Type"] == (1 if gpu else 0) and begin <= e["ts"] <= step["ts"] + step["dur"]:
            level += e["args"]["Bytes"]
            peak = max(peak, level)
    compare("ExecutionTrace, peak over the static bytes", summary["peak_bytes"] - summary["static_bytes"], peak, within=0.05)
    if gpu:
        ran = sum(round(1000 * e["dur"]) for e in events if e.get("cat") in RAN)
        compare("ExecutionTrace, time of the ops in ns", sum(op["time_ns"] for op in graph["ops"]), ran, within=0.05)
    print("\n".join(line for line in told if "not in" in line))


def main():
    warnings.simplefilter("ignore")
    os.makedirs(args.out, exist_ok=True)
    if gpu:
        snapshot("snapshot_whole", late=False)
        snapshot("snapshot_late", late=True)
    else:
        torch.set_num_threads(1)
        snapshot_of_cpu()
    kineto()
    execution()
    print(f"{len(rows)} figures, {wrong} differ; PyTorch {torch.__version__}")
    sys.exit(wrong > 0)


main()

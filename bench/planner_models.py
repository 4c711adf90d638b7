#!/usr/bin/env python3
"""Plans every model in models/ (or those named) from the least feasible budget to keep-all in 12 steps, by the roofline of
a named device, and prints a Markdown table: seconds, gaps, and how often a larger budget gave a slower plan although each
plan was made by a run of its own. Seconds are user + system time of ckpt-plan, lowering and writing included.

Usage: bench/planner_models.py BIN_FOLDER EFFORT [DEVICE [model.json [--set VAR=N]...]]
"""
import glob
import json
import os
import resource
import subprocess
import sys
import tempfile

bin_folder, effort, device = sys.argv[1], sys.argv[2], (sys.argv[3:4] or ["cpu"])[0]
here = os.path.dirname(os.path.abspath(__file__))
runs = [[sys.argv[4], *sys.argv[5:]]] if len(sys.argv) > 4 else [[path] for path in sorted(glob.glob(f"{here}/../models/*.json"))]
STEPS = 12


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def plan(model, budget):
    before = cpu_seconds()
    done = subprocess.run([f"{bin_folder}/ckpt-plan", "--json", "--ignore-flags", "--effort", effort, "--device", device, "--budget", budget, *model], capture_output=True, text=True)
    seconds = cpu_seconds() - before
    if done.returncode > 1:
        sys.exit(done.stderr)
    return json.loads(done.stdout), seconds


def op_count(model):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([f"{bin_folder}/ckpt-graph", *model, "-o", f"{folder}/g.json"], check=True, capture_output=True)
        with open(f"{folder}/g.json") as f:
            return len(json.load(f)["ops"])


print(f"| model | ops | least / keep-all | seconds, effort {effort}: median, most | gap: median, most | time over keep-all at the minimum budget | larger budget, slower plan |")
print("|---|---|---|---|---|---|---|")
for model in runs:
    least, spent = plan(model, "1B")
    low, high = least["least_budget_bytes"], least["keep_all"]["peak_bytes"]
    seconds, gaps, times = [spent], [], []
    for k in range(STEPS):
        answer, spent = plan(model, f"{low + (high - low) * k // (STEPS - 1)}B")
        seconds.append(spent)
        if answer["verdict"] != "fits":
            sys.exit(f"{model}: step {k} does not fit")
        gaps.append(answer["bound"]["gap"])
        times.append(answer["time_ns"])
    slower = sum(b > a for a, b in zip(times, times[1:]))
    seconds.sort()
    gaps.sort()
    print(f"| {' '.join([os.path.basename(model[0])[:-5], *model[1:]])} | {op_count(model)} | {100 * low / high:.0f} % | {seconds[len(seconds) // 2]:.2f}, {seconds[-1]:.2f} "
          f"| {100 * gaps[len(gaps) // 2]:.2f} %, {100 * gaps[-1]:.2f} % | +{100 * (times[0] / times[-1] - 1):.1f} % | {slower} of {STEPS - 1} |", flush=True)

#!/usr/bin/env python3
"""Plans every model in models/ at --budget 6GB and at static block + half of keep-all's activations, by the roofline of
a named device; prints a Markdown table. Time is the whole command's, median of 3.

Usage: bench/plan_table.py BIN_FOLDER [DEVICE]
"""
import glob
import json
import os
import statistics
import subprocess
import sys
import time

bin_folder, device = sys.argv[1], (sys.argv[2:3] or ["cpu"])[0]
root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def plan(model, *flags):
    times = []
    for _ in range(3):
        start = time.perf_counter()
        done = subprocess.run([f"{bin_folder}/ckpt-plan", "--json", "--device", device, *flags, model], capture_output=True, text=True)
        times.append(time.perf_counter() - start)
    if done.returncode > 1:
        sys.exit(done.stderr)
    return json.loads(done.stdout), statistics.median(times)


def size(count):
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def cell(answer, seconds):
    if answer["verdict"] != "fits":
        return f"least {size(answer['least_budget_bytes'])}, {seconds:.2f} s"
    overhead = answer["time_ns"] / answer["keep_all"]["time_ns"] - 1
    return f"{size(answer['peak_bytes'])}, +{100 * overhead:.1f} %, {seconds:.2f} s"


print("| model | static block | keep-all | `--budget 6GB`: peak, overhead, answered in | static + half of activations |")
print("|---|---|---|---|---|")
for path in sorted(glob.glob(f"{root}/models/*.json")):
    keep, _ = plan(path, "--strategy", "keep-all")
    six = plan(path, "--budget", "6GB")
    half = plan(path, "--budget", f"{(keep['static_bytes'] + keep['peak_bytes']) // 2}B")
    print(f"| {os.path.basename(path)[:-5]} | {size(keep['static_bytes'])} | {size(keep['peak_bytes'])} | {cell(*six)} | {cell(*half)} |", flush=True)

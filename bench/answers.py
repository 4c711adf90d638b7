#!/usr/bin/env python3
"""What ckpt-plan answers, one line per file and budget, so that the answers of two versions can be compared.

    bench/answers.py plan BIN_FOLDER EFFORT SHARE,... FILE... > answers.txt
    bench/answers.py compare BEFORE AFTER

FILE is a ckpt-model or a ckpt-graph. Budgets are the minimum budget plus SHARE percent of what keep-all takes more, and one
byte, which is infeasible and tells the minimum budget.

A line: file, budget, verdict, time in ns (minimum budget when nothing fits), peak, arena, bound, digest of steps and
allocations. `compare` prints every difference and exits with 1 when a plan is lost, a plan is slower by more than 0.01 %,
or a minimum budget is higher.
"""
import hashlib
import json
import os
import subprocess
import sys

SLOWER = 1.0001


def plan(bin_folder, effort, budget, file):
    with open(file) as f:
        threads = ["--threads", "1"] if "ckpt-model" in f.read(10000) else []  # a graph's times are its own
    command = [f"{bin_folder}/ckpt-plan", "--effort", effort, "--budget", f"{budget}B", *threads, "-o", "-", file]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode > 1:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def show(name, share, answer):
    if answer["verdict"] != "fits":
        print(name, share, "infeasible", answer["least_budget_bytes"], 0, 0, answer.get("no_schedule_below_bytes", 0), "-", flush=True)
        return
    summary = answer["summary"]
    what = json.dumps([answer["steps"], answer["places"]]).encode()
    print(name, share, "fits", summary["time_ns"], summary["peak_bytes"], summary["arena_bytes"], answer["bound"]["time_ns"],
          hashlib.sha256(what).hexdigest()[:16], flush=True)


def read(path):
    with open(path) as f:
        return {tuple(line.split()[:2]): line.split()[2:] for line in f if line.strip()}


def compare(before, after):
    worse = 0
    for key in before:
        old, new = before[key], after.get(key)
        if new == old:
            continue
        if new is None:
            print(*key, "has no answer any more")
            worse += 1
            continue
        ratio = int(new[1]) / max(int(old[1]), 1)
        bad = (old[0] == "fits" and new[0] != "fits") or (old[0] == new[0] and ratio > (SLOWER if old[0] == "fits" else 1))
        worse += bad
        bound = f"bound {100 * (int(new[4]) / max(int(old[4]), 1) - 1):+.3f} %"
        print(*key, f"{old[0]} {old[1]} -> {new[0]} {new[1]} ({100 * (ratio - 1):+.4f} %), {bound}", "WORSE" if bad else "")
    same = sum(before[key] == after.get(key) for key in before)
    print(f"{same} of {len(before)} the same, {worse} worse")
    return 1 if worse else 0


if sys.argv[1] == "compare":
    sys.exit(compare(read(sys.argv[2]), read(sys.argv[3])))
bin_folder, effort, shares, files = sys.argv[2], sys.argv[3], sys.argv[4].split(","), sys.argv[5:]
for file in files:
    name = os.path.basename(file)[:-5]
    impossible = plan(bin_folder, effort, 1, file)
    show(name, "none", impossible)
    low, high = impossible["least_budget_bytes"], impossible["summary"]["keep_all"]["peak_bytes"]
    for share in shares:
        show(name, share, plan(bin_folder, effort, low + (high - low) * int(share) // 100, file))

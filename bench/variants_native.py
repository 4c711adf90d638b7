#!/usr/bin/env python3
"""Plans models with and without the other ways of their layers (exact variants), at five budgets from the least one without
them to keep-all, by the roofline of the CPU, and prints a Markdown table: the least budgets, and the time of the step over
keep-all at each budget, without and with. "Without" plans the same graph after its variants are taken out.

Usage: bench/variants_native.py BIN_FOLDER EFFORT MODEL.json[,VAR=N...]...
"""
import json
import os
import subprocess
import sys
import tempfile

bin_folder, effort = sys.argv[1:3]
STEPS = 5


def plan(graph, budget):
    done = subprocess.run([f"{bin_folder}/ckpt-plan", "--json", "--ignore-flags", "--effort", effort, "--budget", f"{budget}B", graph], capture_output=True, text=True)
    if done.returncode > 1:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def without_variants(graph):
    written = {b for op in graph["ops"] for b in op["writes"]}
    for op in graph["ops"]:
        op.pop("variants", None)
        op.pop("variant", None)
    graph["buffers"] = [b for b in graph["buffers"] if b["name"] in written]
    return graph


print("| model | least budget without, with | time over keep-all at 5 budgets without | with |")
print("|---|---|---|---|")
for words in sys.argv[3:]:
    model, *values = words.split(",")
    with tempfile.TemporaryDirectory() as folder:
        whole, plain = f"{folder}/whole.json", f"{folder}/plain.json"
        lower = [f"{bin_folder}/ckpt-graph", "--threads", "2", model, "-o", whole]
        for value in values:
            lower += ["--set", value]
        subprocess.run(lower, check=True, capture_output=True)
        with open(whole) as f:
            graph = json.load(f)
        with open(plain, "w") as f:
            json.dump(without_variants(graph), f)
        least = [plan(g, 1)["least_budget_bytes"] for g in (plain, whole)]
        high = plan(plain, 1)["keep_all"]["peak_bytes"]
        keep_all_ns = plan(plain, high)["keep_all"]["time_ns"]
        shares = []
        for g in (plain, whole):
            times = [plan(g, least[0] + (high - least[0]) * k // (STEPS - 1))["time_ns"] for k in range(STEPS)]
            shares.append(", ".join(f"{100 * (t / keep_all_ns - 1):+.2f} %" for t in times))
    print(f"| {' '.join([os.path.basename(model)[:-5], *values])} | {least[0] / 1e6:.1f}, {least[1] / 1e6:.1f} MB | {shares[0]} | {shares[1]} |", flush=True)

#!/usr/bin/env python3
"""Trains models on this CPU with and without the other ways of their layers (exact variants), at five budgets from the least
one without them to keep-all, and prints a Markdown table: least budgets, and at each budget the measured step over the
measured step of keep-all, without, with, and with inexact ones too. A profile of the same machine is made first. The plans
of a budget run in turns; the figure is the median over rounds of medians over steps. Stops if a measured peak is not the
planned one or if two plans without inexact variants give other weights. "Without" plans the same graph after its variants
are taken out.

Usage: bench/variants_native.py BIN_FOLDER EFFORT STEPS ROUNDS JSON MODEL.json[,VAR=N...]...
JSON: a file that gets every run.
"""
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

bin_folder, effort, steps, rounds, record = sys.argv[1:6]
BUDGETS = 5


def run(program, *rest, accepted=(0,)):
    done = subprocess.run([f"{bin_folder}/{program}", *rest], capture_output=True, text=True)
    if done.returncode not in accepted:
        sys.exit(f"{program} {' '.join(rest)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def without_variants(graph):
    written = {b for op in graph["ops"] for b in op["writes"]}
    for op in graph["ops"]:
        op.pop("variants", None)
        op.pop("variant", None)
    graph["buffers"] = [b for b in graph["buffers"] if b["name"] in written]
    return graph


def plan(graph, budget, path, *rest):
    """Writes the plan, and returns ckpt-plan's answer."""
    words = ["--json", "--ignore-flags", "--effort", effort, "--budget", f"{budget}B", *rest, "-o", path, graph]
    return json.loads(run("ckpt-plan", *words, accepted=(0, 1)))


def follow(path, lowered):
    """A plan of the graph without variants names the one that the model is lowered to: its steps are the same."""
    with open(path) as f:
        made = json.load(f)
    made["graph"] = lowered
    with open(path, "w") as f:
        json.dump(made, f)


def train(model, options, path):
    """Step time in seconds, peak in bytes and the weights' digest."""
    out = run("ckpt-train", "--plan", path, *options, "--steps", steps, "--seed", "1", "--json", model)
    return json.loads(out)


def measure(model, values, folder):
    options = [word for value in values for word in ("--set", value)] + ["--threads", "2"]
    profile, whole, plain = (f"{folder}/{name}.json" for name in ("profile", "whole", "plain"))
    run("ckpt-profile", *options, "--seconds", "0.4", "-o", profile, model)
    run("ckpt-graph", "--profile", profile, *options, "-o", whole, model)
    with open(whole) as f:
        graph = json.load(f)
    with open(plain, "w") as f:
        json.dump(without_variants(graph), f)
    any_plan = f"{folder}/plan.json"
    least = [plan(g, 1, any_plan)["least_budget_bytes"] for g in (plain, whole)]
    high = plan(plain, 1, any_plan)["keep_all"]["peak_bytes"]
    plan(whole, high, any_plan)
    with open(any_plan) as f:
        lowered = json.load(f)["graph"]
    files = {"keep-all": f"{folder}/keep-all.json"}
    plan(plain, high, files["keep-all"], "--strategy", "keep-all")
    for k in range(BUDGETS):
        budget = least[0] + (high - least[0]) * k // (BUDGETS - 1)
        for name, g, *more in (("without", plain), ("with", whole), ("inexact", whole, "--allow-inexact")):
            files[f"{name} {k}"] = f"{folder}/{name}-{k}.json"
            plan(g, budget, files[f"{name} {k}"], *more)
    for path in files.values():
        follow(path, lowered)
    found = {name: [] for name in files}
    for _ in range(int(rounds)):
        for name, path in files.items():
            found[name].append(train(model, options, path))
    points = []
    digests = {r["weights_sha256"] for name, rs in found.items() for r in rs if not name.startswith("inexact")}
    if len(digests) != 1:
        sys.exit(f"{model}: other weights: {digests}")
    for name, path in files.items():
        with open(path) as f:
            planned = json.load(f)["summary"]
        peaks = {r["measured_peak_bytes"] for r in found[name]}
        if peaks != {planned["peak_bytes"]}:
            sys.exit(f"{model}, {name}: measured {peaks}, planned {planned['peak_bytes']}")
        points.append({"plan": name, "peak_bytes": planned["peak_bytes"], "predicted_ns": planned["time_ns"],
                       "step_ns": [r["step_ns"] for r in found[name]]})
    return least, points


def main():
    rows = []
    print("| model | least budget without, with | measured step over keep-all at 5 budgets without | with | with inexact ones | spread |")
    print("|---|---|---|---|---|---|")
    for words in sys.argv[6:]:
        model, *values = words.split(",")
        with tempfile.TemporaryDirectory() as folder:
            least, points = measure(model, values, folder)
        name = " ".join([os.path.basename(model)[:-5], *values])
        rows.append({"model": name, "least_budget_bytes": least, "runs": points})
        with open(record, "w") as f:
            json.dump(rows, f, indent=1)
        median = {p["plan"]: statistics.median(p["step_ns"]) for p in points}
        base = median["keep-all"]
        over = [", ".join(f"{100 * (median[f'{side} {k}'] / base - 1):+.1f} %" for k in range(BUDGETS)) for side in ("without", "with", "inexact")]
        spread = max((max(p["step_ns"]) - min(p["step_ns"])) / statistics.median(p["step_ns"]) for p in points)
        print(f"| {name} | {least[0] / 1e6:.1f}, {least[1] / 1e6:.1f} MB | {' | '.join(over)} | {100 * spread:.1f} % |", flush=True)


main()

#!/usr/bin/env python3
"""Trains models on this CPU with and without the other ways of their layers (exact variants), at five budgets from the least
one without them to keep-all, and prints a Markdown table: least budgets, and at each budget the measured step over the
measured step of keep-all, without, with, and with inexact ones too. A profile of the same machine is made first. The plans
of a budget run in turns; the figure is the median over rounds of medians over steps. Stops if a measured peak is not the
planned one or if two plans without inexact variants give other weights. "Without" plans the same graph after its variants
are taken out.

PHASES is profile,plan,train or some of these: what went before is taken from WORK, so that profiles and training can run
on a quiet machine and planning at another time. WORK/runs.json gets every run.

Usage: bench/variants_native.py BIN_FOLDER PHASES WORK EFFORT STEPS ROUNDS MODEL.json[,VAR=N...]...
"""
import json
import os
import re
import statistics
import subprocess
import sys

bin_folder, phases, work, effort, steps, rounds = sys.argv[1:7]
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


def make_plans(model, options, folder):
    profile, whole, plain = (f"{folder}/{name}.json" for name in ("profile", "whole", "plain"))
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
    with open(f"{folder}/plans.json", "w") as f:
        json.dump({"least_budget_bytes": least, "files": files}, f)


def measure(model, options, folder):
    with open(f"{folder}/plans.json") as f:
        plans = json.load(f)
    files, points = plans["files"], []
    found = {name: [] for name in files}
    for _ in range(int(rounds)):
        for name, path in files.items():
            found[name].append(train(model, options, path))
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
    return plans["least_budget_bytes"], points


def print_row(name, least, points):
    median = {p["plan"]: statistics.median(p["step_ns"]) for p in points}
    base = median["keep-all"]
    over = [", ".join(f"{100 * (median[f'{side} {k}'] / base - 1):+.1f} %" for k in range(BUDGETS)) for side in ("without", "with", "inexact")]
    spread = max((max(p["step_ns"]) - min(p["step_ns"])) / statistics.median(p["step_ns"]) for p in points)
    print(f"| {name} | {least[0] / 1e6:.1f}, {least[1] / 1e6:.1f} MB | {base / 1e6:.0f} ms | {' | '.join(over)} | {100 * spread:.1f} % |", flush=True)


def main():
    rows = []
    if "train" in phases:
        print("| model | least budget without, with | keep-all | measured step over keep-all at 5 budgets without | with | with inexact ones | spread |")
        print("|---|---|---|---|---|---|---|")
    for words in sys.argv[7:]:
        model, *values = words.split(",")
        name = " ".join([os.path.basename(model)[:-5], *values])
        folder = f"{work}/{name.replace(' ', ',')}"
        os.makedirs(folder, exist_ok=True)
        options = [word for value in values for word in ("--set", value)] + ["--threads", "2"]
        if "profile" in phases:
            run("ckpt-profile", *options, "--seconds", "0.2", "-o", f"{folder}/profile.json", model)
        if "plan" in phases:
            make_plans(model, options, folder)
        if "train" in phases:
            least, points = measure(model, options, folder)
            rows.append({"model": name, "least_budget_bytes": least, "runs": points})
            with open(f"{work}/runs.json", "w") as f:
                json.dump(rows, f, indent=1)
            print_row(name, least, points)


main()

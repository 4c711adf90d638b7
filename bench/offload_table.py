#!/usr/bin/env python3
"""Offload and recomputation together and each alone, over several links: a Markdown table from ckpt-plan's own figures.

Usage: offload_table.py BIN [--effort N] [--budget SIZE] [--device NAME] [--link RATE]... model.json[:VAR=N,...] ...
BIN is the folder of ckpt-plan. Every row is `ckpt-plan --strategy NAME --json` with these options; overhead and gap
are over the time of keep-all and over the best bound of the row's plans. Exit 1 when joint is slower than another.
"""
import argparse
import json
import subprocess
import sys

parser = argparse.ArgumentParser()
parser.add_argument("bin")
parser.add_argument("models", nargs="+")
parser.add_argument("--effort", default="1")
parser.add_argument("--budget", default="60%")
parser.add_argument("--device", default="a100")
parser.add_argument("--link", action="append")
args = parser.parse_args()
strategies = ("joint", "offload-only", "recompute-only", "auto")


def plan(model, settings, link, strategy):
    command = [args.bin + "/ckpt-plan", "--device", args.device, "--link", link, "--budget", args.budget, "--effort",
               args.effort, "--strategy", strategy, "--output", "-", model]
    for setting in settings:
        command += ["--set", setting]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode > 1:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def show(made, bound):
    if made["verdict"] != "fits":
        return f"needs {made['least_budget_bytes'] / 1e9:.2f} GB"
    summary = made["summary"]
    lost = summary["static_bytes"] + summary["arena_bytes"] - summary["peak_bytes"]
    over = summary["time_ns"] / summary["keep_all"]["time_ns"] - 1
    text = f"{summary['peak_bytes'] / 1e9:.2f} GB, +{100 * over:.2f} %, gap {100 * (summary['time_ns'] / bound - 1):.2f} %"
    return text + (f", {lost / 1e6:.1f} MB lost" if lost else "")


print(f"| model, {args.budget} of keep-all, {args.device} | link | " + " | ".join(strategies) + " | joint is faster by |")
print("|---" * (len(strategies) + 3) + "|")
slower = False
for entry in args.models:
    model, _, settings = entry.partition(":")
    for link in args.link or ["12.5GB/s", "25GB/s", "50GB/s"]:
        plans = [plan(model, settings.split(",") if settings else [], link, s) for s in strategies]
        times = [p["summary"]["time_ns"] if p["verdict"] == "fits" else float("inf") for p in plans]
        bound = max([p["bound"]["time_ns"] for p in plans if p["verdict"] == "fits"], default=1)
        alone = min(times[1:3])
        slower = slower or times[0] > alone
        gain = "" if alone == float("inf") else f"{100 * (alone / times[0] - 1):.2f} %"
        name = model.rsplit("/", 1)[-1].removesuffix(".json") + (" " + settings if settings else "")
        print(f"| {name} | {link} | " + " | ".join(show(p, bound) for p in plans) + f" | {gain} |", flush=True)
sys.exit(slower)

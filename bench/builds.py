#!/usr/bin/env python3
"""Two builds side by side: training steps of networks that keep all, in turns.

    bench/builds.py BIN OTHER [--rounds 5] [--steps 4] [--threads N] model.json[:VAR=N,...] ...

BIN and OTHER: the folders of the programs. Each has a plan of its own, as workspaces may differ. A round runs both, the first
one first in every second round; a ratio is OTHER's median step over BIN's in the same round.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

from networks import options_of


def run(binaries, program, *rest):
    return subprocess.run([f"{binaries}/{program}", *rest], check=True, capture_output=True, text=True).stdout


def row(args, entry, folder):
    path, options = options_of(entry)
    options += ["--threads", args.threads] if args.threads else []
    builds = [args.bin, args.other]
    plans = [f"{folder}/{number}.plan.json" for number in range(2)]
    for binaries, plan in zip(builds, plans):
        run(binaries, "ckpt-plan", *options, "--strategy", "keep-all", "-o", plan, path)
    times = [[], []]
    for number in range(args.rounds):
        for which in ((0, 1), (1, 0))[number % 2]:
            done = run(builds[which], "ckpt-train", *options, "--no-digest", "--plan", plans[which], "--steps", str(args.steps), "--json", path)
            times[which].append(json.loads(done)["step_ns"] / 1e6)
    ratios = [other / first for first, other in zip(*times)]
    cells = [f"{statistics.median(t):.0f} ms ({min(t):.0f} to {max(t):.0f})" for t in times]
    return f"| {os.path.basename(entry).replace('.json', '')} | {' | '.join(cells)} | {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("other")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--threads")
    args = parser.parse_args()
    print("| network | BIN | OTHER | ratio |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for entry in args.models:
            print(row(args, entry, folder), flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""How far plans are from their bounds: plans each file at N budgets, evenly from the minimum feasible to keep-all's peak, and
prints one Markdown row a file: what is proved infeasible against what was found; minimum, median and maximum gap; the
budgets, in % of keep-all's peak, whose gap is above LIMIT with that gap; how often a larger budget gave a slower plan; and
seconds (user + system time of ckpt-plan). Every plan is replayed by tests/programs/replay_plan.py.

Usage: bench/gaps.py BIN_FOLDER EFFORT N [--above LIMIT_PERCENT] [--plans FOLDER] FILE...
       FILE: a ckpt-graph, or a ckpt-model, which is lowered with the roofline of the device "cpu"
       --above 2    the least gap that is listed, in %
       --plans DIR  keep graph and plans there as NAME.graph.json and NAME.0.json (minimum budget) to NAME.{N-1}.json
"""
import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("bin_folder")
parser.add_argument("effort")
parser.add_argument("budgets", type=int)
parser.add_argument("files", nargs="+")
parser.add_argument("--above", type=float, default=2)
parser.add_argument("--plans")
options = parser.parse_args()


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode > 1:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return done


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def plan(graph, budget, output):
    before = cpu_seconds()
    run(f"{options.bin_folder}/ckpt-plan", "--effort", options.effort, "--budget", f"{budget}B", "-o", output, graph)
    with open(output) as f:
        return json.load(f), cpu_seconds() - before


def row(file, folder):
    name = os.path.basename(file)[:-5]
    graph, output = f"{folder}/{name}.graph.json", f"{folder}/{name}.%d.json"
    with open(file) as f:
        threads = ["--threads", "1"] if "ckpt-model" in f.read(10000) else []  # a graph's times are its own
    run(f"{options.bin_folder}/ckpt-graph", *threads, "-o", graph, file)
    with open(graph) as f:
        ops = len(json.load(f)["ops"])
    answer, seconds = plan(graph, 1, f"{folder}/{name}.none.json")
    least, most = answer["least_budget_bytes"], answer["summary"]["keep_all"]["peak_bytes"]
    proved, gaps, times, spent = answer.get("no_schedule_below_bytes", 0), [], [], [seconds]
    for i in range(options.budgets):
        budget = least + (most - least) * i // (options.budgets - 1)
        answer, seconds = plan(graph, budget, output % i)
        spent.append(seconds)
        if answer["verdict"] != "fits":
            sys.exit(f"{graph} in {budget} bytes: {answer['verdict']}, but {least} bytes were said to do")
        if (broken := run(sys.executable, f"{here}/../tests/programs/replay_plan.py", graph, output % i)).returncode != 0:
            sys.exit(broken.stderr)
        gaps.append((100 * (answer["summary"]["time_ns"] / answer["bound"]["time_ns"] - 1), 100 * budget / most))
        times.append(answer["summary"]["time_ns"])
    large = ", ".join(f"{at:.1f} %: {gap:.2f} %" for gap, at in gaps if gap > options.above)
    slower = sum(b > a for a, b in zip(times, times[1:]))
    sizes, spent = sorted(gap for gap, _ in gaps), sorted(spent)
    print(f"| {name} | {ops} | {100 * least / most:.1f} %, {100 * proved / most:.1f} % | {sizes[0]:.3f} %, {sizes[len(sizes) // 2]:.3f} %, {sizes[-1]:.2f} % "
          f"| {large} | {slower} | {spent[len(spent) // 2]:.2f}, {spent[-1]:.2f} |", flush=True)


print(f"| file | ops | found from, none below (of keep-all) | gap: minimum, median, maximum | gaps above {options.above:g} % "
      f"| larger budget, slower plan | seconds, effort {options.effort}: median, most |")
print("|---|---|---|---|---|---|---|", flush=True)
for file in options.files:
    with tempfile.TemporaryDirectory() as scratch:
        row(file, options.plans or scratch)

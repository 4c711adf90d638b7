#!/usr/bin/env python3
"""Plans training graphs under many budgets and prints one Markdown table: time, best known time, bound, gap, seconds.

Every plan is replayed by tests/programs/replay_plan.py, which shares no code with ckpt, before its row is believed. Seconds are
user + system time of the ckpt-plan process: they grow less under load than wall time. Best known times of the MONeT
graphs are in bench/best_known.json, with their source; times in the table are in units of 10 us, as published there.

Usage: bench/planner.py BIN_FOLDER EFFORT graph.json...
       monet-*: the budgets of best_known.json; others: 90 to 50 % of keep-all's peak and the least feasible budget.
       *-variants: each budget twice, with inexact variants (--allow-inexact), as the best known plans are, and without
"""
import json
import os
import resource
import subprocess
import sys
import tempfile

bin_folder, effort, graphs = sys.argv[1], sys.argv[2], sys.argv[3:]
here = os.path.dirname(os.path.abspath(__file__))
with open(f"{here}/best_known.json") as f:
    best_known = json.load(f)


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def plan(graph, budget, output, *more):
    before = cpu_seconds()
    done = subprocess.run([f"{bin_folder}/ckpt-plan", "--effort", effort, "--budget", budget, *more, "-o", output, graph], capture_output=True, text=True)
    seconds = cpu_seconds() - before
    if done.returncode > 1:
        sys.exit(done.stderr)
    with open(output) as f:
        return json.load(f), seconds


def replay(graph, output):
    done = subprocess.run([sys.executable, f"{here}/../tests/programs/replay_plan.py", graph, output], capture_output=True, text=True)
    return "ok" if done.returncode == 0 else done.stderr.strip()


def row(name, graph, label, budget, known, output, *more):
    answer, seconds = plan(graph, budget, output, *more)
    if answer["verdict"] != "fits":
        below = answer.get("no_schedule_below_bytes", 0)
        print(f"| {name} | {label} | does not fit: least {answer['least_budget_bytes']} | | no schedule below {below} | | | {seconds:.2f} |", flush=True)
        return
    summary, bound = answer["summary"], answer["bound"]
    time = summary["time_ns"]
    against = "" if known is None else f"{known / 1e4:.0f} ({100 * (time / known - 1):+.3f} %)"
    fragments = 1 - (summary["peak_bytes"] - summary["static_bytes"]) / summary["arena_bytes"] if summary["arena_bytes"] else 0
    over = time / summary["keep_all"]["time_ns"] - 1
    print(f"| {name} | {label} | {time / 1e4:.1f} ({100 * over:+.2f} %) | {against} | {bound['time_ns'] / 1e4:.1f} ({bound['how']}; {bound['scope']}) "
          f"| {100 * (time / bound['time_ns'] - 1):.2f} % | {100 * fragments:.2f} % | {seconds:.2f} | {replay(graph, output)} |", flush=True)


print(f"| graph | budget | time (over keep-all) | best known (difference) | bound | gap | fragmentation | CPU s, effort {effort} | replay |")
print("|---|---|---|---|---|---|---|---|---|")
with tempfile.TemporaryDirectory() as folder:
    output = f"{folder}/plan.json"
    for graph in graphs:
        name = os.path.basename(graph)[:-5]
        if name in best_known:
            for gib, known in best_known[name].items():
                if not name.endswith("-variants"):
                    row(name, graph, f"{gib} GiB", f"{gib}GiB", min(known), output)
                    continue
                row(name, graph, f"{gib} GiB, inexact too", f"{gib}GiB", min(known), output, "--allow-inexact")
                row(name, graph, f"{gib} GiB", f"{gib}GiB", None, output)
            continue
        for percent in (90, 80, 70, 60, 50):
            row(name, graph, f"{percent} %", f"{percent}%", None, output)
        least, _ = plan(graph, "1B", output)
        row(name, graph, "least", f"{least['least_budget_bytes']}B", None, output)

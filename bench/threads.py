#!/usr/bin/env python3
"""What more threads gain: one and two cores measured, more of them simulated.

Usage: threads.py BIN [--steps 6] [--rounds 5] [--most 16] [--no-measure] [--no-simulate] model.json[:VAR=N,...] ...
BIN is the folder of the programs. Keep-all plans on synthetic data. Rows of the first table, medians over the rounds of
ckpt-train's median step, the three in turns:

  1 thread        and how far the rounds lie apart, (most - least) / median
  2 threads       that the system places; the gain over one
  bound           to a core each (OMP_PROC_BIND=true)

The second table is no measurement of time: bench/thread_shares.c adds up the processor time of each thread in each parallel
region, and with enough cores a step would take what is not parallel and the longest share of every region. It shows what the
partition of the loops leaves to gain; memory that is too slow for all cores, barriers and starting teams are not in it.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

from networks import options_of

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("bin")
parser.add_argument("models", nargs="+")
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--most", type=int, default=16)
parser.add_argument("--no-measure", action="store_true")
parser.add_argument("--no-simulate", action="store_true")
args = parser.parse_args()
UNSET = ("OMP_PROC_BIND", "OMP_PLACES", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "GOMP_CPU_AFFINITY")
CLEAN = {name: value for name, value in os.environ.items() if name not in UNSET}


def run(program, *rest, **environment):
    done = subprocess.run([f"{args.bin}/{program}", *rest], capture_output=True, text=True, env={**CLEAN, **environment})
    if done.returncode != 0:
        sys.exit(f"threads.py: {program} {' '.join(rest)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


class Model:
    def __init__(self, entry, work):
        self.path, self.options = options_of(entry)
        self.name = os.path.basename(entry).replace(".json:", " ").removesuffix(".json")
        self.work = work
        self.planned = set()

    def train(self, threads, steps, **environment):
        plan = f"{self.work}/{threads}.json"
        if threads not in self.planned:
            run("ckpt-plan", "--threads", str(threads), "--strategy", "keep-all", *self.options, "-o", plan, self.path)
            self.planned.add(threads)
        said = run("ckpt-train", "--plan", plan, "--steps", str(steps), "--no-digest", "--json", *self.options,
                   self.path, **environment)
        return json.loads(said)["step_ns"] / 1e6

    def measure(self):
        ways = {"1": (1, {}), "2": (2, {"OMP_PROC_BIND": "false"}), "bound": (2, {"OMP_PROC_BIND": "true"})}
        found = {way: [] for way in ways}
        for _ in range(args.rounds):
            for way, (threads, environment) in ways.items():
                found[way].append(self.train(threads, args.steps, **environment))
        middle = {way: statistics.median(times) for way, times in found.items()}
        spread = {way: (max(times) - min(times)) / middle[way] for way, times in found.items()}
        one, two, bound = (f"{middle[way]:.1f} ms ±{100 * spread[way] / 2:.0f} %" for way in ways)
        print(f"| {self.name} | {one} | {two} | {middle['1'] / middle['2']:.2f} | {bound} | "
              f"{100 * (middle['bound'] / middle['2'] - 1):+.1f} % |", flush=True)

    def shares(self, threads, library):
        """Of three steps: what seven have more than four."""
        total = []
        for steps in (4, 7):
            path = f"{self.work}/shares"
            self.train(threads, steps, LD_PRELOAD=library, THREAD_SHARES=path, OMP_WAIT_POLICY="passive")
            with open(path, encoding="ascii") as file:
                total.append({line.split()[0]: int(line.split()[1]) for line in file})
        return {name: total[1][name] - total[0][name] for name in total[0]}

    def simulate(self, library):
        alone = self.shares(1, library)
        alone = alone["serial_ns"] + alone["work_ns"]
        cells, threads = [], 2
        while threads <= args.most:
            s = self.shares(threads, library)
            work = s["serial_ns"] + s["work_ns"]
            cells.append(f"{work / (s['serial_ns'] + s['longest_ns']):.1f}")
            last = f"{100 * s['serial_ns'] / work:.1f} % | {100 * (s['work_ns'] / threads / s['longest_ns']):.0f} % | {work / alone:.2f}"
            threads *= 2
        print(f"| {self.name} | {' | '.join(cells)} | {last} |", flush=True)


with tempfile.TemporaryDirectory() as folder:
    models = [Model(entry, tempfile.mkdtemp(dir=folder)) for entry in args.models]
    if not args.no_measure:
        print("| network | 1 thread | 2 threads | gain | 2 bound | over unbound |\n|---|---|---|---|---|---|")
        for model in models:
            model.measure()
    if not args.no_simulate:
        shares = f"{folder}/thread_shares.so"
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "thread_shares.c")
        subprocess.run(["cc", "-O2", "-fopenmp", "-shared", "-fPIC", "-o", shares, source], check=True)
        counts = [2 ** i for i in range(1, args.most.bit_length())]
        print(f"\n| network | {' | '.join(f'{n} cores' for n in counts)} | not parallel | balance | work |")
        print("|---" * (len(counts) + 4) + "|")
        for model in models:
            model.simulate(shares)

#!/usr/bin/env python3
"""Predicted against measured step time: profiles of each model, N plans made from the first, and training by each of them.

Usage: step_time.py BIN [--device cuda:0] [--plans 6] [--steps 20] [--rounds 3] [--json FILE] [--work FOLDER]
       [--profile FILE] [--dtype NAME] [--threads N] [--seconds S] [--effort N] model.json[:VAR=N,...] ...
BIN is the folder of the programs. Plans: keep-all; ckpt-plan's own at several budgets down to 2 % over the least; recompute-all,
where there is a link one that offloads, and others. A round is a profile and then a training by every plan, one after the
other, so that a slow minute of the machine falls neither on one plan nor on the prices alone; each round's profile says anew
what the plans take. A row has medians over the rounds:

  predicted       the plan's step time, from the round's profile
  measured        ckpt-train's median step (on a GPU of the replayed steps), and how far the rounds lie apart,
                  (most - least) / median
  p/m             predicted / measured of a round
  alone           the same by the first round's times of layers alone, as predictions were made before times came from the step
  layers/step     what the profile says of the layers that run, summed, over the measured step
  traced          the same sum as the traced step has it, over the measured step
  idle            share of the traced step in which no layer ran
Below it, over all plans of all networks: how far predicted is from measured in the median, how many are within 6 %, how
far the overhead over keep-all is off in points, and how many pairs of plans of one network that lie 2 % apart as measured
are predicted the other way round; the same by times of layers alone.
With --limit no run is begun after so many seconds, which the models share. FILE of --json and of --table hold what there is
after every run. Exit 1: a program failed; 124: not every plan had a run.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from networks import options_of

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("bin")
parser.add_argument("models", nargs="+")
parser.add_argument("--device", default="cpu")
parser.add_argument("--plans", type=int, default=6)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--json")
parser.add_argument("--work")
parser.add_argument("--profile")
parser.add_argument("--dtype")
parser.add_argument("--threads")
parser.add_argument("--seconds", default="0.4", help="of ckpt-profile")
parser.add_argument("--effort", default="1", help="of ckpt-plan")
parser.add_argument("--limit", type=float, default=1e9, help="seconds for all of it")
parser.add_argument("--table", help="what is printed, as a file that grows")
args = parser.parse_args()
if min(args.plans, args.steps, args.rounds) < 1:
    parser.error("--plans, --steps and --rounds are 1 or more")


class Failed(Exception):
    """A program ended with an error."""


def run(program, *rest, may_fail=False):
    try:
        done = subprocess.run([f"{args.bin}/{program}", *rest], capture_output=True, text=True)
    except OSError as problem:
        sys.exit(f"step_time.py: {problem}")
    if done.returncode != 0 and not (may_fail and done.returncode == 1):
        raise Failed(f"{program} {' '.join(rest)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


class Model:
    def __init__(self, entry, work):
        self.path, self.options = options_of(entry)
        self.name = os.path.basename(entry).replace(".json:", " ").removesuffix(".json")
        self.options += ["--dtype", args.dtype] if args.dtype else []
        self.threads = ["--threads", args.threads] if args.threads and args.device == "cpu" else []
        self.work = work
        self.profile = args.profile or f"{work}/profile.json"
        self.measure()

    def measure(self):
        if not args.profile:
            run("ckpt-profile", "--device", args.device, "--seconds", args.seconds, *self.options, *self.threads,
                "-o", self.profile, self.path)

    def alone(self):
        """A profile of what layers took alone."""
        with open(self.profile) as file:
            profile = json.load(file)
        profile.pop("step", None)
        for layer in profile["layers"]:
            layer.pop("recompute", None)
            for times in [layer.get(d) for d in ("forward", "backward", "update")] + layer.get("variants", []):
                if times and "alone_ns" in times:
                    times["median_ns"] = times.pop("alone_ns")
                    times.pop("samples_ns", None)
        with open(f"{self.work}/alone.json", "w") as file:
            json.dump(profile, file)
        return f"{self.work}/alone.json"

    def plan(self, name, *rest):
        """The plan, or None where it does not fit."""
        output = f"{self.work}/{name.replace(' ', '-')}.plan.json"
        run("ckpt-plan", "--profile", self.profile, *self.options, *self.threads, "--effort", args.effort, *rest, "-o", output, self.path,
            may_fail=True)
        with open(output) as file:
            made = json.load(file)
        return {"name": name, "file": output, "plan": made} if made["verdict"] == "fits" else None

    def plans(self):
        """The first N of this list that fit and are not the same steps as another."""
        answer = json.loads(run("ckpt-plan", "--profile", self.profile, *self.options, *self.threads, "--effort", "0",
                                "--time-limit", "20", "--budget", "1", "--json", self.path, may_fail=True))
        tight = str(int(1.02 * answer["least_budget_bytes"]))
        with open(self.profile) as file:
            linked = "link" in json.load(file)
        makers = [("keep-all", "--strategy", "keep-all"), ("auto 85%", "--budget", "85%"), ("auto 70%", "--budget", "70%"),
                  ("auto least", "--budget", tight), ("recompute-all", "--strategy", "recompute-all"),
                  ("sqrt 75%", "--strategy", "sqrt", "--budget", "75%"), ("each-block", "--strategy", "each-block"),
                  ("auto 55%", "--budget", "55%"), ("greedy 80%", "--strategy", "greedy", "--budget", "80%"),
                  ("auto 92%", "--budget", "92%")]
        if linked:
            makers.insert(5, ("joint 60%", "--strategy", "joint", "--budget", "60%"))
        found, seen = [], set()
        for name, *rest in makers:
            made = self.plan(name, *rest) if len(found) < args.plans else None
            steps = json.dumps(made["plan"]["steps"]) if made else None
            if made and steps not in seen:
                seen.add(steps)
                found.append(made)
        return found

    def train(self, plan, profile=None, steps=None):
        return json.loads(run("ckpt-train", "--device", args.device, "--plan", plan["file"], "--profile", profile or self.profile,
                              "--steps", str(steps or args.steps), "--json", "--no-digest", *self.options, *self.threads, self.path))


def row_of(model, plan, runs):
    """Of a plan that has run."""
    measured = statistics.median(r["step_ns"] for r in runs)
    against = [r["against"] for r in runs]
    predicted = [a["step"]["predicted_ns"] for a in against]
    return {
        "model": model.name, "plan": plan["name"], "peak_bytes": plan["plan"]["summary"]["peak_bytes"],
        "predicted_ns": statistics.median(predicted), "measured_ns": measured, "of_rounds": [predicted, [r["step_ns"] for r in runs]],
        "spread": (max(r["step_ns"] for r in runs) - min(r["step_ns"] for r in runs)) / measured,
        "ratio": statistics.median(p / r["step_ns"] for p, r in zip(predicted, runs)),
        "alone_ns": plan["alone_ns"], "alone": plan["alone_ns"] / measured,
        "layers_over_step": statistics.median(a["layers"]["predicted_ns"] / r["step_ns"] for a, r in zip(against, runs)),
        "traced_layers_over_step": statistics.median(a["layers"]["measured_ns"] for a in against) / measured,
        "idle": statistics.median(a["idle_ns"] / a["step"]["measured_ns"] for a in against),
        "recorder": against[-1]["recorder"], "rounds": len(runs), "steps": args.steps,
    }


def show(row):
    return (f"| {row['model']} | {row['plan']} | {row['peak_bytes'] / 1e6:.1f} MB | {row['predicted_ns'] / 1e6:.3f} ms | "
            f"{row['measured_ns'] / 1e6:.3f} ms ± {100 * row['spread'] / 2:.1f} % | {row['ratio']:.3f} | "
            f"{row['alone']:.3f} | {row['layers_over_step']:.3f} | {row['traced_layers_over_step']:.3f} | {100 * row['idle']:.1f} % |")


def summary(rows, name):
    ratios = [r["ratio"] for r in rows]
    worst = max(ratios, key=lambda ratio: abs(ratio - 1))
    return (f"{name}: {len(rows)} plans, predicted / measured {statistics.median(ratios):.3f} in the median "
            f"({min(ratios):.3f} to {max(ratios):.3f}, farthest {100 * (worst - 1):+.1f} %); sum of layers / measured step "
            f"{statistics.median(r['layers_over_step'] for r in rows):.3f}")


def overhead_errors(rows, alone):
    """Predicted less measured overhead over keep-all of the other plans of a network, in points."""
    keep = next((r for r in rows if r["plan"] == "keep-all"), None)
    if keep is None:
        return []
    if alone:
        return [100 * (r["alone_ns"] / keep["alone_ns"] - r["measured_ns"] / keep["measured_ns"]) for r in rows if r is not keep]
    return [100 * statistics.median(p / keep_p - m / keep_m for p, m, keep_p, keep_m in zip(*r["of_rounds"], *keep["of_rounds"]))
            for r in rows if r is not keep]


def inversions(rows, alone):
    """(pairs that are measured 2 % apart, those of them that are predicted the other way round)"""
    predicted = "alone_ns" if alone else "predicted_ns"
    pairs = [(a, b) for a in rows for b in rows if b["measured_ns"] > 1.02 * a["measured_ns"]]
    return len(pairs), sum(b[predicted] < a[predicted] for a, b in pairs)


def verdict(results, alone=False):
    rows = [row for done in results.values() for row in done]
    errors = [abs(row["alone" if alone else "ratio"] - 1) for row in rows]
    points = [abs(p) for done in results.values() for p in overhead_errors(done, alone)]
    pairs = [inversions(done, alone) for done in results.values()]
    within = sum(error <= 0.06 for error in errors)
    return (f"{len(rows)} plans of {len(results)} networks, times {'of layers alone' if alone else 'in the step'}: "
            f"predicted is off by {100 * statistics.median(errors):.1f} % in the median, {within} "
            f"({100 * within / len(rows):.0f} %) within 6 %; overhead over keep-all off by "
            f"{statistics.median(points or [0]):.1f} points in the median, {max(points or [0]):.1f} at most; "
            f"{sum(wrong for _, wrong in pairs)} of {sum(all_ for all_, _ in pairs)} pairs in the wrong order")


def measure(entry, work, end, keep):
    """(name, rows, plans without a run, what failed) of a model; keep(name, rows) after each run."""
    failed = []
    model = Model(entry, work)
    plans = model.plans()
    runs, alone = [[] for _ in plans], model.alone()
    for plan in plans:
        plan["alone_ns"] = model.train(plan, alone, 1)["against"]["step"]["predicted_ns"]

    def rows():
        return [row_of(model, plan, done) for plan, done in zip(plans, runs) if done]

    for number in range(args.rounds):
        if number > 0 and time.time() < end:
            model.measure()
        for done, plan in zip(runs, plans):
            if time.time() < end and plan["name"] not in failed:
                try:
                    done.append(model.train(plan))
                except Failed as problem:
                    failed.append(plan["name"])
                    print(f"{plan['name']}: {problem}", flush=True)
                keep(model.name, rows())
    unrun = [plan["name"] for done, plan in zip(runs, plans) if not done and plan["name"] not in failed]
    return model.name, rows(), len(unrun), failed


def main(work):
    begun = time.time()
    head = [f"| model, {args.device} | plan | peak | predicted | measured | p/m | alone | layers/step | traced | idle |", "|---" * 10 + "|"]
    print("\n".join(head), flush=True)
    results, short, wrong = {}, 0, 0

    def keep(name, rows):
        results[name] = rows
        lines = head + [show(row) for done in results.values() for row in done] + [""]
        lines += [summary(done, name) for name, done in results.items() if done] + [verdict(results), verdict(results, alone=True)]
        write(args.table, "\n".join(lines) + "\n")
        write(args.json, json.dumps([row for done in results.values() for row in done], indent=1))

    for number, entry in enumerate(args.models):
        folder = f"{work}/{number}"
        os.makedirs(folder, exist_ok=True)
        now = time.time()
        try:
            name, rows, unrun, failed = measure(entry, folder, now + (begun + args.limit - now) / (len(args.models) - number), keep)
        except Failed as problem:
            print(f"{entry}: {problem}", flush=True)
            wrong += 1
            continue
        for row in rows:
            print(show(row), flush=True)
        short += unrun
        wrong += len(failed)
    print()
    for name, rows in results.items():
        if rows:
            print(summary(rows, name))
    if any(results.values()):
        print(verdict(results), verdict(results, alone=True), sep="\n")
    if wrong or short:
        print(f"{wrong} failed, {short} plans without a run")
    return 1 if wrong else 124 if short else 0


def write(path, text):
    """In one piece: this may be stopped at any moment."""
    if path:
        with open(f"{path}.new", "w") as file:
            file.write(text)
        os.replace(f"{path}.new", path)


if args.work:
    sys.exit(main(args.work))
with tempfile.TemporaryDirectory() as folder:
    code = main(folder)
sys.exit(code)

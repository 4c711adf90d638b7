#!/usr/bin/env python3
"""Published trade-offs of memory and time by checkpointing, side by side on this CPU: ours and PyTorch's, as ratios.

Usage: published.py BIN [--parts NAME,...] [--densenet-batch N] [--bert-batch N] [--rounds N] [--bert-rounds N]
                    [--steps N] [--effort N] [--python FILE] [--work FOLDER] [--limit SECONDS] [--output FILE] [--fresh]
BIN is the folder of the programs; FILE a Python with PyTorch (scripts/pytorch-venv makes .venv, the default). Parts:

  densenet-1   DenseNet-BC-100 (k=12) on 32x32, one rank of two threads
  densenet-2   the same batch over two ranks of one thread each (mpirun; PyTorch: DistributedDataParallel over gloo)
  bert         8 layers, hidden 768, feed-forward 4096, sequences of 512, two threads

Each part: a profile of this machine; plans for keep-all, for the published ratio of memory, for the published ratio of
time (the least memory whose predicted time is within it) and with the published choice of layers. ROUNDS times each of
them and PyTorch's two trainings run STEPS steps, one after the other, each in a process of its own, so that a slow
minute does not fall on one of them. A run's figure is the median of its steps, a row's the median over rounds, and its
overhead the median over rounds of its ratio to the same side's keep-all in the same round. Every run is written to WORK
(out/published) when it is done and not repeated by the next call with the same parameters. The table goes to OUTPUT
(docs/figures/published.md). Exit 1 when a part failed; the others are in the table.
"""
import argparse
import hashlib
import json
import os
import shlex
import statistics
import subprocess
import sys
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
CHOICE = ["--policy", "concat=recompute,batchnorm=recompute,relu=recompute", "--keep", "*.*.bn2", "--keep", "*.*.relu2",
          "--keep", "bn?", "--keep", "relu?"]
# What was published: memory and time of keep-all and of the checkpointed training, in units of their own.
PARTS = {
    "densenet-1": dict(title="DenseNet-BC-100, k = 12, 32x32, one rank", network="densenet", model="densenet-bc-100-12",
                       ranks=1, choice=CHOICE, memory=(9.93, 5.37, "GB"), time=(0.42, 0.50, "s"),
                       source="[pytorch-checkpoint](https://github.com/csrhddlam/pytorch-checkpoint), 1 GPU, batch 256; "
                              "PyTorch's own checkpoint there: 5.38 GB, 0.52 s"),
    "densenet-2": dict(title="DenseNet-BC-100, k = 12, 32x32, two ranks", network="densenet", model="densenet-bc-100-12",
                       ranks=2, choice=CHOICE, memory=(5.25, 2.97, "GB"), time=(0.27, 0.31, "s"),
                       source="[pytorch-checkpoint](https://github.com/csrhddlam/pytorch-checkpoint), 2 GPUs, batch 256; "
                              "PyTorch's own checkpoint there: 2.98 GB, 1.41 s"),
    "bert": dict(title="BERT, 8 layers, hidden 768, feed-forward 4096, 512 tokens", network="bert", model="bert-8",
                 ranks=1, choice=["--checkpoint", "layer.*"], memory=(9141, 5978, "MB"), time=(1516, 2016, "s"),
                 source="[OneFlow's documentation](https://docs.oneflow.org/en/master/cookies/activation_checkpointing.html), "
                        "one GPU, micro-batch 16"),
}
# What is run, in this order; the plan "fused" is only predicted.
NAMES = {"keep": "ckpt, keep-all", "memory": "ckpt, plan at the published memory", "time": "ckpt, plan at the published time",
         "choice": "ckpt, the published choice of layers", "torch-keep": "PyTorch",
         "torch-checkpoint": "PyTorch, `torch.utils.checkpoint`"}

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("bin")
parser.add_argument("--parts", default=",".join(PARTS))
parser.add_argument("--densenet-batch", type=int, default=32, help="over all ranks")
parser.add_argument("--bert-batch", type=int, default=6, help="below 5 the published ratio is less than weights and Adam take")
parser.add_argument("--rounds", type=int, default=3, help="of DenseNet; WORK keeps them, so that more can be added later")
parser.add_argument("--bert-rounds", type=int, default=1)
parser.add_argument("--steps", type=int, default=3, help="of a run; the first may be slower")
parser.add_argument("--effort", default="1", help="of ckpt-plan")
parser.add_argument("--python", default=f"{ROOT}/.venv/bin/python")
parser.add_argument("--work", default=f"{ROOT}/out/published")
parser.add_argument("--limit", type=int, default=300, help="seconds that one program may take")
parser.add_argument("--output", default=f"{ROOT}/docs/figures/published.md")
parser.add_argument("--fresh", action="store_true", help="measure again what WORK has")
args = parser.parse_args()
if min(args.rounds, args.bert_rounds, args.steps, args.densenet_batch, args.bert_batch) < 1:
    parser.error("batches, rounds and steps are 1 or more")
begun = time.monotonic()


class Failed(Exception):
    """One line: what a part cannot go on without."""


def say(text):
    print(f"[{time.monotonic() - begun:5.0f} s] {text}", flush=True)


def run(command, allowed=(0,), environment=None):
    """Standard output of a program that ended in time with an exit code that is allowed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=args.limit, env={**os.environ, **(environment or {})})
    except subprocess.TimeoutExpired:
        raise Failed(f"{shlex.join(command)}: not done after {args.limit} s (--limit)")
    except OSError as problem:
        raise Failed(str(problem))
    if done.returncode not in allowed:
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()] or ["no word of why"]
        raise Failed(f"{shlex.join(command)}: exit {done.returncode}: {lines[0 if 'ckpt-' in lines[0] else -1]}")
    return done.stdout


def run_twice(command, environments):
    """Two processes at the same time; what the first wrote."""
    started = [subprocess.Popen(command + extra, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **env})
               for env, extra in environments]
    try:
        outputs = [process.communicate(timeout=args.limit) for process in started]
    except subprocess.TimeoutExpired:
        raise Failed(f"{shlex.join(command)}: not done after {args.limit} s (--limit)")
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
    for process, (_, errors) in zip(started, outputs):
        if process.returncode != 0:
            raise Failed(f"{shlex.join(command)}: exit {process.returncode}: {errors.strip().splitlines()[-1:]}")
    return outputs[0][0]


class Part:
    def __init__(self, name):
        self.name, self.about = name, PARTS[name]
        self.ranks = self.about["ranks"]
        self.threads = 2 // self.ranks
        bert = self.about["network"] == "bert"
        whole, self.rounds = (args.bert_batch, args.bert_rounds) if bert else (args.densenet_batch, args.rounds)
        if whole % self.ranks:
            raise Failed(f"batch {whole} cannot be shared by {self.ranks} ranks")
        self.batch = whole // self.ranks
        self.folder = f"{args.work}/{name}-batch-{whole}"
        os.makedirs(self.folder, exist_ok=True)
        self.model = f"{ROOT}/models/{self.about['model']}.json"
        self.options = ["--threads", str(self.threads), "--set", f"batch={self.batch}"]
        self.scheme = ["--replicas", str(self.ranks)] if self.ranks > 1 else []
        self.log = f"{self.folder}/runs.json"
        self.runs = {}
        if os.path.exists(self.log) and not args.fresh:
            with open(self.log) as file:
                self.runs = json.load(file)

    def profile(self):
        path = f"{self.folder}/profile.json"
        if args.fresh or not os.path.exists(path):
            say(f"{self.name}: profile")
            command = [f"{args.bin}/ckpt-profile", *self.options, "--seconds", "0.1", self.model]
            if self.ranks == 1:
                run([*command, "-o", f"{path}.new"])
            else:  # as it will run: the other rank has the other core
                run_twice(command, [({}, ["-o", f"{path}.new"]), ({}, ["-o", f"{path}.other"])])
            os.replace(f"{path}.new", path)
        return path

    def plan(self, name, *rest, effort=None):
        """The plan, or None where it does not fit."""
        output = f"{self.folder}/{name}.plan.json"
        run([f"{args.bin}/ckpt-plan", "--profile", f"{self.folder}/profile.json", *self.options, *self.scheme, "--effort",
             effort or args.effort, *rest, "-o", output, self.model], allowed=(0, 1))
        with open(output) as file:
            made = json.load(file)
        return made if made["verdict"] == "fits" else None

    def plans(self):
        self.profile()
        say(f"{self.name}: plans")
        keep = self.plan("keep", "--strategy", "keep-all")
        peak, span = keep["summary"]["peak_bytes"], keep["summary"]["time_ns"]
        memory, seconds = (self.about[key][1] / self.about[key][0] for key in ("memory", "time"))
        made = {"keep": keep, "memory": self.plan("memory", "--budget", str(int(memory * peak))),
                "choice": self.plan("choice", *self.about["choice"]),
                "fused": self.plan("fused", "--budget", str(int(memory * peak)), "--gradients", "fused")}
        # The minimum budget whose plan is within the published time, to 1/64 of keep-all's peak.
        low, high = 0, 64
        while high - low > 1:
            middle = (low + high) // 2
            tried = self.plan("time", "--budget", str(peak * middle // 64), effort="0")
            if tried and tried["summary"]["time_ns"] <= seconds * span:
                high = middle
            else:
                low = middle
        made["time"] = self.plan("time", "--budget", str(peak * high // 64))
        return {name: plan for name, plan in made.items() if plan}

    def train(self, name):
        command = [f"{args.bin}/ckpt-train", *self.options, "--plan", f"{self.folder}/{name}.plan.json", "--steps", str(args.steps),
                   "--json", self.model]
        if self.ranks > 1:
            command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(self.ranks)] + command
        out = json.loads(run(command, environment={"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}))
        return {"ns": out["step_ns"], "peak": out["measured_peak_bytes"], "process": out["process_peak_bytes"]}

    def torch(self, how, *rest):
        command = [args.python, f"{ROOT}/bench/pytorch/published.py", self.about["network"], how, "--batch", str(self.batch),
                   "--steps", str(args.steps), "--threads", str(self.threads), *rest]
        quiet = {"CUDA_VISIBLE_DEVICES": ""}
        if self.ranks == 1:
            return json.loads(run(command, environment=quiet).splitlines()[-1])
        world = {**quiet, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"}
        return json.loads(run_twice(command, [({**world, "RANK": str(rank)}, []) for rank in range(2)]).splitlines()[-1])

    def key(self, name, i):
        """A run by another plan is another run."""
        plan = self.made.get(name)
        mark = hashlib.sha256(json.dumps([plan["steps"], plan["places"]]).encode()).hexdigest()[:12] if plan else "PyTorch"
        return f"{name} {mark} {args.steps} steps, round {i + 1}"

    def measure(self, name):
        if not name.startswith("torch"):
            return self.train(name)
        out = self.torch(name.removeprefix("torch-"))
        return {"ns": int(statistics.median(out["step_ns"])), "process": out["process_peak_bytes"], "torch": out["torch"]}

    def once(self, key, function):
        """What function gives, from WORK where it is there."""
        if key not in self.runs:
            self.runs[key] = function()
            with open(f"{self.log}.new", "w") as file:
                json.dump(self.runs, file, indent=1)
            os.replace(f"{self.log}.new", self.log)
        return self.runs[key]

    def all(self):
        self.made = plans = self.plans()
        names = [name for name in NAMES if name in plans or name.startswith("torch")]
        for how in ("keep", "checkpoint"):
            self.once(f"torch-{how} tensors", lambda: self.torch(how, "--memory")["tensors_peak_bytes"])
        memory = self.about["memory"][1] / self.about["memory"][0]
        self.same_bytes = int(memory * self.runs["torch-keep tensors"])
        self.in_bytes = self.plan("bytes", "--budget", str(self.same_bytes))
        for i in range(self.rounds):
            for name in names:
                found = self.once(self.key(name, i), lambda: self.measure(name))
                say(f"{self.name}: round {i + 1} of {self.rounds}: {NAMES[name]}: {found['ns'] / 1e9:.3f} s")
        return Table(self, plans, names).lines()


def percent(ratio):
    return f"{100 * ratio:+.1f} %"


class Table:
    def __init__(self, part, plans, names):
        self.part, self.plans, self.names = part, plans, names
        self.runs = {name: [part.runs[part.key(name, i)] for i in range(part.rounds)] for name in names}

    def base(self, name):
        return "torch-keep" if name.startswith("torch") else "keep"

    def peak(self, name):
        return self.part.runs[f"{name} tensors"] if name.startswith("torch") else self.runs[name][0]["peak"]

    def over(self, name):
        return sorted(a["ns"] / b["ns"] - 1 for a, b in zip(self.runs[name], self.runs[self.base(name)]))

    def row(self, name):
        base, times, over = self.base(name), [run["ns"] / 1e9 for run in self.runs[name]], self.over(name)
        predicted = floor = "–"
        if name in self.plans:
            keep, plan = self.plans["keep"]["summary"]["time_ns"], self.plans[name]
            predicted = percent(plan["summary"]["time_ns"] / keep - 1)
            floor = percent(plan["bound"]["time_ns"] / keep - 1) if name in ("memory", "time") else "–"
        process = max(run["process"] for run in self.runs[name]) / 1e6
        measured = "–" if name == base else f"**{percent(statistics.median(over))}** ({percent(over[0])} to {percent(over[-1])})"
        return (f"| {NAMES[name]} | {self.peak(name) / 1e6:.0f} MB | **{self.peak(name) / self.peak(base):.3f}** | {process:.0f} MB | "
                f"{statistics.median(times):.3f} s ({min(times):.3f} to {max(times):.3f}) | {measured} | {predicted} | {floor} |")

    def recomputed(self, name):
        """What runs again in a plan: share of keep-all's time by kind of layer, largest first."""
        plan, kinds = self.plans[name], {}
        with open(f"{self.part.folder}/profile.json") as file:
            op = {row["layer"]: row["op"] for row in json.load(file)["layers"] if "op" in row}
        work = {row["name"]: (row["layer"], row["time_ns"]) for row in plan["graph"]["ops"]}
        for step in plan["steps"]:
            if step.get("again"):
                layer, span = work[step["run"]]
                kind = op.get(layer, "others")
                kinds[kind] = kinds.get(kind, 0) + span
        keep = self.plans["keep"]["summary"]["time_ns"]
        return ", ".join(f"{kind} {100 * span / keep:.1f} %" for kind, span in sorted(kinds.items(), key=lambda item: -item[1])
                         if span > keep / 2000) or "nothing"

    def calibration(self, name):
        measured = statistics.median(run["ns"] for run in self.runs[name]) / 1e9
        return f"{self.plans[name]['summary']['time_ns'] / 1e9:.3f} s predicted, {measured:.3f} s measured"

    def verdicts(self):
        about = self.part.about
        memory, seconds = (about[key][1] / about[key][0] for key in ("memory", "time"))
        yield f"- The profile against this run: keep-all {self.calibration('keep')}" + (
            f"; the plan at the published memory {self.calibration('memory')}." if "memory" in self.plans else ".")
        if "memory" in self.plans:
            yield (f"- At their memory ratio ({memory:.3f}) they were {percent(seconds - 1)} slower; ours is "
                   f"**{percent(statistics.median(self.over('memory')))}** (predicted "
                   f"{percent(self.plans['memory']['summary']['time_ns'] / self.plans['keep']['summary']['time_ns'] - 1)}). "
                   f"Recomputed, of keep-all's time: {self.recomputed('memory')}.")
        else:
            yield f"- At their memory ratio ({memory:.3f}) no plan was found at this batch."
        if "fused" in self.plans:
            yield (f"- The same budget with `--gradients fused`, where gradients of parameters live only until their update: predicted "
                   f"{percent(self.plans['fused']['summary']['time_ns'] / self.plans['keep']['summary']['time_ns'] - 1)}.")
        if "time" in self.plans:
            measured = statistics.median(self.over("time"))
            met = "" if measured <= seconds - 1 else ", more than they took: the prediction is too low there"
            yield (f"- Within their time ratio ({seconds:.3f}) they took {memory:.3f} of the memory; ours takes "
                   f"**{self.peak('time') / self.peak('keep'):.3f}**, at {percent(measured)} measured{met}. "
                   f"Recomputed: {self.recomputed('time')}.")
        if "choice" in self.plans:
            yield (f"- Their choice of layers, set by hand here, takes {self.peak('choice') / self.peak('keep'):.3f} of the memory at "
                   f"{percent(statistics.median(self.over('choice')))}.")
        if self.part.in_bytes:
            over = self.part.in_bytes["summary"]["time_ns"] / self.plans["keep"]["summary"]["time_ns"] - 1
            yield (f"- In bytes: their ratio of what PyTorch's keep-all takes here is {self.part.same_bytes / 1e6:.0f} MB; within that ours is "
                   f"predicted at {percent(over)}, with {self.part.in_bytes['summary']['peak_bytes'] / 1e6:.0f} MB.")
        yield (f"- PyTorch's checkpoint here takes {self.peak('torch-checkpoint') / self.peak('torch-keep'):.3f} of its memory at "
               f"{percent(statistics.median(self.over('torch-checkpoint')))}.")

    def lines(self):
        about = self.part.about
        (m0, m1, mu), (t0, t1, tu) = about["memory"], about["time"]
        yield f"## {about['title']}"
        yield ""
        share = f", {self.part.batch} on each rank" if self.part.ranks > 1 else ""
        threads = "1 thread" if self.part.threads == 1 else f"{self.part.threads} threads"
        rounds = "1 round" if self.part.rounds == 1 else f"{self.part.rounds} rounds"
        yield f"Batch {self.part.batch * self.part.ranks}{share}; {threads} a rank; {rounds} of {args.steps} steps each. Published: {about['source']}."
        yield ""
        yield "| | peak of the step | of keep-all | process | step time (least to most) | over keep-all, measured | predicted | no schedule below |"
        yield "|---|---:|---:|---:|---:|---:|---:|---:|"
        yield f"| published, keep-all | {m0} {mu} | 1 | | {t0} {tu} | | | |"
        yield f"| published, checkpointed | {m1} {mu} | {m1 / m0:.3f} | | {t1} {tu} | {percent(t1 / t0 - 1)} | | |"
        for name in self.names:
            yield self.row(name)
        yield ""
        yield from self.verdicts()
        yield ""


def machine():
    name = "unknown processor"
    try:
        with open("/proc/cpuinfo") as file:
            name = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), name)
    except OSError:
        pass
    return f"{name}, {os.cpu_count()} processors"


HEAD = """# Published trade-offs, side by side

Written by `bench/published.py`; the command of this run:

```
{command}
```

Machine: {machine}. ckpt {version}, PyTorch {torch}. All ratios are to the same side's keep-all, in the same run.

- **Peak of the step**: ours is static block and arena of one rank, to the byte what the plan says (`ckpt-train --json`: `measured_peak_bytes`); PyTorch's is what its allocator held in tensors at the most
  in a step (its profiler's memory events, in a run of its own that is not timed). **Process** is the resident peak (`getrusage`) of rank 0, libraries included; PyTorch's are several hundred MB.
- **Predicted** is the plan's step time from a profile taken on this machine before; **no schedule below** is what the planner proves that no schedule of that peak can beat. Where measured
  and predicted differ, a part is the spread of the rounds, and a part the caches: what a layer read just now is measured warm, and a smaller arena is touched more often.
- The published figures are of GPUs, at larger batches, and of memory with the library's own share. Static memory (weights, gradients, optimizer) does not grow with the batch and cannot be recomputed, so the same
  ratio leaves less room for activations at a smaller batch.
- Ours never stores the attention matrix, PyTorch on a CPU does with dropout: its keep-all takes more, and its checkpoint saves more of it.

"""


def main():
    names = args.parts.split(",")
    for name in names:
        if name not in PARTS:
            parser.error(f"found part '{name}', wanted one of {', '.join(PARTS)}")
    sections, failed, torch = [], 0, "not run"
    for name in names:
        try:
            part = Part(name)
            sections += part.all()
            torch = next((run["torch"] for run in part.runs.values() if isinstance(run, dict) and "torch" in run), torch)
        except (Failed, KeyError, ValueError) as problem:
            failed = 1
            say(f"{name} failed: {problem}")
            sections += [f"## {PARTS[name]['title']}", "", f"Not done: {problem}", ""]
    version = run([f"{args.bin}/ckpt-train", "--version"]).split()[-1]
    command = shlex.join(["bench/published.py", *("build/release/bin" if word == args.bin else word for word in sys.argv[1:])])
    with open(args.output, "w") as file:
        file.write(HEAD.format(command=command, machine=machine(), version=version, torch=torch) + "\n".join(sections).rstrip() + "\n")
    say(f"wrote {args.output}")
    sys.exit(failed)


main()

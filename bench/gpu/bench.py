"""Step time and memory of ckpt-train on a GPU, next to PyTorch on the same GPU in the same run when it is there.

    python3 bench/gpu/bench.py --bin build/cuda/bin --out OUT        # all networks, both types
    python3 bench/gpu/bench.py --bin build/release/bin --out OUT --device cpu --tiny   # every path, on the CPU

For each network and type, ckpt: a profile of this GPU, then plans for keep-all, for half of keep-all's activations and
for the minimum budget there is; PyTorch: eager and compiled, both also with its own recomputation. A round runs each of a
side once, in turns. One side's state is on the device at a time: ckpt's rounds but the last, then PyTorch in a process of
its own, then ckpt's last round, so that clocks that drift show in ckpt's smallest and largest. The figure is the median
over rounds of medians over steps. After every turn bench.json and bench.md are written. CAPTION, which goes under every
table, says what each side does.

The rule for "half": PyTorch may take as many bytes beyond weights, their copies and optimizer state as ckpt's half plan
does; gradients and workspaces count on both sides, what an allocator holds in reserve does not. Its recomputed blocks
(the fewest that suffice, by bisection) and torch.compile's activation memory budget (three tries) are searched for that,
by what torch.cuda.max_memory_allocated says of a step; the fastest of those that keep to it is PyTorch's best.

On the CPU ckpt has no bfloat16: its plans are then made from a roofline and not run. OUT gets bench.json, bench.md and
recorded/ with the profiles, plans and measured traces.
"""
import argparse
import importlib.metadata
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import time

import flops

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
# Published parameter counts (tests/ops/lowering/test_models.c names the sources); batches for 141 GB, halved for less.
GPT2_TINY = dict(batch=2, tokens=32, positions=32, hidden=64, blocks=4, heads=4, vocabulary=211)
NETWORKS = {
    "gpt2-124m": dict(kind="gpt", params=124439808, batch=dict(bfloat16=32, float32=16), vars=dict(tokens=1024), tiny=GPT2_TINY),
    # Rows of 50257 logits in bfloat16 are no multiple of 16 bytes; many round the vocabulary up to a multiple of 64.
    "gpt2-124m-50304": dict(kind="gpt", model="gpt2-124m", params=124439808 + 47 * 768, batch=dict(bfloat16=32, float32=16),
                            vars=dict(tokens=1024, vocabulary=50304), tiny=dict(GPT2_TINY, vocabulary=256)),
    "resnet50": dict(kind="resnet", params=25557032, batch=dict(bfloat16=256, float32=128), vars=dict(size=224),
                     tiny=dict(batch=2, size=64, classes=10)),
    "bert-large": dict(kind="bert", params=335174458, batch=dict(bfloat16=32, float32=16), vars=dict(tokens=512),
                       tiny=dict(GPT2_TINY, feed_forward=128)),
    "gpt2-1.5b": dict(kind="gpt", params=1557611200, batch=dict(bfloat16=8, float32=4), vars=dict(tokens=1024),
                      tiny=dict(GPT2_TINY, hidden=80, blocks=6, heads=5)),
}
# Ways of PyTorch to run a step: arguments of torch_side.Variant, those without a compiler first, then the most important.
# "match": searched for, to use the bytes of ckpt's half.
TORCH = {
    "eager": dict(),
    "eager, blocks recomputed:": dict(blocks="match"),
    "compiled": dict(compiled=True),
    "compiled, memory budget": dict(compiled=True, budget="match"),
    "compiled, blocks recomputed:": dict(compiled=True, blocks="match"),
    "eager, all blocks recomputed:": dict(blocks="all"),
    "compiled, autocast": dict(compiled=True, autocast=True),
    "eager, autocast": dict(autocast=True),
}
OVER = 1.02  # PyTorch's bytes over ckpt's half that still count as the same
CAPTION = """Same shapes and batch on both sides, resident on the device; AdamW or SGD fused; PyTorch with scaled_dot_product_attention,
cuDNN's benchmark mode and torch.compile in its default mode, its kernels not asked to be deterministic (ckpt's are), no TF32 in float32 on either side. bfloat16: ckpt has bfloat16
activations, residual sums and their gradients, products from a bfloat16 copy of the weights, and float32 weights, gradients of weights, optimizer
state, statistics and losses. PyTorch without further words: network, residual sums and all gradients in bfloat16, batch norms' parameters and
statistics, logits of the loss, weights in the optimizer and its state in float32. PyTorch with autocast: float32 weights and gradients; products,
convolutions and attention in bfloat16; layer norms, losses and, because it adds bfloat16 to float32 embeddings, residual sums in float32.
"beyond": the most bytes of a step beyond weights, their copies and optimizer state: activations, gradients and workspaces. "peak": all that the
program asked for on the device; context, libraries and what PyTorch's allocator holds in reserve are in neither. FLOP: bench/gpu/flops.py."""


class NoTime(Exception):
    """Stopped by the limit, which is no failure."""


def run(command, seconds=None):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise NoTime("no time") from None
    if done.returncode != 0:
        text = (done.stderr or done.stdout).strip().splitlines()
        raise RuntimeError(f"{os.path.basename(command[0])} exit {done.returncode}: {text[-1] if text else 'no message'}")
    return done.stdout


def read(path):
    with open(path) as file:
        return json.load(file)


class Ckpt:
    """One plan of one network, run by ckpt-train."""

    def __init__(self, job, name, plan):
        self.job, self.name, self.plan, self.times, self.error, self.result = job, name, plan, [], None, {}

    def step_times(self, steps):
        self.result = json.loads(self.train(["--steps", str(steps), "--json"]))
        return self.result["step_ns"] / 1e9

    def train(self, how):
        job = self.job
        return run([f"{job.args.bin}/ckpt-train", job.model, "--plan", self.plan, "--device", job.args.device, "--no-digest"] + how
                   + job.flags, job.args.left())

    def trace(self):
        """A separate run, because a traced step is started op by op, not replayed."""
        if self.error is None and self.times and self.job.args.left() > 0:
            try:
                self.train(["--steps", "3", "--trace", self.job.file(f"{self.name}.trace.json")])
            except Exception as error:  # noqa: BLE001
                self.job.notes.append(f"{self.name}, trace: {error}")

    def row(self):
        r, plan = self.result, read(self.plan)["summary"]
        return dict(peak_bytes=r.get("measured_peak_bytes"), planned_peak_bytes=r.get("planned_peak_bytes"),
                    activation_bytes=plan["peak_bytes"] - plan["static_bytes"], beyond_bytes=self.beyond(),
                    predicted_ns=plan["time_ns"], result=r)

    def beyond(self):
        """Bytes beyond weights, their copies and optimizer state; gradients are in the plan's static block."""
        plan = read(self.plan)["summary"]
        return plan["peak_bytes"] - plan["static_bytes"] + 4 * self.job.params


NO_TIME = "no time"
NO_BFLOAT16 = "planned, not run: the CPU has no bfloat16"


class Job:
    """One network in one type, with everything made from it."""

    def __init__(self, args, name, dtype, scale):
        self.args, self.name, self.dtype, network = args, name, dtype, NETWORKS[name]
        self.kind, self.model = network["kind"], f"{ROOT}/models/{network.get('model', name)}.json"
        self.most_bytes, self.runs = None, args.device != "cpu" or dtype == "float32"
        if args.tiny:
            change = dict(network["tiny"])
        else:
            change = dict(network["vars"], batch=max(1, network["batch"][dtype] >> scale))
        self.vars = dict(read(self.model)["vars"], **change)
        self.flags = [x for k, v in change.items() for x in ("--set", f"{k}={v}")]
        if dtype != "float32":
            self.flags += ["--dtype", dtype]
        self.params = flops.parameters(self.kind, self.vars)
        if not args.tiny:
            assert self.params == network["params"], (name, self.params)
        self.flop, self.formula = flops.step(self.kind, self.vars)
        self.items = self.vars["batch"] * (1 if self.kind == "resnet" else self.vars["tokens"])
        self.variants, self.notes = [], []

    def file(self, name):
        return f"{self.args.out}/recorded/{self.name}.{self.dtype}.{name}"

    def plan(self, name, how):
        path = self.file(f"{name}.plan.json")
        try:
            times = ["--profile", self.file("profile.json")] if self.runs else ["--device", "h200"]
            effort = ["--effort", "0"] if self.args.tiny else []
            run([f"{self.args.bin}/ckpt-plan", self.model, "-o", path] + times + how + effort + self.flags, self.args.left())
        except RuntimeError:
            if not (os.path.exists(path) and "least_budget_bytes" in read(path)):
                raise
        return read(path), path

    def make_ckpt(self):
        """Profile, then three plans."""
        args = self.args
        if self.runs:
            run([f"{args.bin}/ckpt-profile", self.model, "--device", args.device, "-o", self.file("profile.json"), "--repeats", "5",
                 "--seconds", "0.05"] + self.flags, args.left())
        keep, path = self.plan("keep-all", ["--strategy", "keep-all"])
        self.variants.append(Ckpt(self, "keep-all", path))
        s = keep["summary"]
        # Our own lowering against this file's parameter count: weights, gradients and the optimizer's slots.
        copies = 4 * (4 if self.kind != "resnet" else 3) + (2 if self.dtype == "bfloat16" else 0)
        assert self.params * copies <= s["static_bytes"] <= self.params * copies * 1.02 + 64e6, (s["static_bytes"], self.params)
        alone = ["--strategy", "recompute-only", "--budget"]  # PyTorch's checkpointing copies nothing to the host either
        least, path = self.plan("least", alone + ["1"])
        if "least_budget_bytes" in least:
            least, path = self.plan("least", alone + [str(least["least_budget_bytes"])])
        half = s["static_bytes"] + (s["peak_bytes"] - s["static_bytes"]) // 2
        if half > least["summary"]["peak_bytes"]:
            self.variants.append(Ckpt(self, "half", self.plan("half", alone + [str(half)])[1]))
        else:
            self.notes.append("half of keep-all's activations is less than the minimum budget")
        self.variants.append(Ckpt(self, "least", path))
        self.most_bytes = self.variants[1].beyond()  # half, or else the least
        if not self.runs:
            for v in self.variants:
                v.error = NO_BFLOAT16


class Torch:
    """One way of PyTorch to run a step, as torch_side.py reports it."""

    def __init__(self, name):
        self.name, self.times, self.error, self.told = name, [], None, {}

    def row(self):
        return self.told


def measure(job, rounds, keep):
    """Rounds of ckpt's plans in turns; a plan that fails is dropped, with its reason. Calls `keep` after each turn."""
    for _ in range(rounds):
        for variant in job.variants:
            if isinstance(variant, Ckpt) and variant.error is None and job.args.left() > 0:
                try:
                    variant.times.append(variant.step_times(job.args.steps))
                except NoTime:
                    variant.error = NO_TIME
                except Exception as error:  # noqa: BLE001: whatever stops one variant must not stop the others
                    variant.error = f"{type(error).__name__}: {error}".splitlines()[0][:300]
                keep()


def measure_torch(job, seconds, keep):
    """Rounds of PyTorch, in a process that is ended with all its children when its time is over."""
    args = job.args
    table = {name: how for name, how in TORCH.items() if (not args.torch or name in args.torch.split(";"))
             and (job.dtype == "bfloat16" or not how.get("autocast")) and (job.most_bytes or "match" not in how.values())}
    if not job.most_bytes:
        job.notes.append("PyTorch's recomputation has no bytes to keep to: there is no plan of ckpt's")
    variants = {name: Torch(name) for name in table}
    job.variants += variants.values()
    if seconds <= 1:
        return
    order = dict(kind=job.kind, vars=job.vars, dtype=job.dtype, device=args.device, most_bytes=job.most_bytes, params=job.params,
                 table=table, rounds=args.rounds, steps=args.steps, seconds=seconds)
    # Files, not pipes: a process that PyTorch's compiler leaves behind would keep a pipe open.
    with open(job.file("torch.jsonl"), "w+") as lines, open(job.file("torch.txt"), "w+") as said:
        child = subprocess.Popen([sys.executable, f"{HERE}/torch_side.py", json.dumps(order)], stdout=lines, stderr=said,
                                 preexec_fn=os.setpgrp)
        end, seen, code = time.time() + seconds + 3, 0, None
        while code is None and time.time() < end:
            time.sleep(0.1)
            code = child.poll()
            text = os.pread(lines.fileno(), 1 << 24, 0).decode()
            whole = text[: text.rfind("\n") + 1].splitlines()
            for told in map(json.loads, whole[seen:]):
                v = variants[told["of"]]
                v.name, v.times, v.error, v.told = told["name"], told["times"], told["error"], told["row"]
            if len(whole) > seen:
                seen = len(whole)
                keep()
        if code is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            job.notes.append("PyTorch was ended when its time was over")
        elif code != 0:
            said.seek(0)
            words = said.read().strip().splitlines()
            job.notes.append(f"PyTorch ended with {code}: {words[-1] if words else 'no message'}"[:300])
            for v in variants.values():
                v.error = v.error or (None if v.times else "not run: PyTorch's process had ended")


def torch_version():
    """PyTorch's version without importing it, which takes seconds; None: not installed."""
    if importlib.util.find_spec("torch") is None:
        return None
    try:
        return f"PyTorch {importlib.metadata.version('torch')}"
    except importlib.metadata.PackageNotFoundError:
        return "PyTorch of unknown version"


def rows_of(job, peak_flops):
    rows = []
    for v in job.variants:
        who = "ckpt" if isinstance(v, Ckpt) else "PyTorch"
        row = dict(network=job.name, dtype=job.dtype, batch=job.vars["batch"], program=who, variant=v.name, error=v.error)
        if isinstance(v, Ckpt):
            row.update(v.row())
        if v.times:
            t = statistics.median(v.times)
            row.update(step_s=t, step_min_s=min(v.times), step_max_s=max(v.times), rounds=len(v.times), per_s=job.items / t,
                       share=job.flop / t / peak_flops[job.dtype] if peak_flops else None, flop=job.flop, **v.row())
        rows.append(row)
    return rows


def ratios(rows, most):
    """The two comparisons: keep-all with compiled PyTorch, half with PyTorch's best in as many bytes."""
    done = {(r["program"], r["variant"]): r for r in rows if r.get("step_s")}
    theirs = [r for (program, _), r in done.items() if program == "PyTorch"]
    found = {}
    for mine, pool, how in (("keep-all", [r for r in theirs if r["variant"].startswith("compiled") and ":" not in r["variant"]
                                          and "budget" not in r["variant"]], "PyTorch compiled"),
                            ("half", [r for r in theirs if most and (r.get("beyond_bytes") or most * 9) <= OVER * most],
                             "PyTorch's fastest within its bytes")):
        me, best = done.get(("ckpt", mine)), min(pool, key=lambda r: r["step_s"], default=None)
        if me and best:
            found[f"{mine}: step rate over {how} ({best['variant']})"] = best["step_s"] / me["step_s"]
        elif me and theirs:
            found[f"{mine}: no step of {how}"] = None
    return found


def markdown(report):
    lines = []
    for (name, dtype) in dict.fromkeys((r["network"], r["dtype"]) for r in report["rows"]):
        rows = [r for r in report["rows"] if (r["network"], r["dtype"]) == (name, dtype)]
        unit = "images/s" if NETWORKS[name]["kind"] == "resnet" else "tokens/s"
        lines += ["", f"**{name}, {dtype}, batch {rows[0]['batch']}** ({report['formula'].get(name, '')})", "",
                  f"| | step (min–max) | {unit} | share of peak | peak | beyond |", "|---|---|---|---|---|---|"]
        for r in rows:
            size = " | ".join(f"{r[k] / 1e9:.3f} GB" if r.get(k) else "–" for k in ("peak_bytes", "beyond_bytes"))
            if not r.get("step_s"):
                lines.append(f"| {r['program']}, {r['variant']} | {r['error'] or 'no time'} | | | {size} |")
                continue
            share = f"{100 * r['share']:.1f} %" if r.get("share") else "–"
            lines.append(f"| {r['program']}, {r['variant']} | {1e3 * r['step_s']:.2f} ms ({1e3 * r['step_min_s']:.2f}–"
                         f"{1e3 * r['step_max_s']:.2f}) | {r['per_s']:.0f} | {share} | {size} |")
        most = report["most_bytes"].get(f"{name} {dtype}")
        found = [f"- {what}" + ("" if ratio is None else f": {ratio:.3f}") for what, ratio in ratios(rows, most).items()]
        lines += [""] + found if found else []
    return "\n".join([report["head"]] + lines + [""] + [f"- {n}" for n in report["notes"]] + ["", CAPTION]) + "\n"


def smi(field):
    try:
        return run(["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"]).splitlines()[0].strip()
    except (OSError, RuntimeError, IndexError):
        return ""


def save(args, report):
    with open(f"{args.out}/bench.json.tmp", "w") as file:
        json.dump(report, file, indent=1)
    os.replace(f"{args.out}/bench.json.tmp", f"{args.out}/bench.json")
    with open(f"{args.out}/bench.md", "w") as file:
        file.write(markdown(report))


def one(args, report, job, with_torch, peak_flops):
    """Measures one network and adds it to the report; True if something of ckpt failed."""
    failed = False
    report["formula"][job.name] = job.formula
    others = [r for r in report["rows"] if (r["network"], r["dtype"]) != (job.name, job.dtype)]

    def keep():
        report["rows"] = others + rows_of(job, peak_flops)
        save(args, report)

    try:
        job.make_ckpt()
    except NoTime:
        job.notes.append("ckpt: no time for profile and plans")
    except Exception as error:  # noqa: BLE001
        failed = True
        job.notes.append(f"ckpt: {error}")
    report["most_bytes"][f"{job.name} {job.dtype}"] = job.most_bytes
    before = max(1, args.rounds - 1) if with_torch else args.rounds
    begun = time.time()
    measure(job, before, keep)
    if with_torch:
        once = (time.time() - begun) / before  # kept back for ckpt's last round and as long for the traces
        measure_torch(job, args.left() - 5 - 2.5 * once, keep)
        keep()
        measure(job, args.rounds - before, keep)
    for v in job.variants:
        if isinstance(v, Ckpt):
            v.trace()
    report["notes"] += [f"{job.name}, {job.dtype}: {n}" for n in job.notes]
    report["clocks"].append(dict(network=job.name, dtype=job.dtype, clocks=smi("clocks.sm,power.draw,temperature.gpu")))
    report["done"].append([job.name, job.dtype])
    keep()
    for v in job.variants:
        print(f"    {v.name}: {v.error or [round(t, 5) for t in v.times] or 'no time'}", flush=True)
    return failed or any(v.error not in (None, NO_TIME, NO_BFLOAT16) and isinstance(v, Ckpt) for v in job.variants)


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--bin", required=True, help="folder of ckpt-profile, ckpt-plan, ckpt-train")
    p.add_argument("--out", required=True)
    p.add_argument("--device", default="cuda:0", help="cuda:0 or cpu")
    p.add_argument("--networks", default=",".join(NETWORKS))
    p.add_argument("--dtypes", default="bfloat16,float32")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=8)
    p.add_argument("--seconds", type=float, default=1e6, help="start nothing new after that many")
    p.add_argument("--tiny", action="store_true", help="small variables, to see that everything runs")
    p.add_argument("--resume", action="store_true", help="go on from OUT/bench.json, leaving out what is there")
    p.add_argument("--torch", default="", help="only these ways of PyTorch, ';' between: " + "; ".join(TORCH))
    p.add_argument("--no-torch", action="store_true")
    args = p.parse_args()
    args.bin = os.path.abspath(args.bin)
    unknown = set(args.networks.split(",")) - set(NETWORKS)
    if unknown:
        p.error(f"no network {sorted(unknown)}, wanted some of {list(NETWORKS)}")
    return args


def main():
    args = arguments()
    sys.stdout.reconfigure(line_buffering=True)
    begun = time.time()
    args.end = begun + args.seconds
    args.left = lambda: args.end - time.time()
    with_torch = None if args.no_torch else torch_version()
    os.makedirs(f"{args.out}/recorded", exist_ok=True)
    gpu = smi("name") if args.device != "cpu" else ""
    peak_flops, peak_source = flops.peak(gpu)
    text = smi("memory.total").split(" ")[0]
    memory = int(text) * 2**20 if text.isdigit() else 141e9
    scale = 0
    while memory * 2**scale < 0.8 * 141e9:
        scale += 1
    report = dict(rows=[], notes=[], formula={}, most_bytes={}, clocks=[], done=[], head="")
    if args.resume and os.path.exists(f"{args.out}/bench.json"):
        report = read(f"{args.out}/bench.json")
    report["head"] = (f"{gpu or 'CPU, tiny networks: no figure of a GPU'}, driver {smi('driver_version') or '–'}, "
                      f"{with_torch or 'no PyTorch'}, {time.strftime('%Y-%m-%d', time.gmtime())}; "
                      f"up to {args.rounds} rounds of {args.steps} steps in turns, medians. Peak: {peak_source}.")
    failed = False
    jobs = [(name, dtype) for dtype in args.dtypes.split(",") for name in args.networks.split(",") if [name, dtype] not in report["done"]]
    for i, (name, dtype) in enumerate(jobs):
        left = begun + args.seconds - time.time()
        if left <= 0:
            report["notes"].append(f"{name}, {dtype}: not begun, the time was over")
            continue
        args.end = time.time() + left / (len(jobs) - i)  # what one leaves, those after it share
        print(f"{time.time() - begun:6.1f} s: {name}, {dtype}", flush=True)
        failed |= one(args, report, Job(args, name, dtype, scale), with_torch, peak_flops)
    save(args, report)
    print(markdown(report))
    done = sum(1 for r in report["rows"] if r.get("step_s"))
    print(f"{'ckpt FAILED somewhere, see the table; ' if failed else ''}{done} of {len(report['rows'])} rows have a step time{'' if with_torch else ', no PyTorch here'}")
    ours = [r for r in report["rows"] if r["program"] == "ckpt"]
    short = any(not any((r["network"], r["dtype"]) == job for r in ours) for job in jobs)
    short |= any(r["error"] in (None, NO_TIME) and not r.get("step_s") for r in ours)
    return 1 if failed else 124 if short else 0  # 124: out of time, as timeout says it


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""A PyTorch training step under this project's backend at several budgets, beside PyTorch's own ways, on one device.

    bench/gpu/torch_budgets.py gpt2|bert|resnet [--batch N] [--budgets LIST] [--rounds N] [--options JSON] [--tiny] [--json FILE]

The networks are those of torch_models.py with float32 weights under bfloat16 autocast. Peaks are those of PyTorch's
allocator in a step beyond what was there before it, plus weights, optimizer state and batch. Times are medians of rounds that go through
all methods in turn. "bits" is a comparison of its own: three SGD steps with deterministic algorithms, against eager. With --options '{"capture": true}' every budget runs
kernel by kernel too, and peaks are with what graphs hold.
"""

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

import torch

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "python")]
import torch_models  # noqa: E402

import ckpt_torch  # noqa: E402
from ckpt_torch import _arena  # noqa: E402

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic products
NETWORKS = {
    "gpt2": ("gpt", dict(batch=16, tokens=1024, vocabulary=50304, positions=1024, hidden=768, heads=12, blocks=12),
             dict(batch=2, tokens=32, vocabulary=256, positions=32, hidden=64, heads=2, blocks=3)),
    "bert": ("bert", dict(batch=16, tokens=512, vocabulary=30522, positions=512, hidden=1024, heads=16, blocks=24, feed_forward=4096),
             dict(batch=2, tokens=32, vocabulary=256, positions=32, hidden=64, heads=2, blocks=3, feed_forward=128)),
    "resnet": ("resnet", dict(batch=128, size=224, classes=1000), dict(batch=2, size=64, classes=10))}


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


class Method:
    """One way to run a step, with a network and an optimizer of its own."""

    def __init__(self, name, job, make, recomputed=0):
        self.name, self.job, self.times = name, job, []
        kind, variables = job.kind, job.variables
        self.net, self.batch, self.optimizer = torch_models.make(kind, variables, job.device)
        self.net.blocks.recomputed = recomputed
        self.call = make(self.net, self.optimizer)
        for i in range(16):  # until the budget holds, and what is to be recorded is
            if i >= 4 and not (name.startswith("ckpt") and not ckpt_torch._backend.newest(self.net.parameters()).settled):
                break
            self.step()
        self.peak = self.measure() if job.device == "cuda" else None

    def step(self):
        with torch.autocast(self.job.device, dtype=torch.bfloat16):
            loss = self.call(*self.batch)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def measure(self):
        state = [x for s in self.optimizer.state.values() for x in s.values() if isinstance(x, torch.Tensor)]
        there = sum(x.untyped_storage().nbytes() for x in [*self.net.parameters(), *self.net.buffers(), *self.batch, *state])
        before, _ = _arena.memory("cuda", reset_peak=True)
        self.step()
        held = ckpt_torch.report(self.call).held_bytes if self.name.startswith("ckpt") else 0
        return there + _arena.memory("cuda")[1] - before + (held or 0)

    def time(self, steps):
        for _ in range(steps):
            wait(self.job.device)
            start = time.perf_counter()
            self.step()
            wait(self.job.device)
            self.times.append(time.perf_counter() - start)

    def row(self):
        row = {"method": self.name, "peak_bytes": self.peak, "median_s": statistics.median(self.times), "least_s": min(self.times),
               "most_s": max(self.times)}
        if self.name.startswith("ckpt"):
            report = ckpt_torch.report(self.call)
            row.update(predicted_bytes=report.predicted_peak_bytes, measured_bytes=report.measured_peak_bytes,
                       overhead=report.overhead, seconds=report.seconds, arena=report.arena, held_bytes=report.held_bytes,
                       not_captured=report.not_captured)
        return row


def bits(job, options):
    """Names of what differs from eager after three steps of SGD, twelve if the last ones are to be replayed, and "loss" first."""
    torch.use_deterministic_algorithms(True)
    found = []
    for make in (lambda net: torch.compile(net, backend="eager"),
                 lambda net: torch.compile(net, backend=ckpt_torch.backend, options=options)):
        torch._dynamo.reset()
        net, batch, _ = torch_models.make(job.kind, job.variables, job.device)
        net.blocks.recomputed = 0
        optimizer, call, losses = torch.optim.SGD(net.parameters(), lr=0.1), make(net), []
        torch.manual_seed(3)
        for _ in range(12 if options.get("capture") else 3):
            with torch.autocast(job.device, dtype=torch.bfloat16):
                loss = call(*batch)
            losses.append(loss.item())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        found.append(({"loss": torch.tensor(losses), **net.state_dict()}))
    torch.use_deterministic_algorithms(False)
    torch._dynamo.reset()
    return [name for name in found[0] if not torch.equal(found[0][name], found[1][name])]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--budgets", default="100%,80%,60%,40%,1%")
    parser.add_argument("--rivals", default="eager,compile,compile 0.5,compile 0,blocks")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--options", type=json.loads, default={}, help="more options of the backend")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--no-bits", action="store_true")
    parser.add_argument("--json")
    job = parser.parse_args()
    job.device = "cuda" if torch.cuda.is_available() else "cpu"
    job.kind, full, tiny = NETWORKS[job.network]
    job.variables = dict(tiny if job.tiny else full)
    if job.batch:
        job.variables["batch"] = job.batch
    if job.options.get("arena"):
        ckpt_torch.use_arena()
    name = torch.cuda.get_device_name() if job.device == "cuda" else "CPU"
    print(f"{job.network} {job.variables}, {name}, PyTorch {torch.__version__}", flush=True)
    options = {"infeasible": "least", "quiet": True, **job.options}
    torch._dynamo.config.recompile_limit = 1000  # every method is one more compilation of the same code
    rows, methods = {}, []
    if not job.no_bits:
        for budget in job.budgets.split(","):
            differ = bits(job, {**options, "budget": budget})
            rows[budget] = {"bits": not differ, "differ": differ[:3]}
            print(f"bits of ckpt {budget}: {'as eager' if not differ else f'{len(differ)} differ: {differ[:3]}'}", flush=True)

    def add(name, make, recomputed=0):
        try:
            methods.append(Method(name, job, make, recomputed))
        except Exception as error:  # noqa: BLE001
            print(f"{name}: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}", flush=True)
        torch._functorch.config.activation_memory_budget = 1.0

    for rival in filter(None, job.rivals.split(",")):
        kind, _, share = rival.partition(" ")
        torch._functorch.config.activation_memory_budget = float(share or 1)
        add(rival, (lambda net, opt: torch.compile(net)) if kind == "compile" else (lambda net, opt: net), 1000 if kind == "blocks" else 0)
    for budget in job.budgets.split(","):
        for name, more in ((f"ckpt {budget}", {}), *([(f"ckpt {budget} kernel by kernel", {"capture": False})] if job.options.get("capture") else [])):
            add(name, lambda net, opt, b=budget, m=more: torch.compile(
                net, backend=ckpt_torch.backend, options={**options, **m, "budget": b, "optimizer": opt}))
    for _ in range(job.rounds):
        for method in methods:
            try:
                method.time(job.steps)
            except Exception as error:  # noqa: BLE001
                print(f"{method.name}: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}", flush=True)
    result = []
    for method in methods:
        if not method.times:
            continue
        row = {**method.row(), **rows.get(method.name.removeprefix("ckpt "), {})}
        result.append(row)
        print(f"{row['method']:14} {(row['peak_bytes'] or 0) / 1e6:10.1f} MB {1e3 * row['median_s']:9.2f} ms ({1e3 * row['least_s']:.2f} to "
              f"{1e3 * row['most_s']:.2f})" + (f"  predicted {row['predicted_bytes'] / 1e6:.1f} MB, measured {row['measured_bytes'] / 1e6:.1f} MB, "
              f"{100 * row['overhead']:+.1f} % planned, {({k: round(v, 1) for k, v in row['seconds'].items()})} {row['arena'] or ''}"
              f"{' held by graphs %.1f MB' % (row['held_bytes'] / 1e6) if row['held_bytes'] else ''}{row['not_captured'] and ' not captured: ' + row['not_captured'] or ''}" if "predicted_bytes" in row else ""), flush=True)
    if job.json:
        Path(job.json).write_text(json.dumps({"network": job.network, "variables": job.variables, "device": name, "torch": torch.__version__,
                                              "options": job.options, "rows": result}, indent=1))


main()

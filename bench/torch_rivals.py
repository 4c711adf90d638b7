#!/usr/bin/env python3
"""Peak and time of a PyTorch training step: eager, this project's backend at several budgets, PyTorch's own
activation_memory_budget, and a checkpoint around each block. On the CPU, in the environment of scripts/pytorch-venv models.

    bench/torch_rivals.py MODEL [--rounds N] [--json FILE] [--no-inductor]

Peaks are of PyTorch's own memory events over a whole step, optimizer included, plus what was there before: parameters,
buffers, inputs, optimizer state. Times are the least of N rounds that go through all methods in turn; processor time, of all threads, also means
something on a machine that does other things (with OMP_WAIT_POLICY=passive).
"""

import argparse
import copy
import json
import sys
import time
from pathlib import Path

import torch
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).parent))
import torch_models  # noqa: E402

import ckpt_torch  # noqa: E402


def each_block(model):
    """Wraps every module of the longest list of equal modules in a checkpoint."""
    blocks = max((list(m) for m in model.modules() if isinstance(m, (torch.nn.ModuleList, torch.nn.Sequential))), key=len)
    for block in blocks:
        forward = block.forward
        block.forward = lambda *a, _forward=forward, **k: checkpoint(_forward, *a, use_reentrant=False, **k)
    return model


class Method:
    def __init__(self, name, model, inputs, loss, run):
        self.name, self.loss, self.run, self.model, self.best = name, loss, run, model, float("inf")
        self.cpu = float("inf")
        self.optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        self.inputs = inputs
        for _ in range(3):
            self.step()
        with torch.autograd.profiler.profile(use_cpu=True, profile_memory=True) as profile:
            self.step()
        now = peak = 0
        for e in sorted((e for e in profile.kineto_results.events() if e.name() == "[memory]"), key=lambda e: e.start_ns()):
            now += e.nbytes()
            peak = max(peak, now)
        there = [*model.state_dict().values(), *(x for s in self.optimizer.state.values() for x in s.values()), *inputs]
        self.peak = peak + sum({x.untyped_storage()._cdata: x.untyped_storage().nbytes() for x in there}.values())

    def step(self):
        self.loss(self.run).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def time(self):
        start, cpu = time.perf_counter(), time.process_time()
        self.step()
        self.best = min(self.best, time.perf_counter() - start)
        self.cpu = min(self.cpu, time.process_time() - cpu)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=torch_models.LARGE)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    parser.add_argument("--no-inductor", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    original, inputs, loss = torch_models.LARGE[options.model]()
    methods = []

    def add(name, make, change=lambda model: model):
        torch._dynamo.reset()
        model = change(copy.deepcopy(original))
        try:
            method = Method(name, model, inputs, loss, make(model))
        except Exception as error:
            print(f"{name:24} {type(error).__name__}: {str(error).splitlines()[0][:120]}", flush=True)
            return
        methods.append(method)
        print(f"{name:24} {method.peak / 1e6:10.1f} MB", flush=True)
        return method

    add("eager", lambda m: m)
    add("each block", lambda m: m, each_block)
    if hasattr(original, "gradient_checkpointing_enable"):
        add("Hugging Face's", lambda m: (m.gradient_checkpointing_enable(), m)[1])

    def ours(model, budget):
        return torch.compile(model, backend=ckpt_torch.backend, options={"budget": budget, "infeasible": "least", "quiet": True,
                                                                         "optimizer": torch.optim.AdamW(model.parameters())})
    for budget in "100%", "85%", "70%", "55%", "1%":
        method = add(f"ckpt {budget}", lambda m, b=budget: ours(m, b))
        if method:
            print(f"{'':24} {ckpt_torch.report(method.run).predicted_peak_bytes / 1e6:10.1f} MB predicted", flush=True)
    if not options.no_inductor:
        for share in 1.0, 0.5, 0.2, 0.0:
            torch._functorch.config.activation_memory_budget = share
            add(f"torch.compile {share}", lambda m: torch.compile(m))
        torch._functorch.config.activation_memory_budget = 1.0
    for _ in range(options.rounds):
        for method in methods:
            method.time()
    print(f"\n{options.model}: {torch.get_num_threads()} threads, PyTorch {torch.__version__}")
    for method in methods:
        print(f"{method.name:24} {method.peak / 1e6:10.1f} MB {1e3 * method.best:10.1f} ms {1e3 * method.cpu:10.1f} ms of processors", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps([{"method": m.name, "peak_bytes": m.peak, "ns": int(1e9 * m.best), "cpu_ns": int(1e9 * m.cpu)} for m in methods]))


main()

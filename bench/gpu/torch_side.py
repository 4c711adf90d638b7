"""The PyTorch half of bench.py: one network, one optimizer, and several ways to run a step of them.

A program of its own, so that all it holds on the device is gone when ckpt's turn comes, and that no fault of one side ends
the other: torch_side.py '{"kind": ..., "device": ...}' prints a line of JSON after each turn of a variant.

bfloat16 comes in two ways. "autocast": float32 weights, torch.autocast, as most training scripts do. Without that word:
the network in bfloat16 (batch norms in float32), its optimizer over float32 weights, gradients copied to float32 for it
and weights copied back after it; that is what ckpt's bfloat16 is nearest to, and moves fewer bytes than autocast.

Bytes: `beyond` is the most that was allocated during a step over what was allocated before it, when weights, their
copies and the optimizer's state are there and gradients are not. So it holds activations, gradients and workspaces.
"""
import copy
import json
import os
import signal
import statistics
import sys
import time
import types

import torch
import torch._functorch.config as functorch_config

import torch_models

TRIES = 3  # of torch.compile's activation memory budget; each is a compilation
NEAR = 0.9  # of the bytes that are allowed: no further try


class Overtime(Exception):
    pass


def bounded(seconds, call):
    """call(), stopped with Overtime after a time, because a compilation has no limit of its own."""
    def stop(*_):
        raise Overtime("no time")

    if seconds <= 1:
        raise Overtime("no time")
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(min(int(seconds), 10**6))
    try:
        return call()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Variant:
    """One way to run a step. blocks: "all" or "match" of them are recomputed; budget: "match" is searched for."""

    def __init__(self, side, name, compiled=False, autocast=False, blocks=None, budget=None):
        self.side, self.name, self.compiled, self.autocast = side, name, compiled, autocast
        self.blocks, self.budget, self.recomputed = blocks, budget, 0
        self.times, self.error, self.memory, self.loss, self.call, self.tries = [], None, {}, None, None, []
        self.warm_s = None
        self.net = side.net if autocast or side.low is None else side.low

    def step(self):
        side = self.side
        side.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(side.type, dtype=torch.bfloat16, enabled=self.autocast):
            loss = self.call(*side.batch_of(self.net))
        loss.backward()
        if self.net is not side.net:
            side.raise_gradients()
        side.optimizer.step()
        if self.net is not side.net:
            side.lower_weights()
        return loss

    def ready(self, budget=1.0):
        """Makes a new self.call, runs it until allocator, cuDNN and compiler have settled, and measures the bytes of a step."""
        self.call = self.net
        if self.compiled:
            functorch_config.activation_memory_budget = budget
            # A new function: compiled code is cached by function, and the budget is not part of the key.
            names = {"net": self.net}
            exec("def step(*batch):\n    return net(*batch)\n", names)
            self.call = torch.compile(names["step"])
        self.net.blocks.recomputed = self.recomputed
        for _ in range(3 if self.compiled else 2):
            self.loss = self.step().item()
        self.memory = self.side.bytes_of(self)
        return self.memory["beyond"]

    def match_blocks(self):
        """The fewest recomputed blocks, from the first on, with which a step fits the limit."""
        side, low, high = self.side, 0, len(self.net.blocks.list)
        if side.matched is None:
            while low < high:
                self.recomputed = (low + high) // 2
                try:
                    beyond = self.ready()
                except torch.OutOfMemoryError:
                    beyond = float("inf")
                self.tries.append((self.recomputed, beyond))
                low, high = (low, self.recomputed) if beyond <= side.most else (self.recomputed + 1, high)
            side.matched = high
        self.recomputed = side.matched

    def match_budget(self):
        """At most TRIES budgets between 0 (guessed: no bytes) and 1 (as compiled without one): between the neighbours tried,
        where a straight line meets the bytes that are allowed. The best is the one with the most bytes that are allowed,
        or else the one with the least."""
        most, best = self.side.most, None
        whole = self.side.compiled_whole(self.net)
        if whole is not None and whole.memory["beyond"] <= most:
            self.call, self.memory, self.name = whole.call, whole.memory, self.name + " 1"
            return
        low, high = (0.0, 0.0), (1.0, whole.memory["beyond"] if whole is not None else 2 * most)
        while len(self.tries) < TRIES:
            share = (0.98 * most - low[1]) / (high[1] - low[1]) if high[1] > low[1] else 0.5
            budget = low[0] + (high[0] - low[0]) * min(max(share, 0.1), 0.9)
            if len(self.tries) == TRIES - 1 and not best[0][0]:  # nothing has fitted: on along the last two tries
                (b, y), (c, z) = self.tries[-2:]
                budget = max(0.3 * c, c - (z - 0.97 * most) * (b - c) / (y - z)) if y > z else 0.3 * c
            budget = round(budget, 3)
            try:
                beyond = self.ready(budget)
            except (torch.OutOfMemoryError, Overtime):
                if best is None:
                    raise
                break
            self.tries.append((budget, beyond))
            rank = (beyond <= most, beyond if beyond <= most else -beyond)
            if best is None or rank > best[0]:
                best = (rank, budget, self.call, self.memory)
            if NEAR * most <= beyond <= most:
                break
            low, high = ((budget, beyond), high) if beyond <= most else (low, (budget, beyond))
        _, budget, self.call, self.memory = best
        self.name += f" {budget:g}"

    def warm_up(self):
        begun = time.time()
        if self.blocks == "match":
            self.match_blocks()
        elif self.blocks == "all":
            self.recomputed = len(self.net.blocks.list)
        if self.blocks:
            self.name += f" {self.recomputed} of {len(self.net.blocks.list)}"
        if self.budget == "match":
            self.match_budget()
        else:
            self.ready()
        self.warm_s = time.time() - begun

    def step_times(self, steps):
        side, times = self.side, []
        try:
            if self.call is None:
                bounded(side.left(), self.warm_up)
            self.net.blocks.recomputed = self.recomputed
            for _ in range(steps):
                side.wait()
                begun = time.perf_counter()
                self.step()
                side.wait()
                times.append(time.perf_counter() - begun)
        finally:
            side.release()
        return statistics.median(times)

    def turn(self, steps):
        """A round of a variant; an error of one variant must not stop the others."""
        try:
            self.times.append(self.step_times(steps))
        except Exception as error:  # noqa: BLE001
            self.error = "no time" if isinstance(error, Overtime) else f"{type(error).__name__}: {error}".splitlines()[0][:300]

    def row(self):
        return dict(peak_bytes=self.memory.get("peak"), beyond_bytes=self.memory.get("beyond"), tries=self.tries,
                    reserved_bytes=self.memory.get("reserved"), warm_up_s=self.warm_s, loss=self.loss)


class Side:
    """Network and optimizer, and the variants that `job.table` names."""

    def __init__(self, job, left):
        self.type, self.left = "cpu" if job.device == "cpu" else "cuda", left
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
        self.low, self.low_batch, self.matched = None, None, None
        self.most = job.most_bytes or float("inf")
        self.net, self.batch, self.optimizer = torch_models.make(job.kind, job.vars, job.device)
        if job.dtype == "bfloat16":
            self.low = torch_models.lowered(copy.deepcopy(self.net))
            self.low_batch = [x.bfloat16() if x.is_floating_point() else x for x in self.batch]
        count = sum(p.numel() for p in self.net.parameters())
        assert count == job.params, f"PyTorch's network has {count} parameters, ours {job.params}"
        self.variants = [Variant(self, name, **how) for name, how in job.table.items()]

    def compiled_whole(self, net):
        """The variant that compiles `net` and recomputes nothing explicitly, if it has run."""
        return next((v for v in self.variants if v.net is net and v.compiled and not v.blocks and not v.budget and v.memory), None)

    def batch_of(self, net):
        """Images have the type of the network, as from a loader."""
        return self.batch if net is self.net else self.low_batch

    def raise_gradients(self):
        high, low = list(self.net.parameters()), list(self.low.parameters())
        for p, q in zip(high, low):
            p.grad = torch.empty_like(p)
        torch._foreach_copy_([p.grad for p in high], [q.grad for q in low])
        self.low.zero_grad(set_to_none=True)

    @torch.no_grad()
    def lower_weights(self):
        torch._foreach_copy_(list(self.low.parameters()), list(self.net.parameters()))

    def bytes_of(self, variant):
        """Bytes of one more step. On the CPU, which does not count them, what autograd saves: enough to test the searches."""
        if self.type == "cuda":
            self.optimizer.zero_grad(set_to_none=True)
            self.wait()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            variant.step()
            self.wait()
            idle = 0 if self.low is None or variant.net is self.low else sum(2 * p.numel() for p in self.low.parameters())
            most = torch.cuda.max_memory_allocated()
            return dict(peak=most - idle, beyond=most - before, reserved=torch.cuda.max_memory_reserved() - idle)
        saved = {}

        def note(x):
            saved[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
            return x

        with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
            variant.step()
        weights = {p.untyped_storage().data_ptr() for p in variant.net.parameters()}
        return dict(beyond=sum(n for at, n in saved.items() if at not in weights))

    def wait(self):
        if self.type == "cuda":
            torch.cuda.synchronize()

    def release(self):
        """Prepares for the turn of another variant."""
        if self.type == "cuda":
            self.optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()


def main():
    job = types.SimpleNamespace(**json.loads(sys.argv[1]))
    end = time.time() + job.seconds
    out, sys.stdout = sys.stdout, sys.stderr  # what libraries print must not come between the lines
    side = Side(job, lambda: end - time.time())

    def turn(names):
        for name in names:
            v = variants[name]
            if v.error is None and len(v.times) < job.rounds and side.left() > 1:
                v.turn(job.steps)
                print(json.dumps(dict(of=name, name=v.name, times=v.times, error=v.error, row=v.row())), file=out, flush=True)

    # A variant warms up in its first turn, and those before it take another turn with it. Variants thus alternate, and the
    # first ones are measured in full if time is short.
    variants = dict(zip(job.table, side.variants))
    names = list(variants)
    for i in range(len(names)):
        turn(names[i::-1])
    for _ in range(job.rounds):
        turn(names)
    out.flush()
    os._exit(0)  # a compiler's threads may be at work for a variant that had no time


if __name__ == "__main__":
    main()

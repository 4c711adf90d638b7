#!/usr/bin/env python3
"""Writes kineto_*.json: traces that PyTorch's profiler recorded of training on the CPU, as it exported them, and beside
each what this script worked out from the profiler's tree of events (not from the file): kineto_*.expected.json.

    make_kineto.py [FOLDER]     needs PyTorch (written with 2.15); the folder is that of this script if not given
"""
import json
import os
import sys
import warnings

import torch
from torch._C._profiler import _EventType
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.checkpoint import checkpoint

NODE = "autograd::engine::evaluate_function: "


class Two(torch.nn.Module):
    """A first layer that is recomputed in backward, and one that is not."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(64, 128)
        self.second = torch.nn.Linear(128, 10)

    def forward(self, x):
        return self.second(checkpoint(lambda v: torch.relu(self.first(v)), x, use_reentrant=False,
                                      preserve_rng_state=False))


def train(model, optimizer, steps, profiler, held=()):
    x = torch.randn(32, 64)
    for tensor in held:
        tensor.untyped_storage().resize_(0)
    for _ in range(steps):
        with record_function("the model"):
            loss = model(x).sum()
        loss.backward()
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
        if profiler is not None and steps > 1:
            profiler.step()


def children(events):
    for event in events:
        yield event
        yield from children(event.children)


def is_op(event):
    return event.typed[0] == _EventType.TorchOp and not event.name.startswith(("Optimizer.", "ProfilerStep", "the model"))


def around(event, events):
    """The events that contain it, the innermost first. The tree's parents do not help: a record_function begins in
    one call of Python and ends in another."""
    inside = [e for e in events if e is not event and e.typed[0] != _EventType.Allocation
              and e.start_tid == event.start_tid
              and e.start_time_ns <= event.start_time_ns and e.end_time_ns >= event.end_time_ns]
    return sorted(inside, key=lambda e: (-e.start_time_ns, e.end_time_ns))


def layer_of(event, events):
    """The innermost module, or annotation that is no part of the optimizer's, around an event; "": none."""
    for e in around(event, events):
        if e.name.startswith("nn.Module: "):
            return e.name[len("nn.Module: "):]
        if e.name == "the model":
            return e.name
    return ""


def phase_of(event, events):
    names = [event.name] + [e.name for e in around(event, events)]
    if any(n.startswith("Optimizer.") for n in names):
        return "update"
    return "backward" if any(n.startswith(NODE) for n in names) else "forward"


def measure(tree):
    events = list(children(tree))
    blocks, made, freed, freed_before = {}, 0, 0, 0
    memory = sorted((e for e in events if e.typed[0] == _EventType.Allocation), key=lambda e: e.start_time_ns)
    before = live = memory[0].typed[1].total_allocated - memory[0].typed[1].alloc_size
    peak = before
    for event in memory:
        size, address = event.typed[1].alloc_size, event.typed[1].ptr
        live += size
        peak = max(peak, live)
        if size > 0:
            blocks[address] = size
            made += 1
        else:
            freed += 1
            freed_before += address not in blocks
            assert blocks.pop(address, -size) == -size
        assert live == event.typed[1].total_allocated
    ops = [e for e in events if is_op(e)]
    made_in = {}
    for event in sorted(ops, key=lambda e: e.start_time_ns):
        sequence = event.typed[1].sequence_number
        if sequence >= 0 and phase_of(event, events) != "backward" and layer_of(event, events):
            made_in[sequence] = layer_of(event, events)
    outermost = [e for e in ops if not any(is_op(a) for a in around(e, events))]
    runs = []
    for event in sorted(outermost, key=lambda e: e.start_time_ns):
        layer, phase = layer_of(event, events), phase_of(event, events)
        if not layer and phase == "backward":
            layer = made_in.get(event.typed[1].sequence_number, "")
        runs.append([event.name.removeprefix(NODE), layer, phase, event.end_time_ns - event.start_time_ns])
    return {"peak_bytes": peak, "left_bytes": live, "before_bytes": before, "freed_before": freed_before, "allocations": made, "frees": freed,
            "operations": len(ops), "runs": runs}


def record(folder, name, model, optimizer, steps, **options):
    train(model, optimizer, 1, None)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True):  # what it sees made, the next sees freed
        held = [torch.empty(size) for size in (1000, 300, 70)]
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, **options) as profiler:
        train(model, optimizer, steps, profiler, held[:2] if optimizer is not None else ())
    os.chdir(folder)  # the file has its own name in it
    profiler.export_chrome_trace(f"kineto_{name}.json")
    expected = measure(profiler.profiler.kineto_results.experimental_event_tree())
    with open(f"kineto_{name}.expected.json", "w") as file:
        file.write(json.dumps(expected).replace('"runs": [[', '"runs": [\n[').replace("], [", "],\n[") + "\n")


def main():
    folder = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(__file__))
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    mlp = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    record(folder, "training", mlp, torch.optim.SGD(mlp.parameters(), lr=0.1, momentum=0.9, foreach=False), 2)
    record(folder, "modules", Two(), None, 1, with_stack=True)


main()

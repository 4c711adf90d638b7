#!/usr/bin/env python3
"""Makes the execution_*.json files here: PyTorch's ExecutionTrace of small training runs on the CPU, and of each run the
Kineto trace with memory events beside it.

Usage: make_execution.py [FOLDER]    (PyTorch 2.15 made the committed ones)

The traces are as PyTorch wrote them, without the white space. Of larger ones what the importer does not look at is left
out, to stay below 200 kB (shrink).
"""
import json
import os
import sys

import torch
from torch import nn
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, record_function, schedule

folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
torch.set_num_threads(1)


def name_layers(model):
    """Each module's forward becomes a named range of the trace."""
    for name, module in model.named_modules():
        if name == "":
            continue

        def enter(module, _, name=name):
            module._range = record_function(name)
            module._range.__enter__()

        def leave(module, _in, _out):
            module._range.__exit__(None, None, None)

        module.register_forward_pre_hook(enter)
        module.register_forward_hook(leave)
    return model


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.drop = nn.Dropout(0.1)
        self.up = nn.Linear(width, 4 * width)
        self.act = nn.GELU()
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.proj(y.transpose(1, 2).reshape(b, t, c)))
        return x + self.down(self.act(self.up(x)))


class Transformer(nn.Module):
    def __init__(self, rows=50, width=32, heads=2, blocks=1):
        super().__init__()
        self.embed = nn.Embedding(rows, width)
        self.h = nn.Sequential(*[Block(width, heads) for _ in range(blocks)])
        self.head = nn.Linear(width, rows, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(self.h(self.embed(x))).flatten(0, 1)


def mlp():
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(inplace=True), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))


def cnn():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
                         nn.Conv2d(8, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
                         nn.Conv2d(64, 128, 3, padding=1, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


def pictures():
    return torch.randn(8, 3, 16, 16), torch.randint(0, 10, (8,))


def vectors():
    return torch.randn(2048, 32), torch.randint(0, 10, (2048,))


def words():
    return torch.randint(0, 50, (64, 16)), torch.randint(0, 50, (64 * 16,))


def record(name, model, data, optimizer, micro_batches=1, zero="first", mark_steps=True, steps=2, wait=2, stacks=False,
           loss=nn.functional.cross_entropy):
    """`zero`: where gradients are freed. `steps` are in the trace, `wait` before it, so that it finds all state."""
    trace = os.path.join(folder, f"execution_{name}.json")
    kineto = os.path.join(folder, f"execution_{name}.kineto.json")
    observer = ExecutionTraceObserver().register_callback(trace)
    batches = [data() for _ in range(micro_batches)]
    kept = None

    def step():
        nonlocal kept
        if zero == "first":
            optimizer.zero_grad()
        for k, (x, y) in enumerate(batches):
            value = loss(model(x), y)
            if zero == "late" and k == 0:
                optimizer.zero_grad()
            if zero == "keep" and k == 0:
                optimizer.zero_grad(set_to_none=False)
            value.backward()
        optimizer.step()
        kept = value.detach()

    for _ in range(wait):
        step()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True, with_stack=stacks,
                 execution_trace_observer=observer,
                 schedule=schedule(wait=0, warmup=0, active=steps, repeat=1) if mark_steps else None) as p:
        for _ in range(steps):
            step()
            if mark_steps:
                p.step()
    p.export_chrome_trace(kineto)
    for path in (trace, kineto):
        shrink(path)


UNREAD = ("fw_parent", "tid", "fw_tid", "kernel_backend", "kernel_file", "tensor_range")


def shrink(path):
    with open(path) as f:
        file = json.load(f)
    text = json.dumps(file, separators=(",", ":"))
    if len(text) > 190000 and "nodes" in file:  # attributes that the importer does not look at, or that are empty
        for node in file["nodes"]:
            node["attrs"] = [a for a in node["attrs"] if a["name"] not in UNREAD and a["value"] != "" and
                             (a["name"], a["value"]) not in (("seq_id", -1), ("scope", 0))]
            for side in ("inputs", "outputs"):
                del node[side]["types"]
        text = json.dumps(file, separators=(",", ":"))
    if "traceEvents" in file:
        file["traceEvents"] = [e for e in file["traceEvents"] if e.get("cat") != "python_function" or
                               e["name"].startswith("nn.Module: ")]
        text = json.dumps(file, separators=(",", ":"))
    if len(text) > 190000 and "traceEvents" in file:  # what the importer and its test do not look at
        for event in file["traceEvents"]:
            for key in ("Concrete Inputs", "Input type", "Input Strides", "Input Dims", "Ev Idx", "Fwd thread id",
                        "Sequence number", "Total Reserved"):
                event.get("args", {}).pop(key, None)
        file["traceEvents"] = [e for e in file["traceEvents"] if e.get("cat") != "fwdbwd"]
        text = json.dumps(file, separators=(",", ":"))
    with open(path, "w") as f:
        f.write(text + "\n")
    print(f"{len(text):8d} {os.path.basename(path)}")


def main():
    torch.manual_seed(1)
    model = mlp()
    record("mlp", model, vectors, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), steps=2)
    model = mlp()
    record("foreach", model, vectors, torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True), zero="late",
           mark_steps=False, steps=1)
    model = mlp()
    record("batches", model, vectors, torch.optim.SGD(model.parameters(), lr=0.1), micro_batches=2, steps=1, stacks=True)
    model = name_layers(cnn())
    record("cnn", model, pictures, torch.optim.SGD(model.parameters(), lr=0.1, foreach=False), zero="keep", steps=1)
    model = name_layers(Transformer())
    record("transformer", model, words, torch.optim.SGD(model.parameters(), lr=0.1), steps=1)


if __name__ == "__main__":
    main()

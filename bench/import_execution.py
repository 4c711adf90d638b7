#!/usr/bin/env python3
"""From a PyTorch step to a plan and back: records a transformer on the CPU, imports and plans it, wraps what the plan
recomputes in torch.utils.checkpoint, and records again.

Usage: bench/import_execution.py BIN_DIR WORK_DIR [PERCENT]     (default 60)

The last lines are the figures of docs/reference/imports.md. Memory is what PyTorch's profiler saw allocated from the first op of
the step on, over what was there before it (the plan's static block).
"""
import json
import os
import subprocess
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "imports"))
bin_dir, work_dir = sys.argv[1:3]
percent = sys.argv[3] if len(sys.argv) > 3 else "60"
sys.argv[1:] = [work_dir]
import make_execution  # noqa: E402

make_execution.shrink = lambda path: None
decision = {}  # layer -> "keep" or "recompute"


class Block(nn.Module):
    def __init__(self, name, width, heads):
        super().__init__()
        self.name, self.heads = name, heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.act = nn.GELU()
        self.down = nn.Linear(4 * width, width)

    def attention(self, x):
        b, t, c = x.shape
        q, k, v = x.view(b, t, 3, self.heads, c // (3 * self.heads)).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).reshape(b, t, c // 3)

    def chain(self, x, *parts):
        """Layers one after the other: what is recomputed together with the layer that reads it."""
        k = 0
        while k < len(parts):
            end = k
            while end < len(parts) - 1 and decision.get(f"{self.name}.{parts[end][0]}") == "recompute":
                end += 1
            def run(x, layers=parts[k:end + 1]):
                for _, layer in layers:
                    x = layer(x)
                return x
            x = checkpoint(run, x, use_reentrant=False) if end > k else run(x)
            k = end + 1
        return x

    def forward(self, x):
        x = x + self.chain(x, ("norm1", self.norm1), ("qkv", self.qkv), ("attention", self.attention), ("proj", self.proj))
        return x + self.chain(x, ("norm2", self.norm2), ("up", self.up), ("act", self.act), ("down", self.down))


class Transformer(nn.Module):
    def __init__(self, rows=50, width=64, heads=4, blocks=6):
        super().__init__()
        self.embed = nn.Embedding(rows, width)
        self.h = nn.Sequential(*[Block(f"h.{k}", width, heads) for k in range(blocks)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, rows)

    def forward(self, x):
        return self.head(self.norm(self.h(self.embed(x)))).flatten(0, 1)


def record(name):
    torch.manual_seed(0)
    model = make_execution.name_layers(Transformer())
    make_execution.record(name, model, lambda: (torch.randint(0, 50, (32, 64)), torch.randint(0, 50, (32 * 64,))),
                          torch.optim.AdamW(model.parameters(), lr=1e-3))
    with open(os.path.join(work_dir, f"execution_{name}.kineto.json")) as f:
        events = json.load(f)["traceEvents"]
    step = max((e for e in events if e["name"].startswith("ProfilerStep#")), key=lambda e: e["ts"])
    begin = min(e["ts"] for e in events if e.get("cat") == "cpu_op" and e["ts"] >= step["ts"])
    level = peak = 0
    for e in sorted((e for e in events if e["name"] == "[memory]"), key=lambda e: e["ts"]):
        if begin <= e["ts"] <= step["ts"] + step["dur"]:
            level += e["args"]["Bytes"]
            peak = max(peak, level)
    return peak


def main():
    before = record("before")
    def file(kind):
        return os.path.join(work_dir, f"execution_{kind}.json")
    subprocess.run([os.path.join(bin_dir, "ckpt-profile"), "--import", file("before"), "--times", file("before.kineto"),
                    "-o", file("graph")], check=True)
    subprocess.run([os.path.join(bin_dir, "ckpt-plan"), "--budget", percent + "%", "-o", file("plan"), file("graph")],
                   check=True)
    with open(file("plan")) as f:
        plan = json.load(f)
    decision.update(plan["layers"])
    after = record("after")
    static = plan["summary"]["static_bytes"]
    print(f"everything kept:        ckpt {plan['summary']['keep_all']['peak_bytes']}, PyTorch {static + before} bytes")
    print(f"planned at {percent} percent:  ckpt {plan['summary']['peak_bytes']}, PyTorch {static + after} bytes")


if __name__ == "__main__":
    main()

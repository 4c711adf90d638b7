#!/usr/bin/env python3
"""PyTorch steps as graphs: how near their peaks are, and from a step to a plan and back.

    bench/import_execution.py BIN_DIR WORK_DIR peaks [MODEL...]          records networks of bench/torch_models.py and an LSTM, and
                                                                         imports them with and without memory events
    bench/import_execution.py BIN_DIR WORK_DIR transformer|cnn [PERCENT] records a network, plans it at PERCENT (60) of keep-all,
                                                                         wraps what the plan recomputes in
                                                                         torch.utils.checkpoint, and records again

The last lines are figures of docs/figures.md. Memory is what PyTorch's profiler saw allocated from the first op of the step on,
over what was there before it (the plan's static block). On the CPU. `peaks` needs torchvision and transformers.
"""
import contextlib
import json
import os
import subprocess
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE, os.path.join(HERE, "..", "tests", "imports")]
bin_dir, work_dir, what, *rest = sys.argv[1:]
sys.argv[1:] = [work_dir]
import make_execution  # noqa: E402

make_execution.shrink = lambda path: None
decision = {}  # layer -> "keep" or "recompute"


@contextlib.contextmanager
def statistics_once(layers):
    """Recomputed batch norms leave their running statistics as they are."""
    norms = [m for layer in layers for m in layer.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    before = [(m.momentum, m.num_batches_tracked) for m in norms]
    for m in norms:
        m.momentum, m.num_batches_tracked = 0.0, None
    try:
        yield
    finally:
        for m, (momentum, count) in zip(norms, before):
            m.momentum, m.num_batches_tracked = momentum, count


def chain(name, x, parts):
    """Layers one after the other: what is recomputed together with the layer that reads it."""
    k = 0
    while k < len(parts):
        end = k
        while end < len(parts) - 1 and decision.get(f"{name}.{parts[end][0]}") == "recompute":
            end += 1
        layers = [layer for _, layer in parts[k:end + 1]]

        def run(x, layers=layers):
            for layer in layers:
                x = layer(x)
            return x
        modules = [layer for layer in layers if isinstance(layer, nn.Module)]
        x = run(x) if end == k else checkpoint(
            run, x, use_reentrant=False, context_fn=lambda m=modules: (contextlib.nullcontext(), statistics_once(m)))
        k = end + 1
    return x


class Block(nn.Module):
    def __init__(self, name, width, heads):
        super().__init__()
        self.name, self.heads = name, heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.drop1 = nn.Dropout(0.1)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.act = nn.GELU()
        self.down = nn.Linear(4 * width, width)
        self.drop2 = nn.Dropout(0.1)

    def attention(self, x):
        b, t, c = x.shape
        q, k, v = x.view(b, t, 3, self.heads, c // (3 * self.heads)).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).reshape(b, t, c // 3)

    def chain(self, x, *names):
        return chain(self.name, x, [(name, getattr(self, name)) for name in names])

    def forward(self, x):
        x = x + self.chain(x, "norm1", "qkv", "attention", "proj", "drop1")
        return x + self.chain(x, "norm2", "up", "act", "down", "drop2")


class Transformer(nn.Module):
    def __init__(self, rows=50, width=64, heads=4, blocks=6):
        super().__init__()
        self.embed = nn.Embedding(rows, width)
        self.h = nn.Sequential(*[Block(f"h.{k}", width, heads) for k in range(blocks)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, rows)

    def forward(self, x):
        return self.head(self.norm(self.h(self.embed(x)))).flatten(0, 1)


class Cnn(nn.Module):
    def __init__(self, blocks=8, width=32):
        super().__init__()
        self.body = nn.Sequential(*[layer for k in range(blocks) for layer in (
            nn.Conv2d(width if k else 3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.Dropout(0.1), nn.ReLU())])
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        return self.head(chain("body", x, list(self.body.named_children())).mean((2, 3)))


class Lstm(nn.Module):
    def __init__(self, rows=1000, width=256, layers=2):
        super().__init__()
        self.embed = nn.Embedding(rows, width)
        self.lstm = nn.LSTM(width, width, layers, dropout=0.1, batch_first=True)
        self.head = nn.Linear(width, rows)

    def forward(self, x):
        return self.head(self.lstm(self.embed(x))[0]).flatten(0, 1)


def words(rows, batch, length):
    return lambda: (torch.randint(0, rows, (batch, length)), torch.randint(0, rows, (batch * length,)))


NETWORKS = {"transformer": (Transformer, words(50, 32, 64)), "lstm": (Lstm, words(1000, 16, 64)),
            "cnn": (Cnn, lambda: (torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))))}


class WithLoss(nn.Module):
    def __init__(self, model, loss):
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, _):
        return self.loss(self.model)


def file(kind):
    return os.path.join(work_dir, f"execution_{kind}.json")


def record(kind, network):
    """The files of two steps; the model after them and the peak of the second step."""
    torch.manual_seed(0)
    loss = nn.functional.cross_entropy
    if network in NETWORKS:
        make, data = NETWORKS[network]
        model = make()
    else:
        import torch_models
        model, _, of_model = {**torch_models.SMALL, **torch_models.LARGE}[network]()
        model, data, loss = WithLoss(model.train(), of_model), lambda: (torch.zeros(1), None), lambda value, _: value
    make_execution.record(kind, make_execution.name_layers(model), data, torch.optim.AdamW(model.parameters(), lr=1e-3), loss=loss)
    with open(file(f"{kind}.kineto")) as f:
        events = json.load(f)["traceEvents"]
    step = max((e for e in events if e["name"].startswith("ProfilerStep#")), key=lambda e: e["ts"])
    begin = min(e["ts"] for e in events if e.get("cat") == "cpu_op" and e["ts"] >= step["ts"])
    level = peak = 0
    for e in sorted((e for e in events if e["name"] == "[memory]"), key=lambda e: e["ts"]):
        if begin <= e["ts"] <= step["ts"] + step["dur"]:
            level += e["args"]["Bytes"]
            peak = max(peak, level)
    return model, peak


def plan(kind, times, percent):
    subprocess.run([os.path.join(bin_dir, "ckpt-profile"), "--import", file(kind), "--times", file(times), "-o", file("graph")],
                   check=True)
    subprocess.run([os.path.join(bin_dir, "ckpt-plan"), "--budget", percent + "%", "-o", file("plan"), file("graph")], check=True,
                   stdout=subprocess.DEVNULL)
    with open(file("plan")) as f:
        return json.load(f)


def peaks(networks):
    lines = ["| network | PyTorch had | ckpt says | without memory events |", "|---|---|---|---|"]
    for network in networks:
        _, peak = record(network, network)
        with open(file(f"{network}.kineto")) as f:
            kineto = json.load(f)
        kineto["traceEvents"] = [e for e in kineto["traceEvents"] if e["name"] != "[memory]"]
        with open(file("without"), "w") as f:
            json.dump(kineto, f)
        row = []
        for times in f"{network}.kineto", "without":
            summary = plan(network, times, "100")["summary"]
            had = summary["static_bytes"] + peak
            said = summary["keep_all"]["peak_bytes"]
            row.append(f"{said / 1e6:.2f} MB ({said / had - 1:+.2%})")
        lines.append(f"| {network} | {had / 1e6:.2f} MB | {' | '.join(row)} |")
    print("\n".join(lines))


def apply(network, percent="60"):
    kept, before = record("before", network)
    answer = plan("before", "before.kineto", percent)
    decision.update(answer["layers"])
    wrapped, after = record("after", network)
    static = answer["summary"]["static_bytes"]
    wanted, found = kept.state_dict(), wrapped.state_dict()
    same = all(torch.equal(wanted[k], found[k]) for k in wanted)
    print("recomputed:", " ".join(k for k, v in decision.items() if v == "recompute"))
    print(f"everything kept:        ckpt {answer['summary']['keep_all']['peak_bytes']}, PyTorch {static + before} bytes")
    print(f"planned at {percent} percent:  ckpt {answer['summary']['peak_bytes']}, PyTorch {static + after} bytes")
    print(f"parameters and buffers after the last step: {'the same bits' if same else 'OTHERS'}")


if __name__ == "__main__":
    peaks(rest or ["resnet50", "gpt2", "mobilenet_v3", "densenet121", "unet", "lstm"]) if what == "peaks" else apply(what, *rest)

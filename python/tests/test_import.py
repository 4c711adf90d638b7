"""The code of docs/how-to/plan-a-pytorch-step.md: what it records can be planned, and what it recomputes keeps its bits."""

import contextlib
import copy
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "plan-a-pytorch-step.md"
PROGRAMS = Path(os.environ.get("CKPT_LIBRARY", "none")).parent.parent / "bin"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.S | re.M)


def block(defines):
    found = [code for code in BLOCKS if f"def {defines}(" in code]
    assert len(found) == 1
    return found[0]


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Dropout(0.3),
                         nn.Conv2d(32, 64, 3, padding=1, stride=2), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 64, 10))


def run(program, *arguments):
    subprocess.run([PROGRAMS / program, *arguments], check=True, capture_output=True)


def recorded_peak(events):
    """What was allocated in the step over what was there before its first op."""
    step = next(e for e in events if e["name"].startswith("ProfilerStep#"))
    begin = min(e["ts"] for e in events if e.get("cat") == "cpu_op" and e["ts"] >= step["ts"])
    level = peak = 0
    for e in sorted((e for e in events if e["name"] == "[memory]"), key=lambda e: e["ts"]):
        if begin <= e["ts"] <= step["ts"] + step["dur"]:
            level += e["args"]["Bytes"]
            peak = max(peak, level)
    return peak


@pytest.mark.skipif(not (PROGRAMS / "ckpt-profile").exists(), reason="no ckpt-profile beside CKPT_LIBRARY")
def test_a_recorded_step_is_planned(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images, labels = torch.randn(16, 3, 16, 16), torch.randint(0, 10, (16,))

    def train_step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    exec(block("name_layers"), {"model": model, "train_step": train_step})
    run("ckpt-profile", "--import", "et.json", "--times", "times.json", "-o", "step.json")
    run("ckpt-plan", "--strategy", "keep-all", "-o", "plan.json", "step.json")
    graph, summary = json.loads(Path("step.json").read_text()), json.loads(Path("plan.json").read_text())["summary"]
    peak = recorded_peak(json.loads(Path("times.json").read_text())["traceEvents"])
    assert abs(summary["peak_bytes"] - summary["static_bytes"] - peak) <= 0.01 * peak
    forward = [op for op in graph["ops"] if op["phase"] == "forward"]
    assert {"0", "1", "2", "3", "4", "5", "6", "8"} <= {op["layer"] for op in forward}  # 7 only makes a view
    once = [op["name"].split("#")[0] for op in forward if not op.get("recompute", True)]
    assert sorted(once) == ["aten::add_", "aten::add_", "aten::dropout"]  # num_batches_tracked, and dropout's state
    states = [op for op in graph["ops"] if op["name"].endswith("/state")]
    size = {b["name"]: b["bytes"] for b in graph["buffers"]}
    assert [size[op["writes"][0]] for op in states] == [torch.get_rng_state().nbytes]


def test_recomputed_dropout_and_batch_norm_keep_their_bits():
    plain = network()[:4]
    recomputed = copy.deepcopy(plain)
    images = torch.randn(4, 3, 16, 16)
    found = []
    for layers, wrapped in (plain, False), (recomputed, True):
        torch.manual_seed(1)
        x = images.clone().requires_grad_()
        names = {"contextlib": contextlib, "nn": nn, "checkpoint": checkpoint, "layers": layers, "x": x}
        if wrapped:
            exec(block("statistics_once"), names)
        else:
            names["x"] = layers(x)
        names["x"].square().sum().backward()
        found.append([x.grad, torch.get_rng_state(), *(p.grad for p in layers.parameters()), *layers.state_dict().values()])
    assert len(found[0]) == len(found[1]) and all(torch.equal(a, b) for a, b in zip(*found))
    assert plain[1].num_batches_tracked == 1 and plain[1].momentum == recomputed[1].momentum

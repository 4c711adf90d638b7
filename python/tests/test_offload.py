"""Buffers that a plan moves to the host and back. On the CPU a copy frees nothing, but must come back as it went."""

import copy
import json
import subprocess

import pytest
import torch
from steps import DEVICE, compiled, differences, train
from torch import nn

import ckpt_torch

X = torch.randn(64, 32, generator=torch.Generator().manual_seed(5))


def deep():
    torch.manual_seed(0)
    return nn.Sequential(*[m for _ in range(8) for m in (nn.Linear(32, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Dropout(0.1))]).to(DEVICE)


@pytest.mark.parametrize("link", ["1000GB/s", "1GB/s"])
def test_as_eager(link):
    torch._dynamo.reset()
    model, x = deep(), X.to(DEVICE)
    eager = copy.deepcopy(model)
    wanted = train(eager, torch.compile(eager, backend="eager"), (x,))
    moved = 0
    for budget in "90%", "75%", "1%":
        torch._dynamo.reset()
        mine = copy.deepcopy(model)
        run = compiled(mine, budget, link=link, measure=DEVICE.type == "cuda")
        assert not differences(wanted, train(mine, run, (x,)))
        moved += ckpt_torch.report(run).offload_bytes
    assert moved > 0


@pytest.mark.skipif(DEVICE.type == "cuda", reason="copies free memory there")
def test_on_the_cpu_it_is_refused_where_peaks_are_measured():
    torch._dynamo.reset()
    with pytest.raises(ckpt_torch.Unsupported, match="a copy frees nothing"):
        compiled(deep(), "75%", link="measured")(X)


@pytest.mark.skipif(DEVICE.type != "cuda", reason="a link is measured on a GPU")
def test_the_link_is_measured():
    torch._dynamo.reset()
    model = deep()
    run = compiled(model, "75%", link="measured")
    for _ in range(2):
        run(X.to(DEVICE)).sum().backward()
    report = ckpt_torch.report(run)
    assert report.measured_peak_bytes <= 1.01 * report.predicted_peak_bytes


def test_a_report_has_the_copies_too(tmp_path):
    torch._dynamo.reset()
    run = compiled(deep(), "75%", link="1000GB/s", measure=DEVICE.type == "cuda")
    run(X.to(DEVICE))
    report = ckpt_torch.report(run)
    report.save(tmp_path)
    events = json.loads((tmp_path / "predicted.json").read_text())["events"]
    assert report.offload_bytes and {"compute", "d2h", "h2d"} == {e.get("stream", "compute") for e in events}
    done = subprocess.run(["ckpt-plan", "--check", tmp_path / "plan.json", tmp_path / "graph.json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

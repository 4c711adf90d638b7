"""Broken graphs, logging, and shapes that change: planned, or refused in words."""

import logging

import pytest
import torch
from steps import compiled
from torch import nn

import ckpt_torch

X = torch.randn(64, 32, generator=torch.Generator().manual_seed(5))
logger = logging.getLogger("a model's")


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


class Breaks(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm = nn.Linear(32, 32), nn.BatchNorm1d(32)

    def forward(self, x):
        y = self.norm(self.a(x))
        torch._dynamo.graph_break()
        y = self.a(y).relu()
        if y.sum() > 0:
            y = y * 2
        return self.a(y), y


def test_each_break_is_named_when_backward_is_refused():
    model = Breaks()
    run = compiled(model, "80%")
    for _ in range(2):
        out = run(X)
        assert torch.equal(out[0].detach(), model(X)[0].detach())
        with pytest.raises(ckpt_torch.Unsupported, match=r"breaks it 2 times: .*test_breaks.py:29: .*; .*test_breaks.py:31: "):
            (out[0].sum() + out[1].sum()).backward()
    assert model.a.weight.grad is None


def test_a_second_backward_is_refused_in_the_same_words():
    out = compiled(Breaks(), "80%")(X)
    for part in out:
        with pytest.raises(ckpt_torch.Unsupported, match="breaks it 2 times"):
            part.sum().backward()


def test_breaks_are_refused_at_once_where_inputs_are_given():
    with pytest.raises(ckpt_torch.Unsupported, match="breaks it 2 times"):
        ckpt_torch.auto_checkpoint(Breaks(), "80%", example_inputs=(X,), quiet=True)


def test_breaks_do_not_matter_without_gradients():
    model = Breaks().eval()
    with torch.no_grad():
        assert torch.equal(compiled(model, "80%")(X)[0], model(X)[0])


def test_another_model_is_planned_after_a_broken_one():
    options = {"budget": "80%", "infeasible": "least", "quiet": True}
    broken = torch.compile(Breaks(), backend="ckpt", options=options)
    with pytest.raises(ckpt_torch.Unsupported):
        broken(X)[0].sum().backward()
    run = torch.compile(nn.Sequential(nn.Linear(32, 32), nn.GELU()), backend="ckpt", options=options)
    run(X).sum().backward()
    assert ckpt_torch.report(run).measured_peak_bytes


def test_a_logged_line_breaks_nothing_and_is_lost_only_by_old_versions():
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger.addHandler(handler)

    class Logs(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(32, 32)

        def forward(self, x):
            y = self.a(x)
            logger.warning("half way")
            return self.a(y)
    run = compiled(Logs(), "100%")
    run(X).sum().backward()
    logger.removeHandler(handler)
    assert ckpt_torch.report(run).measured_peak_bytes and lines == ["half way"] * ckpt_torch._backend.LOGS_AFTERWARDS


@pytest.mark.parametrize("how", ["automatic", "dynamic", "marked"])
def test_every_shape_has_a_plan_and_each_is_told(how, capsys):
    model = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 32))
    run = torch.compile(model, backend="ckpt", dynamic=True if how == "dynamic" else None, options={"budget": "90%", "infeasible": "least"})
    peaks = []
    for rows in 64, 32, 64, 48:
        x = X[:rows].clone()
        if how == "marked":
            torch._dynamo.mark_dynamic(x, 0)
        torch.manual_seed(3)
        out = run(x)
        torch.manual_seed(3)
        assert torch.equal(out, model(x))
        out.sum().backward()
        model.zero_grad()
        peaks.append(ckpt_torch.report(run).predicted_peak_bytes)
    told = capsys.readouterr().out
    assert "another plan, for inputs 32×32: peak" in told and "another plan, for inputs 48×32: peak" in told
    assert len({peaks[0], peaks[1], peaks[3]}) == 3


def test_gpt2_of_transformers_is_one_graph():
    transformers = pytest.importorskip("transformers")
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=1, n_embd=32, n_head=2, vocab_size=50, n_positions=16))
    model.loss_type = None  # what makes transformers log a warning in forward
    run = compiled(model, "100%")
    words = torch.randint(0, 50, (2, 16))
    run(input_ids=words, labels=words).loss.backward()
    assert ckpt_torch.report(run).measured_peak_bytes

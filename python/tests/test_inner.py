"""Plans whose halves Inductor compiles: the budget holds, losses are Inductor's within rounding, masks are eager's."""

import copy
import os
import shutil

import pytest
import torch
from steps import LEAST
from torch import nn
from torch.nn import functional as F

import ckpt_torch

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor compiles for the CPU by g++")
RANDOM_OF_EAGER = {"fallback_random": True}  # Inductor's own generator draws other masks
STEPS = 6


class Decoder(nn.Module):
    def __init__(self, width=32, words=50, blocks=1):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.Sequential(*[nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.1, batch_first=True, norm_first=True,
                                                                 activation="gelu") for _ in range(blocks)])
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, x):
        return F.cross_entropy(self.out(self.norm(self.blocks(self.words(x)))).flatten(0, 1), x.flatten())


def train(model, run, x):
    """Losses of a few steps, and the state of the generator after them."""
    torch.manual_seed(7)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(STEPS):
        loss = run(x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        del loss
    return torch.tensor(losses), torch.get_rng_state()


FEW = os.environ.get("CKPT_TEST_ROUNDS") == "few"  # compiling takes half a minute and more


def test_budgets_hold_and_losses_are_inductors(capsys):
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, x = Decoder(), torch.randint(0, 50, (4, 24))
    reference = copy.deepcopy(model)
    wanted, generator = train(reference, torch.compile(reference, options=RANDOM_OF_EAGER), x)
    for budget in ["70%"] if FEW else ["100%", "70%", LEAST]:
        torch._dynamo.reset()
        mine = copy.deepcopy(model)
        run = torch.compile(mine, backend="ckpt", options={"budget": budget, "infeasible": "least", "inner": "inductor", "quiet": True})
        losses, mine_generator = train(mine, run, x)
        report, learned = ckpt_torch.report(run), ckpt_torch._backend.newest(mine.parameters()).known
        with capsys.disabled():
            print(f"\n{budget}: plans over the budget {len(learned.over)}, measured beyond prediction {learned.reserve}, measured "
                  f"{report.measured_peak_bytes} of {report.budget_bytes}, predicted {report.predicted_peak_bytes}, overhead "
                  f"{report.overhead:.1%}, losses off {(losses - wanted).abs().max():.1e}, compiled in {report.seconds['compiling']:.0f} s")
        assert torch.allclose(losses, wanted, rtol=1e-5, atol=1e-6)
        assert torch.equal(mine_generator, generator)
        assert report.measured_peak_bytes <= report.budget_bytes
        assert report.recomputed or budget == "100%"


def planned(model, x, **options):
    torch._dynamo.reset()
    run = torch.compile(model, backend="ckpt", options={"infeasible": "least", "quiet": True, **options})
    for _ in range(2):
        run(x).backward()
        model.zero_grad()
    return ckpt_torch.report(run)


def test_what_stays_inside_of_kernels_takes_no_memory(monkeypatch):
    torch.manual_seed(0)
    model, x = Decoder(width=64, words=2000), torch.randint(0, 2000, (8, 64))
    known = [planned(model, x, budget=budget, inner="inductor") for budget in ("100%", "80%")]
    for report in known:
        assert abs(report.measured_peak_bytes / report.predicted_peak_bytes - 1) < 0.02
    monkeypatch.setattr(ckpt_torch._inductor, "_schedule", lambda half, backward: (set(), set()))
    unknown = planned(model, x, budget="100%", inner="inductor")
    assert unknown.keep_all_peak_bytes > 1.02 * known[0].keep_all_peak_bytes


def test_convolutions_and_batch_norm():
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = nn.Sequential(*[layer for i in range(4) for layer in (nn.Conv2d(8 if i else 3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())],
                          nn.Flatten(), nn.Linear(8 * 32 * 32, 10), nn.LogSoftmax(1))
    x, reference = torch.randn(4, 3, 32, 32), copy.deepcopy(model)
    losses = []
    for net, run in ((reference, torch.compile(reference)), (model, torch.compile(model, backend="ckpt", options={
            "budget": "80%", "infeasible": "least", "inner": "inductor", "quiet": True}))):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(STEPS):
            loss = run(x)[:, 0].mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            del loss
    assert torch.allclose(torch.tensor(losses[:STEPS]), torch.tensor(losses[STEPS:]), rtol=1e-4)
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(model.buffers(), reference.buffers()))
    report = ckpt_torch.report(model)
    assert report.recomputed and report.measured_peak_bytes <= report.budget_bytes


class Draws(nn.Module):
    """Random ops that are recomputed beyond dropout."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(6))

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            y = layer(x).tanh()
            x = F.dropout(y, 0.3) if i % 2 else y * torch.rand_like(y) + torch.bernoulli(y.sigmoid())
        return x.square().mean()


@pytest.mark.parametrize("inner", ["eager", "inductor"])
def test_recomputed_masks_are_those_of_the_first_run(inner):
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, x = Draws(), torch.randn(64, 32)
    eager = copy.deepcopy(model)
    wanted, generator = train(eager, eager, x)
    run = torch.compile(model, backend="ckpt", options={"budget": LEAST, "infeasible": "least", "inner": inner, "quiet": True})
    losses, mine = train(model, run, x)
    steps = ckpt_torch._backend.newest(model.parameters())
    recomputed = [steps.graph["ops"][i]["op"] for action, i, again, _ in steps.plan.steps if action == ckpt_torch._lib.RUN and again]
    assert any("dropout" in op or "mask" in op or "rand" in op for op in recomputed), "nothing random was recomputed"
    assert torch.allclose(losses, wanted, rtol=1e-5, atol=1e-6) and torch.equal(mine, generator)
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(model.parameters(), eager.parameters()))


def test_a_budget_that_does_not_suffice_is_refused():
    torch._dynamo.reset()
    with pytest.raises(ckpt_torch.Infeasible, match="suffice"):
        torch.compile(Decoder(), backend="ckpt", options={"budget": "1kB", "inner": "inductor"})(torch.zeros(4, 24, dtype=torch.long))


def test_other_compilers_are_refused():
    torch._dynamo.reset()
    with pytest.raises(ValueError, match="inner is eager or inductor, not nvfuser"):
        torch.compile(nn.Linear(2, 2), backend="ckpt", options={"budget": "1GB", "inner": "nvfuser"})(torch.ones(2, 2))


def steps_that_take_more(monkeypatch, peak_of):
    """Trains under 80 %; peak_of(measured peak, budget), both of a whole step, is taken for what was measured. Yields the report of
    each step."""
    measured = ckpt_torch._measure.StepMeter.run

    def run_more(meter, part, args, base):
        out = measured(meter, part, args, base)
        if base:
            step = ckpt_torch._backend.steps[-1]()
            static = sum(nbytes for name, nbytes in step.static if name != "learned")
            meter.peak = peak_of(meter.peak + static, step.plan.summary["budget_bytes"]) - static
        return out
    monkeypatch.setattr(ckpt_torch._measure.StepMeter, "run", run_more)
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = nn.Sequential(*[layer for _ in range(24) for layer in (nn.Linear(32, 32), nn.GELU())])
    run = torch.compile(model, backend="ckpt", options={"budget": "80%", "quiet": True})
    while True:
        model.zero_grad()
        run(torch.randn(64, 32)).sum().backward()
        yield ckpt_torch.report(run)


def test_what_exceeds_its_budget_is_planned_anew(monkeypatch):
    steps = steps_that_take_more(monkeypatch, lambda peak, budget: peak + 20_000)
    first, second, third = (next(steps) for _ in range(3))
    assert first.measured_peak_bytes > first.budget_bytes == second.budget_bytes
    assert second.measured_peak_bytes <= second.budget_bytes and second.overhead > first.overhead
    assert third.measured_peak_bytes == second.measured_peak_bytes, "a plan that holds was planned anew"


def test_a_budget_that_never_holds_is_refused(monkeypatch):
    peaks = []
    with pytest.raises(ckpt_torch.Infeasible, match="9 plans within .* took more when they were measured") as refused:
        for report in steps_that_take_more(monkeypatch, lambda peak, budget: budget + 10 - len(peaks)):
            peaks.append(report.measured_peak_bytes)
    assert len(peaks) == 9 and refused.value.least_budget_bytes == min(peaks)

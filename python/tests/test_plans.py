"""Budgets, predictions, reports and refusals."""

import copy
import gc
import json
import re
import subprocess
import sys
import weakref
from xml.etree import ElementTree

import pytest
import torch
from steps import DEVICE, LEAST, compiled
from torch import nn

import ckpt_torch
from ckpt_torch import _cache, _trace

X = torch.randn(64, 32, generator=torch.Generator().manual_seed(5))


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def deep(blocks=8, width=32):
    return nn.Sequential(*[layer for _ in range(blocks) for layer in (nn.Linear(width, width), nn.GELU(), nn.Dropout(0.1))])


def peak_of(step):
    """The most bytes that PyTorch's own counters see beyond what was there, in a whole step."""
    if DEVICE.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        return torch.cuda.max_memory_allocated() - before
    with torch.autograd.profiler.profile(use_cpu=True, profile_memory=True) as profile:
        step()
    now = peak = 0
    for event in sorted((e for e in profile.kineto_results.events() if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return peak


@pytest.mark.parametrize("budget", ["100%", "80%", LEAST])
def test_predicted_is_measured(budget):
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16),
                          nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Flatten(), nn.Linear(16 * 28 * 28, 4)).to(DEVICE)
    image = torch.randn(8, 3, 32, 32, device=DEVICE)
    run = compiled(model, budget)

    def step():
        run(image).sum().backward()
        model.zero_grad()
    for _ in range(3):  # measured, planned anew where outputs are not kept
        step()
    report = ckpt_torch.report(run)
    static = sum(x.numel() * x.element_size() for x in [image, *model.state_dict().values()])
    assert report.static_bytes == static
    assert abs(report.measured_peak_bytes / report.predicted_peak_bytes - 1) < 0.01
    assert abs((static + peak_of(step)) / report.predicted_peak_bytes - 1) < 0.01
    assert report.predicted_peak_bytes <= report.budget_bytes or budget == "100%"


def test_less_budget_takes_less_and_more_time():
    model, reports = deep(), []
    for budget in "100%", "80%", "70%":
        torch._dynamo.reset()
        run = compiled(model, budget)
        run(X).sum().backward()
        reports.append(ckpt_torch.report(run))
    peaks = [r.measured_peak_bytes for r in reports]
    assert peaks[0] > peaks[1] > peaks[2]
    assert reports[0].overhead == 0 and not reports[0].recomputed
    assert reports[2].overhead > 0 and set(reports[2].recomputed) <= {name for name, _ in model.named_modules()}
    assert "recomputed" in str(reports[2])


def test_infeasible_names_the_least_budget():
    model = deep()
    with pytest.raises(ckpt_torch.Infeasible) as refused:
        torch.compile(model, backend="ckpt", options={"budget": "10kB", "quiet": True})(X)
    least = refused.value.least_budget_bytes
    assert 10_000 < refused.value.no_schedule_below_bytes <= least and str(least) in str(refused.value)
    torch._dynamo.reset()
    run = compiled(model, f"{least}B")
    run(X).sum().backward()
    assert ckpt_torch.report(run).measured_peak_bytes <= least
    torch._dynamo.reset()
    model.zero_grad()
    with pytest.warns(UserWarning, match=str(least)):
        compiled(model, "10kB")(X)


@pytest.mark.parametrize("optimizer, tensors", [(lambda p: torch.optim.AdamW(p), 2), (lambda p: torch.optim.SGD(p, momentum=0.9), 1),
                                                (lambda p: torch.optim.SGD(p), 0), (lambda p: torch.optim.Adagrad(p), 1)])
def test_optimizer_state_counts(optimizer, tensors):
    model = deep(2)
    opt = optimizer(model.parameters())
    run = compiled(model, "100%", optimizer=opt)
    run(X).sum().backward()
    before = ckpt_torch.report(run).static.get("optimizer", 0)
    opt.step()
    state = sum(x.numel() * x.element_size() for values in opt.state.values() for x in values.values() if isinstance(x, torch.Tensor))
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    assert before == state and tensors * weights <= state < tensors * weights + 1000


def test_auto_checkpoint_is_the_same():
    model = deep()
    opt = torch.optim.AdamW(model.parameters())
    run = ckpt_torch.auto_checkpoint(model, budget="80%", optimizer=opt, example_inputs=(X,), quiet=True)
    report = ckpt_torch.report(run)
    assert report.static["optimizer"] > 0 and report.predicted_peak_bytes <= 0.8 * report.keep_all_peak_bytes
    assert report.measured_peak_bytes is None
    run(X).sum().backward()
    assert ckpt_torch.report(run).measured_peak_bytes


def test_saved_files_are_for_the_programs(tmp_path):
    run = compiled(deep(), "80%")
    run(X).sum().backward()
    folder = ckpt_torch.report(run).save(tmp_path / "plan")
    kinds = {f.name: json.loads(f.read_text())["format"] for f in folder.glob("*.json")}
    assert kinds == {"graph.json": "ckpt-graph/1", "plan.json": "ckpt-plan/1", "predicted.json": "ckpt-trace/1"}
    layers = json.loads((folder / "plan.json").read_text())["layers"]
    assert layers["0"] in ("keep", "recompute")


def test_the_picture_shows_the_predicted_peak(tmp_path):
    run = compiled(deep(), "80%")
    run(X).sum().backward()
    report = ckpt_torch.report(run)
    picture = report._repr_svg_()
    assert (report.save(tmp_path) / "memory.svg").read_text(encoding="utf-8") == picture
    svg = ElementTree.fromstring(picture)
    assert svg.tag == "{http://www.w3.org/2000/svg}svg"
    words = [text.text or "" for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    number, unit = next(filter(None, (re.fullmatch(r"peak ([\d.]+) (kB|MB)", word) for word in words))).groups()
    assert abs(float(number) * {"kB": 1e3, "MB": 1e6}[unit] / report.predicted_peak_bytes - 1) < 0.005
    assert any("recomputed" in word for word in words) and report.recomputed


def test_shapes_that_depend_on_data_are_refused():
    class Depends(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(32, 32)

        def forward(self, x):
            return self.a(x)[x[:, 0] > 0]
    with pytest.raises(Exception):
        torch.compile(Depends(), backend="ckpt", fullgraph=True, options={"budget": "1GB", "quiet": True})(X)


def test_an_unknown_option_is_refused():
    with pytest.raises(ValueError, match="no option bugdet"):
        torch.compile(deep(), backend="ckpt", options={"bugdet": "1GB"})(X)


def test_a_model_without_a_plan_has_no_report():
    with pytest.raises(LookupError):
        ckpt_torch.report(deep())


class Gate(nn.Module):
    """Backward writes over what forward kept; with `views`, by another shape of it."""

    def __init__(self, views):
        super().__init__()
        self.a, self.b, self.views = nn.Linear(32, 32), nn.Linear(32, 32), views

    def forward(self, x):
        a, b = self.a(x), self.b(x)
        return a.view(-1) * b.view(-1) if self.views else a * b


@pytest.mark.parametrize("views", [False, True])
def test_backward_twice_is_right_or_refused(views):
    refused = []
    for inplace in True, False:
        torch._dynamo.reset()
        model = Gate(views)
        for _ in range(2):  # the first one is measured
            model.zero_grad()
            out = compiled(model, "100%", inplace=inplace)(X).sum()
            try:
                out.backward(retain_graph=True)
            except ckpt_torch.Unsupported as error:
                assert "'inplace': False" in str(error)
                refused.append(inplace)
                break
            first = [p.grad.clone() for p in model.parameters()]
            model.zero_grad()
            out.backward()
            assert all(torch.equal(a, p.grad) for a, p in zip(first, model.parameters()))
    assert refused == [True]


def run_python(*arguments):
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, check=False)


def test_an_unchanged_script(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import sys, torch\n"
                      "model = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(8)])\n"
                      "if len(sys.argv) > 1: model = torch.compile(model)\n"
                      "model(torch.randn(64, 32)).sum().backward()\n")
    done = run_python("-m", "ckpt_torch", "--budget", "90%", script, "compiled")
    assert done.returncode == 0 and "ckpt: peak" in done.stdout, done.stderr
    done = run_python("-m", "ckpt_torch", "--budget", "90%", script)
    assert done.returncode == 1 and "compiles nothing" in done.stderr


class WithLoss(nn.Module):
    """Gives its logits beside its loss, as Hugging Face's models do."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(32, 32), nn.Linear(32, 2000)

    def forward(self, x, labels):
        logits = self.b(self.a(x).relu())
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def test_an_output_that_gets_no_gradient_takes_none():
    labels, peaks = torch.arange(64), []
    original = WithLoss()
    wanted = copy.deepcopy(original)
    torch.compile(wanted, backend="eager")(X, labels)["loss"].backward()
    for unused in False, True:
        model = copy.deepcopy(original)
        run = compiled(model, "100%", unused=unused)
        for _ in range(3):
            model.zero_grad()
            out = run(X, labels)
            out["loss"].backward()
        assert all(torch.equal(p.grad, q.grad) for p, q in zip(wanted.parameters(), model.parameters()))
        peaks.append(ckpt_torch.report(run).measured_peak_bytes)
        assert out["logits"].requires_grad
        if unused:
            with pytest.raises(ckpt_torch.Unsupported, match="unused"):
                model.zero_grad()
                out = run(X, labels)
                (out["logits"].sum() + out["loss"]).backward()
    assert peaks[1] <= peaks[0] - out["logits"].nbytes


def test_a_model_is_traced_once(monkeypatch):
    monkeypatch.setattr(_cache, "load", lambda key: None)
    traced, trace = [], _trace.aot_autograd.aot_export_joint_with_descriptors
    monkeypatch.setattr(_trace.aot_autograd, "aot_export_joint_with_descriptors", lambda *a, **k: traced.append(a) or trace(*a, **k))
    model = WithLoss()
    run = compiled(model, "100%")
    for number in range(6):  # with and without gradients that are there already
        run(X, torch.arange(64))["loss"].backward()
        if number % 2:
            model.zero_grad()
    step = ckpt_torch.report(run)._step
    assert len(traced) == 1 and step.known.unused == (1,) and step.settled


def test_a_trace_that_no_plan_begins_from_is_given_up(monkeypatch):
    traces, trace = [], _trace.Trace
    monkeypatch.setattr(ckpt_torch._backend, "Trace", lambda module: traces.append(weakref.ref(made := trace(module))) or made)
    model = deep()
    run = compiled(model, "100%")
    for _ in range(5):
        with torch.no_grad():
            run(X)
        model.zero_grad()
        run(X).sum().backward()
    gc.collect()
    assert len(traces) == 2 and not any(t() for t in traces)


class Joined(WithLoss):
    """The gradients of its outputs meet in something else than a sum."""

    def forward(self, x, labels):
        halves = self.b(self.a(x).relu()).chunk(2, -1)
        return {"loss": halves[0].square().mean(), "logits": halves[1].exp()}


@pytest.mark.parametrize("kind, times", [(WithLoss, 1), (Joined, 2)])
def test_what_is_left_without_a_tangent_is_what_autograd_traces_without_it(kind, times, monkeypatch):
    monkeypatch.setattr(_cache, "load", lambda key: None)
    graphs, trace, labels = [], _trace.aot_autograd.aot_export_joint_with_descriptors, torch.arange(64)
    monkeypatch.setattr(_trace.aot_autograd, "aot_export_joint_with_descriptors", lambda *a, **k: graphs.append(a) or trace(*a, **k))
    found = []
    for again in False, True:
        torch._dynamo.reset()
        if again:
            monkeypatch.setattr(_trace, "without", lambda *arguments: False)
        torch.manual_seed(0)
        model = kind()
        run = compiled(model, "100%")
        for _ in range(2):
            model.zero_grad()
            run(X, labels)["loss"].backward()
        step = ckpt_torch.report(run)._step
        found.append(([(op["op"], op["phase"], op["time_ns"]) for op in step.graph["ops"] if op["op"] != "outside"],
                      [p.grad for p in model.parameters()]))
        assert step.known.unused == (1,) and len(graphs) == (2 if again else times)
        graphs.clear()
    assert found[0][0] == found[1][0] and all(map(torch.equal, found[0][1], found[1][1]))


class Views(nn.Module):
    """Its outputs are what it wrote in place, one as a view, which PyTorch makes anew behind backward."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x):
        y = self.a(x)
        return self.b(y), (y * 2).add_(1).relu_(), (y * 3).view(-1).mul_(2).relu_().view(64, 32)


@pytest.mark.parametrize("asked", [(0,), (1,), (0, 2)])
def test_outputs_that_were_written_in_place(asked, monkeypatch):
    monkeypatch.setattr(_cache, "load", lambda key: None)
    monkeypatch.setattr(_trace, "without", lambda *arguments: False)  # the next plan is of a graph with detached outputs
    model = Views()
    eager, run = copy.deepcopy(model), compiled(model, "80%")
    for _ in range(3):
        for network, call in (eager, eager), (model, run):
            network.zero_grad()
            out = call(X)
            sum(out[i].square().sum() for i in asked).backward()
        assert all(p.grad is None or not p.grad.any() if q.grad is None else torch.equal(p.grad, q.grad)
                   for p, q in zip(model.parameters(), eager.parameters()))
    assert len(ckpt_torch.report(run)._step.known.unused) == 3 - len(asked)


def test_outputs_that_get_gradients_by_turns():
    labels, model = torch.arange(64), WithLoss()
    run = compiled(model, "100%", unused=False)
    for name in "loss", "logits", "loss":
        eager = copy.deepcopy(model)
        eager(X, labels)[name].sum().backward()
        model.zero_grad()
        run(X, labels)[name].sum().backward()
        assert all(torch.equal(p.grad, q.grad) for p, q in zip(eager.parameters(), model.parameters()))


def test_the_gradient_of_a_softmax_is_written_over_what_it_is_made_of():
    run = compiled(WithLoss(), "100%")
    run(X, torch.arange(64))["loss"].backward()
    graph = ckpt_torch.report(run)._step.graph
    assert [op["inplace"] for op in graph["ops"] if "_log_softmax_backward_data" in op["op"]]

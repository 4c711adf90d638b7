"""Plans that another process made: when they are taken, when not, and that nothing else changes."""

import copy
import dataclasses
import os
import re
import subprocess
import sys
import threading

import pytest
import torch
from steps import DEVICE, LEAST, check, compiled, differences
from test_plans import WithLoss
from test_same_bits import CASES
from torch import nn

import ckpt_torch
from ckpt_torch import _cache, _progress, _trace

X = torch.randn(32, 16, generator=torch.Generator().manual_seed(5)).to(DEVICE)
pytestmark = pytest.mark.skipif(not hasattr(torch._functorch._aot_autograd.schemas, "CacheableAOTConfig"),
                                reason="this PyTorch cannot write down what AOTAutograd knows")


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    torch._dynamo.reset()
    torch.manual_seed(0)
    monkeypatch.setenv("CKPT_TORCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def net(scale=2.0, width=32):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(16, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, 16))

        def forward(self, x):
            return self.layers(x) * scale
    return Net().to(DEVICE)


def loaded(model, x=X, budget="80%", **options):
    """Whether a step of the model takes what is kept."""
    torch._dynamo.reset()
    run = compiled(copy.deepcopy(model), budget, **options)
    run(x)
    return "loading" in ckpt_torch.report(run).seconds


@pytest.mark.parametrize("name", ["dropout and batch norm", "random numbers", "tied weights", "state that changes"])
def test_as_eager_when_nothing_is_traced(name, monkeypatch):
    torch.manual_seed(0)
    model, inputs = CASES[name]()
    check(model, inputs, (LEAST,))

    def trace(*arguments, **keywords):
        raise AssertionError("traced again")
    monkeypatch.setattr(_trace.Trace, "_traced", trace)
    reports = check(model, inputs, (LEAST,))
    assert all("loading" in r.seconds and r.measured_peak_bytes for r in reports)


TRAIN = """
import sys
import torch
from steps import compiled, train
from test_plans import WithLoss, X
import ckpt_torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Dropout(0.3), torch.nn.BatchNorm1d(32), torch.nn.Linear(32, 32), torch.nn.Tanh(), torch.nn.Linear(32, 32))
class Both(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model, self.loss = model, WithLoss()
    def forward(self, x, labels):
        return self.loss(self.model(x), labels)
both = Both()
run = compiled(both, "80%")
found = train(both, run, (X, torch.arange(64)), loss=lambda out: out["loss"])
report = ckpt_torch.report(run)
assert report._step.known.unused == (1,)
torch.save({**found, "seconds": report.seconds, "peak": report.measured_peak_bytes}, sys.argv[1])
report.save(sys.argv[2])
"""


def test_another_process_starts_with_what_was_learned(tmp_path, own_folder):
    found = []
    for i in range(2):
        subprocess.run([sys.executable, "-c", TRAIN, tmp_path / str(i), tmp_path / f"report{i}"], check=True,
                       env={**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])})
        found.append(torch.load(tmp_path / str(i)))
    assert not differences(*found) and found[0]["peak"] == found[1]["peak"]
    assert "loading" not in found[0]["seconds"] and "loading" in found[1]["seconds"]
    for name in "graph.json", "plan.json", "memory.svg":
        assert (tmp_path / "report0" / name).read_bytes() == (tmp_path / "report1" / name).read_bytes()


def test_what_is_not_the_same_is_traced(monkeypatch):
    model, keys, key_of = net(), [], _cache.key_of
    monkeypatch.setattr(_cache, "key_of", lambda *a: keys.append(lambda: key_of(*a)) or key_of(*a))
    assert not loaded(model)
    key = keys[0]()
    assert loaded(net()) and keys[1]() == key, "other weights do not matter"
    assert not loaded(net(scale=3.0)), "a constant"
    assert not loaded(net(width=40)), "a shape"
    assert not loaded(model, X.t().contiguous().t()), "an input's strides"
    assert not loaded(model, budget="81%"), "an option"
    assert not loaded(model, optimizer=torch.optim.AdamW(net().parameters())), "what the optimizer holds"
    assert not loaded(copy.deepcopy(model).eval()), "a mode"
    frozen = copy.deepcopy(model)
    frozen.layers[0].weight.requires_grad_(False)
    assert not loaded(frozen), "what gets a gradient"
    with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
        assert not loaded(model), "autocast"
    monkeypatch.setattr(torch.version, "git_version", "another")
    assert keys[0]() not in (key, None), "a version of PyTorch"
    key = keys[0]()
    monkeypatch.setattr(_cache, "_sources", lambda: "another")
    assert keys[0]() not in (key, None), "a version of ckpt"


def test_a_budget_that_does_not_suffice_is_told_again():
    for again in False, True:
        with pytest.warns(UserWarning, match="that budget is taken"):
            assert loaded(net(), budget="1kB") == again


def test_other_costs_are_other_plans(own_folder):
    model = net()
    assert not loaded(model)
    costs, = own_folder.glob("costs-*.json")
    costs.unlink()
    assert not loaded(model) and loaded(model)


@torch.library.custom_op("ckpt_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


twice.register_fake(torch.empty_like)
twice.register_autograd(lambda context, gradient: gradient * 2)


def chosen():
    return torch.utils.checkpoint.create_selective_checkpoint_contexts([torch.ops.aten.tanh.default])


@pytest.mark.parametrize("function", [torch.ops.ckpt_test.twice, lambda x: torch.utils.checkpoint.checkpoint(
    torch.tanh, x, use_reentrant=False, context_fn=chosen)], ids=["an op of the user", "a function of the user"])
def test_what_has_no_name_for_all_processes_is_not_kept(function, own_folder):
    class Uses(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(16, 16)

        def forward(self, x):
            return function(self.a(x))
    model = Uses().to(DEVICE)
    assert not loaded(model) and not loaded(model) and not list(own_folder.glob("plan-*"))


def test_a_file_that_cannot_be_trusted_is_not_read(own_folder):
    model = net()
    assert not loaded(model)
    file, = own_folder.glob("plan-*")
    key, whole = file.name.removeprefix("plan-"), file.read_bytes()
    assert _cache.load(key) is not None
    for damaged in (whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:], whole[:-100], whole[:20], b"", whole + b"more"):
        file.write_bytes(damaged)
        assert _cache.load(key) is None
    assert not loaded(model) and loaded(model), "it is made and written anew"
    for path, usual in (file, 0o600), (own_folder, 0o700):
        path.chmod(usual | 0o022)
        assert _cache.load(key) is None
        path.chmod(usual)
    assert loaded(model)
    for wrong in {"not": "a plan"}, dataclasses.replace(_cache.load(key), wrappers=None):
        _cache.save(key, wrong)
        assert not loaded(model)


def test_many_write_at_once(own_folder):
    entries = [{"number": i, "much": os.urandom(100_000)} for i in range(8)]
    own_folder.mkdir()
    stop, wrong = threading.Event(), []

    def read():
        while not stop.is_set():
            found = _cache.load("key")
            if found is not None and found not in entries:
                wrong.append(found)
    reader = threading.Thread(target=read)
    reader.start()
    writers = [threading.Thread(target=lambda e=e: [_cache.save("key", e) for _ in range(10)]) for e in entries]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    stop.set()
    reader.join()
    assert not wrong and _cache.load("key") in entries and len(list(own_folder.iterdir())) == 1


def test_a_long_start_says_what_it_does_and_how_long_it_will(monkeypatch, capsys, own_folder):
    monkeypatch.setattr(_progress, "SECONDS_QUIET", 0.001)
    monkeypatch.setattr(_cache, "load", lambda key: None)
    lines = []
    for _ in range(2):
        torch._dynamo.reset()
        compiled(net(), LEAST, quiet=False)(X)
        lines.append(capsys.readouterr().out)
    assert all(re.search(r"^ckpt: tracing \d+ ops, \d+ s so far", text, re.M) for text in lines)
    assert "measured" in lines[0] and "s left" in lines[1]
    pace, = own_folder.glob("*.pace")
    pace.write_text("no pace")
    torch._dynamo.reset()
    compiled(net(), LEAST, quiet=False)(X)
    assert "ckpt: tracing" in capsys.readouterr().out


def test_what_one_plan_learned_another_does_not_take_for_granted():
    model, labels = WithLoss().to(DEVICE), torch.arange(64).to(DEVICE)
    x = torch.randn(64, 32).to(DEVICE)
    run = compiled(model, "100%")
    for there in False, False, True:  # the second one knows that logits get no gradient, and so does the third
        if not there:
            model.zero_grad()
        run(x, labels)["loss"].backward()
    torch._dynamo.reset()
    eager, run = copy.deepcopy(model), compiled(model, "100%")
    for network, call in (eager, eager), (model, run):
        for p, q in zip(network.parameters(), eager.parameters()):
            p.grad = torch.ones_like(q)
        out = call(x, labels)
        (out["loss"] + out["logits"].square().sum()).backward()
    assert not [n for (n, p), q in zip(model.named_parameters(), eager.parameters()) if not torch.allclose(p.grad, q.grad)]


def test_any_way_to_choose_precisions(own_folder):
    before = torch.backends.cuda.matmul.fp32_precision
    try:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        assert not loaded(net()) and loaded(net())
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def test_whatever_new_files_of_the_user_may_be(own_folder):
    before = os.umask(0o002)
    try:
        assert not loaded(net()) and loaded(net())
    finally:
        os.umask(before)


def test_no_rests_of_what_could_not_be_written(own_folder, monkeypatch):
    def full(*paths):
        raise OSError("no space")
    monkeypatch.setattr(os, "replace", full)
    assert not loaded(net()) and not list(own_folder.iterdir())


def test_the_oldest_go(own_folder, monkeypatch):
    monkeypatch.setattr(_cache, "KEPT", 3)
    for i in range(5):
        _cache.save(str(i), i)
        os.utime(own_folder / f"plan-{i}", (i, i))
    assert sorted(f.name for f in own_folder.iterdir()) == ["plan-2", "plan-3", "plan-4"]


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CKPT_TORCH_CACHE", str(tmp_path / "file" / "folder"))
    assert not loaded(net()) and not loaded(net())

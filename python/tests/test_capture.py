"""Steps that are recorded as CUDA graphs: on a card, and here with a double that writes into the same memory every time."""

import copy

import pytest
import torch
from steps import DEVICE, LEAST, compiled, differences, loss_of, train
from torch import nn
from torch._inductor import cudagraph_trees

import ckpt_torch
from ckpt_torch import _capture

CARD = DEVICE.type == "cuda"
WIDTH = 1024 if CARD else 32  # segments of a pool are of 2 MB and more
X = torch.randn(4 * WIDTH if CARD else 64, WIDTH, generator=torch.Generator().manual_seed(5)).to(DEVICE)


def deep(*more):
    torch.manual_seed(0)
    return nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.GELU(), *more)]).to(DEVICE)


class Trees:
    """In place of torch._inductor.cudagraph_trees on the CPU: what a function gives first is its memory for good, and every
    later run writes there. Inputs that are not fixed are copied to one place. Outputs of a fixed input are that input."""

    def __init__(self):
        self.kept, self.runs, self.current_node, self.cuda_graphs_thread_pool = {}, [], self, "pool"

    def cudagraphify_impl(self, model, inputs, fixed, *, is_backward, placeholders, stack_traces, mutated_input_idxs, **ignored):
        half = "backward" if is_backward else "forward"
        assert len(placeholders) == len(inputs) and set(fixed) < set(range(len(inputs)))
        fixed, places, memory = set(fixed), [], []
        addresses = [x.data_ptr() if isinstance(x, torch.Tensor) else None for x in inputs]

        def run(args):
            assert all(args[i].data_ptr() == addresses[i] for i in fixed), "a fixed input moved"
            first = not places
            if first:
                places.extend(x.clone() if i not in fixed and isinstance(x, torch.Tensor) else None for i, x in enumerate(args))
            taken = [x if place is None else place.copy_(x) for x, place in zip(args, places)]
            mine = {x.data_ptr(): x for i, x in enumerate(taken) if i in fixed or places[i] is not None}
            args.clear()
            out = model(taken)
            assert not taken, "what runs keeps its inputs"
            if first:
                memory.extend(x if x is None or not isinstance(x, torch.Tensor) or x.data_ptr() in mine
                              else torch.empty_like(x) for x in out)
                assert len(stack_traces) == len(out)
            handed = []
            for x, place in zip(out, memory):
                if isinstance(x, torch.Tensor) and place is not x:
                    with torch.no_grad():
                        place.data.copy_(x)
                    place = place.data  # a tensor of its own on the same memory
                handed.append(place)
            storages = {x.untyped_storage()._cdata for x in memory if isinstance(x, torch.Tensor) and x.data_ptr() not in mine}
            del out, taken, mine
            self.kept[half] = [(s, torch._C._storage_Use_Count(s) - sum(
                1 for x in handed if isinstance(x, torch.Tensor) and x.untyped_storage()._cdata == s)) for s in storages]
            self.runs.append(half)
            return handed
        return run

    def all_outputs_are_dead(self):
        return all(torch._C._storage_Use_Count(s) <= count for kept in self.kept.values() for s, count in kept)

    def get_manager(self, index, create_if_none_exists):
        return self

    def get_cudagraph_segments(self, pool):
        return [{"total_size": 1000}]  # its runs take the memory of steps that are not recorded, which is measured


@pytest.fixture(autouse=True)
def trees(monkeypatch):
    torch._dynamo.reset()
    _capture._waiting.clear()
    if CARD:
        return None
    double = Trees()
    for name in "cudagraphify_impl", "get_manager", "get_cudagraph_segments":
        monkeypatch.setattr(cudagraph_trees, name, getattr(double, name))
    monkeypatch.setattr(_capture, "_refuse", lambda device, options: None)
    return double


def captured(model, budget="150%", **options):  # room for segments of a pool
    return compiled(model, budget, **{"capture": True, **options})


def beside_eager(*more):
    """A model, the same one in eager, and the first one captured."""
    model = deep(*more)
    return model, copy.deepcopy(model), captured(model)


def same_gradients(one, other):
    return all(torch.equal(p.grad, q.grad) for p, q in zip(one.parameters(), other.parameters()))


def was_recorded(run, trees):
    report = ckpt_torch.report(run)
    assert report.not_captured is None and report.held_bytes
    assert not trees or trees.runs


@pytest.mark.parametrize("budget", ["150%", "75%", LEAST])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_as_eager(budget, accumulate, trees):
    model = deep()
    eager = copy.deepcopy(model)
    how = {"accumulate": accumulate, "steps": 24 if CARD else 5}  # on a card plans are made anew until a pool fits as well
    wanted = train(eager, torch.compile(eager, backend="eager"), (X,), **how)
    run = captured(model, budget)
    assert not differences(wanted, train(model, run, (X,), **how))
    was_recorded(run, trees)
    report = ckpt_torch.report(run)
    assert report.measured_peak_bytes <= report.budget_bytes
    assert report.held_bytes < report.measured_peak_bytes


def test_masks_are_those_of_eager(trees):
    model, eager, run = beside_eager(nn.Dropout(0.2))  # keeps everything, so it draws nothing again
    wanted = train(eager, torch.compile(eager, backend="eager"), (X,))
    assert not differences(wanted, train(model, run, (X,)))
    was_recorded(run, trees)


class Draws(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(6))

    def forward(self, x):
        for layer in self.layers:
            y = layer(x).tanh()
            x = y * torch.rand_like(y)
        return x


def test_what_draws_again_is_not_recorded_and_says_so(trees, capsys):
    torch.manual_seed(0)
    model = Draws().to(DEVICE)
    eager = copy.deepcopy(model)
    wanted = train(eager, torch.compile(eager, backend="eager"), (X,))
    run = captured(model, LEAST, quiet=False)
    assert not differences(wanted, train(model, run, (X,)))
    told, report = capsys.readouterr().out, ckpt_torch.report(run)
    assert told.count("not captured: its plan draws random numbers again") == told.count("counted as there")
    assert "random" in report.not_captured and report.held_bytes is None and "copies" not in report.static
    assert not trees or not trees.runs


def test_the_measured_step_is_not_recorded(trees):
    model = deep()
    run = captured(model)
    for step in range(4):
        out = run(X)  # which is there until backward has ended, as planned
        out.sum().backward()
        model.zero_grad()
        if trees:
            assert trees.runs == ["forward", "backward"] * step
        assert (ckpt_torch.report(run).held_bytes is not None) == (step > 0)


def test_outputs_and_gradients_outlive_the_next_step(trees):
    model, inputs = deep(), [X * k for k in range(1, 7)]
    eager = copy.deepcopy(model)
    run, kept, wanted = captured(model), [], []
    for results, network, call in (wanted, eager, eager), (kept, model, run):
        for x in inputs:
            out = call(x)
            loss_of(out).backward()
            results.append([out, *[p.grad for p in network.parameters()]])
            network.zero_grad()
    was_recorded(run, trees)
    assert all(torch.equal(a, b) for step, other in zip(wanted, kept) for a, b in zip(step, other))


def test_gradients_that_are_zeroed_in_place(trees):
    model, eager, run = beside_eager()
    for _ in range(5):
        for network, call in (eager, eager), (model, run):
            network.zero_grad(set_to_none=False)
            loss_of(call(X)).backward()
        assert same_gradients(eager, model)
    was_recorded(run, trees)


def test_a_second_forward_before_backward(trees):
    model, eager, run = beside_eager()
    for _ in range(5):
        for network, call in (eager, eager), (model, run):
            network.zero_grad()
            first, second = loss_of(call(X)), loss_of(call(X * 2))
            third = loss_of(call(X * 3))
            second.backward()
            fourth = loss_of(call(X * 4))
            first.backward()
            (third + fourth).backward()
        assert same_gradients(eager, model)
    assert any(step().held_bytes for step in ckpt_torch._backend.steps if step()), "no step was recorded"


def test_a_forward_that_gets_no_backward(trees):
    model, eager, run = beside_eager()
    for step in range(8):
        for network, call in (eager, eager), (model, run):
            network.zero_grad()
            loss = loss_of(call(X))
            if step % 3 < 2:
                loss.backward()
            del loss
        assert step % 3 == 2 or same_gradients(eager, model)
    was_recorded(run, trees)


def test_two_models_take_turns(trees):
    models = [deep(), deep()]
    eager = copy.deepcopy(models)
    runs = [captured(model) for model in models]
    for step in range(8):
        if step == 5:  # as when its plan is replaced
            first, second = (ckpt_torch.report(run)._step.capture for run in runs)
            assert first._calls and not second._calls  # which always ran while the first one waited
            second._calls["forward"] = None
            first.release()
            assert not first._calls and not second._calls
        for (first, second), calls in (eager, eager), (models, runs):
            first.zero_grad(), second.zero_grad()
            loss_of(calls[1](calls[0](X))).backward()
        assert same_gradients(nn.ModuleList(eager), nn.ModuleList(models))
    assert ckpt_torch.report(runs[1])._step.capture._calls and ckpt_torch.report(runs[0]).not_captured == "its plan was replaced"


def test_weights_that_move_are_not_recorded_again(trees):
    model, eager, run = beside_eager()
    for step in range(6):
        if step == 4:
            for p in model.parameters():
                p.data = p.data.clone()
        for network, call in (eager, eager), (model, run):
            network.zero_grad()
            loss_of(call(X)).backward()
        assert same_gradients(eager, model)
    assert "not where they were" in ckpt_torch.report(run).not_captured


def test_backward_twice(trees):
    model = deep()
    run = captured(model, inplace=False)
    for _ in range(5):
        out = run(X).sum()
        out.backward()
        model.zero_grad()
    was_recorded(run, trees)
    with pytest.raises(ckpt_torch.Unsupported, match="'capture': False"):
        run(X).sum().backward(retain_graph=True)
    torch._dynamo.reset()
    other = deep()
    run = captured(other, inplace=False)
    for _ in range(4):
        out = run(X).sum()
        out.backward(retain_graph=True)
        out.backward()
        other.zero_grad()
    assert "retain_graph" in ckpt_torch.report(run).not_captured


@pytest.mark.skipif(CARD, reason="the double says what is held")
def test_what_graphs_hold_counts(trees, monkeypatch):
    """A pool of 60 kB more than is planned: it does not fit, and is planned for in the next plan."""
    model = deep()
    run = captured(model, "90%")

    def segments(pool):
        step = ckpt_torch._backend.newest(model.parameters())
        return [{"total_size": step.plan.summary["peak_bytes"] - sum(nbytes for _, nbytes in step.static) + 60_000}]
    monkeypatch.setattr(cudagraph_trees, "get_cudagraph_segments", segments)
    reports = []
    for _ in range(7):
        model.zero_grad()
        run(X).sum().backward()
        reports.append(ckpt_torch.report(run))
    over = next(i for i, r in enumerate(reports) if r.held_bytes)
    assert reports[over].measured_peak_bytes > reports[over].budget_bytes
    assert reports[over + 1].held_bytes is None and reports[over + 1].budget_bytes == reports[over].budget_bytes
    assert reports[over + 1].overhead > reports[over].overhead
    assert reports[-1].held_bytes and reports[-1].measured_peak_bytes <= reports[-1].budget_bytes


@pytest.mark.skipif(CARD, reason="there it can be recorded")
def test_on_the_cpu_it_is_refused(monkeypatch):
    monkeypatch.undo()
    with pytest.raises(ckpt_torch.Unsupported, match="this model is on the CPU"):
        captured(deep())(X)


@pytest.mark.skipif(not CARD, reason="copies to the host and attention's generator are those of a GPU")
def test_what_moves_to_the_host_is_not_recorded():
    model = deep()
    run = captured(model, "60%", link="1000GB/s")
    for _ in range(4):
        run(X).sum().backward()
    report = ckpt_torch.report(run)
    assert not report.offload_bytes or "to the host" in report.not_captured


@pytest.mark.skipif(not CARD, reason="attention's generator is that of a GPU")
def test_attention_with_dropout():
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(256, 4, 512, dropout=0.1, batch_first=True).to(DEVICE)
    x = torch.randn(8, 128, 256, device=DEVICE)
    eager = copy.deepcopy(model)
    wanted = train(eager, torch.compile(eager, backend="eager"), (x,))
    run = captured(model)
    assert not differences(wanted, train(model, run, (x,)))
    was_recorded(run, None)


@pytest.mark.skipif(not CARD, reason="Inductor's kernels and graphs, both on a GPU")
def test_inductor_within():
    model = deep()
    plain = copy.deepcopy(model)
    wanted = train(plain, compiled(plain, "75%", inner="inductor"), (X,))
    torch._dynamo.reset()
    run = captured(model, "75%", inner="inductor")
    found = train(model, run, (X,))
    was_recorded(run, None)
    assert torch.allclose(torch.tensor(wanted["losses"]), torch.tensor(found["losses"]), rtol=1e-4)

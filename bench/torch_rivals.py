#!/usr/bin/env python3
"""Peak and time of a PyTorch training step on the CPU: eager, a checkpoint around each block, Hugging Face's own, PyTorch's
activation_memory_budget, and this project's backend at five budgets, one of them the peak of the checkpoints, with the kernels
of eager (ckpt) and with Inductor's (fused).

    bench/torch_rivals.py measure FILE MODEL... [--rounds N] [--small] [--no-inductor]
    bench/torch_rivals.py draw FILE... PICTURE.svg

In the environment of scripts/pytorch-venv models, with ckpt_torch installed or in PYTHONPATH. All methods train the same
parameters by the same AdamW. Peaks are of PyTorch's own memory events over a whole step, plus what was there before:
parameters, buffers, inputs, gradients, optimizer state. Times are medians of N rounds that go through all methods in turn.
"""

import argparse
import copy
import json
import math
import statistics
import time
from pathlib import Path

COLUMNS = 400  # of the curves of memory over time


def each_block(model):
    """Wraps every module of the longest list of equal modules in a checkpoint."""
    import torch
    from torch.utils.checkpoint import checkpoint
    blocks = max((list(m) for m in model.modules() if isinstance(m, (torch.nn.ModuleList, torch.nn.Sequential))), key=len)
    for block in blocks:
        forward = block.forward
        block.forward = lambda *a, _forward=forward, **k: checkpoint(_forward, *a, use_reentrant=False, **k)
    return model


def apart(model, name):
    """The model as a function whose code is its own: Dynamo keeps what it compiles by code, and all copies have the same."""
    scope = {"model": model}
    exec(f"def run_{''.join(c if c.isalnum() else '_' for c in name)}(*a, **k):\n    return model(*a, **k)", scope)  # noqa: S102
    return scope.popitem()[1]


class Method:
    """One way to train: its peak, its memory over time, the times of its rounds."""

    def __init__(self, name, run, of, settled=lambda: True):
        self.name, self.run, self.of, self.times = name, run, of, []
        for _ in range(3):
            self.step()
        while not settled():
            self.step()
        self.peak, self.curve = self._memory()

    def step(self):
        self.of.loss(self.run).backward()
        self.of.optimizer.step()
        self.of.optimizer.zero_grad()

    def time(self):
        start = time.perf_counter()
        self.step()
        self.times.append(time.perf_counter() - start)

    def _memory(self):
        """The peak, and the most bytes in each of COLUMNS parts of the step."""
        import torch
        with torch.autograd.profiler.profile(use_cpu=True, profile_memory=True) as profile:
            start = time.time_ns()
            self.step()
            end = time.time_ns()
        there = [*self.of.model.state_dict().values(), *self.of.inputs,
                 *(x for s in self.of.optimizer.state.values() for x in s.values())]
        now = sum({x.untyped_storage()._cdata: x.untyped_storage().nbytes() for x in there}.values())
        events = sorted((e.start_ns(), e.nbytes()) for e in profile.kineto_results.events() if e.name() == "[memory]")
        curve = [0] * COLUMNS
        at = 0
        for ns, nbytes in events + [(end, 0)]:
            column = min(COLUMNS - 1, max(0, (ns - start) * COLUMNS // (end - start)))
            for i in range(at, column + 1):
                curve[i] = max(curve[i], now)
            at, now = column, now + nbytes
            curve[column] = max(curve[column], now)
        return max(curve), curve


class Comparison:
    """All methods of one model."""

    def __init__(self, name, make):
        import torch
        torch.manual_seed(0)
        self.name, self.methods = name, []
        self.model, self.inputs, self.loss = make()
        self.model.train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, foreach=False)

    def add(self, name, change, settled=lambda: True):
        """A method.

        change    a function of a copy of the model, with the same parameters, to what is called in its place
        settled   whether its steps stay as they are
        """
        shared = [*self.model.parameters(), *self.model.buffers()]
        model = copy.deepcopy(self.model, {id(x): x for x in shared})
        method = Method(name, change(model), self, settled)
        self.methods.append(method)
        print(f"{self.name}: {name}: {method.peak / 1e6:.1f} MB", flush=True)
        return method

    def ours(self, name, budget, **more):
        import ckpt_torch
        import torch
        options = {"budget": budget, "infeasible": "least", "quiet": True, "optimizer": self.optimizer, **more}
        method = self.add(name, lambda m: torch.compile(apart(m, name), backend=ckpt_torch.backend, options=options),
                          lambda: ckpt_torch._backend.newest(self.model.parameters()).settled)
        method.report = ckpt_torch.report(self.model)

    def prepare(self, inductor):
        import torch
        self.add("eager", lambda m: m)
        block = self.add("each block", each_block)
        if hasattr(self.model, "gradient_checkpointing_enable"):
            self.add("Hugging Face's", lambda m: (m.gradient_checkpointing_enable(), m)[1])
        for name, budget in (("ckpt 100%", "100%"), ("ckpt 85%", "85%"), ("ckpt 70%", "70%"), ("ckpt as each block", f"{block.peak}B"),
                             ("ckpt least", "1%")):
            self.ours(name, budget)
        for share in (1.0, 0.5, 0.2, 0.0) if inductor else ():
            with torch._functorch.config.patch(activation_memory_budget=share):
                name = f"compiled {share:g}"
                self.add(name, lambda m, name=name: torch.compile(apart(m, name)))
        for name, budget in (("100%", "100%"), ("80%", "80%"), ("60%", "60%"), ("as each block", f"{block.peak}B"), ("least", "1%")) if inductor else ():
            self.ours(f"fused {name}", budget, inner="inductor")

    def time(self, rounds):
        for _ in range(rounds):
            for method in self.methods:
                method.time()
        return {"model": self.name, "methods": [
            {"name": m.name, "peak_bytes": m.peak, "seconds": statistics.median(m.times), "least_seconds": min(m.times), "curve": m.curve,
             **({"predicted_bytes": m.report.predicted_peak_bytes, "planned_overhead": m.report.overhead} if hasattr(m, "report") else {})}
            for m in self.methods]}


def measure(options):
    import torch
    import torch_models
    found = []
    for name in options.model:
        comparison = Comparison(name, (torch_models.SMALL if options.small else torch_models.LARGE)[name])
        comparison.prepare(not options.no_inductor)
        found.append(comparison.time(options.rounds))
        torch._dynamo.reset()
    show(found, options.rounds)
    Path(options.file).write_text(json.dumps(found))


def show(found, rounds):
    """The table, of docs/figures/pytorch.md."""
    import torch
    print(f"\n{torch.get_num_threads()} threads, PyTorch {torch.__version__}, {rounds} rounds\n\n"
          "| model | method | peak MB | predicted | step ms: median | least | over eager | planned |\n|---|---|---|---|---|---|---|---|")
    for comparison in found:
        eager = comparison["methods"][0]
        for m in comparison["methods"]:
            planned = m.get("planned_overhead")
            print(f"| {comparison['model']} | {m['name']} | {m['peak_bytes'] / 1e6:.1f} "
                  f"| {'' if planned is None else format(m['peak_bytes'] / m['predicted_bytes'] - 1, '+.2%')} | {1e3 * m['seconds']:.0f} "
                  f"| {1e3 * m['least_seconds']:.0f} | {m['seconds'] / eager['seconds'] - 1:+.1%} | {'' if planned is None else f'{planned:+.1%}'} |")


COLOURS = {"eager": "#1a1a1a", "each block": "#d55e00", "Hugging Face's": "#cc79a7", "compiled": "#009e73", "ckpt": "#0072b2", "fused": "#56b4e9"}  # Okabe and Ito


class Picture:
    """Panels with linear axes, as lines of SVG."""

    def __init__(self, width, height):
        self.lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="11">',
                      f'<rect width="{width}" height="{height}" fill="white"/>']

    def text(self, x, y, words, **how):
        more = "".join(f' {k.replace("_", "-")}="{v}"' for k, v in how.items())
        self.lines.append(f'<text x="{x:.1f}" y="{y:.1f}"{more}>{words}</text>')

    def panel(self, left, top, wide, high, title, axis, x_range, y_range):
        """Axes over ranges of values; gives the function from values to places."""
        def at(x, y):
            return (left + wide * (x - x_range[0]) / (x_range[1] - x_range[0]),
                    top + high * (1 - (y - y_range[0]) / (y_range[1] - y_range[0])))
        self.text(left, top - 12, title, font_weight="bold")
        self.text(left + wide / 2, top + high + 32, axis, text_anchor="middle")
        for value in ticks(*y_range):
            y = at(0, value)[1]
            self.lines.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + wide}" y2="{y:.1f}" stroke="#ddd"/>')
            self.text(left - 6, y + 4, f"{value:g}", text_anchor="end")
        for value in ticks(*x_range):
            self.text(at(value, 0)[0], top + high + 16, f"{value:g}", text_anchor="middle")
        return at

    def line(self, points, colour, width):
        self.lines.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" fill="none" stroke="{colour}" stroke-width="{width}"/>')

    def mark(self, x, y, colour, title):
        self.lines.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}" stroke="white"><title>{title}</title></circle>')


def ticks(low, high):
    """Round numbers between two, about five."""
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (step * m) <= 6)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def colour_of(name):
    return COLOURS[next(k for k in COLOURS if name.startswith(k))]


def draw(options):
    """For each model: memory over time of four methods, and peak and time of all."""
    found = [comparison for file in options.file for comparison in json.loads(Path(file).read_text())]
    high, row = 230, 310
    picture = Picture(900, row * len(found))
    for number, comparison in enumerate(found):
        methods, top = comparison["methods"], 40 + row * number
        peaks, seconds = [m["peak_bytes"] / 1e6 for m in methods], [1e3 * m["seconds"] for m in methods]
        shown = [m for m in methods if m["name"] in ("eager", "each block", "compiled 1", "ckpt as each block")]
        at = picture.panel(56, top, 340, high, f"{comparison['model']}: memory over a step, MB", "ms",
                           (0, 1.02e3 * max(m["seconds"] for m in shown)), (0, 1.05 * max(peaks)))
        for i, m in enumerate(shown):
            picture.line([at(1e3 * m["seconds"] * x / len(m["curve"]), y / 1e6) for x, y in enumerate(m["curve"])], colour_of(m["name"]), 1.4)
            picture.text(64, top + high - 10 - 14 * i, m["name"], fill=colour_of(m["name"]))
        at = picture.panel(470, top, 410, high, "time of a step, ms, over its peak", "MB", around(peaks), around(seconds))
        points = [at(x, y) for x, y in zip(peaks, seconds)]
        for ours in "ckpt", "fused":
            picture.line(sorted(p for p, m in zip(points, methods) if m["name"].startswith(ours)), COLOURS[ours], 1)
        taken = [(x - 5, y, 10) for x, y in points]
        for (x, y), m in zip(points, methods):
            picture.mark(x, y, colour_of(m["name"]), f"{m['name']}: {m['peak_bytes'] / 1e6:.1f} MB, {1e3 * m['seconds']:.0f} ms")
            wide = 6 * len(m["name"])
            left, base = next(place for place in ((x + dx - shift * wide, y + dy) for far in range(1, 20) for dx, dy, shift in (
                (7, 4, 0), (-7, 4, 1), (0, -4 - 6 * far, 0.5), (0, 8 + 6 * far, 0.5), (6, -6 * far, 0), (-6, -6 * far, 1), (6, 6 * far, 0), (-6, 6 * far, 1)))
                if 470 < place[0] < 880 - wide and not any(
                    place[0] < b[0] + b[2] and b[0] < place[0] + wide and abs(place[1] - 4 - b[1]) < 10 for b in taken))
            taken.append((left, base - 4, wide))
            picture.text(left, base, m["name"], fill=colour_of(m["name"]))
    Path(options.picture).write_text("\n".join([*picture.lines, "</svg>"]) + "\n")


def around(values):
    """A range with some room on both sides."""
    room = 0.12 * (max(values) - min(values))
    return min(values) - room, max(values) + room


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("measure")
    command.add_argument("file")
    command.add_argument("model", nargs="+")
    command.add_argument("--rounds", type=int, default=5)
    command.add_argument("--small", action="store_true")
    command.add_argument("--no-inductor", action="store_true")
    command.set_defaults(do=measure)
    command = commands.add_parser("draw")
    command.add_argument("file", nargs="+")
    command.add_argument("picture")
    command.set_defaults(do=draw)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()

"""What was planned and measured, for people and for the programs."""

import subprocess
from pathlib import Path

from . import _backend, _lib


class Report:
    """The plan of a model's step.

    predicted_peak_bytes, keep_all_peak_bytes, measured_peak_bytes (None before the first step), static_bytes (each peak
    includes it), budget_bytes, offload_bytes (copied to the host), overhead and gap (shares of the time: 0.01 is one
    percent), recomputed {module: ns}, seconds {what: seconds}, arena (with that option, ckpt.h's ckpt_step_arena_counts
    of the last step by name), held_bytes (of measured_peak_bytes, what the CUDA graphs of the option capture hold between
    steps; None: not recorded), not_captured (why not, in words, or None)
    """

    def __init__(self, step):
        s = step.plan.summary
        self._step = step
        self.predicted_peak_bytes, self.keep_all_peak_bytes = s["peak_bytes"], s["keep_all_peak_bytes"]
        self.measured_peak_bytes, self.budget_bytes = step.measured_bytes, s["budget_bytes"]
        self.arena = step.arena.said() if step.arena else None
        self.held_bytes, self.not_captured = step.held_bytes, step.capture.why_not if step.capture else None
        self.static = {name: nbytes for name, nbytes in step.static if name != "learned"}
        self.static_bytes = sum(self.static.values())
        self.overhead = s["time_ns"] / max(1, s["keep_all_time_ns"]) - 1
        self.gap = s["time_ns"] / s["bound_ns"] - 1 if s["bound_ns"] else None
        self.offload_bytes = s["offload_bytes"]
        self.seconds, self.recomputed = dict(step.seconds), {}
        for action, index, recomputed, _ in step.plan.steps:
            if action == _lib.RUN and recomputed:
                op = step.graph["ops"][index]
                name = op.get("layer", op["name"])
                self.recomputed[name] = self.recomputed.get(name, 0) + op["time_ns"]

    def save(self, folder):
        """Write graph.json, plan.json and predicted.json for ckpt-view, ckpt-graph, ckpt-compare and ckpt-plan --check, and
        memory.svg."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        plan = self._step.plan
        for name, text in (("graph.json", plan.graph_json()), ("plan.json", plan.plan_json()), ("predicted.json", plan.trace_json()),
                           ("memory.svg", self._repr_svg_())):
            (folder / name).write_text(text, encoding="utf-8")
        return folder

    def _repr_svg_(self):
        """The picture that a notebook shows: memory over the step, as ckpt-view draws the predicted trace."""
        done = subprocess.run([_lib.program("ckpt-view"), "--format", "svg", "-"], input=self._step.plan.trace_json(),
                              capture_output=True, encoding="utf-8", check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        return done.stdout

    def __str__(self):
        size = _backend.size
        lines = [f"predicted peak  {size(self.predicted_peak_bytes)}",
                 f"measured peak   {size(self.measured_peak_bytes) if self.measured_peak_bytes else 'no step yet'}",
                 f"keep-all peak   {size(self.keep_all_peak_bytes)}",
                 f"static          {size(self.static_bytes)}: " + ", ".join(f"{n} {size(b)}" for n, b in self.static.items()),
                 f"step time       {100 * self.overhead:+.1f} % over keep-all"
                 + (f", at most {100 * self.gap:.1f} % over the best possible" if self.gap is not None else "")]
        if self.held_bytes is not None:
            lines.insert(2, f"held by graphs  {size(self.held_bytes)} of the measured peak, between steps too")
        if self.recomputed:
            longest = sorted(self.recomputed.items(), key=lambda item: -item[1])
            lines.append("recomputed      " + ", ".join(name for name, _ in longest[:8])
                         + (f" and {len(longest) - 8} more" if len(longest) > 8 else ""))
        return "\n".join(lines)

    __repr__ = __str__


def report(model):
    """The Report of the newest plan of a compiled model; LookupError before its first training step."""
    step = _backend.newest(model.parameters())
    if step is not None:
        return Report(step)
    raise LookupError("this model has no plan yet: it is made at the first forward pass that needs gradients")

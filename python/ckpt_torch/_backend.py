"""torch.compile(model, backend="ckpt"): from Dynamo's graph to a planned training step.

Planning waits for the first call, when all inputs are real: a budget that does not suffice is then an exception of the
caller's own call, shapes are known, and so is whether gradients are already there. Each set of shapes has a plan.
"""

import copy
import json
import logging
import time
import warnings
import weakref
from dataclasses import dataclass, replace

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from . import _cache, _capture, _copies, _inductor, _lib, _measure, _outputs
from ._arena import Arena
from ._frames import compiled_model, give_frames
from ._joint import Joint, Unsupported, storage_of
from ._progress import Progress
from ._rewrite import rewrite
from ._run import Code, code_of
from ._trace import Trace

OWN_OPTIONS = {"budget", "infeasible", "optimizer", "static_bytes", "quiet", "measure", "inplace", "unused", "arena", "inner", "capture"}
steps = []  # every planned Step that is in use: weak references
PLANS = 8  # that may exceed the budget when they are measured, before there is no hope
breaks = {}  # id of the options of a torch.compile -> (these, {place of a graph break: None}), until they are refused


class Infeasible(RuntimeError):
    """No plan within the budget was found.

    least_budget_bytes       a budget at which there is a plan
    no_schedule_below_bytes  below this there is none, proved; 0: not known
    """

    def __init__(self, summary, text):
        self.least_budget_bytes = summary["min_budget_bytes"]
        self.no_schedule_below_bytes = summary["no_schedule_below_bytes"]
        super().__init__(text)


def size(count):
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.4g} {unit}"
        count /= 1000
    return f"{count:.4g} GB"


def backend(graph_module, example_inputs, *, options=None, **ignored):
    """What torch.compile calls for each graph. What is refused is refused at the first call, by an exception of its own:
    PyTorch wraps those that are raised here."""
    try:
        run = _region(graph_module, dict(options or {}), options)
    except (ValueError, Unsupported) as error:
        refused = error

        def run(*args):
            raise refused
    return torch._dynamo.disable(run, reason="ckpt runs what it planned")


def _region(graph_module, options, breaks_of):
    unknown = set(options) - OWN_OPTIONS - _lib.option_names()
    if unknown:
        raise ValueError(f"ckpt: no option {', '.join(sorted(unknown))}; there are "
                         f"{', '.join(sorted(OWN_OPTIONS | _lib.option_names()))}")
    if options.get("inner", "eager") not in ("eager", "inductor"):
        raise ValueError(f"ckpt: inner is eager or inductor, not {options['inner']}")
    return Region(graph_module, options, breaks_of, _break_after(graph_module))


LOGS_AFTERWARDS = hasattr(torch._dynamo.config, "ignore_logging_functions")  # as PyTorch 2.9 does not


def keep_logging_out():
    """Lines that a model logs come after its graph, or are lost; they would break it."""
    chosen = torch._dynamo.config.reorderable_logging_functions if LOGS_AFTERWARDS else torch._dynamo.config.ignore_logger_methods
    for name in ("debug", "info", "warning", "error", "warning_once"):  # the last one is of transformers
        if hasattr(logging.Logger, name):
            chosen.add(getattr(logging.Logger, name))


def prepare():
    """What PyTorch calls when a model is compiled; before 2.15 nobody does."""
    keep_logging_out()
    give_frames(compiled_model())


backend._dynamo_backend_init = prepare
keep_logging_out()


def _break_after(graph_module):
    """Where and why PyTorch broke the model's graph after this part, in words; None: it did not."""
    reason = getattr(graph_module, "compile_subgraph_reason", None)
    if reason is None or not getattr(reason, "graph_break", False):
        return None
    place = reason.user_stack[-1] if getattr(reason, "user_stack", None) else None
    return (f"{place.filename}:{place.lineno}: " if place else "") + str(reason.reason).splitlines()[0]


def _broken(found):
    return Unsupported("ckpt plans a step as one graph, and PyTorch breaks it "
                       + (f"{len(found)} times: " if len(found) > 1 else "at ") + "; ".join(found)
                       + ". torch.compile(..., fullgraph=True) says more of the first")


def refuse_breaks(options):
    """Raise if the graph of a model compiled with these options broke since this was last asked."""
    _, found = breaks.pop(id(options), (None, None))
    if found:
        raise _broken(found)


class Region:
    """One graph of Dynamo and its plans: one for each set of shapes."""

    def __init__(self, graph_module, options, breaks_of, break_after):
        """A part of a broken graph.

        breaks_of     the options as the caller gave them: the same for all parts of his model
        break_after   None, or where and why the graph breaks after this part
        """
        self.graph_module, self.options, self.plans, self.traces = graph_module, options, {}, {}
        self.breaks_of, self.break_after = breaks_of, break_after
        # With dynamic shapes Dynamo gives a number, such as a dropout's p, as a tensor of which the graph takes item().
        self.numbers = {i: [n for n in p.users if n.target == "item"] for i, p in enumerate(
            n for n in graph_module.graph.nodes if n.op == "placeholder") if any(n.target == "item" for n in p.users)}
        self.__name__ = "ckpt"

    def __call__(self, *args):
        training = torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in args)
        if training and (self.break_after or id(self.breaks_of) in breaks):
            return self._part(args)
        held = training and sum(a.grad.untyped_storage().nbytes() for a in args
                                if isinstance(a, torch.Tensor) and a.is_leaf and a.grad is not None)
        given = (training,) + tuple(
            a.item() if i in self.numbers else (a.shape, a.stride(), a.dtype, a.device) if isinstance(a, torch.Tensor) else a
            for i, a in enumerate(args))
        step = self.plans.get((given, bool(held)))
        if step is None or step.learned is not step.known:
            if step and step.capture:
                step.capture.release()
            trace = self.traces.get(given) or self.traces.setdefault(given, Trace(self._with_numbers(args)))
            step = self.plans[given, bool(held)] = Step(
                trace, args, self.options, int(held), step.learned if step else Learned(unused=trace.unused))
        elif step.settled and given in self.traces and all(s.settled for of, s in self.plans.items() if of[0] == given):
            del self.traces[given]
        return step(args)

    def _with_numbers(self, args):
        """The graph with constants in place of items."""
        if not self.numbers:
            return self.graph_module
        module = torch.fx.GraphModule(self.graph_module, copy.deepcopy(self.graph_module.graph))
        nodes = {n.name: n for n in module.graph.nodes}
        for i, items in self.numbers.items():
            for item in items:
                nodes[item.name].replace_all_uses_with(args[i].item())
                module.graph.erase_node(nodes[item.name])
        module.recompile()
        return module

    def _part(self, args):
        """Run a part of a broken graph without keeping anything, so that all breaks are known when backward refuses."""
        _, found = breaks.setdefault(id(self.breaks_of), (self.breaks_of, {}))
        if self.break_after:
            found[self.break_after] = None
        with torch.no_grad():
            out = self.graph_module(*args)
        anchor = torch.zeros((), requires_grad=True)

        def error():
            breaks.pop(id(self.breaks_of), None)
            return _broken(found)
        return [_outputs.refused(x, anchor, error) if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in out]


@dataclass(frozen=True)
class Learned:
    """What only a step that ran can tell.

    reserve   bytes that it took beyond its prediction and its budget
    dropped   indices of forward's outputs that its caller does not keep until backward ends
    budget    bytes that the budget was when that was seen; 0: as it was given
    over      peaks of plans that were measured over the budget
    unused    indices of the model's outputs that get no gradient
    """

    reserve: int = 0
    dropped: tuple = ()
    budget: int = 0
    over: tuple = ()
    unused: tuple = ()


@dataclass(frozen=True)
class Kept:
    """What remains of a step's graph when it is planned: enough to run it, in another process too.

    outputs             of forward, the changed inputs among them
    mutations           of these, how many are changed inputs
    once                backward writes over what forward kept for it
    tangents            (shape, stride, type, device) of each
    absent, detached    as of the Trace
    costs               {signature: row} of _measure
    """

    outputs: int
    mutations: int
    once: bool
    tangents: list
    absent: dict
    detached: tuple
    costs: dict
    forward: Code
    backward: Code
    plan: _lib.KeptPlan | None = None
    wrappers: _cache.Wrappers | None = None


class Step:
    """A planned step: forward, what PyTorch does between, backward.

    plan            of _lib, or None: nothing to plan
    measured_bytes  its peak when it was measured; None: not yet
    capture         _capture.Capture, or None: not asked for
    held_bytes      of measured_bytes, what CUDA graphs hold between steps; None: not recorded yet
    known, learned  before and after it was measured; where they differ, it is to be planned anew
    """

    def __init__(self, trace, args, options, held, known):
        self.device = next((a.device for a in args if isinstance(a, torch.Tensor) and a.is_cuda), torch.device("cpu"))
        self.options, self.known, self.learned = with_link(options, self.device), known, known
        self.inductor = options.get("inner") == "inductor"
        if len(known.over) > PLANS and options.get("infeasible") != "least":
            raise Infeasible({"min_budget_bytes": min(known.over), "no_schedule_below_bytes": 0},
                             f"{len(known.over)} plans within {size(known.budget)} took more when they were measured, the best "
                             f"{min(known.over)} bytes ({size(min(known.over))})")
        self.plan = self.joint = self.measured_bytes = self.held_bytes = self._meter = self._watch = None
        self.seconds, self._returned = {}, []
        self.arena = Arena(self.device) if options.get("arena") and self.device.type == "cuda" else None
        self.capture = _capture.of(trace.graph_module, args, self.device, options, self.tell) if options.get("capture") else None
        self.static = static_blocks(args, options, held)
        if known.reserve:
            self.static.append(("learned", known.reserve))
        self.parameters = [weakref.ref(a) for a in args if isinstance(a, torch.nn.Parameter)]
        start = time.monotonic()
        kept = {k: v for k, v in self.options.items() if k not in ("quiet", "optimizer", "measure", "unused")}
        self._key = None if self.inductor or self.capture or "link" in kept or not torch.is_grad_enabled() else _cache.key_of(
            trace.text, args, self.device, sorted(kept.items()), self.static, known)
        if not (self._key and self._load()):
            self._trace = trace
            with Progress(self.tell, _measure.cache_file(self.device).with_suffix(".pace")) as self.progress:
                self.run = trace.compile(self, args)
            self.seconds["tracing"] = time.monotonic() - start - sum(self.seconds.values())
            self._trace = None
        self.seconds["all"] = time.monotonic() - start
        if self.plan:
            if self.plan.warning:
                warnings.warn(self.plan.warning, stacklevel=2)
            self._tell("" if known != Learned() or newest(p() for p in self.parameters) is None
                       else f"another plan, for inputs {shapes(args)}: ")
            steps[:] = [*(of for of in steps if of() is not None), weakref.ref(self)]

    def __call__(self, args):
        outputs = self.run(*args)
        if self.plan:
            _outputs.no_zeros(outputs)
        if self._meter and self.options.get("unused", True):
            self._watch = _outputs.Watch(outputs)
        return _outputs.refuse_gradient(outputs, self.kept.detached, args) if self.plan and self.kept.detached else outputs

    @property
    def settled(self):
        """Whether no other plan is to be expected."""
        recorded = not self.capture or self.capture.why_not or self.held_bytes is not None
        return self.learned is self.known and (not self.plan or not self.options.get("measure", True)
                                               or self.measured_bytes is not None and bool(recorded))

    def tell(self, text):
        if not self.options.get("quiet"):
            print(f"ckpt: {text}", flush=True)

    def _load(self):
        """Take what an earlier process planned; False: there is nothing."""
        start = time.monotonic()
        found = _cache.load(self._key)
        if not isinstance(found, Kept) or not _measure.unchanged(self.device, found.costs):
            return False
        try:
            self.kept = found
            self.plan, self.graph = found.plan, json.loads(found.plan.graph_json())
            run = found.wrappers.around(self._forward(found.forward.compile()), self._backward(found.backward.compile()))
        except Exception:  # PyTorch's own, of things that it does not promise
            self.plan = self.kept = None
            return False
        self.run = lambda *args: run(list(args))
        self.seconds["loading"] = time.monotonic() - start
        return True

    def compiled(self, state, capture):
        """AOTAutograd has compiled; keep it for other processes."""
        if self._key and self.plan:
            start = time.monotonic()
            wrappers = _cache.Wrappers.of(state, capture, self._saved)
            if wrappers:
                _cache.save(self._key, replace(self.kept, plan=self.plan.kept(), wrappers=wrappers))
            self.seconds["saving"] = time.monotonic() - start

    def _compile(self, module, inputs, backward=False):
        if not self.inductor:
            return (self.kept.backward if backward else self.kept.forward).compile() if self.plan else code_of(module).compile()
        start = time.monotonic()
        run = _inductor.compile_graph(module, inputs, backward, not self.plan)
        self.seconds["compiling"] = self.seconds.get("compiling", 0) + time.monotonic() - start
        return run

    # ---- AOTAutograd asks for these ----

    def partition(self, joint_module, joint_inputs, *, num_fwd_outputs, **how):
        start, fused = time.monotonic(), _inductor.Fused(joint_module)
        if self.inductor:
            self.progress.phase("compiling")
            fused = _inductor.fuse(joint_module, joint_inputs, num_fwd_outputs, **how)
            self.seconds["fusing"], start = time.monotonic() - start, time.monotonic()
        self.progress.phase(None)
        joint = Joint(fused.module, num_fwd_outputs, self._trace.absent, fused.inside)
        if self.inductor:
            _inductor.mark_calls(joint, fused)
        costs, rows = _measure.costs_of(joint, self.tell, fused.kernels)
        self.seconds["measuring"] = time.monotonic() - start
        if self.capture:
            self.joint = joint
            self.static.append(("copies", self.capture.copied_bytes(joint)))
        halves = self._planned(joint, costs, rows)
        why_not = self.capture and next(filter(None, (_capture.hindrance(half, self.device) for half in halves)), None)
        if why_not:  # then nothing is copied
            self.capture.leave(why_not)
            self.static.pop()
            halves = self._planned(joint, costs, rows)
        return halves

    def _planned(self, joint, costs, rows):
        """Forward and backward as planned."""
        start = time.monotonic()
        self.graph = joint.graph("step", self.static, costs, self.known.dropped, self.options.get("inplace", True) and not self.inductor)
        self.progress.phase("planning", len(self.graph["ops"]))
        self.plan = make_plan(self.graph, self._within(), self.tell)
        self.progress.phase("compiling")
        planned = time.monotonic()
        forward, backward, once = rewrite(joint, self.plan.steps)
        tangents = [n.meta["val"] for n in joint.tangents]
        self.kept = Kept(len(joint.fwd), joint.mutations, once, [(x.shape, x.stride(), x.dtype, x.device) for x in tangents],
                         self._trace.absent, self._trace.detached, rows, code_of(forward), code_of(backward))
        self._saved = len(forward.graph.output_node().args[0]) - len(joint.fwd)
        self.seconds["planning"], self.seconds["rewriting"] = planned - start, time.monotonic() - planned
        return forward, backward

    def _within(self):
        """The options, with the budget as it was before it was exceeded: a share would be one of more now."""
        return {**self.options, "budget": f"{self.known.budget}B"} if self.known.budget else self.options

    def forward(self, module, inputs):
        run = self._compile(module, inputs)
        if not self.plan:
            return run
        if self.capture:
            self.capture.add("forward", run, module)
        return self._forward(run)

    def backward(self, module, inputs):
        run = self._compile(module, inputs, backward=True)
        if self.capture:
            self.capture.add("backward", run, module)
        return self._backward(run)

    def _forward(self, run):
        def forward(args):
            self._meter = None
            if self.arena:
                self.arena.begin()
            if self.capture and self.capture.begins(args):
                return self.capture.forward(args, self.kept.outputs)
            meter = _measure.StepMeter(self.device)
            if self.measured_bytes is not None or not self.options.get("measure", True) or not meter.possible():
                return run(args)
            out, self._left = meter.run(run, args, 0)
            self._meter = meter
            self._returned = [(i, StorageWeakRef(x.untyped_storage()), x.untyped_storage().nbytes())
                              for i, x in enumerate(out[:self.kept.outputs])
                              if i >= self.kept.mutations and isinstance(x, torch.Tensor)]
            return out
        forward._boxed_call = True
        return forward

    def _backward(self, run):
        def measured(args):
            # The profiler counts the end of what it saw begin, and takes another block at the same address for it. So
            # the tangents, which it did not see, are copied, and stay until it stops.
            for i in range(len(args) - len(self.kept.tangents), len(args)):
                args[i] = args[i].clone() if isinstance(args[i], torch.Tensor) else args[i]
            return run(args)

        def backward(args):
            again = torch._C._autograd._get_current_graph_task_keep_graph()
            if self.kept.once and again:
                raise Unsupported("backward(retain_graph=True) needs what this plan writes over: options={'inplace': False}")
            self._fill(args)
            if self.capture and self.capture.follows(args):
                out = self.capture.backward(args, again)
                if self.held_bytes is None and self.options.get("measure", True):
                    self._learn_held()
                return out
            if self._meter is None:
                out = run(args)
            else:
                gone = sum(nbytes for _, storage, nbytes in self._returned if storage.expired())
                unseen = args[len(args) - len(self.kept.tangents):]
                out, _ = self._meter.run(measured, args, self._left - gone)
                del unseen
            if self.arena:
                self.arena.end()
            if self._meter:
                self._learn()
            if self.capture:
                self.capture.ran_whole(again)
            return out
        backward._boxed_call = True
        return backward

    def _fill(self, args):
        """Zeros for the tangents of outputs that got no gradient this time, but for those of which the plan knew it."""
        first = len(args) - len(self.kept.tangents)
        for i, (shape, stride, dtype, device) in enumerate(self.kept.tangents):
            if i in self.kept.absent:
                if args[first + i] is not None:
                    raise _outputs.unplanned(self.kept.absent[i])
            elif args[first + i] is None:
                args[first + i] = torch.empty_strided(shape, stride, dtype=dtype, device=device).zero_()

    def _static_bytes(self):
        return sum(nbytes for name, nbytes in self.static if name not in ("learned", "copies"))

    def _learn_held(self):
        """From a step that has been recorded: its graphs hold what it takes all the time."""
        self.held_bytes = self.capture.held_bytes()
        self.measured_bytes = self._static_bytes() + self.held_bytes + self.capture.outside_bytes(self.joint)
        self.tell(f"captured: peak {size(self.measured_bytes)}, of which CUDA graphs hold {size(self.held_bytes)} between steps too")
        self._learn_over(self.plan.summary["peak_bytes"])

    def _learn_over(self, predicted):
        budget = self.plan.summary["budget_bytes"]
        if budget and self.measured_bytes > budget:
            self.learned = replace(self.known, reserve=self.known.reserve + self.measured_bytes - predicted, budget=budget,
                                   over=(*self.known.over, self.measured_bytes))
            self.tell(f"that is {size(self.measured_bytes - budget)} over the budget: the next step is planned anew")

    def _learn(self):
        """From a step that was measured."""
        self.measured_bytes = self._meter.peak + self._static_bytes()
        dropped = tuple(i for i, storage, _ in self._returned if storage.expired())
        unused = self.known.unused + tuple(
            i for i in (self._watch.unused() if self._watch else ()) if i not in self.known.unused)
        predicted = self.plan.summary["peak_bytes"] - dict(self.static).get("copies", 0)
        self.tell(f"measured peak {size(self.measured_bytes)}, {100 * (self.measured_bytes / predicted - 1):+.2f} % of "
                  f"predicted")
        if unused != self.known.unused:
            self.learned = replace(self.known, dropped=dropped, unused=unused)
            self.tell("outputs of the model get no gradient: the next step is planned anew without those")
        elif dropped != self.known.dropped and predicted - self.measured_bytes > predicted // 200:
            self.learned = replace(self.known, dropped=dropped)
            self.tell("outputs of the model are not kept until backward ends: the next step is planned anew without them")
        else:
            self._learn_over(predicted)
        self._meter, self._watch, self._returned = None, None, []

    def _tell(self, why):
        s = self.plan.summary
        self.tell(f"{why}peak {size(s['peak_bytes'])} of {size(s['keep_all_peak_bytes'])} that keeping everything takes, time "
                  f"{100 * (s['time_ns'] / max(1, s['keep_all_time_ns']) - 1):+.1f} %; counted as there all the time: "
                  + ", ".join(f"{name} {size(b)}" for name, b in self.static)
                  + ("" if self.options.get("optimizer") is not None or "static_bytes" in self.options
                     else " (no optimizer state: options={'optimizer': ...})"))


def newest(parameters):
    """The newest Step in use that has one of these parameters, or None."""
    wanted = {id(p) for p in parameters}
    for reference in reversed(steps):
        step = reference()
        if step is not None and any(p() is not None and id(p()) in wanted for p in step.parameters):
            return step
    return None


def shapes(args):
    """Of the inputs that are no parameters, in words."""
    found = ["×".join(map(str, a.shape)) for a in args
             if isinstance(a, torch.Tensor) and a.dim() and not isinstance(a, torch.nn.Parameter)]
    return ", ".join(found[:4]) + (", …" if len(found) > 4 else "")


def with_link(options, device):
    """The options, with the measured rate of copies to the host where they ask for it."""
    if "link" in options and options.get("inner") == "inductor":
        raise Unsupported("option link: Inductor does not keep copies where the plan has them; options={'inner': 'eager'} does")
    if "link" in options and device.type != "cuda" and options.get("measure", True):
        raise Unsupported("option link: on the CPU a copy frees nothing; options={'measure': False} plans and runs it all the same")
    if options.get("link") != "measured":
        return options
    return {**options, "link": _copies.link(device)}


def make_plan(graph, options, tell):
    """A plan of a ckpt-graph under the options; raises Infeasible."""
    chosen = {k: v for k, v in options.items() if k not in OWN_OPTIONS or k == "budget"}
    chosen = {k: ("" if v is True else v) for k, v in chosen.items() if v is not None and v is not False}
    plan = _lib.Plan("step", graph, chosen)
    if plan.fits:
        return plan
    s = plan.summary
    text = (f"no plan within {size(s['budget_bytes'])}: {s['min_budget_bytes']} bytes ({size(s['min_budget_bytes'])}) "
            f"suffice" + (f"; below {s['no_schedule_below_bytes']} bytes there is none, proved"
                          if s["no_schedule_below_bytes"] else ""))
    if options.get("infeasible") != "least":
        raise Infeasible(s, text)
    plan = _lib.Plan("step", graph, {**chosen, "budget": f"{s['min_budget_bytes']}B"})
    if not plan.fits:
        raise Infeasible(plan.summary, text)
    plan.warning = "ckpt: " + text + "; that budget is taken"
    return plan


def static_blocks(args, options, held):
    """[(name, bytes)] of what is in memory during the whole step. Tensors that share memory count once."""
    seen, sizes = set(), {"weights": 0, "inputs": 0}
    for a in args:
        if isinstance(a, torch.Tensor) and storage_of(a) not in seen:
            seen.add(storage_of(a))
            sizes["weights" if isinstance(a, torch.nn.Parameter) else "inputs"] += a.untyped_storage().nbytes()
    if held:
        sizes["gradients"] = held
    if options.get("optimizer") is not None:
        sizes["optimizer"] = optimizer_bytes(options["optimizer"])
    if "static_bytes" in options:
        sizes["other"] = int(options["static_bytes"])
    return [(name, b) for name, b in sizes.items() if b]


def optimizer_bytes(optimizer):
    """Bytes of an optimizer's state: as it is, or as it will be after its first step, which is tried on tensors without
    memory."""
    state = optimizer.state
    if not state:
        groups = []
        for group in optimizer.param_groups:
            shadows = [torch.nn.Parameter(torch.empty_like(p, device="meta"), p.requires_grad) for p in group["params"]]
            for p in shadows:
                p.grad = torch.empty_like(p) if p.requires_grad else None
            groups.append({**group, "params": shadows, "foreach": False, "fused": None}
                          if "foreach" in group else {**group, "params": shadows})
        try:
            shadow = type(optimizer)(groups)
            shadow.step()
        except Exception as error:
            raise Unsupported(f"the state of {type(optimizer).__name__} cannot be found before its first step ({error}); "
                              f"options={{'static_bytes': ...}} says it") from error
        state = shadow.state
    return sum(x.numel() * x.element_size() for values in state.values() for x in torch.utils._pytree.tree_leaves(dict(values))
               if isinstance(x, torch.Tensor))

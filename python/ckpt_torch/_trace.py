"""AOTAutograd's joint graph of a model, traced once for a set of shapes: every plan of them begins there.

A plan that knows more (outputs without a gradient, outputs that are dropped, what was measured) is of the same graph. A
tangent that never comes is taken out of it as autograd would have traced it without.
"""

import contextlib
import copy
import dataclasses
import functools
import gc
import inspect
import threading

import torch
from torch._functorch import aot_autograd
from torch._logging import _internal
from torch.fx import map_arg
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.utils import _pytree as pytree

from . import _cache, _inductor, _outputs, _random
from ._joint import is_tangent, storages

_lock = threading.RLock()
COMPILERS_ARE_ARGUMENTS = len(inspect.signature(aot_autograd.aot_stage2_compile).parameters) > 2  # as in PyTorch 2.9 they are not


@contextlib.contextmanager
def in_haste():
    """Tracing makes millions of objects that live on: looking through them for garbage takes a tenth of its time. And no code
    is written for graphs that nobody calls."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        with _use_lazy_graph_module(True):
            yield
    finally:
        if enabled:
            gc.enable()


def _compiled(state, capture, step):
    """AOTAutograd's function of a list of arguments, made by the step's own compilers."""
    if not (_internal.log_state.artifact_names or _internal.trace_log.handlers):  # nobody logs texts of the graphs
        state.aot_config = dataclasses.replace(state.aot_config, enable_log=False)
    compilers = {"partition_fn": step.partition, "fw_compiler": step.forward, "bw_compiler": step.backward,
                 "inference_compiler": step.forward}
    if not COMPILERS_ARE_ARGUMENTS:
        state.aot_config = dataclasses.replace(state.aot_config, **compilers)
        compilers = {}
    run, _ = aot_autograd.aot_stage2_compile(state, capture, *compilers.values())
    return run


class Trace:
    """A graph of Dynamo for inputs of some shapes.

    detached   indices of outputs that have no gradient in the graph as it was traced
    absent     {index of a tangent: that of its output}: taken out of it afterwards
    """

    def __init__(self, graph_module):
        self.graph_module, self.detached, self.absent = graph_module, (), {}
        self._stage = None  # (what AOTAutograd compiles, metadata before, constants); None: not traced, or of tensor subclasses

    @property
    def unused(self):
        """Indices of outputs without a gradient."""
        return (*self.detached, *self.absent.values())

    @functools.cached_property
    def text(self):
        """The graph in words, or None: what another process plans for it may not be used."""
        with contextlib.suppress(Exception):  # PyTorch raises many
            return _cache.graph_text(self.graph_module)
        return None

    def compile(self, step, args):
        """A function of `args` that runs what the step plans; its partition(), forward() and backward() are called."""
        wanted = [i for i in step.known.unused if i not in self.unused]
        with _lock, in_haste(), torch.random.fork_rng(devices=[]), contextlib.ExitStack() as stack:
            # Recorded graphs take tensors only.
            if self._stage is None or wanted and step.capture or not self._take_out(wanted):
                self.detached, self.absent, self._stage = step.known.unused, {}, None
                state, capture, constants = self._traced(step, args, stack)
                metadata = copy.copy(state.fw_metadata)
            else:
                state, capture, metadata, constants = self._stage
                state.fw_metadata = copy.copy(metadata)  # compiling changes it
            with torch._dynamo.compiled_autograd._disable():
                run = _compiled(state, capture, step)
            if not step.inductor:  # Step.backward() knows what it writes over, and refuses to run twice where it does
                state.fw_metadata.bw_donated_idxs = []
            if state.needs_autograd and capture.maybe_subclass_meta is None:
                self._stage = state, capture, metadata, constants
                if not constants:
                    step.compiled(state, capture)
            return lambda *args: run([*constants, *args])

    def _traced(self, step, args, stack):
        """What AOTAutograd compiles, and the tensors that the graph holds itself: arguments before all others."""
        step.progress.phase("tracing", len(self.graph_module.graph.nodes))
        module = _outputs.without_gradient(self.graph_module, self.detached)
        joint = aot_autograd.aot_export_joint_with_descriptors(
            stack, module, args, decompositions=_inductor.decompositions() if step.inductor else _random.decompositions())
        return joint._aot_state, joint._aot_graph_capture, [
            x for named in (module.named_parameters, module.named_buffers) for _, x in named(remove_duplicate=False)]

    def _take_out(self, outputs):
        """Take the tangents of outputs out of the joint graph; False: it is to be traced anew."""
        graph = self._stage[1].graph_module.graph
        tangents = [n for n in graph.nodes if is_tangent(n)]
        of = {getattr(getattr(n.meta.get("desc"), "output", None), "idx", None): i for i, n in enumerate(tangents)
              if type(n.meta["desc"].output).__name__ == "PlainAOTOutput"}
        if not all(i in of for i in outputs) or not without(graph, {tangents[of[i]] for i in outputs}):
            return False
        self.absent = {**self.absent, **{of[i]: i for i in outputs}}
        return True


def without(graph, tangents):
    """Take tangents out of a joint graph: what depends on them alone goes, a sum is its other term. False, with nothing
    changed, where anything else joins them with others."""
    depends, gone, instead = set(), set(), {}
    for node in graph.nodes:
        if is_tangent(node):
            depends.add(node)
            if node in tangents:
                gone.add(node)
            continue
        inputs = [n for n in node.all_input_nodes if n in depends]
        if not inputs or node.op == "output":
            continue
        depends.add(node)
        left = [n for n in inputs if n not in gone]
        if not left:
            gone.add(node)
        elif len(left) < len(inputs):
            if node.target is not torch.ops.aten.add.Tensor or node.kwargs or not _alike(node, left[0]):
                return False
            instead[node] = instead.get(left[0], left[0])
    for node, other in instead.items():
        node.replace_all_uses_with(other)
    sums = {s for node in instead for s in storages(node)}
    for node in graph.nodes:  # views of a sum are views of its other term now
        if node.op == "call_function" and node not in instead and node not in gone and sums & set(storages(node)):
            with torch._guards.detect_fake_mode(node.meta["val"]):
                arguments, keywords = map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
                node.meta["val"] = node.target(*arguments, **keywords)
    output = graph.output_node()
    output.args = pytree.tree_map(lambda n: None if n in gone else n, output.args)
    for node in reversed(list(graph.nodes)):
        if node in instead or node in gone and node not in tangents:
            graph.erase_node(node)
    return True


def _alike(node, other):
    a, b = node.meta["val"], other.meta["val"]
    return a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype and a.device == b.device

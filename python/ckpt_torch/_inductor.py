"""Inductor's kernels under a plan.

What is planned is what torch.compile alone would run, but for the patterns that Inductor looks for in each half: PyTorch's
own partitioner says what backward computes anew because it fuses, and Inductor's scheduler says which values its kernels
write to memory. A value that stays inside kernels is computed wherever it is read, as a view is. What the planner keeps or
recomputes are the others. Then each half of the plan is given to Inductor as the plan orders it.

Inductor may fuse a half otherwise than it did before, and reorder it: bits are not those of eager, and the peak is known
when it is measured.
"""

import contextlib
import copy
import operator
from dataclasses import dataclass

import torch
from torch._dynamo.utils import detect_fake_mode
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.utils import _pytree as pytree

from . import _random
from ._rewrite import RECOMPUTED

CALL = "ckpt_call"  # key of a node's meta


@dataclass
class Fused:
    """A joint graph as Inductor would run it.

    module   the joint graph: what forward computes, then what backward computes
    inside   its nodes whose values no kernel writes to memory
    kernels  its nodes that are computed by kernels which Inductor writes; library calls are not
    """

    module: GraphModule
    inside: set = frozenset()
    kernels: set = frozenset()


def _random_is_eagers():
    """Random ops stay PyTorch's own: they draw what eager draws, in the order of the graph."""
    from torch._inductor import config
    return config.patch(fallback_random=True)


def decompositions():
    """For AOTAutograd: Inductor's, and dropout as in eager but for its arithmetic, which is to fuse."""
    from torch._inductor.decomposition import select_decomp_table
    with _random_is_eagers():
        return {**select_decomp_table(), **_random.decompositions(),
                torch.ops.ckpt.apply_mask.default: lambda x, mask, keep: mask.to(x.dtype).div(keep).mul(x)}


def fuse(joint_module, joint_inputs, num_fwd_outputs, **how):
    """The Fused of a joint graph; arguments as AOTAutograd gives them to its partition_fn."""
    from torch._inductor.compile_fx import partition_fn
    from torch._inductor.virtualized import V
    joint_module = GraphModule(joint_module, copy.deepcopy(joint_module.graph))  # the next plan begins with what was given
    placeholders, output = joint_module.graph.find_nodes(op="placeholder"), joint_module.graph.output_node()
    mode = detect_fake_mode(joint_inputs)
    with V.set_fake_mode(mode), _random_is_eagers():
        halves = partition_fn(joint_module, joint_inputs, num_fwd_outputs=num_fwd_outputs, **how)
    graph, attributes, outputs, inside, kernels = Graph(), {}, [], set(), set()
    named = {node.target: graph.node_copy(node) for node in placeholders}  # what a half may ask for
    for half, backward in zip(halves, (False, True)):
        written, computed = _schedule(half, backward)
        now = {}
        for node in half.graph.nodes:
            if node.op == "placeholder":
                now[node] = named[node.target]
            elif node.op == "output":
                outputs += [now.get(x, x) if isinstance(x, Node) else x for x in pytree.arg_tree_leaves(*node.args)][
                    :None if backward else num_fwd_outputs]
            else:
                if node.op == "get_attr":
                    attributes[node.target] = getattr(half, node.target)
                copied = now[node] = graph.node_copy(node, now.__getitem__)
                copied.meta = {**node.meta, "partitioner_tag": "is_backward" if backward else "is_forward"}
                if node.name in computed:
                    kernels.add(copied)
                    if node.name not in written:
                        inside.add(copied)
        for node in half.graph.nodes:  # all outputs of a node are written, or none
            if node.target is operator.getitem and node.name in written:
                inside -= {now[node.args[0]], *(now[n] for n in node.args[0].users)}
        named.update((node.name, other) for node, other in now.items())
    graph.output(outputs).meta.update(output.meta)
    module = GraphModule(attributes, graph)
    with _constants_are_taken(mode):  # passes leave nodes without a fake value, or with one that does not tell what is a view
        FakeTensorProp(module, mode).propagate_dont_convert_inputs(*[n.meta["val"] for n in placeholders])
    return Fused(module, inside, kernels)


def mark_calls(joint, fused):
    """Note at the nodes of a Joint of `fused` which of them are library calls: compile_graph() reads it."""
    for op in joint.ops:
        if op.kind == "node" and op.node not in fused.kernels:
            op.node.meta[CALL] = True


def _schedule(half, backward):
    """Of a half, as Inductor would run it: the names of nodes whose values its kernels write to memory, and of all that its
    kernels compute."""
    from torch._inductor import config
    order = {node.name: i for i, node in enumerate(half.graph.nodes)}
    written, computed, ended = set(), set(), []

    def look(kernels):
        for kernel in kernels:
            if kernel.is_extern():
                continue
            own = {node.get_name() for node in kernel.get_nodes()}
            for buffer in kernel.get_outputs():
                computed.update(n.name for n in buffer.node.get_origins() if n.name in order)
                if any(user.get_name() not in own for user in buffer.users):
                    written.add(_origin(buffer, order))
        ended.append(True)
        raise RuntimeError("the schedule is all that was wanted")

    module = GraphModule(half, copy.deepcopy(half.graph))
    inputs = [n.meta["val"] for n in half.graph.find_nodes(op="placeholder")]
    with config.patch(_post_fusion_custom_pass=look, fx_graph_cache=False):
        try:
            _compile(module, inputs, backward, False)
        except Exception:
            if not ended:
                raise
    return written, computed


def compile_graph(module, inputs, backward, inference):
    """As _run.Code.compile(), of a module.

    module   of a plan of a Fused: its nodes' meta says what is RECOMPUTED and what is a CALL
    inputs   fake tensors
    """
    from torch._inductor.virtualized import V
    half = GraphModule(module, copy.deepcopy(module.graph))
    mode = detect_fake_mode(inputs)
    with _constants_are_taken(mode):  # what is recomputed lies elsewhere than what was computed first
        FakeTensorProp(half, mode).propagate_dont_convert_inputs(*inputs)
    if not any(RECOMPUTED in node.meta for node in half.graph.nodes):  # as Inductor likes
        return _compile(half, inputs, backward, inference)
    from torch._inductor import config
    # PyTorch keeps compiled graphs by their nodes, which do not say what is recomputed: of these it keeps none.
    with V.set_choices_handler(_as_planned(half.graph)), config.patch(
            reorder_for_peak_memory=False, _pre_fusion_custom_pass=_in_order, fx_graph_cache=False):
        return _compile(half, inputs, backward, inference)


def _as_planned(graph):
    """Inductor's choices, but that what is recomputed fuses only with what the plan runs beside it, between two library
    calls: fused with another kernel it would be computed when that one is, and stay in memory from then on."""
    from torch._inductor.choices import InductorChoices
    span, spans, recomputed = 0, {}, set()
    for node in graph.nodes:
        span += node.meta.get(CALL, False)
        spans[node.name] = span
        if RECOMPUTED in node.meta:
            recomputed.add(node.name)

    class AsPlanned(InductorChoices):
        @staticmethod
        def can_fuse(scheduler, one, other, score):
            names = {_origin(n, spans) for kernel in (one, other) for n in kernel.get_nodes()} - {None}
            if names & recomputed and len({spans[name] for name in names}) > 1:
                return False
            return InductorChoices.can_fuse(scheduler, one, other, score)
    return AsPlanned()


def _origin(scheduler_node, order):
    """The name of the graph's node whose value a node of Inductor's scheduler writes, or None.

    order   {name: a number that does not fall along the graph}
    """
    node = scheduler_node.node
    if node is None:
        return None
    if node.get_origin_node() is not None and node.get_origin_node().name in order:
        return node.get_origin_node().name
    return max((n.name for n in node.get_origins() if n.name in order), key=order.get, default=None)


def _in_order(nodes):
    """Nodes of Inductor's scheduler in the order of the graph, which is the plan's. It has them in the order in which it found
    that it must write their values."""
    from torch._inductor.virtualized import V
    place = {node.name: i for i, node in enumerate(V.graph.module.graph.nodes)}
    first = {node: place.get(_origin(node, place), 0) for node in nodes}
    nodes = nodes[0].scheduler.topological_sort_schedule(sorted(nodes, key=first.get)) if nodes else nodes
    for i, node in enumerate(nodes):
        node.min_order = node.max_order = i
    return nodes


def _compile(graph_module, inputs, backward, inference):
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_inner
    output = graph_module.graph.output_node()
    # Backward, traced already, expects what forward saves in the strides that it was traced with.
    output.meta["user_visible_output_idxs"] = [
        i for i, n in enumerate(pytree.arg_tree_leaves(*output.args)) if isinstance(n, Node)]
    # Its patterns would join a product with a sum that comes later, and so move the product.
    with _random_is_eagers(), config.patch(pattern_matcher=False), torch.no_grad(), _constants_are_taken(detect_fake_mode(inputs)):
        return compile_fx_inner(graph_module, inputs, is_backward=backward, is_inference=inference, layout_opt=False)


@contextlib.contextmanager
def _constants_are_taken(mode):
    """Tensors that the model's graph holds as constants are real."""
    before = mode.allow_non_fake_inputs
    mode.allow_non_fake_inputs = True
    try:
        yield
    finally:
        mode.allow_non_fake_inputs = before

"""A plan as two graphs, forward and backward, in which every run is a node of its own, in the plan's order."""

import torch
from torch.fx import Graph, GraphModule, Node, map_arg

from . import _copies, _lib, _random
from ._inplace import out_overload
from ._joint import device_of, storage_of, storages, tensors

RECOMPUTED = "ckpt_recomputed"  # key of the meta of nodes that compute what was computed before


class Half(GraphModule):
    """One of the two. It is never changed, so a deep copy may be the module itself. Its code is written when it is called, which
    only Inductor does."""

    def __deepcopy__(self, memo):
        return self

    def recompile(self):
        pass

    def forward(self, *args):
        super().recompile()
        return type(self).forward(self, *args)


def rewrite(joint, steps):
    """Forward and backward modules that run `steps` of a plan of `joint`, and whether backward writes over what forward
    kept for it.

    steps   as _lib.Plan has them
    """
    rewriter = _Rewriter(joint, steps)
    return (*rewriter.modules(), rewriter.once)


class _Rewriter:
    def __init__(self, joint, steps):
        self.joint, self.steps = joint, steps
        self.graph = self.forward = Graph()  # the one that is being written
        self.backward = Graph()
        self.now = {}  # node of the joint graph -> node that holds its value now: inputs, outputs of ops
        self.views = {}  # (graph, view, its arguments now, for what is inside of kernels the turn) -> node
        self.turn, self.recomputing = 0, False  # how many ops have run, and whether the one that runs has run before
        self.saved = {}  # nodes of the forward graph that the backward graph reads -> their placeholders there
        self.once, self.kept = False, set()  # storages of what is saved
        ran_again = {index for action, index, recomputed, _ in steps if action == _lib.RUN and recomputed}
        self.on_host, self.coming = {}, {}  # key of self.now -> node of its copy there; of what was fetched and not read yet
        self.storages, self.writer = list(joint.buffers), {s: op for op in joint.ops for s in op.writes}
        self.kept_helpers = {id(h) for i in ran_again for h in self._helpers(joint.ops[i])}
        for node in joint.module.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                self.now[node] = self._given(self.backward if node in joint.tangents else self.forward, node)
        self.front = {False: self.now[joint.tangents[0]], True: self.now[joint.tangents[0]]}

    @staticmethod
    def _given(graph, node):
        copy = graph.node_copy(node)
        copy.meta = dict(node.meta)
        return copy

    @staticmethod
    def _helpers(op):
        return ([op.state] if op.state else []) + list(op.snapshots.values())

    def _here(self, node):
        """A node of the forward graph, or what is saved of it where the backward graph is written."""
        if node.graph is self.graph:
            return node
        if node not in self.saved:
            if node.op == "get_attr":
                with self.graph.inserting_before(self.front[False]):
                    self.saved[node] = self._given(self.graph, node)
                return self.saved[node]
            # PyTorch wants last those of which it is not to check that nobody wrote into them.
            unchecked = bool(node.meta.get("saved_tensor_with_no_vc_check"))
            with self.graph.inserting_before(self.front[unchecked]):
                self.saved[node] = self.graph.placeholder(node.name)
            self.saved[node].meta = dict(node.meta)
            self.kept.update(storages(node))
            if unchecked and self.front[False] is self.front[True]:
                self.front[False] = self.saved[node]
        return self.saved[node]

    def value(self, node):
        """The node that holds the value of `node` now; views are made anew where they are not there."""
        if node in self.now:
            return self._held(node)
        arguments = tuple(self.value(n) for n in node.all_input_nodes)
        key = (self.graph, node, arguments, self.turn if node in self.joint.inside else None)
        if key not in self.views:
            self.views[key] = self._copy(node, self.value)
        return self.views[key]

    def _copy(self, node, value):
        copy = self.graph.node_copy(node, value)
        copy.meta = dict(node.meta)
        if self.recomputing:
            copy.meta[RECOMPUTED] = True
        return copy

    def _run_inplace(self, op):
        overload, name = out_overload(op.node.target)
        arguments, keywords = map_arg(op.node.args, self.value), map_arg(op.node.kwargs, self.value)
        self.once |= storage_of(arguments[op.inplace].meta["val"]) in self.kept
        copy = self.graph.call_function(overload, arguments, {**keywords, name: arguments[op.inplace]})
        copy.meta = dict(op.node.meta)
        return copy

    def _call(self, function, arguments, value):
        """A new node that calls one of our own functions; `value` gives its fake tensor."""
        node = self.graph.call_function(function, arguments)
        node.meta["val"] = value
        return node

    def _held(self, key):
        """The node of a key of self.now, in the graph that is being written; what is coming is waited for."""
        if key in self.coming:
            node = self.coming.pop(key)
            self.now[key] = self._call(_copies.ready, (self._here(node),), node.meta["val"])
        return self._here(self.now[key])

    def _keys(self, buffer):
        """Keys of self.now whose tensors lie in a buffer of the joint graph; none of a helper's that nobody needs."""
        storage = self.storages[buffer]
        op = self.writer[storage]
        if op.kind != "node":
            return [id(op)] if id(op) in self.kept_helpers else []
        return [n for n in [op.node, *op.getitems] if isinstance(n.meta["val"], torch.Tensor) and storage_of(n.meta["val"]) == storage]

    def _move(self, action, buffer):
        for key in self._keys(buffer):
            if action == _lib.OFFLOAD:
                node = self.now[key]
                fake = node.meta["val"]
                with fake.fake_mode:
                    host = torch.empty_strided(fake.size(), fake.stride(), dtype=fake.dtype)
                self.on_host[key] = self._call(_copies.offload, (self._here(node),), host), node
            elif action == _lib.FREE and key in self.on_host and self.on_host[key][1] is self.now[key]:
                host, node = self.on_host[key]
                self._call(_copies.free, (self._here(node), self._here(host)), None)
            elif action == _lib.FETCH:
                host, node = self.on_host[key]
                fake = node.meta["val"]
                self.now[key] = self.coming[key] = self._call(_copies.fetch, (self._here(host), fake.device), fake)

    def _run(self, op, recomputed, inplace):
        if op.kind == "outside":
            self.fwd_outputs = [self.value(n) if isinstance(n, Node) else n for n in self.joint.fwd]
            self.graph = self.backward
            return
        if op.kind != "node":
            if id(op) in self.kept_helpers:
                self._run_helper(op)
            return
        held = {}
        if recomputed and op.snapshots:
            held = {p: self.now[p] for p in op.snapshots}
            self.now.update({p: self._held(id(helper)) for p, helper in op.snapshots.items()})
        if inplace:
            self.now[op.node] = self._run_inplace(op)
        elif recomputed and op.random:
            arguments = map_arg(op.node.args, self.value)
            keywords = map_arg(op.node.kwargs, self.value)
            copy = self.graph.call_function(_random.replay(op.node.target), (self._held(id(op.state)), *arguments), keywords)
            copy.meta = {k: v for k, v in op.node.meta.items() if k != "eager_input_vals"}  # it has one argument more
            copy.meta[RECOMPUTED] = True
            self.now[op.node] = copy
        else:
            self.now[op.node] = self._copy(op.node, self.value)
        self.now.update(held)
        for item in op.getitems:
            self.now[item] = self._copy(item, self.value)

    def _run_helper(self, op):
        if op.kind == "state":
            node = self.graph.call_function(torch.ops.ckpt.state.default, (device_of(op.of),))
            some = tensors(op.of.meta["val"])[0]
            with some.fake_mode:
                node.meta["val"] = torch.empty(torch.get_rng_state().shape, dtype=torch.uint8)
        else:
            node = self.graph.call_function(torch.ops.aten.clone.default, (self._held(op.of),))
            node.meta["val"] = op.of.meta["val"]
        self.now[id(op)] = node

    def modules(self):
        for action, index, recomputed, inplace in self.steps:
            if action == _lib.RUN:
                self.turn, self.recomputing = self.turn + 1, recomputed
                self._run(self.joint.ops[index], recomputed, inplace)
                self.recomputing = False
            else:
                self._move(action, index)
        outputs = [self.value(n) if isinstance(n, Node) else n for n in self.joint.bwd]
        origin = {placeholder: node for node, placeholder in self.saved.items()}
        saved = [origin[n] for n in self.backward.nodes if n.op == "placeholder" and n in origin]
        return tuple(self._module(graph, values) for graph, values in (
            (self.forward, [*self.fwd_outputs, *saved]), (self.backward, outputs)))

    def _module(self, graph, outputs):
        graph.output(tuple(outputs))
        return Half(self.joint.module, graph)

"""A plan as a joint graph in which every run is a node of its own, in the plan's order; and its two halves."""

import torch
from torch._functorch.partitioners import _extract_fwd_bwd_modules
from torch.fx import Graph, GraphModule, Node, map_arg

from . import _copies, _lib, _random
from ._inplace import out_overload
from ._joint import device_of, storage_of, tensors


def rewrite(joint, steps, num_fwd_outputs):
    """Forward and backward modules that run `steps` of a plan of `joint`, and whether backward writes over what forward
    kept for it.

    steps   as _lib.Plan has them
    """
    rewriter = _Rewriter(joint, steps, num_fwd_outputs)
    return (*rewriter.modules(), rewriter.once)


class _Rewriter:
    def __init__(self, joint, steps, num_fwd_outputs):
        self.joint, self.steps, self.num_fwd_outputs = joint, steps, num_fwd_outputs
        self.graph = Graph()
        self.now = {}  # node of the joint graph -> node that holds its value now: inputs, outputs of ops
        self.views = {}  # (part, view, its arguments now) -> node
        self.part = "must_be_in_forward"
        self.saved = {}  # nodes of the forward part that the backward part reads
        self.forward_nodes = set()
        self.once = False
        ran_again = {index for action, index, recomputed, _ in steps if action == _lib.RUN and recomputed}
        self.on_host, self.coming = {}, {}  # key of self.now -> node of its copy there; of what was fetched and not read yet
        self.storages, self.writer = list(joint.buffers), {s: op for op in joint.ops for s in op.writes}
        self.kept_helpers = {id(h) for i in ran_again for h in self._helpers(joint.ops[i])}
        for node in joint.module.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                copy = self.graph.node_copy(node)
                copy.meta = dict(node.meta)
                self.now[node] = copy
                if node.op == "placeholder" and node not in joint.tangents:
                    self.forward_nodes.add(copy)

    @staticmethod
    def _helpers(op):
        return ([op.state] if op.state else []) + list(op.snapshots.values())

    def _emit(self, node):
        """Note where a new node is; of what it reads from the forward part, that it must be saved."""
        node.meta["partitioner_tag"] = self.part
        if self.part == "must_be_in_forward":
            self.forward_nodes.add(node)
        else:
            for argument in node.all_input_nodes:
                if argument in self.forward_nodes:
                    self.saved[argument] = None
        return node

    def value(self, node):
        """The node that holds the value of `node` now; views are made anew where they are not there."""
        if node in self.now:
            self._wait(node)
            return self.now[node]
        arguments = tuple(self.value(n) for n in node.all_input_nodes)
        key = (self.part, node, arguments)
        if key not in self.views:
            self.views[key] = self._copy(node, self.value)
        return self.views[key]

    def _copy(self, node, value):
        copy = self.graph.node_copy(node, value)
        copy.meta = {k: v for k, v in node.meta.items() if k != "partitioner_tag"}
        return self._emit(copy)

    def _run_inplace(self, op):
        overload, name = out_overload(op.node.target)
        arguments, keywords = map_arg(op.node.args, self.value), map_arg(op.node.kwargs, self.value)
        if self.part == "must_be_in_backward" and arguments[op.inplace] in self.forward_nodes:
            self.once = True
        copy = self.graph.call_function(overload, arguments, {**keywords, name: arguments[op.inplace]})
        copy.meta = {k: v for k, v in op.node.meta.items() if k != "partitioner_tag"}
        return self._emit(copy)

    def _call(self, function, arguments, value):
        """A new node that calls one of our own functions; `value` gives its fake tensor."""
        node = self.graph.call_function(function, arguments)
        node.meta["val"] = value
        return self._emit(node)

    def _wait(self, key):
        if key in self.coming:
            node = self.coming.pop(key)
            self.now[key] = self._call(_copies.ready, (node,), node.meta["val"])

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
                self.on_host[key] = self._call(_copies.offload, (node,), host), node
            elif action == _lib.FREE and key in self.on_host and self.on_host[key][1] is self.now[key]:
                host, node = self.on_host[key]
                self._call(_copies.free, (node, host), None)
            elif action == _lib.FETCH:
                host, node = self.on_host[key]
                fake = node.meta["val"]
                self.now[key] = self.coming[key] = self._call(_copies.fetch, (host, fake.device), fake)

    def _run(self, op, recomputed, inplace):
        if op.kind == "outside":
            self.fwd_outputs = [self.value(n) if isinstance(n, Node) else n for n in self.joint.fwd]
            self.part = "must_be_in_backward"
            return
        if op.kind != "node":
            if id(op) in self.kept_helpers:
                self._run_helper(op)
            return
        held = {}
        if recomputed and op.snapshots:
            held = {p: self.now[p] for p in op.snapshots}
            for helper in op.snapshots.values():
                self._wait(id(helper))
            self.now.update({p: self.now[helper] for p, helper in ((p, id(h)) for p, h in op.snapshots.items())})
        if inplace:
            self.now[op.node] = self._run_inplace(op)
        elif recomputed and op.random:
            arguments = map_arg(op.node.args, self.value)
            keywords = map_arg(op.node.kwargs, self.value)
            self._wait(id(op.state))
            copy = self.graph.call_function(_random.replay(op.node.target), (self.now[id(op.state)], *arguments), keywords)
            copy.meta = {k: v for k, v in op.node.meta.items() if k != "partitioner_tag"}
            self._emit(copy)
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
            node = self.graph.call_function(torch.ops.aten.clone.default, (self.now[op.of],))
            node.meta["val"] = op.of.meta["val"]
        self.now[id(op)] = self._emit(node)

    def modules(self):
        for action, index, recomputed, inplace in self.steps:
            if action == _lib.RUN:
                self._run(self.joint.ops[index], recomputed, inplace)
            else:
                self._move(action, index)
        outputs = [self.value(n) if isinstance(n, Node) else n for n in self.joint.bwd]
        for node in outputs:
            if isinstance(node, Node) and node in self.forward_nodes:
                self.saved[node] = None
        old = next(n for n in reversed(self.joint.module.graph.nodes) if n.op == "output")
        output = self.graph.output([*self.fwd_outputs, *outputs])
        output.meta.update(old.meta)
        module = GraphModule(self.joint.module, self.graph)
        saved = [n for n in self.saved if tensors(n.meta.get("val"))]
        for node in saved:  # PyTorch 2.9 takes no input of backward that must be in forward
            if node.op == "call_function":
                node.meta["partitioner_tag"] = "is_forward"
        return _extract_fwd_bwd_modules(module, saved, saved_sym_nodes=[], num_fwd_outputs=self.num_fwd_outputs)



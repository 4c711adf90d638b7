"""The joint graph of AOTAutograd as a ckpt-graph: one op for each node that computes, one buffer for each storage.

A node whose outputs all lie in storages of its inputs is a view: no op, made anew wherever it is read. Random ops read a
buffer with the state of the generator, which an op of its own writes, so that a plan that recomputes them keeps it. The
same holds for what is read of inputs that the step changes (batch norm's statistics): recomputation reads a copy. What
PyTorch does between forward and backward, the loss of a caller, is one op that reads the outputs and writes the tangents.
"""

import inspect
import operator
import re
from dataclasses import dataclass, field

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

OUTSIDE = "outside"
# Newer versions of PyTorch hand the tangents to backward in a list, which gives each of them up when it is taken.
TANGENTS_ARE_GIVEN_UP = "boxed_grads_call" in inspect.getsource(torch.autograd.function)


class Unsupported(RuntimeError):
    """The step has something that this backend does not plan; the message says what and where."""


@dataclass
class Cost:
    ns: int
    workspace: int  # bytes
    bytes: dict  # storage -> bytes that the output really takes
    inplace: list  # arguments whose memory the output may take, best first


@dataclass
class Op:
    name: str
    node: Node | None = None  # None: not in the joint graph
    kind: str = "node"  # "node", "state" (of a generator), "snapshot" (of an input), "outside"
    backward: bool = False
    recompute: bool = True
    random: bool = False
    layer: str | None = None
    reads: list = field(default_factory=list)  # storages
    writes: list = field(default_factory=list)
    getitems: list = field(default_factory=list)
    of: Node | None = None  # the random node of a state, the placeholder of a snapshot
    snapshots: dict = field(default_factory=dict)  # placeholder -> op, for recomputation
    inplace: int | None = None  # of its arguments, the one whose memory its output may take
    state: "Op | None" = None


def tensors(value):
    return [x for x in pytree.tree_leaves(value) if isinstance(x, torch.Tensor)]


def storage_of(tensor):
    return tensor.untyped_storage()._cdata


def storages(node):
    found = {}
    for tensor in tensors(node.meta.get("val")):
        found[storage_of(tensor)] = tensor.untyped_storage().nbytes()
    return found


def is_tangent(node):
    return node.op == "placeholder" and "tangents" in str(node.target)


def where(node):
    """The line of the user's program that a node comes from, as far as PyTorch knows."""
    trace = node.meta.get("stack_trace") or ""
    lines = re.findall(r'File "(.*)", line (\d+)', trace)
    return " at %s:%s" % lines[-1] if lines else ""


def module_of(node):
    """The name of the nn.Module that a node was traced in, "h.0.attn", or None."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not stack:
        return None
    path = str(list(stack.values())[-1][0])
    path = re.sub(r"^L\['\w+'\]", "", path).replace("._modules", "")
    path = re.sub(r"\['?([^'\]]+)'?\]", r".\1", path).replace("_orig_mod.", "").strip(".")
    return path or "model"


def is_random(node):
    target = node.target
    if torch.Tag.nondeterministic_seeded not in getattr(target, "tags", ()):
        return False
    for i, argument in enumerate(target._schema.arguments):
        if argument.name == "dropout_p":  # attention without dropout draws nothing
            value = node.args[i] if i < len(node.args) else node.kwargs.get("dropout_p", argument.default_value)
            return value != 0
    return True


def may_recompute(node):
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return False
    return target.namespace != "_c10d_functional" and torch.Tag.nondeterministic_bitwise not in target.tags


class Joint:
    """What a joint graph computes.

    ops        Op, in reference order
    buffers    {storage: (name, bytes, kind)}
    fwd, bwd   output values of forward and backward (nodes, constants, None)
    inputs     {storage: bytes} of what is there before the step
    tangents   placeholders; those of the indices `absent` never come
    inside     nodes whose values lie nowhere in memory, and views of them: computed wherever they are read
    """

    def __init__(self, module, num_fwd_outputs, absent=(), inside=()):
        self.module, self.inside = module, set(inside)
        graph = module.graph
        graph.eliminate_dead_code()
        self.placeholders = [n for n in graph.nodes if n.op == "placeholder"]
        self.tangents = [n for n in self.placeholders if is_tangent(n)]
        self.given = [n for i, n in enumerate(self.tangents) if i not in absent]
        output = next(n for n in reversed(graph.nodes) if n.op == "output")
        outputs = pytree.arg_tree_leaves(*output.args)
        self.fwd, self.bwd = outputs[:num_fwd_outputs], outputs[num_fwd_outputs:]
        descs = pytree.arg_tree_leaves(output.meta.get("desc") or [None] * len(outputs))
        by_desc = {str(n.meta.get("desc")): n for n in self.placeholders}
        changed = [str(d.mutated_input) for d in descs if type(d).__name__ == "InputMutationAOTOutput"]
        self.mutations = len([d for d in descs[:num_fwd_outputs] if type(d).__name__ == "InputMutationAOTOutput"])
        self.mutated = {by_desc[d] for d in changed if d in by_desc}
        self.ops, self.buffers, self.op_of = [], {}, {}
        self.inputs, self._needed = {}, {}
        self._read(graph)

    def _read(self, graph):
        for node in self.placeholders:
            if isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool)):
                raise Unsupported(f"{node.name} is a size that PyTorch kept symbolic")
            if node not in self.tangents:
                self.inputs.update(storages(node))
        last = self._last_forward(graph)
        backward, tainted = False, set(self.tangents)
        for node in graph.nodes:
            if node.op == "get_attr":
                value = getattr(self.module, node.target) if isinstance(node.target, str) else None
                if isinstance(value, torch.Tensor):
                    self.inputs.update(storages(node) or {storage_of(value): value.untyped_storage().nbytes()})
            elif node.op == "call_function":
                if any(n in tainted for n in node.all_input_nodes):
                    tainted.add(node)
                self._add(node, backward, node in tainted)
            elif node.op not in ("placeholder", "output"):
                raise Unsupported(f"{node.op} {node.target}")
            if node is last:
                self._add_outside()
                backward = True

    def _last_forward(self, graph):
        wanted, ahead = set(), [n for n in self.fwd if isinstance(n, Node)]
        while ahead:  # a view may stand behind backward: what it is of counts
            node = ahead.pop()
            inside = {s for n in node.all_input_nodes for s in storages(n)}
            if node.op == "call_function" and storages(node) and storages(node).keys() <= inside:
                ahead += node.all_input_nodes
            else:
                wanted.add(node)
        last = None
        for node in graph.nodes:
            if node in wanted or node.meta.get("partitioner_tag") in ("is_forward", "must_be_in_forward") or (
                    node.op == "placeholder"):
                last = node
        return last

    def _needs(self, node):
        """Storages that reading a node's value needs, without those of inputs."""
        if node not in self.inside:
            return [s for s in storages(node) if s in self.buffers]
        if node not in self._needed:
            self._needed[node] = list(dict.fromkeys(s for n in node.all_input_nodes for s in self._needs(n)))
        return self._needed[node]

    def computed_with(self, node):
        """The nodes inside of kernels that computing a node computes too."""
        found, ahead = {}, list(node.all_input_nodes)
        while ahead:
            other = ahead.pop()
            if other in self.inside and other not in found:
                found[other] = None
                ahead += other.all_input_nodes
        return list(found)

    def bytes_moved(self, op):
        """Bytes of all that an op of a node reads, once, and writes."""
        read = {s: size for node in [op.node, *self.computed_with(op.node)] for n in node.all_input_nodes if n not in self.inside
                for s, size in storages(n).items()}
        return sum(read.values()) + sum(self.buffers[s][1] for s in op.writes)

    def _buffer(self, storage, name, size, kind):
        self.buffers[storage] = (name, size, kind)

    def _add(self, node, backward, tainted):
        if node.target is operator.getitem:
            if node.args[0] in self.inside:
                self.inside.add(node)
            owner = self.op_of.get(node.args[0])
            if owner is not None:
                owner.getitems.append(node)
                self.op_of[node] = owner
            return
        if any(isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)) for x in pytree.tree_leaves(node.meta.get("val"))):
            raise Unsupported(f"the value of {node.target} depends on data{where(node)}; shapes must not")
        inside = {s for n in node.all_input_nodes for s in storages(n)}
        made = {s: size for s, size in storages(node).items() if s not in inside and s not in self.inputs}
        mutable = isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
        if not made and not mutable and tensors(node.meta.get("val")):
            if any(n in self.inside and set(storages(n)) & set(storages(node)) for n in node.all_input_nodes):
                self.inside.add(node)
            return  # a view
        if node in self.inside:
            return
        if mutable and not set(storages(node)) <= set(self.inputs):
            raise Unsupported(f"{node.target} writes into its argument{where(node)}")
        op = Op(node.name, node, backward=backward, layer=module_of(node), random=is_random(node))
        op.recompute = may_recompute(node) and not tainted
        kind = "gradient" if tainted else "activation"
        for i, (storage, size) in enumerate(made.items()):
            self._buffer(storage, node.name if i == 0 else f"{node.name}:{i}", size, kind)
            op.writes.append(storage)
        for argument in node.all_input_nodes:
            for storage in self._needs(argument):
                if storage not in op.reads and storage not in op.writes:
                    op.reads.append(storage)
        if op.recompute and op.random:
            op.state = self._add_helper(op, "state", node, *_generator_state(node))
        if op.recompute:
            changed = [p for p in self.mutated if set(storages(p)) & inside]
            size = sum(sum(storages(p).values()) for p in changed)
            if size > sum(made.values()):
                op.recompute = False  # keeping its outputs is cheaper than keeping its inputs
            else:
                for placeholder in changed:
                    op.snapshots[placeholder] = self._add_helper(op, "snapshot", placeholder, (id(op), placeholder.name),
                                                                 sum(storages(placeholder).values()))
        self.ops.append(op)
        self.op_of[node] = op

    def _add_helper(self, op, kind, of, key, size):
        helper = Op(f"{op.name}/{kind}" + (f"/{of.name}" if kind == "snapshot" else ""), kind=kind, of=of,
                    recompute=False, backward=op.backward, layer=op.layer, writes=[key])
        self._buffer(key, helper.name, size, "activation")
        self.ops.append(helper)
        op.reads.append(key)
        return helper

    def _add_outside(self):
        op = Op(OUTSIDE, kind="outside", backward=True, recompute=False, layer=OUTSIDE)
        for node in self.fwd:
            if isinstance(node, Node):
                op.reads += [s for s in self._needs(node) if s not in op.reads]
        for node in self.given:
            for storage, size in storages(node).items():
                if storage not in self.buffers:
                    self._buffer(storage, f"{node.name}", size, "gradient")
                    op.writes.append(storage)
        self.ops.append(op)
        self.outside = op

    def outputs(self, dropped=()):
        """Storages that are in memory at the end: what forward returns, but for what the caller drops, and the gradients.

        dropped   indices of forward's outputs that are gone when backward ends
        """
        returned = [n for i, n in enumerate(self.fwd) if i >= self.mutations and i not in dropped]
        found = []
        for node in [*returned, *([] if TANGENTS_ARE_GIVEN_UP else self.given), *self.bwd]:
            if isinstance(node, Node):
                found += [s for s in self._needs(node) if s not in found]
        return found

    def graph(self, name, static, costs, dropped=(), inplace=True):
        """The ckpt-graph.

        static          [(name, bytes)]
        costs           Op of a node -> Cost
        dropped         as of outputs()
        inplace         whether outputs may take the memory of arguments
        """
        cost = {id(op): costs(op) for op in self.ops if op.kind == "node"}
        kept = {s for n in [*self.fwd, *self.tangents] if isinstance(n, Node) for s in storages(n)}  # of the caller
        last_reader, taken = {s: op for op in self.ops for s in op.reads}, set()
        sizes = {s: size for known in cost.values() for s, size in known.bytes.items()}
        text = lambda keys: [self.buffers[s][0] for s in keys]  # noqa: E731
        ops = []
        for op in self.ops:
            known = cost.get(id(op))
            row = {"name": op.name, "phase": "backward" if op.backward else "forward", "time_ns": known.ns if known else 1,
                   "reads": text(op.reads), "writes": text(op.writes), "workspace_bytes": known.workspace if known else 0,
                   "recompute": op.recompute, "op": op.kind if op.node is None else str(op.node.target)}
            op.inplace = None
            if op.layer:
                row["layer"] = op.layer
            for argument in (known.inplace if known and inplace and op.backward and not op.recompute else ()):
                storage = storage_of(op.node.args[argument].meta["val"])
                pair = {storage, op.writes[0]}
                if last_reader.get(storage) is op and not pair & (kept | taken) and _read_alike(op.node, argument) and len(
                        {sizes.get(s, self.buffers[s][1]) for s in pair}) == 1:
                    taken |= pair
                    op.inplace = argument
                    row["inplace"] = [text([op.writes[0], storage])]
                    break
            ops.append(row)
        buffers = [{"name": label, "bytes": sizes.get(s, size), "kind": kind}
                   for s, (label, size, kind) in self.buffers.items()]
        return {"format": "ckpt-graph/1", "name": name, "static": [{"name": n, "bytes": b} for n, b in static],
                "buffers": buffers, "ops": ops, "outputs": text(self.outputs(dropped))}


def _read_alike(node, index):
    """Whether all arguments of an elementwise node that lie in the memory of one are the same tensor."""
    one = node.args[index].meta["val"]
    return all(x.shape == one.shape and x.stride() == one.stride() and x.dtype == one.dtype
               for n in node.all_input_nodes for x in tensors(n.meta["val"]) if storage_of(x) == storage_of(one))


def device_of(node):
    for tensor in tensors(node.meta.get("val")):
        return tensor.device
    return torch.device("cpu")


def _generator_state(node):
    """A key and the size of the state of the generator that a random node draws from."""
    return ("state", node.name), torch.get_rng_state().nbytes  # a GPU's is on the host, and smaller

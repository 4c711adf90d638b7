"""Python code that runs a graph module: boxed, every value given up at its last use, all outputs of a node taken at once."""

import operator
from dataclasses import dataclass

from torch._ops import OpOverload
from torch.fx import Node

from ._random import functions


@dataclass
class Code:
    """A function run(args) in Python, and what it calls and holds, by name."""

    source: str
    names: dict

    def name(self, value):
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    def compile(self):
        """A function of one list, which it empties, to a list of the outputs."""
        scope = {name: functions.get(x) or x._op if isinstance(x, OpOverload) else x for name, x in self.names.items()}
        exec(compile(self.source, "<ckpt_torch>", "exec"), scope)  # noqa: S102
        run = scope["run"]
        run._boxed_call = True
        run.source = self.source
        return run


def code_of(module):
    graph, constants = module.graph, Code("", {})
    nodes = list(graph.nodes)
    last = {}
    for node in nodes:
        for argument in node.all_input_nodes:
            last[argument] = node
    names = {node: f"v{i}" for i, node in enumerate(nodes)}
    lines = []
    placeholders = [n for n in nodes if n.op == "placeholder"]
    for node in reversed(placeholders):  # popped from the end, so that the list holds none of them
        lines.append(f"{names[node]} = args.pop()" if node in last else "args.pop()")

    def text(x):
        if isinstance(x, Node):
            return names[x]
        if isinstance(x, (tuple, list)):
            inside = ", ".join(text(y) for y in x)
            return f"[{inside}]" if isinstance(x, list) else f"({inside}{',' if len(x) == 1 else ''})"
        if x is None or isinstance(x, (bool, int)) or (isinstance(x, float) and x - x == 0):
            return repr(x)
        return constants.name(x)

    for node in nodes:
        if node.op == "get_attr":
            value = module
            for part in node.target.split("."):
                value = getattr(value, part)
            lines.append(f"{names[node]} = {constants.name(value)}")
        elif node.op == "call_function":
            if node.target is operator.getitem:
                lines.append(f"{names[node]} = {text(node.args[0])}[{node.args[1]}]")
            else:
                keywords = "".join(f", {k}={text(v)}" for k, v in node.kwargs.items())
                positional = ", ".join(text(a) for a in node.args)
                target = constants.name(node.target)
                lines.append(f"{names[node]} = {target}({(positional + keywords).removeprefix(', ')})")
        elif node.op == "output":
            lines.append(f"return {text(list(node.args[0]))}")
            continue
        elif node.op != "placeholder":
            raise AssertionError(node.op)
        dead = [names[n] for n in node.all_input_nodes if last[n] is node]
        if node not in last and node.op != "placeholder":
            dead.append(names[node])
        if dead:
            lines.append(" = ".join(dead) + " = None")
    constants.source = "def run(args):\n" + "".join(f"    {line}\n" for line in lines)
    return constants

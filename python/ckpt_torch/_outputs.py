"""Outputs of a model whose gradient nobody asks for, such as the logits beside a loss.

For these PyTorch makes zeros of their size, which backward adds to what it has. After one step they are known, and the
graph that is planned has no gradient for them. Who asks for it later gets an exception, not a wrong number.
"""

import copy
import functools

import torch
from torch.fx import GraphModule

from ._joint import Unsupported


class Watch:
    """Sees which of a step's outputs get a gradient. The outputs are not held."""

    def __init__(self, outputs):
        self._differentiable = [i for i, x in enumerate(outputs)
                                if isinstance(x, torch.Tensor) and x.requires_grad and not x.is_leaf]
        self._asked = set()
        for i in self._differentiable:
            outputs[i].register_hook(functools.partial(self._see, i))

    def _see(self, index, gradient):
        if gradient is not None:
            self._asked.add(index)

    def unused(self):
        """Indices, when backward has reached the model; none where it cannot be said: another backward may follow, or this
        one is of another forward."""
        if not self._asked or torch._C._autograd._get_current_graph_task_keep_graph():
            return ()
        return tuple(i for i in self._differentiable if i not in self._asked)


def without_gradient(graph_module, indices):
    """A graph of Dynamo whose outputs of these indices have no gradient."""
    if not indices:
        return graph_module
    other = GraphModule(graph_module, copy.deepcopy(graph_module.graph))
    graph = other.graph
    output = graph.output_node()
    with graph.inserting_before(output):
        output.args = (tuple(graph.call_method("detach", (x,)) if i in indices else x
                             for i, x in enumerate(output.args[0])),)
    other.recompile()
    return other


def no_zeros(outputs):
    """Let a step's backward see which of the outputs got no gradient, instead of zeros that PyTorch makes."""
    for x in outputs:
        node = x.grad_fn if isinstance(x, torch.Tensor) else None
        if type(node).__name__ == "CompiledFunctionBackward":
            node.materialize_grads = False


class _Refused(torch.autograd.Function):
    """The identity, whose gradient is refused. `anchor` needs one; error() is the exception."""

    @staticmethod
    def forward(context, x, anchor, error):
        context.error = error
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        raise context.error()


refused = _Refused.apply


def refuse_gradient(outputs, indices, args):
    """The outputs, those of these indices such that their gradient is refused."""
    anchor = next(a for a in args if isinstance(a, torch.Tensor) and a.requires_grad)
    return [refused(x, anchor, functools.partial(unplanned, i)) if i in indices else x for i, x in enumerate(outputs)]


def unplanned(index):
    return Unsupported(f"output {index} of the model gets a gradient, and got none when the step was planned: "
                       "options={'unused': False} plans for it")

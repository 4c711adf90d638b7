"""Forward and backward by Inductor: each half of a plan is given to it as the plan orders it.

Inductor sees one half at a time, so what is recomputed cannot be merged with what was kept. Within a half it fuses, and
may reorder: bits are not those of eager, and the peak is known when it is measured.
"""

import contextlib

import torch
from torch._dynamo.utils import detect_fake_mode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree


def compile_graph(module, inputs, backward, inference):
    """As _run.Code.compile(), of a module.

    inputs   fake tensors
    """
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.decomposition import select_decomp_table
    # Random ops stay PyTorch's own: they draw what eager draws, in the order of the graph.
    with config.patch(fallback_random=True), torch.no_grad(), _constants_are_taken(detect_fake_mode(inputs)):
        graph = make_fx(module, decomposition_table=select_decomp_table())(*inputs)
        output = next(n for n in reversed(graph.graph.nodes) if n.op == "output")
        # Backward, traced already, expects what forward saves in the strides that it was traced with.
        output.meta["user_visible_output_idxs"] = [
            i for i, n in enumerate(pytree.arg_tree_leaves(*output.args)) if isinstance(n, torch.fx.Node)]
        return compile_fx_inner(graph, inputs, is_backward=backward, is_inference=inference, layout_opt=False)


@contextlib.contextmanager
def _constants_are_taken(mode):
    """Tensors that the model's graph holds as constants are real."""
    before = mode.allow_non_fake_inputs
    mode.allow_non_fake_inputs = True
    try:
        yield
    finally:
        mode.allow_non_fake_inputs = before

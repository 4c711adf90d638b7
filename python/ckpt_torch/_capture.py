"""options={"capture": True}: forward and backward of a planned step on the GPU are each recorded once as a CUDA graph, and replayed.

PyTorch's graph trees do it (torch._inductor.cudagraph_trees); one private pool per GPU holds what both graphs use, also between
steps. What this file adds is what keeps eager's bits:

    - A replay writes where the one before wrote. So what the caller gets, outputs and gradients, is copied out of the pool: it
      exists twice, which the plan counts.
    - While a recorded forward waits for its backward, others run as without this option: the pool holds what one step keeps.
    - A step is recorded after one that ran whole without, so that nothing is set up inside a recording, and forward and
      backward are always both recorded or both not: attention keeps its random numbers on the host without, on the GPU with.
"""

import gc
import weakref

import torch

from . import _arena, _copies, _random
from ._joint import Unsupported, tensors, where
from ._measure import allocated

_waiting = set()  # devices where a recorded forward waits for its backward
_captures = weakref.WeakSet()


def of(graph_module, args, device, options, tell):
    """The Capture of a step; refused where there is nothing to record.

    graph_module   of Dynamo, whose inputs are `args`
    """
    _refuse(device, options)
    inputs = [(a, "_dynamo_static_input_type" in n.meta.get("tensor_dict", ()))
              for n, a in zip((n for n in graph_module.graph.nodes if n.op == "placeholder"), args) if isinstance(a, torch.Tensor)]
    return Capture(device, {a.data_ptr() for a, stays in inputs if stays},
                   sum(allocated(a.numel() * a.element_size(), device) for a, stays in inputs if not stays), tell)


def _refuse(device, options):
    if device.type != "cuda":
        raise Unsupported("option capture: CUDA graphs are recorded on a GPU, and this model is on the CPU")
    if options.get("arena") or _arena.in_use():
        raise Unsupported("option capture: CUDA graphs take their memory from PyTorch's own allocator, which use_arena() has replaced")


def hindrance(module, device):
    """Why a half of a step cannot be a CUDA graph, in words; None: it can."""
    from torch._inductor.utils import get_first_incompatible_cudagraph_node
    for node in module.graph.nodes:
        if node.target in _random.of_the_host:
            return f"its plan draws random numbers again, from a state of the generator that the host sets{where(node)}"
        if node.target in (_copies.offload, _copies.fetch):
            return "its plan moves buffers to the host, and copies cross from forward to backward"
        for tensor in tensors(node.meta.get("val")) if node.op != "output" else ():
            if tensor.device != device:
                return f"{node.name} is on {tensor.device}{where(node)}"
            if tensor.is_complex():  # what is handed out again may lack that it is a conjugate
                return f"{node.name} is complex{where(node)}"
    node = get_first_incompatible_cudagraph_node(module)
    return node and f"{node.target} cannot be recorded{where(node)}"


def _copies_of(found):
    """The list, with copies in place of its tensors."""
    inside = [x for x in found if isinstance(x, torch.Tensor)]
    outside = [torch.empty_like(x) for x in inside]
    if inside:
        torch._foreach_copy_(outside, inside)
    outside = iter(outside)
    return [next(outside) if isinstance(x, torch.Tensor) else x for x in found]


class Capture:
    """The two halves of a step, recorded.

    why_not   None, or in words why the step is not recorded
    """

    def __init__(self, device, static_addresses, input_bytes, tell):
        """
        static_addresses   of the parameters and buffers of modules, which stay where they are
        input_bytes        of the other inputs
        """
        self.device, self.why_not, self._input_bytes, self._tell = device, None, input_bytes, tell
        self._static, self._fixed, self._addresses = static_addresses, None, None
        self._halves, self._calls = {}, {}  # "forward", "backward" -> (function, module); -> recorded
        self._warm, self._mark, self._mark_at = False, None, None
        _captures.add(self)

    def outside_bytes(self, joint):
        """What is made outside of the pool in a step: outputs and gradients, copied, and the gradients of outputs."""
        return sum(allocated(x.numel() * x.element_size(), self.device) for n in [*joint.fwd, *joint.tangents, *joint.bwd]
                   if isinstance(n, torch.fx.Node) for x in tensors(n.meta.get("val")))

    def copied_bytes(self, joint):
        """What exists twice: the same, and inputs."""
        return self._input_bytes + self.outside_bytes(joint)

    def leave(self, why):
        """Run without recording from now on, and say why if that is news."""
        if self.why_not is None:
            self._tell(f"not captured: {why}")
        self.why_not = why

    def add(self, half, run, module):
        """`run`, which computes `module`, is the "forward" or the "backward" half."""
        self._halves[half] = run, module

    def ran_whole(self, again):
        """A step ran without recording to the end of its backward. again: what it kept is there for one more."""
        self._warm = True
        if again:
            self.leave("backward(retain_graph=True) wants what a recorded backward has written over")

    def begins(self, args):
        """Whether this forward is to be recorded or replayed."""
        if self.why_not or not self._warm:
            return False
        if self.device in _waiting:
            if self._kept_alive():
                return False
            _waiting.discard(self.device)
        if self._fixed is None:
            self._fixed = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor) and a.data_ptr() in self._static]
            self._addresses = [args[i].data_ptr() for i in self._fixed]
        elif [args[i].data_ptr() for i in self._fixed] != self._addresses:
            self.leave("weights are not where they were when it was recorded")
            return False
        return True

    def _index(self):
        return self.device.index or 0

    def _manager(self):
        from torch._inductor import cudagraph_trees
        return cudagraph_trees.get_manager(self._index(), create_if_none_exists=False)

    def _kept_alive(self):
        """Whether what a recorded forward kept for its backward is still there."""
        manager = self._manager()
        return manager is not None and manager.current_node is not None and not manager.current_node.all_outputs_are_dead()

    def forward(self, args, num_outputs):
        """The recorded forward. Of what it gives, the first num_outputs are the caller's."""
        out = list(self._call("forward", args))
        self._mark = next((x.data_ptr() for x in out[num_outputs:] if isinstance(x, torch.Tensor) and x.numel()
                           and x.data_ptr() not in self._static), None)
        _waiting.add(self.device)
        out[:num_outputs] = _copies_of(out[:num_outputs])
        return out

    def follows(self, args):
        """Whether this backward is of a recorded forward: its arguments are what that one kept, at the same address."""
        if self._mark is None or self.device not in _waiting:
            return False
        if self._mark_at is None:
            self._mark_at = next((i for i, a in enumerate(args) if isinstance(a, torch.Tensor) and a.data_ptr() == self._mark), None)
        return self._mark_at is not None and args[self._mark_at].data_ptr() == self._mark

    def backward(self, args, again):
        """The recorded backward. again: another one is to follow, which cannot be."""
        if again:
            raise Unsupported("backward(retain_graph=True) needs what a recorded backward writes over: options={'capture': False}")
        out = _copies_of(self._call("backward", args))
        _waiting.discard(self.device)
        return out

    def _call(self, half, args):
        from torch._inductor import config
        before, config.triton.skip_cudagraph_warmup = config.triton.skip_cudagraph_warmup, True
        try:
            if half not in self._calls:
                self._calls[half] = self._recorded(half, args)
            return self._calls[half](args)
        finally:
            config.triton.skip_cudagraph_warmup = before

    def _recorded(self, half, args):
        from torch._dynamo.backends import cudagraphs
        from torch._inductor import cudagraph_trees, cudagraph_utils
        run, module = self._halves[half]
        inputs = [n for n in module.graph.nodes if n.op == "placeholder"]
        return cudagraph_trees.cudagraphify_impl(
            run, args, self._fixed if half == "forward" else [i for i, n in enumerate(inputs) if "tangents" not in str(n.target)],
            device_index=self._index(), is_backward=half == "backward", is_inference=False,
            stack_traces=cudagraphs.get_stack_traces(module), placeholders=cudagraph_utils.get_placeholder_info(module.graph),
            mutated_input_idxs=cudagraphs.find_input_mutations(module.graph))

    def held_bytes(self):
        """Bytes of the pool of the recorded steps of this GPU, which are held between steps too."""
        from torch._inductor import cudagraph_trees
        return sum(s["total_size"] for s in cudagraph_trees.get_cudagraph_segments(self._manager().cuda_graphs_thread_pool))

    def release(self):
        """Give the graphs up, and their memory. All graphs of the GPU have one pool, which shrinks only when none is left, so
        the others go too, and are recorded anew."""
        self.why_not = "its plan was replaced"
        if self._calls and self.device not in _waiting:
            for other in [c for c in _captures if c.device == self.device]:
                other._calls.clear()
                other._fixed = None
            gc.collect()
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

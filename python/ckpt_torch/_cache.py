"""Plans that an earlier process made: with the same graph, inputs, options, machine and versions nothing is traced anew.

PyTorch's own cache of AOTAutograd's results knows neither plans nor costs, and lies in a folder whose name others know. So
what it would keep is kept here, in the user's own folder, and AOTAutograd puts its wrappers around it as it does for its
cache. What is in a graph that is not surely the same by its text makes it one that is not kept.
"""

import contextlib
import dataclasses
import enum
import functools
import hashlib
import io
import os
import pickle
import stat
import sys
import zlib
from pathlib import Path

import torch
from torch.fx import GraphModule, Node

from . import _files, _lib, _measure, _random
from ._joint import module_of

KEPT = 64  # files; those that were not used for longest go
OPS = {"aten", "prim", "prims", "ckpt"}  # namespaces of ops that are the same in each process of a version


class NotKept(Exception):
    """Something of which another process may make something else by the same name."""


# ---- what a plan depends on ----

def _word(x, names):
    """A value in words; `names` has those of nodes."""
    if isinstance(x, Node):
        return names[x]
    if isinstance(x, (tuple, list)):
        return f"{type(x).__name__}({','.join(_word(y, names) for y in x)})"
    if isinstance(x, dict):
        return "{" + ",".join(f"{_word(k, names)}:{_word(v, names)}" for k, v in x.items()) + "}"
    if isinstance(x, slice):
        return f"slice({_word([x.start, x.stop, x.step], names)})"
    if x is None or x is ... or type(x) in (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout,
                                            torch.memory_format) or isinstance(x, enum.Enum):
        return f"{type(x).__name__} {x!r}"
    raise NotKept(f"a {type(x).__name__} in the graph")


def _function(node):
    from torch._functorch._aot_autograd.autograd_cache import check_node_safe  # PyTorch's list of what is the same by its name
    check_node_safe(node)
    target = node.target
    if isinstance(target, (str, torch._ops.HigherOrderOperator)):
        return str(target)
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        if str(target).partition(".")[0] not in OPS:
            raise NotKept(f"{target} is no op of PyTorch")
        return str(target)
    return f"{getattr(target, '__module__', None)}.{getattr(target, '__qualname__', None) or target.__name__} {type(target).__name__}"


def graph_text(module):
    """All of a graph of Dynamo that tracing reads, in words. Raises NotKept, or what PyTorch says of its cache."""
    if any(name.startswith("saved_tensors_hooks") for name in module.__dict__.get("_modules", ())) or module.meta.get(
            "_checkpoint_context_fn") is not None:
        raise NotKept("hooks")
    names, lines = {}, []
    for i, node in enumerate(module.graph.nodes):
        names[node] = f"%{i}"
        if node.op == "get_attr":
            value = functools.reduce(getattr, node.target.split("."), module)
            if not isinstance(value, GraphModule):
                raise NotKept(f"a {type(value).__name__} in the graph")
            what = graph_text(value)
        elif node.op in ("call_function", "call_method"):
            what = _function(node)
        elif node.op in ("placeholder", "output"):
            what = ""
        else:
            raise NotKept(node.op)
        lines.append(" ".join((node.op, what, _word(node.args, names), _word(node.kwargs, names), str(module_of(node)),
                               _word(node.meta.get("custom") or {}, names))))
    return "\n".join(lines)


def _input_text(a, storages):
    if not isinstance(a, torch.Tensor):
        return _word(a, {})
    if type(a) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) or a.layout is not torch.strided:
        raise NotKept(f"an input that is a {type(a).__name__}")
    if a.requires_grad and not a.is_leaf:
        raise NotKept("an input with a gradient of its own")
    storage = a.untyped_storage()
    return str((type(a).__name__, tuple(a.shape), a.stride(), a.storage_offset(), a.dtype, a.device, a.requires_grad,
                a.is_conj(), a.is_neg(), a.is_inference(), a._is_view(), storage.nbytes(),
                storages.setdefault(storage._cdata, len(storages))))


@functools.cache
def _sources():
    """Of this package and its library."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    library = os.stat(_lib.path()) if os.path.exists(_lib.path()) else None
    return f"{digest.hexdigest()} {_lib.version()} {library and (library.st_size, library.st_mtime_ns)}"


def _state_text():
    """Of PyTorch, where it changes what is traced."""
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
    if _get_current_function_mode_stack() or _get_current_dispatch_mode_stack():
        raise NotKept("modes")
    backends, cuda = torch.backends, torch.backends.cuda
    return repr((
        torch.__version__, torch.version.git_version, sys.version, torch.get_default_dtype(), torch.get_default_device(),
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        [(d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda")], torch.is_autocast_cache_enabled(),
        cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled(), cuda.cudnn_sdp_enabled(),
        backends.cudnn.enabled, backends.cudnn.benchmark, backends.cudnn.deterministic,
        backends.mkldnn.enabled, backends.cpu.get_cpu_capability(),
        sorted(torch._functorch.config.get_config_copy().items())))


def key_of(text, args, device, *more):
    """The name of a plan's file, or None where it is not to be kept. Takes a millisecond for 300 inputs.

    text   of the graph, or None
    more   what else the plan depends on, in words
    """
    if text is None:
        return None
    try:
        storages = {}
        words = [text, *(_input_text(a, storages) for a in args), _measure.cache_file(device).name, _sources(), _state_text(),
                 *map(str, more)]
    except (NotKept, AttributeError):
        return None
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


# ---- files ----

def _overload(namespace, name, overload):
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)


class _Pickler(pickle.Pickler):
    def reducer_override(self, x):
        if isinstance(x, torch._ops.OpOverload):
            if x in _random.replayed:
                return _random.replay, (_random.replayed[x],)
            return _overload, (*x._schema.name.split("::"), x._overloadname)
        return NotImplemented


def _path(key):
    return _files.folder() / f"plan-{key}"


def save(key, entry):
    """Keep an entry for other processes, if it can be written down and the folder be written."""
    text = io.BytesIO()
    with contextlib.suppress(OSError, pickle.PicklingError, TypeError, AttributeError, RuntimeError, ValueError):
        _Pickler(text, pickle.HIGHEST_PROTOCOL).dump(entry)
        packed = zlib.compress(text.getbuffer(), 1)
        _files.replace(_path(key), hashlib.sha256(packed).digest() + packed)
        for old in sorted(_files.folder().glob("plan-*"), key=lambda p: p.stat().st_mtime)[:-KEPT]:
            old.unlink()


def load(key):
    """The entry of a key, or None. Reading it runs what is written there, so only a file counts that nobody else could
    have written."""
    path = _path(key)
    with contextlib.suppress(Exception):  # of another version, or damaged: it is made anew
        with open(path, "rb") as file:
            for status in os.fstat(file.fileno()), os.stat(path.parent):
                if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
                    return None
            digest, packed = file.read(32), file.read()
        if hashlib.sha256(packed).digest() == digest:
            entry = pickle.loads(zlib.decompress(packed))  # noqa: S301
            os.utime(path)
            return entry
    return None


# ---- AOTAutograd's part ----

@dataclasses.dataclass
class Wrappers:
    """What AOTAutograd knows of a graph that it compiled: with its halves, all that it needs to run it."""

    config: object
    metadata: object
    wrappers: list
    saved: int

    @classmethod
    def of(cls, state, capture, saved):
        """None: this version of PyTorch cannot write it down."""
        if not hasattr(state.aot_config, "to_cacheable"):
            return None
        return cls(state.aot_config.to_cacheable(), state.fw_metadata, capture.wrappers, saved)

    def around(self, forward, backward):
        """The function of a list of arguments that AOTAutograd would have made of these two."""
        from torch._functorch._aot_autograd.aot_autograd_result import BundledAOTAutogradResult
        nothing = dict.fromkeys(("aot_joint_graph_str", "aot_forward_graph_str", "aot_backward_graph_str", "min_cut_info_str",
                                 "maybe_subclass_meta", "guards_expr", "serialized_bw_module"))
        return BundledAOTAutogradResult(
            compiled_fw=_Ready(forward), compiled_bw=_Ready(backward), runtime_metadata=self.metadata,
            dispatch_wrappers=self.wrappers, num_fw_outs_saved_for_bw=self.saved, indices_of_inps_to_detach=[],
            forward_time_taken_ns=0, backward_time_taken_ns=0, sanitized_aot_config=self.config, **nothing,
        ).wrap_post_compile([], self.config, {})


class _Ready:
    """A half that is compiled already."""

    backward_state_indices, num_symints_saved_for_bw_ = [], 0

    def __init__(self, run):
        self.run = run

    def load(self, inputs):
        return self.run

    def post_compile(self, run, config):
        return run

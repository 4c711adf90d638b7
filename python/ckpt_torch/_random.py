"""Random numbers: what a recomputed op draws is what it drew first, and the generator does not notice."""

import functools
import re

import torch

_library = torch.library.Library("ckpt", "DEF")
_library.define("state(Device device) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
_library.define("mask(Tensor x, float keep) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
_library.define("apply_mask(Tensor x, Tensor mask, float keep) -> Tensor")


def _state(device):
    """The state of the default generator of `device`."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _mask(x, keep):
    """As F.dropout draws it in eager on the CPU, in bytes: draws do not depend on the type they are stored in."""
    return torch.empty_like(x, dtype=torch.bool).bernoulli_(keep)


def _apply_mask(x, mask, keep):
    """x times the scaled mask, rounded as in eager, in the memory of the result alone."""
    return mask.to(x.dtype).div_(keep).mul_(x)


_library.impl("state", _state, "CompositeExplicitAutograd")
_library.impl("mask", _mask, "CompositeExplicitAutograd")
_library.impl("apply_mask", _apply_mask, "CompositeExplicitAutograd")
_STATE_BYTES = torch.get_rng_state().numel()  # a GPU's is smaller
torch.library.register_fake("ckpt::state", lambda device: torch.empty(_STATE_BYTES, dtype=torch.uint8), lib=_library)


# What runs in their place: plain functions, so that no dispatcher lies between a step and its kernels.
replayed = {}  # what replay() made -> of what
functions = {torch.ops.ckpt.state.default: _state, torch.ops.ckpt.mask.default: _mask, torch.ops.ckpt.apply_mask.default: _apply_mask}
of_the_host = {torch.ops.ckpt.state.default}  # ops that read or set the state of a generator on the host


@functools.cache
def replay(op):
    """An op of (state, arguments of a random op): draws what that op drew when the generator was in `state`, and leaves the
    generator as it was."""
    schema = re.sub(r"^([^(]*)\((.*)$", lambda m: f"replay_{re.sub('[^a-z0-9_]+', '_', m[1])}(Tensor state, {m[2]}", str(op._schema))
    _library.define(schema)
    name = schema.partition("(")[0]

    def run(state, *arguments, **keywords):
        cuda = next((a.device for a in arguments if isinstance(a, torch.Tensor) and a.is_cuda), keywords.get("device"))
        generator = torch.default_generator
        if cuda is not None and torch.device(cuda).type == "cuda":
            index = torch.device(cuda).index
            generator = torch.cuda.default_generators[torch.cuda.current_device() if index is None else index]
        now = generator.get_state()
        generator.set_state(state)
        try:
            return functions.get(op, op)(*arguments, **keywords)
        finally:
            generator.set_state(now)
    _library.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"ckpt::{name}", lambda state, *arguments, **keywords: op(*arguments, **keywords), lib=_library)
    made = getattr(torch.ops.ckpt, name).default
    functions[made], replayed[made] = run, op
    of_the_host.add(made)
    return made


def _native_dropout(x, p, train):
    """Eager's dropout on the CPU keeps a scaled mask for backward; a mask of bytes is a quarter of it and gives the same."""
    if x.is_cuda or not train or p in (0, 1):
        return NotImplemented
    mask = torch.ops.ckpt.mask(x, 1 - p)
    return torch.ops.ckpt.apply_mask(x, mask, 1 - p), mask


def _native_dropout_backward(grad, mask, scale):
    return NotImplemented if grad.is_cuda else torch.ops.ckpt.apply_mask(grad, mask, 1 / scale)


def decompositions():
    aten = torch.ops.aten
    return {aten.native_dropout.default: _native_dropout,
            aten.native_dropout_backward.default: _native_dropout_backward}

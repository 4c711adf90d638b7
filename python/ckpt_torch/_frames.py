"""Modules that PyTorch would pass over: those of torch.nn that FSDP2 shards.

Dynamo compiles frames, and takes one of torch.nn only into a frame that calls it. Where FSDP2's hooks run before a module's
forward they end that frame, so a sharded nn.Sequential has none, and runs as in eager with nobody being told. Here it gets one.
"""

import functools
import sys
import types

import torch


@functools.cache
def _forward_of(kind):
    """A forward for modules of a class, whose code is its own: Dynamo counts compilations by code."""
    def forward(self, *args, **kwargs):
        return kind.forward(self, *args, **kwargs)
    return types.FunctionType(forward.__code__.replace(), globals(), f"forward of {kind.__name__}", None, forward.__closure__)


def give_frames(model):
    """The model, in which every sharded module of torch.nn has a forward that Dynamo sees."""
    for module in model.modules() if isinstance(model, torch.nn.Module) else ():
        sharded = getattr(module, "_is_fsdp_managed_module", False)
        if sharded and "forward" not in vars(module) and torch._dynamo.trace_rules.check(module.forward):
            module.forward = types.MethodType(_forward_of(type(module)), module)
    return model


def compiled_model():
    """The model of the call of torch.compile that is going on, or None."""
    frame, code = sys._getframe(), getattr(torch.compile, "__code__", None)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame and frame.f_locals.get("model")

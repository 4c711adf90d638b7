"""PyTorch training steps under a budget in bytes: torch.compile(model, backend="ckpt", options={"budget": "8GB"})."""

import torch

from ._arena import use_arena
from ._backend import Infeasible, backend, refuse_breaks
from ._frames import give_frames
from ._joint import Unsupported
from ._lib import version
from ._report import Report, report

__all__ = ["Infeasible", "Report", "Unsupported", "auto_checkpoint", "backend", "report", "use_arena"]
__version__ = version()


def auto_checkpoint(model, budget, optimizer=None, example_inputs=None, **options):
    """torch.compile with this backend.

    budget          of the whole training step: "8GB", bytes, or a share of what keeping everything takes, "60%"
    optimizer       whose state counts too
    example_inputs  a tuple: plan now, with a forward pass on them, instead of at the first call
    options         more options, with _ for -
    """
    chosen = {"budget": budget, **{k.replace("_", "-") if k != "static_bytes" else k: v for k, v in options.items()}}
    if optimizer is not None:
        chosen["optimizer"] = optimizer
    compiled = torch.compile(give_frames(model), backend=backend, options=chosen)
    if example_inputs is not None:
        compiled(*example_inputs)
        refuse_breaks(chosen)
    return compiled

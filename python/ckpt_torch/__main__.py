"""python -m ckpt_torch --budget 8GB train.py ARGUMENT...: runs a script with everything that it compiles planned.

Every torch.compile of the script uses this backend, whatever it asks for; a script that compiles nothing is told so.
"""

import argparse
import runpy
import sys

import torch

from . import _backend
from ._frames import give_frames


def main():
    parser = argparse.ArgumentParser(prog="python -m ckpt_torch")
    parser.add_argument("--budget", required=True, help="of the training step: 8GB, 60%%")
    parser.add_argument("--infeasible", choices=["least"], help="take the least budget where this one does not suffice")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    chosen = parser.parse_args()
    options = {"budget": chosen.budget, "infeasible": chosen.infeasible}
    original, compiled = torch.compile, []

    def planned(model=None, **ignored):
        if model is None:
            return lambda function: planned(function)
        compiled.append(model)
        return original(give_frames(model), backend=_backend.backend, options=options)

    torch.compile = planned
    torch.nn.Module.compile = lambda module, *a, **k: setattr(module, "_compiled_call_impl", planned(module._call_impl))
    sys.argv = [chosen.script, *chosen.arguments]
    runpy.run_path(chosen.script, run_name="__main__")
    if not compiled:
        print(f"ckpt: {chosen.script} compiles nothing, so nothing was planned; model = torch.compile(model) is the line it lacks",
              file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

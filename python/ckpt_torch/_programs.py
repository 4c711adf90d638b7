"""The programs that the wheel brings, as commands."""

import os
import sys

from pathlib import Path


def plan():
    program = Path(__file__).parent / "_ckpt" / "bin" / "ckpt-plan"
    os.execv(program, [str(program), *sys.argv[1:]])

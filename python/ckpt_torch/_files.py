"""The folder of what is kept for other processes."""

import os
import tempfile
from pathlib import Path


def folder():
    return Path(os.environ.get("CKPT_TORCH_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ckpt_torch"))


def replace(path, content):
    """Write a file of the folder, which is made for its user alone. Others, who may read or write it meanwhile, see all of the
    old bytes or all of the new ones. Raises OSError, and leaves nothing then."""
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix="new-", delete=False) as file:
        try:
            file.write(content)
            file.close()
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise

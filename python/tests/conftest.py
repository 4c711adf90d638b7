import os
import tempfile

# Measurements of the tests are their own.
os.environ.setdefault("CKPT_TORCH_CACHE", tempfile.mkdtemp(prefix="ckpt_torch_test_"))

import torch  # noqa: E402
from torch._dynamo import register_backend  # noqa: E402
from torch._dynamo.backends.registry import list_backends  # noqa: E402

import ckpt_torch  # noqa: E402

torch._dynamo.config.recompile_limit = 1000
if os.environ.get("CKPT_TEST_DEVICE") == "cuda":  # eager's own bits differ from run to run without these
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
if "ckpt" not in list_backends():  # it is not installed but in PYTHONPATH
    register_backend(ckpt_torch.backend, name="ckpt")

#!/usr/bin/env bash
# labels: cli; long under sanitizers
# The Python package on top of this build's libckpt.so: python/tests, in the virtual environment of scripts/pytorch-venv.
# CKPT_TEST_ROUNDS=few trains 12 of its 200 random modules.
set -u
source=$1 bin=$2 work=$3
python=$source/.venv/bin/python
[ -n "${CKPT_VENV:-}" ] && python=$CKPT_VENV/bin/python
library=$(cd "$bin/../lib" && pwd)/libckpt.so.0
if ! "$python" -c 'import torch, pytest' 2>/dev/null; then
    echo "skipped: no PyTorch with pytest in .venv; scripts/pytorch-venv makes it"
    exit 77
fi
if nm -D "$library" | grep -q ' U __asan_init'; then
    echo "skipped: Python cannot load a library with AddressSanitizer"
    exit 77
fi
rm -rf "$work" && mkdir -p "$work"
cd "$source/python" && CKPT_LIBRARY=$library PYTHONPATH=$PWD PYTHONDONTWRITEBYTECODE=1 CKPT_TORCH_CACHE=$work/cache \
    OMP_WAIT_POLICY=passive "$python" -m pytest tests

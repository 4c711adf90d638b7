#!/usr/bin/env bash
# labels: cli; not under sanitizers; takes 300 s
# The Python package on top of this build's libckpt.so: python/tests, in the virtual environment of scripts/pytorch-venv.
# CKPT_TEST_ROUNDS=few trains 12 of its 200 random modules. Inductor's cache is the test's own: a run that was ended while
# it compiled leaves a broken library in the one that all share.
set -u
source=$1 bin=$2 work=$3
# shellcheck source=tests/support/support_torch.sh
. "$source/tests/support/support_torch.sh"
torch_python "$source" numpy pytest
rm -rf "$work" && mkdir -p "$work"
cd "$source/python" && PATH=$bin:$PATH CKPT_LIBRARY=$(cd "$bin/../lib" && pwd)/libckpt.so.0 PYTHONPATH=$PWD \
    PYTHONDONTWRITEBYTECODE=1 CKPT_TORCH_CACHE=$work/cache TORCHINDUCTOR_CACHE_DIR=$work/inductor OMP_WAIT_POLICY=passive "$python" -m pytest tests

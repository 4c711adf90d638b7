#!/usr/bin/env bash
# labels: cli; not under sanitizers
# Loss and gradients of the networks of models/ against torchvision, transformers and PyTorch, where scripts/pytorch-venv
# models has installed these.
set -u
source=$1 bin=$2 work=$3
# shellcheck source=tests/support/support_torch.sh
. "$source/tests/support/support_torch.sh"
torch_python "$source"
"$python" -c "import torchvision, transformers" 2>/dev/null || { echo "no torchvision or no transformers"; exit 77; }
rm -rf "$work" && mkdir -p "$work"
OMP_WAIT_POLICY=passive PYTHONDONTWRITEBYTECODE=1 "$python" "$source/tests/programs/torch_networks.py" "$source" "$bin" "$work"

#!/usr/bin/env bash
# labels: cli; long under sanitizers
# The table of registers in docs/figures/registers.md has every CUDA kernel and no other, and none that uses local memory without a
# reason. Nothing is compiled: scripts/gpu_registers without --check makes the table.
set -u
source_dir=$1
command -v python3 > /dev/null || { echo "no python3"; exit 77; }
exec python3 "$source_dir/scripts/gpu_registers" --check

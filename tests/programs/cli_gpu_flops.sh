#!/usr/bin/env bash
# labels: cli; long under sanitizers
# The FLOP that bench/gpu divides by are those of the op table, for all four networks: products, convolutions and
# attention exactly, and nothing that is left out is large.
set -eu
source_dir=$1 bin_dir=$2
command -v python3 > /dev/null || { echo "no python3"; exit 77; }
python3 -B "$source_dir/bench/gpu/flops.py" --check "$bin_dir"

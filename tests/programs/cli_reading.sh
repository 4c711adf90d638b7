#!/usr/bin/env bash
# labels: cli; not under sanitizers
# Reading takes at most 5 times the file's bytes in every program that reads (ckpt-graph, ckpt-view, ckpt-compare,
# ckpt-profile): graphs, plans, traces, profiles, Kineto's traces, PyTorch's memory snapshots.
set -u
source_dir=$1 bin_dir=$2
python3 "$source_dir/bench/reading.py" "$bin_dir" 100000 5

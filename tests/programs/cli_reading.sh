#!/usr/bin/env bash
# Reading takes at most 5 times the file's bytes, in every program that reads: graphs, plans, traces, profiles, Kineto's traces.
# (ckpt-graph, ckpt-view, ckpt-compare; not under sanitizers, whose memory is their own)
set -u
source_dir=$1 bin_dir=$2
if grep -q __asan_init "$bin_dir/ckpt-graph" 2>/dev/null; then echo "skipped: built with a sanitizer"; exit 77; fi
python3 "$source_dir/bench/reading.py" "$bin_dir" 100000 5

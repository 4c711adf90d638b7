#!/bin/bash
# Hostile graphs and models through ckpt-plan; plan_fuzz.py lists the promises.
set -u
source_dir=$1 bin=$2 work=$3
rm -rf "$work" && mkdir -p "$work" && cd "$work" || exit 1
python3 "$source_dir/tests/programs/plan_fuzz.py" "$source_dir" "$bin/ckpt-plan" "$work" 1 110

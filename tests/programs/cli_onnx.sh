#!/usr/bin/env bash
# ONNX files from the outside: wherever a model is taken, as --init, under a budget, and damaged ones, each refused in one
# line with nothing written.
set -u
export OMP_WAIT_POLICY=passive
source_dir=$1 bin_dir=$2 work_dir=$3
train=$bin_dir/ckpt-train plan=$bin_dir/ckpt-plan
rm -rf "$work_dir" && mkdir -p "$work_dir" && cd "$work_dir" || exit 1

# shellcheck source=tests/support/support_refuse.sh
. "$source_dir/tests/support/support_refuse.sh"
network=$source_dir/tests/onnx/residual
small=(--set batch=2 --threads 2)

# Every program that takes a model takes it, whatever the file is called.
cp "$network/model.onnx" network
"$plan" "${small[@]}" --strategy keep-all -o plan.json network > plan.txt || fail "ckpt-plan"
"$bin_dir/ckpt-profile" "${small[@]}" --repeats 3 -o profile.json network > /dev/null || fail "ckpt-profile"
"$plan" "${small[@]}" --profile profile.json --budget 100% -o measured.json network > /dev/null || fail "ckpt-plan --profile"
"$plan" "${small[@]}" --strategy recompute-all -o small.json network > /dev/null || fail "recompute-all"
"$plan" --threads 2 --maximize batch --budget 1MB -o most.json network > /dev/null || fail "ckpt-plan --maximize"
if [ -x "$bin_dir/ckpt-graph" ]; then
    "$bin_dir/ckpt-graph" --set batch=2 -o network.dot network || fail "ckpt-graph"
fi

# Its weights, running statistics among them, come out under the layers' names and go in again; a plan changes no bit.
run=("$train" "${small[@]}" --data "safetensors:$network/batch.safetensors")
"${run[@]}" --plan plan.json --init network --steps 0 --export weights.safetensors network | grep sha256 > first.txt || fail "--init"
grep -aq 'bn1.running_var' weights.safetensors || fail "no statistics in the file"
"${run[@]}" --plan plan.json --init weights.safetensors --steps 0 network | grep sha256 | cmp -s - first.txt || fail "other weights"
"${run[@]}" --plan plan.json --init network --steps 3 --log whole.csv --export whole.safetensors network > /dev/null || fail "three steps"
"${run[@]}" --plan small.json --init network --steps 3 --log part.csv --export part.safetensors network > /dev/null ||
    fail "three steps by another plan"
cmp whole.csv part.csv && cmp whole.safetensors part.safetensors || fail "a plan changed the bits"

refuse 2 'the graph has the sizes batch' "$plan" --set tokens=2 -o x.json network
refuse 2 'expression' "$plan" --set 'batch=2+' -o x.json network
refuse 2 'dim 0 of 0' "$plan" --set batch=0 -o x.json network
python3 "$source_dir/tests/programs/onnx_damage.py" "$source_dir" "$bin_dir" || fail "damaged files"

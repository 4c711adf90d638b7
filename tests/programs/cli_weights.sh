#!/usr/bin/env bash
# Hugging Face's files from the outside: config.json wherever a model is taken, --init, --export, and a hundred damaged
# ones, each refused in one line with nothing written.
set -u
export OMP_WAIT_POLICY=passive
source_dir=$1 bin_dir=$2 work_dir=$3
train=$bin_dir/ckpt-train plan=$bin_dir/ckpt-plan
rm -rf "$work_dir" && mkdir -p "$work_dir" && cd "$work_dir" || exit 1

# shellcheck source=tests/support/support_refuse.sh
. "$source_dir/tests/support/support_refuse.sh"
config=$source_dir/tests/families/gpt2/config.json weights=$source_dir/tests/families/gpt2/model.safetensors
small=(--set batch=2 --set tokens=6 --threads 2)

# Every program that takes a model takes a configuration, whatever its file is called.
cp "$config" network.json
"$plan" "${small[@]}" --strategy keep-all -o plan.json network.json > plan.txt || fail "ckpt-plan"
"$bin_dir/ckpt-profile" "${small[@]}" --repeats 3 -o profile.json network.json > /dev/null || fail "ckpt-profile"
"$plan" "${small[@]}" --profile profile.json --budget 90% -o small.json network.json > /dev/null || fail "ckpt-plan --profile"
if [ -x "$bin_dir/ckpt-graph" ]; then
    "$bin_dir/ckpt-graph" --set batch=2 --set tokens=6 -o network.dot network.json || fail "ckpt-graph"
fi

# Weights that nothing was trained on come out as they went in; trained ones go on where they were.
run=("$train" "${small[@]}" --plan plan.json)
"${run[@]}" --init "$weights" --steps 0 --export same.safetensors network.json > /dev/null || fail "--export"
"${run[@]}" --init same.safetensors --steps 0 network.json | grep sha256 > again.txt || fail "--init of an export"
"${run[@]}" --init "$weights" --steps 0 network.json | grep sha256 > first.txt || fail "--init"
cmp first.txt again.txt || fail "other weights came out"
"${run[@]}" --steps 0 network.json | grep sha256 | cmp -s - first.txt && fail "--init changed nothing"
"${run[@]}" --init "$weights" --steps 2 --seed 3 --log whole.csv --export whole.safetensors network.json > /dev/null || fail "two steps"
"$train" "${small[@]}" --plan small.json --init "$weights" --steps 2 --seed 3 --log part.csv --export part.safetensors network.json \
    > /dev/null || fail "two steps by another plan"
cmp whole.csv part.csv && cmp whole.safetensors part.safetensors || fail "a plan changed the bits"
"${run[@]}" --init "$weights" --steps 0 --export half.safetensors --export-dtype bfloat16 network.json > /dev/null || fail "bfloat16"
"${run[@]}" --init half.safetensors --steps 0 --export half2.safetensors --export-dtype bfloat16 network.json > /dev/null ||
    fail "--init of bfloat16"
cmp half.safetensors half2.safetensors || fail "bfloat16 came out otherwise"

# Under the names of a ckpt-model itself.
model=$source_dir/models/mlp.json
"$plan" --strategy keep-all --threads 2 -o mlp.plan.json "$model" > /dev/null || fail "plan of mlp"
"$train" --plan mlp.plan.json --steps 1 --export mlp.safetensors "$model" | grep sha256 > mlp.txt || fail "train mlp"
"$train" --plan mlp.plan.json --steps 0 --init mlp.safetensors "$model" | grep sha256 | cmp -s - mlp.txt || fail "other weights of mlp"

# Batch norm's running statistics are weights too.
model=$source_dir/tests/pytorch/tiny-resnet.model.json
"$plan" --strategy keep-all --threads 2 -o norm.plan.json "$model" > /dev/null || fail "plan of a batch norm"
norm=("$train" --plan norm.plan.json)
"${norm[@]}" --steps 2 --export norm.safetensors "$model" > /dev/null || fail "train a batch norm"
"${norm[@]}" --steps 0 --init norm.safetensors --export norm2.safetensors "$model" > /dev/null || fail "--init of a batch norm"
cmp norm.safetensors norm2.safetensors || fail "other statistics came out"
grep -aq running_mean norm.safetensors || fail "no statistics in the file"

refuse 2 "--resume has weights of its own" "${run[@]}" --init "$weights" --resume state network.json
refuse 2 "--export-dtype needs --export FILE" "${run[@]}" --export-dtype bfloat16 network.json
refuse 2 'wanted float32 or bfloat16' "${run[@]}" --export x --export-dtype float16 network.json
refuse 2 "there is nothing for --export" "${run[@]}" --export x --evaluate 1 network.json
refuse 2 "no-such-folder" "${run[@]}" --export no-such-folder/x network.json

python3 "$source_dir/tests/programs/weights_damage.py" "$source_dir" "$bin_dir" || fail "a damaged file"

# What the safetensors library makes of what we write, where it is there.
python=$source_dir/.venv/bin/python
if [ -x "$python" ] && "$python" -c 'import safetensors.torch' 2>/dev/null; then
    "$python" - "$weights" <<'END' || fail "the safetensors library reads something else"
import sys
import torch
from safetensors.torch import load_file
first, same, half = (load_file(path) for path in (sys.argv[1], "same.safetensors", "half.safetensors"))
assert first.keys() == same.keys() == half.keys()
for name, one in first.items():
    assert same[name].dtype == torch.float32 and torch.equal(one, same[name]), name
    assert half[name].dtype == torch.bfloat16 and torch.equal(one.bfloat16(), half[name]), name
END
else
    echo "the safetensors library is not here: not read back by it"
fi

#!/usr/bin/env bash
# Validates the project's files, and files that the programs just made, against schema/.
# Arguments: source folder, folder of the programs, work folder.
set -euo pipefail
source=$1 bin=$2 work=$3
rm -rf "$work"
mkdir -p "$work"

python=/usr/bin/python3 # Debian's, which has Debian's python3-jsonschema
if ! "$python" -c 'import jsonschema' 2>/dev/null; then
    echo "no python3-jsonschema"
    [ "${CI:-}" = true ] && exit 1 # nothing may be missing where the whole suite is meant to run
    exit 77
fi
check="$source/tests/programs/schema_check.py"
"$python" -W ignore "$check" "$source"
"$python" -W ignore "$check" "$source" --examples "$work"
"$python" -W ignore "$check" "$source" "$work"/example-*.json

cd "$work"
model="$source/tests/malformed/good/model.json"
"$bin/ckpt-profile" --threads 1 --repeats 3 --seconds 0.01 -o profile.json "$model" >/dev/null
"$bin/ckpt-graph" --threads 1 --profile profile.json -o graph.json "$model" >/dev/null
"$bin/ckpt-plan" --threads 1 --budget 1GB --trace predicted.json -o plan.json "$model" >/dev/null
"$bin/ckpt-plan" --threads 1 --budget 1GB --profile profile.json --strategy recompute-all -o plan2.json "$model" >/dev/null
"$bin/ckpt-train" --threads 1 --plan plan.json --steps 2 --trace measured.json "$model" >/dev/null
"$bin/ckpt-plan" -e 0 --threads 1 --sweep 3 --baselines -o sweep.json "$model" >/dev/null
files="sweep.json profile.json graph.json plan.json plan2.json predicted.json measured.json"
for file in snapshot_training.pickle kineto_training.json execution_mlp.json; do
    "$bin/ckpt-profile" --import "$source/tests/imports/$file" -o "${file%%_*}.json" 2>/dev/null
    files="$files ${file%%_*}.json"
done
status=0
"$bin/ckpt-plan" --threads 1 --budget 100B -o infeasible.json "$model" >/dev/null 2>&1 || status=$?
[ "$status" = 1 ] || { echo "an impossible budget: exit $status, wanted 1"; exit 1; }
[ ! -e infeasible.json ] || files="$files infeasible.json"
# Steps of schemes: the graph of one rank, the plan of the model and the plan of that graph, which are the same.
sed 's/"optimizer": {[^}]*}/"optimizer": { "name": "adam", "lr": 0.001, "clip_norm": 1.0 }/' "$source/models/byte-gpt.json" >clipped.json
grep -q clip_norm clipped.json
spread() {
    local number=$1 model=$2
    shift 2
    set -- --threads 1 --set batch=8 --set tokens=64 --set blocks=1 --set hidden=48 "$@"
    "$bin/ckpt-graph" "$@" -o "spread-graph-$number.json" "$model" >/dev/null
    "$bin/ckpt-plan" -e 0 --budget 92% "$@" -o "spread-plan-$number.json" "$model" >/dev/null
    "$bin/ckpt-plan" -e 0 --budget 92% -o "spread-again-$number.json" "spread-graph-$number.json" >/dev/null
    files="$files spread-graph-$number.json spread-plan-$number.json spread-again-$number.json"
    "$python" - "spread-plan-$number.json" "spread-again-$number.json" <<'PYTHON'
import json
import sys

of_model, of_graph = (json.load(open(name)) for name in sys.argv[1:])
assert "scheme" in of_model
for key in ("graph", "budget_bytes", "verdict", "summary", "layers", "steps", "places"):
    assert of_model[key] == of_graph[key], f"{sys.argv[1]}: {key}: {of_model[key]}, of its graph: {of_graph[key]}"
PYTHON
}
gpt=$source/models/byte-gpt.json
spread 1 "$gpt" --micro-batches 3 --gradients fused
spread 2 "$gpt" --micro-batches 3 --pipeline-stages 2 --stage 0 --replicas 2 --overlap
spread 3 "$gpt" --pipeline-stages 2 --stage 1
spread 4 "$gpt" --replicas 3 --gradients fused --overlap --shard optimizer --bucket 50kB
spread 5 clipped.json --replicas 2 --overlap --bucket 50kB
spread 6 "$gpt" --tied apart

# shellcheck disable=SC2086
"$python" -W ignore "$check" "$source" $files

# The documentation's examples are what the programs say: same plan, same digest, a trace that can be drawn.
"$bin/ckpt-plan" --budget 10000B --strategy keep-all -o tiny.json example-graph.json >/dev/null
"$python" - example-plan.json tiny.json <<'PYTHON'
import json
import sys

documented, made = (json.load(open(name)) for name in sys.argv[1:])
for key in ("graph", "budget_bytes", "verdict", "layers", "steps"):
    assert documented[key] == made[key], f"docs/reference/formats.md: {key}: {documented[key]}, made: {made[key]}"
PYTHON
"$bin/ckpt-plan" --budget 1GB --strategy flags example-model.json >/dev/null
"$bin/ckpt-view" -o trace.svg example-trace.json >/dev/null

# The checker itself must be able to fail.
sed 's/"verdict": "fits"/"verdict": "perhaps"/' plan.json >broken.json
if "$python" -W ignore "$check" "$source" broken.json >/dev/null 2>&1; then
    echo "a broken plan passes"
    exit 1
fi

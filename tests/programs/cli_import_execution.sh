#!/usr/bin/env bash
# An ExecutionTrace of PyTorch becomes a graph, and that graph a plan that holds by the rules of docs/reference/formats.md.
set -u
source_dir=$1 bin_dir=$2 work_dir=$3
traces=$source_dir/tests/imports
rm -rf "$work_dir" && mkdir -p "$work_dir" && cd "$work_dir" || exit 1

# shellcheck source=tests/support/support_refuse.sh
. "$source_dir/tests/support/support_refuse.sh"

for run in transformer:75 mlp:80; do
  name=execution_${run%:*} percent=${run#*:}
  "$bin_dir/ckpt-profile" --import "$traces/$name.json" --times "$traces/$name.kineto.json" -o "$name.json" 2> said.txt ||
    fail "$name: $(cat said.txt)"
  grep -q "ProfilerStep#" said.txt || fail "$name: it does not say which step: $(cat said.txt)"
  if python3 -c "import jsonschema" 2> none.txt; then
    python3 "$source_dir/tests/programs/schema_check.py" "$source_dir" "$name.json" > schema.txt 2>&1 || fail "$name: $(cat schema.txt)"
  fi
  "$bin_dir/ckpt-plan" --budget "$percent%" -o plan.json "$name.json" > plan.txt || fail "$name: no plan: $(cat plan.txt)"
  python3 "$source_dir/tests/programs/replay_plan.py" "$name.json" plan.json > replay.txt 2>&1 || fail "$name: $(cat replay.txt)"
done
grep -q '"layer": "h.0.up"' execution_transformer.json || fail "the model's names of layers are lost"

refuse 2 "wanted the Kineto trace of the same run" "$bin_dir/ckpt-profile" --import "$traces/execution_cnn.json" \
  --times "$traces/execution_mlp.kineto.json" -o none.json
[ ! -e none.json ] || fail "a refused trace left a graph"

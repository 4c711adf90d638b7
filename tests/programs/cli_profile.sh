#!/usr/bin/env bash
# ckpt-profile from the outside: its file makes a plan, and that plan trains without the profile; files of other tools
# become traces and graphs. Commands are cli_inject.sh's.
set -u
export OMP_WAIT_POLICY=passive # spinning threads cost much where other tests share the cores
source_dir=$1 bin_dir=$2 work_dir=$3
profile=$bin_dir/ckpt-profile
model=$source_dir/models/byte-gpt.json
small=(--set batch=4 --set tokens=32 --set hidden=32 --set blocks=3 --set heads=2)
rm -rf "$work_dir" && mkdir -p "$work_dir" && cd "$work_dir" || exit 1

# shellcheck source=tests/support/support_refuse.sh
. "$source_dir/tests/support/support_refuse.sh"

"$profile" "${small[@]}" --threads 2 --repeats 3 -o p.json "$model" 2> said.txt || fail "profile: $(cat said.txt)"
grep -q "layers alone, caches not flushed: [0-9]" said.txt || fail "it does not say what layers alone take: $(cat said.txt)"
grep -q "a step by keep-all: .*, median of [0-9]* (forward .*, beside them .*)" said.txt || fail "it does not say what a step takes: $(cat said.txt)"
[ "$(grep -c '^ .*%  .*(.*) \(forward\|backward\|update\)$' said.txt)" -eq 5 ] || fail "five slowest parts: $(cat said.txt)"
grep -q '"format": "ckpt-profile/1"' p.json || fail "no profile"
grep -q '"flop": [1-9]' p.json || fail "no flop"
! grep -q '"roofline"' p.json || fail "a share of the roofline of a CPU that nobody named"
grep -q '"same_as": "h.0.qkv"' p.json || fail "identical layers are not measured once"
grep -q "oneDNN" p.json || fail "no library version in the machine block"
"$profile" "${small[@]}" --threads 2 --repeats 3 "$model" 2> /dev/null | grep -q '"format": "ckpt-profile/1"' || fail "stdout"

"$profile" "${small[@]}" --threads 2 --repeats 3 --seconds 0.001 --roofline cpu -o r.json "$model" 2> said.txt || fail "roofline"
grep -q '"roofline": [0-9.]*[1-9]' r.json || fail "no share of the roofline"
grep -q "of the data sheet's rate" said.txt || fail "shares are not told: $(cat said.txt)"

# Times in the step: of keep-all the rows and the overhead add up to the step's median, and so does a plan by them.
cat > sums.py <<'P'
import json, sys
p = json.load(open(sys.argv[1]))
rows, step = p["layers"], p["step"]
parts = [r[d] for r in rows for d in ("forward", "backward", "update") if r[d]["repeats"]]
assert step["plan"] == "keep-all" and step["time"]["repeats"] == len(step["time"]["samples_ns"]) == int(sys.argv[2]), step
assert sum(t["median_ns"] for t in parts) + step["overhead_ns"] == step["time"]["median_ns"], step
assert all(t["alone_ns"] > 0 for t in parts)
again = [r for r in rows if "recompute" in r]
assert len(again) > 3 * len(rows) / 4 and all(r["recompute"]["median_ns"] > 0 for r in again), [r["layer"] for r in rows if "recompute" not in r]
ways = [w["time"] for r in rows for w in r.get("variants", []) if not r.get("same_as")]
assert any(w["repeats"] == int(sys.argv[2]) for w in ways) or not ways, "no way was run"
print(step["time"]["median_ns"])
P
"$profile" "${small[@]}" --threads 2 --repeats 3 --steps 8 -o s.json "$model" 2> said.txt || fail "steps: $(cat said.txt)"
step_ns=$(python3 sums.py s.json 8) || fail "times in the step"
"$bin_dir/ckpt-plan" "${small[@]}" --profile s.json --strategy keep-all -o keep.json "$model" > /dev/null || fail "keep-all"
grep -q "\"time_ns\": $step_ns\b" keep.json || fail "keep-all is not predicted as it was measured: $step_ns"
"$profile" --threads 2 --repeats 3 --seconds 0.001 --steps 4 -o w.json "$source_dir/tests/models/no-library.json" 2> said.txt || fail "ways: $(cat said.txt)"
python3 sums.py w.json 4 > /dev/null || fail "times of ways in the step"

"$profile" "${small[@]}" --threads 2 --repeats 3 --isolated -o i.json "$model" 2> said.txt || fail "isolated: $(cat said.txt)"
grep -q "caches not flushed; a step by their sum: " said.txt || fail "isolated does not say how it measured: $(cat said.txt)"
! grep -q '"step"\|alone_ns\|recompute' i.json || fail "layers alone have times in a step"
python3 -c 'import json, sys; m = json.load(open(sys.argv[1])); m["layers"].pop(); json.dump(m, open("headless.json", "w"))' "$model"
"$profile" "${small[@]}" --threads 2 --repeats 3 --seconds 0.001 -o h.json headless.json 2> said.txt || fail "no loss: $(cat said.txt)"
grep -q "measured alone, not in the step: the model has no loss" said.txt || fail "no loss: $(cat said.txt)"
refuse 2 "runs no training step, so there is nothing for --steps" "$profile" --isolated --steps 3 "$model"
refuse 2 "steps takes" "$profile" --steps 2 "$model"
refuse 2 "a command is recorded: --isolated is for layers" "$profile" --isolated -- true

# A processor without AVX-512 has no Winograd, and a plan of the profile's own wanted it.
ONEDNN_MAX_CPU_ISA=AVX2 DNNL_MAX_CPU_ISA=AVX2 "$profile" --set batch=1 --threads 2 --repeats 3 --steps 3 --seconds 0.001 -o conv.json "$1/models/mnist-conv.json" \
    2> said.txt || fail "no Winograd: $(cat said.txt)"
grep -q winograd conv.json && fail "Winograd without AVX-512"

"$profile" "${small[@]}" --threads 2 --repeats 3 --seconds 0.001 --dtype bfloat16 -o n.json "$model" 2> said.txt || fail "bfloat16"
"$bin_dir/ckpt-plan" "${small[@]}" --threads 2 --dtype bfloat16 --profile n.json --budget 90% -o narrow.json "$model" > plan.txt || fail "plan in bfloat16"
"$bin_dir/ckpt-train" "${small[@]}" --dtype bfloat16 --plan narrow.json --steps 2 "$model" > train.txt || fail "a bfloat16 plan from a profile"
refuse 2 "profile this model" "$bin_dir/ckpt-plan" "${small[@]}" --threads 2 --profile n.json "$model"

"$bin_dir/ckpt-plan" "${small[@]}" --threads 2 --profile p.json --budget 75% -o plan.json "$model" > plan.txt || fail "plan"
grep -q "p.json" plan.txt || fail "the plan does not say where its costs come from: $(cat plan.txt)"
"$bin_dir/ckpt-plan" "${small[@]}" --threads 1 --profile p.json --strategy keep-all "$model" | grep -q "costs .*with times of 2 threads" ||
    fail "the plan does not say that its times are of other threads"
"$bin_dir/ckpt-train" "${small[@]}" --threads 2 --plan plan.json --steps 2 "$model" > train.txt || fail "train"
grep -q "(equal)" train.txt || fail "peaks differ: $(cat train.txt)"

refuse 2 "model file" "$profile"
refuse 2 "second" "$profile" "$model" "$model"
refuse 2 "no-such.json" "$profile" no-such.json
refuse 2 "repeats takes" "$profile" --repeats 2 "$model"
refuse 2 "seconds takes" "$profile" --seconds 0 "$model"
refuse 2 "threads takes" "$profile" --threads 1.5 "$model"
refuse 3 "cuda" "$profile" --device cuda:99 "$model"
refuse 2 "no such device" "$profile" --device abacus "$model"
refuse 2 "no/such" "$profile" "${small[@]}" --repeats 3 --seconds 0.001 -o no/such/folder.json "$model"
refuse 2 "no device \"abacus\"" "$profile" --roofline abacus "$model"
refuse 2 "command behind -- is missing" "$profile" --
refuse 2 "a command is recorded: --warm is for layers" "$profile" --warm -- true
refuse 2 "a command is recorded, and no model" "$profile" "$model" -- true
refuse 2 "a command is recorded: --import does not" "$profile" --import x.json -- true
refuse 2 "a file is imported: --device is for layers" "$profile" --device cpu --import x.json
refuse 2 "times belongs to --import" "$profile" --times x.json "$model"
refuse 2 "no-such.json" "$profile" --import no-such.json

# The kind of the file decides how it is imported; other programs read the result.
imports=$source_dir/tests/imports
import() { "$profile" --import "$@" 2> said.txt || fail "--import $*: $(cat said.txt)"; }
import "$imports/snapshot_training.pickle" -o snapshot.json
grep -q "events over .*, peak " said.txt || fail "no summary: $(cat said.txt)"
grep -q '"format": "ckpt-trace/1"' snapshot.json || fail "no trace of a snapshot"
import "$imports/kineto_training.json" > chrome.json
grep -q '"format": "ckpt-trace/1"' chrome.json || fail "no trace of a Chrome trace on standard output"
mkfifo pipe # as of <(gunzip -c trace.json.gz): it gives its bytes once
cat "$imports/kineto_training.json" > pipe &
import pipe -o piped.json
sed 's/"name": "pipe"/"name": "kineto_training.json"/' piped.json | cmp - chrome.json || fail "a pipe gives another trace"
refuse 2 "has times of its own" "$profile" --import "$imports/snapshot_training.pickle" --roofline h200
refuse 2 "no/such" "$profile" --import "$imports/snapshot_training.pickle" -o no/such/folder.json
"$profile" --help | grep -q "usage: ckpt-profile" || fail "--help"
"$profile" --version | grep -q "^ckpt-profile [0-9]" || fail "--version"
echo "profile, plan, train, import; refusals have one line"

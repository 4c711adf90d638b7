#!/bin/bash
# Convolutions by Winograd's algorithm: ckpt-profile measures the variant where the processor has it, only --allow-inexact
# plans it, and a step whose convolution runs in no other way trains: its layer was once never set up.
set -u
source_dir=$1 bin=$2 work=$3
rm -rf "$work" && mkdir -p "$work" && cd "$work" || exit 1
failures=0
fail() { echo "FAIL: $*"; failures=$((failures + 1)); }
model=$source_dir/models/mnist-conv.json
"$bin/ckpt-profile" -t 2 --seconds 0.001 --set batch=8 "$model" -o p.json 2>out || fail "ckpt-profile: $(cat out)"
grep -q '"variant": "winograd"' p.json || { echo "this processor has no such code in oneDNN" && exit 77; }
# As if it took no time, so that the plan does not depend on this machine.
python3 - <<'P'
import json
with open("p.json") as f:
    profile = json.load(f)
for row in profile["layers"]:
    for way in row.get("variants", []):
        if way["variant"] == "winograd":
            way["time"] = {"median_ns": 1, "spread_ns": 0, "repeats": 1, "samples_ns": [1]}
with open("fast.json", "w") as f:
    json.dump(profile, f)
P
plan() { "$bin/ckpt-plan" -t 2 --set batch=8 --profile fast.json --budget 200% "$@" "$model" >out || fail "ckpt-plan $*: $(cat out)"; }
train() { "$bin/ckpt-train" -t 2 --set batch=8 --plan "$1" --steps 3 --seed 1 "$model" >"$2" 2>&1 || fail "ckpt-train --plan $1: $(cat "$2")"; }
plan -o exact.plan
! grep -q '"run".*winograd' exact.plan || fail 'planned without being allowed'
plan --allow-inexact -o fast.plan
[ "$(grep -c '"run": "conv2/.*"variant": "winograd", "exact": false' fast.plan)" = 2 ] || fail "the plan does not use it: $(grep conv2/ fast.plan)"
train exact.plan exact.out && train fast.plan fast.out && train fast.plan again.out
grep -q 'measured peak .*(equal)' fast.out || fail "$(grep peak fast.out)"
[ "$(grep sha256 fast.out)" = "$(grep sha256 again.out)" ] || fail 'other bits the second time'
[ "$(grep sha256 fast.out)" != "$(grep sha256 exact.out)" ] || fail 'the same bits: it did not run'
paste <(awk '$1 == "step" && $3 == "loss" { print $4 }' exact.out) <(awk '$1 == "step" && $3 == "loss" { print $4 }' fast.out) |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-3 * $1) bad = 1; n++ } END { exit bad || n != 3 }' || fail "losses: $(grep loss exact.out fast.out)"

# A plan for more than this profile gives is refused in one line.
sed -i 's/"variant": "winograd", "workspace_bytes": [0-9]*/"variant": "winograd", "workspace_bytes": 64/' fast.json
plan --allow-inexact -o little.plan
"$bin/ckpt-train" -t 2 --set batch=8 --plan little.plan --steps 1 "$model" >out 2>&1
[ $? = 3 ] && grep -q 'the variant "winograd" needs [0-9]* bytes of workspace, the plan gives 64: profile and plan again' out || fail "too little: $(cat out)"
[ $failures = 0 ]

#!/usr/bin/env bash
# labels: cli; long under sanitizers
# Real training on the CPU drawn over what was planned: a GPT, a U-Net and a DenseNet, made small. The residual is zero
# bytes at every step and every place is where it was planned; one byte more, or a buffer elsewhere, is seen. Arguments:
# source folder, folder of the programs, work folder.
set -euo pipefail
source=$1 bin=$2 work=$3
rm -rf "$work"
mkdir -p "$work"
cd "$work"
fail() { echo "FAILED: $*"; exit 1; }

# U-Net with an eighth of its channels
python3 - "$source/models/unet.json" <<'P'
import json
import sys

def narrow(value, key=None):
    if isinstance(value, dict):
        return {k: narrow(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [narrow(v) for v in value]
    return value // 8 if key == "out_channels" and isinstance(value, int) and value >= 64 else value

json.dump(narrow(json.load(open(sys.argv[1]))), open("unet.json", "w"))
P
cp "$source/models/byte-gpt.json" "$source/models/densenet-bc-100-12.json" .

# overlay NAME BUDGET OPTION...
overlay() {
    local name=$1 budget=$2
    shift 2
    "$bin/ckpt-plan" --effort 0 --budget "$budget" "$name.json" "$@" -o plan.json \
        --trace "$name.predicted.json" >/dev/null || fail "$name: no plan under $budget"
    grep -q '"again": true' plan.json || fail "$name: the plan recomputes nothing"
    "$bin/ckpt-train" --plan plan.json "$name.json" "$@" --steps 3 --trace "$name.measured.json" >said
    "$bin/ckpt-view" "$name.predicted.json" "$name.measured.json" --width 140 -f txt -o "$name.txt"
    grep -q 'measured = predicted at every step, to the byte' "$name.txt" || fail "$name: $(head -5 "$name.txt")"
    grep -q '0 bytes at every step; all [0-9]* allocations as planned' "$name.txt" || fail "$name: $(grep residual "$name.txt")"
    "$bin/ckpt-view" "$name.predicted.json" "$name.measured.json" -o "$name.svg"
    "$bin/ckpt-view" "$name.predicted.json" "$name.measured.json" -o "$name.html"
    "$bin/ckpt-compare" --max-increase peak=0 "$name.predicted.json" "$name.measured.json" >said || fail "$name: $(cat said)"
    # The plan alone, without either trace, has the same peak.
    "$bin/ckpt-view" plan.json -f txt -o plan.txt
    local peak
    peak=$(sed -n 's/^peak \([0-9.]* [kMG]*B\).*/\1/p' "$name.txt" | head -1)
    grep -q "^peak $peak" plan.txt || fail "$name: peak $peak, but of the plan: $(head -3 plan.txt)"
}
overlay byte-gpt 65% --set batch=8 --set tokens=64 --set hidden=96 --set blocks=3
overlay unet 70% --set batch=2 --set size=64
overlay densenet-bc-100-12 50% --set batch=4 --set layers=4

python3 - <<'P'
import json
trace = json.load(open("byte-gpt.measured.json"))
event = max(trace["events"], key=lambda e: -abs(e["step"] - 20))
event["bytes"]["activations"] = event["bytes"].get("activations", 0) + 1
json.dump(trace, open("more.json", "w"))
trace = json.load(open("byte-gpt.measured.json"))
place = next(p for p in trace["places"] if p["offset"] >= 64)
place["offset"] -= 64
json.dump(trace, open("elsewhere.json", "w"))
P
"$bin/ckpt-view" byte-gpt.predicted.json more.json --width 140 -f txt -o more.txt
! grep -q 'at every step' more.txt || fail "a byte more is not seen"
grep -q 'step 20' more.txt && grep -q '1 B\b' more.txt || fail "a byte more at step 20: $(grep -i residual -A2 more.txt)"
"$bin/ckpt-view" byte-gpt.predicted.json elsewhere.json --width 140 -f txt -o elsewhere.txt
! grep -q 'allocations as planned' elsewhere.txt || fail "a buffer elsewhere is not seen"
echo "three networks measured as planned; one byte more and one place elsewhere are seen"

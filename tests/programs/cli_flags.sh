#!/bin/bash
# Checkpoints set by hand, from the command line: patterns, groups, policies, partitions; impossible ones say why.
set -u
source_dir=$1 bin=$2 work=$3
rm -rf "$work" && mkdir -p "$work" && cd "$work" || exit 1
plan=$bin/ckpt-plan
gpt=$source_dir/models/byte-gpt.json
failures=0
fail() { echo "FAIL: $*"; failures=$((failures + 1)); }

# expect CODE LINE ARGS...: exit code, and all of standard error
expect() {
    local code=$1 wanted=$2; shift 2
    "$plan" -t 2 "$@" >out.txt 2>err.txt
    local got=$?
    [ $got -eq "$code" ] || fail "ckpt-plan $*: exit $got, wanted $code: $(head -1 err.txt)"
    [ "$(cat err.txt)" = "$wanted" ] || fail "ckpt-plan $*: stderr says '$(cat err.txt)', wanted '$wanted'"
}
# recomputed NAMES ARGS...: exactly these layers are recomputed
recomputed() {
    local wanted=$1; shift
    "$plan" -t 2 -o plan.json "$@" >out.txt 2>err.txt || fail "ckpt-plan $*: $(cat err.txt)"
    local found
    found=$(grep '^    "[^"]*": "recompute"' plan.json | cut -d'"' -f2 | tr '\n' ' ')
    [ "$found" = "$wanted" ] || fail "ckpt-plan $*: recomputed '$found', wanted '$wanted'"
}

# Five units in two partitions, each of two layers; and a head.
layer() { echo "{ \"name\": \"$1.fc\", \"op\": \"linear\", \"features\": 64, \"stage\": $2 }, { \"name\": \"$1.act\", \"op\": \"gelu\", \"stage\": $3 },"; }
five() {
    cat <<M
{ "format": "ckpt-model/1", "name": "five", "vars": { "batch": 256 },
  "inputs": [ { "name": "x", "shape": ["batch", 64], "dtype": "float32" }, { "name": "y", "shape": ["batch"], "dtype": "int32" } ],
  "layers": [ $(layer a 0 0) $(layer b 0 "$1") $(layer c 1 1) $(layer d 1 1) $(layer e 1 1)
    { "name": "head", "op": "linear", "features": 10, "stage": 1 },
    { "name": "loss", "op": "cross_entropy", "in": ["head", "y"], "stage": 1 } ] }
M
}
five 0 >five.json
five 1 >split.json
units='--checkpoint [a-e]'

# Patterns: a block, layers in blocks, some copies. A kept layer wins inside a unit; the innermost name wins, then the last.
recomputed "a.fc " --checkpoint a --checkpoint c --keep c five.json
recomputed "h.0.ln1 h.0.qkv h.0.att h.0.proj h.0.drop1 h.0.add1 h.0.ln2 h.0.gelu " \
    --checkpoint 'h.0' --keep 'h.*.fc' "$gpt"
expect 2 "ckpt-plan: --checkpoint 'h.*.mlp' matches no layer or block; close names: h.0.ln1, h.0.qkv, h.0.att" --checkpoint 'h.*.mlp' "$gpt"
expect 2 "ckpt-plan: --keep 'heat' matches no layer or block; close names: head, h, h.0" --keep heat "$gpt"

# Early stop: only what backward needs of a unit is recomputed: a.act reads a.fc, and its own output is kept.
recomputed "a.fc b.fc c.fc d.fc e.fc " $units five.json
# A group does not cross a partition's end: [a,b|c,d,e] gives {a b} {c d e}, in which the insides go too.
recomputed "a.fc a.act b.fc c.fc c.act d.fc d.act e.fc " $units --strategy group_3 five.json
recomputed "a.fc a.act b.fc c.fc c.act d.fc e.fc " $units --strategy group_2 five.json
recomputed "a.fc a.act b.fc c.fc c.act d.fc d.act e.fc " $units --strategy contiguous five.json
recomputed "a.fc b.fc c.fc d.fc e.fc " $units --strategy each five.json
# checkpoint_sequential: two of five make a segment, the last takes the rest and is kept.
recomputed "a.fc a.act b.fc " $units --strategy segments:2 five.json
# A module split over partitions is skipped, and named, as SageMaker does.
recomputed "a.fc c.fc d.fc e.fc " $units split.json
expect 0 "ckpt-plan: warning: b is split over pipeline partitions (0 and 1): it is not checkpointed" $units split.json
expect 2 "ckpt-plan: found strategy segments:6, but the sequence has 5 units" $units --strategy segments:6 five.json
expect 2 "ckpt-plan: found strategy 'group_0', wanted one of --list-strategies" $units --strategy group_0 five.json

# One segment of the whole network saves nothing, and that is said.
expect 0 "ckpt-plan: warning: recomputing what is set saves nothing: the peak stays at 498 MB" --strategy contiguous "$gpt"

# A policy by kind of op; the first clause that matches decides.
recomputed "a.act b.act c.act d.act e.act " --policy 'linear=save,*=recompute' five.json
recomputed "" --policy 'gelu=must-save,gelu=recompute,linear=must_save' five.json
expect 2 "ckpt-plan: --policy 'conv2d=save' matches no op; there are linear, gelu, cross_entropy" --policy conv2d=save five.json
expect 2 "ckpt-plan: --policy: found 'linear', wanted OP=WHAT such as linear=save" --policy linear five.json
expect 2 "ckpt-plan: --policy: found 'gelu=drop', wanted save, recompute, must-save, prefer-save, must-recompute, prefer-recompute or offload behind the =" --policy gelu=drop five.json
expect 2 "ckpt-plan: --policy 'cross_entropy=recompute' cannot be: loss/forward may not be recomputed" --policy cross_entropy=recompute five.json
# Must holds under a budget, prefer does not.
expect 1 "ckpt-plan: note: no plan that does what is set is within the budget" --policy '*=save' -b 60% "$gpt"
expect 0 "" -e 0 --policy '*=prefer-save' -b 60% "$gpt"

# The planner does the rest: the flagged layers alone do not fit, with more recomputed the step does.
expect 0 "" -e 0 --checkpoint 'h.[0-2]' -b 60% "$gpt"
expect 2 "ckpt-plan: h.0.ln1 is to be offloaded, and no link is known: add --link RATE" --offload 'h.*' "$gpt"

# FairScale's offload_to_cpu: what enters a unit goes to the host while backward does not need it, beside the runs.
"$plan" -t 2 --link 20GB/s --json --checkpoint 'h.*' "$gpt" >here.json 2>err.txt
expect 0 "" --link 20GB/s --json --checkpoint 'h.*' --offload 'h.*' "$gpt"
number() { sed "s/.*\"$1\": \([0-9]*\).*/\1/" "$2"; }
[ "$(number offloaded_layers out.txt)" -eq 6 ] || fail "offloaded: $(cat out.txt)"
[ "$(number offload_bytes out.txt)" -eq $((6 * 3145728)) ] || fail "not the inputs of six blocks: $(cat out.txt)"
[ "$(sed 's/, "keep_all.*//' out.txt | grep -o '"peak_bytes": [0-9]*' | head -1 | cut -d' ' -f2)" -lt \
  "$(sed 's/, "keep_all.*//' here.json | grep -o '"peak_bytes": [0-9]*' | head -1 | cut -d' ' -f2)" ] || fail "copies saved nothing"
[ "$(number time_ns out.txt)" = "$(number time_ns here.json)" ] || fail "compute waits for copies"
expect 2 "ckpt-plan: while planning by flags: what is set to be offloaded takes 302481408 bytes on the host, and there are 1000000" \
    --link 20GB/s --host-memory 1MB --offload 'h.*' "$gpt"
sed 's/"name": "a.act"/"name": "a.act", "offload": true/' five.json >away.json
expect 2 "ckpt-plan: a.act is to be offloaded, and no link is known: add --link RATE" away.json
expect 0 "" --ignore-flags away.json
expect 0 "ckpt-plan: note: the model's checkpoint flags decide what they say; --ignore-flags plans freely" --link 20GB/s away.json
grep -q '1 offloaded' out.txt || fail "the model's offload flag: $(cat out.txt)"

# The plan records them, and --check plans with them.
"$plan" -t 2 -o kept.json --checkpoint 'h.*' --keep 'h.*.att' --policy gelu=recompute --strategy group_2 "$gpt" >out.txt 2>&1 || fail "plan: $(cat out.txt)"
"$plan" --check kept.json >out.txt 2>&1 || fail "--check: $(cat out.txt)"
for name in each contiguous group_N segments:N; do "$plan" --list-strategies | grep -q "^$name " || fail "$name is not listed"; done

[ $failures -eq 0 ] && echo "all as expected"
exit $((failures > 0))

#!/bin/bash
# ckpt-plan on a graph with variants and an optional op: what it chooses, what it says of that, what it refuses.
set -u
source_dir=$1 bin=$2 work=$3
rm -rf "$work" && mkdir -p "$work" && cd "$work" || exit 1
plan=$bin/ckpt-plan
failures=0
fail() { echo "FAIL: $*"; failures=$((failures + 1)); }

# expect CODE PATTERN-IN-STDERR ARGS...
expect() {
    local code=$1 pattern=$2; shift 2
    "$plan" "$@" >out.txt 2>err.txt
    local got=$?
    [ $got -eq "$code" ] || fail "ckpt-plan $*: exit $got, wanted $code: $(head -1 err.txt)"
    if [ -n "$pattern" ]; then
        [ "$(wc -l <err.txt)" -eq 1 ] || fail "ckpt-plan $*: $(wc -l <err.txt) lines on stderr: $(cat err.txt)"
        grep -q -- "$pattern" err.txt || fail "ckpt-plan $*: stderr says '$(cat err.txt)', wanted $pattern"
    fi
}
says() { grep -q -- "$1" out.txt || fail "stdout lacks '$1': $(cat out.txt)"; }
replayed() { python3 "$source_dir/tests/programs/replay_plan.py" relu.json plan.json >replay.txt 2>&1 || fail "$(cat replay.txt)"; }

# A relu of 1000 bytes between two products: its backward reads the output, or a mask of 32 bytes that an optional op packs. The
# products read no activations in backward, so with the mask nothing large is kept.
cat >relu.json <<'J'
{ "format": "ckpt-graph/1", "name": "relu",
  "buffers": [ { "name": "x", "bytes": 1000 }, { "name": "y", "bytes": 1000 }, { "name": "m", "bytes": 32, "kind": "saved" },
    { "name": "z", "bytes": 100 }, { "name": "gz", "bytes": 100, "kind": "gradient" }, { "name": "gy", "bytes": 1000, "kind": "gradient" },
    { "name": "gx", "bytes": 1000, "kind": "gradient" } ],
  "ops": [
    { "name": "a", "phase": "forward", "layer": "a", "writes": ["x"], "time_ns": 1000, "variant": "plain",
      "variants": [ { "name": "winograd", "time_ns": 400, "workspace_bytes": 300, "exact": false } ] },
    { "name": "relu", "phase": "forward", "layer": "relu", "reads": ["x"], "writes": ["y"], "inplace": [["y", "x"]], "time_ns": 100 },
    { "name": "pack", "phase": "forward", "layer": "relu", "reads": ["y"], "writes": ["m"], "time_ns": 30, "optional": true },
    { "name": "b", "phase": "forward", "layer": "b", "reads": ["y"], "writes": ["z"], "time_ns": 1000 },
    { "name": "b/grad", "phase": "backward", "layer": "b", "reads": ["z"], "writes": ["gz"], "time_ns": 500 },
    { "name": "b/grad2", "phase": "backward", "layer": "b", "reads": ["gz"], "writes": ["gy"], "time_ns": 500 },
    { "name": "relu/grad", "phase": "backward", "layer": "relu", "reads": ["gy", "y"], "writes": ["gx"], "inplace": [["gx", "gy"]], "time_ns": 120,
      "variants": [ { "name": "bits", "reads": ["gy", "m"], "time_ns": 110 } ] } ] }
J

# Room for everything: nothing optional runs, and the plan is keep-all's.
expect 0 '' --budget 5kB relu.json -o plan.json; says '+0.00 % over keep-all'; replayed
grep -q '"pack"' <(sed -n '/"steps"/,/\]/p' plan.json) && fail 'an optional op runs though there is room'
# Too little to keep y beside its gradient: the mask is packed, and that is named.
expect 0 '' --budget 1200B relu.json -o plan.json; says '^variants  *1 runs are by variants of their ops; 0 of them'; replayed
grep -q '"run": "relu/grad", "inplace": true, "variant": "bits"' plan.json || fail "$(grep relu/grad plan.json)"
expect 0 '' --budget 1200B --explain relu.json; says '^relu/grad  *bits  *same  *1 '; says '^pack  *runs  *same  *1 '
expect 0 '' --budget 1200B --explain --json relu.json; says '"op": "relu/grad", "variant": "bits", "exact": true'
# Other bits only when asked for, and never within less than they need.
grep -q '"exact": false' plan.json && fail 'an inexact variant was used unasked'
expect 0 '' --budget 5kB --allow-inexact relu.json -o plan.json; says '1 of them give other bits'; replayed
grep -q '"run": "a", "variant": "winograd", "exact": false' plan.json || fail "$(grep '"run": "a"' plan.json)"
expect 0 '' --check plan.json relu.json
# What people see of them.
"$bin/ckpt-view" plan.json >out.txt; says 'variants  *1 of 6 runs in another way, 1 inexact'; says '  a 1 × winograd (inexact)'
"$bin/ckpt-graph" --plan plan.json relu.json -f dot >out.txt; says 'a.n1.00 kB.n400 ns.nby winograd ~'; says 'pack.*optional, does not run'
"$plan" --budget 5kB --allow-inexact relu.json --trace trace.json >/dev/null && grep -q '"name": "a", "layer": "a", "variant": "winograd", "exact": false' trace.json || fail "$(head -20 trace.json)"
# Compared: which ways differ, what that costs, and that the bits do.
"$plan" --budget 1200B relu.json -o bits.json >/dev/null
"$bin/ckpt-compare" bits.json plan.json >out.txt
says 'runs in another way  *1  *1 '; says 'inexact runs  *0  *1 '; says 'the plans give other bits: 1 op is run by an inexact variant'
says '^  a  *plain → winograd (inexact)  *-600 ns  *+300 B'; says '^  relu/grad  *bits → its own way  *+10 ns'; says '^  pack  *its own way → not run  *-30 ns'
"$bin/ckpt-compare" bits.json plan.json --json >out.txt; says '"op": "a", "base": "plain", "new": "winograd (inexact)", "time_ns": -600, "workspace_bytes": 300'
"$bin/ckpt-compare" bits.json plan.json -f csv >out.txt; says '"way","pack","time","ns",,-30,"",,"its own way -> not run"'
"$bin/ckpt-compare" bits.json plan.json -f md >out.txt; says '| `relu/grad` |'; "$bin/ckpt-compare" bits.json plan.json -f html >out.txt; says 'Ways that changed'
"$bin/ckpt-compare" --max inexact=0 bits.json plan.json >out.txt; [ $? -eq 1 ] || fail '--max inexact=0 holds'
"$bin/ckpt-compare" --max inexact=1 bits.json plan.json >out.txt; [ $? -eq 0 ] || fail '--max inexact=1 is exceeded'
"$bin/ckpt-compare" --max inexact=x bits.json plan.json 2>out.txt; [ $? -eq 2 ] || fail '--max inexact=x'; says 'found "x", wanted a number of runs'
"$bin/ckpt-compare" plan.json plan.json >out.txt; grep -q 'Ways\|other bits' out.txt && fail 'a plan differs from itself'
# Every strategy answers, for selected ways.
expect 0 '' --budget 1200B --compare-strategies relu.json; says '^auto '; says '^chain '

# Plans that say what the graph does not.
sed 's/"winograd"/"fft"/' plan.json >wrong.json
expect 1 '' --check wrong.json relu.json; says 'as variant "fft", which the op does not have'
sed 's/, "exact": false//' plan.json >wrong.json
expect 1 '' --check wrong.json relu.json; says 'gives other bits, and the plan says the same'
# Graphs that cannot be.
sed 's/"name": "bits"/"name": ""/' relu.json >wrong.json; expect 2 'found a variant named ""' wrong.json
sed 's/"name": "winograd"/"name": "plain"/' relu.json >wrong.json; expect 2 'two variants are named "plain"' wrong.json
sed 's/"reads": \["gy", "y"\]/"reads": ["gy", "m"]/' relu.json >wrong.json; expect 2 'needs "m", which only variants or optional ops write' wrong.json
sed 's/"reads": \["gy", "m"\]/"reads": ["gy", "q"]/' relu.json >wrong.json; expect 2 'found "q", wanted the name of one of the 7 buffers' wrong.json

[ $failures -eq 0 ] || { echo "$failures failures"; exit 1; }
echo "ok"

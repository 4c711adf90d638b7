#!/bin/bash
# ckpt-plan's command line: results, exit codes, one line per error, budgets as people write them.
set -u
source_dir=$1 bin=$2 work=$3
rm -rf "$work" && mkdir -p "$work" && cd "$work" || exit 1
plan=$bin/ckpt-plan
model=$source_dir/models/mnist-conv.json
failures=0
fail() { echo "FAIL: $*"; failures=$((failures + 1)); }

# expect CODE PATTERN-IN-STDERR ARGS...: exit code, and for complaints exactly one line that matches
expect() {
    local code=$1 pattern=$2; shift 2
    "$plan" "$@" >out.txt 2>err.txt
    local got=$?
    [ $got -eq "$code" ] || fail "ckpt-plan $*: exit $got, wanted $code: $(head -1 err.txt)"
    if [ -n "$pattern" ]; then
        [ "$(wc -l <err.txt)" -eq 1 ] || fail "ckpt-plan $*: $(wc -l <err.txt) lines on stderr"
        grep -q -- "$pattern" err.txt || fail "ckpt-plan $*: stderr says '$(cat err.txt)', wanted $pattern"
    else
        [ ! -s err.txt ] || fail "ckpt-plan $*: stderr says '$(cat err.txt)'"
    fi
}
says() { grep -q -- "$1" out.txt || fail "stdout lacks '$1': $(cat out.txt)"; }

cat >tiny.json <<'G'
{ "format": "ckpt-graph/1", "name": "tiny",
  "static":  [ { "name": "weights", "bytes": 1000 } ],
  "buffers": [ { "name": "a0", "bytes": 512, "kind": "activation" }, { "name": "s0", "bytes": 16, "kind": "saved" },
               { "name": "g0", "bytes": 512, "kind": "gradient" } ],
  "ops": [
    { "name": "f0", "phase": "forward",  "layer": "l0", "reads": [], "writes": ["a0", "s0"], "time_ns": 700 },
    { "name": "b1", "phase": "backward", "layer": "l1", "reads": ["a0"], "writes": ["g0"], "time_ns": 900 },
    { "name": "b0", "phase": "backward", "layer": "l0", "reads": ["g0", "s0"], "writes": [], "time_ns": 800 } ] }
G

# A graph: keep-all needs 1000 + 512 + 16 + 512.
expect 0 '' tiny.json
says 'no limit'; says '(2040 bytes)'; says 'times in tiny.json'; says '1 kept, 0 recomputed'
expect 0 '' --budget 2040 tiny.json
says 'budget .*2040 bytes'
expect 1 '' --budget 2039B tiny.json
says 'does not fit'; says 'minimum budget .*(2040 bytes)'
expect 0 '' --budget 100% tiny.json
expect 0 '' --json --budget 3KB tiny.json
says '"verdict": "fits"'; says '"peak_bytes": 2040'; says '"time_ns": 2400'; says '"estimated": false'
expect 1 '' --json --budget 1500 tiny.json
says '"verdict": "infeasible"'; says '"least_budget_bytes": 2040'
"$plan" - <tiny.json >out.txt 2>err.txt || fail "standard input: $(cat err.txt)"
says '(2040 bytes)'

# A model: the roofline is named as an estimate; a plan and its trace come out, to files and to standard output.
expect 0 '' --budget 95% -o plan.json --trace trace.json "$model"
says 'roofline of cpu (an estimate'; says 'step time'; says 'fragmentation'; says 'planned in'
grep -q '"format": *"ckpt-plan/1"' plan.json || fail "plan.json is no plan"
grep -q '"format": *"ckpt-trace/1"' trace.json || fail "trace.json is no trace"
expect 0 '' --budget 95% -o - "$model"
says '"format": *"ckpt-plan/1"'
expect 1 '' --budget 1KB -o plan.json "$model"
grep -q 'infeasible' plan.json || fail "an infeasible plan was not written"
expect 0 '' --list-strategies
for name in auto keep-all recompute-all sqrt flags chain; do says "^$name "; done
for name in auto keep-all recompute-all sqrt chain; do expect 0 '' --strategy $name "$model"; done

# The minimum budget that is named does do.
for file in "$source_dir"/models/mlp.json "$model"; do
    "$plan" --json --budget 1KB "$file" >out.txt 2>err.txt
    least=$(sed 's/.*"least_budget_bytes": \([0-9]*\).*/\1/' out.txt)
    "$plan" --budget "$least" "$file" >out.txt 2>err.txt || fail "$file does not fit its minimum budget $least"
done

# Flags in the model are obeyed unless another strategy is asked for by name, or --ignore-flags is given; and it is said.
cp "$source_dir/tests/models/resnet-small.json" flagged.json
expect 0 'flags decide what they say' flagged.json
says 'strategy  *flags'
expect 0 'flags decide' --json flagged.json
[ "$(sed 's/.*"recomputed_layers": \([0-9]*\).*/\1/' out.txt)" -gt 0 ] || fail "flagged, and nothing recomputed: $(cat out.txt)"
expect 0 'does not read' --strategy chain flagged.json
expect 0 '' --strategy flags flagged.json
expect 0 '' --ignore-flags flagged.json
says '0 recomputed'
expect 2 'wanted one of' --ignore-flags --strategy flags flagged.json
expect 2 'no "checkpoint" flags' --strategy flags "$model"
# A layer flagged false is never recomputed, in a plan of the same graph; the bound is for such schedules only. Of a model
# without variants: those make room without recomputation, and no bound is known of what obeys flags.
flagless=$model
sed 's/"relu"/"tanh"/; s/"dropout", "p": [0-9.]*/"tanh"/' "$flagless" >smooth.json
model=smooth.json
expect 0 '' -e 0 --budget 95% -o free.json "$model"
grep -q '"recompute"' free.json || fail "nothing is recomputed at 95 %"
sed 's/"name": "conv1"/"name": "conv1", "checkpoint": false/' "$model" >kept.json
expect 1 'flags decide what they say' -e 0 --budget 95% kept.json
says 'does not fit'
sed 's/"name": "pool"/"name": "pool", "checkpoint": false/' "$model" >kept.json
expect 0 'flags decide what they say' -e 0 --budget 95% -o kept-plan.json kept.json
says 'fits'; says 'no schedule'
[ "$(grep -o '"sha256": "[^"]*"' free.json)" = "$(grep -o '"sha256": "[^"]*"' kept-plan.json)" ] || fail "flags change the graph"
expect 0 'flags decide what they say' -e 0 --budget 95% --start kept-plan.json kept.json
# A unit that must be recomputed: the bound is for schedules that recompute it, not for all.
sed 's/"name": "pool"/"name": "pool", "checkpoint": true/' "$model" >again.json
expect 0 'flags decide what they say' -e 0 --budget 95% again.json
says 'fits'; says 'no schedule of scope flagged within the budget is faster'
expect 0 'flags decide what they say' -e 0 --sweep 2 --json again.json
says '"scope": "flagged"'
expect 0 'flags decide what they say' -e 0 --sweep 2 --json kept.json
says '"strategy": "flags"'
expect 0 'flags decide what they say' -e 0 --maximize batch --budget 60MB -o largest.json kept.json

# What a plan is for: threads of the CPU, or a GPU, by the device or by what was profiled; bfloat16 halves what moves.
expect 0 '' -t 2 -o cpu.json "$model"
grep -q '"target": "cpu", "threads": 2' cpu.json || fail "no target cpu"
expect 0 '' --device h200 -o gpu.json "$model"
grep -q '"target": "gpu"' gpu.json || fail "no target gpu"
grep -q '"threads"' gpu.json && fail "a plan for a GPU has threads"
expect 0 '' --device h200 --dtype bfloat16 -o narrow.json "$model"
bytes() { sed -n "s/.*\"$2\": \([0-9]*\).*/\1/p" "$1" | head -1; }
[ "$(bytes narrow.json arena_bytes)" -lt $(($(bytes gpu.json arena_bytes) * 7 / 10)) ] || fail "bfloat16 takes more than 0.7 of float32"
[ "$(bytes narrow.json static_bytes)" -gt "$(bytes gpu.json static_bytes)" ] || fail "no bfloat16 copy of the weights"
sed 's/^  "dtype": "float32"/  "dtype": "bfloat16"/' "$model" >narrow-model.json
expect 0 '' --device h200 -o same.json narrow-model.json
[ "$(grep -o '"sha256": "[^"]*"' same.json)" = "$(grep -o '"sha256": "[^"]*"' narrow.json)" ] || fail "--dtype and \"dtype\" differ"
expect 0 '' --device h200 --dtype float32 -o same.json narrow-model.json
[ "$(grep -o '"sha256": "[^"]*"' same.json)" = "$(grep -o '"sha256": "[^"]*"' gpu.json)" ] || fail "--dtype float32 does not override"
cat >one.json <<'M'
{ "format": "ckpt-model/1", "name": "one", "inputs": [ { "name": "x", "shape": [64, 256] } ],
  "layers": [ { "name": "fc", "op": "linear", "features": 256 }, { "name": "loss", "op": "mse", "in": ["fc", "x"] } ] }
M
for target in cpu gpu; do
    named=
    [ $target = cpu ] || named=', "algorithms": "forward=lt1:2;weight=lt1:3"'
    cat >one-profile.json <<P
{ "format": "ckpt-profile/1", "model": "one", "machine": { "device": "d", "target": "$target", "threads": 0 },
  "layers": [ { "layer": "fc", "op": "linear", "forward": { "median_ns": 5, "repeats": 1 }$named },
              { "layer": "loss", "op": "mse", "forward": { "median_ns": 5, "repeats": 1 } } ] }
P
    expect 0 '' --profile one-profile.json -o one-plan.json --trace one-trace.json one.json
    grep -q "\"target\": \"$target\"" one-plan.json || fail "a profile of a $target, and the plan says $(grep target one-plan.json)"
    # A plan names the algorithms that were measured.
    [ "$(grep -c '"fc": "forward=lt1:2;weight=lt1:3"' one-plan.json)" = "$([ $target = cpu ]; echo $?)" ] || fail "algorithms of a $target: $(cat one-plan.json)"
    grep -q '"algorithms"' one-plan.json && [ $target = cpu ] && fail "a plan for the CPU names algorithms"
    [ $target = cpu ] || expect 0 '' --check one-plan.json
    grep -q "\"target\": \"$target\"" one-trace.json || fail "a profile of a $target, and the trace is of another"
done
expect 2 'one-profile.json is of a GPU' --profile one-profile.json -t 2 one.json
expect 2 'h200 is of a GPU' --device h200 -t 2 "$model"
expect 2 'found dtype "half", wanted float32 or bfloat16' --dtype half "$model"
expect 2 'for models' --dtype bfloat16 tiny.json

# --reserve: the plan is made for the rest of the budget.
expect 0 '' --budget 2140 --reserve 100 -o reserved.json tiny.json
says '(2040 bytes)'; says 'reserve  *100 B'
grep -q '"budget_bytes": 2040' reserved.json && grep -q '"reserve_bytes": 100' reserved.json || fail "$(head -6 reserved.json)"
expect 0 '' --json --budget 2140 --reserve 100 tiny.json
says '"budget_bytes": 2040, "reserve_bytes": 100'
expect 1 '' --budget 2000 --reserve 1500 tiny.json
says 'and the reserve beside it'
expect 2 'leaves nothing' --budget 2000 --reserve 2000 tiny.json
expect 2 'wants\|kept of a --budget' --reserve 2000 tiny.json
expect 2 'reserve' --budget 2000 --reserve lots tiny.json
expect 2 'with --pack' --pack tiny.json --reserve 5

# Bad usage and input: one line, exit 2.
expect 2 'see --help'
expect 2 'two files' tiny.json tiny.json
expect 2 '6G' --budget 6G tiny.json
expect 2 'size' --budget 0 tiny.json
expect 2 'wanted a size' --budget lots tiny.json
expect 2 'nonesuch' --strategy nonesuch tiny.json
expect 2 'threads' --threads 0 "$model"
expect 2 'missing.json' missing.json
expect 2 'nobody' --set nobody=3 "$model"
expect 2 'quantum' --device quantum "$model"
expect 2 'for models' --device cpu tiny.json
expect 2 'for models' --threads 2 tiny.json
expect 2 'no link is known' --strategy joint tiny.json
expect 2 'no link is known' --host-memory 1GB tiny.json
expect 2 'standard output' --json -o - tiny.json
expect 2 'unknown\|--colour' --colour tiny.json
echo '{ "format": "ckpt-plan/1" }' >wrong.json
expect 2 'wrong.json:1:.*ckpt-model/1' wrong.json
echo '{ "format": "ckpt-graph/2" }' >wrong.json
expect 2 'wrong.json:1:' wrong.json
expect 2 'no/such/folder' -o no/such/folder/plan.json tiny.json

[ $failures -eq 0 ] && echo "all as expected"
exit $((failures > 0))

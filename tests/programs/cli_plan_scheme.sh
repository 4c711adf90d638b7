#!/bin/bash
# Steps over several micro-batches, replicas and pipeline stages: what the programs plan, draw and record,
# replayed by tests/programs/replay_plan.py, and what cannot be.
set -u
source_dir=$1 bin=$2 work=$3
rm -rf "$work" && mkdir -p "$work" && cd "$work" || exit 1
plan=$bin/ckpt-plan graph=$bin/ckpt-graph
failures=0
fail() { echo "FAIL: $*"; failures=$((failures + 1)); }

# expect CODE PATTERN-IN-STDERR PROGRAM ARGS...: exit code, and for complaints exactly one line that matches
expect() {
    local code=$1 pattern=$2 program=$3; shift 3
    "$bin/$program" "$@" >out.txt 2>err.txt
    local got=$?
    [ $got -eq "$code" ] || fail "$program $*: exit $got, wanted $code: $(head -1 err.txt)"
    if [ -n "$pattern" ]; then
        [ "$(wc -l <err.txt)" -eq 1 ] || fail "$program $*: $(wc -l <err.txt) lines on stderr: $(cat err.txt)"
        grep -qF -- "$pattern" err.txt || fail "$program $*: stderr says '$(cat err.txt)', wanted '$pattern'"
    else
        [ ! -s err.txt ] || fail "$program $*: stderr says '$(cat err.txt)'"
    fi
}
says() { grep -q -- "$1" out.txt || fail "stdout lacks '$1': $(cat out.txt)"; }
replay() { python3 "$source_dir/tests/programs/replay_plan.py" "$@" >replay.txt 2>&1 || fail "replay $*: $(cat replay.txt)"; }
number() { grep -o "\"$1\": [0-9]*" "$2" | head -1 | grep -o '[0-9]*$'; }
recomputed() { grep '^    "[^"]*": "recompute"' "$1" | cut -d'"' -f2 | tr '\n' ' '; }

# Four blocks of two layers; $1: what stands in a block's entry beside its name.
block() { echo "{ \"name\": \"h.$1.fc\", \"op\": \"linear\", \"features\": 64$2 }, { \"name\": \"h.$1.act\", \"op\": \"gelu\"$3 },"; }
model() {
    cat <<M
{ "format": "ckpt-model/1", "name": "four", "vars": { "batch": 512 },
  "inputs": [ { "name": "x", "shape": ["batch", 64], "dtype": "float32" }, { "name": "y", "shape": ["batch"], "dtype": "int32" } ],
  "layers": [
    $(block 0 "$1" "$1")
    $(block 1 "$2" "$3")
    $(block 2 "$4" "$4")
    $(block 3 "$5" "$5")
    { "name": "head", "op": "linear", "features": 10 },
    { "name": "loss", "op": "cross_entropy", "in": ["head", "y"] } ],
  "optimizer": { "name": "adam", "lr": 0.001 } }
M
}
model "" "" "" "" "" >four.json
model ', "stage": 0' "" "" ', "stage": 1' "" >given.json
model ', "stage": 0' "" ', "stage": 1' "" "" >split.json
t='-t 2'

# ---- micro-batches: ckpt-graph writes the graph that ckpt-plan plans; --check makes the same plan.
expect 0 '' ckpt-plan $t -m 3 -b 85% -o micro.json four.json
says 'scheme  *3 micro-batches'; says 'in 3 micro-batches'
expect 0 '' ckpt-graph $t -m 3 -o micro-graph.json four.json
replay micro-graph.json micro.json
grep -q '"scheme": { "micro_batches": 3, "gradients": "static" }' micro.json || fail "no scheme in the plan"
expect 0 '' ckpt-plan --check micro.json
expect 1 '' ckpt-plan --check micro.json -m 2
expect 0 '' ckpt-plan --json -b 85% micro-graph.json # the graph alone says as much
cp out.txt graph-answer.txt
[ "$(number peak_bytes graph-answer.txt)" = "$(number peak_bytes micro.json)" ] || fail "a graph is planned otherwise than its model"
expect 0 '' ckpt-plan $t -o plain.json four.json
expect 0 '' ckpt-plan $t -m 1 --replicas 1 --pipeline-stages 1 --gradients static -o same.json four.json
diff <(grep -v '"seconds"\|solver' plain.json) <(grep -v '"seconds"\|solver' same.json) >/dev/null || fail "a plain scheme makes another plan"
grep -q '"scheme"' plain.json && fail "a plain scheme is written"

# A choice for a layer holds in all its micro-batches; a unit or a group is within one.
expect 0 '' ckpt-plan $t -m 2 --checkpoint 'h.[01]' -o set.json four.json
[ "$(recomputed set.json)" = "h.0.fc@0 h.1.fc@0 h.0.fc@1 h.1.fc@1 " ] || fail "units: $(recomputed set.json)"
replay <("$graph" $t -m 2 four.json) set.json
expect 0 '' ckpt-plan $t -m 2 --checkpoint 'h.?' --strategy group_2 -o set.json four.json
[ "$(recomputed set.json)" = "h.0.fc@0 h.0.act@0 h.1.fc@0 h.2.fc@0 h.2.act@0 h.3.fc@0 h.0.fc@1 h.0.act@1 h.1.fc@1 h.2.fc@1 h.2.act@1 h.3.fc@1 " ] || fail "groups: $(recomputed set.json)"
expect 0 '' ckpt-plan $t -m 2 --policy 'gelu=recompute' -o set.json four.json
[ "$(recomputed set.json)" = "h.0.act@0 h.1.act@0 h.2.act@0 h.3.act@0 h.0.act@1 h.1.act@1 h.2.act@1 h.3.act@1 " ] || fail "policy: $(recomputed set.json)"
expect 0 '' ckpt-plan $t -m 2 --link 10GB/s --offload 'h.0.act' -o set.json four.json
[ "$(grep -c '"offload": "h.0.act@[01]"' set.json)" -eq 2 ] || fail "offload in each micro-batch: $(grep offload set.json)"
expect 2 "matches no layer or block; close names: h.0.fc" ckpt-plan $t -m 2 --checkpoint 'h.0.fc@1' four.json
# One row for a layer, with any number of micro-batches.
expect 0 '' ckpt-plan $t -m 3 -b 85% --explain four.json
says 'of 3 micro-batches together'
[ "$(grep -c '^h.0.fc  ' out.txt)" -eq 1 ] || fail "rows of --explain: $(cat out.txt)"
grep -q '^h.0.fc@' out.txt && fail "--explain names micro-batches"

# ---- where gradients and optimizer state are
expect 0 '' ckpt-plan $t -m 2 --gradients fused -o fused.json four.json
says 'fused gradients'; says 'weights, optimizer, inputs'
replay <("$graph" $t -m 2 --gradients fused four.json) fused.json
expect 0 '' ckpt-plan $t -m 2 -o static.json four.json
weights=$(grep -o '"name": "weights", "bytes": [0-9]*' static.json | grep -o '[0-9]*$')
[ $(($(number static_bytes static.json) - $(number static_bytes fused.json))) -eq "$weights" ] || fail "fused gradients are in the static block"
expect 0 '' ckpt-plan $t --replicas 2 -o two.json four.json
expect 0 '' ckpt-plan $t --replicas 2 --shard optimizer --bucket 16KB -o shard.json four.json
says '2 replicas (buckets of 16.0 kB, optimizer sharded)'
[ "$(number static_bytes shard.json)" -lt "$(number static_bytes two.json)" ] || fail "sharding saves nothing"
replay <("$graph" $t --replicas 2 --shard optimizer --bucket 16KB four.json) shard.json
expect 0 '' ckpt-plan --check shard.json
expect 0 '' ckpt-plan $t --replicas 4 --overlap --network 1GB/s -o over.json four.json
replay <("$graph" $t --replicas 4 --overlap --network 1GB/s four.json) over.json
expect 0 '' ckpt-plan --check over.json

expect 0 '' ckpt-plan $t --set batch=2 --set tokens=32 --set blocks=1 --tied apart --gradients fused -o tied.json "$source_dir/models/byte-gpt.json"
grep -q '"--tied", "apart"' tied.json || fail "--tied is not recorded: $(grep options tied.json)"
expect 0 '' ckpt-plan --check tied.json

# ---- all stages: a plan, a trace and a row for each; the same as the stage alone
expect 0 '' ckpt-plan $t -m 4 --pipeline-stages 3 -b 95% -o p.json --trace t.json four.json
[ "$(head -1 out.txt)" = "Partition assignments:" ] || fail "assignments come first: $(head -1 out.txt)"
[ "$(grep -c ' of parameters ' out.txt)" -eq 3 ] || fail "an assignment for each stage: $(cat out.txt)"
says '^predicted step .* 1F1B with 4 micro-batches: .* bubbles'
[ -e p.json ] && fail "a file of no stage"
for k in 0 1 2; do
    replay <("$graph" $t -m 4 --pipeline-stages 3 --stage $k four.json) p.stage-$k.json
    expect 0 '' ckpt-plan --check p.stage-$k.json
    expect 0 '' ckpt-plan $t -m 4 --pipeline-stages 3 --stage $k -b 95% -o alone.json four.json
    says "stage $k of 3"
    diff <(grep -v '"seconds"\|solver' alone.json) <(grep -v '"seconds"\|solver' p.stage-$k.json) >diff.txt || fail "stage $k alone: $(head -3 diff.txt)"
    grep -q '"format": "ckpt-trace/1"' t.stage-$k.json || fail "no trace of stage $k"
    expect 0 '' ckpt-graph --plan p.stage-$k.json $t -o drawn.dot four.json # the plan says the scheme
done
expect 0 '' ckpt-view t.stage-0.json t.stage-1.json t.stage-2.json -o t.svg
expect 0 '' ckpt-plan $t -m 4 --pipeline-stages 3 -b 95%,100%,2GB --json four.json
python3 - <<'P' || fail "--json of stages: $(cat out.txt)"
import json
a = json.load(open("out.txt"))
s = a["stages"]
assert [x["stage"] for x in s] == [0, 1, 2] and a["verdict"] == "fits"
assert [x["verdict"] for x in s] == ["fits"] * 3 and s[2]["budget_bytes"] == 2 * 10**9
assert s[0]["first_layer"] == "h.0.fc" and s[2]["last_layer"] == "loss" and sum(x["layers"] for x in s) == 10
assert sum(x["parameter_bytes"] for x in s) == 4 * (4 * (64 * 64 + 64) + 64 * 10 + 10)
assert all(x["busy_ns"] + x["idle_ns"] == a["step_ns"] for x in s) and 0 < a["bubble"] < 1
assert a["step_ns"] >= max(x["time_ns"] for x in s)
# the first stage holds more micro-batches than the last: its peak is more than one's, all else being equal
assert s[0]["budget_bytes"] == s[0]["keep_all"]["peak_bytes"] * 95 // 100
P
# One stage that fits nothing: the others are planned, and it is named with its minimum budget, which will do.
expect 1 '' ckpt-plan $t -m 4 --pipeline-stages 3 -b 1GB,1KB,1GB four.json
says '^ *1 .* does not fit: minimum budget'
[ "$(grep -c 'does not fit' out.txt)" -eq 1 ] || fail "others do not fit: $(cat out.txt)"
grep -q 'predicted step' out.txt && fail "a step is predicted that cannot be"
least=$(grep -o '([0-9]* bytes)' out.txt | grep -o '[0-9]*')
expect 0 '' ckpt-plan $t -m 4 --pipeline-stages 3 -b "1GB,$least,1GB" four.json

# ---- the layers say where stages begin; a unit over a boundary is none, and is named once
expect 0 '' ckpt-plan $t -m 2 --pipeline-stages 2 --checkpoint 'h.?' -o given-plan.json given.json
says '0  h.0.fc .. h.1.act'; says '1  h.2.fc .. loss'
[ "$(recomputed given-plan.stage-0.json)" = "h.0.fc@0 h.1.fc@0 h.0.fc@1 h.1.fc@1 " ] || fail "stage 0: $(recomputed given-plan.stage-0.json)"
expect 0 'warning: h.1 is split over pipeline partitions (0 and 1): it is not checkpointed' ckpt-plan $t --pipeline-stages 2 --checkpoint 'h.?' -o split-plan.json split.json
[ "$(recomputed split-plan.stage-0.json)" = "h.0.fc " ] || fail "h.1 is split, stage 0 runs again $(recomputed split-plan.stage-0.json)"
[ "$(recomputed split-plan.stage-1.json)" = "h.2.fc h.3.fc " ] || fail "h.1 is split, stage 1 runs again $(recomputed split-plan.stage-1.json)"
# The layers set are all in one stage; the other is planned freely. A group ends where a partition ends.
expect 0 '' ckpt-plan $t --pipeline-stages 2 --checkpoint 'h.0' -o one.json given.json
[ "$(recomputed one.stage-0.json)$(recomputed one.stage-1.json)" = "h.0.fc " ] || fail "one unit: $(recomputed one.stage-0.json)"
model ', "stage": 0' "" "" "" ', "stage": 1' >three.json
expect 0 '' ckpt-plan $t -m 2 --pipeline-stages 2 --checkpoint 'h.?' --strategy group_2 -o group.json three.json
[ "$(recomputed group.stage-0.json)" = "h.0.fc@0 h.0.act@0 h.1.fc@0 h.2.fc@0 h.0.fc@1 h.0.act@1 h.1.fc@1 h.2.fc@1 " ] || fail "group_2, stage 0: $(recomputed group.stage-0.json)"
[ "$(recomputed group.stage-1.json)" = "h.3.fc@0 h.3.fc@1 " ] || fail "group_2, stage 1: $(recomputed group.stage-1.json)"
# A stage that is one unit saves nothing by it; the warning names that stage.
expect 0 'warning: stage 0: recomputing what is set saves nothing: the peak stays at' ckpt-plan $t --pipeline-stages 2 --checkpoint 'h.?' --strategy group_3 given.json

# ---- marks on a drawing, and micro-batches that are alike drawn once
expect 0 '' ckpt-graph $t --checkpoint 'h.?' --keep 'h.2' -o marked.json four.json
[ "$(grep -c '"checkpoint": true' marked.json)" -eq 6 ] || fail "marks: $(grep -c '"checkpoint": true' marked.json)"
expect 0 '' ckpt-graph $t --checkpoint 'h.?' -o marked.dot four.json
expect 2 "matches no layer or block" ckpt-graph $t --checkpoint nothing four.json
expect 0 '' ckpt-graph $t -m 5 -o five.dot four.json
grep -q 'micro-batch 0 … micro-batch 4 ×5' five.dot || fail "five micro-batches are not drawn once"
grep -q 'h.0.fc@1' five.dot && fail "a second micro-batch is drawn"
expect 0 '' ckpt-graph $t -m 2 --pipeline-stages 2 --stage 1 --format netron -o n.json four.json

# ---- what cannot be
model ', "stage": 0' ', "stage": 1' ', "stage": 1' ', "stage": 0' "" >back.json
model ', "stage": 1' ', "stage": 1' ', "stage": 1' ', "stage": 1' "" >late.json
while IFS='|' read -r pattern arguments; do
    eval "expect 2 '$pattern' ckpt-plan $t $arguments"
done <<'T'
--micro-batches takes a number|-m 0 four.json
--micro-batches takes a number|-m two four.json
wanted at most 4096 ranks in all|--replicas 4096 --pipeline-stages 2 --stage 0 four.json
--gradients takes static or fused|--gradients gone four.json
--shard takes optimizer|--replicas 2 --shard weights four.json
add --replicas N|--shard optimizer four.json
add --replicas N|--overlap four.json
while reading --bucket|--replicas 2 --bucket 0 four.json
while reading --network|--replicas 2 --network fast four.json
--bucket is of gradients that data-parallel ranks exchange|--bucket 1MB four.json
--network is between ranks, and there is one|--network 1GB/s -m 2 four.json
--stage is one of --pipeline-stages N|--stage 0 four.json
found stage 3, wanted 0 to 2|--pipeline-stages 3 --stage 3 four.json
--sweep is for one graph, and there are 3 stages: name one by --stage K|--pipeline-stages 3 --sweep 2 four.json
--compare-strategies is for one graph|--pipeline-stages 3 --compare-strategies four.json
--explain is for one graph|--pipeline-stages 3 --explain four.json
--maximize is for one graph|--pipeline-stages 3 -b 1GB --maximize batch four.json
-o - is for one graph|--pipeline-stages 3 -o - four.json
--trace - is for one graph|--pipeline-stages 3 --trace - four.json
--check is for one graph|--check plain.json --pipeline-stages 3
found budget |--pipeline-stages 3 -b 1GB,1GB four.json
makes 2|--pipeline-stages 3 given.json
back.json:6:5: layer h.2.fc: stage 0 behind a layer of stage 1|--pipeline-stages 2 back.json
late.json:4:5: layer h.0.fc: stage 1|--pipeline-stages 2 late.json
whose step is what it is: --micro-batches is for models|-m 2 micro-graph.json
whose step is what it is: --overlap is for models|--overlap --replicas 2 micro-graph.json
with --pack go|--pack f.csv -m 2
T
expect 2 'a graph is of one of the 2 stages: name it by --stage K' ckpt-graph --pipeline-stages 2 four.json
expect 2 'whose step is what it is' ckpt-graph -m 2 micro-graph.json
expect 2 'add --replicas N' ckpt-graph --overlap four.json

[ $failures -eq 0 ] && echo "all as expected"
exit $((failures > 0))

#!/usr/bin/env bash
# labels: cli; long under sanitizers
# Pipeline stages from the outside: weights, losses and states of 2 and 4 stages are those of one rank with the same
# micro-batches, under any plan; a state goes over between stages and one rank; a stage that dies ends all of them.
set -u
export OMP_WAIT_POLICY=passive
source_dir=$1 bin_dir=$2 work_dir=$3
train=$bin_dir/ckpt-train plan=$bin_dir/ckpt-plan
rm -rf "$work_dir" && mkdir -p "$work_dir" && cd "$work_dir" || exit 1

# shellcheck source=tests/support/support_refuse.sh
. "$source_dir/tests/support/support_refuse.sh"
# shellcheck source=tests/support/support_ranks.sh
. "$source_dir/tests/support/support_ranks.sh"
resnet=$source_dir/tests/models/resnet-small.json # skips, batch norm's statistics, momentum
fork=$source_dir/tests/models/fork.json           # a matrix that layers of several stages share, dropout, AdamW
common=(--threads 1 --effort 0)
run=(--steps 4 --seed 5)

# alone NAME MODEL plan options...: one rank
alone() {
    local name=$1 model=$2
    shift 2
    "$plan" "${common[@]}" --strategy keep-all "$@" -o "$name.json" "$model" > /dev/null 2> plan.err || fail "plan $name: $(cat plan.err)"
    "$train" --plan "$name.json" "${run[@]}" --log "$name.csv" --save "$name.state" "$model" > "$name.txt" || fail "$name"
}

# staged WANTED STAGES NAME MODEL plan options...: on that many ranks, compared with one
staged() {
    local wanted=$1 stages=$2 name=$3 model=$4
    shift 4
    "$plan" "${common[@]}" --pipeline-stages "$stages" "$@" -o "$name.json" "$model" > "$name.plan" 2> plan.err || fail "plan $name: $(cat plan.err)"
    on "$stages" "$train" --plan "$name.json" "${run[@]}" --log "$name.csv" --save "$name.state" --poison "$model" \
        > "$name.txt" || fail "$name: $(cat ranks.all)"
    same_training "$wanted" "$name"
    cmp "$wanted.state" "$name.state" || fail "$name: another state than $wanted"
}

for m in 1 4 8; do alone "one$m" "$resnet" --micro-batches $m; done
staged one1 2 two1 "$resnet" --strategy keep-all
staged one4 2 two4 "$resnet" -m 4 --strategy recompute-all
staged one8 2 two8 "$resnet" -m 8 --gradients fused
staged one4 4 four4 "$resnet" -m 4 --strategy keep-all
staged one8 4 four8 "$resnet" -m 8 --strategy recompute-all --gradients fused
# Gradients clipped by the length of all of them, which no stage has alone.
sed 's/"momentum"/"clip_norm": 0.25, "loss_scale": 8, "momentum"/' "$resnet" > clip-model.json
alone clip clip-model.json -m 4
staged clip 2 clip2 clip-model.json -m 4 --strategy recompute-all
[ "$(weights clip.txt)" != "$(weights one4.txt)" ] || fail "nothing was clipped"
refuse 2 "clip_norm=0.25" "$train" --plan one4.json --resume clip.state "$resnet"

# Layers that share a matrix: all in one stage; and each in a stage of its own, where every one has a copy and the sum of
# their gradients is that of one rank whose layers have copies, too (--tied apart), not that of one matrix that all add to.
python3 - "$fork" << 'PYTHON' || fail "python3"
import json, sys
for name, stage in (("together", {"a": 0, "gelu": 1}), ("apart", {"a": 0, "norm": 1, "b": 1, "sum": 2, "c": 2, "gelu": 3})):
    model, at = json.load(open(sys.argv[1])), 0
    for layer in model["layers"]:
        layer["stage"] = at = stage.get(layer["name"], at)
    json.dump(model, open(name + "-model.json", "w"))
PYTHON
alone together together-model.json -m 4
staged together 2 together2 together-model.json -m 4 --strategy keep-all
alone apart apart-model.json -m 4 --tied apart
staged apart 4 apart4 apart-model.json -m 4 --strategy keep-all

# Every rank measures the peak of its stage's plan, and writes its own trace.
on 2 "$train" --plan two4.json "${run[@]}" --json --trace t.json "$resnet" > two4.result.json || fail "--json: $(cat ranks.all)"
python3 - two4.result.json two4.stage-0.json two4.stage-1.json t.stage-0.json t.stage-1.json << 'PYTHON' || fail "--json or --trace of stages"
import json, sys
result, plans, traces = json.load(open(sys.argv[1])), *([json.load(open(p)) for p in sys.argv[i:i + 2]] for i in (2, 4))
assert (result["scheme"]["stages"], result["scheme"]["micro_batches"], len(result["ranks"])) == (2, 4, 2), result
for rank, plan, trace in zip(result["ranks"], plans, traces):
    peak = plan["summary"]["peak_bytes"]
    assert rank["measured_peak_bytes"] == rank["planned_peak_bytes"] == trace["peak_bytes"] == peak, (rank, peak)
    assert rank["stage"] == plan["scheme"]["stage"] == rank["rank"]
PYTHON
"$bin_dir/ckpt-view" t.stage-0.json t.stage-1.json > drawn.txt || fail "no picture of measured stages"
grep -q ": 2 pipeline stages, 4 micro-batches$" drawn.txt || fail "measured stages are not drawn as a pipeline: $(head -2 drawn.txt)"

# One rank goes on where four stages have stopped, and two stages where one rank has.
on 4 "$train" --plan four8.json --steps 2 --seed 5 --save half.state "$resnet" > half.txt || fail "half: $(cat ranks.all)"
"$train" --plan one8.json --steps 4 --resume half.state --save whole.state "$resnet" > whole.txt || fail "one rank after four"
cmp one8.state whole.state || fail "one rank after four stages: another state"
"$train" --plan one8.json --steps 2 --seed 5 --save half.state "$resnet" > half.txt || fail "half alone"
on 2 "$train" --plan two8.json --steps 4 --resume half.state --save whole.state "$resnet" > whole.txt || fail "two after one"
cmp one8.state whole.state || fail "two stages after one rank: another state"
"$train" --plan apart.json --steps 6 --resume apart4.state apart-model.json > six1.txt || fail "copies, one rank after four"
on 4 "$train" --plan apart4.json --steps 6 --resume apart.state apart-model.json > six4.txt || fail "copies, four after one"
[ "$(weights six1.txt)" = "$(weights six4.txt)" ] || fail "copies: resumed over: other weights"

# Evaluation is that of one rank, and trains nothing.
"$train" --plan one4.json --resume one4.state --evaluate 3 --json "$resnet" > evaluated1.json || fail "--evaluate"
on 4 "$train" --plan four4.json --resume one4.state --evaluate 3 --json "$resnet" > evaluated4.json || fail "--evaluate: $(cat ranks.all)"
evaluated() { sed -n "s/.*\"weights_sha256\": \"\([0-9a-f]*\)\".*\"evaluation\": \({[^}]*}\).*/\1 \2/p" "$1"; }
[ -n "$(evaluated evaluated1.json)" ] && [ "$(evaluated evaluated1.json)" = "$(evaluated evaluated4.json)" ] ||
    fail "--evaluate: $(cat evaluated1.json evaluated4.json)"
[ "$(evaluated evaluated1.json | cut -d' ' -f1)" = "$(weights one4.txt)" ] || fail "--evaluate changed the weights"

refuse_on 4 2 "a profile is of the whole network on one rank, and this plan is of 4 ranks" \
    "$train" --plan four4.json --steps 2 --reprofile r.json "$resnet"

# A stage dies: one line on every other, and the state is good.
start 4 "$train" --plan four4.json --steps 1000000 --seed 5 --save killed.state --save-every 1 --log killed.csv "$resnet"
wait_rows killed.csv 4
kill -KILL "$(cat started.2)"
survived 3 2 "the last state is killed.state, of step [0-9]*: go on with --resume killed.state"
on 4 "$train" --plan four4.json --steps 1 --resume killed.state --json "$resnet" > killed.json || fail "after a kill: $(cat ranks.all)"
steps=$(($(sed -n 's/.*"steps": \([0-9]*\).*/\1/p' killed.json) + 2))
on 4 "$train" --plan four4.json --steps $steps --resume killed.state --log killed.csv "$resnet" > killed.txt || fail "resume: $(cat ranks.all)"
"$train" --plan one4.json --steps $steps --seed 5 --log undisturbed.csv "$resnet" > undisturbed.txt || fail "undisturbed"
same_training undisturbed killed

# Refusals: one line, from one rank.
refuse 2 "mpirun -n 2 ckpt-train --plan two1.json" "$train" --plan two1.json "$resnet"
refuse_on 2 2 "found 2: mpirun -n 4 ckpt-train --plan four4.json" "$train" --plan four4.json "$resnet"
refuse_on 2 2 "rank 0 has stage 0 of 2: give --plan the name" "$train" --plan two1.stage-1.json "$resnet"
refuse_on 2 2 "one trace" "$train" --plan two1.json --trace - "$resnet"
refuse_on 2 2 "8 batches in a step; this one has 4 (4 micro-batches of 1 replica)" "$train" --plan two4.json --resume one8.state "$resnet"
rm two1.stage-1.json
refuse_on 2 2 "two1.stage-1.json: No such file" "$train" --plan two1.json "$resnet"
echo "stages train what one rank does, to the bit; states go over; a stage that dies is named by all others"

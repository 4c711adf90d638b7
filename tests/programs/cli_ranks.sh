#!/usr/bin/env bash
# Data-parallel ranks from the command line: the same training with all plans, buckets and places of optimizer state; the
# losses of one rank that takes the same batches one after the other; states that go over to another number of ranks.
set -u
export OMP_WAIT_POLICY=passive
source_dir=$1 bin_dir=$2 work_dir=$3
train=$bin_dir/ckpt-train plan=$bin_dir/ckpt-plan
rm -rf "$work_dir" && mkdir -p "$work_dir" && cd "$work_dir" || exit 1

# shellcheck source=tests/support/support_refuse.sh
. "$source_dir/tests/support/support_refuse.sh"
# shellcheck source=tests/support/support_ranks.sh
. "$source_dir/tests/support/support_ranks.sh"
fork=$source_dir/tests/models/fork.json # a tied matrix, dropout, AdamW, linear layers
run=(--steps 4 --seed 5)
# No layer with parameters here adds to its gradient in place (ckpt_op.accumulates): every sum over batches is made by
# the device, one finished gradient after the other, in the order of batches on one rank as on several. A linear layer
# adds inside its matrix product, which rounds otherwise: fork's losses are close, conv's are the same to the bit.
cat > conv.json << 'MODEL'
{ "format": "ckpt-model/1", "name": "conv", "vars": { "batch": 3 }, "dtype": "float32",
  "inputs": [ { "name": "image", "shape": ["batch", 3, 8, 8], "dtype": "float32" },
              { "name": "labels", "shape": ["batch"], "dtype": "int32" } ],
  "layers": [
    { "name": "conv1", "op": "conv2d", "in": ["image"], "out_channels": 8, "kernel_size": 3, "padding": 1 },
    { "name": "bn1", "op": "batchnorm" }, { "name": "relu1", "op": "relu" },
    { "name": "conv2", "op": "conv2d", "out_channels": 8, "kernel_size": 3, "padding": 1 },
    { "name": "bn2", "op": "batchnorm" }, { "name": "relu2", "op": "relu" },
    { "name": "drop", "op": "dropout", "p": 0.25 },
    { "name": "head", "op": "conv2d", "out_channels": 10, "kernel_size": 1 },
    { "name": "pool", "op": "global_avgpool" }, { "name": "flat", "op": "flatten" },
    { "name": "loss", "op": "cross_entropy", "in": ["flat", "labels"] } ],
  "optimizer": { "name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.0001 } }
MODEL

make_plan() { # NAME MODEL options...
    local name=$1 model=$2
    shift 2
    "$plan" --threads 1 --effort 0 "$@" -o "$name.json" "$model" > /dev/null 2> plan.err || fail "plan $name: $(cat plan.err)"
}

ranks() { # COUNT NAME MODEL plan options...: planned and trained
    local count=$1 name=$2 model=$3
    shift 3
    make_plan "$name" "$model" "$@"
    on "$count" "$train" --plan "$name.json" "${run[@]}" --poison --log "$name.csv" --save "$name.state" "$model" \
        > "$name.txt" || fail "$name: $(cat ranks.all)"
}

# The same training with every plan: recomputed, fused, sharded, overlapped, in large and small buckets.
ranks 2 two "$fork" --replicas 2 --strategy keep-all
variant=0
while read -r options; do
    variant=$((variant + 1))
    # shellcheck disable=SC2086
    ranks 2 two$variant "$fork" --replicas 2 $options
    same_training two two$variant
    cmp two.state two$variant.state || fail "$options: another state"
done << 'OPTIONS'
--strategy recompute-all --shard optimizer --bucket 1KB
--strategy keep-all --gradients fused --overlap --bucket 300
--strategy recompute-all --gradients fused --shard optimizer --overlap
OPTIONS
[ $variant -eq 3 ] || fail "$variant variants"
ranks 4 four conv.json --replicas 4 --strategy keep-all
ranks 4 four1 conv.json --replicas 4 --strategy recompute-all --gradients fused --shard optimizer --overlap --bucket 2KB
same_training four four1
cmp four.state four1.state || fail "four ranks: another state"

# One rank takes the same batches as micro-batches, or two ranks take two each.
ranks 2 half conv.json --replicas 2 --micro-batches 2 --strategy keep-all --shard optimizer
ranks 4 grid conv.json --replicas 2 --pipeline-stages 2 --micro-batches 2 --strategy recompute-all --gradients fused --shard optimizer --overlap
same_training half grid # two replicas of two stages are two ranks
cmp half.state grid.state || fail "two replicas of two stages: another state than two ranks"
ranks 1 alone conv.json --micro-batches 4 --strategy keep-all
ranks 1 close "$fork" --micro-batches 2 --strategy keep-all
same_training four alone
python3 - close.csv two.csv half.csv alone.csv << 'PYTHON' || fail "other losses than one rank's, beyond rounding"
import csv, sys
losses = [[float.fromhex(row["loss_hex"]) for row in csv.DictReader(open(path))] for path in sys.argv[1:]]
for wanted, found in (losses[0], losses[1]), (losses[3], losses[2]): # sums over batches in another order
    assert wanted[0] == found[0] and len(wanted) == len(found) == 4, (wanted, found) # the same weights and batches
    assert all(abs(a - b) < 2e-5 * a for a, b in zip(wanted, found)), (wanted, found)
    assert len(set(wanted)) == 4
PYTHON

# What every rank measures is what was planned for it.
on 2 "$train" --plan two1.json "${run[@]}" --json --trace trace.json "$fork" > two.result.json || fail "--json: $(cat ranks.all)"
python3 - two.result.json two1.json trace.json << 'PYTHON' || fail "--json"
import json, sys
result, plan, trace = (json.load(open(path)) for path in sys.argv[1:])
assert result["scheme"]["replicas"] == 2 and result["scheme"]["shard_optimizer"], result["scheme"]
peaks = {rank[key] for rank in result["ranks"] for key in ("planned_peak_bytes", "measured_peak_bytes")}
assert peaks == {plan["summary"]["peak_bytes"], trace["peak_bytes"]} and len(result["ranks"]) == 2, (peaks, trace["peak_bytes"])
PYTHON

# A state goes over to another number of ranks with as many batches in a step, and not to one with others.
on 4 "$train" --plan four1.json --steps 2 --seed 5 --save stop.state conv.json > stop.txt || fail "two steps: $(cat ranks.all)"
"$train" --plan alone.json --steps 4 --resume stop.state --save gone.state conv.json > gone.txt || fail "one rank after four"
[ "$(weights gone.txt)" = "$(weights four.txt)" ] || fail "one rank after four: other weights"
"$train" --plan alone.json --steps 2 --seed 5 --save stop.state conv.json > stop.txt || fail "two steps alone"
on 4 "$train" --plan four1.json --steps 4 --resume stop.state conv.json > gone.txt || fail "four after one: $(cat ranks.all)"
[ "$(weights gone.txt)" = "$(weights four.txt)" ] || fail "four ranks after one: other weights"
make_plan two-conv conv.json --replicas 2 --strategy keep-all
refuse_on 2 2 "4 batches in a step; this one has 2 (1 micro-batch of 2 replicas)" "$train" --plan two-conv.json --resume four.state conv.json

# One rank is one rank, under mpirun too.
make_plan plain "$fork" --strategy keep-all
on 1 "$train" --plan plain.json "${run[@]}" --save plain1.state "$fork" > plain1.txt || fail "mpirun -n 1: $(cat ranks.all)"
"$train" --plan plain.json "${run[@]}" --save plain.state "$fork" > plain.txt || fail "alone"
cmp plain.state plain1.state || fail "mpirun -n 1: another state"
grep -q "ranks\|Open MPI" plain1.txt && fail "mpirun -n 1: $(cat plain1.txt)"
echo "ranks train one thing under every plan, and what one rank trains; states go over"

#!/usr/bin/env bash
# labels: cli; long under sanitizers
# SIGKILL at 20 (by default 7) random moments of one training, many of them while the state is being written, each followed by a resume:
# weights and losses in the end are those of the run that nobody disturbed. Then one of two ranks, some more times. Arguments: source folder, folder of the
# programs, work folder; the seed of the moments is printed, $CKPT_KILL_SEED gives another.
set -euo pipefail
source=$1 bin=$2 work=$3
rm -rf "$work"
mkdir -p "$work"
cd "$work"
fail() { echo "FAILED: $*"; exit 1; }
wanted=20 pairs=6
[ "${CKPT_TEST_ROUNDS:-}" != few ] || { wanted=7 pairs=2; }
seed=${CKPT_KILL_SEED:-7}
echo "seed $seed"
RANDOM=$seed
model=(--set batch=8 "$source/models/mnist-conv.json")
"$bin/ckpt-plan" --effort 0 --threads 1 "${model[@]}" -o plan.json >/dev/null
# No function: in the background that would be a shell of its own, and killing it would leave the program running.
train=("$bin/ckpt-train" --plan plan.json "${model[@]}" --steps 24 --seed 3 --save-every 1)
begun=$(date +%s%N)
"${train[@]}" --save whole.state --log whole.csv >whole.txt
took=$((($(date +%s%N) - begun) / 1000000))

# After at most a thirtieth of the undisturbed time (and what a start takes): 20 kills come before the end on any machine.
kills=0 torn=0 rounds=0 status=137
while [ $status != 0 ]; do
    rounds=$((rounds + 1))
    [ $rounds -le 200 ] || fail "200 runs and no end"
    resume=()
    [ ! -e killed.state ] || resume=(--resume killed.state)
    rm -f said
    "${train[@]}" --save killed.state --log killed.csv "${resume[@]}" >said 2>&1 &
    pid=$!
    if [ $kills -lt $wanted ]; then
        sleep "$(printf '0.%04d' $((RANDOM * 10000 / 32768 * (took / 30 + 30) / 1000 % 10000)))"
        kill -KILL $pid 2>/dev/null && kills=$((kills + 1))
    fi
    status=0
    wait $pid 2>/dev/null || status=$?
    [ $status = 0 ] || [ $status = 137 ] || fail "run $rounds: exit $status: $(tail -1 said)"
    [ -z "$(find . -name 'killed.state?*')" ] || torn=$((torn + 1)) # a temporary file: killed while writing
done
[ -z "$(find . -name 'killed.state?*')" ] || fail "left of killed runs: $(ls)"
[ $kills = $wanted ] || fail "only $kills kills before the end"
field() { sed -n 's/^weights sha256 *//p' "$1"; }
[ -n "$(field said)" ] && [ "$(field said)" = "$(field whole.txt)" ] || fail "weights: $(field said), wanted $(field whole.txt)"
cmp whole.state killed.state || fail "the states differ"
cmp whole.csv killed.csv || fail "the losses differ"
echo "$kills kills, $torn of them while the state was written, $rounds runs: weights, state and losses as undisturbed"

# Two ranks: one of them at a random moment after its first state, and the other one ends by itself.
source_dir=$source bin_dir=$bin
# shellcheck source=tests/support/support_ranks.sh
[ -z "$(command -v mpirun)" ] || [ ! -e "$bin/../lib/libckpt_mpi.so" ] || . "$source/tests/support/support_ranks.sh"
[ "$(type -t start)" = function ] || { echo "no MPI: one rank alone was killed"; exit 0; }
fork=$source_dir/tests/models/fork.json
"$bin/ckpt-plan" --effort 0 --threads 1 --replicas 2 --strategy recompute-all --shard optimizer "$fork" -o two.json >/dev/null
pair=("$bin/ckpt-train" --plan two.json --seed 3 --steps)
torn=0 rows=1
for round in $(seq $pairs); do
    resume=()
    [ ! -e pair.state ] || resume=(--resume pair.state)
    start 2 "${pair[@]}" 1000000 --save pair.state --save-every 1 --log pair.csv "${resume[@]}" "$fork"
    wait_rows pair.csv $((rows + 1))
    sleep "$(printf '0.0%03d' $((RANDOM % 60)))"
    killed=$((RANDOM % 2))
    kill -KILL "$(cat started.$killed)"
    survived 1 $killed "the last state is pair.state"
    rows=$(wc -l <pair.csv)
    [ -z "$(find . -name 'pair.state?*')" ] || torn=$((torn + 1))
done
on 2 "${pair[@]}" 1 --resume pair.state --json "$fork" >pair.json || fail "after the kills: $(cat ranks.all)"
steps=$(($(sed -n 's/.*"steps": \([0-9]*\).*/\1/p' pair.json) + 1))
on 2 "${pair[@]}" $steps --resume pair.state --save pair.state --log pair.csv "$fork" >pair.txt || fail "resume: $(cat ranks.all)"
on 2 "${pair[@]}" $steps --save calm.state --log calm.csv "$fork" >calm.txt || fail "undisturbed: $(cat ranks.all)"
same_training calm pair
cmp calm.state pair.state || fail "two ranks: the states differ"
echo "two ranks, $steps steps: $pairs kills of one, $torn of them while the state was written"

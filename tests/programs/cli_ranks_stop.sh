#!/usr/bin/env bash
# labels: cli; long under sanitizers
# How several ranks end: a rank that dies ends the job with one line on every other, and the job goes on from its state; a
# signal to one stops all after the same step; a rank that cannot write, or that was started otherwise, is the only one
# to say so.
set -u
export OMP_WAIT_POLICY=passive
source_dir=$1 bin_dir=$2 work_dir=$3
train=$bin_dir/ckpt-train plan=$bin_dir/ckpt-plan
rm -rf "$work_dir" && mkdir -p "$work_dir" && cd "$work_dir" || exit 1

# shellcheck source=tests/support/support_refuse.sh
. "$source_dir/tests/support/support_refuse.sh"
# shellcheck source=tests/support/support_ranks.sh
. "$source_dir/tests/support/support_ranks.sh"
fork=$source_dir/tests/models/fork.json

make_plan() { # NAME options...
    local name=$1
    shift
    "$plan" --threads 1 --effort 0 "$@" -o "$name.json" "$fork" > /dev/null 2> plan.err || fail "plan $name: $(cat plan.err)"
}
make_plan two --replicas 2 --strategy keep-all
make_plan two1 --replicas 2 --strategy recompute-all --shard optimizer --bucket 1KB
make_plan four --replicas 4 --strategy keep-all
make_plan plain --strategy keep-all

# A rank is killed: the other one says so, with the state to go on from; without one it says that.
start 2 "$train" --plan two1.json --steps 1000000 --seed 5 --log killed.csv --save killed.state --save-every 1 "$fork"
wait_rows killed.csv 4
kill -KILL "$(cat started.1)"
survived 1 1 "rank 0 of 2" "the last state is killed.state, of step [0-9]*: go on with --resume killed.state"
on 2 "$train" --plan two.json --steps 1 --resume killed.state --json "$fork" > killed.result.json || fail "killed: $(cat ranks.all)"
steps=$(($(sed -n 's/.*"steps": \([0-9]*\).*/\1/p' killed.result.json) + 2))
on 2 "$train" --plan two1.json --steps $steps --resume killed.state --log killed.csv "$fork" > killed.txt || fail "resume: $(cat ranks.all)"
on 2 "$train" --plan two.json --steps $steps --seed 5 --log undisturbed.csv "$fork" > undisturbed.txt || fail "undisturbed: $(cat ranks.all)"
same_training undisturbed killed
start 4 "$train" --plan four.json --steps 1000000 --seed 5 --log lost.csv "$fork"
wait_rows lost.csv 2
kill -KILL "$(cat started.0)"
survived 3 0 "no state was saved"

# A signal to any rank stops all of them after the same step, with the state.
start 2 "$train" --plan two.json --steps 1000000 --seed 5 --log stopped.csv --save stopped.state "$fork"
wait_rows stopped.csv 2
kill -STOP "$(cat started.1)" # a rank that stands still holds up the others, and nothing else
sleep 0.5
kill -CONT "$(cat started.1)"
wait_rows stopped.csv $(($(wc -l < stopped.csv) + 2))
kill -TERM "$(cat started.1)"
code=0
wait $started || code=$?
[ $code -eq 130 ] || fail "stopped: exit $code, wanted 130: $(cat started.err)"
[ "$(grep -c '^ckpt-' started.err)" -eq 1 ] || fail "stopped: wanted one line: $(cat started.err)"
stopped=$(sed -n 's/.*stopped after step \([0-9]*\); go on with --resume stopped.state$/\1/p' started.err)
[ -n "$stopped" ] && [ "$(tail -1 stopped.csv | cut -d, -f1)" = "$stopped" ] || fail "stopped: $(cat started.err)"

# A state that rank 0 cannot write in mid-run stops no rank; the last one is an error, told once.
mkdir here
start 2 "$train" --plan two1.json --steps 1000000 --seed 5 --log here.csv --save here/x.state --save-every 1 "$fork"
wait_rows here.csv 2
mv here elsewhere
for _ in $(seq 2400); do grep -q "x.state: cannot write: " started.err && break; sleep 0.025; done
wait_rows here.csv $(($(wc -l < here.csv) + 5))
kill -TERM "$(cat started.0)"
code=0
wait $started || code=$?
[ $code -eq 2 ] || fail "no folder: exit $code, wanted 2: $(cat started.err)"
[ "$(grep -c '^ckpt-train: after step [0-9]*: here/x.state: cannot write: .*; what was there stays, and training goes on$' started.err)" -eq 1 ] &&
    [ "$(grep -c '^ckpt-train: here/x.state: cannot write: No such file or directory$' started.err)" -eq 1 ] &&
    [ "$(grep -c '^ckpt-' started.err)" -eq 2 ] || fail "no folder: $(cat started.err)"
on 2 "$train" --plan two.json --steps 1 --resume elsewhere/x.state "$fork" > /dev/null || fail "the state that stayed: $(cat ranks.all)"

# Threads that mpirun has put on one processor are told of.
"$plan" --threads 2 --effort 0 --strategy keep-all --replicas 2 "$fork" -o threads.json > /dev/null || fail "plan for 2 threads"
on 2 --bind-to hwthread:overload-allowed "$train" --plan threads.json --steps 1 "$fork" > threads.txt || fail "threads: $(cat ranks.all)"
grep -q "^2 threads of a rank share 1 processor: mpirun --bind-to none" threads.txt || fail "bound: $(cat threads.txt)"

# Refusals: one line, from one rank.
refuse 2 "the plan is for 2 ranks, found 1: mpirun -n 2 ckpt-train --plan two.json" "$train" --plan two.json "$fork"
refuse_on 4 2 "the plan is for 2 ranks, found 4: mpirun -n 2 ckpt-train" "$train" --plan two.json "$fork"
refuse_on 2 2 "the plan is for 1 rank, found 2: ckpt-train --plan plain.json.* without mpirun" "$train" --plan plain.json "$fork"
refuse_on 2 2 "no/such/folder" "$train" --plan two.json --save no/such/folder/x "$fork"
[ ! -w /dev/full ] || refuse_on 2 2 "No space" "$train" --plan two.json --save /dev/full "$fork"
refuse_on 1 2 'rank 1 of 2 has "seed": 6, and rank 0 has "seed": 5' "$train" --plan two.json --seed 5 "$fork" : \
    -n 1 "$train" --plan two.json --seed 6 "$fork"
refuse_on 1 2 'rank 1 of 2 has "resume": false, and rank 0 has "resume": true: all' "$train" --plan two.json --resume stopped.state "$fork" : \
    -n 1 "$train" --plan two.json "$fork"
refuse_on 1 2 'nowhere.state: cannot read' "$train" --plan two.json --steps 1000001 --resume stopped.state "$fork" : \
    -n 1 "$train" --plan two.json --steps 1000001 --resume nowhere.state "$fork"
echo "a rank that dies, stops or fails is named in one line, and the training goes on from its state"

#!/usr/bin/env bash
# ckpt-train and the files around it: resumed logs, states through pipes and links, data that change, readers that leave,
# plans for other threads.
set -u
export OMP_WAIT_POLICY=passive # spinning threads cost much where other tests share the cores
source_dir=$1 bin_dir=$2 work_dir=$3
train=$bin_dir/ckpt-train plan=$bin_dir/ckpt-plan
model=$source_dir/models/byte-gpt.json
small=(--set batch=4 --set tokens=32 --set hidden=32 --set blocks=3 --set heads=2)
rm -rf "$work_dir" && mkdir -p "$work_dir" && cd "$work_dir" || exit 1

# shellcheck source=tests/support/support_refuse.sh
. "$source_dir/tests/support/support_refuse.sh"
for i in $(seq 200); do echo "line $i of a text that tells $((i * i)) things"; done > text.txt
"$plan" "${small[@]}" --threads 2 --budget 75% -o part.json "$model" > /dev/null || fail "plan"
run=("$train" "${small[@]}" --plan part.json --data text:text.txt)

# A killed run left rows after its last state: the log continues from the state's row. The log of another run is untouched.
"${run[@]}" --steps 6 --seed 4 --log all.csv "$model" > /dev/null || fail "6 steps"
"${run[@]}" --steps 3 --seed 4 --save half.state "$model" > /dev/null || fail "3 steps"
cp all.csv killed.csv
"${run[@]}" --steps 6 --resume half.state --log killed.csv "$model" > /dev/null || fail "resume after a kill"
cmp all.csv killed.csv || fail "the log of a killed run"
"${run[@]}" --steps 6 --seed 5 --log other.csv "$model" > /dev/null || fail "seed 5"
cp other.csv other-before.csv
refuse 2 "another run" "${run[@]}" --steps 6 --resume half.state --log other.csv "$model"
cmp other.csv other-before.csv || fail "the log of another run was changed"

# Killed and interrupted again and again, at any moment, with a state after every step: the log is that of a run that
# was left alone.
"${run[@]}" --steps 1 --seed 4 --save often.state --log often.csv "$model" > /dev/null || fail "first step"
for signal in KILL TERM KILL QUIT KILL INT HUP; do
    rows=$(wc -l < often.csv)
    "${run[@]}" --steps 1000000 --save-every 1 --save often.state --resume often.state --log often.csv "$model" \
        > /dev/null 2>&1 &
    pid=$!
    for i in $(seq 12000); do [ "$(wc -l < often.csv)" -gt $((rows + 3)) ] && break; sleep 0.005; done
    kill -$signal $pid
    wait $pid 2> /dev/null
done
"${run[@]}" --steps 1 --resume often.state --json "$model" > often.json || fail "the state after many kills"
steps=$(sed -n 's/.*"steps": \([0-9]*\).*/\1/p' often.json)
[ "$steps" -gt 10 ] || fail "many kills left $steps steps"
"${run[@]}" --steps $((steps + 1)) --resume often.state --log often.csv "$model" > /dev/null || fail "after many kills"
"${run[@]}" --steps $((steps + 1)) --seed 4 --log alone.csv "$model" > /dev/null || fail "left alone"
cmp often.csv alone.csv || fail "killed many times: other losses"

# Two trainings write one state, each after every step: it is whole at any moment, and in the end that of one of them.
for seed in 4 5; do
    "${run[@]}" --steps 60 --seed $seed --save end.$seed "$model" > /dev/null || fail "alone with seed $seed"
    "${run[@]}" --steps 60 --seed $seed --save both.state --save-every 1 "$model" > /dev/null 2> both.err &
done
for _ in $(seq 12000); do [ -s both.state ] && break; sleep 0.005; done
while [ -n "$(jobs -r)" ]; do
    "${run[@]}" --steps 1 --resume both.state "$model" > /dev/null 2> half.err || fail "two writers: $(cat half.err)"
done
wait
cmp -s both.state end.4 || cmp -s both.state end.5 || fail "two writers: the state is of neither: $(cat both.err)"
[ -z "$(find . -name 'both.state?*')" ] || fail "two writers: left: $(ls)"

# A state of other data of the same kind and size is refused; a copy of the data, or a touched file, is the same.
cp text.txt changed.txt
printf X | dd of=changed.txt bs=1 seek=1000 conv=notrunc 2> /dev/null
refuse 2 "half.state: the state was trained on other data: as many bytes of the same kind (text, 1 file, .*), but SHA-256" \
    "$train" "${small[@]}" --plan part.json --data text:changed.txt --steps 6 --resume half.state "$model"
cp text.txt copied.txt
"$train" "${small[@]}" --plan part.json --data text:copied.txt --steps 6 --resume half.state --log copied.csv "$model" > /dev/null || fail "a copy of the data"
"${run[@]}" --steps 6 --resume half.state --log from-half.csv "$model" > /dev/null || fail "from half"
cmp copied.csv from-half.csv || fail "a copy of the data: another training"
# The stamp is that of the files as they are.
stamp() { sed -n '1s/.*"data_stamp": "\([0-9a-f]*\)".*/\1/p' "$1"; }
[ -n "$(stamp half.state)" ] || fail "no stamp: $(head -1 half.state)"
"${run[@]}" --steps 4 --resume half.state --save again.state "$model" > /dev/null || fail "again"
[ "$(stamp half.state)" = "$(stamp again.state)" ] || fail "another stamp of untouched data"
"$train" "${small[@]}" --plan part.json --data text:copied.txt --steps 4 --resume half.state --save again.state "$model" > /dev/null || fail "again, of a copy"
[ "$(stamp half.state)" != "$(stamp again.state)" ] || fail "the stamp of a copy is the old one"
"$train" "${small[@]}" --plan part.json --data text:changed.txt --no-digest --steps 4 --resume half.state "$model" > /dev/null || fail "--no-digest looks at contents"

# A state is of one model with its attributes, and of one set of data.
refuse 2 "other data" "$train" "${small[@]}" --plan part.json --resume half.state "$model"
sed 's/"causal": *true/"causal": false/' "$model" > acausal.json
cmp -s "$model" acausal.json && fail "the model has no attribute to change"
refuse 2 "attributes" "${run[@]}" --resume half.state acausal.json

# Nothing to do is said, and is no error.
"${run[@]}" --steps 2 --resume half.state "$model" > nothing.txt || fail "steps that are done already"
grep -q "nothing to do" nothing.txt || fail "steps that are done already: $(cat nothing.txt)"

# The plan says for how many threads it is, and how kernels' memory must lie.
"${run[@]}" --steps 1 --json "$model" > threads.json || fail "--json"
grep -q '"threads": 2' threads.json || fail "threads of the plan: $(cat threads.json)"
refuse 2 "made for 2 threads" "${run[@]}" --threads 3 "$model"
python3 - <<'PYTHON' || fail "python3"
import json
plan = json.load(open("part.json"))
for place in plan["places"]:
    place["offset"] += 4
plan["summary"]["arena_bytes"] += 64
plan["budget_bytes"] += 64
with open("crooked.json", "w") as crooked:
    json.dump(plan, crooked)
PYTHON
refuse 2 "multiple of 64" "$train" "${small[@]}" --plan crooked.json "$model"

# A target that cannot be written is an error before the training; a pipe and a link are kept.
mkdir is-a-folder
refuse 2 "no/such/folder" "${run[@]}" --save no/such/folder/x "$model"
refuse 2 "needs a file" "${run[@]}" --save - "$model"
refuse 2 "needs a file" "${run[@]}" --log - "$model"
mkfifo pipe.state
cat pipe.state > piped.state &
reader=$!
"${run[@]}" --steps 3 --seed 4 --save pipe.state "$model" > /dev/null || fail "pipe"
wait $reader
[ -p pipe.state ] || fail "--save replaced a pipe"
cmp half.state piped.state || fail "another state came through the pipe"
ln -s linked-to.state link.state
for steps in 1 3; do # the first makes what the link names, the second replaces it
    "${run[@]}" --steps $steps --seed 4 --save link.state "$model" > /dev/null || fail "link"
done
[ -L link.state ] || fail "--save replaced a link"
cmp half.state linked-to.state || fail "another state came through the link"

# So is what will not fit; nothing is on standard output, where a training says that it begins.
for option in save log trace export reprofile; do
    refuse 2 "--$option: cannot write: the name of the file is empty" "${run[@]}" --$option "" "$model"
    refuse 2 "is-a-folder: cannot write: Is a directory" "${run[@]}" --$option is-a-folder "$model"
    [ ! -w /dev/full ] || refuse 2 "/dev/full: cannot write: No space" "${run[@]}" --$option /dev/full "$model"
done
(ulimit -f 64 && refuse 2 "x.state: cannot write: it will have .* kB, and files may have 65.5 kB (ulimit -f)" "${run[@]}" --save x.state "$model") || exit 1

# The trace on standard output is alone there.
"${run[@]}" --steps 1 --trace - "$model" > trace.json || fail "--trace -"
python3 -m json.tool trace.json > /dev/null || fail "--trace -: no JSON: $(head -3 trace.json)"
refuse 2 "only one of" "${run[@]}" --trace - --json "$model"

# Who reads the output leaves: the state is saved all the same. head takes the first line; a later one stops the run.
{
    "${run[@]}" --steps 2000 --seed 4 --save left.state "$model" 2> left.err
    echo $? > left.code
} | head -1 > /dev/null
[ "$(cat left.code)" -eq 130 ] || fail "its reader left: exit $(cat left.code), wanted 130: $(cat left.err)"
[ "$(wc -l < left.err)" -eq 1 ] || fail "its reader left: $(cat left.err)"
[ -s left.state ] || fail "its reader left: no state"

# A data file that is cut short while it is mapped: one line, not a bus error.
cp text.txt short.txt
"$train" "${small[@]}" --plan part.json --data text:short.txt --steps 1000000 --log short.csv "$model" > /dev/null 2> short.err &
pid=$!
for i in $(seq 1200); do [ -f short.csv ] && [ "$(wc -l < short.csv)" -gt 2 ] && break; sleep 0.05; done
: > short.txt
wait $pid
code=$?
[ $code -eq 2 ] || fail "data cut short: exit $code, wanted 2: $(cat short.err)"
[ "$(wc -l < short.err)" -eq 1 ] || fail "data cut short: $(cat short.err)"
grep -q "short.txt.*shorter" short.err || fail "data cut short: $(cat short.err)"

# Interrupted before the first step, while it waits for its plan: an older state of that name is kept.
cp half.state kept.state
mkfifo plan.pipe
"$train" "${small[@]}" --plan plan.pipe --data text:text.txt --save kept.state "$model" > early.txt 2> early.err &
pid=$!
exec 3> plan.pipe # opens when the other end does
kill -TERM $pid
cat part.json >&3
exec 3>&-
wait $pid
code=$?
[ $code -eq 130 ] || fail "interrupted early: exit $code, wanted 130: $(cat early.err)"
grep -q "stopped after step 0$" early.err || fail "interrupted early: $(cat early.err)"
cmp half.state kept.state || fail "an early signal replaced the older state"
for file in *.part; do [ ! -e "$file" ] || fail "left behind: $file"; done
echo "logs and states survive kills, pipes, links, full disks and readers that leave"

#!/usr/bin/env bash
# labels: cli; long under sanitizers
# A disk that is full, and a file that may not grow (ulimit -f, SIGXFSZ), while a program writes: one line, what was there
# stays whole, and a training goes on; it writes again when it can. Arguments: source folder, folder of the programs, work folder.
set -u
export OMP_WAIT_POLICY=passive # spinning threads cost much where other tests share the cores
source_dir=$1 bin_dir=$2 work_dir=$3
rm -rf "$work_dir" && mkdir -p "$work_dir" && cd "$work_dir" || exit 1
# shellcheck source=tests/support/support_refuse.sh
. "$source_dir/tests/support/support_refuse.sh"
model=$source_dir/models/byte-gpt.json
tiny=(--set batch=4 --set tokens=32 --set hidden=32 --set blocks=1 --set heads=2 --threads 1)
"$bin_dir/ckpt-plan" "${tiny[@]}" --budget 75% -o plan.json --trace trace.json "$model" > /dev/null || fail "plan"
train=("$bin_dir/ckpt-train" "${tiny[@]}" --plan plan.json "$model")

# until_true WHAT command...: waits, for a minute at most
until_true() {
    local what=$1
    shift
    for _ in $(seq 6000); do "$@" 2> /dev/null && return 0; sleep 0.01; done
    fail "$what: $(cat said.err)"
}
rows() { [ "$(wc -l < "$1")" -gt "$2" ]; }
step() { sed -n '1s/.*"step": \([0-9]*\),.*/\1/p' "$1"; }
later() { [ "$(step "$1")" -gt "$2" ]; }
whole() { "${train[@]}" --resume "$1" --evaluate 1 > /dev/null 2> said.whole || fail "$1: $(cat said.whole)"; }

# disk FOLDER FILL FREE: a training saves there after every step; FILL makes writing impossible, FREE possible again.
disk() {
    local folder=$1 fill=$2 free=$3 kept
    rm -f log.csv
    "${train[@]}" --steps 10000000 --save "$folder/x.state" --save-every 1 --log log.csv > /dev/null 2> said.err &
    local pid=$!
    until_true "no state" test -s "$folder/x.state"
    $fill
    until_true "nothing is said" grep -q "x.state: cannot write: .*; what was there stays, and training goes on$" said.err
    kept=$(wc -l < log.csv)
    until_true "training ended" rows log.csv $((kept + 20))
    $free
    kept=$(step "$folder/x.state")
    whole "$folder/x.state"
    until_true "nothing is written any more" later "$folder/x.state" "$kept"
    kill -TERM $pid
    wait $pid
    [ $? -eq 130 ] || fail "$folder: $(cat said.err)"
    [ "$(wc -l < log.csv)" -eq $(($(step "$folder/x.state") + 1)) ] || fail "$folder: the log has gaps"
    whole "$folder/x.state"
    [ -z "$(find "$folder" -name '*.part')" ] || fail "$folder: left: $(ls "$folder")"
}

# A folder that is gone for a while: one line, whatever the number of states that were not written.
mkdir here
away() { mv here elsewhere; }
back() { mv elsewhere here; }
disk here away back
[ "$(grep -c 'cannot write' said.err)" -eq 1 ] || fail "one line: $(cat said.err)"

# A full disk, where a small one may be mounted.
full=skipped
if unshare -rm true 2> /dev/null; then
    export -f disk until_true rows step later whole fail
    declare -p train > train.sh
    unshare -rm bash -c '. ./train.sh; mkdir small && mount -t tmpfs -o size=2m tmpfs small || exit 77
        fill() { until grep -q "cannot write: No space" said.err; do cat /dev/zero >> small/ballast 2> /dev/null; done; cat /dev/zero >> small/ballast 2> /dev/null; }
        free() { rm small/ballast; }
        disk small fill free' 2> full.err
    code=$?
    [ $code -eq 0 ] || [ $code -eq 77 ] || fail "full disk: $(cat full.err)"
    [ $code -ne 0 ] || full=tested
fi

# The last state cannot be written: the line, exit 2, and the log is whole.
rm -f log.csv
"${train[@]}" --steps 10000000 --save here/y.state --log log.csv > /dev/null 2> said.err &
pid=$!
until_true "no rows" rows log.csv 3
away
kill -TERM $pid
wait $pid
[ $? -eq 2 ] || fail "the last state is lost: exit $?"
[ "$(cat said.err)" = "ckpt-train: here/y.state: cannot write: No such file or directory" ] || fail "$(cat said.err)"
back

# A log that may not grow loses rows, the training none of its steps; the rows that are there are whole.
"${train[@]}" --steps 40 --log whole.csv --export whole.safetensors > whole.txt || fail "40 steps"
(ulimit -f 1 && exec "${train[@]}" --steps 40 --log short.csv) > short.txt 2> short.err
[ $? -eq 2 ] || fail "a log that may not grow: $(cat short.err)"
grep -q '^ckpt-train: short.csv: cannot write: File too large: [0-9]* rows of the log are missing$' short.err || fail "$(cat short.err)"
[ "$(wc -l < short.err)" -eq 1 ] || fail "$(cat short.err)"
head -c "$(wc -c < short.csv)" whole.csv | cmp - short.csv || fail "other rows"
[ -z "$(tail -c 1 short.csv)" ] || fail "half a row"
[ "$(grep sha256 short.txt)" = "$(grep sha256 whole.txt)" ] || fail "the training was another one"

# Any program: one line, exit 2, and the older file stays.
(
    ulimit -f 1
    for command in "ckpt-plan ${tiny[*]} --budget 75% $model" "ckpt-plan ${tiny[*]} --budget 75% $model --trace" "ckpt-graph ${tiny[*]} $model" \
        "ckpt-view trace.json -f svg" "ckpt-compare plan.json plan.json -f html" "ckpt-profile --isolated --repeats 3 ${tiny[*]} $model" \
        "ckpt-train ${tiny[*]} --plan plan.json --steps 1 $model --trace"; do
        echo old > old.json
        output=-o
        [[ $command != *--trace ]] || output=
        # shellcheck disable=SC2086
        "$bin_dir"/$command $output old.json > any.txt 2> any.err
        [ $? -eq 2 ] || fail "$command: exit code"
        [ "$(tail -1 any.err)" = "${command%% *}: old.json: cannot write: File too large" ] || fail "$command: $(cat any.err)"
        [ "$(cat old.json)" = old ] || fail "$command: the older file is gone"
    done
) || exit 1
[ -z "$(find . -name '*.part')" ] || fail "left: $(find . -name '*.part')"
echo "full disk: $full; folders that come and go and files that may not grow: one line each, nothing lost"

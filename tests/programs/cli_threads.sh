#!/usr/bin/env bash
# labels: cli; long under sanitizers
# The bits of --threads 1 to 16 are those of the number of threads, not of the machine: where every thread has a processor,
# where some share one, and where all share one.
set -u
export OMP_WAIT_POLICY=passive
source_dir=$1 bin_dir=$2 work_dir=$3
train=$bin_dir/ckpt-train plan=$bin_dir/ckpt-plan profile=$bin_dir/ckpt-profile
rm -rf "$work_dir" && mkdir -p "$work_dir" && cd "$work_dir" || exit 1

# shellcheck source=tests/support/support_refuse.sh
. "$source_dir/tests/support/support_refuse.sh"
command -v taskset > /dev/null || { echo "there is no taskset"; exit 77; }
one=$(taskset -cp $$ | sed 's/.*: *//; s/[-,].*//')

# Product, attention, norms of three kinds, convolutions, recurrent layers, gathers and a mixture of experts.
networks=(
    "models/mlp.json batch=48" "models/mnist-conv.json batch=3 size=16" "tests/models/resnet-small.json"
    "tests/models/unet-small.json" "tests/models/attention-small.json" "models/lstm.json batch=5 tokens=6 hidden=24"
    "models/byte-gpt.json batch=2 tokens=33 hidden=48 blocks=2" "models/densenet-bc-100-12.json batch=2 size=16 layers=2"
)

# said NAME: what must be the same: losses and digests
said() { cat "$1.csv" <(sed -n '/sha256/p' "$1.txt"); }

run() { # NAME PREFIX...
    local name=$1
    shift
    "$@" "$train" --plan p.json --steps 2 --seed 3 --log "$name.csv" "${set[@]}" "$file" > "$name.txt" 2> "$name.err" ||
        fail "$file with $threads threads, $name: $(cat "$name.err")"
}

different=0
for network in "${networks[@]}"; do
    read -r -a words <<< "$network"
    file=$source_dir/${words[0]} set=()
    for word in "${words[@]:1}"; do set+=(--set "$word"); done
    for threads in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
        case $network in models/mlp*) ;; *) case $threads in 1 | 2 | 3 | 8 | 16) ;; *) continue ;; esac ;; esac
        "$plan" -t $threads --effort 0 --budget 100% -o p.json "${set[@]}" "$file" > plan.txt 2> plan.err ||
            fail "$file with $threads threads: $(cat plan.err)"
        run all
        run one taskset -c "$one"
        run bound env OMP_PROC_BIND=true
        [ -n "$(sed -n '/sha256/p' all.txt)" ] || fail "$file: no digest"
        [ "$(said all)" = "$(said one)" ] || fail "$file, $threads threads: other bits on one processor"
        [ "$(said all)" = "$(said bound)" ] || fail "$file, $threads threads: other bits where threads are bound"
        [ $threads -eq 1 ] && said all > first
        [ "$(said all)" = "$(cat first)" ] || different=$((different + 1))
    done
done
[ $different -gt 0 ] || fail "no number of threads gives other bits than one: this test compares nothing"

# ckpt-profile takes as many, and what it says of a layer's workspace is of that number.
for threads in 1 16; do
    "$profile" -t "$threads" --repeats 5 --set batch=8 -o profile.json "$source_dir/models/mlp.json" 2> profile.err ||
        fail "ckpt-profile -t $threads: $(cat profile.err)"
    grep -q "\"threads\": $threads\b" profile.json || fail "ckpt-profile -t $threads: $(grep threads profile.json)"
done

# A limit on OpenMP's threads would make smaller teams, and other bits.
"$plan" -t 4 -o p.json "$source_dir/models/mlp.json" > plan.txt || fail "no plan"
refuse 2 "OMP_THREAD_LIMIT is 2, wanted at least 4 threads" env OMP_THREAD_LIMIT=2 \
    "$train" --plan p.json --steps 1 "$source_dir/models/mlp.json"
refuse 2 "OMP_THREAD_LIMIT is 2, wanted at least 4 threads" env OMP_THREAD_LIMIT=2 \
    "$profile" -t 4 -o profile.json "$source_dir/models/mlp.json"
# A plan out of a pipe is read once.
"$train" --plan <(cat p.json) --steps 1 "$source_dir/models/mlp.json" > pipe.txt 2> pipe.err || fail "a pipe: $(cat pipe.err)"

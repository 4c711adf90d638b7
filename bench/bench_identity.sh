#!/usr/bin/env bash
# The full networks, trained under every strategy and four budgets from the least feasible to keep-all, must leave the
# losses and the training state (weights, optimizer, statistics) of keep-all, byte for byte; once more with freed
# memory filled with NaN. tests/executor/run/test_identity.c and test_identity_models.c do the same for small versions and look
# at gradients too. A network takes many minutes, the last two hours, up to 15 GB of memory and 21 GB of WORK_DIR.
# llama-3.2-1b is not among them: it takes 20 GB.
#
#   bench/bench_identity.sh BIN_DIR [WORK_DIR] [STEPS] ["MODEL --set ...", ...]
set -u
bin_dir=$(cd "${1:?usage: bench/bench_identity.sh BIN_DIR [WORK_DIR] [STEPS] [MODEL...]}" && pwd)
source_dir=$(cd "$(dirname "$0")/.." && pwd)
work_dir=${2:-$(mktemp -d)}
steps=${3:-5}
shift $(($# < 3 ? $# : 3))
if [ $# -eq 0 ]; then
    set -- "byte-gpt --set batch=2" "densenet-bc-100-12-dropout --set batch=4" "resnet50 --set batch=2" "lstm" \
        "unet --set size=64" "gru-lm --set batch=2" "mixtral-small --set batch=1" "efficientnet-b0 --set batch=2" \
        "swin-t --set batch=1" "convnext-t --set batch=1" "vit-b-16 --set batch=1" "whisper-tiny --set batch=1" \
        "t5-small --set batch=1" "bert-base --set batch=1" "gpt2-124m --set tokens=64 --set dropout=0.1" \
        "qwen3-0.6b --set tokens=64" "sd-unet --set size=32"
fi
mkdir -p "$work_dir" && cd "$work_dir" || exit 2

number() { sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" "$2" | head -1; }
failures=0
for what in "$@"; do
    name=${what%% *}
    sets=${what#"$name"}
    model=$source_dir/models/$name.json
    # shellcheck disable=SC2086
    run() { # PLAN OUT [OPTION]
        "$bin_dir/ckpt-train" $sets --plan "$1" --steps "$steps" --seed 7 --log "$2.csv" --save "$2.state" ${3:-} "$model" \
            > "$2.txt" 2> "$2.err"
    }
    # shellcheck disable=SC2086
    plan() { # STRATEGY BUDGET OUT
        "$bin_dir/ckpt-plan" $sets --strategy "$1" "${options[@]}" --budget "$2" --json -o "$3" "$model" > "$3.said" 2> "$3.err"
    }
    # shellcheck disable=SC2086
    "$bin_dir/ckpt-plan" $sets --strategy keep-all -o all.json "$model" > /dev/null || exit 2
    run all.json all || { cat all.err; exit 2; }
    most=$(number budget_bytes all.json)
    for strategy in $("$bin_dir/ckpt-plan" --list-strategies | awk '{sub(/N$/, 2, $1); print $1}'); do
        [ "$strategy" != auto ] || continue
        options=()
        case $strategy in # what these need to have anything to do
        flags) options=(--policy '*=recompute') ;;
        joint | offload-only) options=(--link 10GB/s) ;;
        esac
        rm -f infeasible.json*
        plan "$strategy" 1B infeasible.json
        least=$(number least_budget_bytes infeasible.json.said)
        [ -n "$least" ] || least=$(number least_budget_bytes infeasible.json)
        [ -n "$least" ] || { echo "$name $strategy: no minimum budget: $(cat infeasible.json.err)"; failures=$((failures + 1)); continue; }
        for k in 0 1 2 3; do
            budget=$((least + (most - least) * k / 3))
            [ $k -eq 0 ] || [ "$budget" -gt "$least" ] || break
            plan "$strategy" "${budget}B" part.json || { echo "$name $strategy ${budget}: no plan"; failures=$((failures + 1)); continue; }
            for poison in "" --poison; do
                rm -f part.csv part.state
                verdict=same
                run part.json part $poison || verdict="FAILED: $(cat part.err)"
                cmp -s all.csv part.csv || verdict="$verdict, OTHER LOSSES"
                cmp -s all.state part.state || verdict="$verdict, OTHER STATE"
                grep -q "(equal)" part.txt || verdict="$verdict, OTHER PEAK"
                [ "$verdict" = same ] || failures=$((failures + 1))
                printf '%-28s %-14s %14d B %-9s %s\n' "$name" "$strategy" "$budget" "$poison" "$verdict"
            done
        done
    done
done
echo "$failures failures"
[ $failures -eq 0 ]

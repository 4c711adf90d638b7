#!/usr/bin/env bash
# What other checkpointing APIs do: their documentation's example networks with their checkpoint choices train with the
# bits of keep-all, in less memory or with the warning that it is not less; docs/apis.md names only tests that exist.
set -u
export OMP_WAIT_POLICY=passive # spinning threads cost much where other tests share the cores
source_dir=$1 bin_dir=$2 work_dir=$3
train=$bin_dir/ckpt-train plan=$bin_dir/ckpt-plan models=$source_dir/models
rm -rf "$work_dir" && mkdir -p "$work_dir" && cd "$work_dir" || exit 1

# shellcheck source=tests/support_refuse.sh
. "$source_dir/tests/support_refuse.sh"

number() { sed "s/.*\"$1\": \([0-9]*\).*/\1/" "$2"; } # of the first line that has it
bytes() { sed -n "s/^$1 *\([0-9]*\) B.*/\1/p" "$2"; }

# example lower|same RUNS MODEL "SETS" CHOICE...: keep-all against the choice: the same losses and weights; the peak is
# lower, or not and ckpt-plan says so; RUNS layers run again (- : any).
example() {
    local wanted=$1 runs=$2 file=$3 name
    local -a sets=()
    for name in $4; do sets+=(--set "$name"); done
    shift 4
    local what="$file ${sets[*]} $*"
    "$plan" -t 2 "${sets[@]}" --ignore-flags --strategy keep-all -o all.json "$models/$file" >all.txt 2>all.err || fail "$what: keep-all: $(cat all.err)"
    "$plan" -t 2 "${sets[@]}" "$@" -o part.json "$models/$file" >part.txt 2>part.err || fail "$what: $(cat part.err)"
    "$train" -t 2 "${sets[@]}" --plan all.json --steps 3 --seed 5 --log all.csv "$models/$file" >all.run 2>all.err || fail "$what: keep-all: $(cat all.err)"
    rm -f part.csv
    "$train" -t 2 "${sets[@]}" --plan part.json --steps 3 --seed 5 --poison --log part.csv "$models/$file" >part.run 2>part.err2 || fail "$what: $(cat part.err2)"
    cmp all.csv part.csv || fail "$what: other losses"
    rm -f all.csv
    [ "$(grep sha256 all.run)" = "$(grep sha256 part.run)" ] || fail "$what: other weights"
    grep -q "measured peak .*(equal)" part.run || fail "$what: $(grep peak part.run)"
    local all part again
    all=$(bytes "measured peak" all.run) part=$(bytes "measured peak" part.run)
    again=$(sed -n 's/^layers .* \([0-9]*\) recomputed.*/\1/p' part.txt)
    [ "$runs" = - ] || [ "$again" -eq "$runs" ] || fail "$what: $again layers recomputed, wanted $runs"
    if [ "$wanted" = lower ]; then
        [ "$part" -lt "$all" ] || fail "$what: peak $part, keep-all's $all"
        grep -q "saves nothing" part.err && fail "$what: $(cat part.err)"
    else
        [ "$part" -ge "$all" ] || fail "$what: peak $part is lower than keep-all's $all: say so in models/README.md"
        grep -q "saves nothing" part.err || fail "$what: no word that the peak stays: $(cat part.err)"
    fi
    echo "$what: $again recomputed, peak $part of $all bytes, bits equal"
}

small="batch=4 tokens=64 hidden=64 blocks=4 heads=4"

# torch.utils.checkpoint
example same 2 sequential-100.json "" --checkpoint 'seq.*' --strategy segments:2
example lower 15 byte-gpt.json "$small" --checkpoint 'h.*' --strategy segments:4 --policy 'linear=save,attention=save'
example lower - byte-gpt.json "$small" --policy 'linear=save,attention=save,*=recompute'
example lower - lstm.json "batch=64 hidden=64" --checkpoint 't.*' --strategy group_8
# FairScale
example same 2 fairscale-ffn.json "batch=32" --checkpoint ffn
example same 2 fairscale-ffn.json "batch=32" --checkpoint ffn --offload ffn --link 10GB/s
example lower - byte-gpt.json "$small" --checkpoint 'h.*' --offload 'h.*' --link 20GB/s
# SageMaker
example same 0 mnist-conv.json "batch=8" --checkpoint fc1
example lower 2 conv-relu.json "batch=8" --checkpoint 'conv?' --checkpoint 'relu?' --strategy contiguous
example same 0 conv-relu.json "batch=8" --checkpoint 'conv?' --checkpoint 'relu?' --strategy each
example lower - byte-gpt.json "$small" --checkpoint 'h.*' --strategy each
# OneFlow
example same 2 oneflow-graph.json ""
example lower - bert-8.json "batch=2 tokens=64 hidden=64 feed_forward=128 vocabulary=512 blocks=4" --checkpoint 'layer.*'
# Function, inputs and parameters: concatenation, norm and ReLU before a layer's first convolution
example lower - densenet-bc-100-12.json "batch=8 size=16 layers=4" --policy 'concat=recompute,batchnorm=recompute,relu=recompute' \
    --keep '*.*.bn2' --keep '*.*.relu2' --keep 'bn?' --keep 'relu?'

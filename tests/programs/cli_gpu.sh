#!/usr/bin/env bash
# --device cuda:N from the command line. Everywhere: what is refused, with which line and code. With a GPU: the same
# weights with every plan, recorded or not, and the memory that is reported.
# on a GPU: 150 s, alone
set -u
export OMP_WAIT_POLICY=passive # spinning threads cost much where other tests share the cores
source_dir=${1:-$CKPT_SOURCE_DIR} bin_dir=${2:-$CKPT_BIN_DIR} work_dir=${3:-$CKPT_WORK_DIR/cli_gpu}
train=$bin_dir/ckpt-train plan=$bin_dir/ckpt-plan profile=$bin_dir/ckpt-profile
model=$source_dir/models/byte-gpt.json
small=(--set batch=4 --set tokens=32 --set hidden=64 --set blocks=3 --set heads=2)
rm -rf "$work_dir" && mkdir -p "$work_dir" && cd "$work_dir" || exit 1

# shellcheck source=tests/support/support_refuse.sh
. "$source_dir/tests/support/support_refuse.sh"

"$plan" "${small[@]}" --device h200 --strategy keep-all -o all.json "$model" > /dev/null || fail "a plan for a GPU"
"$plan" "${small[@]}" --device h200 --dtype bfloat16 --strategy keep-all -o all16.json "$model" > /dev/null ||
    fail "a plan for a GPU in bfloat16"
# A plan under its minimum budget: nearly all of so small a network is weights, so no share of keep-all's peak can be named.
tight() { # PLAN OPTIONS...
    local out=$1 least
    shift
    least=$("$plan" "$@" -e 0 --budget 1B "$model" | sed -n 's/^minimum budget.*(\([0-9]*\) bytes).*/\1/p')
    "$plan" "$@" -e 0 --budget "${least}B" -o "$out" "$model" > /dev/null || fail "$*: no plan under its minimum budget \"$least\""
}
for type in float32 bfloat16; do # as below, where there is a GPU, from its profile
    tight "$type.part.json" "${small[@]}" --dtype "$type" --device h200 --strategy recompute-only
    tight "$type.offload.json" "${small[@]}" --dtype "$type" --device h200 --strategy offload-only
done
"$plan" "${small[@]}" --threads 1 --strategy keep-all -o cpu.json "$model" > /dev/null || fail "a plan for the CPU"

# Plans and devices that do not go together, and names that are none: the same on every machine.
refuse 2 "made for the CPU" "$train" "${small[@]}" --plan cpu.json --device cuda:0 "$model"
refuse 2 "made for a GPU" "$train" "${small[@]}" --plan all.json "$model"
refuse 2 "threads" "$train" "${small[@]}" --plan all.json --device cuda:0 --threads 2 "$model"
refuse 2 "is of graph\|plan is of\|sha256\|other" "$train" "${small[@]}" --plan all16.json --device cuda:0 "$model"
for name in cuda: cuda:x cuda:-1 cuda:0x1 cuda:1.5 "cuda: 0" CUDA:0 cuda:99999999999999999999 gpu; do
    refuse 2 "no such device\|made for a GPU" "$train" "${small[@]}" --plan all.json --device "$name" "$model"
    refuse 2 "no such device" "$profile" "${small[@]}" --device "$name" "$model"
done
refuse 2 "dtype\|float32" "$train" "${small[@]}" --plan all.json --device cuda:0 --dtype float64 "$model"

# A device that is not there, a build that has no CUDA: exit 3 and why.
refuse 3 "cuda:99: \(no such device\|no device\|this build has no CUDA\)" "$train" "${small[@]}" --plan all.json --device cuda:99 "$model"
"$train" "${small[@]}" --plan all.json --device cuda:0 --steps 0 "$model" > probe.txt 2> probe.err
code=$?
if grep -q "this build has no CUDA" probe.err; then
    refuse 3 "configure with CKPT_CUDA=ON" "$train" "${small[@]}" --plan all.json --device cuda:0 "$model"
    refuse 3 "configure with CKPT_CUDA=ON" "$profile" "${small[@]}" --device cuda:0 "$model"
    echo "this build has no CUDA, and says so"
    exit 0
fi
if [ $code -ne 0 ]; then
    refuse 3 "device cuda:0: no device" "$train" "${small[@]}" --plan all.json --device cuda:0 "$model"
    refuse 3 "device cuda:0: no device" "$profile" "${small[@]}" --device cuda:0 "$model"
    echo "no device here, and both programs say so; training was not looked at"
    exit 0
fi

# There is a GPU.
for type in float32 bfloat16; do
    as=("${small[@]}" --dtype "$type")
    "$profile" "${as[@]}" --device cuda:0 --repeats 3 -o "$type.profile.json" "$model" || fail "profile $type"
    grep -q '"target": "gpu"' "$type.profile.json" || fail "$type: the profile does not say what it is of"
    grep -q '"link"' "$type.profile.json" || fail "$type: the profile does not say how fast copies are"
    "$plan" "${as[@]}" --profile "$type.profile.json" --strategy keep-all -o "$type.all.json" "$model" > /dev/null || fail "keep-all $type"
    tight "$type.part.json" "${as[@]}" --profile "$type.profile.json" --strategy recompute-only
    tight "$type.offload.json" "${as[@]}" --profile "$type.profile.json" --strategy offload-only
    wanted=
    for run in all part offload; do
        for how in "" --no-graph --poison; do
            # shellcheck disable=SC2086
            "$train" "${as[@]}" --device cuda:0 --plan "$type.$run.json" --steps 5 --seed 4 $how "$model" > run.txt ||
                fail "$type $run $how: $(cat run.txt)"
            found=$(grep sha256 run.txt)
            [ -n "$found" ] && [ "${wanted:=$found}" = "$found" ] || fail "$type $run $how: other weights: $found, wanted $wanted"
            grep -Eq "^launches: [1-9][0-9]* kernels .*and [0-9]+ cop(y|ies) per step" run.txt || fail "$type $run $how: no launches"
            grep -q "measured peak .*(equal)" run.txt || fail "$type $run $how: peaks differ: $(cat run.txt)"
        done
    done
    refuse 3 "budget" "$train" "${as[@]}" --device cuda:0 --plan "$type.all.json" --budget 1MB "$model"
    # The last step recorded and compared with the profile: the same weights, and either records or a line why not.
    for how in "" --no-cupti; do
        # shellcheck disable=SC2086
        "$train" "${as[@]}" --device cuda:0 --plan "$type.part.json" --steps 5 --seed 4 --profile "$type.profile.json" --trace held.json \
            $how "$model" > run.txt 2> run.err || fail "$type --profile $how: $(cat run.txt run.err)"
        [ "$(grep sha256 run.txt)" = "$wanted" ] || fail "$type --profile $how: other weights"
        grep -q "^  sum of layers " run.txt || fail "$type --profile $how: $(cat run.txt)"
        if grep -q '"recorder"' held.json; then
            grep -q '"launches"' held.json || fail "$type: recorded, and no launches in the trace"
            [ -z "$how" ] || fail "$type: recorded in spite of --no-cupti"
        else
            grep -q "no kernels are recorded" run.err || fail "$type $how: nothing recorded, and no word why"
        fi
    done
done
echo "the same weights with every plan, recorded, not recorded and with NaN in freed memory"

#!/usr/bin/env bash
# gpu_check.sh OUT [--seconds N] [--parts LIST] [--dry-run]: everything that needs a GPU, in one command, within N
# seconds (default 520): build for the GPU that is here, a first training run, all GPU tests, micro-batches and fused
# gradients on one GPU (ranks with NCCL need two: not here), profiles by CUPTI and the trained step beside them, PyTorch's
# recordings imported, the benchmark beside PyTorch, compute-sanitizer. Most important first; a part that fails or runs
# out of time is recorded and the rest still runs. Exit 0: all that was asked for has run and was well; 1: something was
# not; 2: usage.
#
# --parts: some of first,tests,scheme,profile (two networks),imports,bench,sanitize,inject,steps (predicted and measured
# times of six plans),profiles (every network of models/),rest (the other networks in bfloat16),float32 (all of them), after the
# build; default all. What one call had no time for, another one does: gpu_check.sh out2 --parts rest
#
# Needs nvcc, gcc, g++, CMake 3.25, Ninja; no network. Packages that the machine lacks are taken from .deps in the
# repository or from $CKPT_DEPS (made elsewhere by scripts/deps_prefix); PyTorch, when `python3` ($CKPT_PYTHON) has it.
# In a copy without .git, $CKPT_COMMIT says which commit it is.
# OUT gets: summary.md, tests.log, bench.md, bench.json, recorded.tar.gz (profiles, plans, traces, losses), logs.tar.gz;
# they are there after every part, so that a run that is killed leaves what it had.
# --dry-run: the same parts on a machine without a GPU, with tiny networks on the CPU; shows that this script works.
set -u
cd "$(dirname "$0")/.." || exit 2
root=$PWD
known=first,tests,scheme,profile,imports,bench,sanitize,inject,steps,profiles,rest,float32
out='' dry=0 seconds=520 parts=$known
while [ $# -gt 0 ]; do
    case $1 in
    --dry-run) dry=1 ;;
    --seconds) seconds=${2:-} && shift ;;
    --parts) parts=${2:-} && shift ;;
    -*) echo "gpu_check: unknown option $1" >&2 && exit 2 ;;
    *) out=$1 ;;
    esac
    shift
done
case "$out:$seconds" in :* | *: | *:*[!0-9]*) echo "usage: scripts/gpu_check.sh OUT [--seconds N] [--parts LIST] [--dry-run]" >&2 && exit 2 ;; esac
for name in ${parts//,/ }; do
    case ",$known," in *",$name,"*) ;; *) echo "gpu_check: no part $name, wanted some of $known" >&2 && exit 2 ;; esac
done
begun_all=$(date +%s)
deadline=$((begun_all + seconds))
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
build=${CKPT_BUILD:-$root/build/gpu-check} work=$root/build/gpu-check-work
bin=$build/bin
rm -rf "$work" && mkdir -p "$work/log" "$work/recorded" || exit 2
python=${CKPT_PYTHON:-python3} deps=${CKPT_DEPS:-$root/.deps}
device=cuda:0 types=bfloat16,float32 tiny=() good=0 bad=0 missing=0 skipped=0 child=''
[ $dry = 0 ] || device=cpu types=float32 tiny=(--tiny --torch eager --rounds 1 --steps 2) # the CPU has no bfloat16
[ $dry = 1 ] || export CKPT_TEST_DEVICE=cuda:0 # tests must find the GPU, and leave the emulated one alone
asked() { case ",$parts," in *",$1,"*) return 0 ;; *) return 1 ;; esac }
export OMP_WAIT_POLICY=passive PATH=$PATH:/usr/local/cuda/bin
summary=$out/summary.md

left() { echo $((deadline - $(date +%s))); }
say() { echo "$*" | tee -a "$summary"; }
# What there is by now, into OUT: the last thing a killed run has done.
keep() {
    cp "$work"/bench/bench.md "$work"/bench/bench.json "$out/" 2>/dev/null
    cat "$work"/log/tests*.log 2>/dev/null | head -c 8000000 >"$out/tests.log"
    cp "$work"/inject/inject.md "$work"/imports/imports.md "$out/" 2>/dev/null
    cp "$work"/log/steps.log "$out/steps.txt" 2>/dev/null
    cp "$work"/steps.json "$out/" 2>/dev/null
    for folder in "$work"/bench/recorded "$work"/first "$work"/scheme "$work"/profile "$work"/profiles "$work"/inject; do
        [ -d "$folder" ] && cp -r "$folder/." "$work/recorded/"
    done
    tar czf "$out/recorded.tar.gz" -C "$work" recorded
    tar czf "$out/logs.tar.gz" -C "$work" log
}
# note PART VERDICT TEXT: a row of the table. VERDICT: ok, FAILED, no time, skipped.
note() {
    say "| $1 | $2 | $3 |"
    case $2 in
    ok) good=$((good + 1)) ;;
    FAILED) bad=$((bad + 1)) ;;
    skipped) skipped=$((skipped + 1)) ;;
    *) missing=$((missing + 1)) ;;
    esac
    keep
}
# part NAME LIMIT COMMAND...: run it for LIMIT seconds at most, and until the deadline; its output is NAME.log.
part() {
    local name=$1 limit=$2 begun rest
    shift 2
    rest=$(left) begun=$(date +%s)
    [ "$rest" -ge 5 ] || { note "$name" "no time" "$rest s left"; return 1; }
    [ "$limit" -le "$rest" ] || limit=$rest
    # Waited for, so that a signal to this script acts at once.
    timeout -k 5 "$limit" "$@" >"$work/log/$name.log" 2>&1 &
    child=$!
    wait $child
    local code=$?
    kill -KILL -- "-$child" 2>/dev/null # timeout's group: what did not heed its signal
    child=''
    took=$(($(date +%s) - begun))
    [ $code != 124 ] && [ $code != 137 ] || echo "gpu_check: stopped after $limit s" >>"$work/log/$name.log"
    return $code
}
# The last lines of a failed part's log, cut to one row of the table.
why() { grep -v '^ *$' "$work/log/$1.log" | tail -n "${2:-2}" | tr '\n|' ' /' | cut -c 1-300; }
plain_part() { # as part; its last line goes into the table
    part "$@"
    case $? in
    0) note "$1" ok "$took s; $(why "$1" 1)" ;;
    124 | 137) note "$1" "no time" "$took s; $(why "$1")" ;;
    *) [ -f "$work/log/$1.log" ] && note "$1" FAILED "$(why "$1")" ;;
    esac
}

pack() {
    trap - EXIT
    if [ -s "$work/bench/bench.md" ]; then say "" && tee -a "$summary" <"$work/bench/bench.md"; fi
    keep
    for file in "$out"/*; do
        [ "$(wc -c <"$file")" -lt 15000000 ] || { say "" && say "left out: $file, $(wc -c <"$file") bytes" && rm "$file" && bad=$((bad + 1)); }
    done
    say ""
    if [ "$good" -gt 0 ] && [ "$bad$missing" = 00 ] && { [ "$skipped" = 0 ] || [ $dry = 1 ]; }; then
        say "All was well: $good parts ok, $skipped skipped."
        exit 0
    fi
    say "Not all was well: $good parts ok, $bad FAILED, $missing without time, $skipped skipped; see the table and logs.tar.gz."
    exit 1
}
trap pack EXIT
trap '[ -z "$child" ] || kill -KILL -- "-$child"; note stopped FAILED "by a signal, after $(($(date +%s) - begun_all)) s"; exit 1' INT TERM HUP

smi() { nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null | head -n 1; }
capability=$(smi compute_cap | tr -d '. ')
if [ -z "$capability" ] && [ $dry = 0 ]; then # no nvidia-smi: ask the runtime
    cat >"$work/capability.cu" <<'PROGRAM'
#include <stdio.h>
int main()
{
    cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, 0) != cudaSuccess) return 1;
    return printf("%d%d\n", p.major, p.minor) < 0;
}
PROGRAM
    nvcc -o "$work/capability" "$work/capability.cu" >"$work/log/capability.log" 2>&1 && capability=$("$work/capability")
fi
{
    echo "# gpu_check, $(date -u +%Y-%m-%dT%H:%M:%SZ)$([ $dry = 0 ] || echo ', DRY RUN ON A CPU: no figure here is of a GPU')"
    echo
    echo "- commit: $(git --no-optional-locks describe --always --dirty --abbrev=12 2>/dev/null || echo "${CKPT_COMMIT:-unknown}")"
    echo "- GPU: $(smi name,memory.total,clocks.max.sm,power.limit || true), compute capability ${capability:-unknown}, driver $(smi driver_version)"
    echo "- host: $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $(nproc) processors, $(sed -n 's/^PRETTY_NAME=//p' /etc/os-release)"
    echo "- $(nvcc --version 2>/dev/null | grep -o 'V[0-9.]*$' | sed 's/^/nvcc /'), $(gcc --version | head -n 1), $(cmake --version | head -n 1), ninja $(ninja --version)"
    echo "- $("$python" -c 'import torch; print("PyTorch", torch.__version__, "CUDA", torch.version.cuda, "cuDNN", torch.backends.cudnn.version())' 2>/dev/null || echo "no PyTorch in $python")"
    echo "- packages: $([ -d "$deps" ] && echo "from $(basename "$deps")" || echo "the system's")"
    echo "- parts: $parts; $seconds s. The last line of this page says whether all was well; without it the run was cut off."
    echo
    echo "| part | verdict | |"
    echo "|---|---|---|"
} | tee "$summary"
if [ -z "$capability" ]; then
    [ $dry = 1 ] || { note gpu FAILED "no GPU answers"; exit 1; }
    capability=90
fi

# Build. Warnings of another compiler than the suite's are counted, not fatal.
flags=(-B "$build" "-DCMAKE_CUDA_ARCHITECTURES=$capability" -DCKPT_WERROR=OFF -DCKPT_PICTURES=OFF "-DCKPT_PYTHON=$python")
cuda_lib=$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")/../lib64
link="-Wl,-rpath,$cuda_lib"
if [ -d "$deps" ]; then
    deps=$(cd "$deps" && pwd)
    flags+=("-DCMAKE_PREFIX_PATH=$deps" "-DPKG_CONFIG_EXECUTABLE=$deps/bin/pkg-config")
    # RPATH, not RUNPATH: what these libraries need themselves lies there too.
    link="-Wl,--disable-new-dtags -Wl,-rpath,$deps/lib -Wl,-rpath-link,$deps/lib $link"
fi
flags+=("-DCMAKE_EXE_LINKER_FLAGS=$link" "-DCMAKE_SHARED_LINKER_FLAGS=$link")
tests=$(cd tests && ls test_gpu_*.c test_cud*.c 2>/dev/null | sed 's/\.c$//')
if ! part configure 60 cmake --preset cuda "${flags[@]}"; then
    [ -f "$work/log/configure.log" ] && note configure FAILED "$(why configure 4)"
    exit 1
fi
# -k 0: one test that does not compile must not keep the programs from being built.
# shellcheck disable=SC2086
part build 240 cmake --build "$build" -j "$(nproc)" --target ckpt-plan ckpt-profile ckpt-train ckpt_inject $tests -- -k 0
code=$?
[ -f "$work/log/build.log" ] || exit 1
case $code in 0) verdict=ok ;; 124 | 137) verdict='no time' ;; *) verdict=FAILED ;; esac
note build "$verdict" "$took s, $(grep -c 'warning' "$work/log/build.log") warnings; $(grep -m 2 -E 'error|FAILED' "$work/log/build.log" | tr '\n|' ' /' | cut -c 1-300)"
[ -x "$bin/ckpt-train" ] || exit 1

# Does it train at all? Keep-all and half of it, each with and without the recorded step: the same weights. Whether
# CUPTI works is another question (profile).
first() {
    set -e -o pipefail
    mkdir -p "$work/first" && cd "$work/first"
    local model=$root/models/byte-gpt.json vars=(--set batch=4 --set tokens=64 --set blocks=3)
    [ $dry = 0 ] || vars+=(--set hidden=64 --set heads=4)
    for type in ${types//,/ }; do
        "$bin/ckpt-profile" "$model" "${vars[@]}" --dtype $type --device "$device" \
            --repeats 3 --seconds 0.05 --no-cupti -o $type.profile.json
        "$bin/ckpt-plan" "$model" "${vars[@]}" --dtype $type --profile $type.profile.json --strategy keep-all -o $type.keep.json
        "$bin/ckpt-plan" "$model" "${vars[@]}" --dtype $type --profile $type.profile.json --budget 70% -o $type.part.json
        for run in keep part; do
            # shellcheck disable=SC2046
            for how in graph plain; do
                "$bin/ckpt-train" "$model" "${vars[@]}" --dtype $type --device "$device" --plan $type.$run.json --steps 5 \
                    --seed 1 --log $type.$run.$how.csv $([ $how = graph ] || echo --no-graph) | tee $type.$run.$how.txt
            done
        done
        [ "$(cat $type.*.txt | grep -c 'measured peak .*(equal)')" = 4 ] || { echo "$type: peaks differ: $(grep peak $type.*.txt)"; exit 1; }
        [ "$(grep -h sha256 $type.*.txt | sort -u | wc -l)" = 1 ] || { echo "$type: other weights: $(grep sha256 $type.*.txt)"; exit 1; }
    done
    echo "the same weights and the planned peaks with every plan, recorded or not"
}
export -f first && export work root bin device dry types
if asked first; then plain_part first 70 bash -c first; fi

# Tests. What looks at the free memory of the device runs alone.
run_tests() { # NAME REGEX JOBS LIMIT [REGEX OF THE OTHERS]
    part "$1" "$4" ctest --test-dir "$build" -R "$2" ${5:+-E "$5"} -j "$3" --timeout 100 --output-on-failure
    local code=$? log=$work/log/$1.log verdict=ok all passed skipped wrong
    [ -f "$log" ] || return
    all=$(sed -n 's|^ *[0-9]*/\([0-9]*\) Test .*|\1|p' "$log" | head -n 1) passed=$(grep -c ' Passed ' "$log") skipped=$(grep -c '\*\*\*Skipped' "$log")
    [ $code = 0 ] || verdict=FAILED
    wrong=$(grep -oE '\S+ \.+\*\*\*(Failed|Timeout|Exception|Not Run)\S*' "$log" | tr '\n' ' ' | cut -c 1-300)
    case $code in 124 | 137) [ -n "$wrong" ] || verdict='no time' ;; esac
    [ "${all:-0}" -gt 0 ] || [ "$verdict" = 'no time' ] || verdict=FAILED
    # Here is a device: only what a version of cuDNN may lack has a reason to skip itself.
    [ $dry = 1 ] || ! grep '\*\*\*Skipped' "$log" | grep -qv test_cudnn || verdict=FAILED
    note "$1" "$verdict" "$passed of ${all:-0} passed, $skipped skipped, $took s; $wrong"
}
alone='test_cuda_|cli_gpu$|test_gpu_train$'
if asked tests; then
    run_tests tests "^(test_gpu_|test_cudnn)" 8 110 "$alone"
    run_tests tests-alone "^($alone)" 1 80
fi

# One GPU, several micro-batches: keep-all, less, fused, and a loss scale of 1024 leave the same weights; clipping leaves
# others, the same with every plan.
scheme() {
    set -e -o pipefail
    mkdir -p "$work/scheme" && cd "$work/scheme"
    local vars=(--set batch=2 --set tokens=64 --set blocks=3) type run name
    [ $dry = 0 ] || vars+=(--set hidden=64 --set heads=4)
    for name in plain:'"clip_norm": 0' scaled:'"loss_scale": 1024' clipped:'"clip_norm": 0.05' both:'"clip_norm": 0.05, "loss_scale": 1024'; do
        sed "s/\"optimizer\": *{/&${name#*:}, /" "$root/models/byte-gpt.json" >"${name%%:*}.json"
    done
    cmp -s plain.json clipped.json && { echo "byte-gpt.json has no optimizer to change"; exit 1; }
    for type in ${types//,/ }; do
        for run in plain.keep plain.part plain.fused scaled.part clipped.keep clipped.part both.part; do
            local how=(--micro-batches 3 --device h200 --dtype "$type" --strategy keep-all)
            [ "$device" != cpu ] || how=(--micro-batches 3 --dtype "$type" --strategy keep-all)
            case $run in *.part) how[-1]=recompute-only how+=(--budget 80%) ;; *.fused) how+=(--gradients fused) ;; esac
            "$bin/ckpt-plan" "${run%.*}.json" "${vars[@]}" "${how[@]}" -o $type.$run.plan.json
            "$bin/ckpt-train" "${run%.*}.json" "${vars[@]}" --dtype $type --device "$device" --plan $type.$run.plan.json \
                --steps 4 --seed 1 --poison | tee $type.$run.txt
        done
        [ "$(cat $type.*.txt | grep -c 'measured peak .*(equal)')" = 7 ] || { echo "$type: peaks differ: $(grep peak $type.*.txt)"; exit 1; }
        [ "$(grep -h sha256 $type.plain.*.txt $type.scaled.*.txt | sort -u | wc -l)" = 1 ] || { echo "$type: other weights: $(grep sha256 $type.*.txt)"; exit 1; }
        [ "$(grep -h sha256 $type.clipped.*.txt $type.both.*.txt | sort -u | wc -l)" = 1 ] || { echo "$type: other weights when clipped: $(grep sha256 $type.*.txt)"; exit 1; }
        [ "$(grep -h sha256 $type.*.txt | sort -u | wc -l)" = 2 ] || { echo "$type: nothing was clipped"; exit 1; }
    done
    echo "3 micro-batches: the same weights kept, recomputed, fused and with a scaled loss; clipped others, the same twice"
}
export -f scheme
if asked scheme; then plain_part scheme 60 bash -c scheme; fi

# What CUPTI says of every layer, and the trained step held against the sum of its layers. The line of each network that
# goes to the table is the one that says how far the two are apart.
profile() {
    set -e -o pipefail
    mkdir -p "$work/profile" && cd "$work/profile"
    local vars type=${types%%,*} network
    for network in gpt2-124m resnet50; do
        vars=(--dtype "$type")
        [ $dry = 0 ] || case $network in
        gpt2*) vars+=(--set batch=1 --set tokens=16 --set hidden=64 --set blocks=2 --set heads=4 --set vocabulary=64) ;;
        *) vars+=(--set batch=2 --set size=32) ;;
        esac
        "$bin/ckpt-profile" "$root/models/$network.json" "${vars[@]}" --device "$device" -o $network.json 2> >(tee $network.err >&2)
        [ $dry = 1 ] || grep -q '"recorder": "CUPTI' $network.json || { echo "$network: not recorded by CUPTI: $(tail -n 1 $network.err)"; exit 1; }
        "$bin/ckpt-plan" "$root/models/$network.json" "${vars[@]}" --profile $network.json --strategy keep-all -o $network.plan.json
        "$bin/ckpt-train" "$root/models/$network.json" "${vars[@]}" --device "$device" --plan $network.plan.json --steps 10 \
            --profile $network.json --trace $network.trace.json | tee $network.txt
    done
    echo "$(grep -h "$said" ./*.txt | tr '\n' ';')"
}
export said='sum of layers'
export -f profile
if asked profile; then plain_part profile 90 bash -c profile; fi

# What PyTorch records, imported, against what PyTorch says of the same run. What it recorded is too large to keep.
torch_part() { # NAME LIMIT COMMAND...
    if "$python" -c 'import torch' 2>/dev/null; then plain_part "$@"; else note "$1" skipped "no PyTorch in $python"; fi
}
if asked imports; then
    torch_part imports 90 "$python" bench/gpu/import_check.py --bin "$bin" --out "$work/imports" \
        --device "${device%%:*}" "${tiny[@]:0:$((dry))}"
fi

bench() { # NAME LIMIT ARGUMENTS...: the driver stops itself before the limit and keeps what it has
    local name=$1 limit=$2
    shift 2
    [ "$limit" -le "$(left)" ] || limit=$(($(left) - 5))
    plain_part "$name" "$limit" "$python" bench/gpu/bench.py --bin "$bin" --device "$device" --out "$work/bench" \
        --seconds $((limit - 10)) "${tiny[@]}" "$@"
}
if asked bench; then bench bench "$([ "$parts" = bench ] && left || echo 190)" --networks gpt2-124m --dtypes ${types%%,*}; fi

# compute-sanitizer, several processes at a time: the ops whose kernels have barriers or shared memory, in the awkward
# shapes of test_gpu_ops; and a training step of small networks, which have every op between them but nll_loss and mse,
# started kernel by kernel because the tool looks into those, and into replayed ones less well.
clean() { # TOOL WHAT
    local tool=$1 program=() file=$work/sanitize/$1.$BASHPID
    read -r -a words <<<"$2"
    case ${words[0]} in
    op) export CKPT_TEST_OP=${words[1]} && program=("$bin/test_gpu_ops") ;;
    test) program=("$bin/${words[1]}") ;;
    *)
        "$bin/ckpt-plan" "${words[@]:1}" --dtype "${words[0]}" --device h200 --strategy keep-all -o "$file.json" >"$file" 2>&1 ||
            { echo "== DIRTY $tool $2: no plan"; cat "$file"; return 1; }
        program=("$bin/ckpt-train" "${words[@]:1}" --dtype "${words[0]}" --device "$device" --plan "$file.json" --steps 1 --no-graph) ;;
    esac
    if compute-sanitizer --tool "$tool" --error-exitcode 99 "${program[@]}" </dev/null >"$file" 2>&1; then
        echo "== clean $tool $2: $(grep SUMMARY "$file")"
    else
        echo "== DIRTY $tool $2: exit $?, $(grep SUMMARY "$file")"
        grep '^=========' "$file" | head -n 40
        tail -n 10 "$file"
        return 1
    fi
}
cat >"$work/sanitize.txt" <<LINES
bfloat16 models/byte-gpt.json --set batch=2 --set tokens=40 --set hidden=64 --set blocks=1 --set heads=2
op attention
op layernorm
op cross_entropy
op linear
op embedding
bfloat16 tests/models/resnet-small.json
op softmax
op conv2d
op batchnorm
test test_gpu_sums
test test_gpu_optimizers
bfloat16 models/bert-8.json --set batch=1 --set tokens=24 --set positions=24 --set hidden=32 --set blocks=1 --set heads=2 --set feed_forward=48 --set vocabulary=40
bfloat16 models/lstm.json --set batch=2 --set hidden=16
bfloat16 tests/models/unet-small.json
bfloat16 models/densenet-bc-100-12-dropout.json --set batch=2 --set size=8 --set growth=4 --set layers=1
bfloat16 models/mobilenetv2.json --set batch=2 --set size=32 --set classes=10
float32 models/byte-gpt.json --set batch=2 --set tokens=40 --set hidden=64 --set blocks=1 --set heads=2
float32 tests/models/resnet-small.json
LINES
export -f clean
mkdir -p "$work/sanitize"
for tool in $(asked sanitize && echo memcheck racecheck); do
    if ! command -v compute-sanitizer >/dev/null; then
        note $tool skipped "compute-sanitizer is not here"
    elif [ $dry = 1 ]; then
        note $tool skipped "dry run"
    else
        part $tool 45 xargs -a "$work/sanitize.txt" -P 6 -d '\n' -I WHAT bash -c 'clean "$0" "$1"' $tool WHAT
        code=$? runs=$(wc -l <"$work/sanitize.txt") log=$work/log/$tool.log verdict=ok
        [ -f "$log" ] || continue
        clean=$(grep -c '^== clean' "$log") dirty=$(grep '^== DIRTY' "$log" | tr '\n|' ';/' | cut -c 1-300)
        case $code in 0) ;; 124 | 137) verdict='no time' ;; *) verdict=FAILED ;; esac
        [ -z "$dirty" ] || verdict=FAILED
        note $tool "$verdict" "$clean of $runs clean, $took s; $dirty"
    fi
done

if asked inject; then
    torch_part inject 160 "$python" bench/gpu/inject_overhead.py --bin "$bin" --out "$work/inject" \
        --device "${device%%:*}" --runs $((dry ? 1 : 4)) "${tiny[@]:0:$((dry))}"
fi
if asked steps; then
    models=(models/gpt2-124m.json models/resnet50.json)
    [ $dry = 0 ] || models=(tests/models/resnet-small.json)
    plain_part steps 300 "$python" bench/step_time.py "$bin" --device "$device" --dtype "${types%%,*}" --plans 6 --steps 10 \
        --rounds 2 --json "$work/steps.json" "${models[@]}"
fi
for type in $(asked profiles && echo "${types//,/ }"); do
    models=()
    [ $dry = 0 ] || models=(mnist-conv lstm)
    plain_part "profiles-$type" 200 scripts/record_profiles "$work/profiles" --device "$device" --dtype "$type" --bin "$bin" "${models[@]}"
done

others=gpt2-124m-50304,gpt2-1.5b,bert-large,resnet50
if asked rest; then bench rest "$(left)" --networks $others --dtypes ${types%%,*} --resume; fi
if asked float32; then bench float32 "$(left)" --networks gpt2-124m,$others --dtypes float32 --resume; fi
pack

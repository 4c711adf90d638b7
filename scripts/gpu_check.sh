#!/usr/bin/env bash
# gpu_check.sh OUT --call 1|2|3|4|5 [--seconds N] [--dry-run]: runs a fifth of the checks on a machine with a GPU, within N
# seconds (default 480).
#   1  inventory, smoke (a few tests), first (trains a network), scheme (micro-batches), profile (two networks, by CUPTI)
#   2  tests, tests-alone
#   3  bench (beside PyTorch), ncu (Nsight Compute on the attention kernels and the head's products)
#   4  steps (predicted and measured times of six plans), memcheck, racecheck, imports (of PyTorch's files), inject
#   5  pytorch (the PyTorch package: bits, peaks, times, arena, copies, CUDA graphs)
# gpu_check.sh OUT --parts LIST: runs single parts, any of these or profiles (every network of models/), rest (bench of the
# other networks in bfloat16), float32 (bench of all networks).
# A part that fails, hangs or runs out of time gets its row, and the others still run. Exit 0: everything asked for ran and
# passed; 1: something did not; 2: usage.
# With more than 480 s all limits grow in proportion, in whole multiples.
#
# OUT gets summary.md (its last line says whether everything passed), results.tar.gz (profiles, plans, traces, figures) and
# logs.tar.gz, each under 15 MB, and the tables of the parts. All are complete at any time and at most 20 s old, so that a
# killed run leaves its results so far.
#
# Programs and tests are those of prebuilt/, which scripts/gpu_bundle puts beside the sources; otherwise they are built in
# build/gpu-check. With $CKPT_BUILD, an absolute path, they are built there, and prebuilt/ is not used. CUDA's libraries are
# searched in the packages of `python3` ($CKPT_PYTHON), the toolkit and the system's folder. A build needs nvcc, gcc, g++,
# CMake 3.25 and Ninja; Debian packages that the machine lacks come from .deps or $CKPT_DEPS, made by scripts/gpu_bundle. In
# a copy without .git, prebuilt/commit or $CKPT_COMMIT names the commit.
# --dry-run: runs the same parts without a GPU, with tiny networks on the CPU, to test this script.
set -u
here=$PWD
cd "$(dirname "$0")/.." || exit 2
root=$PWD
known=inventory,smoke,first,scheme,profile,tests,tests-alone,bench,ncu,steps,memcheck,racecheck,imports,inject,pytorch,profiles,rest,float32
out='' dry=0 seconds=480 parts='' call=''
while [ $# -gt 0 ]; do
    case $1 in
    --dry-run) dry=1 ;;
    --seconds) seconds=${2:-} && shift ;;
    --parts) parts=${2:-} && shift ;;
    --call)
        call=${2:-} && shift
        case $call in
        1) parts=inventory,smoke,first,scheme,profile ;;
        2) parts=tests,tests-alone ;;
        3) parts=bench,ncu ;;
        4) parts=steps,memcheck,racecheck,imports,inject ;;
        5) parts=pytorch ;;
        *) echo "gpu_check: no call '$call', wanted 1, 2, 3, 4 or 5" >&2 && exit 2 ;;
        esac
        ;;
    -*) echo "gpu_check: unknown option $1" >&2 && exit 2 ;;
    *) out=$1 ;;
    esac
    shift || break
done
case $seconds in *[!0-9]*) seconds='' ;; esac
if [ -z "$out" ] || [ -z "$parts" ] || [ -z "$seconds" ]; then
    echo "usage: scripts/gpu_check.sh OUT --call 1|2|3|4|5 | --parts LIST [--seconds N] [--dry-run]" >&2
    exit 2
fi
for name in ${parts//,/ }; do
    case ",$known," in *",$name,"*) ;; *) echo "gpu_check: no part $name, wanted some of $known" >&2 && exit 2 ;; esac
done
scale=$((seconds / 480 > 1 ? seconds / 480 : 1))
begun_all=$(date +%s)
deadline=$((begun_all + seconds))
case $out in /*) ;; *) out=$here/$out ;; esac
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
(cd "$out" && rm -f results.tar.gz logs.tar.gz bench.md inject.md ncu.md steps.txt imports.md inventory.txt) # of another call
work=$root/build/gpu-check-work results=$root/build/gpu-check-work/results
rm -rf "$work" && mkdir -p "$work/logs" "$results" || exit 2
python=${CKPT_PYTHON:-python3} deps=${CKPT_DEPS:-$root/.deps}
device=cuda:0 types=bfloat16,float32 tiny=() good=0 bad=0 missing=0 skipped=0 child=''
[ $dry = 0 ] || device=cpu types=float32 tiny=(--tiny --torch eager --rounds 1 --steps 2) # the CPU has no bfloat16
[ $dry = 1 ] || export CKPT_TEST_DEVICE=cuda:0 # tests must find the GPU, and leave the emulated one alone
# The last part that was asked for gets the rest of the time.
limit() { if [ "${parts##*,}" = "$1" ]; then left; else echo "$2"; fi; }
asked() { case ",$parts," in *",$1,"*) return 0 ;; *) return 1 ;; esac }
export OMP_WAIT_POLICY=passive PYTHONDONTWRITEBYTECODE=1
for folder in /usr/local/cuda/bin /opt/nvidia/nsight-compute/*; do [ ! -d "$folder" ] || PATH=$PATH:$folder; done
summary=$out/summary.md

left() { echo $((deadline - $(date +%s))); }
say() { echo "$*" | tee -a "$summary"; }
# pack_up NAME: packs the folder NAME of $work into OUT/NAME.tar.gz, which is renamed when complete. If it would be too
# large, the largest files are left out, and a file in it lists them.
pack_up() {
    local size line
    while nice tar czf "$out/.$1.new" -C "$work" "$1" 2>/dev/null || [ $? = 1 ]; do # 1: a file grew meanwhile
        size=$(wc -c <"$out/.$1.new")
        [ "$size" -ge 15000000 ] || { mv "$out/.$1.new" "$out/$1.tar.gz" && return; }
        line=$(find "$work/$1" -type f -printf '%s %p\n' | sort -rn | head -n 1)
        echo "left out of $1.tar.gz: ${line#* }, ${line%% *} bytes" | sed "s|$work/||" >>"$work/logs/left-out.txt"
        rm -f "${line#* }"
    done
}
# Writes all results so far to OUT; a killed run does this last.
keep() {
    local file
    for file in "$results"/bench/bench.md "$results"/inject/inject.md "$results"/ncu/ncu.md "$results"/steps.txt \
        "$work"/imports/imports.md "$work"/logs/inventory.txt; do
        # shellcheck disable=SC2015
        [ -s "$file" ] && cp "$file" "$out/.new" && mv "$out/.new" "$out/${file##*/}"
    done
    pack_up results
    pack_up logs
}
# note PART VERDICT TEXT: adds a row to the table. VERDICT: ok, FAILED, no time, skipped.
note() {
    say "| $1 | $2 | ${3//|/\/} |"
    case $2 in
    ok) good=$((good + 1)) ;;
    FAILED) bad=$((bad + 1)) ;;
    skipped) skipped=$((skipped + 1)) ;;
    *) missing=$((missing + 1)) ;;
    esac
    keep
}
# Ends every process of a session, in all its process groups.
end_session() {
    local file words
    for file in /proc/[0-9]*/stat; do
        read -r words 2>/dev/null <"$file" || continue # it has ended meanwhile
        read -ra words <<<"${words##*) }"              # behind the name: state, parent, group, session
        [ "${words[3]}" != "$1" ] || kill -KILL "${file//[!0-9]/}" 2>/dev/null
    done
}
# within SECONDS COMMAND...: like timeout, but leaves behind a process that hangs in the driver.
within() {
    local seconds=$1 pid tick
    shift
    timeout -k 2 "$seconds" "$@" &
    pid=$!
    for ((tick = 0; tick < 5 * (seconds + 4); tick++)); do
        kill -0 $pid 2>/dev/null || { wait $pid; return; }
        sleep 0.2
    done
    kill -KILL $pid # timeout itself, which waits for it
    return 137
}
# True if the device still answers: a small test ends, even if it fails for other reasons.
answers() {
    if [ $dry = 0 ] && command -v nvidia-smi >/dev/null; then within 10 nvidia-smi -L >/dev/null 2>&1 9>&- || return 1; fi
    [ -x "$bin/test_gpu_device" ] || return 0
    within "${CKPT_PROBE_SECONDS:-20}" "$bin/test_gpu_device" >"$work/logs/probe.log" 2>&1 9>&-
    case $? in 124 | 137) return 1 ;; esac
}
silence='the device no longer answers'
# part NAME LIMIT COMMAND...: runs the command for at most LIMIT seconds and until the deadline, with its output in
# NAME.log. Sets $verdict and $took. Returns 1 if it was not started; its row has the reason.
part() {
    local name=$1 limit=$(($2 * scale)) begun rest code ticks=0
    shift 2
    rest=$(left) begun=$(date +%s)
    [ "$rest" -ge 5 ] || { note "$name" "no time" "not begun: $rest s left"; return 1; }
    if [ -e "$work/dead" ]; then
        answers || { note "$name" FAILED "not begun: $silence"; return 1; }
        rm "$work/dead"
    fi
    [ "$limit" -le "$rest" ] || limit=$rest
    setsid timeout -k 3 "$limit" "$@" >"$work/logs/$name.log" 2>&1 </dev/null &
    child=$!
    while kill -0 $child 2>/dev/null; do # short sleeps, so that a signal to this script acts at once
        sleep 0.2
        ticks=$((ticks + 1))
        [ $((ticks % 100)) != 0 ] || keep
        [ $((ticks % 5)) != 0 ] || [ $(($(date +%s) - begun)) -lt $((limit + 8)) ] || end_session $child # timeout itself waits
    done
    wait $child
    code=$?
    end_session $child
    child='' took=$(($(date +%s) - begun))
    case $code in 0) verdict=ok ;; 124) verdict='no time' ;; *) verdict=FAILED ;; esac
    if { [ $code = 124 ] || [ $code = 137 ]; } && [ $took -ge "$limit" ]; then
        verdict='no time'
        echo "stopped after $limit s" >>"$work/logs/$name.log"
        answers || { touch "$work/dead" && verdict=FAILED && echo "$silence" >>"$work/logs/$name.log"; }
    fi
    return 0
}
# The last lines of a log, shortened to a row of the table.
why() { grep -v '^ *$' "$work/logs/$1.log" | tail -n "${2:-2}" | tr '\n' ' ' | cut -c 1-300; }
plain_part() { # as part; its last line goes into the table
    part "$@" || return
    local lines=2
    [ "$verdict" != ok ] || lines=1
    note "$1" "$verdict" "$took s; $(why "$1" $lines)"
}

finish() {
    trap - EXIT
    if [ -s "$results/bench/bench.md" ]; then say "" && tee -a "$summary" <"$results/bench/bench.md"; fi
    keep
    if [ -s "$work/logs/left-out.txt" ]; then say "" && tee -a "$summary" <"$work/logs/left-out.txt"; fi
    say ""
    if [ "$good" -gt 0 ] && [ "$bad$missing" = 00 ] && { [ "$skipped" = 0 ] || [ $dry = 1 ]; }; then
        say "All was well: $good parts ok, $skipped skipped."
        exit 0
    fi
    say "Not all was well: $good parts ok, $bad FAILED, $missing without time, $skipped skipped; see the table and logs.tar.gz."
    exit 1
}
trap finish EXIT
trap '[ -z "$child" ] || end_session "$child"; note stopped FAILED "by a signal, after $(($(date +%s) - begun_all)) s"; exit 1' INT TERM HUP

# CUDA's libraries: a place that has all needed ones comes first, so that versions are not mixed. Other places follow for
# what it lacks (CUPTI, NCCL). The loader searches the system's folder last; it is not named, because naming others would
# hide it.
needed=(libcudart.so.13 libcublasLt.so.13 libcudnn.so.9)
wheels=$("$python" -c 'import glob, nvidia
print(":".join(f for p in nvidia.__path__ for f in sorted(glob.glob(p + "/*/lib") + glob.glob(p + "/*/*/lib"))))' 2>/dev/null)
toolkit='' system=''
for name in "$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")/.." /usr/local/cuda; do
    for folder in "$name"/lib64 "$name"/lib "$name"/extras/CUPTI/lib64; do
        folder=$(readlink -e "$folder") || continue
        case ":$toolkit:" in *":$folder:"*) ;; *) toolkit+=${toolkit:+:}$folder ;; esac
    done
done
for folder in /usr/lib/x86_64-linux-gnu /usr/lib64; do
    ! compgen -G "$folder/libcu[bd]*.so*" >/dev/null || system+=${system:+:}$folder
done
find_library() { # PLACE NAME: the first file of that name in a list of folders
    local folder
    while read -r -d : folder; do
        if [ -n "$folder" ] && [ -e "$folder/$2" ]; then readlink -f "$folder/$2" && return; fi
    done <<<"$1:"
    return 1
}
places=(wheels toolkit system) whole=''
for place in "${places[@]}"; do
    for name in "${needed[@]}"; do find_library "${!place}" "$name" >/dev/null || continue 2; done
    whole=$place && break
done
for place in $([ "$whole" = system ] || echo $whole wheels toolkit); do
    [ -n "${!place}" ] || continue
    case ":${LD_LIBRARY_PATH:-}:" in *":${!place}:"*) ;; *) LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}${LD_LIBRARY_PATH:+:}${!place} ;; esac
done
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}

smi() { timeout -k 2 30 nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null | head -n 1; }
gpu=$(smi name,memory.total,clocks.max.sm,power.limit) driver=$(smi driver_version)
capability=$(smi compute_cap | tr -d '. ')
case $capability in *[!0-9]*) capability='' ;; esac
{
    echo "# gpu_check${call:+, call $call}, $(date -u +%Y-%m-%dT%H:%M:%SZ)$([ $dry = 0 ] || echo ', DRY RUN ON A CPU: no figure here is of a GPU')"
    echo
    commit=$(cat prebuilt/commit 2>/dev/null || git --no-optional-locks describe --always --dirty --abbrev=12 2>/dev/null)
    echo "- commit: ${commit:-${CKPT_COMMIT:-unknown}}"
    echo "- GPU: ${gpu:-unknown}, compute capability ${capability:-unknown}, driver ${driver:-unknown}"
    echo "- host: $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $(nproc) processors, $(sed -n 's/^PRETTY_NAME=//p' /etc/os-release)"
    echo "- CUDA's libraries: ${whole:-no place has all of ${needed[*]}; mixed from ${places[*]}}"
    echo "- parts: $parts; $seconds s. The last line of this page says whether all was well; without it the run was cut off."
    echo
    echo "| part | verdict | |"
    echo "|---|---|---|"
} | tee "$summary"

# Programs: prebuilt ones if they run here, else our own build. A dry run does not need CUDA's libraries.
bin=$root/prebuilt/bin list=$root/prebuilt/tests.txt
if [ -z "${CKPT_BUILD:-}" ] && [ -x "$bin/ckpt-train" ]; then
    if said=$(if [ $dry = 1 ]; then "$bin/ckpt-train" --version; else scripts/gpu_prebuilt_ok; fi 2>&1); then
        note prebuilt ok "$("$bin/ckpt-train" --version)"
    else
        note prebuilt FAILED "${said:0:300}; building instead"
        bin=''
    fi
else
    bin=''
fi
build=${CKPT_BUILD:-$root/build/gpu-check}
prebuilt=${bin:+yes}
bin=${bin:-$build/bin}
export work results root bin dry device types silence python scale
export -f answers within

# The inventory of the machine. The row names the needed libraries and the tools.
inventory() {
    local name place file found=() lacks=()
    {
        echo "== $(uname -srm), $(ldd --version | head -n 1)"
        free -g | sed -n 2p
        lscpu | grep -E '^(Model name|CPU\(s\)|Thread|Socket|NUMA node\(s\))'
        echo "== nvidia-smi"
        nvidia-smi -L
        nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used,clocks.sm,clocks.max.sm,clocks.mem,power.limit,temperature.gpu,mig.mode.current,compute_mode,persistence_mode,ecc.mode.current --format=csv
        nvidia-smi | grep -i 'CUDA Version'
        echo "== compilers: $(nvcc --version 2>/dev/null | tail -n 1); $(gcc --version 2>/dev/null | head -n 1); $(cmake --version 2>/dev/null | head -n 1); ninja $(ninja --version 2>/dev/null)"
        "$python" -c 'import sys, torch
print("== Python", sys.version.split()[0], "PyTorch", torch.__version__, "CUDA", torch.version.cuda, "cuDNN", torch.backends.cudnn.version())' || echo "== no PyTorch in $python"
        "$python" -c 'import importlib.metadata as m
print(*sorted(d.name + " " + d.version for d in m.distributions() if d.name.startswith(("nvidia", "triton"))), sep="\n")'
        echo "== libraries, in each place"
        for name in libcudart.so.13 libcublasLt.so.13 libcublas.so.13 libcudnn.so.9 libcudnn_graph.so.9 libcupti.so.13 libcupti.so.12 libnvrtc.so.13 libnccl.so.2; do
            for place in wheels toolkit system; do
                file=$(find_library "${!place}" $name) && echo "$name  $place  $file"
            done
        done
        echo "== LD_LIBRARY_PATH=$LD_LIBRARY_PATH"
        for file in "$bin/ckpt-train" "$bin/../lib/libckpt_cuda.so" "$bin/../lib/libckpt_inject.so"; do
            [ -e "$file" ] && echo "== ldd $file" && ldd "$file"
        done
        for name in ncu compute-sanitizer; do
            echo "== $name"
            command -v $name && $name --version
        done
    } >"$work/logs/inventory.txt" 2>&1
    for name in libcublasLt libcudnn libnvrtc libcupti libnccl; do # libnvrtc: cuDNN compiles attention with it
        file=$(sed -n "s/^\($name\.so[^ ]*\)  \([a-z]*\)  \(.*\)/\3 (\2)/p" "$work/logs/inventory.txt" | head -n 1)
        if [ -n "$file" ]; then found+=("${file##*/}"); else lacks+=("$name"); fi
    done
    # Tests whether the tools may access the device: one or two of our kernels under each.
    if command -v ncu >/dev/null; then
        timeout -k 2 25 ncu --clock-control none --launch-count 1 --metrics gpu__time_duration.sum "$bin/test_gpu_device" >"$work/logs/ncu-works.log" 2>&1
        if grep -q 'gpu__time_duration.sum' "$work/logs/ncu-works.log"; then found+=(ncu); else lacks+=("ncu that works ($(grep -m 1 -E 'ERR|rror' "$work/logs/ncu-works.log"))"); fi
    else
        lacks+=(ncu)
    fi
    if command -v compute-sanitizer >/dev/null; then
        timeout -k 2 25 compute-sanitizer --launch-count 1 "$bin/test_gpu_device" >"$work/logs/sanitizer-works.log" 2>&1
        if grep -q 'ERROR SUMMARY' "$work/logs/sanitizer-works.log"; then found+=(compute-sanitizer); else lacks+=("compute-sanitizer that works"); fi
    else
        lacks+=(compute-sanitizer)
    fi
    ldd "$bin/../lib/libckpt_cuda.so" 2>/dev/null | grep 'not found'
    echo "${found[*]:-nothing}${lacks[*]:+; not here: ${lacks[*]}}"
    [ "$dry" = 1 ] || { find_library "$LD_LIBRARY_PATH:$system" libcublasLt.so.13 && find_library "$LD_LIBRARY_PATH:$system" libcudnn.so.9; } >/dev/null
}
export -f inventory find_library && export wheels toolkit system
if asked inventory && [ -n "$prebuilt" ]; then plain_part inventory 70 bash -c inventory; fi
if [ $dry = 0 ] && [ -z "$capability" ]; then # without nvidia-smi there may still be a GPU
    if command -v nvidia-smi >/dev/null; then
        note gpu FAILED "no GPU answers: $(timeout -k 2 30 nvidia-smi 2>&1 | tr '\n' ' ' | cut -c 1-200)"
        exit 1
    elif ! compgen -G '/dev/nvidia[0-9]*' >/dev/null && [ ! -e /dev/dxg ]; then
        note gpu FAILED "no GPU: neither nvidia-smi nor /dev/nvidia0 is here"
        exit 1
    fi
fi

# Builds. Warnings of other compilers than the suite's are counted, not fatal.
if [ -z "$prebuilt" ]; then
    list=$build/gpu-tests.txt
    flags=(-B "$build" "-DCMAKE_CUDA_ARCHITECTURES=${capability:-$([ $dry = 1 ] && echo 90 || echo native)}" -DCKPT_WERROR=OFF -DCKPT_PICTURES=OFF
        "-DCKPT_PYTHON=$python")
    link="-Wl,-rpath,$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")/../lib64"
    if [ -d "$deps" ]; then
        deps=$(cd "$deps" && pwd)
        flags+=("-DCMAKE_PREFIX_PATH=$deps" "-DPKG_CONFIG_EXECUTABLE=$deps/bin/pkg-config")
        # RPATH, not RUNPATH: the libraries that these need are there too.
        link="-Wl,--disable-new-dtags -Wl,-rpath,$deps/lib -Wl,-rpath-link,$deps/lib $link"
    fi
    flags+=("-DCMAKE_EXE_LINKER_FLAGS=$link" "-DCMAKE_SHARED_LINKER_FLAGS=$link")
    tests=$(find tests -name 'test_gpu_*.c' -o -name 'test_cud*.c' | sed 's|.*/||; s|\.c$||')
    part configure 60 cmake --preset cuda "${flags[@]}" || exit 1
    [ "$verdict" = ok ] || { note configure "$verdict" "$(why configure 4)"; exit 1; }
    # -k 0: a test that does not compile must not prevent the programs from being built.
    # shellcheck disable=SC2086
    part build 300 cmake --build "$build" -j "$(nproc)" --target ckpt-plan ckpt-profile ckpt-train ckpt_inject $tests -- -k 0 || exit 1
    note build "$verdict" "$took s, $(grep -c 'warning' "$work/logs/build.log") warnings; $(grep -m 2 -E 'error|FAILED' "$work/logs/build.log" | tr '\n' ' ' | cut -c 1-300)"
    [ -x "$bin/ckpt-train" ] || exit 1
    if asked inventory; then plain_part inventory 70 bash -c inventory; fi
fi

# run_tests PART LIMIT JOBS FILE: a line of FILE is NAME SECONDS alone|together COMMAND... The test runs in the source
# folder, ends at its own limit at the latest, and exits with 0, 77 (skipped) or another code (failed).
one_test() {
    local name=$1 limit=$(($2 * scale)) log=$work/logs/$part/$1.log state=$work/tests/$part/$1 rest begun pid code took word
    shift 3
    begun=$(date +%s)
    rest=$((end - begun - 2)) # so that it ends before the part does, and says so
    [ ! -e "$work/dead" ] || return 0
    [ "$rest" -ge 1 ] || return 0
    [ "$limit" -le "$rest" ] || limit=$rest
    mkdir -p "$work/scratch/$name"
    echo hanging >"$state" # until it has ended: a process may be stuck in the driver for good
    CKPT_SOURCE_DIR=$root CKPT_BIN_DIR=$bin CKPT_WORK_DIR=$work/scratch/$name OMP_NUM_THREADS=$share \
        timeout -k 3 "$limit" "$@" >"$log" 2>&1 &
    pid=$!
    wait $pid
    code=$?
    kill -KILL -- -$pid 2>/dev/null # timeout's group: what did not heed its signal
    took=$(($(date +%s) - begun))
    word=failed
    case $code in
    0) word=passed ;;
    77) word=skipped ;;
    124 | 137)
        if [ $took -ge "$limit" ]; then
            word=hanging
            [ "$limit" -lt "$rest" ] || word='out-of-time'
            exec 9>"$work/probing"
            flock 9 # others may have hung with it: one looks at a time
            if [ ! -e "$work/dead" ] && ! answers; then
                touch "$work/dead"
                echo "$silence"
            fi
            exec 9>&-
        fi
        ;;
    esac
    echo $word >"$state"
    echo "$word $name, $took s"
    rm -rf "$work/scratch/$name"
}
export -f one_test
of_state() { (cd "$work/tests/$1" && grep -lx "$2" ./* 2>/dev/null | sed 's|^\./||' | tr '\n' ' '); }
run_tests() {
    local limit=$(($2 * scale)) jobs=$3 file=$4 word names text='' all unbegun=''
    [ "$limit" -le "$(left)" ] || limit=$(left)
    export part=$1 share=$(($(nproc) / jobs > 0 ? $(nproc) / jobs : 1)) end=$(($(date +%s) + limit))
    mkdir -p "$work/logs/$part" "$work/tests/$part"
    all=$(wc -l <"$file")
    [ "$all" -gt 0 ] || { note "$part" FAILED "no test in the list"; return; }
    part "$part" "$2" xargs -a "$file" -P "$jobs" -d '\n' -I LINE bash -c 'read -ra words <<<"$0"; one_test "${words[@]}"' LINE || return
    verdict=ok
    for word in out-of-time failed hanging; do
        names=$(of_state "$part" $word)
        [ -z "$names" ] || text+="; $word: $names"
        [ -z "$names" ] || case $word in out-of-time) verdict='no time' ;; *) verdict=FAILED ;; esac
    done
    while read -r name _; do [ -e "$work/tests/$part/$name" ] || unbegun+="$name "; done <"$file"
    if [ -n "$unbegun" ]; then
        [ $verdict = FAILED ] || verdict='no time'
        text+="; not run: $unbegun"
    fi
    [ ! -e "$work/dead" ] || { verdict=FAILED && text+="; $silence"; }
    # With a device, a test may skip itself only for features that a version of cuDNN may lack.
    names=$(of_state "$part" skipped)
    [ -z "$names" ] || text+="; skipped: $names"
    [ $dry = 1 ] || [ -z "${names//test_cudnn /}" ] || verdict=FAILED
    names=$(of_state "$part" passed)
    note "$part" "$verdict" "$(wc -w <<<"$names") of $all passed, $took s$text"
}
if asked smoke; then
    printf '%s\n' "test_gpu_device 25 alone $bin/test_gpu_device" "test_gpu_attention 40 alone $bin/test_gpu_attention" \
        "linear 40 alone env CKPT_TEST_OP=linear $bin/test_gpu_ops" >"$work/smoke.txt"
    run_tests smoke 75 1 "$work/smoke.txt"
fi

# Trains a network: keep-all and half of it, each with and without the recorded step, must give the same weights. The part
# profile tests CUPTI.
first() {
    set -e -o pipefail
    mkdir -p "$results/first" && cd "$results/first"
    # Large enough that 70 % of keep-all's peak is more than the weights.
    local model=$root/models/byte-gpt.json vars=(--set batch=16 --set tokens=256 --set blocks=3)
    [ $dry = 0 ] || vars=(--set batch=4 --set tokens=64 --set blocks=3 --set hidden=64 --set heads=4)
    for type in ${types//,/ }; do
        "$bin/ckpt-profile" "$model" "${vars[@]}" --dtype $type --device "$device" \
            --repeats 3 --seconds 0.05 --no-cupti -o $type.profile.json
        "$bin/ckpt-plan" "$model" "${vars[@]}" --dtype $type --profile $type.profile.json --strategy keep-all -o $type.keep.json
        "$bin/ckpt-plan" "$model" "${vars[@]}" --dtype $type --profile $type.profile.json --budget 70% --effort 0 -o $type.part.json
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
export -f first
if asked first; then plain_part first 90 bash -c first; fi

# One GPU, several micro-batches: keep-all, a smaller budget, fused, and a loss scale of 1024 must give the same weights.
# Clipping gives other weights, the same with every plan.
scheme() {
    set -e -o pipefail
    mkdir -p "$results/scheme" && cd "$results/scheme"
    local vars=(--set batch=8 --set tokens=256 --set blocks=3) type run name # 80 % leaves room beside the weights
    [ $dry = 0 ] || vars=(--set batch=2 --set tokens=64 --set blocks=3 --set hidden=64 --set heads=4)
    for name in plain:'"clip_norm": 0' scaled:'"loss_scale": 1024' clipped:'"clip_norm": 0.05' both:'"clip_norm": 0.05, "loss_scale": 1024'; do
        sed "s/\"optimizer\": *{/&${name#*:}, /" "$root/models/byte-gpt.json" >"${name%%:*}.json"
    done
    cmp -s plain.json clipped.json && { echo "byte-gpt.json has no optimizer to change"; exit 1; }
    for type in ${types//,/ }; do
        for run in plain.keep plain.part plain.fused scaled.part clipped.keep clipped.part both.part; do
            local how=(--micro-batches 3 --effort 0 --device h200 --dtype "$type" --strategy keep-all)
            [ "$device" != cpu ] || how=(--micro-batches 3 --effort 0 --dtype "$type" --strategy keep-all)
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
if asked scheme; then plain_part scheme 75 bash -c scheme; fi

# Profiles every layer by CUPTI, and compares the trained step with the sum of its layers. The row has the difference.
profile() { # NETWORK
    set -e -o pipefail
    mkdir -p "$results/profile" && cd "$results/profile"
    local network=$1 type=${types%%,*} vars
    vars=(--dtype "$type")
    [ $dry = 0 ] || case $network in
    gpt2*) vars+=(--set batch=1 --set tokens=16 --set hidden=64 --set blocks=2 --set heads=4 --set vocabulary=64) ;;
    *) vars+=(--set batch=2 --set size=32) ;;
    esac
    "$bin/ckpt-profile" "$root/models/$network.json" "${vars[@]}" --device "$device" -o "$network.json" 2> >(tee "$network.err" >&2)
    "$bin/ckpt-plan" "$root/models/$network.json" "${vars[@]}" --profile "$network.json" --strategy keep-all -o "$network.plan.json"
    "$bin/ckpt-train" "$root/models/$network.json" "${vars[@]}" --device "$device" --plan "$network.plan.json" --steps 10 --no-digest \
        --profile "$network.json" --trace "$network.trace.json" | tee "$network.txt"
    [ $dry = 1 ] || grep -q '"recorder": "CUPTI' "$network.json" || { echo "not recorded by CUPTI: $(tail -n 1 "$network.err")"; exit 1; }
    grep 'sum of layers' "$network.txt"
}
export -f profile
if asked profile; then
    plain_part profile-gpt2-124m 70 bash -c 'profile gpt2-124m'
    plain_part profile-resnet50 "$(limit profile 95)" bash -c 'profile resnet50' # the library's many engines are timed
fi

if asked tests || asked tests-alone; then
    for how in together alone; do awk -v how=$how '$3 == how' "$list" >"$work/$how.txt"; done
    jobs=$(($(nproc) / 2))
    jobs=$((jobs > 8 ? 8 : jobs > 0 ? jobs : 1))
    if asked tests; then run_tests tests "$(limit tests 150)" $jobs "$work/together.txt"; fi
    if asked tests-alone; then run_tests tests-alone "$(limit tests-alone 330)" 1 "$work/alone.txt"; fi
fi

bench() { # NAME LIMIT ARGUMENTS...: the driver stops itself before the limit and keeps what it has
    local name=$1 limit=$(($2 * scale))
    shift 2
    [ "$limit" -le "$(left)" ] || limit=$(($(left) - 5))
    plain_part "$name" "$limit" "$python" bench/gpu/bench.py --bin "$bin" --device "$device" --out "$results/bench" \
        --seconds $((limit - 10)) "${tiny[@]}" "$@"
}
if asked bench; then bench bench "$(limit bench 360)" --networks gpt2-124m-50304,gpt2-124m --dtypes ${types%%,*}; fi

# Nsight Compute on one block of GPT-2 124M and its head, for every kernel of a step. The table has the attention kernels
# and the longest others, among them the head's three products; then our own attention kernels.
look_into() {
    set -e -o pipefail
    mkdir -p "$results/ncu" && cd "$results/ncu"
    local vars=(--dtype "${types%%,*}" --set batch=8 --set tokens=1024 --set blocks=1 --set vocabulary=50304)
    [ $dry = 0 ] || vars=(--set batch=1 --set tokens=16 --set hidden=64 --set blocks=1 --set heads=4 --set vocabulary=64)
    "$bin/ckpt-plan" "$root/models/gpt2-124m.json" "${vars[@]}" --device h200 --strategy keep-all -o plan.json
    local metrics=gpu__time_duration.sum,sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed,dram__throughput.avg.pct_of_peak_sustained_elapsed,sm__warps_active.avg.pct_of_peak_sustained_active,launch__registers_per_thread
    local look=(ncu --clock-control none --csv --page raw --print-units base --metrics "$metrics")
    local train=("$bin/ckpt-train" "$root/models/gpt2-124m.json" "${vars[@]}" --device "$device" --plan plan.json --steps 1 --no-graph --no-cupti --no-digest)
    "${look[@]}" --launch-count 200 --log-file ncu.csv "${train[@]}" || { tail -n 3 ncu.csv; exit 1; }
    "$python" "$root/bench/gpu/ncu_table.py" ncu.csv | tee ncu.md
    CKPT_ATTENTION=own "${look[@]}" --launch-count 20 --kernel-name regex:attention --log-file own.csv "${train[@]}" || { tail -n 3 own.csv; exit 1; }
    { echo && echo "CKPT_ATTENTION=own:" && echo && "$python" "$root/bench/gpu/ncu_table.py" own.csv; } | tee -a ncu.md
}
export -f look_into
if asked ncu; then
    if command -v ncu >/dev/null; then plain_part ncu "$(limit ncu 110)" bash -c look_into; else note ncu skipped "ncu is not here"; fi
fi

if asked steps; then
    models=("models/gpt2-124m.json:batch=16,tokens=1024" models/resnet50.json:batch=64)
    [ $dry = 0 ] || models=(tests/models/resnet-small.json)
    limit=$((180 * scale))
    [ "$limit" -le "$(left)" ] || limit=$(($(left) - 5))
    plain_part steps "$limit" "$python" bench/step_time.py "$bin" --device "$device" --dtype "${types%%,*}" --plans $((dry ? 2 : 6)) \
        --steps 10 --effort 0 --rounds 2 --limit $((limit - 10)) --json "$results/steps.json" --table "$results/steps.txt" --work "$work/steps" "${models[@]}"
fi

# compute-sanitizer, several processes at a time: the ops whose kernels have barriers or shared memory, in the awkward
# shapes of test_gpu_ops; and a training step of small networks, which have most other ops. The step
# starts kernel by kernel, because the tool checks replayed kernels less well. Only our own kernels are checked, as
# libraries take long and are not ours to fix; attention therefore uses our own kernels too. racecheck fails over
# cuBLASLt's bfloat16 products on Hopper ("failed to handle a hardware exception", compute-sanitizer of CUDA 13.0), so it
# gets float32 networks, and only ops without products in both types; and, as it is slow, none of those whose threads share
# nothing.
clean() { # TOOL WHAT
    local tool=$1 program=() file=$work/sanitize/$1.$BASHPID words filter name code
    read -ra words <<<"$2"
    read -ra filter <<<"$kernels"
    case ${words[0]} in
    op) export CKPT_TEST_OP=${words[1]} && program=("$bin/test_gpu_ops") ;;
    test) program=("$bin/${words[1]}") ;;
    *)
        "$bin/ckpt-plan" "${words[@]:1}" --dtype "${words[0]}" --device h200 --strategy keep-all --effort 0 -o "$file.json" >"$file" 2>&1 ||
            { echo "== DIRTY $tool $2: no plan"; cat "$file"; return 1; }
        program=("$bin/ckpt-train" "${words[@]:1}" --dtype "${words[0]}" --device "$device" --plan "$file.json" --steps 1 --no-graph) ;;
    esac
    CKPT_ATTENTION=own CKPT_SOURCE_DIR=$root CKPT_BIN_DIR=$bin CKPT_WORK_DIR=$work/sanitize OMP_NUM_THREADS=2 \
        timeout -k 3 110 compute-sanitizer --tool "$tool" "${filter[@]}" --error-exitcode 99 "${program[@]}" >"$file" 2>&1
    code=$?
    if [ $code = 0 ]; then
        echo "== clean $tool $2: $(grep SUMMARY "$file")"
    else
        echo "== DIRTY $tool $2: exit $code, $(grep SUMMARY "$file")"
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
op moe
op mul
op sum
op groupnorm
op cumsum
op conv3d
op gather
op gru
bfloat16 tests/models/shape-small.json
bfloat16 tests/models/pointwise-small.json
test test_gpu_whole_optimizers
LINES
export -f clean
mkdir -p "$work/sanitize"
for tool in memcheck racecheck; do
    asked $tool || continue
    if ! command -v compute-sanitizer >/dev/null; then
        note $tool skipped "compute-sanitizer is not here"
        continue
    elif [ $dry = 1 ]; then
        note $tool skipped "dry run"
        continue
    fi
    kernels=''
    if compute-sanitizer --help 2>&1 | grep -q -- --kernel-name; then # names of ours, from the sources
        kernels=$(cat kernels/cuda/*.cu kernels/cuda/*.cuh | tr '\n' ' ' | grep -oE '__global__ +void +(__launch_bounds__\([^()]*\) +)?[a-z0-9_]+\(' |
            sed -E 's/.*[ )]([a-z0-9_]+)\($/--kernel-name kns=\1/' | sort -u | tr '\n' ' ')
    fi
    export kernels
    if [ $tool = racecheck ]; then
        sed -e 's/^bfloat16/float32/' -e '/^op \(linear\|conv2d\|conv3d\|gather\|gru\)$/d' \
            -e '/-small.json$/{/resnet\|unet/!d}' -e '/whole_optimizers/d' "$work/sanitize.txt" | awk '!seen[$0]++' >"$work/without-products.txt"
        mv "$work/without-products.txt" "$work/sanitize.txt"
    fi
    part $tool 140 xargs -a "$work/sanitize.txt" -P 8 -d '\n' -I WHAT bash -c 'clean "$0" "$1"' $tool WHAT || continue
    runs=$(wc -l <"$work/sanitize.txt") log=$work/logs/$tool.log
    clean=$(grep -c '^== clean' "$log") dirty=$(grep '^== DIRTY' "$log" | tr '\n' ';' | cut -c 1-300)
    [ -z "$dirty" ] || verdict=FAILED
    note $tool "$verdict" "$clean of $runs clean, $took s; $dirty"
done

# Imports PyTorch's recordings and compares them with PyTorch's own figures of the same run. The recordings are too large
# to keep.
torch_part() { # NAME LIMIT COMMAND...
    if "$python" -c 'import torch' 2>/dev/null; then plain_part "$@"; else note "$1" skipped "no PyTorch in $python"; fi
}
if asked imports; then
    torch_part imports 55 "$python" bench/gpu/import_check.py --bin "$bin" --out "$work/imports" \
        --device "${device%%:*}" "${tiny[@]:0:$((dry))}"
fi
if asked inject; then
    torch_part inject "$(limit inject 75)" "$python" bench/gpu/inject_overhead.py --bin "$bin" --out "$results/inject" \
        --device "${device%%:*}" --runs $((dry ? 1 : 2)) "${tiny[@]:0:$((dry))}"
fi

# The PyTorch package: the bits of eager, beside PyTorch's own ways; plans with Inductor's kernels beside torch.compile;
# steps recorded as CUDA graphs, of a batch that is small enough for the host to limit it, and tests of recording where
# there is pytest; an arena, from which every allocation of a step must have come; copies to the host.
pytorch() {
    set -e -o pipefail
    mkdir -p "$results/pytorch" && cd "$results/pytorch"
    export CKPT_LIBRARY=$bin/../lib/libckpt.so.0 CKPT_TORCH_CACHE=$work/ckpt_torch
    local run=("$python" "$root/bench/gpu/torch_budgets.py" gpt2) rivals=(--rivals "eager,compile,compile 0.3,blocks")
    [ $dry = 0 ] || run+=(--tiny --rounds 1 --steps 1) rivals=(--rivals blocks --budgets 100%,1%)
    "${run[@]}" "${rivals[@]}" --json gpt2.json | tee gpt2.txt
    ! grep 'bits of .* differ' gpt2.txt || exit 1
    [ $dry = 0 ] || return 0
    "${run[@]}" --no-bits --rounds 2 --rivals eager,compile --budgets 100%,60% --options '{"inner": "inductor"}' --json gpt2-inductor.json | tee gpt2-inductor.txt
    "${run[@]}" --batch 1 --rounds 2 --rivals eager --budgets 100%,70% --options '{"capture": true}' --json gpt2-capture.json | tee gpt2-capture.txt
    ! grep 'bits of .* differ' gpt2-capture.txt || exit 1
    [ "$(grep -c 'held by graphs' gpt2-capture.txt)" = 2 ] || { echo "not every budget was captured"; exit 1; }
    ! "$python" -c 'import pytest' 2>/dev/null ||
        CKPT_TEST_DEVICE=cuda PYTHONPATH=$root/python "$python" -m pytest "$root/python/tests/test_capture.py" 2>&1 | tail -20
    "${run[@]}" --no-bits --rivals eager --budgets 100%,70% --options '{"arena": true}' --json gpt2-arena.json | tee gpt2-arena.txt
    [ "$(grep -c "'missed': 0" gpt2-arena.txt)" = 2 ] || { echo "the arena missed allocations, or there is none"; exit 1; }
    "${run[@]}" --no-bits --rivals eager --budgets 100%,70% --options '{"link": "measured"}' --json gpt2-link.json | tee gpt2-link.txt
}
export -f pytorch
if asked pytorch; then torch_part pytorch "$(limit pytorch 150)" bash -c pytorch; fi

for type in $(asked profiles && echo "${types//,/ }"); do
    models=()
    [ $dry = 0 ] || models=(mnist-conv lstm)
    plain_part "profiles-$type" 200 scripts/record_profiles "$results/profiles" --device "$device" --dtype "$type" --bin "$bin" "${models[@]}"
done
others=gpt2-1.5b,bert-large,resnet50
if asked rest; then bench rest "$(left)" --networks $others --dtypes ${types%%,*} --resume; fi
if asked float32; then bench float32 "$(left)" --networks gpt2-124m-50304,gpt2-124m,$others --dtypes float32 --resume; fi
finish

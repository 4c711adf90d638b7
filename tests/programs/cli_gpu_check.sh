#!/usr/bin/env bash
# labels: cli; long under sanitizers
# scripts/gpu_check.sh rehearsed without a GPU, in a tree as scripts/gpu_bundle unpacks: its five calls with tiny networks,
# and with fakes of a card that hangs, one that fails, one that has no time, and calls that are killed. The summary must be
# right each time, and the archives whole.
set -u
source_dir=$1 bin_dir=$2 work_dir=$3
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
rm -rf "$work_dir" && mkdir -p "$work_dir/fakes" && cd "$work_dir" || exit 1
tree=$work_dir/tree prebuilt=$work_dir/tree/prebuilt
# On any machine: no PyTorch, no GPU, and no tools but those faked below.
unset CKPT_BUILD CKPT_COMMIT CKPT_DEPS CKPT_TEST_DEVICE
export CKPT_PYTHON=$work_dir/fakes/python CKPT_PROBE_SECONDS=1

fail() {
    echo "cli_gpu_check: $*; its summary:" >&2
    cat out/summary.md out.txt >&2
    exit 1
}
fake() { # FILE: a program whose text is standard input
    { echo '#!/usr/bin/env bash' && cat; } >"$1.new"
    chmod +x "$1.new" && mv "$1.new" "$1"
}
check() { # CODE ARGUMENTS...: runs it anew and compares its exit code
    local want=$1
    shift
    rm -rf out
    PATH=$work_dir/fakes:$PATH "$tree/scripts/gpu_check.sh" out "$@" >out.txt 2>&1
    local code=$?
    [ $code = "$want" ] || fail "gpu_check $*: exit $code, wanted $want"
    whole
    [ "$(find out -type f | wc -l)" -le 8 ] || fail "$*: more than 8 files"
}
whole() { # both archives can be read to their end
    tar tzf out/results.tar.gz >results.txt && tar tzf out/logs.tar.gz >logs.txt || fail "an archive is damaged"
}
row() { # PART VERDICT PATTERN: its row of the table
    grep -q "^| $1 | $2 | .*${3:-}" out/summary.md || fail "no row: | $1 | $2 | ${3:-}"
}
alive() { grep -qs ') [^Z] ' "/proc/$1/stat"; } # what is dead and not yet waited for is not
last() { [ "$(tail -n 1 out/summary.md | grep -c "^$1")" = 1 ] || fail "the last line does not begin '$1'"; }
tests() { printf '%s\n' "$@" >"$prebuilt/tests.txt"; }

# The tree. The small test of the device, and those of the smoke, are well at once.
mkdir -p "$prebuilt/bin" "$prebuilt/lib" "$tree/scripts"
cp "$source_dir/scripts/gpu_check.sh" "$source_dir/scripts/gpu_prebuilt_ok" "$tree/scripts/"
printf '%s\n' "machine $(uname -m)" "glibc 2.17" >"$prebuilt/wants"
for name in bench models tests kernels; do ln -s "$source_dir/$name" "$tree/$name"; done
for name in ckpt-plan ckpt-profile ckpt-train; do ln -s "$bin_dir/$name" "$prebuilt/bin/$name"; done
ln -s "$bin_dir/ckpt-plan" "$prebuilt/lib/libckpt_cuda.so" # something that ldd can read
echo 0123456789ab >"$prebuilt/commit"
for name in test_gpu_device test_gpu_attention test_gpu_ops ok; do fake "$prebuilt/bin/$name" <<<'exit 0'; done
fake "$prebuilt/bin/skipped" <<<'exit 77'
fake "$prebuilt/bin/wrong" <<<'echo "2 is not 3"; exit 1'
fake "$prebuilt/bin/stuck" <<<'trap "" TERM; echo $$ >>"$CKPT_SOURCE_DIR/stuck"; while :; do sleep 0.1; done'
fake "$prebuilt/bin/slow" <<<'echo $$ >>"$CKPT_SOURCE_DIR/slow"; exec sleep 600'
fake "$prebuilt/bin/loud" <<<'head -c 16000000 /dev/urandom'
fake "$prebuilt/bin/looks" <<<'[ -d "$CKPT_WORK_DIR" ] && [ -e "$CKPT_SOURCE_DIR/models" ] && [ -x "$CKPT_BIN_DIR/ckpt-train" ] && [ "$OMP_WAIT_POLICY $1" = "passive x" ]'
fake fakes/python <<<'exec python3 -S "$@"'
fake fakes/ncu <<'SCRIPT2'
while [ $# -gt 0 ]; do [ "$1" != --log-file ] || file=$2; shift; done
[ -n "${file:-}" ] || { echo "gpu__time_duration.sum us 1"; exit; }
cat >"$file" <<'CSV'
==PROF== Connected to process 1
"ID","Kernel Name","Block Size","Grid Size","dram__throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum","launch__registers_per_thread","sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed","sm__warps_active.avg.pct_of_peak_sustained_active"
"","","","","%","ns","register/thread","%","%"
"0","void (anonymous namespace)::attention_forward<float, 32>(attention_call)","(128, 1, 1)","(8, 1, 1)","10","2,000","64","0","50"
"1","nvjet_hsh_128x256","(384, 1, 1)","(132, 1, 1)","20","90000","168","n/a","12.5"
"2","void (anonymous namespace)::attention_forward<float, 32>(attention_call)","(128, 1, 1)","(8, 1, 1)","11.5","3000","64","42.25","50"
CSV
SCRIPT2

# Usage.
for wrong in "" "--call 6" "--parts first,none" "--call 1 --seconds x" "--call 1 --what"; do
    # shellcheck disable=SC2086
    "$tree/scripts/gpu_check.sh" out $wrong >out.txt 2>&1
    [ $? = 2 ] || fail "gpu_check out $wrong: not a usage error"
done

# All well.
tests "ok 10 together prebuilt/bin/ok" "looks 10 together $prebuilt/bin/looks x" "skipped 10 alone prebuilt/bin/skipped" \
    "ok2 10 alone env A=b prebuilt/bin/ok"
check 0 --call 1 --dry-run
last "All was well"
grep -q '^- commit: 0123456789ab$' out/summary.md || fail "another commit"
row prebuilt ok "ckpt-train [0-9.]*" && row inventory ok "ncu" && row smoke ok "3 of 3 passed" && row first ok "the same weights"
row scheme ok "clipped others" && row profile-gpt2-124m ok "sum of layers" && row profile-resnet50 ok "sum of layers"
grep -q '^results/first/float32.keep.graph.csv$' results.txt || fail "no losses in results.tar.gz"
check 0 --call 2 --dry-run
last "All was well"
row tests ok "2 of 2 passed" && row tests-alone ok "1 of 2 passed.*skipped: skipped"
if [ "${CKPT_TEST_ROUNDS:-}" != few ]; then # the other two calls take longest
    check 0 --call 3 --dry-run
    row bench ok "6 of 6 rows" && row ncu ok "3 launches of 2 kernels, 1 of attention"
    grep -q '^| attention_forward<float, 32> | (8, 1, 1) × (128, 1, 1) | 2 | 3.0 µs | 42.2 % | 11.5 % | 50.0 % | 64 |$' out/ncu.md || fail "$(cat out/ncu.md)"
    grep -q '^| nvjet_hsh_128x256 .* | 90.0 µs | – | 20.0 %' out/ncu.md || fail "$(cat out/ncu.md)"
    grep -q 'gpt2-124m-50304, float32' out/summary.md || fail "no table of the bench in the summary"
    # PyTorch runs in its own process: if it dies, ckpt's results survive.
    mkdir -p fakes/site/torch
    echo 'raise RuntimeError("CUDA error: unspecified launch failure")' >fakes/site/torch/__init__.py
    PYTHONPATH=$work_dir/fakes/site check 0 --parts bench --dry-run
    row bench ok "6 of 8 rows" && grep -q "PyTorch ended with 1: RuntimeError: CUDA error" out/bench.md || fail "$(cat out/bench.md)"
    grep -q "^| PyTorch, eager | not run: PyTorch's process had ended" out/bench.md || fail "$(cat out/bench.md)"
    check 0 --call 4 --dry-run
    row steps ok "2 plans" && row imports skipped "no PyTorch" && row memcheck skipped
    last "All was well"
    check 0 --call 5 --dry-run
    row pytorch skipped "no PyTorch"
fi

# CUDA's libraries: all from one place that has them all, wheels before the toolkit.
site=$work_dir/fakes/site/nvidia kit=$work_dir/kit/lib64
mkdir -p "$site/cu13/lib" "$site/cudnn/lib" "$kit" kit/bin
touch "$site"/cu13/lib/lib{cudart,cublasLt,cupti}.so.13 "$site/cudnn/lib/libcudnn.so.9" "$kit"/lib{cudart.so.13,cublasLt.so.13,cudnn.so.9}
fake kit/bin/nvcc <<<'echo nvcc'
from() { # PLACE FOLDERS: it says so, and these come first
    PYTHONPATH=$work_dir/fakes/site PATH=$work_dir/kit/bin:$PATH check 0 --parts inventory --dry-run
    grep -q "^- CUDA's libraries: $1$" out/summary.md && grep -q "^== LD_LIBRARY_PATH=$2:" out/inventory.txt ||
        fail "not from $1: $(cat out/inventory.txt)"
}
from wheels "$site/cu13/lib:$site/cudnn/lib"
grep -q "^libcupti.so.13  wheels  $site/cu13/lib/libcupti.so.13$" out/inventory.txt || fail "$(cat out/inventory.txt)"
rm "$site/cudnn/lib/libcudnn.so.9"
from toolkit "$kit"

# A card that hangs: the test is named and ended at its own limit, what comes after it runs.
tests "stuck 1 together prebuilt/bin/stuck" "ok 10 together prebuilt/bin/ok" "ok2 10 alone prebuilt/bin/ok"
check 1 --call 2 --dry-run
row tests FAILED "1 of 2 passed.*hanging: stuck" && row tests-alone ok "1 of 1 passed"
last "Not all was well: 2 parts ok, 1 FAILED"
alive "$(tail -n 1 "$tree/stuck")" && fail "a hanging test is still there"
# One that does not come back: nothing more is tried on it.
fake "$prebuilt/bin/test_gpu_device" <<<'exec sleep 600'
tests "stuck 1 alone prebuilt/bin/stuck" "ok 10 alone prebuilt/bin/ok" "ok2 10 together prebuilt/bin/ok"
check 1 --parts tests-alone,steps --dry-run
row tests-alone FAILED "0 of 2 passed.*hanging: stuck ; not run: ok ; the device no longer answers"
row steps FAILED "not begun: the device no longer answers"
fake "$prebuilt/bin/test_gpu_device" <<<'exit 0'

# A card that fails: a test, and every training run.
rm "$prebuilt/bin/ckpt-train" "$prebuilt/bin/ckpt-profile"
fake "$prebuilt/bin/ckpt-train" <<SCRIPT2
case \$1 in --version | --help) exec "$bin_dir/ckpt-train" "\$1" ;; esac
echo "ckpt-train: cuda:0: unspecified launch failure" >&2
exit 3
SCRIPT2
ln -s ckpt-train "$prebuilt/bin/ckpt-profile"
tests "wrong 10 together prebuilt/bin/wrong" "ok 10 together prebuilt/bin/ok" "skipped 10 alone prebuilt/bin/skipped"
check 1 --parts first,scheme,tests,bench,ncu,steps --dry-run
row first FAILED "unspecified launch failure" && row scheme FAILED "launch failure" && row tests FAILED "1 of 2 passed.*failed: wrong"
row bench FAILED "ckpt FAILED somewhere" && row steps FAILED "1 failed" && last "Not all was well: 2 parts ok, 5 FAILED"
grep -q '^logs/tests/wrong.log$' logs.txt || fail "no log of the test that failed"

# The same with a driver that answers at first, and the tools: a real call. A test that hides behind a skip is no pass.
fake fakes/nvidia-smi <<'SCRIPT2'
echo x >>"$0.count"
[ "$(wc -l <"$0.count")" -le 3 ] || { echo "Unable to determine the device handle: GPU is lost"; exit 9; }
case $* in *compute_cap*) echo 9.0 ;; *driver_version*) echo 580.1 ;; *) echo "A card, 1 MiB" ;; esac
SCRIPT2
fake fakes/compute-sanitizer <<'SCRIPT2'
case $* in *--help*) echo "--kernel-name" && exit ;; *"kns=attention_forward"*"kns=norm_forward"*) ;; *) echo "no filter" && exit 1 ;; esac
[ "${CKPT_ATTENTION:-}" = own ] || { echo "a library's attention, which is not looked into" && exit 1; }
case "$* ${CKPT_TEST_OP:-}" in *racecheck*softmax) echo "========= Race reported" && echo "========= RACECHECK SUMMARY: 1 hazard" && exit 99 ;; esac
echo "========= ERROR SUMMARY: 0 errors"
SCRIPT2
check 1 --parts memcheck,racecheck
row memcheck ok "30 of 30 clean" && row racecheck FAILED "19 of 20 clean.*DIRTY racecheck op softmax: exit 99"
grep -q '^- GPU: A card, 1 MiB, compute capability 90, driver 580.1$' out/summary.md || fail "another GPU"
rm fakes/nvidia-smi.count
tests "stuck 1 together prebuilt/bin/stuck" "skipped 10 alone prebuilt/bin/skipped"
check 1 --call 2
row tests FAILED "hanging: stuck ; the device no longer answers" && row tests-alone FAILED "not begun: the device no longer answers"
fake fakes/nvidia-smi <<<'echo 9.0'
tests "skipped 10 together prebuilt/bin/skipped" "ok 10 alone prebuilt/bin/ok"
check 1 --call 2
row tests FAILED "0 of 1 passed.*skipped: skipped" && row tests-alone ok
fake fakes/nvidia-smi <<<'echo "No devices were found"; exit 6'
check 1 --call 2
row gpu FAILED "no GPU answers: No devices were found"
rm fakes/nvidia-smi fakes/compute-sanitizer
if ! command -v nvidia-smi >/dev/null && ! compgen -G '/dev/nvidia[0-9]*' >/dev/null && [ ! -e /dev/dxg ]; then
    check 1 --call 1
    row gpu FAILED "no GPU: neither nvidia-smi" && row inventory '.*' && last "Not all was well"
    grep -q '^| smoke' out/summary.md && fail "parts are begun without a GPU"
    grep -q '^- GPU: unknown, compute capability unknown, driver unknown$' out/summary.md || fail "a GPU that is not there"
fi

# No time: what was under way and what was not begun.
tests "slow 100 together prebuilt/bin/slow" "ok 10 alone prebuilt/bin/ok"
check 1 --call 2 --seconds 12 --dry-run
row tests "no time" "0 of 1 passed.*out-of-time: slow" && row tests-alone "no time" "not begun" && last "Not all was well: 1 parts ok, 0 FAILED, 2 without time"

# Programs that do not start here: it says so, and would build.
rm "$prebuilt/bin/ckpt-train"
fake "$prebuilt/bin/ckpt-train" <<<'echo "version GLIBC_2.99 not found" >&2; exit 1'
fake fakes/cmake <<<'echo "no CUDA compiler"; exit 1'
check 1 --call 2 --dry-run
row prebuilt FAILED "version GLIBC_2.99 not found; building instead" && row configure FAILED "no CUDA compiler"
rm fakes/cmake "$prebuilt/bin/ckpt-train" "$prebuilt/bin/ckpt-profile"
for name in ckpt-profile ckpt-train; do ln -s "$bin_dir/$name" "$prebuilt/bin/$name"; done

# Logs that are too large are left out, the largest first, and it says which.
tests "loud 10 together prebuilt/bin/loud" "wrong 10 together prebuilt/bin/wrong"
check 1 --parts tests --dry-run
grep -q '^left out of logs.tar.gz: logs/tests/loud.log, 16000000 bytes$' out/summary.md || fail "not said what was left out"
grep -q '^logs/tests/wrong.log$' logs.txt || fail "the other log was left out, too"

# Killed in the middle: by a signal it can catch, and by one it cannot.
for signal in TERM KILL; do
    rm -rf out "$tree/slow"
    tests "ok 10 together prebuilt/bin/ok" "slow 100 alone prebuilt/bin/slow"
    "$tree/scripts/gpu_check.sh" out --parts first,tests,tests-alone --dry-run >out.txt 2>&1 &
    pid=$!
    for _ in $(seq 600); do [ -s "$tree/slow" ] && break || sleep 0.1; done
    [ -s "$tree/slow" ] || fail "the slow test was not begun"
    kill -$signal $pid
    wait $pid 2>/dev/null
    row first ok "the same weights" && row tests ok "1 of 1 passed"
    whole
    grep -q '^results/first/float32.keep.graph.csv$' results.txt || fail "SIG$signal: no losses in results.tar.gz"
    if [ $signal = TERM ]; then
        row stopped FAILED "by a signal" && last "Not all was well: 3 parts ok, 1 FAILED"
        alive "$(cat "$tree/slow")" && fail "a test goes on after the signal"
    else
        grep -q 'all was well:' out/summary.md && fail "a killed call says how it ended"
        kill "$(cat "$tree/slow")"
    fi
done
echo "five calls, and cards that hang, fail, have no time or are killed: the summary is right each time"

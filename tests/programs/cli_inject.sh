#!/usr/bin/env bash
# ckpt-profile -- COMMAND with a program that ends in every way a process can end, and does to itself what programs do:
# the same output and exit code as without injection, and in the trace just what it launched. There is no GPU in this: a
# double of libcupti tells what the program "launched", and the program loads the library as the CUDA driver would.
# Arguments: source folder, folder of the programs, work folder.
set -u
export OMP_WAIT_POLICY=passive
source_dir=$1 bin_dir=$2 work_dir=$3
profile=$bin_dir/ckpt-profile
victim=$bin_dir/victim
rm -rf "$work_dir" && mkdir -p "$work_dir/tmp" && cd "$work_dir" || exit 1
export TMPDIR=$work_dir/tmp
unset CUDA_INJECTION64_PATH NVTX_INJECTION64_PATH CKPT_INJECT_LIBRARY CKPT_INJECT_SPOOL CKPT_INJECT_VERBOSE

# shellcheck source=tests/support/support_refuse.sh
. "$source_dir/tests/support/support_refuse.sh"

if [ ! -e "$bin_dir/libcupti_double.so" ]; then
    refuse 3 "this build has no CUPTI" "$profile" -o t.json -- true
    echo "a build without CUPTI says so"
    exit 77
fi
export CKPT_CUPTI=$bin_dir/libcupti_double.so

nothing_left() { [ -z "$(ls -A tmp)" ] || fail "$*: left in TMPDIR: $(ls -A tmp)"; }

# recorded TRACE KERNELS COPIES FILLS ALLOCATIONS FREES: that many events, layers by the ranges, bytes by the allocations
recorded() {
    python3 - "$@" <<'PYTHON' || fail "$1 is not what was launched"
import json, sys
trace = json.load(open(sys.argv[1]))
events = trace["events"]
copies = [e for e in events if e["phase"] == "copy"]
ran = [e for e in events if e["phase"] == "other"]
fills = [e for e in ran if e["name"] == "fill"]
found = [len(ran) - len(fills), len(copies), len(fills)] + [sum(e["phase"] == p for e in events) for p in ("allocate", "free")]
wanted = [int(a) for a in sys.argv[2:]]
assert found == wanted, (found, wanted)
for e in copies:
    assert (e["stream"], e["size_bytes"], e["end_ns"] - e["start_ns"]) in {("h2d", 4096, 300), ("d2h", 4, 20)}, e
for e in copies + fills:
    assert e["layer"] == "step", e
for e in ran:
    if e["name"] in ("gemm", "gelu"):
        assert e["layer"].split("/")[0] == "step" and e["layer"].startswith("step/forward") and e["stream"] == "stream 7", e
    elif e["name"] != "fill":
        assert e["layer"] == "step/backward", e
        assert e["stream"] == ("stream 13" if e["name"] == "gelu_backward" else "stream 7"), e
if wanted[3]:
    assert trace["peak_bytes"] == 1250000 and events[-1]["bytes"]["other"] in (1000000, 1250000), trace["peak_bytes"]
    assert {e["address"] for e in events if "address" in e} <= {0x7f0000000000, 0x7f0000200000}
assert trace["recorder"].startswith("CUPTI") and trace["measured"] is True and trace["machine"]["target"] == "gpu"
assert trace["machine"]["command"].startswith("ckpt-profile "), trace["machine"]
PYTHON
}

# run MODE...: the program with and without injection: the same output and exit code ($code); the messages are in `said`
run() {
    rm -f t.json t.*.json
    "$victim" "$@" 2> alone.err | cat > alone.out
    local alone=${PIPESTATUS[0]}
    "$profile" -o t.json -- "$victim" "$@" 2> said | cat > injected.out
    code=${PIPESTATUS[0]}
    [ "$code" -eq "$alone" ] || fail "$*: exit $code, without injection $alone: $(cat said)"
    cmp -s alone.out injected.out || fail "$*: another output than without injection: $(cat injected.out said)"
    [ "$code" -ne 99 ] || fail "$*: $(cat said)"
    nothing_left "$*"
}
says() { grep -q -- "$1" said || fail "wanted \"$1\", found: $(cat said)"; }

run init train
recorded t.json 60 20 10 2 1
if [ "$code" -ne 0 ] || [ "$(wc -l < said)" -ne 1 ]; then fail "more than one line: $(cat said)"; fi
says "60 kernels, 20 copies, 10 fills, 2 allocations and 1 releases on 1 GPU in t.json"
"$bin_dir/ckpt-view" t.json -o t.svg || fail "the trace cannot be drawn"
"$bin_dir/ckpt-view" t.json | grep -q . || fail "the trace cannot be shown"
if /usr/bin/python3 -c 'import jsonschema' 2> /dev/null; then
    /usr/bin/python3 -W ignore "$source_dir/tests/programs/schema_check.py" "$source_dir" t.json || fail "the schema refuses it"
fi
CKPT_INJECT_VERBOSE=1 "$profile" -o t.json -- "$victim" init 2> said || fail "$(cat said)"
says "^libckpt_inject.so, process [0-9]*: records into "

run init train exit7
recorded t.json 60 20 10 2 1
[ "$code" = 7 ] || fail "exit $code, wanted 7"
run init train quick
recorded t.json 60 20 10 2 1
run init chdir train
recorded t.json 60 20 10 2 1
run init threads
recorded t.json 240 80 40 0 0
run init fork train fork # handlers of exit run in children, too
recorded t.json 60 20 10 2 1
[ "$(ls t.*json | wc -l)" -eq 1 ] || fail "a child recorded: $(ls)"
run init train settle forkexec
recorded t.json 60 20 10 2 1
recorded "$(ls t.[0-9]*.json)" 6 2 1 0 0
run init train settle exec # the same process, another program
recorded t.json 60 20 10 2 1
recorded "$(ls t.*-1.json)" 60 20 10 2 1
run forkinit train # a child that is the first to use CUDA
recorded t.json 60 20 10 2 1
run init close
recorded t.json 60 20 10 2 1

# Calls that start nothing take no room. (The names of those that were written are in the spool as they are.)
# shellcheck disable=SC2016 # the command expands it
"$profile" -o t.json -- sh -c '"$0" init ask step; cat "$CKPT_INJECT_SPOOL"/*' "$victim" > out 2> said || fail "$(cat said)"
if ! grep -aq cudaLaunchKernel out || grep -aq "cu[a-z]*Synchronize" out; then fail "calls in the spool: $(strings out)"; fi

run init step _exit # at once, before anything was flushed
says "nothing it did on a GPU was recorded: it did not end by exit\|did not end by exit: its last"

# Ends without exit: what was flushed before is there.
run init train settle kill
recorded t.json 60 20 10 2 1
[ "$code" = 137 ] || fail "exit $code, wanted 137"
says "did not end by exit"
python3 -c 'import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:], stderr=subprocess.DEVNULL) != -9)' \
    "$profile" -o t.json -- "$victim" kill || fail "that a signal ended the command is not seen from outside"
run init train settle abort
recorded t.json 60 20 10 2 1
run init train settle _exit
recorded t.json 60 20 10 2 1
says "did not end by exit"

# What cannot be recorded is said, and is the program's business no more.
run init rmtmp train stopped
says "what was recorded is gone"
[ ! -e t.json ] || fail "a trace of nothing"
run init limit train stopped train
says "RLIMIT_FSIZE"
run train # no CUDA
says "no process used CUDA: nothing was recorded"
[ ! -e t.json ] || fail "a trace of nothing"
run init
says "nothing was recorded: no trace is written"
CKPT_CUPTI_DOUBLE="holder=Nsight" run init train
says "victim): not recorded: another tool records this process already: .*Nsight"
CKPT_CUPTI_DOUBLE="fail=cuptiActivityEnable:35" run init train
says "not recorded: no permission"
CKPT_CUPTI=/no/such/libcupti.so run init train
says "not recorded: no CUPTI: /no/such"
CKPT_CUPTI='' run init train
says "CUPTI is turned off"
# Records that run when the process ends are given up, and only they.
CKPT_CUPTI_DOUBLE="running=1" run init step
says "nothing was recorded\|0 kernels"
# NVTX goes to the libcupti that records, whether the program comes to it before CUDA or after; but not to the one that
# crashes in it, and not where nothing is recorded.
if "$victim" hasnvtx; then
    for order in "init epoch" "nvtx init epoch" "nvtx init nvtx epoch"; do
        # shellcheck disable=SC2086 # words
        run $order
        python3 - <<'PYTHON' || fail "$order: ranges of NVTX"
import json
layers = {e["layer"] for e in json.load(open("t.json"))["events"]}
assert layers == {"epoch/step", "epoch/step/forward", "epoch/step/backward"}, layers
PYTHON
    done
    CKPT_CUPTI_DOUBLE="holder=Nsight" run nvtx init epoch
    run nvtx epoch
    CKPT_CUPTI_DOUBLE="version=130000" run nvtx init epoch
    recorded t.json 6 2 1 0 0
    grep -q '"recorder": "CUPTI 13.0, .*NVIDIA/NVTX#125' t.json || fail "no word about the CUPTI that crashes"
fi

# The real libcupti, where there is one and no driver: it declines, and the program knows nothing of it.
for real in /usr/local/cuda/lib64/libcupti.so.13 /usr/local/cuda/lib/libcupti.so.13; do
    if [ -e "$real" ] && ! ldconfig -p | grep -q 'libcuda\.so\.1'; then
        CKPT_CUPTI=$real run nvtx init train
        says "not recorded: no NVIDIA driver here"
        break
    fi
done

# A container has libcuda.so.1 (any library will do for this) and no GPU: CUPTI, which may crash then, is not touched.
if [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ] && [ ! -e /dev/nvmap ]; then
    mkdir -p driver && ln -sf "$CKPT_CUPTI" driver/libcuda.so.1
    (unset CKPT_CUPTI && LD_LIBRARY_PATH=$PWD/driver run init train) || exit 1
    says "not recorded: no NVIDIA GPU here"
fi

# A spool that nobody of us wrote, beside a good one: told, and the others are read.
# shellcheck disable=SC2016 # the command expands it
"$profile" -o t.json -- sh -c '"$0" init train; echo hello > "$CKPT_INJECT_SPOOL/1-0.spool"; : > "$CKPT_INJECT_SPOOL/2-0.spool"' \
    "$victim" > out 2> said || fail "exit $?: $(cat said)"
recorded t.json 60 20 10 2 1
says "1-0.spool: no spool"
says "process 0: prepared for CUDA"
nothing_left "a foreign spool"

# The command is run as a shell runs it.
refuse 2 "no-such-program: No such file or directory" "$profile" -o t.json -- no-such-program
refuse 2 "Permission denied" "$profile" -o t.json -- "$work_dir/said"
refuse 2 "no/such" "$profile" -o no/such/t.json -- touch ran
[ ! -e ran ] || fail "the command ran before the output was found impossible"
TMPDIR=/no/such refuse 2 "/no/such" "$profile" -o t.json -- touch ran
CKPT_INJECT_LIBRARY=/no/such.so refuse 2 "/no/such.so" "$profile" -o t.json -- touch ran
[ ! -e ran ] || fail "the command ran without a place for the recording"
echo "a line" | "$profile" -o t.json -- cat 2> said > out
[ "$(cat out)" = "a line" ] || fail "standard input does not reach the command"
"$profile" -- "$victim" init step 2> said > out || fail "$(cat said)"
[ "$(cat out)" = "one step" ] || fail "not only the command writes to standard output: $(cat out)"
recorded ckpt-trace.json 6 2 1 0 0
"$profile" -o - -- "$victim" init step 2> said > out || fail "$(cat said)"
[ "$(head -n 1 out)" = "one step" ] && tail -n +2 out > t.json && recorded t.json 6 2 1 0 0
# Nobody reads the messages any more.
rm -f t.json
python3 - "$profile" "$victim" <<'PYTHON' || fail "standard error is closed"
import os, subprocess, sys
read, write = os.pipe()
os.close(read)
assert subprocess.call([sys.argv[1], "-o", "t.json", "--", sys.argv[2], "init", "step", "exit7"], stdout=subprocess.DEVNULL, stderr=write) == 7
PYTHON
recorded t.json 6 2 1 0 0
nothing_left "closed standard error"
CUDA_INJECTION64_PATH=/other/tool.so "$profile" -o u.json -- printenv CUDA_INJECTION64_PATH 2> said > out
if [ "$(cat out)" != /other/tool.so ] || [ -e u.json ]; then fail "another tool's place was taken: $(cat out)"; fi
says "CUDA_INJECTION64_PATH is /other/tool.so already: that tool records, and nothing is recorded here"
NVTX_INJECTION64_PATH=/other/nvtx.so "$profile" -o u.json -- printenv NVTX_INJECTION64_PATH 2> said > out
[ "$(cat out)" = /other/nvtx.so ] || fail "another tool's NVTX was taken: $(cat out)"
python3 - "$profile" <<'PYTHON' || fail "SIGCHLD is ignored: $(cat said)"
import signal, subprocess, sys
command = ["sh", "-c", "grep SigIgn /proc/self/status; exit 4"]
ignore = lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)
alone = subprocess.run(command, preexec_fn=ignore, capture_output=True)
injected = subprocess.run([sys.argv[1], "-o", "u.json", "--", *command], preexec_fn=ignore, stdout=subprocess.PIPE, stderr=open("said", "w"))
assert alone.returncode == injected.returncode == 4 and alone.stdout == injected.stdout, (alone, injected)
PYTHON
env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT "$profile" -o u.json -- env 2> said > out
! grep -q "GOMP_SPINCOUNT\|CKPT_SETTLED" out || fail "what ckpt-profile sets for itself reaches the command"
env -u OMP_WAIT_POLICY GOMP_SPINCOUNT=2000 "$profile" -o u.json -- printenv GOMP_SPINCOUNT > out 2> said
[ "$(cat out)" = 2000 ] || fail "what the user set does not reach the command"
nothing_left "the last commands"

# ckpt-profile passes a signal on to the command. The trace is written all the same, and no file is left over.
for signal in TERM HUP; do # the shell has background commands ignore INT
    rm -f victim-waits t.json
    "$profile" -o t.json -- "$victim" init train settle wait > out 2> said &
    waiting=$!
    for _ in $(seq 1000); do [ ! -e victim-waits ] || break; sleep 0.02; done
    kill -s $signal $waiting
    { wait $waiting; } 2> warned
    code=$?
    [ $code -eq $((128 + $(kill -l $signal))) ] || fail "SIG$signal: exit $code: $(cat said)"
    recorded t.json 60 20 10 2 1
    nothing_left "SIG$signal"
done
# Ctrl-C goes to the whole group, from a terminal that is neither of us.
rm -f victim-waits t.json
python3 - "$profile" "$victim" <<'PYTHON' || fail "Ctrl-C: $(cat said)"
import os, signal, subprocess, sys, time
command = [sys.argv[1], "-o", "t.json", "--", sys.argv[2], "init", "train", "settle", "wait"]
with open("said", "w") as said:
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=said,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    while not os.path.exists("victim-waits") and process.poll() is None:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait() == -signal.SIGINT, process.returncode
PYTHON
recorded t.json 60 20 10 2 1
nothing_left "Ctrl-C"
echo "injection: same output and exit code in every end, and what was launched is recorded"

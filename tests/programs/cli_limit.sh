#!/usr/bin/env bash
# labels: cli; long under sanitizers
# A hard limit is real: with the address space of the process held to budget + CONSTANT, keep-all is refused with one
# clear line and exit 3, and the planned run finishes with keep-all's bits.
#
# CONSTANT covers what is not planned: the program and its libraries (mapped, 40 MiB on Debian 12), stacks, the model
# and plan files read into memory, the host copy of the inputs. Measured: 47 MB.
set -u
export OMP_WAIT_POLICY=passive # spinning threads cost much where other tests share the cores
source_dir=$1 bin_dir=$2 work_dir=$3
constant=$((96 << 20))
model=$source_dir/tests/models/wide.json
rm -rf "$work_dir" && mkdir -p "$work_dir" && cd "$work_dir" || exit 1

fail() { echo "FAILED: $*"; exit 1; }
# Sanitizers map terabytes of shadow memory, which no limit of this kind allows.
if grep -q __asan_init "$bin_dir/ckpt-train" 2>/dev/null; then echo "skipped: built with a sanitizer"; exit 77; fi
[ "$(uname)" = Linux ] || { echo "skipped: RLIMIT_AS is looked at on Linux only"; exit 77; }

"$bin_dir/ckpt-plan" --threads 1 --strategy keep-all -o all.json "$model" > all.txt ||
    fail "keep-all cannot be planned"
"$bin_dir/ckpt-plan" --threads 1 --budget 40% -o planned.json "$model" > planned.txt || fail "40% cannot be planned"
budget=$(sed -n 's/.*"budget_bytes": *\([0-9]*\).*/\1/p' planned.json | head -1)
[ -n "$budget" ] || fail "no budget in the plan"
limit_kib=$(((budget + constant) / 1024))

# Without the limit both run and agree.
"$bin_dir/ckpt-train" --threads 1 --plan all.json --steps 2 "$model" > free.txt || fail "keep-all without a limit"
wanted=$(grep sha256 free.txt)
[ -n "$wanted" ] || fail "no digest"

(ulimit -v "$limit_kib" && exec "$bin_dir/ckpt-train" --threads 1 --plan planned.json --steps 2 "$model") > planned.txt \
    2> planned.err || fail "the planned run under $limit_kib KiB: $(cat planned.err)"
[ "$(grep sha256 planned.txt)" = "$wanted" ] || fail "other bits under the limit"
grep -q "(equal)" planned.txt || fail "measured peak is not the planned one"

(ulimit -v "$limit_kib" && exec "$bin_dir/ckpt-train" --threads 1 --plan all.json --steps 2 "$model") > all.txt 2> all.err
code=$?
[ $code -eq 3 ] || fail "keep-all under $limit_kib KiB: exit $code, wanted 3: $(cat all.err)"
[ "$(wc -l < all.err)" -eq 1 ] || fail "wanted one line, found: $(cat all.err)"
grep -q "arena" all.err || fail "the line does not say what was refused: $(cat all.err)"
echo "under $budget + $constant bytes of address space the plan trains and keep-all says: $(cat all.err)"

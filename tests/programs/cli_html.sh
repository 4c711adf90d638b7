#!/bin/bash
# labels: cli; long under sanitizers
# The HTML page of ckpt-view in a real browser (tests/programs/html_check.py): a plan with a measured trace, hostile names,
# a program without a plan, 200,000 events. Skipped without Chromium and Python, except where CI is set.
set -u
source=$1 bin=$2 work=$3
rm -rf "$work" && mkdir -p "$work" && cd "$work" || exit 1
fail() { echo "FAILED: $*"; exit 1; }
cannot() {
    echo "skipped: $*"
    [ -n "${CI:-}" ] && exit 1
    exit 77
}
command -v python3 >/dev/null || cannot "no python3"
export PYTHONPATH=$source/tests/programs PYTHONDONTWRITEBYTECODE=1
browser=$(python3 -c 'import html_drive; print(html_drive.find_browser() or "")') || fail "html_drive.py cannot look"
[ -n "$browser" ] || cannot "no chromium (CHROMIUM names another)"
# Cairo's font library keeps what it read until the process ends.
echo "leak:libfontconfig" >suppressions
export LSAN_OPTIONS=suppressions=$work/suppressions:print_suppressions=0

traces=$source/tests/programs/html_traces.py
"$bin/ckpt-plan" --budget 50% --profile "$source/traces/cpu-2-threads/profile.json" "$source/models/byte-gpt.json" \
    -o plan.json --trace predicted.json >plan.txt || fail "planning byte-gpt"
python3 "$traces" measured measured.json predicted.json || fail "making a measured trace"
python3 "$traces" late late.json predicted.json || fail "making late times"
python3 "$traces" hostile hostile.json || fail "making hostile names"
python3 "$traces" long long.json || fail "making a long trace"
"$bin/ckpt-profile" --import "$source/tests/imports/snapshot_training.pickle" -o program.json >import.txt 2>&1 ||
    fail "importing a snapshot: $(cat import.txt)"
"$bin/ckpt-view" predicted.json measured.json -o two.html || fail "two traces"
for name in hostile late long program; do
    "$bin/ckpt-view" $name.json -o $name.html || fail "$name"
done
"$bin/ckpt-view" plan.json -o plan.html || fail "a plan alone"
exec python3 "$source/tests/programs/html_check.py" "$work"

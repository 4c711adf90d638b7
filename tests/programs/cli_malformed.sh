#!/usr/bin/env bash
# Every malformed file through the program that reads it: exit code 2, nothing on stdout, and one line on stderr that
# names the file, the line and the column. Arguments: source folder, folder of the programs, work folder.
set -euo pipefail
source=$1 bin=$2 work=$3
rm -rf "$work"
mkdir -p "$work"
cd "$source/tests/malformed"

faults=0
runs=0
# try FILE PROGRAM ARGUMENT...
try() {
    local file=$1 program=$2 status=0 lines
    shift 2
    "$bin/$program" "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
    runs=$((runs + 1))
    lines=$(wc -l <"$work/err")
    if [ "$status" != 2 ] || [ "$lines" != 1 ] || [ -s "$work/out" ] ||
        ! grep -Eq "^$program: (.*: )?$file:[0-9]+:[0-9]+: " "$work/err"; then
        echo "$program $*: exit $status, $lines lines on stderr, $(wc -c <"$work/out") bytes on stdout"
        head -3 "$work/err"
        faults=$((faults + 1))
    fi
}

for file in model/*.json graph/*.json; do
    try "$file" ckpt-plan --budget 1GB "$file"
done
for file in model/layer-twice.json model/truncated.json graph/op-phase.json; do
    try "$file" ckpt-graph -o "$work/g.dot" "$file"
done
for file in model/layer-twice.json model/truncated.json; do
    try "$file" ckpt-profile -o "$work/p.json" "$file"
    try "$file" ckpt-train --plan good/plan.json "$file"
done
for file in profile/*.json; do
    try "$file" ckpt-plan --budget 1GB --profile "$file" good/model.json
done
for file in plan/*.json; do
    try "$file" ckpt-train --plan "$file" good/model.json
done
for file in trace/*.json; do
    try "$file" ckpt-view -o "$work/v.svg" "$file"
done
for file in sweep/*.json; do
    try "$file" ckpt-view -o "$work/v.svg" "$file"
done
echo "$runs runs, $faults faults"
[ "$faults" = 0 ]

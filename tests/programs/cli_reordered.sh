#!/bin/bash
# What people see of a plan whose ops run in another order than the graph's: ckpt-view, ckpt-graph, ckpt-compare.
set -u
source_dir=$1 bin=$2 work=$3
rm -rf "$work" && mkdir -p "$work" && cd "$work" || exit 1
# What these libraries keep until the end is no leak of ours.
printf 'leak:%s\n' libfontconfig libpango libgvc libcgraph libgvplugin libglib libltdl >suppressions
export LSAN_OPTIONS=suppressions=$work/suppressions:print_suppressions=0
failures=0
fail() { echo "FAIL: $*"; failures=$((failures + 1)); }
says() { grep -q -- "$1" out || fail "out lacks '$1': $(cat out)"; }

# Three branches side by side, each large in its middle: one after the other they take a third of the memory.
cat >free.json <<'J'
{ "format": "ckpt-graph/1", "name": "branches", "order": "free",
  "buffers": [ { "name": "x", "bytes": 10 }, { "name": "a", "bytes": 1000 }, { "name": "b", "bytes": 1000 }, { "name": "c", "bytes": 1000 },
    { "name": "a2", "bytes": 10 }, { "name": "b2", "bytes": 10 }, { "name": "c2", "bytes": 10 }, { "name": "y", "bytes": 10 } ],
  "ops": [
    { "name": "x", "phase": "forward", "layer": "x", "writes": ["x"], "time_ns": 10 },
    { "name": "a", "phase": "forward", "layer": "a", "reads": ["x"], "writes": ["a"], "time_ns": 100 },
    { "name": "b", "phase": "forward", "layer": "b", "reads": ["x"], "writes": ["b"], "time_ns": 100 },
    { "name": "c", "phase": "forward", "layer": "c", "reads": ["x"], "writes": ["c"], "time_ns": 100 },
    { "name": "a2", "phase": "forward", "layer": "a", "reads": ["a"], "writes": ["a2"], "time_ns": 50 },
    { "name": "b2", "phase": "forward", "layer": "b", "reads": ["b"], "writes": ["b2"], "time_ns": 50 },
    { "name": "c2", "phase": "forward", "layer": "c", "reads": ["c"], "writes": ["c2"], "time_ns": 50 },
    { "name": "y", "phase": "forward", "layer": "y", "reads": ["a2", "b2", "c2"], "writes": ["y"], "time_ns": 10 } ],
  "outputs": ["y"] }
J
"$bin/ckpt-plan" --budget 1100B free.json -o plan.json --trace trace.json >out || fail "no plan: $(cat out)"
grep -q '"reordered": true' plan.json || fail 'the plan keeps the order'
python3 "$source_dir/tests/programs/replay_plan.py" free.json plan.json >out 2>&1 || fail "$(cat out)"

# The trace that follows from the plan alone is the simulator's, and both show the order of the plan.
"$bin/ckpt-view" plan.json trace.json >out || fail 'ckpt-view'; says '= predicted (plan.json) at every step, to the byte'; says 'b  .*1.00 kB .*in use until b2'
"$bin/ckpt-view" plan.json -f csv | grep -v ',free,' | cut -d, -f4 | tail -n +2 | tr -d '"\n' >out; says '^xaa2bb2cc2y$'
for form in svg html json png pdf; do "$bin/ckpt-view" plan.json -f $form -o out.$form || fail "ckpt-view -f $form"; done

"$bin/ckpt-graph" --plan plan.json free.json -f dot >out || fail 'ckpt-graph'; says 'ops run in another order'
sed 's/, "order": "free"//' free.json >fixed.json
"$bin/ckpt-plan" --budget 3200B fixed.json -o fixed.plan >/dev/null
"$bin/ckpt-graph" --plan fixed.plan free.json -f dot >out; grep -q 'another order' out && fail 'another order of a plan that keeps it'
"$bin/ckpt-compare" fixed.plan plan.json >out || fail "ckpt-compare: $?"; says 'note: NEW runs ops in another order'; says 'peak  *3.01 kB  *1.03 kB'
"$bin/ckpt-compare" plan.json fixed.plan >out; says 'note: BASE runs ops in another order'
"$bin/ckpt-compare" plan.json plan.json >out; grep -q order out && fail 'a plan has another order than itself'

[ $failures -eq 0 ] || { echo "$failures failures"; exit 1; }
echo ok

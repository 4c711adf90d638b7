#!/usr/bin/env bash
# ckpt-compare from the command line: pairs made by the programs and by edits, the exit code and the exact words of each.
# Arguments: source folder, folder of the programs, work folder.
set -u
source=$1 bin=$2 work=$3
rm -rf "$work" && mkdir -p "$work" && cd "$work" || exit 1
unset GITHUB_STEP_SUMMARY
failed=0
fail() { echo "FAILED: $*"; failed=1; }

# expect CODE "the last line, exactly" arguments...: of standard output, or of standard error when CODE is 2
expect() {
    local code=$1 words=$2
    shift 2
    "$bin/ckpt-compare" "$@" >out 2>err
    local got=$? line
    [ $got -eq "$code" ] || fail "ckpt-compare $*: exit $got, wanted $code: $(cat err)"
    if [ "$code" -eq 2 ]; then
        line=$(cat err)
        [ ! -s out ] || fail "ckpt-compare $*: something on standard output"
        [ "$(wc -l <err)" -eq 1 ] || fail "ckpt-compare $*: $(wc -l <err) lines on standard error"
    else
        line=$(tail -1 out)
        [ ! -s err ] || fail "ckpt-compare $*: standard error: $(cat err)"
    fi
    [ "$line" = "$words" ] || fail "ckpt-compare $*:
  found  $line
  wanted $words"
}
# has "words"...: in what the last one printed
has() {
    for words in "$@"; do
        grep -qF -- "$words" out || fail "\"$words\" is not in:
$(cat out)"
    done
}

plan() { "$bin/ckpt-plan" --effort 0 --threads 1 "$@" >/dev/null || fail "ckpt-plan $*"; }
# edit FROM TO 'statements on d': a file changed
edit() { python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))

def grow(n): # the static block by n bytes
    d["graph"]["static"].append({"name": "pad", "bytes": n})
    for key in ("static_bytes", "peak_bytes"):
        d["summary"][key] += n
    d["budget_bytes"] += n

def slow(n): # every op by n ns
    for o in d["graph"]["ops"]:
        o["time_ns"] += n
    d["summary"]["time_ns"] += n * sum("run" in step for step in d["steps"])
    d["summary"]["recompute_ns"] += n * sum(step.get("again", False) for step in d["steps"])
    d.pop("bound", None)

def rename(of): # layers
    d["layers"] = {of(k): v for k, v in d["layers"].items()}
    for o in d["graph"]["ops"]:
        o["layer"] = of(o["layer"]) if "layer" in o else ""

exec(sys.argv[3])
json.dump(d, open(sys.argv[2], "w"))' "$@" || fail "edit $*"; }

# A chain of eight blocks, with times that make sums easy to see.
python3 - <<'P'
import json
names = [f"h.{i}.{x}" for i in range(8) for x in ("up", "act")]
ops, buffers, last = [], [], None
for k, n in enumerate(names):
    ops.append({"name": n + "/forward", "phase": "forward", "layer": n, "reads": [last] if last else [], "writes": [n], "time_ns": 1000000 * (1 + k % 2)})
    buffers.append({"name": n, "bytes": 64000 * (1 + k % 2)})
    last = n
for n, before in zip(reversed(names), list(reversed(names))[1:] + [None]):
    grad = n + "/grad"
    ops.append({"name": n + "/backward", "phase": "backward", "layer": n, "reads": [n] + ([before] if before else []) + ([gone] if n != names[-1] else []), "writes": [grad], "time_ns": 3000000})
    buffers.append({"name": grad, "bytes": 64000, "kind": "gradient"})
    gone = grad
json.dump({"format": "ckpt-graph/1", "name": "chain", "static": [{"name": "weights", "bytes": 640000}, {"name": "inputs", "bytes": 6400}],
           "buffers": buffers, "ops": ops}, open("chain.json", "w"))
P
"$bin/ckpt-plan" chain.json -b 100% -o all.json >/dev/null || fail "plan of the chain"
"$bin/ckpt-plan" chain.json -b 85% -o again.json >/dev/null || fail "plan of the chain"

# 1 identical
cp all.json copy.json
expect 0 "the same" all.json copy.json
expect 0 "the same" --exit-code all.json copy.json
expect 0 "within limits; the same" --max-increase peak=0,step_time=0,recompute=0,offload=0 all.json copy.json

expect 0 "the same" - copy.json <all.json

# 2 decisions changed: the same numbers as the files, groups of blocks, and sums
python3 - <<'P' >words
import json
a, b = (json.load(open(f)) for f in ("all.json", "again.json"))
changed = [n for n in a["layers"] if a["layers"][n] != b["layers"][n]]
print(len(changed))
print(b["summary"]["recompute_ns"] - a["summary"]["recompute_ns"], b["summary"]["peak_bytes"] - a["summary"]["peak_bytes"])
P
"$bin/ckpt-compare" --json all.json again.json >both.json || fail "--json"
python3 - words <<'P' || fail "decisions and contributors"
import json, sys
layers, recompute, peak = open(sys.argv[1]).read().split()
d = json.load(open("both.json"))["differences"][0]
decided = [x for x in d["layers"] if x.get("base") != x.get("new")]
assert len(decided) == int(layers) > 3, d["layers"]
for part in "layers", "layer_groups":
    assert sum(x.get("recompute_ns", 0) for x in d[part]) == int(recompute) > 0
    assert sum(x.get("peak_bytes", 0) for x in d[part]) == int(peak)
assert sum(g["count"] for g in d["layer_groups"]) == len(d["layers"])
assert len(d["layer_groups"]) < int(layers), d["layer_groups"]
assert sum(c["new_bytes"] - c["base_bytes"] for c in d["contributors"]) == int(peak) < 0
changes = [abs(c["new_bytes"] - c["base_bytes"]) for c in d["contributors"]]
assert changes == sorted(changes, reverse=True)
assert all(c["new_reason"] for c in d["contributors"] if c["new_bytes"])
P
"$bin/ckpt-compare" all.json again.json >out || fail "text"
has "keep → recompute  " "h.4 … h.5.up   ×2 " "  at the peak" "kB    –  " "  kept since step "

# 3 the peak up by one byte, and 4 faster
edit all.json byte.json 'grow(1)'
expect 0 "budget 2246400 B → 2246401 B; worse: peak +1 B (+0.00 %), static block +1 B (+0.00 %)" all.json byte.json
expect 1 "budget 2246400 B → 2246401 B; worse: peak +1 B (+0.00 %), static block +1 B (+0.00 %)" --exit-code all.json byte.json
expect 1 "1 limit exceeded (peak); budget 2246400 B → 2246401 B; worse: peak +1 B (+0.00 %)" --max-increase peak=0 all.json byte.json
has "1 B more than --max-increase peak=0 allows"
expect 0 "within limits; budget 2246400 B → 2246401 B; worse: peak +1 B (+0.00 %), static block +1 B (+0.00 %)" --max-increase peak=1B all.json byte.json
expect 0 "1 limit exceeded (peak); budget 2246400 B → 2246401 B; worse: peak +1 B (+0.00 %)" --warn-only --max-increase peak=0 all.json byte.json
edit all.json fast.json 'd["summary"]["time_ns"] = d["summary"]["time_ns"] * 3 // 4; d.pop("bound", None); d["graph"].pop("ops"); d["graph"].pop("buffers"); d["graph"].pop("static")'
edit all.json slow.json 'd.pop("bound", None)'
expect 0 "better: step time -18.0 ms (-25.00 %), overhead -25.00 points" --exit-code slow.json fast.json
has "NEW is an older plan that does not say what it is made of"
# A limit on a ratio says in points how far it is exceeded.
expect 1 "1 limit exceeded (overhead); worse: step time +18.0 ms (+33.33 %), overhead +25.00 points" --max-increase overhead=5% fast.json slow.json
has "20.00 points more than --max-increase overhead=5% allows"

# 5 limits on both sides of a number: 72 ms in all
expect 0 "within limits; the same" --max step_time=72ms all.json copy.json
expect 1 "1 limit exceeded (step time); the same" --max step_time=71999us all.json copy.json
has "step time 72.0 ms, 1.00 us more than --max step_time=71999us allows" "it is not more than in BASE"

# 6 other networks, devices, threads, costs: all plans of one small network
cat >small.json <<'M'
{ "format": "ckpt-model/1", "name": "small", "vars": { "batch": 32, "hidden": 64 },
  "inputs": [ { "name": "x", "shape": ["batch", "hidden"] }, { "name": "labels", "shape": ["batch"], "dtype": "int32" } ],
  "layers": [ { "repeat": 3, "name": "h", "layers": [ { "name": "up", "op": "linear", "features": "4*hidden" },
      { "name": "act", "op": "gelu" }, { "name": "down", "op": "linear", "features": "hidden" },
      { "name": "add", "op": "add", "in": ["down", "^"] } ] },
    { "name": "head", "op": "linear", "features": 10 }, { "name": "loss", "op": "cross_entropy", "in": ["head", "labels"] } ] }
M
plan small.json -o small.plan
plan small.json --set batch=64 -o batch.plan
plan small.json --set hidden=128 -o hidden.plan
plan small.json --threads 2 -o threads.plan
"$bin/ckpt-plan" small.json --device a100 -o gpu.plan >/dev/null || fail "plan for a GPU"
"$bin/ckpt-plan" small.json --device a100 --dtype bfloat16 -o half.plan >/dev/null || fail "plan in bfloat16"
edit small.plan other.plan 'd["graph"]["name"] = "large"'
edit small.plan profile.plan 'd["costs"] = "profile a/p.json"; slow(1)'
edit small.plan moved.plan 'd["costs"] = "profile b/p.json"'
edit small.plan alien.plan 'rename(lambda k: "x." + k)'
expect 4 "not comparable: another model (large, not small)" small.plan other.plan
expect 4 "not comparable: other layers (x.h.0.up and 13 more, not h.0.up and 13 more)" small.plan alien.plan
plan small.json --replicas 2 -o two.plan
expect 0 "the same" two.plan two.plan
expect 4 "not comparable: other threads (2, not 1)" small.plan threads.plan
expect 4 "not comparable: another device (a GPU, not the CPU), other costs (roofline of a100, not roofline of cpu)" small.plan gpu.plan
expect 4 "not comparable: other costs (profile a/p.json, not roofline of cpu)" small.plan profile.plan
expect 0 "the same" small.plan moved.plan # of costs the times count, where they are known
expect 1 "budget 1.18 MB → 1.28 MB; worse: peak +108 kB (+9.13 %), arena +108 kB (+29.08 %), keep-all peak +108 kB (+9.13 %)" --force --exit-code small.plan threads.plan
has "other threads: 2, not 1; compared all the same (--force)"
expect 4 "not comparable: another model (large, not small)" --warn-only --max peak=1B small.plan other.plan

# 7 inputs that cannot be compared
head -n 20 small.plan >cut.plan
echo "not JSON" >words.plan
echo '{"format": "ckpt-graph/1"}' >graph.plan
echo '{"name": "x"}' >none.plan
expect 2 "ckpt-compare: cut.plan:21:1: string or '}' expected near end of file" small.plan cut.plan
expect 2 "ckpt-compare: words.plan:1:3: '[' or '{' expected near 'not'" small.plan words.plan
expect 2 'ckpt-compare: graph.plan:1:12: found format "ckpt-graph/1", wanted a plan, profile, trace or sweep (ckpt-plan/1, ...)' small.plan graph.plan
expect 2 'ckpt-compare: none.plan:1:1: found no "format", which must be there' none.plan small.plan
expect 2 "ckpt-compare: nowhere.plan: No such file or directory" nowhere.plan small.plan
expect 2 "ckpt-compare: no NEW given; see --help" small.plan
expect 2 "ckpt-compare: no files given: wanted BASE and NEW; see --help"
expect 2 "ckpt-compare: report.gif has no extension that names a form: .txt, .md, .csv, .json, .xml or .html; see --help" -o report.gif small.plan small.plan
expect 2 "ckpt-compare: found --alpha 2, wanted a number between 0 and 1; see --help" --alpha 2 small.plan small.plan
all="peak, static, arena, budget, least_budget, step_time, mean_time, recompute, forward, backward, update, copy, wait, overhead, gap, bound, other_ways, inexact, offload, host, keep_all_peak, keep_all_time, process_peak, outputs, saved, workspace, parameters, copy_out, copy_in"
expect 2 "ckpt-compare: --max: unknown metric \"speed\"; wanted one of $all" --max speed=1 small.plan small.plan
expect 2 "ckpt-compare: --max process_peak=1GB: a plan has no process_peak; wanted one of peak, static, arena, budget, least_budget, step_time, recompute, overhead, gap, bound, other_ways, inexact, offload, host, keep_all_peak, keep_all_time" --max process_peak=1GB small.plan small.plan
expect 2 'ckpt-compare: while reading --max peak=3ms: size "3ms" has the unknown unit "ms"; wanted B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, or a percentage' --max peak=3ms small.plan small.plan
expect 2 'ckpt-compare: while reading --max-increase step_time=3: time "3" has no unit; wanted ns, us, ms or s' --max-increase step_time=3 small.plan small.plan
expect 2 'ckpt-compare: --max: found "peak", wanted METRIC=VALUE, such as peak=6GiB' --max peak small.plan small.plan
[ "$("$bin/ckpt-compare" --list-metrics | tail -n +2 | cut -d ' ' -f 1 | tr '\n' ' ')" = "$(echo "$all" | tr -d ,) " ] || fail "--list-metrics"

# 8 several NEW, each against BASE, and the worst of them decides; a plan that no longer fits
expect 0 "the same" byte.json copy.json byte.json
[ "$(grep -c ' against byte.json$' out)" = 2 ] && [ "$(grep -c '^budget .*; better: peak -1 B' out)" = 1 ] || fail "two NEW: $(cat out)"
expect 1 "within limits; the same" --max-increase peak=0 all.json byte.json copy.json
expect 4 "the same" small.plan other.plan moved.plan
"$bin/ckpt-plan" chain.json -b 30% -o tight.json >/dev/null
expect 0 "budget 2.25 MB → 674 kB; no longer fits its budget" all.json tight.json
has "NEW does not fit its budget of 674 kB; a plan is known for 966 kB" "for BASE no smaller one was looked for"
expect 1 "budget 2.25 MB → 674 kB; no longer fits its budget" --exit-code all.json tight.json
expect 1 "1 limit exceeded (peak); budget 2.25 MB → 674 kB; no longer fits its budget" --max peak=6GiB all.json tight.json
has "peak: NEW has none: NEW does not fit its budget" "            NEW does not fit its budget of 674 kB; a plan is"
# a plan that fits where BASE's did not is no regression
expect 0 "budget 674 kB → 2.25 MB; nothing is better or worse" --exit-code tight.json all.json

expect 1 "1 limit exceeded (peak); the same" --max peak=6GiB --max-increase arena=0 tight.json tight.json
has "peak: neither file says what it is" "open      arena: neither file says what it is"

# 9 profiles: with samples, with too few, and one layer really slower
"$bin/ckpt-profile" small.json -t 1 -r 12 --seconds 0.01 --isolated -o one.prof >/dev/null 2>&1 || fail "profile"
python3 - <<'P' || fail "profiles"
import json
d = json.load(open("one.prof"))
def write(name, time, keep=12):
    for i, row in enumerate(d["layers"]):
        for k, part in enumerate(("forward", "backward", "update")):
            if part in row:
                base = 10000 * (i + 1) + 1000 * k
                own = [time(row["layer"], part, base + 10 * ((7 * j) % 12)) for j in range(12)][:keep]
                row[part] = {"median_ns": sorted(own)[len(own) // 2], "spread_ns": 50, "repeats": keep, "samples_ns": own}
                if row.get("same_as"):
                    del row[part]["samples_ns"]
    for row in d["layers"]: # twins repeat their layer's figures
        if row.get("same_as"):
            twin = next(r for r in d["layers"] if r["layer"] == row["same_as"])
            for part in ("forward", "backward", "update"):
                if part in twin:
                    row[part] = {k: v for k, v in twin[part].items() if k != "samples_ns"}
    json.dump(d, open(name, "w"))
write("base.prof", lambda layer, part, ns: ns)
write("noise.prof", lambda layer, part, ns: ns + (13 if ns // 10 % 2 else -11))
write("slow.prof", lambda layer, part, ns: ns * 2 if (layer, part) == ("h.0.down", "forward") else ns)
write("few.prof", lambda layer, part, ns: ns * 2, keep=3)
def five(name, first): # samples first .. first + 4 of everything
    for row in d["layers"]:
        for part in ("forward", "backward", "update"):
            if part in row:
                row[part] = {"median_ns": first + 2, "spread_ns": 2, "repeats": 5, "samples_ns": list(range(first, first + 5))}
                if row.get("same_as"):
                    del row[part]["samples_ns"]
    json.dump(d, open(name, "w"))
five("low.prof", 1000)
five("high.prof", 1005)
P
expect 0 "the same" base.prof base.prof
expect 0 "within limits; nothing is better or worse" --exit-code --max-increase step_time=0 base.prof noise.prof
has "not significant (p = " "~ (p = "
"$bin/ckpt-compare" --exit-code --max-increase step_time=3%,backward=0 base.prof slow.prof >out
[ $? = 1 ] || fail "a slower layer: $(cat out)"
has "1 limit exceeded (step time); worse: step time +" "h.0.down forward ×3: +90.2 us, +100.00 %" "backward time 745 us, just what --max-increase backward=0 allows" "more that do not differ"
[ "$(grep -c 'p < 0.001' out)" -ge 2 ] && ! grep -q "h.0.up.*worse" out || fail "a slower layer: $(cat out)"
expect 0 "within limits; nothing is better or worse" --exit-code --max-increase step_time=0 --max step_time=1ns base.prof few.prof
has "not enough samples (3, wanted 5)"
# 5 samples all above 5 others: p = 2/252 = 0.008. For one sum that is significant; for one of ten rows and more it is
# not (Holm), but for --alpha 0.5.
"$bin/ckpt-compare" low.prof high.prof >out
[ "$(grep -c 'worse (p = 0.008)' out)" = 4 ] && ! grep -q 'by layer' out || fail "Holm: $(cat out)"
"$bin/ckpt-compare" --alpha 0.5 low.prof high.prof >out
has "; by layer and direction " " worse, 0 better"
edit base.prof flushed.prof 'd["flushed"] = True'
edit base.prof layer.prof 'del d["layers"][3]'
edit base.prof size.prof 'for r in d["layers"]: r["output_bytes"] *= 2'
expect 4 "not comparable: other caches (flushed before each run, not left warm)" base.prof flushed.prof
edit base.prof strange.prof 'for r in d["layers"]: r["layer"] = "x." + r["layer"]; r.pop("same_as", None)'
expect 4 "not comparable: other layers (no h.0.up, not h.0.up)" base.prof strange.prof
# A layer less, and all outputs of another size: compared, and said.
"$bin/ckpt-compare" --max-increase step_time=0 layer.prof base.prof >out && fail "a layer more: $(cat out)"
has "model  13 layers  14 layers: 1 added" "h.0.add forward: +40.1 us, added"
"$bin/ckpt-compare" base.prof size.prof >out || fail "sizes: $(cat out)"
has "model  14 layers  14 resized"
# times in the step are no times of layers alone; of two such profiles the whole steps are tested
edit base.prof step.prof 'd["step"] = {"plan": "keep-all", "overhead_ns": 5, "time": {"median_ns": 1002, "spread_ns": 2, "repeats": 5, "samples_ns": list(range(1000, 1005))}}'
edit step.prof longer.prof 'd["step"]["time"] = {"median_ns": 1007, "spread_ns": 2, "repeats": 5, "samples_ns": list(range(1005, 1010))}'
expect 4 "not comparable: other times (in the step, not of layers alone)" base.prof step.prof
expect 0 "the same" step.prof step.prof
expect 1 "worse: step time +5 ns (+0.50 %)" --exit-code step.prof longer.prof
expect 2 "ckpt-compare: base.prof is a profile, but small.plan is a plan; wanted two of a kind" small.plan base.prof

# 10 traces: predicted against measured to the byte, times judged only between two measured ones
"$bin/ckpt-plan" small.json --threads 1 -o t.plan --trace predicted.trace >/dev/null || fail "trace"
"$bin/ckpt-train" --plan t.plan small.json -n 8 --trace measured.trace >/dev/null || fail "training"
edit predicted.trace placeless.trace 'd.pop("places")' # older; what nobody asks for is not missed
expect 0 "the same" predicted.trace placeless.trace
! grep -q "does not say where" out || fail "a note on buffers, where no byte changed: $(cat out)"
expect 0 "nothing is better or worse" --exit-code predicted.trace measured.trace
has "one is predicted, the other measured"
expect 0 "within limits; nothing is better or worse" --max-increase peak=0,step_time=0 predicted.trace measured.trace
edit predicted.trace later.trace 'd["time_ns"] += 10 ** 9'
expect 0 "within limits; nothing is better or worse" --max-increase step_time=0 measured.trace later.trace
has "one is predicted, the other measured"
expect 1 "1 limit exceeded (step time); nothing is better or worse" --max step_time=1s measured.trace later.trace
edit measured.trace steps.trace 'd["step_times_ns"] = [1000000 + 7 * (i % 5) for i in range(10)]'
edit measured.trace jitter.trace 'd["step_times_ns"] = [1000000 + 9 * (i % 4) for i in range(10)]'
edit measured.trace slower.trace 'd["step_times_ns"] = [1100000 + 7 * (i % 5) for i in range(10)]'
edit measured.trace three.trace 'd["step_times_ns"] = [2000000] * 3'
edit measured.trace cpu.trace 'd["machine"]["device"] = "cpu: another, 1 threads"'
edit measured.trace bytes.trace 'e = d["events"][2]; e["bytes"]["activations"] += 64; t = [sum(v for k, v in x["bytes"].items() if k != "outside") for x in d["events"]]; d["peak_bytes"] = max(t); d["peak_event"] = t.index(max(t))'
expect 0 "within limits; nothing is better or worse" --exit-code --max-increase step_time=0 steps.trace jitter.trace
has "~ (p = "
expect 1 "1 limit exceeded (step time); worse: step time +100 us (+10.00 %)" --max-increase step_time=3% steps.trace slower.trace
expect 0 "within limits; worse: step time +100 us (+10.00 %)" --max-increase step_time=11% steps.trace slower.trace
expect 1 "1 limit exceeded (step time); the same" --max step_time=1.05ms slower.trace slower.trace
expect 0 "within limits; nothing is better or worse" --exit-code --max-increase step_time=0 steps.trace three.trace
has "not enough samples (3, wanted 5)"
grep -q "^not comparable: another device (cpu: another, not cpu: " <("$bin/ckpt-compare" measured.trace cpu.trace) || fail "device: $("$bin/ckpt-compare" measured.trace cpu.trace)"
"$bin/ckpt-compare" measured.trace bytes.trace >out
has "differs first at step 2 (h.0.down/forward): +64 bytes of activations"

# 11 sweeps: a budget at which it is slower, and one that only BASE can meet
"$bin/ckpt-plan" chain.json --effort 0 --sweep 6 -o base.json >/dev/null || fail "sweep"
mv base.json base.sweep
edit base.sweep slower.sweep 'd["points"][1]["time_ns"] += 500000; d["points"][1].pop("bound", None)'
edit base.sweep shorter.sweep 'del d["points"][0]'
expect 0 "the same" base.sweep base.sweep
"$bin/ckpt-compare" --max-increase step_time=0 base.sweep slower.sweep >out
[ $? = 1 ] || fail "a slower sweep: $(cat out)"
has "step time at" "+500 us" "1 limit exceeded (step time)"
"$bin/ckpt-compare" --exit-code base.sweep shorter.sweep >out
[ $? = 1 ] || fail "a shorter sweep: $(cat out)"
has "NEW has no plan" "worse: minimum budget"
# Points at other budgets: between its own a sweep may do better than its steps, so nothing is worse for certain.
edit base.sweep moved.sweep 'for p in d["points"][1:-1]: p["budget_bytes"] += 64'
"$bin/ckpt-compare" --exit-code --max-increase step_time=0,mean_time=0 base.sweep moved.sweep >out || fail "other budgets: $(cat out)"
has "NEW has no point at this budget" "the sweeps have other budgets"
edit moved.sweep late.sweep 'd["points"][-1]["time_ns"] += 500000; d["points"][-1].pop("bound", None)'
"$bin/ckpt-compare" --exit-code base.sweep late.sweep >out && fail "a slower point at a budget of both: $(cat out)"
has "worse: step time +500 us"

# 12 colours, forms, and names that hold anything
"$bin/ckpt-compare" --color always all.json again.json | grep -q $'\033\[31m' || fail "no colours"
NO_COLOR=1 "$bin/ckpt-compare" all.json again.json | grep -q $'\033' && fail "colours in spite of NO_COLOR"
"$bin/ckpt-compare" -o report.json -o report.txt all.json again.json >out || fail "two outputs"
cmp -s out report.txt || fail "the text file is not what is printed"
python3 -c 'import json; json.load(open("report.json"))' || fail "report.json"
"$bin/ckpt-compare" -f json all.json again.json | cmp -s - report.json || fail "-f json is not -o FILE.json"
edit all.json evil.json 'rename(lambda k: "h.3.act\u001b[31m\n::error::" + "x" * 10000 if k == "h.3.act" else k)'
edit again.json evil2.json 'rename(lambda k: "h.3.act\u001b[31m\n::error::" + "x" * 10000 if k == "h.3.act" else k)'
"$bin/ckpt-compare" evil.json evil2.json >out || fail "hostile names"
grep -q $'\033' out && fail "an escape reached the terminal"
grep -q "^::" out && fail "a name became a line"
[ "$(wc -L <out)" -lt 400 ] || fail "a name of 10,000 letters is printed"

# 13 a changed model is compared layer by layer, and limits hold for it: more of the batch, added dropouts, a removed block,
# a wider hidden, another optimizer, another type of number. What layers and static blocks do adds up to the change.
edit small.json dropped.json 'd["layers"][0]["layers"].insert(2, {"name": "drop", "op": "dropout", "p": 0.1})'
plan dropped.json -o dropped.plan
edit small.json shorter.json 'd["layers"][0]["repeat"] = 2'
plan shorter.json -o shorter.plan
plan small.json --optimizer sgd -o sgd.plan
plan small.json -m 2 -o twice.plan
# changed BASE NEW "words"...: all limits are tried, the sums held against the files; the words stand in the text
changed() {
    local base=$1 new=$2
    shift 2
    "$bin/ckpt-compare" --max-increase peak=0,static=0,step_time=0,recompute=0,overhead=0,keep_all_time=0 -o changed.json \
        "$base" "$new" >out 2>err
    [ $? -le 1 ] && [ ! -s err ] || fail "$base, $new: $(cat err out)"
    has "$@"
    python3 - "$base" "$new" <<'P' || fail "$base, $new: $(cat out)"
import json, sys
a, b = (json.load(open(f))["summary"] for f in sys.argv[1:])
d = json.load(open("changed.json"))["differences"][0]
assert d["compared"] and not d["mismatches"] and d["settings"], d
for key in "peak_bytes", "time_ns", "recompute_ns":
    for part in "layers", "layer_groups":
        assert sum(l.get(key, 0) for l in d[part]) == b[key] - a[key], (key, part)
metric = {m["name"]: m for m in d["metrics"]}
for limit in d["limits"]:
    if limit["state"] == "exceeded":
        parts = [x["change"] for x in limit["because"] if x["change"] is not None]
        off = abs(sum(parts) - metric[limit["metric"]]["change"])
        assert parts and off <= (len(d["layer_groups"]) + 2 if limit["metric"] == "overhead" else 0), limit
    elif limit["metric"] in metric:
        assert metric[limit["metric"]]["new"] <= limit["allowed"], limit
P
}
changed small.plan batch.plan "  options  none       --set batch=64" "  model    14 layers  14 resized" "outputs 32.8 kB → 65.5 kB"
changed small.plan dropped.plan "  model   14 layers  17 layers: 3 added" "h.0 … h.2.drop ×3: +" ", added"
! grep -q "other times" out || fail "added layers are not other times: $(cat out)"
changed small.plan shorter.plan "10 layers: 4 removed" "  h.2.up " "removed" "weights" "static "
changed shorter.plan small.plan "14 layers: 4 added" "weights: +" "h.2.up: +"
changed small.plan hidden.plan "--set hidden=128" "static 400 kB → 1.59 MB" "resized"
changed small.plan sgd.plan "--optimizer sgd" "optimizer" "static "
changed gpu.plan half.plan "  dtype    float32    bfloat16"
changed small.plan twice.plan "  scheme   one batch on one rank  2 micro-batches" "h.0 … h.2.up    ×3"
"$bin/ckpt-compare" --max-increase peak=1B small.plan batch.plan >out
[ $? = 1 ] || fail "a limit on a changed model does not fail: $(cat out)"

# traces of a changed model likewise; a sweep of one is compared budget by budget
for change in small batch; do
    set --
    [ $change = small ] || set -- --set batch=64
    plan small.json "$@" -o t.plan --trace $change.trace
    "$bin/ckpt-plan" small.json --threads 1 "$@" --effort 0 --sweep 3 -o sweep.json >/dev/null || fail "sweep"
    mv sweep.json $change.sweep
done
"$bin/ckpt-compare" --max-increase peak=0,static=0,step_time=0,forward=0,backward=0 -o compared.json small.trace batch.trace >out
[ $? = 1 ] || fail "traces of a changed model: $(cat out)"
has "  model   14 layers  14 resized" "outputs 32.8 kB → 65.5 kB"
python3 - <<'P' || fail "traces of a changed model: $(cat out)"
import json
d = json.load(open("compared.json"))["differences"][0]
change = {m["name"]: m["change"] for m in d["metrics"]}
assert len(d["limits"]) == 5
for limit in d["limits"]:
    assert limit["state"] == "exceeded", limit
    assert sum(x["change"] or 0 for x in limit["because"]) == change[limit["metric"]], limit
    assert not any("do not tell" in x["text"] for x in limit["because"]), limit
P
"$bin/ckpt-compare" --max-increase least_budget=0 small.sweep batch.sweep >out
[ $? = 1 ] || fail "sweeps of a changed model: $(cat out)"
has "  static block  " "worse: " "minimum budget +"

# a budget alone: it is named first, and what it brought stands beside what it cost
"$bin/ckpt-plan" chain.json -b 95% -o raised.json >/dev/null || fail "plan of the chain"
"$bin/ckpt-compare" --max-increase peak=0,gap=0 -o compared.json again.json raised.json >out && fail "a raised budget: $(cat out)"
python3 - <<'P' || fail "a raised budget: $(cat out)"
import json
d = json.load(open("compared.json"))["differences"][0]
because = d["limits"][0]["because"]
assert because[0]["text"].startswith("budget: ") and because[0]["change"] is None, because
assert sum(x["change"] for x in because[1:]) == d["metrics"][0]["change"] > 0, because
assert d["settings"][0]["what"] == "budget"
P
# Trivia do not stand beside a failure: the gap, which tells of the bound, and less than a hundredth of anything.
edit all.json trivia.json 'grow(1000); d["graph"]["ops"][0]["time_ns"] += 1; d["summary"]["time_ns"] += 1; d.pop("bound", None)'
expect 1 "1 limit exceeded (peak); budget 2246400 B → 2247400 B; worse: peak +1.00 kB (+0.04 %)" --max-increase peak=0 all.json trivia.json

# 14 memory that is refused is exit code 3, as in all programs; what is not comparable is 4
if ! grep -q __asan_init "$bin/ckpt-compare"; then
    edit threads.plan long.plan 'd["unknown"] = ["x" * 8000000, "y" * 8000000]'
    codes="" code=1 kib=6000
    while [ $code != 4 ] && [ $kib -lt 100000 ]; do
        (ulimit -v $kib && exec "$bin/ckpt-compare" small.plan long.plan) >/dev/null 2>&1
        code=$? kib=$((kib + 1000))
        codes="$codes $code"
    done
    case "$codes" in *" 3 4") ;; *) fail "exit codes with ever more memory:$codes" ;; esac
fi

# 15 damaged files: a result or a one-line error, nothing else
python3 - "$bin/ckpt-compare" <<'P' || fail "damaged files"
import os, random, subprocess, sys
rounds = 6 if os.environ.get("CKPT_TEST_ROUNDS") == "few" else 25
seed = int(os.environ.get("CKPT_TEST_SEED", "20261120"))
print("seed", seed)
random.seed(seed)
for name, fresh in (("all.json", "again.json"), ("base.prof", "slow.prof"), ("steps.trace", "slower.trace"), ("base.sweep", "slower.sweep")):
    text = open(fresh, "rb").read()
    for i in range(rounds):
        bad = bytearray(text)
        for _ in range(random.randint(1, 4)):
            at = random.randrange(len(bad))
            how = random.randrange(5)
            if how == 0:
                bad[at] = random.choice(b'0123456789"{}[],:-e.x\\')
            elif how == 1:
                del bad[at:at + random.randint(1, 40)]
            elif how == 2:
                bad[at:at] = bad[at:at + random.randint(1, 40)]
            elif how == 3: # a number becomes huge
                while at < len(bad) and not chr(bad[at]).isdigit():
                    at += 1
                bad[at:at] = b"9" * random.randint(1, 17)
            else:
                del bad[at:len(bad) if random.random() < 0.1 else at + 1]
        open("bad", "wb").write(bad)
        for args in (["--force", name, "bad"], ["--force", "--json", "bad", name]):
            r = subprocess.run([sys.argv[1], *args, "--max-increase", "peak=0"] if "sweep" not in name and "prof" not in name else [sys.argv[1], *args], capture_output=True)
            lines = r.stderr.count(b"\n")
            good = r.returncode in (0, 1) and lines == 0 or r.returncode == 2 and lines == 1 and not r.stdout
            if not good:
                open("bad.kept", "wb").write(bad)
                sys.exit(f"{args}, round {i}: exit {r.returncode}: {r.stderr.decode(errors='replace')}")
P

exit $failed

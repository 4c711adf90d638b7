#!/usr/bin/env bash
# labels: cli; long under sanitizers
# scripts/fit_device and scripts/record_profiles: constants that made up profiles were made from come out again, the
# rates in ops/ are those of the recordings in traces/, and --device reads what was fitted.
set -u
source=$1 bin=$2 work=$3
fit=$source/scripts/fit_device
command -v python3 >/dev/null || exit 77
rm -rf "$work" && mkdir -p "$work" && cd "$work" || exit 1
# shellcheck source=tests/support/support_refuse.sh
. "$source/tests/support/support_refuse.sh"

# Profiles of a device whose constants are known, every eighth layer ten times as slow as it should be.
cat >make.py <<'EOF'
import json, random, sys
seed = 20
print("seed", seed)
rng = random.Random(seed)
FACTORS = {("gelu", "forward"): 4.0, ("gelu", "backward"): 3.0, ("update", "update"): 0.5}
def row(number, op, flop, moved, narrow):
    timing = {}
    for d in ("forward", "backward", "update"):
        kind = "update" if d == "update" else op
        memory = min(moved, 30e6) / 2e11 + max(0, moved - 30e6) / 4e10
        ns = 800 + 1e9 * FACTORS.get((kind, d), 1) * max(flop / (1e13 if narrow else 2e12), memory)
        ns *= rng.uniform(0.95, 1.05) * (10 if rng.random() < 0.125 else 1)
        timing[d] = {"median_ns": round(ns), "repeats": 15, "flop": flop, "moved_bytes": moved}
    return {"layer": f"l{number}", "op": op, **timing}
for n in range(4):
    narrow = n == 3
    rows = []
    for i in range(150):
        moved = int(10 ** rng.uniform(3, 9))
        rows.append(row(i, "linear", int(moved * 10 ** rng.uniform(1.5, 4)), moved, narrow) if i % 2 else
                    row(i, rng.choice(["gelu", "relu", "relu"]), moved // 8, moved, narrow))
    rows.append({**rows[0], "layer": "twin", "same_as": "l0"})
    json.dump({"format": "ckpt-profile/1", "model": f"m{n}", "flushed": False, "layers": rows, "machine": {"device": "cpu: made up",
               "command": "ckpt-profile --dtype bfloat16" if narrow else "", "target": "cpu", "date": "2026-01-01"}}, open(f"m{n}.json", "w"))
EOF
cat >near.py <<'EOF'
import json
found = json.load(open("made.json"))
wanted = dict(flop_per_s=2e12, flop_per_s16=1e13, bytes_per_s=4e10, cache_bytes=30e6, cache_bytes_per_s=2e11, launch_ns=800)
bad = [f"{k}: {found[k]:g}, wanted {v:g}" for k, v in wanted.items() if not 0.9 < found[k] / v < 1.1]
factors = dict(gelu=dict(forward=4, backward=3), relu=dict(forward=1, backward=1), linear=dict(forward=1, backward=1), update=dict(update=0.5))
if found["op_factors"].keys() != factors.keys():
    bad.append(f"factors of {sorted(found['op_factors'])}")
for op in factors:
    bad += [f"{op} {d}: {found['op_factors'][op][d]}, wanted {v}" for d, v in factors[op].items() if not 0.9 < found["op_factors"][op][d] / v < 1.1]
raise SystemExit("; ".join(bad) or 0)
EOF
python3 make.py || fail "made up profiles"
"$fit" -o made.json -o device_made_impl.h m?.json >report.md || fail "fitting what was made up"
python3 near.py || fail "the constants that profiles were made from"
grep -q '^| all | | 1800 | ' report.md || fail "all measured layers, and no twin: $(grep '^| all' report.md)"
grep -q '^| gelu | forward | ' report.md && grep -q '^| m3 bfloat16 | ' report.md || fail "a row per kind and network"
grep -q '"gelu", {4' device_made_impl.h && grep -q '#define MADE_FITTED' device_made_impl.h || fail "the same as C"
"$fit" m0.json >alone.md || fail "one network alone, with no others to leave it out of: a stack of calls was printed"
grep -q "| all |" alone.md || fail "one network alone: no figures"
"$fit" -q -o again.json m3.json m1.json m2.json m0.json >out && cmp made.json again.json || fail "the order of files matters"
[ ! -s out ] || fail "-q prints"
ckpt_plan() { "$bin/ckpt-plan" --budget 70% --json "$source/models/byte-gpt.json" "$@"; }
ckpt_plan --device ./made.json >planned.json || fail "--device does not read what was fitted: $(cat planned.json)"

# The rates in ops/ are those of the recordings.
for header in "$source"/ops/device_*_impl.h; do
    name=$(basename "$header") recordings=$(sed -n '1s/.* in \(traces.*\): .*/\1/p' "$header")
    [ -n "$recordings" ] && [ -d "$source/$recordings" ] || fail "$header does not say from which recordings it was made"
    (cd "$source" && scripts/fit_device -q -o "$work/$name" -o "$work/${name%_impl.h}.json" "$recordings"/*.json) || fail "fitting $recordings"
    cmp "$name" "$header" || fail "$header is not what scripts/fit_device makes of $recordings: write it again (docs/explanation/cost-model.md)"
done

# With the file of the same fit ckpt-plan gives the same times.
time_of() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["keep_all"]["time_ns"])' "$1"; }
ckpt_plan >by_table.json && ckpt_plan --device ./device_cpu.json >by_file.json || fail "planning with the fit"
[ "$(time_of by_table.json)" = "$(time_of by_file.json)" ] || fail "the table and the file give other times: $(time_of by_table.json), $(time_of by_file.json)"

refuse 2 'usage: fit_device' "$fit"
refuse 2 'usage: fit_device' "$fit" -o table.txt m0.json
refuse 2 '-o wants a value' "$fit" m0.json -o
refuse 2 'no/such' "$fit" -q -o no/such/folder.json m0.json
refuse 2 'unknown option --fast' "$fit" --fast m0.json
refuse 2 'wanted three numbers' "$fit" --before 1,2 m0.json
refuse 2 'No such file' "$fit" none.json
echo '{"format": "ckpt-graph/1"}' >graph.json
refuse 2 "wanted 'ckpt-profile/1'" "$fit" graph.json
echo 'no JSON' >text.json
refuse 2 'wanted ckpt-profile/1 files' "$fit" text.json
sed 's/, "flop": [0-9]*, "moved_bytes": [0-9]*//g' m0.json >old.json
refuse 2 'record it anew' "$fit" old.json
sed 's/made up/another/' m0.json >other.json
refuse 2 'wanted one device' "$fit" m0.json other.json
sed 's/"flushed": false/"flushed": true/' m0.json >flushed.json
refuse 2 'recorded one way' "$fit" m1.json flushed.json

# Recording: what the programs of this build measure can be fitted; a network that is not there fails, the rest is recorded.
"$source/scripts/record_profiles" "$work/recorded" --bin "$bin" mlp nosuch >out 2>err && fail "a network that is not there"
grep -q '1 of 2 networks were not recorded' err || fail "$(cat err)"
"$fit" -q -o recorded.json "$work/recorded/mlp.json" || fail "fitting a recording"
refuse 2 'usage: scripts/record_profiles' "$source/scripts/record_profiles"
refuse 2 'unknown option --quick' "$source/scripts/record_profiles" "$work/recorded" --quick
refuse 2 'no ckpt-profile in' "$source/scripts/record_profiles" "$work/recorded" --bin "$work"
echo "constants come out again, ops/ has those of the recordings; refusals have one line"

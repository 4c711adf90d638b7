#!/usr/bin/env bash
# labels: cli; long under sanitizers
# Every strategy's plan of every model, at two budgets, and plans with copies over several links, replayed by
# tests/programs/replay_plan.py.
set -euo pipefail
source=$1 bin=$2 work=$3
rm -rf "$work" && mkdir -p "$work"
# Plans of one model are replayed by one Python. Where sanitizers slow ckpt-plan down, every other budget of a strategy.
replayed=0 number=0 tried=0
for model in "$source"/models/*.json; do
    name=$(basename "$model" .json)
    "$bin/ckpt-graph" "$model" -o "$work/$name.json"
    strategies=$("$bin/ckpt-plan" --list-strategies | awk '{sub(/N$/, 2, $1); print $1}')
    [ "$(grep -c '"phase"' "$work/$name.json")" -le 100 ] || strategies="auto keep-all chain" # the rest takes its time
    for strategy in $strategies; do
        case $strategy in flags | joint | offload-only) continue ;; esac # refused without flags or a link
        for budget in 100% 65%; do
            number=$((number + 1))
            [ "${CKPT_TEST_ROUNDS:-all}" != few ] || [ $(((number + 1) / 2 % 2)) -eq $((number % 2)) ] || continue
            tried=$((tried + 1))
            # 1: no plan fits, a valid result
            "$bin/ckpt-plan" -e 0 -s "$strategy" -b "$budget" "$work/$name.json" -o "$work/plan.$number.json" \
                >/dev/null 2>&1 || { [ $? -eq 1 ] && rm -f "$work/plan.$number.json" && continue; exit 1; }
        done
    done
    python3 "$source/tests/programs/replay_plan.py" "$work/$name.json" "$work"/plan.*.json >"$work/said"
    replayed=$((replayed + $(wc -l <"$work/said")))
    rm "$work"/plan.*.json
done
[ "$replayed" -ge $((tried * 2 / 5)) ]
[ "$replayed" -ge 125 ] || [ "$tried" -lt "$number" ]
copied=0
for model in byte-gpt unet lstm; do
    "$bin/ckpt-graph" --device a100 "$source/models/$model.json" -o "$work/graph.json"
    for link in '2e9, 2e9' '20e9, 5e9'; do # bytes per second there and back
        python3 - "$work/graph.json" "$work/linked.json" <<P
import json, sys
graph = json.load(open(sys.argv[1]))
down, up = $link
graph["link"] = {"d2h_bytes_per_s": int(down), "h2d_bytes_per_s": int(up)}
json.dump(graph, open(sys.argv[2], "w"))
P
        for strategy in joint offload-only; do
            for budget in 80% 55%; do
                "$bin/ckpt-plan" -e 0 -s $strategy -b $budget "$work/linked.json" -o "$work/plan.json" >/dev/null 2>&1 ||
                    { [ $? -eq 1 ] && continue; exit 1; }
                python3 "$source/tests/programs/replay_plan.py" "$work/linked.json" "$work/plan.json" >"$work/said"
                grep -q ' 0 bytes offloaded' "$work/said" || copied=$((copied + 1))
            done
        done
    done
done
[ "$copied" -ge 16 ]
# It can say no: one place moved onto its neighbour.
"$bin/ckpt-plan" -s keep-all "$work/byte-gpt.json" -o "$work/plan.json" >/dev/null
python3 - "$work/plan.json" <<'P'
import json, sys
plan = json.load(open(sys.argv[1]))
for place in plan["places"][:40]:
    place["offset"] = 0
json.dump(plan, open(sys.argv[1], "w"))
P
if python3 "$source/tests/programs/replay_plan.py" "$work/byte-gpt.json" "$work/plan.json" 2>"$work/said"; then exit 1; fi
grep -q overlap "$work/said"
# And to a time: one nanosecond less than the copies take.
"$bin/ckpt-plan" -s offload-only -b 80% "$work/linked.json" -o "$work/plan.json" >/dev/null
python3 - "$work/plan.json" <<'P'
import json, sys
plan = json.load(open(sys.argv[1]))
plan["summary"]["time_ns"] -= 1
json.dump(plan, open(sys.argv[1], "w"))
P
if python3 "$source/tests/programs/replay_plan.py" "$work/linked.json" "$work/plan.json" 2>"$work/said"; then exit 1; fi
grep -q time_ns "$work/said"
# And to an outline that is not of the graph; one must be there.
python3 - "$work/plan.json" <<'P'
import json, sys
plan = json.load(open(sys.argv[1]))
plan["graph"]["ops"][3]["time_ns"] += 1
json.dump(plan, open(sys.argv[1], "w"))
P
if python3 "$source/tests/programs/replay_plan.py" "$work/linked.json" "$work/plan.json" 2>"$work/said"; then exit 1; fi
grep -q "outline's ops differ" "$work/said"
echo "$replayed plans replayed, $copied with copies"

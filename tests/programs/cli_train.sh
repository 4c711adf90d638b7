#!/usr/bin/env bash
# ckpt-train from the outside: a planned run has keep-all's losses and weights; stop, resume, interrupt; refusals.
set -u
export OMP_WAIT_POLICY=passive # spinning threads cost much where other tests share the cores
source_dir=$1 bin_dir=$2 work_dir=$3
train=$bin_dir/ckpt-train plan=$bin_dir/ckpt-plan
model=$source_dir/models/byte-gpt.json
small=(--set batch=4 --set tokens=32 --set hidden=32 --set blocks=3 --set heads=2 --threads 2)
rm -rf "$work_dir" && mkdir -p "$work_dir" && cd "$work_dir" || exit 1

# shellcheck source=tests/support/support_refuse.sh
. "$source_dir/tests/support/support_refuse.sh"
for i in $(seq 200); do echo "line $i of a text that tells $((i * i)) things"; done > text.txt

"$plan" "${small[@]}" --strategy keep-all -o all.json "$model" > /dev/null || fail "plan keep-all"
"$plan" "${small[@]}" --budget 75% -o part.json "$model" > /dev/null || fail "plan 75%"

# The same losses, step by step, and the same weights; the log is CSV with decimal and hexadecimal losses.
"$train" "${small[@]}" --plan all.json --data text:text.txt --steps 6 --seed 4 --log all.csv "$model" > all.txt || fail "keep-all"
"$train" "${small[@]}" --plan part.json --data text:text.txt --steps 6 --seed 4 --log part.csv --trace part.trace.json --poison \
    "$model" > part.txt || fail "planned"
cmp all.csv part.csv || fail "other losses"
[ "$(grep sha256 all.txt)" = "$(grep sha256 part.txt)" ] || fail "other weights"
[ "$(wc -l < all.csv)" -eq 7 ] || fail "the log has $(wc -l < all.csv) lines, wanted 7"
[ "$(head -1 all.csv)" = "step,loss,loss_hex,validation,accuracy" ] || fail "log header: $(head -1 all.csv)"
grep -q '^1,[0-9.e+-]*,0x1\.' all.csv || fail "log row: $(sed -n 2p all.csv)"
grep -q "measured peak .*(equal)" part.txt || fail "peaks differ: $(cat part.txt)"
grep -q '"format": "ckpt-trace/1"' part.trace.json || fail "no trace"
python3 - part.trace.json part.json <<'EOF' || fail "wrong places, step times or capacity in the trace (or there is no python3)"
import json, sys
trace, plan = (json.load(open(path)) for path in sys.argv[1:])
# Of six steps the last is in the trace; what lay where is what the plan says, in any order.
assert len(trace["step_times_ns"]) == 5 and min(trace["step_times_ns"]) > 0, trace["step_times_ns"]
keys = ("what", "from", "to", "offset", "bytes")
places = [sorted(tuple(place[key] for key in keys) for place in file["places"]) for file in (trace, plan)]
assert places[0] == places[1]
kind = {b["name"]: b["kind"] for b in plan["graph"]["buffers"]}
of = {"activation": "activations", "saved": "saved", "gradient": "gradients", "workspace": "workspace"}
assert all(place["category"] == of[kind.get(place["what"], "workspace")] for place in trace["places"])
assert trace["capacity_bytes"] > trace["peak_bytes"]
EOF
[ "$(sed 1d all.csv | cut -d, -f2 | sort -u | wc -l)" -eq 6 ] || fail "losses do not change"

# Stop and resume.
"$train" "${small[@]}" --plan part.json --data text:text.txt --steps 3 --seed 4 --save half.state --log two.csv "$model" \
    > /dev/null || fail "first half"
"$train" "${small[@]}" --plan all.json --data text:text.txt --steps 6 --resume half.state --log two.csv "$model" > two.txt ||
    fail "second half"
cmp all.csv two.csv || fail "resumed: other losses"
[ "$(grep sha256 all.txt)" = "$(grep sha256 two.txt)" ] || fail "resumed: other weights"

# Evaluated: without dropout the loss of a step's batch before it is trained on is that step's own; nothing is trained.
sed 's/"p": *0\.1/"p": 0/' "$model" > certain.json
cmp -s "$model" certain.json && fail "the model has no dropout"
"$plan" "${small[@]}" --budget 75% -o certain.plan.json certain.json > /dev/null || fail "plan without dropout"
certain=("$train" "${small[@]}" --plan certain.plan.json --data text:text.txt certain.json)
"${certain[@]}" --steps 3 --seed 4 --log certain.csv --save certain.state > certain.txt || fail "without dropout"
"${certain[@]}" --steps 2 --seed 4 --save second.state > second.txt || fail "two steps without dropout"
"${certain[@]}" --resume second.state --evaluate 1 > evaluated.txt || fail "--evaluate"
[ "$(sed -n 's/^mean loss *\([0-9.]*\), of 1 step$/\1/p' evaluated.txt)" = "$(sed -n 's/^3,\([0-9.]*\),.*/\1/p' certain.csv)" ] ||
    fail "--evaluate: $(cat evaluated.txt certain.csv)"
[ "$(grep sha256 second.txt)" = "$(grep sha256 evaluated.txt)" ] || fail "--evaluate trains"
"${certain[@]}" --resume certain.state --evaluate 5 --json > evaluated.json || fail "--evaluate --json"
grep -q '"evaluation": {"steps": 5, "loss": [0-9.]*, "right": [0-9]*, "counted": 640}' evaluated.json || fail "--evaluate: $(cat evaluated.json)"
refuse 2 "nothing for --save" "${certain[@]}" --evaluate 1 --save x.state
refuse 2 "--ema needs --evaluate" "${certain[@]}" --ema
refuse 2 "there is no average" "${certain[@]}" --resume certain.state --evaluate 1 --ema

# Another rate and schedule: from the model and from options the same bits, resumed too; a state of other rates is refused.
sed 's/"optimizer": {[^}]*}/"optimizer": { "name": "adamw", "lr": 0.5, "ema": 0.9 }/' "$model" > rate.json
sed 's/"lr": 0.5/"lr": 0.002, "schedule": { "kind": "cosine", "warmup": 2, "steps": 6 }/' rate.json > rates.json
cmp -s rate.json rates.json && fail "the model has no optimizer"
"$plan" "${small[@]}" --budget 75% -o rate.plan.json rate.json > /dev/null || fail "plan with another rate"
rated=("$train" "${small[@]}" --plan rate.plan.json --data text:text.txt)
rates=(--lr 0.002 --schedule cosine:warmup=2,steps=6)
"${rated[@]}" --seed 4 --steps 4 rates.json > rates.txt || fail "a schedule"
"${rated[@]}" --seed 4 --steps 2 --save rates.state "${rates[@]}" rate.json > /dev/null || fail "--lr and --schedule"
"${rated[@]}" --steps 4 --resume rates.state --save rates.state rates.json > again.txt || fail "a schedule, resumed"
[ "$(grep sha256 rates.txt)" = "$(grep sha256 again.txt)" ] || fail "--lr and --schedule: other weights"
"${rated[@]}" --resume rates.state --evaluate 2 rates.json > weights.txt || fail "--evaluate with an average"
"${rated[@]}" --resume rates.state --evaluate 2 --ema rates.json > average.txt || fail "--evaluate --ema"
[ "$(grep 'mean loss' weights.txt)" != "$(grep 'mean loss' average.txt)" ] || fail "--ema changes nothing"
[ "$(grep sha256 weights.txt)" = "$(grep sha256 average.txt)" ] || fail "--ema leaves other weights"
refuse 2 "schedule=cosine" "${rated[@]}" --resume rates.state --lr 0.002 rate.json
refuse 2 'lr "fast"' "${rated[@]}" --lr fast rate.json
refuse 2 'found schedule "slow"' "${rated[@]}" --schedule slow rate.json
refuse 2 "evaluate takes a number" "${certain[@]}" --evaluate 0

# Interrupted in a run that would not end by itself: the step is finished, the state written, one line, 130; and it
# goes on to the weights of a run that was left alone.
"$train" "${small[@]}" --plan part.json --data text:text.txt --steps 1000000 --seed 4 --save int.state --log int.csv "$model" \
    > /dev/null 2> int.err &
pid=$!
for i in $(seq 1200); do [ -f int.csv ] && [ "$(wc -l < int.csv)" -gt 2 ] && break; sleep 0.05; done
kill -INT $pid
wait $pid
code=$?
[ $code -eq 130 ] || fail "interrupted: exit $code, wanted 130: $(cat int.err)"
[ "$(wc -l < int.err)" -eq 1 ] || fail "interrupted: wanted one line, found: $(cat int.err)"
stopped=$(sed -n 's/.*stopped after step \([0-9]*\).*/\1/p' int.err)
[ -n "$stopped" ] || fail "interrupted: $(cat int.err)"
steps=$((stopped + 3))
"$train" "${small[@]}" --plan part.json --data text:text.txt --steps $steps --resume int.state "$model" > rest.txt || fail "rest"
"$train" "${small[@]}" --plan part.json --data text:text.txt --steps $steps --seed 4 "$model" > long.txt || fail "$steps steps"
[ "$(grep sha256 long.txt)" = "$(grep sha256 rest.txt)" ] || fail "after an interrupt: other weights"

# The digest of the weights, computed from a state: all weights, then Adam's two moments of as many bytes.
large=(--set batch=1 --set tokens=8 --set hidden=192 --set blocks=3 --set heads=2)
"$plan" "${large[@]}" --threads 2 --strategy keep-all -o large.json "$model" > /dev/null || fail "plan, larger"
"$train" "${large[@]}" --plan large.json --steps 2 --save large.state "$model" > large.txt || fail "larger"
python3 - large.state "$(sed -n 's/^weights sha256 *//p' large.txt)" <<'EOF' || fail "the weights' digest is another (or there is no python3)"
import hashlib, sys
state = open(sys.argv[1], "rb").read()
sections = state[state.index(b"\n") + 1:-65]
weights = sections[:len(sections) // 3]
pieces = [hashlib.sha256(weights[at:at + 65536]).hexdigest() + "\n" for at in range(0, len(weights), 65536)]
assert len(weights) > 1 << 20 and len(weights) % 65536 != 0 and len(sections) % 3 == 0, len(weights)
assert hashlib.sha256("".join(pieces).encode()).hexdigest() == sys.argv[2]
EOF
"$train" "${large[@]}" --plan large.json --steps 0 --resume large.state --no-digest "$model" > large.txt || fail "--no-digest"
grep -q "^weights sha256  not computed (--no-digest)$" large.txt || fail "--no-digest: $(cat large.txt)"
"$train" "${large[@]}" --plan large.json --steps 0 --resume large.state --no-digest --json "$model" > large.txt ||
    fail "--no-digest --json"
grep -q '"weights_sha256": null,' large.txt || fail "--no-digest --json: $(cat large.txt)"
rm large.state

# JSON result.
"$train" "${small[@]}" --plan part.json --steps 2 --json "$model" > result.json || fail "--json"
grep -q '"weights_sha256": "[0-9a-f]\{64\}"' result.json || fail "--json: $(cat result.json)"
[ "$(wc -l < result.json)" -eq 1 ] || fail "--json: more than one line"
"$train" "${small[@]}" --plan part.json --steps 0 "$model" > zero.txt || fail "--steps 0"

# Compared with a profile: a table below the result, or in its JSON; the same weights as without one.
"$bin_dir/ckpt-profile" "${small[@]}" --repeats 3 --seconds 0.02 -o profile.json "$model" 2> /dev/null || fail "profile"
"$train" "${small[@]}" --plan part.json --data text:text.txt --steps 6 --seed 4 --profile profile.json "$model" > held.txt 2> held.err ||
    fail "--profile: $(cat held.err)"
[ "$(grep sha256 all.txt)" = "$(grep sha256 held.txt)" ] || fail "--profile: other weights"
for words in "against profile.json, measured by the host's clock" "^  forward " "^  recompute " "^  backward " "^  update " \
    "^  sum of layers " "^  this step " "^  median of 6 " "no layer runs in" "most different"; do
    grep -q "$words" held.txt || fail "--profile: no \"$words\" in: $(cat held.txt)"
done
"$train" "${small[@]}" --plan part.json --steps 3 --profile profile.json --trace held.json --json "$model" > held.result.json ||
    fail "--profile --json"
python3 - held.result.json held.json profile.json <<'EOF' || fail "--profile --json: wrong sums (or there is no python3)"
import json, sys
result, trace, profile = (json.load(open(path)) for path in sys.argv[1:])
against, phases = result["against"], ("forward", "recompute", "backward", "update")
row = {r["layer"]: r for r in profile["layers"]}
def foreseen(event, phase, direction):
    layer = row[event["layer"]]
    ways = [v["time"] for v in layer.get("variants", []) if (v["direction"], v["variant"]) == (direction, event.get("variant"))]
    first, back = layer["forward"]["median_ns"], layer["backward"]["median_ns"]
    again = min(layer.get("recompute", layer["forward"])["median_ns"], first + back)
    if not ways:
        return again if phase == "recompute" else layer[direction]["median_ns"]
    # A variant has the plan's time: that of a run again, and backward what the first run takes more.
    more = {"forward": again - first, "backward": first - again, "update": 0}[direction]
    return max(ways[0]["median_ns"] + more, ways[0]["median_ns"] // 2)
for phase in phases:
    of = [e for e in trace["events"] if e["phase"] == phase]
    direction = "forward" if phase == "recompute" else phase
    assert against[phase]["runs"] == len(of) > 0, phase
    assert against[phase]["measured_ns"] == sum(e["end_ns"] - e["start_ns"] for e in of), phase
    assert against[phase]["predicted_ns"] == sum(foreseen(e, phase, direction) for e in of) + (profile["step"]["overhead_ns"] if phase == "update" else 0), phase
assert against["layers"]["measured_ns"] == sum(against[phase]["measured_ns"] for phase in phases)
assert against["step"]["measured_ns"] == trace["time_ns"] and against["recorder"] == ""
assert len(against["most_different"]) == 5
EOF
sed 's/"layer": *"h.0.ln1"/"layer": "h.9.ln1"/' profile.json > renamed.profile.json
cmp -s profile.json renamed.profile.json && fail "the profile has no layer to rename"
refuse 2 "has no row for layer h.0.ln1" "$train" "${small[@]}" --plan part.json --profile renamed.profile.json "$model"
sed 's/"device": *"cpu: [^"]*"/"device": "cpu: Abacus, 2 threads"/' profile.json > abacus.json
refuse 2 'measured on "cpu: Abacus, 2 threads", and this is' "$train" "${small[@]}" --plan part.json --profile abacus.json "$model"
sed 's/"target": *"cpu"/"target": "gpu"/' profile.json > gpu.profile.json
refuse 2 "profile this device" "$train" "${small[@]}" --plan part.json --profile gpu.profile.json "$model"
refuse 2 "no-such-profile" "$train" "${small[@]}" --plan part.json --profile no-such-profile.json "$model"
sed 's/"output_bytes": *16384/"output_bytes": 8192/' profile.json > half.profile.json
cmp -s profile.json half.profile.json && fail "the profile has no output of 16384 bytes"
refuse 2 "profile this model" "$train" "${small[@]}" --plan part.json --profile half.profile.json "$model"

# The times of a run as a profile, alone and on top of another; what runs is the same.
"$train" "${small[@]}" --plan part.json --data text:text.txt --steps 6 --seed 4 --reprofile again.json "$model" > again.txt || fail "--reprofile"
[ "$(grep sha256 all.txt)" = "$(grep sha256 again.txt)" ] || fail "--reprofile: other weights"
grep -q "^planned again   in .* by again.json: .*" again.txt || fail "--reprofile says nothing of a new plan: $(cat again.txt)"
"$train" "${small[@]}" --plan part.json --steps 6 --profile profile.json --reprofile both.json --json "$model" > both.result.json ||
    fail "--reprofile on top of --profile"
for of in again both; do
    "$plan" "${small[@]}" --profile $of.json --strategy keep-all -o replanned.json "$model" > plan.txt || fail "a plan by $of.json"
    "$train" "${small[@]}" --plan replanned.json --profile $of.json --steps 1 "$model" > /dev/null || fail "training by $of.json"
done
python3 - again.json both.json profile.json part.json both.result.json <<'EOF' || fail "--reprofile: wrong profiles"
import json, sys
again, both, profile, plan, result = (json.load(open(path)) for path in sys.argv[1:])
assert [r["layer"] for r in again["layers"]] == [r["layer"] for r in profile["layers"]]
same = lambda p: [(r["op"], r.get("same_as"), *(r[k] for k in r if k.endswith("_bytes") and "workspace" not in k)) for r in p["layers"]]
assert same(again) == same(profile) == same(both)
for made in again, both:
    step = made["step"]
    assert step["time"]["repeats"] == 5, step  # all but the first
    assert made["machine"]["device"] == profile["machine"]["device"] and made["machine"]["command"].startswith("ckpt-train")
    assert 0 <= step["overhead_ns"] < step["time"]["median_ns"]
runs = [s for s in plan["steps"] if "run" in s]
again_layers = {s["run"].rsplit("/", 1)[0] for s in runs if s.get("again")}
timed = {r["layer"] for r in again["layers"] if "recompute" in r}
twins = {r.get("same_as") or r["layer"] for r in again["layers"] if r["layer"] in again_layers}
assert again_layers and timed == {r["layer"] for r in again["layers"] if (r.get("same_as") or r["layer"]) in twins}, timed
assert all("recompute" in r for r in both["layers"] if "recompute" in next(q for q in profile["layers"] if q["layer"] == r["layer"]))
# 40 rows of the base keep what layers alone take; without a base nobody knows it
assert any(r["forward"].get("alone_ns", 0) > 0 for r in both["layers"]) and "alone_ns" not in json.dumps(again["layers"])
found = result["reprofile"]
assert found["file"] == "both.json" and 0 < found["new_plan_ns"] <= found["this_plan_ns"], found
EOF
"$train" "${small[@]}" --plan part.json --steps 0 --reprofile none.json "$model" > /dev/null || fail "--reprofile of no step"
[ ! -e none.json ] || fail "--reprofile wrote a profile of no step"
"$plan" "${small[@]}" --threads 2 --micro-batches 2 --strategy keep-all -o two.plan.json "$model" > /dev/null || fail "micro-batches"
"$train" "${small[@]}" --plan two.plan.json --steps 3 --reprofile two.json "$model" > /dev/null || fail "--reprofile of micro-batches"
"$plan" "${small[@]}" --profile two.json "$model" > /dev/null || fail "a plan by a profile of micro-batches"
refuse 2 "would replace the file of --profile" "$train" "${small[@]}" --plan part.json --profile profile.json --reprofile profile.json "$model"
refuse 2 "needs a file, which - is not" "$train" "${small[@]}" --plan part.json --reprofile - "$model"
refuse 2 "there is nothing for --reprofile" "$train" "${small[@]}" --plan part.json --evaluate 1 --reprofile r.json "$model"

# Refusals.
refuse 2 "batch" "$train" --set batch=3 --set tokens=32 --set hidden=32 --set blocks=3 --set heads=2 --threads 2 \
    --plan part.json "$model"
refuse 2 'the plan is of graph "byte-gpt"' "$train" --plan part.json "$source_dir/models/mlp.json"
refuse 2 "plan FILE" "$train" "$model"
refuse 2 "model file" "$train" --plan part.json
refuse 2 "second" "$train" --plan part.json "$model" "$model"
refuse 2 "no-such-plan.json" "$train" "${small[@]}" --plan no-such-plan.json "$model"
refuse 2 "no-such-model.json" "$train" --plan part.json no-such-model.json
refuse 2 "steps takes a number" "$train" --plan part.json --steps many "$model"
refuse 2 "threads takes a number" "$train" --plan part.json --threads 0 "$model"
refuse 2 "save-every needs" "$train" --plan part.json --save-every 2 "$model"
refuse 2 "unknown option" "$train" --plan part.json --frobnicate "$model"
# A plan is for one kind of device: the other kind's is refused with the command that makes it.
refuse 2 "ckpt-plan --device h200" "$train" "${small[@]}" --plan part.json --device cuda:99 "$model"
"$plan" "${small[@]:0:10}" --strategy keep-all --device h200 -o gpu.json "$model" > /dev/null || fail "plan for a GPU"
refuse 2 "ckpt-plan --device cpu" "$train" "${small[@]}" --plan gpu.json "$model"
refuse 3 "cuda" "$train" "${small[@]:0:10}" --plan gpu.json --device cuda:99 "$model"
refuse 2 "threads" "$train" "${small[@]}" --plan gpu.json --device cuda:99 "$model"
# --budget is for the whole process.
refuse 3 "budget" "$train" "${small[@]}" --plan part.json --budget 1MB "$model"
refuse 3 "no plan fits" "$train" "${small[@]}" --plan part.json --budget 1kB "$model"
refuse 3 "no plan fits, a reserve" "$train" "${small[@]}" --plan part.json --budget 1GB --reserve 2GB "$model"
refuse 2 "budget" "$train" "${small[@]}" --plan part.json --reserve 2GB "$model"
"$train" "${small[@]}" --plan part.json --steps 1 --budget 1GB --reserve 100MB "$model" > /dev/null || fail "--budget"
# bfloat16: the same weights under any plan, and other ones than in float32.
for budget in 100% 85%; do
    "$plan" "${small[@]}" --budget $budget --dtype bfloat16 -o half.json "$model" > /dev/null || fail "plan in bfloat16"
    "$train" "${small[@]}" --plan half.json --dtype bfloat16 --data text:text.txt --steps 6 --seed 4 "$model" > half.$budget.txt ||
        fail "bfloat16 under $budget"
done
[ "$(grep sha256 half.100%.txt)" = "$(grep sha256 half.85%.txt)" ] || fail "bfloat16: other weights under another plan"
[ "$(grep sha256 half.100%.txt)" = "$(grep sha256 all.txt)" ] && fail "bfloat16: the weights of float32"
refuse 2 "dtype" "$train" "${small[@]}" --plan half.json "$model"
# What names no device is not taken for the other kind.
refuse 2 "no such device" "$train" "${small[@]}" --plan part.json --device cudax "$model"
refuse 2 "no such device" "$train" "${small[@]}" --plan gpu.json --device h200 "$model"
refuse 2 "no such device" "$train" "${small[@]}" --plan part.json --device abacus "$model"
refuse 2 "no such var" "$train" --set nothing=1 --plan part.json "$model"

# Refusals that come after the model and plan are fine print their first lines only then: nothing on stdout either.
refuse 2 "wanted text:FILE" "$train" "${small[@]}" --plan part.json --data tape:x "$model"
refuse 2 "cannot read" "$train" "${small[@]}" --plan part.json --data text:no-such-text "$model"
refuse 2 "float32" "$train" "${small[@]}" --plan part.json --data cifar10:text.txt "$model"
refuse 2 "seed 4" "$train" "${small[@]}" --plan part.json --resume half.state --seed 5 "$model"
refuse 2 "damaged" "$train" "${small[@]}" --plan part.json --resume text.txt "$model"
refuse 2 "cannot write" "$train" "${small[@]}" --plan part.json --log no/such/folder/log.csv "$model"
"$plan" "${small[@]}" --budget 1000000 -o none.json "$model" > /dev/null
[ $? -eq 1 ] || fail "a budget of 1 MB should be infeasible"
refuse 2 "infeasible" "$train" "${small[@]}" --plan none.json "$model"
sed 's/"arena_bytes": *[0-9]*/"arena_bytes": 64/' part.json > cut.json
refuse 2 "arena" "$train" "${small[@]}" --plan cut.json "$model"
sed 's/"run": *"h.0.ln1\/forward"/"run": "h.0.ln9\/forward"/' part.json > renamed.json
cmp -s part.json renamed.json && fail "the plan has no step to rename"
refuse 2 "ln9" "$train" "${small[@]}" --plan renamed.json "$model"
# The state of another model.
"$plan" --threads 2 --strategy keep-all -o mlp.json "$source_dir/models/mlp.json" > /dev/null || fail "mlp"
"$train" --threads 2 --plan mlp.json --steps 1 --save mlp.state "$source_dir/models/mlp.json" > /dev/null || fail "mlp"
refuse 2 'model "mlp"' "$train" "${small[@]}" --plan part.json --resume mlp.state "$model"
"$train" --help > help.txt || fail "--help"
grep -q "usage: ckpt-train" help.txt || fail "--help"
"$train" --version | grep -q "^ckpt-train [0-9]" || fail "--version"
echo "identical losses and weights planned, resumed and interrupted; refusals have one line"

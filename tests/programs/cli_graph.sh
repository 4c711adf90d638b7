#!/bin/bash
# ckpt-graph from the command line: lowers, writes, reads back, draws with and without a plan, refuses in one line.
set -u
source=$1 bin=$2 work=$3
models=$source/models
rm -rf "$work" && mkdir -p "$work" && cd "$work" || exit 1
# Graphviz and the font libraries keep what they read until the process ends.
printf 'leak:%s\n' libfontconfig libpango libgvc libcgraph libgvplugin libglib libltdl >suppressions
export LSAN_OPTIONS=suppressions=$work/suppressions:print_suppressions=0
failed=0
fail() { echo "FAILED: $*"; failed=1; }

graph() { "$bin/ckpt-graph" "$@"; }

refuse() {
    local code=$1 words=$2
    shift 2
    graph "$@" >out 2>err
    local got=$?
    [ $got -eq "$code" ] || fail "ckpt-graph $*: exit $got, wanted $code"
    [ "$(wc -l <err)" -eq 1 ] || fail "ckpt-graph $*: $(wc -l <err) lines on stderr, wanted 1"
    grep -q -- "$words" err || fail "ckpt-graph $*: stderr is '$(cat err)', wanted '$words'"
    [ -s out ] && fail "ckpt-graph $*: something on stdout"
}

graph "$models/mlp.json" --threads 2 -o mlp.json || fail "lowering"
graph mlp.json -o again.json || fail "reading a graph"
cmp mlp.json again.json || fail "a graph read and written is another"
graph - --threads 2 < <(cat "$models/mlp.json") >dash.json || fail "standard input"
cmp mlp.json dash.json || fail "standard input gives another graph"
graph "$models/mlp.json" --threads 2 --set batch=3 >batch.json || fail "--set"
cmp -s mlp.json batch.json && fail "--set batch=3 changes nothing"

graph mlp.json -o mlp.dot || fail "dot"
graph mlp.json -o mlp.svg || fail "svg"
graph mlp.json -f svg -o - >dash.svg || fail "svg on standard output"
cmp mlp.svg dash.svg || fail "two SVGs of one graph differ"
graph mlp.json -o mlp.png || fail "png"
[ "$(head -c 4 mlp.png | tail -c 3)" = PNG ] || fail "no PNG"
graph mlp.json -o mlp.pdf || fail "pdf"
[ "$(head -c 4 mlp.pdf)" = %PDF ] || fail "no PDF"
python3 - mlp.json mlp.svg <<'EOF' || fail "the drawing does not show the graph (or there is no python3)"
import json, sys, xml.etree.ElementTree as tree
graph = json.load(open(sys.argv[1]))
assert graph["format"] == "ckpt-graph/1"
layers = [op["layer"] for op in graph["ops"] if op["phase"] == "forward"]
svg = tree.parse(sys.argv[2]).getroot()
shown = [t.text for t in svg.iter("{http://www.w3.org/2000/svg}text")]
missing = [layer for layer in layers if layer not in shown]
assert not missing, missing
EOF

# With a plan.
graph "$models/byte-gpt.json" --threads 2 -o gpt.json || fail "lowering byte-gpt"
"$bin/ckpt-plan" --strategy sqrt gpt.json -o plan.json >/dev/null 2>err || fail "ckpt-plan: $(cat err)"
graph gpt.json --plan plan.json -o plan.dot || fail "drawing a plan"
grep -q 'label="recomputed: [1-9]' plan.dot || fail "no recomputed layer in the drawing of a sqrt plan"
refuse 2 'the plan is of graph "byte-gpt"' batch.json --plan plan.json -o wrong.svg

# Ops that a plan recomputes together have a frame. The cost shown is the time of recomputations, in all frames and boxes.
python3 - gpt.json plan.json plan.dot <<'EOF' || fail "the frames of the drawing are not the plan's runs again"
import json, re, sys
graph, plan, dot = json.load(open(sys.argv[1])), json.load(open(sys.argv[2])), open(sys.argv[3]).read()
forward = [op["name"] for op in graph["ops"] if op["phase"] == "forward"]
group, first_runs = {}, 0
for step in plan["steps"]:
    if step.get("again"):
        group.setdefault(step["run"], first_runs)
    elif "run" in step:
        first_runs += 1
runs, before = [], None
for name in forward:  # neighbours of one group
    if name in group:
        if group[name] != before:
            runs.append(0)
        runs[-1] += 1
    before = group.get(name)
frames = re.findall(r'label="saves [0-9.]+ [kMG]?B, costs', dot)
assert len(frames) == sum(n > 1 for n in runs) > 1, (len(frames), runs)
EOF

# The same for Netron.
for name in mlp.json gpt.json "$models/byte-gpt.json" "$models/unet.json"; do
    graph "$name" -o of.json 2>/dev/null || fail "reading $name"
    graph "$name" --format netron -o netron.json || fail "netron: $name"
    python3 "$source/tests/programs/netron_check.py" of.json netron.json || fail "Netron could not show $name"
done
graph gpt.json --plan plan.json -f netron >netron.json || fail "netron with a plan"
python3 "$source/tests/programs/netron_check.py" gpt.json netron.json plan.json || fail "Netron could not show a plan"
graph "$models/byte-gpt.json" --dtype bfloat16 -f netron | grep -q '"elem_type": 16' || fail "no bfloat16 in Netron's file"
python3 - "$source" <<'EOF' || fail "a hostile name comes out of Netron's file as another"
import json, subprocess, sys
names = ['"]}', "</script>", "a\nb\t", "\u2028 \u00e9", "x" * 10000, "\\"]
graph = {"format": "ckpt-graph/1", "name": "h", "static": [], "buffers": [{"name": n, "bytes": 5} for n in names],
         "ops": [{"name": n, "phase": "forward", "layer": n, "time_ns": 1, "reads": names[i - 1:i], "writes": [n], "segment": n}
                 for i, n in enumerate(names)], "outputs": []}
json.dump(graph, open("hostile.json", "w"))
EOF
graph hostile.json -f netron -o hostile_netron.json || fail "netron: hostile names"
python3 "$source/tests/programs/netron_check.py" hostile.json hostile_netron.json || fail "hostile names in Netron's file"
for format in svg dot pdf; do
    graph hostile.json -f $format >hostile.$format || fail "hostile names as $format"
done

# The drawing of a plan that does not fit said "peak 0 B".
"$bin/ckpt-plan" --budget 1kB gpt.json -o infeasible.json >/dev/null 2>&1
graph gpt.json --plan infeasible.json -o infeasible.dot || fail "drawing an infeasible plan"
grep -q 'does not fit, minimum budget [1-9].*, budget 1.00 kB' infeasible.dot || fail "an infeasible plan is not drawn as one"
grep -q 'peak' infeasible.dot && fail "an infeasible plan has a peak"

# Blocks that repeat are drawn once where all would be too large to read, or beyond as many as --fold says.
graph "$models/gpt2-1.5b.json" --threads 2 -o gpt2.dot || fail "gpt2-1.5b"
grep -q 'label="h.0 … h.47 ×48' gpt2.dot || fail "48 blocks are not one"
graph gpt.json -f dot | grep -q '×' && fail "a small graph is folded"
graph gpt.json -f dot --fold 20 | grep -q 'label="h.0 … h.5 ×6' || fail "--fold 20 does not fold"

# 299 layers of bert-large, one less than were folded then, made a picture of 4,368 points.
graph "$models/bert-large.json" --threads 2 -o bert.svg || fail "bert-large"
python3 - bert.svg <<'EOF' || fail "bert-large is too large to read"
import re, sys
size = [int(n) for n in re.search(r'<svg width="(\d+)pt" height="(\d+)pt"', open(sys.argv[1]).read()).groups()]
print("bert-large:", size)
sys.exit(max(size) > 2600)
EOF

# The largest model there is must not take forever or fail.
for model in "$models"/gpt2-1.5b.json "$models"/densenet-bc-100-12.json; do
    timeout 60 "$bin/ckpt-graph" "$model" -o large.svg || fail "$model"
done

# For a GPU, and in bfloat16: a copy of the weights, half the activations.
graph "$models/mlp.json" --device h200 --dtype bfloat16 -o narrow.json || fail "lowering in bfloat16"
grep -q '"name": "weights16"' narrow.json || fail "no bfloat16 copy of the weights"
graph "$models/mlp.json" --device h200 -o wide.json || fail "lowering for a GPU"
grep -q 'weights16' wide.json && fail "a bfloat16 copy of the weights in float32"
python3 - wide.json narrow.json <<'EOF' || fail "bfloat16 does not halve the activations"
import json, sys
wide, narrow = [{b["name"]: b["bytes"] for b in json.load(open(name))["buffers"]} for name in sys.argv[1:]]
assert wide.keys() == narrow.keys() and all(narrow[n] <= wide[n] for n in wide)
assert 0.5 <= sum(narrow.values()) / sum(wide.values()) < 0.51
EOF
refuse 2 "wanted float32 or bfloat16" "$models/mlp.json" --dtype int32
refuse 2 "is of a GPU" "$models/mlp.json" --device h200 --threads 2
refuse 2 "are for models" narrow.json --dtype bfloat16

graph --help | grep -q "usage: ckpt-graph" || fail "help"
refuse 2 "wanted a model"
refuse 2 "nowhere.json" nowhere.json
refuse 2 "gif" mlp.json -o mlp.gif
refuse 2 "two files" mlp.json mlp.json
refuse 2 "threads" mlp.json --threads 0
refuse 2 "--fold takes a number from 1 to 1000000, found .0." mlp.json --fold 0 -o mlp.svg
refuse 2 "for drawings" mlp.json --fold 20
refuse 2 "json, dot, svg" mlp.json -f onnx
refuse 2 "are for models" mlp.json --set batch=3
refuse 2 "colours a drawing" mlp.json --plan plan.json
refuse 2 "nothing" "$models/mlp.json" --set nothing=3
echo '{"format": "ckpt-plan/1"}' >kind.json
refuse 2 "kind.json:1:" kind.json
echo '[]' >list.json
refuse 2 "list.json:1:" list.json
refuse 2 "^ckpt-graph: standard input:2:1: " - < <(echo '{')
exit $failed

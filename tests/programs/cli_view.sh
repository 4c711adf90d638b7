#!/bin/bash
# ckpt-view from the command line: formats by extension, -, refusals in one line, and an XML parser over every SVG.
set -u
source=$1 bin=$2 work=$3
golden=$source/tests/golden
rm -rf "$work" && mkdir -p "$work" && cd "$work" || exit 1
unset COLUMNS LINES CLICOLOR_FORCE
export LC_ALL=C.UTF-8
# Cairo's font library keeps what it read until the process ends.
echo "leak:libfontconfig" >suppressions
export LSAN_OPTIONS=suppressions=$work/suppressions:print_suppressions=0
failed=0
fail() { echo "FAILED: $*"; failed=1; }

view() { "$bin/ckpt-view" "$@"; }

# check <exit> <words on stderr> arguments...
refuse() {
    local code=$1 words=$2
    shift 2
    view "$@" >out 2>err
    local got=$?
    [ $got -eq "$code" ] || fail "ckpt-view $*: exit $got, wanted $code"
    [ "$(wc -l <err)" -eq 1 ] || fail "ckpt-view $*: $(wc -l <err) lines on stderr, wanted 1"
    grep -q -- "$words" err || fail "ckpt-view $*: stderr is '$(cat err)', wanted '$words'"
    [ -s out ] && fail "ckpt-view $*: something on stdout"
}

# The same bytes as the library's goldens.
view "$golden/predicted.json" "$golden/measured.json" -o two.svg || fail "svg"
cmp two.svg "$golden/view_two.svg" || fail "svg differs from the golden"
view "$golden/predicted.json" "$golden/measured.json" >two.txt || fail "txt"
cmp two.txt "$golden/view_two.txt" || fail "txt differs from the golden (and has colours or another width?)"
view "$golden/predicted.json" "$golden/measured.json" -o two.file.txt || fail "txt by extension"
cmp two.txt two.file.txt || fail "a file and a pipe differ"
view - "$golden/measured.json" <"$golden/predicted.json" --format=svg -o - >dash.svg || fail "- in and out"
cmp dash.svg two.svg || fail "standard input gives another picture"
view "$golden/predicted.json" "$golden/measured.json" "$golden/keep_all.json" --axis time --width 800 -o time.svg ||
    fail "time"
cmp time.svg "$golden/view_three_time.svg" || fail "time axis differs from the golden"
NO_COLOR=1 view "$golden/predicted.json" | grep -q $'\033' && fail "colours in spite of NO_COLOR"
COLUMNS=140 view "$golden/predicted.json" >wide.txt || fail "a wide terminal"
[ "$(wc -L <wide.txt)" -gt 110 ] || fail "COLUMNS is not obeyed"
LC_ALL=C view "$golden/predicted.json" "$golden/measured.json" >ascii.txt || fail "another locale"
grep -qP '[^\x20-\x7e]' ascii.txt && fail "more than ASCII where the locale has no more"
LC_ALL='' LC_CTYPE='' LANG=de_DE.utf8 view "$golden/predicted.json" "$golden/measured.json" | cmp - two.txt ||
    fail "LANG is not obeyed"

view "$golden/predicted.json" -W 640 -H 700 -o small.png || fail "png"
[ "$(head -c 4 small.png | tail -c 3)" = PNG ] || fail "no PNG"
[ "$(od -A n -t u1 -j 18 -N 2 small.png | tr -s ' ')" = " 2 128" ] || fail "the PNG is not 640 wide"
view "$golden/predicted.json" -o one.pdf || fail "pdf"
[ "$(head -c 4 one.pdf)" = %PDF ] || fail "no PDF"
python3 - two.svg time.svg <<'EOF' || fail "an SVG is not well-formed (or there is no python3)"
import sys, xml.etree.ElementTree as tree
for path in sys.argv[1:]:
    root = tree.parse(path).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg", root.tag
    width, height = float(root.get("width")), float(root.get("height"))
    texts = [t for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert len(texts) > 40, len(texts)
    for t in texts:
        assert 0 <= float(t.get("x")) <= width and 0 <= float(t.get("y")) <= height, t.text
EOF
# The outline's height at the middle of every step is one straight function of the trace's bytes.
python3 - "$golden/measured.json" two.svg <<'EOF' || fail "the outline does not follow the trace"
import json, re, sys, xml.etree.ElementTree as tree
trace = json.load(open(sys.argv[1]))
steps = next(value for value in trace.values() if isinstance(value, list))
bytes_of = [sum(n for k, n in step["bytes"].items() if k != "outside") for step in steps]
paths = [p for p in tree.parse(sys.argv[2]).getroot().iter("{http://www.w3.org/2000/svg}path")
         if p.get("stroke") == "#1a1a1a" and p.get("stroke-width") == "1.8"]
d = max((p.get("d") for p in paths), key=len)
x, y = map(float, re.match(r"M(\S+) ([^hv]+)", d).groups())
left, points = x, [(x, y)]
for move, length in re.findall(r"([hv])(-?[0-9.]+)", d):
    x, y = (x + float(length), y) if move == "h" else (x, y + float(length))
    points.append((x, y))
width = x - left
def height(at):
    return next(p[1] for p, q in zip(points, points[1:]) if p[0] <= at < q[0])
heights = [height(left + width * (i + 0.5) / len(steps)) for i in range(len(steps))]
low, high = bytes_of.index(min(bytes_of)), bytes_of.index(max(bytes_of))
slope = (heights[high] - heights[low]) / (bytes_of[high] - bytes_of[low])
assert slope < 0
for i, n in enumerate(bytes_of):
    wanted = heights[low] + slope * (n - bytes_of[low])
    assert abs(heights[i] - wanted) < 0.25, (i, heights[i], wanted)
EOF

# A plan by itself, in a narrow terminal and in every format; the device's memory from the command line.
"$bin/ckpt-plan" --effort 0 -d h200 -b 60% "$source/models/byte-gpt.json" -o a.plan >/dev/null || fail "no plan"
COLUMNS=40 view a.plan >narrow.txt || fail "a plan in a narrow terminal"
[ "$(wc -L <narrow.txt)" -le 40 ] || fail "$(wc -L <narrow.txt) columns in a terminal of 40"
grep -q "budget 3" narrow.txt && grep -q "live at" narrow.txt || fail "no budget or table in the terminal"
for format in svg png pdf txt html json csv; do
    view a.plan --capacity 400MB -o "all.$format" || fail "a plan as $format"
    [ -s "all.$format" ] || fail "an empty $format"
done
view a.plan --capacity 400MB -f json | grep -q '"name": "capacity".*"bytes": 400000000' || fail "no capacity"
view a.plan "$golden/measured.json" -o mixed.svg || fail "a plan and a trace"

# A sweep, told from a trace by its format alone.
"$bin/ckpt-plan" --sweep 3 --effort 0 -d h200 "$source/models/mnist-conv.json" -o sweep.json >/dev/null ||
    fail "no sweep"
for format in svg png pdf txt; do
    view sweep.json -o "curve.$format" && [ -s "curve.$format" ] || fail "a sweep as $format"
done
grep -q "over keep-all" curve.txt || fail "no curve in the terminal"
refuse 2 "sweep.json: found a sweep, which cannot be drawn as html" sweep.json -o curve.html
refuse 2 "found a trace beside the sweep" sweep.json "$golden/measured.json"
refuse 2 "found a second sweep" sweep.json sweep.json

view --help | grep -q "usage: ckpt-view" || fail "help"
view --version | grep -q "ckpt-view" || fail "version"
refuse 2 "no plan, trace or sweep"
refuse 2 "nowhere.json" nowhere.json
refuse 2 "gif" "$golden/predicted.json" -o one.gif
refuse 2 "extension" "$golden/predicted.json" -o one
refuse 2 "axis" "$golden/predicted.json" --axis=z
refuse 2 "width" "$golden/predicted.json" --width 0
refuse 2 "height" "$golden/predicted.json" --height 1x
# shellcheck disable=SC2046
refuse 2 "more than 64" $(seq 65)
one=$golden/predicted.json
refuse 2 "found 9 traces, wanted 1 to 8" "$one" "$one" "$one" "$one" "$one" "$one" "$one" "$one" "$one"
refuse 2 "unknown\|--frob" --frob
echo '{"format": "ckpt-trace/1", "name": "x"' >broken.json
refuse 2 "broken.json:2:1: " broken.json
echo '{"format": "ckpt-graph/1", "name": "x"}' >graph.json
refuse 2 "graph.json: found a graph, .*ckpt-graph draws it" graph.json
refuse 2 "capacity" "$golden/predicted.json" --capacity 6G
echo '{"format": "ckpt-plan/1"}' >plan.json
refuse 2 "plan.json:1:" plan.json
refuse 2 "no-such-folder" "$golden/predicted.json" -o no-such-folder/a.svg
exit $failed

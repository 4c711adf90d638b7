#!/usr/bin/env bash
# labels: cli; long under sanitizers
# The forms of a comparison for others: Markdown, CSV, JUnit and HTML hold what the JSON holds, with hostile names too;
# JUnit against its schema; annotations for GitHub. Arguments: source folder, folder of the programs, work folder.
set -euo pipefail
source=$1 bin=$2 work=$3
rm -rf "$work"
mkdir -p "$work"
cd "$work"
fail() { echo "FAILED: $*"; exit 1; }
plan() { "$bin/ckpt-plan" --effort 0 "$source/models/byte-gpt.json" --set batch=4 --set hidden=96 --set blocks=3 --threads 2 "$@" >/dev/null; }

plan --budget 80% -o base.json
plan --budget 60% -o new.json
# The same with names that no form may take for its own: two layers that the report names, everywhere they stand.
python3 - <<'P'
import json
layers = [json.load(open(f"{name}.json", encoding="utf-8"))["layers"] for name in ("base", "new")]
changed = [n for n in layers[0] if layers[0][n] != layers[1][n]]
one, other = [n for n in changed if n.endswith(".fc")][-1], changed[0]
assert one != other, changed
for name in ("base", "new"):
    text = open(f"{name}.json", encoding="utf-8").read()
    hostile = "%0A::error::</code><img src=x onerror=alert(1)>|`a``b`@everyone*_[x](y)\u2028&amp;\x01\"',;</script>"
    text = text.replace(one, json.dumps(hostile, ensure_ascii=True)[1:-1]).replace(other, "=1+1," + "n" * 10000)
    open(f"hostile-{name}.json", "w", encoding="utf-8").write(text)
P

# forms NAME STATUS OPTION...: all forms of one comparison, held against its JSON and the schema
forms() {
    local name=$1 status=0 want=$2
    shift 2
    "$bin/ckpt-compare" "$@" -o "$name.json.report" -f json >/dev/null 2>&1 || true
    "$bin/ckpt-compare" --json "$@" >"$name.report.json" || status=$?
    [ $status = "$want" ] || fail "$name: exit $status, wanted $want"
    "$bin/ckpt-compare" "$@" -o "$name.md" -o "$name.csv" -o "$name.xml" -o "$name.html" >/dev/null || true
    python3 "$source/tests/programs/compare_forms.py" "$name.report.json" "$name.md" "$name.csv" "$name.xml" "$name.html"
    if command -v xmllint >/dev/null; then
        xmllint --noout --nonet --schema "$source/tests/programs/junit.xsd" "$name.xml" 2>said || fail "$name: $(cat said)"
    else
        [ -z "${CI:-}" ] || fail "xmllint is not installed"
    fi
}
rm -f ./*.report
forms same 0 base.json base.json
forms change 0 base.json new.json
forms limit 1 --max-increase step_time=0.1% base.json new.json
forms strict 1 --exit-code base.json new.json
forms two 0 base.json new.json base.json
forms warned 0 --warn-only --max-increase step_time=0.1% base.json new.json
plan --budget 1% -o tight.json || [ $? = 1 ]
forms lost 1 --exit-code base.json tight.json
forms still 0 --exit-code tight.json tight.json
forms neither 1 --max peak=6GiB tight.json tight.json
plan --sweep 3 -o base-sweep.json
python3 - <<'P'
import json
sweep = json.load(open("base-sweep.json", encoding="utf-8"))
for point in sweep["points"]:
    point["time_ns"] += 1000000
    point.pop("bound", None)
json.dump(sweep, open("sweep.json", "w", encoding="utf-8"))
P
forms sweeps 1 --exit-code --max-increase step_time=0 base-sweep.json sweep.json
forms hostile 1 --exit-code --max-increase step_time=0 hostile-base.json hostile-new.json
for form in md csv xml html; do
    grep -q onerror hostile.$form || fail "hostile.$form: the name is not there, so nothing was tried"
done
! grep -q '^[^"]*,=1+1' hostile.csv && grep -q "'=1+1" hostile.csv || fail "hostile.csv: a name became a formula"
grep -qF 'alert(1)>\|`a``b`' hostile.md || fail "hostile.md: a bar ends a cell"
plan --budget 60% --threads 1 -o other.json
forms other 4 base.json other.json
forms forced 0 --force base.json other.json
# A changed model: the layers, and what was set, stand in every form.
sed 's/"blocks": [0-9]*/"blocks": 2/' "$source/models/byte-gpt.json" >shallow-model.json
"$bin/ckpt-plan" --effort 0 shallow-model.json --set batch=4 --set hidden=96 --set tokens=128 --threads 2 --budget 80% -o model.json >/dev/null
forms model 1 --max-increase step_time=0,static=0 model.json base.json
for form in report.json md csv xml html; do
    grep -q 'tokens=128' model.$form || fail "model.$form: what was set is not there"
done
# Six changes of a model, in all forms.
sed 's/{ "name": "out", "op": "linear"/{ "name": "drop3", "op": "dropout", "p": 0.1 }, &/' "$source/models/byte-gpt.json" >dropped-model.json
small() { "$bin/ckpt-plan" --effort 0 --threads 2 --budget 80% "$@" >/dev/null; }
small "$source/models/byte-gpt.json" --set hidden=96 --set blocks=3 --set batch=4 -o six.json
small "$source/models/byte-gpt.json" --set hidden=96 --set blocks=3 --set batch=4 --set tokens=320 -o tokens.json
small "$source/models/byte-gpt.json" --set hidden=96 --set blocks=3 --set batch=6 -o batch.json
small dropped-model.json --set hidden=96 --set blocks=3 --set batch=4 -o dropped.json
small "$source/models/byte-gpt.json" --set hidden=96 --set blocks=2 --set batch=4 -o block.json
small "$source/models/byte-gpt.json" --set hidden=120 --set blocks=3 --set batch=4 -o wider.json
small "$source/models/byte-gpt.json" --set hidden=96 --set blocks=3 --set batch=4 --optimizer sgd -o sgd.json
for change in tokens batch dropped block wider sgd; do
    forms $change-of-six 0 six.json $change.json
done
[ "$(grep -c '<failure' limit.xml)" = 1 ] && grep -q 'type="limit"' limit.xml || fail "limit.xml: $(grep failure limit.xml)"
[ "$(grep -c '<error' other.xml)" = 1 ] || fail "other.xml: $(cat other.xml)"
# The schema can say no.
sed 's/failures="1"/failures="one"/' limit.xml >wrong.xml
! xmllint --noout --nonet --schema "$source/tests/programs/junit.xsd" wrong.xml 2>/dev/null || fail "the schema takes anything"

# GitHub: the summary grows, annotations are one line each, and nothing in a name becomes a command.
: >summary.md
status=0
GITHUB_STEP_SUMMARY=$work/summary.md "$bin/ckpt-compare" --github --max-increase step_time=0.1% hostile-base.json \
    hostile-new.json >said || status=$?
[ $status = 1 ] || fail "--github: exit $status"
[ "$(grep -c '^::error file=' said)" = 1 ] && [ "$(grep -c '^::notice ' said)" = 1 ] || fail "--github: $(grep '^::' said)"
grep -q '^::error .*%250A::error::' said || fail "a name has a line end of its own: $(grep '^::' said)"
[ "$(grep -c '^::' said)" = 2 ] || fail "a name became a command: $(grep '^::' said)"
grep -q '^| metric ' summary.md || fail "summary: $(head -5 summary.md)"
before=$(wc -c <summary.md)
GITHUB_STEP_SUMMARY=$work/summary.md "$bin/ckpt-compare" --github --warn-only --max-increase step_time=0.1% base.json \
    new.json >said || fail "--warn-only: exit $?"
[ "$(wc -c <summary.md)" -gt "$before" ] || fail "the summary was written over"
[ "$(grep -c '^::warning ' said)" = 1 ] || fail "--warn-only: $(grep '^::' said)"
# A summary that is nearly full keeps below GitHub's 1 MiB, and lists what it omits.
head -c $((1048576 - $(wc -c <change.md) * 7 / 8)) /dev/zero | tr '\0' 'x' >full.md
GITHUB_STEP_SUMMARY=$work/full.md "$bin/ckpt-compare" --github base.json new.json >/dev/null || fail "full: exit $?"
grep -q 'not shown here' full.md || fail "it fits: nothing was tried"
[ "$(wc -c <full.md)" -le 1048576 ] || fail "the summary has $(wc -c <full.md) bytes"
echo "forms agree, JUnit is valid, GitHub is told"

#!/bin/bash
# ckpt-plan --check: a plan that is what the planner gives passes in one line; a changed model, another budget, an edited
# plan fail with what changed and the command that mends it; what cannot be checked is bad input. Nothing is written.
# Arguments: source folder, folder of the programs, work folder.
set -u
source_dir=$1 bin=$2 work=$3
rm -rf "$work" && mkdir -p "$work" && cd "$work" || exit 1
plan=$bin/ckpt-plan
failures=0
fail() { echo "FAIL: $*"; failures=$((failures + 1)); }

# check CODE ARGS...: exit code; for bad input exactly one line on standard error and none on standard output
check() {
    local code=$1; shift
    "$plan" "$@" >out.txt 2>err.txt
    local got=$?
    [ $got -eq "$code" ] || fail "ckpt-plan $*: exit $got, wanted $code: $(cat out.txt err.txt)"
    if [ "$code" -eq 2 ]; then
        [ "$(wc -l <err.txt)" -eq 1 ] && [ ! -s out.txt ] || fail "ckpt-plan $*: $(cat out.txt err.txt)"
    elif [ -s err.txt ]; then
        fail "ckpt-plan $*: standard error says $(cat err.txt)"
    fi
}
says() { grep -q -- "$1" out.txt || fail "lacks '$1': $(cat out.txt)"; }
complains() { grep -q -- "$1" err.txt || fail "lacks '$1': $(cat err.txt)"; }
lacks() { ! grep -q -- "$1" out.txt || fail "says '$1': $(cat out.txt)"; }

# Without variants, which would make room without recomputation.
smooth() { sed 's/"relu"/"tanh"/; s/"dropout", "p": [0-9.]*/"tanh"/' "$source_dir/models/mnist-conv.json"; }
smooth >model.json
"$plan" -e 0 --budget 95% -t 2 -o plan.json model.json >/dev/null || fail "no plan"
cp plan.json committed.json
grep -q '"options": \["--budget", "95%", "--effort", "0", "--threads", "2", "model.json"\]' plan.json ||
    fail "options: $(grep '"options"' plan.json)"

# What the planner gives: one line. The model may be named, from another place too.
check 0 --check plan.json
[ "$(wc -l <out.txt)" -eq 1 ] || fail "more than a line: $(cat out.txt)"
says '^plan.json: as planned: mnist-conv, peak 47.7 MB of 50.6 MB'
smooth >again.json
check 0 --check plan.json again.json
check 0 --check plan.json --set batch=64 --threads 2
check 0 --check plan.json --json
says '"good": true, "same": true, "same_graph": true, "fits": true'

# The number of threads is the plan's, not that of the machine that checks.
"$plan" -e 0 --budget 95% -o default.json model.json >/dev/null
grep -q '"--threads", "[0-9]*"' default.json || fail "the machine's threads are not recorded"

check 1 --check plan.json --threads 1
says '^target  *2 threads -> 1 thread$'
says '^planner  *another plan with the same peak and time' # with other workspaces
check 1 --check plan.json --threads 1 --json
says '"same": false, "same_graph": true, "fits": true, "same_steps": false'
says '"now": .*"target": "cpu", "threads": 1 }'

# A budget of some bytes less changes nothing but that.
check 1 --check plan.json --budget 50.5MB
says '^planner  *the same steps and allocations, of which the file says something else: peak 47.7 MB, step 26.4 ms$'
lacks '^target'
check 1 --check plan.json --budget 50.5MB --json
says '"same": false, "same_graph": true, "fits": true, "same_steps": true'

# Another batch: the graph has changed, and what of it.
check 1 --check plan.json --set batch=80
says '^plan.json: of another graph'
says 'graph .*[0-9] buffers of another size (conv2 9.44 MB -> 11.8 MB, conv2/grad .* -> .*, [0-9]* more)' # the largest first
says 'static block.* of another size (inputs'
says '^planner .*peak 47.7 MB -> .* MB (+[0-9]* bytes)'
says '^write it   ckpt-plan -o plan.json --budget 95% --effort 0 --set batch=80 --threads 2 model.json$'
check 1 --check plan.json --set batch=80 --json
says '"same_graph": false, "fits": null'
says '{ "change": "resized", "what": "static block", "name": "inputs"'

# A layer more: its ops and buffers came. The command that is named mends it.
sed -i 's/{ *"name": "relu3"/{ "name": "extra", "op": "relu" }, &/' model.json
check 1 --check plan.json
says '[0-9]* ops came (extra/'
says 'buffers\{0,1\} came (.*extra'
eval "$(sed -n "s#^write it   ckpt-plan#$plan#p" out.txt)" >/dev/null || fail "the command does not run"
check 0 --check plan.json
cp plan.json extra.json
smooth >model.json
check 1 --check plan.json
says 'ops went (extra/'
cp committed.json plan.json

# A smaller budget: it does not fit, and what would.
check 1 --check plan.json --budget 47MB
says '^plan.json: does not fit'
says '^budget  *50.6 MB -> 47.0 MB'
says '^fits  *no: it takes 47.7 MB, .* more than the budget'
says '^planner  *finds no plan within 47.0 MB; one was found within 47.7 MB'
lacks 'write it'
check 1 --check plan.json --budget 100%
says '^plan.json: not what the planner gives'
says 'another plan: peak 47.7 MB -> 53.2 MB (+5537792 bytes), step 26.4 ms -> 26.2 ms (-0.73 %)'
says '^layers  *2 of 13 decided otherwise: conv1 recompute -> keep, relu1 recompute -> keep$'
lacks '^fits'

# What was set is in the plan; a policy of the command line stands instead of it.
"$plan" -e 0 --policy 'tanh=recompute,*=save' --checkpoint conv1 -t 2 -o set.json model.json >/dev/null 2>&1 || fail "no plan"
check 0 --check set.json
check 1 --check set.json --policy '*=save'
says "^write it   ckpt-plan -o set.json .*--policy '\\*=save' --threads 2 model.json$"
lacks 'tanh=recompute'

# Edited by hand: the checker finds it, or the figures are not the planner's.
python3 - <<'PYTHON'
import json

plan = json.load(open("plan.json"))
def write(name, **changes):
    json.dump({**plan, **changes}, open(name, "w"))
places = [dict(place) for place in plan["places"]]
big = sorted(places, key=lambda place: -place["bytes"])
for place in big[:6]:
    place["offset"] = 0
write("places.json", places=places)
steps = [dict(step) for step in plan["steps"]]
at = next(i for i in range(len(steps) - 1) if "free" in steps[i] and "free" in steps[i + 1])
steps[at], steps[at + 1] = steps[at + 1], steps[at]
write("order.json", steps=steps)
write("arena.json", summary={**plan["summary"], "arena_bytes": plan["summary"]["arena_bytes"] + 4000000})
write("time.json", summary={**plan["summary"], "time_ns": 1})
write("old.json", options=[])
write("unknown.json", options=["--budget", "95%", "--output", "x", "model.json"])
write("cut.json", options=["--effort", "0", "--budget"])
write("wrong.json", options=["--effort", "17", "model.json"])
write("pipe.json", options=["--budget", "95%", "--effort", "0", "--threads", "2"])
write("start.json", options=["--budget", "95%", "--effort", "0", "--start", "a.json", "--threads", "2", "model.json"])
outline = {key: value for key, value in plan["graph"].items() if key in ("name", "sha256")}
write("bare.json", graph=outline)
times = json.loads(json.dumps(plan["graph"]))
times["ops"][0]["time_ns"] += 5
times["ops"][1]["time_ns"] -= 5
write("times.json", graph=times)
hostile = json.loads(json.dumps(plan).replace("relu1", "re\\u001b[31mlu'</script>"))
json.dump(hostile, open("hostile.json", "w"))
PYTHON
check 1 --check places.json
says '^places.json: does not fit'
says '^fits  *no: .*allocation'
lacks 'the same steps'
check 2 --check arena.json
complains 'arena.json:[0-9:]* static block of 19399168 bytes and arena of 32311616 exceed the budget of 50586147$'
check 1 --check order.json
says 'another plan with the same peak and time'
lacks '^target'
check 2 --check time.json
complains 'time.json:[0-9:]* "time_ns" is 1, but the steps make [0-9]*$'
check 1 --check times.json
says '^times  *of 2 ops changed'
check 0 --check bare.json
check 1 --check bare.json --set batch=80
says 'graph .*does not say what it was'
check 1 --check hostile.json
! grep -q "$(printf '\033')" out.txt || fail "control characters reach the terminal"

# What cannot be checked says so.
check 2 --check old.json
complains 'old.json: found no "options"'
check 2 --check unknown.json
complains 'found "--output", wanted options of ckpt-plan'
check 2 --check cut.json
check 2 --check wrong.json
complains '--effort'
check 2 --check pipe.json
complains 'does not say what it was made of'
check 0 --check pipe.json model.json
check 2 --check nowhere.json
check 2 --check model.json
check 2 --check plan.json nowhere.json
check 2 --check plan.json -o other.json
complains 'writes no file'
check 2 --check plan.json --time-limit 3
check 2 --check plan.json --sweep 3
check 2 --check plan.json --profile nowhere.json

# A plan that was left to chance: whether it fits, and no more.
check 0 --check start.json
says 'start.json: fits: .*made with --start, so whether it would be planned again cannot be told'
check 0 --check start.json --json
says '"same": null'
check 1 --check start.json --budget 47MB
says '^made with  --start'
lacks '^planner'
"$plan" -e 0 --budget 95% -t 2 --time-limit 0.000001 -o hurried.json model.json >/dev/null 2>&1
check 0 --check hurried.json
says 'made with --time-limit'
"$plan" -e 0 --budget 95% -t 2 --time-limit 1000 -o patient.json model.json >/dev/null
check 0 --check patient.json
says 'as planned'
"$plan" -e 0 --maximize batch --budget 40MB -t 2 -o largest.json model.json >/dev/null
check 0 --check largest.json
says 'made with --maximize'

# A budget that no plan met is still infeasible.
"$plan" -e 0 --budget 30MB -t 2 -o none.json model.json >/dev/null
check 1 --check none.json
says '^none.json: does not fit'
lacks '^planner'

cmp -s plan.json committed.json || fail "--check wrote the plan"
[ ! -e other.json ] || fail "--check wrote a file"
[ $failures -eq 0 ] && echo "all as expected"
exit $((failures > 0))

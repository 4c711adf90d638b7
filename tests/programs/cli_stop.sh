#!/usr/bin/env bash
# labels: cli; long under sanitizers
# SIGTERM ends planning of a large graph with the best plan so far, whenever it comes, and never hangs: exit 0, the note, a plan
# within the budget that an independent replay takes. A time limit that is over before planning begins gives a plan, too. No seconds are
# asserted but those of a guard against hanging. Arguments: source folder, folder of the programs, work folder.
set -euo pipefail
source=$1 bin=$2 work=$3
rm -rf "$work"
mkdir -p "$work"
cd "$work"
fail() { echo "FAILED: $*"; exit 1; }
guard=240 # seconds
[ -r /proc/self/status ] || { echo "skipped: no /proc to see that a program waits for signals"; exit 77; }
python3 "$source/bench/scaling_ops.py" graph residual 12000 >residual.json
python3 "$source/bench/scaling_ops.py" graph layered 6000 >layered.json

# The program catches SIGTERM (bit 14) while it plans: reading is over then.
catches() { local mask; mask=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null) && [ -n "$mask" ] && [ $((0x$mask >> 14 & 1)) = 1 ]; }

check_plan() { # graph, report, what happened
    grep -q "^plan .*: fits" "$2" || fail "$3: $(cat "$2")"
    python3 "$source/tests/programs/replay_plan.py" "$1.json" plan.json >checked 2>&1 || fail "$3: the plan is refused: $(cat checked)"
}

for graph in residual layered; do
    for pause in 0 1; do
        rm -f plan.json
        timeout -k 1 $guard "$bin/ckpt-plan" --effort 3 --budget 60% -o plan.json $graph.json >report 2>note &
        guarded=$!
        planner=
        for ((tries = 0; tries < 100 * guard; tries++)); do
            planner=$(cat /proc/$guarded/task/$guarded/children 2>/dev/null || true)
            planner=${planner%% *}
            [ -z "$planner" ] || ! catches "$planner" || break
            kill -0 $guarded 2>/dev/null || fail "$graph: ended before it planned: $(cat note)"
            sleep 0.01
        done
        sleep $pause
        kill -TERM "$planner"
        status=0
        wait $guarded || status=$?
        [ $status = 0 ] || fail "$graph, SIGTERM after $pause s: exit $status (124 or 137: not answered): $(cat note)"
        grep -q "interrupted: the best so far" note || fail "$graph, $pause s: no note: $(cat note)"
        check_plan $graph report "$graph, SIGTERM after $pause s"
    done
    timeout -k 1 $guard "$bin/ckpt-plan" --time-limit 0.000001 --budget 60% -o plan.json $graph.json >report 2>note ||
        fail "$graph, no time: exit $?: $(cat note)"
    grep -q "time limit: the best so far" note || fail "$graph, no time: no note: $(cat note)"
    check_plan $graph report "$graph, no time"
done
echo "SIGTERM at 4 moments and 2 limits of no time: a plan each"

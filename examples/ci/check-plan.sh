#!/usr/bin/env bash
# The steps of memory-plan.yml, for any machine that has ckpt and git. Files go to memory-plan/.
#
#   check-plan.sh lock           is $PLAN what the planner gives for $MODEL, and does it fit?
#   check-plan.sh compare REF    is $PLAN within $LIMITS of REF's, of a changed model too? Also as JUnit and as a page
#   check-plan.sh draw           what is in memory when, as a page and a picture
#
# Exit codes are those of ckpt-plan and ckpt-compare: 0 fine, 1 the gate says no; 2, 3 and 4: the question could not be asked.
set -euo pipefail
model=${MODEL:-model.json} plan=${PLAN:-plan.json} limits=${LIMITS:-peak=0,step_time=3%,recompute=5%}
out=memory-plan
mkdir -p "$out"

case ${1:-} in
lock)
    ckpt-plan --check "$plan" "$model"
    ;;
compare)
    ref=${2:?wanted the branch to compare with, such as origin/main}
    if ! git rev-parse --quiet --verify "$ref^{commit}" >/dev/null; then
        echo "$ref is not here: fetch it (fetch-depth: 0)" >&2 # a gate that finds nothing must not open
        exit 2
    fi
    if ! git cat-file -e "$ref:$plan" 2>/dev/null; then
        echo "$ref has no $plan: nothing to compare with"
        exit 0
    fi
    git show "$ref:$plan" >"$out/base.json"
    # The page and the JUnit file are written whatever the gate says.
    ckpt-compare --max-increase "$limits" ${GITHUB_STEP_SUMMARY:+--github} -o "$out/compare.xml" -o "$out/compare.html" \
        "$out/base.json" "$plan"
    ;;
draw)
    ckpt-view "$plan" -o "$out/memory.html"
    ckpt-view "$plan" -o "$out/memory.svg"
    ;;
*)
    echo "usage: check-plan.sh lock | compare REF | draw" >&2
    exit 2
    ;;
esac

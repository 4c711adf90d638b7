#!/usr/bin/env bash
# labels: cli; long under sanitizers
# examples/ci runs: the steps of its workflow, as the file has them, in a repository with a pull request. Only what needs
# GitHub (checkout, installing, uploading) is left out. Arguments: source folder, folder of the programs, work folder.
set -euo pipefail
source=$1 bin=$2 work=$3
rm -rf "$work"
mkdir -p "$work/repository/ci" "$work/origin"
fail() { echo "FAILED: $*"; exit 1; }
if ! python3 -c 'import yaml' 2>/dev/null; then
    [ -z "${CI:-}" ] || fail "python3-yaml is not installed"
    echo "not checked: no python3-yaml"
    exit 77
fi
export PATH=$bin:$PATH HOME=$work GIT_CONFIG_GLOBAL=$work/gitconfig
git config --global user.name nobody
git config --global user.email nobody@example.invalid
git config --global init.defaultBranch main
git config --global advice.detachedHead false

# steps.sh: the run steps of the workflow in order, but for the one that installs; as `set -e` shells, like GitHub's
python3 - "$source/examples/ci/memory-plan.yml" "$work" <<'P'
import sys
import yaml

flow = yaml.safe_load(open(sys.argv[1], encoding="utf-8"))
assert set(flow[True]) == {"pull_request"}, flow[True]  # YAML 1.1 reads "on" as true
job = flow["jobs"]["plan"]
steps = [s for s in job["steps"] if "run" in s and s.get("id") != "install"]
assert len(steps) == 3, steps
# As GitHub runs them: after a failed step, steps without a condition are skipped.
told = [s.get("if", "") for s in steps]
assert told[0] == "" and all("!cancelled()" in t and "steps.install.outcome" in t for t in told[1:]), told
with open(f"{sys.argv[2]}/environment", "w", encoding="utf-8") as file:
    for name, value in job["env"].items():
        file.write(f"export {name}='{value}'\n")
for i, step in enumerate(steps):
    with open(f"{sys.argv[2]}/step-{i}", "w", encoding="utf-8") as file:
        file.write(step["run"])
P
cd "$work/repository"
git init -q .
git init -q --bare "$work/origin"
git remote add origin "$work/origin"
cp "$source/examples/ci/check-plan.sh" ci/
plan() { ckpt-plan --effort 0 --threads 2 model.json -o plan.json "$@" >/dev/null; }
save() { git add -A && git commit -qm "$1"; }
sed 's/"batch": [0-9]*/"batch": 4/; s/"hidden": [0-9]*/"hidden": 96/; s/"blocks": [0-9]*/"blocks": 2/' \
    "$source/models/byte-gpt.json" >model.json
plan --budget 70%
save "a model and its plan"
git push -q origin main

# pull STATUS STATUS: what the gates say of the branch that is checked out; the output is in said-0, said-1
pull() {
    local want=("$1" "$2" 0)
    git fetch -q origin
    : >"$work/summary.md"
    for i in 0 1 2; do
        local status=0
        (
            . "$work/environment"
            export GITHUB_BASE_REF=main GITHUB_STEP_SUMMARY=$work/summary.md GITHUB_ACTIONS=true
            bash -e "$work/step-$i"
        ) >"$work/said-$i" 2>&1 || status=$?
        [ $status = "${want[$i]}" ] ||
            fail "$(git log -1 --format=%s): step $i: exit $status: $(cat "$work/said-$i")"
    done
    rm -rf memory-plan.last
    mv memory-plan memory-plan.last
    for file in memory.html memory.svg; do
        [ -s memory-plan.last/$file ] || fail "no $file"
    done
}
printf 'memory-plan*\n' >.git/info/exclude

git checkout -qb nothing
pull 0 0

git checkout -qb forgotten main
sed -i 's/"batch": 4/"batch": 5/' model.json
save "a larger batch, and the plan is forgotten"
pull 1 0
grep -q "write it  *ckpt-plan " "$work/said-0" || fail "no way out is named: $(cat "$work/said-0")"

git checkout -qb worse main
plan --budget 55%
save "a tighter budget: less memory, more time"
pull 0 1
grep -q '^::error file=plan.json,title=--max-increase ' "$work/said-1" || fail "$(cat "$work/said-1")"
grep -q '| \*\*step time\*\* |' "$work/summary.md" || fail "$(cat "$work/summary.md")"
grep -q '<failure' memory-plan.last/compare.xml || fail "no failure in JUnit's file"
grep -q 'recompute' "$work/said-1" || fail "it does not say which layers: $(cat "$work/said-1")"

git checkout -qb changed main
sed -i 's/"batch": 4/"batch": 6/; s/{ "name": "out", "op": "linear"/{ "name": "drop3", "op": "dropout", "p": 0.1 }, &/' model.json
plan --budget 70%
save "a larger batch and added dropouts, planned again"
pull 0 1
grep -q '^::error file=plan.json,title=--max-increase .*budget: .*model: 30 layers → 32 layers: 2 added' "$work/said-1" ||
    fail "a changed model: $(cat "$work/said-1")"
grep -q 'drop3.* added' "$work/said-1" && ! grep -q 'not comparable' "$work/said-1" || fail "$(cat "$work/said-1")"
sed -i 's/"batch": 6/"batch": 4/' model.json
plan --budget 299MB
sed -i 's/LIMITS=.*/LIMITS="peak=100%,step_time=100%,recompute=1000%"/' "$work/environment"
save "limits that allow it"
pull 0 0
sed -i 's/LIMITS=.*/LIMITS="peak=0,step_time=3%,recompute=5%"/' "$work/environment"

git checkout -qb better main
plan --budget 70% --effort 2
save "the same budget, looked at harder"
pull 0 0

git checkout -qb new main
git rm -q plan.json
save "no plan"
git push -q origin new:main
git checkout -q better
pull 0 0
grep -q "has no plan.json" "$work/said-1" || fail "$(cat "$work/said-1")"
# A branch that was not fetched is no reason to let anything pass.
status=0
(. "$work/environment" && ci/check-plan.sh compare origin/nowhere) >"$work/said" 2>&1 || status=$?
[ $status = 2 ] && grep -q "origin/nowhere is not here" "$work/said" || fail "exit $status: $(cat "$work/said")"
echo "six pull requests through the workflow's steps"

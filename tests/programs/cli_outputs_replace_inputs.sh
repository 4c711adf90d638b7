#!/usr/bin/env bash
# No output takes the place of an input or of another output, whatever names and links lead there: every program refuses, and
# everything is as it was. Arguments: source folder, folder of the programs, work folder.
set -u
export OMP_WAIT_POLICY=passive # spinning threads cost much where other tests share the cores
source_dir=$1 bin_dir=$2 work_dir=$3
rm -rf "$work_dir" && mkdir -p "$work_dir" && cd "$work_dir" || exit 1
# shellcheck source=tests/support/support_refuse.sh
. "$source_dir/tests/support/support_refuse.sh"

tiny=(--set batch=4 --set tokens=32 --set hidden=32 --set blocks=1 --set heads=2 --threads 1)
cp "$source_dir/models/byte-gpt.json" m.json
"$bin_dir/ckpt-plan" "${tiny[@]}" --budget 75% m.json -o p.json --trace t.json > /dev/null || fail "plan"
"$bin_dir/ckpt-plan" "${tiny[@]}" --sweep 3 m.json -o s.json > /dev/null || fail "sweep"
"$bin_dir/ckpt-profile" "${tiny[@]}" --isolated --repeats 3 m.json -o pr.json 2> /dev/null || fail "profile"
printf 'id,lower,upper,size\n0,0,1,3\n' > k.csv
echo '{}' > d.json
for _ in $(seq 300); do printf 'abcdefgh'; done > text.txt
cp text.txt other.txt
run=("$bin_dir/ckpt-train" "${tiny[@]}" m.json --plan p.json --steps 1)
"${run[@]}" --save a.state --export w.safetensors > /dev/null || fail "train"
python3 - << 'PYTHON' || fail "index"
import json
with open("w.safetensors", "rb") as file:
    names = json.loads(file.read(int.from_bytes(file.read(8), "little")))
names.pop("__metadata__", None)
json.dump({"weight_map": {name: "w.safetensors" for name in names}}, open("w.index.json", "w"))
PYTHON
mkdir folder
ln -s "$PWD" folder/here
for file in m p pr w.safetensors; do
    ln "${file%.safetensors}".* "hard.${file%%.*}" 2> /dev/null
done
ln -s m.json soft.m
ln -s p.json soft.p
ln -s not-yet.json soft.new # a link to what is not there
find . -type f -exec sha256sum {} + | sort > before

# same NAMES "words" command...: refused, and no file has changed, come or gone
same() {
    refuse 2 "$@"
    rm -f refused.out refused.err
    find . -type f -exec sha256sum {} + | sort | grep -v ' ./after$\| ./before$' > after
    diff <(grep -v ' ./before$' before) after > /dev/null || fail "${*:2}: files changed: $(diff before after)"
    rm -f after
}

plan=("$bin_dir/ckpt-plan" "${tiny[@]}" --budget 75%)
for name in m.json ./m.json folder/here/m.json hard.m soft.m; do
    same "$name: -o would replace the file of the model" "${plan[@]}" m.json -o "$name"
    same "$name: --trace would replace the file of the model" "${plan[@]}" m.json --trace "$name"
    same "$name: -o would replace the file of the model" "$bin_dir/ckpt-graph" "${tiny[@]}" m.json -f svg -o "$name"
    same "$name: -o would replace the file of the model" "$bin_dir/ckpt-profile" "${tiny[@]}" --isolated m.json -o "$name"
    same "$name: --log would replace the file of the model" "${run[@]}" --log "$name"
    same "$name: --export would replace the file of the model" "${run[@]}" --export "$name"
done
same "pr.json: -o would replace the file of --profile" "${plan[@]}" m.json -p pr.json -o pr.json
same "d.json: -o would replace the file of --device" "${plan[@]}" m.json -d d.json -o d.json
same "p.json: -o would replace the file of --start" "${plan[@]}" m.json --start p.json -o p.json
same "k.csv: -o would replace the file of --pack" "$bin_dir/ckpt-plan" --pack k.csv -o k.csv
same "new.json: --trace would replace the file of -o" "${plan[@]}" m.json -o ./new.json --trace new.json
same "folder/here/new.json: --trace would replace the file of -o" "${plan[@]}" m.json -o new.json --trace folder/here/new.json
same "soft.new: --trace would replace the file of -o" "${plan[@]}" m.json -o not-yet.json --trace soft.new
cp m.json m.stage-1.json
find . -type f -exec sha256sum {} + | sort > before
same "m.stage-1.json: -o would replace the file of the model" "${plan[@]}" --pipeline-stages 2 m.stage-1.json -o m.json

for name in p.json hard.p soft.p; do
    same "$name: -o would replace the file of --plan" "$bin_dir/ckpt-graph" "${tiny[@]}" m.json -P p.json -f svg -o "$name"
    same "$name: -o would replace the file of what is drawn" "$bin_dir/ckpt-view" t.json p.json -f json -o "$name"
    same "$name: -o would replace the file of NEW" "$bin_dir/ckpt-compare" s.json p.json -f txt -o "$name"
    same "$name: -o would replace the file of BASE" "$bin_dir/ckpt-compare" p.json s.json -f txt -o "$name"
    same "$name: --trace would replace the file of --plan" "${run[@]}" --trace "$name"
done
same "s.json: -o would replace the file of what is drawn" "$bin_dir/ckpt-view" s.json -f svg -o s.json
same "new.md: -o would replace the file of -o" "$bin_dir/ckpt-compare" p.json p.json -o new.md -o folder/here/new.md
same "only one of -o - and -o - can have standard output" "$bin_dir/ckpt-compare" p.json p.json -o - --json
GITHUB_STEP_SUMMARY=p.json same "p.json: GITHUB_STEP_SUMMARY would replace the file of BASE" "$bin_dir/ckpt-compare" --github p.json s.json
GITHUB_STEP_SUMMARY=sum.md same "sum.md: -o would replace the file of GITHUB_STEP_SUMMARY" "$bin_dir/ckpt-compare" --github p.json s.json -o sum.md

same "text.txt: --log would replace the file of --data" "${run[@]}" --data text:text.txt --log text.txt
same "text.txt: --save would replace the file of --data" "${run[@]}" --data text:text.txt --save text.txt
same "other.txt: --save-best would replace the file of --validate" "${run[@]}" --data text:text.txt --validate text:other.txt --save-best other.txt
same "x: --save would replace the file of --log" "${run[@]}" --save x --log ./x
same "x: --save-best would replace the file of --save" "${run[@]}" --validate synthetic --save x --save-best x
same "pr.json: --reprofile would replace the file of --profile" "${run[@]}" --profile pr.json --reprofile pr.json
same "a.state: --log would replace the file of --resume" "${run[@]}" --resume a.state --log a.state
same "w.safetensors: --export would replace the file of --init" "${run[@]}" --init w.safetensors --export w.safetensors
same "w.safetensors: --export would replace the file of --init" "${run[@]}" --init w.index.json --export w.safetensors

# A state may take the place of the one that it continues.
"${run[@]}" --steps 2 --resume a.state --save ./a.state > /dev/null || fail "a state in place"
[ "$(sed -n '1s/.*"step": \([0-9]*\),.*/\1/p' a.state)" = 2 ] || fail "not written: $(head -1 a.state)"
echo "no program replaces what it reads"

#!/usr/bin/env bash
# labels: cli; long under sanitizers
# What other checkpointing APIs do: their documentation's example networks with their checkpoint choices train with the
# bits of keep-all, in less memory or with the warning that it is not less; docs/reference/apis.md names only tests that exist.
set -u
export OMP_WAIT_POLICY=passive # spinning threads cost much where other tests share the cores
source_dir=$1 bin_dir=$2 work_dir=$3
train=$bin_dir/ckpt-train plan=$bin_dir/ckpt-plan models=$source_dir/models
rm -rf "$work_dir" && mkdir -p "$work_dir" && cd "$work_dir" || exit 1

# shellcheck source=tests/support/support_refuse.sh
. "$source_dir/tests/support/support_refuse.sh"

number() { sed "s/.*\"$1\": \([0-9]*\).*/\1/" "$2"; } # of the first line that has it
bytes() { sed -n "s/^$1 *\([0-9]*\) B.*/\1/p" "$2"; }

# example lower|same|equal RUNS MODEL "SETS" CHOICE...: keep-all against the choice: the same losses and weights; the
# peak is lower, or not and ckpt-plan says so, or the same without a message; RUNS layers are recomputed (-: any).
example() {
    local wanted=$1 runs=$2 file=$3 name
    local -a sets=()
    for name in $4; do sets+=(--set "$name"); done
    shift 4
    local what="$file ${sets[*]} $*"
    "$plan" -t 2 "${sets[@]}" --ignore-flags --strategy keep-all -o all.json "$models/$file" >all.txt 2>all.err || fail "$what: keep-all: $(cat all.err)"
    "$plan" -t 2 "${sets[@]}" "$@" -o part.json "$models/$file" >part.txt 2>part.err || fail "$what: $(cat part.err)"
    "$train" -t 2 "${sets[@]}" --plan all.json --steps 3 --seed 5 --log all.csv "$models/$file" >all.run 2>all.err || fail "$what: keep-all: $(cat all.err)"
    rm -f part.csv
    "$train" -t 2 "${sets[@]}" --plan part.json --steps 3 --seed 5 --poison --log part.csv "$models/$file" >part.run 2>part.err2 || fail "$what: $(cat part.err2)"
    cmp all.csv part.csv || fail "$what: other losses"
    rm -f all.csv
    [ "$(grep sha256 all.run)" = "$(grep sha256 part.run)" ] || fail "$what: other weights"
    grep -q "measured peak .*(equal)" part.run || fail "$what: $(grep peak part.run)"
    local all part again
    all=$(bytes "measured peak" all.run) part=$(bytes "measured peak" part.run)
    again=$(sed -n 's/^layers .* \([0-9]*\) recomputed.*/\1/p' part.txt)
    [ "$runs" = - ] || [ "$again" -eq "$runs" ] || fail "$what: $again layers recomputed, wanted $runs"
    if [ "$wanted" = lower ]; then
        [ "$part" -lt "$all" ] || fail "$what: peak $part, keep-all's $all"
        grep -q "saves nothing" part.err && fail "$what: $(cat part.err)"
    elif [ "$wanted" = equal ]; then
        [ "$part" -eq "$all" ] || fail "$what: peak $part, keep-all's $all"
    else
        [ "$part" -ge "$all" ] || fail "$what: peak $part is lower than keep-all's $all: say so in models/README.md"
        grep -q "saves nothing" part.err || fail "$what: no word that the peak stays: $(cat part.err)"
    fi
    echo "$what: $again recomputed, peak $part of $all bytes, bits equal"
}

small="batch=4 tokens=64 hidden=64 blocks=4 heads=4"

# torch.utils.checkpoint
example same 2 sequential-100.json "" --checkpoint 'seq.*' --strategy segments:2
example lower 15 byte-gpt.json "$small" --checkpoint 'h.*' --strategy segments:4 --policy 'linear=save,attention=save'
example lower - byte-gpt.json "$small" --policy 'linear=save,attention=save,*=recompute'
example lower - lstm.json "batch=64 hidden=64" --checkpoint 't.*' --strategy group_8
example lower - byte-gpt.json "$small" --policy 'linear=save,attention=save,*=prefer-recompute' -b 85%
# ... which keeps only what backward needs, when it is to save everything
example equal 0 byte-gpt.json "$small" --policy '*=save'
# ... must- holds under a budget, prefer- leaves the choice to the planner: which of the four GELUs are recomputed
wish() { # wish "LAYERS" POLICY BUDGET
    local -a sets=()
    for name in $small; do sets+=(--set "$name"); done
    "$plan" -t 2 "${sets[@]}" --policy "$2" -b "$3" -o wish.json "$models/byte-gpt.json" >wish.txt 2>&1 || fail "$2 within $3: $(cat wish.txt)"
    local found
    found=$(grep '^    "h.[0-9].gelu": "recompute"' wish.json | cut -d. -f2 | tr '\n' ' ')
    [ "$found" = "$1" ] || fail "$2 within $3: GELUs '$found' run again, wanted '$1'"
}
all="0 1 2 3 "
wish "$all" gelu=must-recompute 200%
wish "$all" gelu=must-recompute 85%
wish "$all" gelu=prefer-recompute 200%
wish "" gelu=must-save 85%
wish "" gelu=prefer-save 200%
for kind in recompute save; do
    "$plan" -t 2 --set batch=4 --set tokens=64 --set hidden=64 --set blocks=4 --set heads=4 --policy "gelu=prefer-$kind" -b 85% -o wish.json \
        "$models/byte-gpt.json" >wish.txt 2>&1 || fail "prefer-$kind: $(cat wish.txt)"
    again=$(grep -c '^    "h.[0-9].gelu": "recompute"' wish.json)
    [ "$kind $again" != "save 0" ] && [ "$kind $again" != "recompute 4" ] || fail "prefer-$kind is taken for must: $again GELUs run again"
done
# FairScale
example same 2 fairscale-ffn.json "batch=32" --checkpoint ffn
example same 2 fairscale-ffn.json "batch=32" --checkpoint ffn --offload ffn --link 10GB/s
example lower - byte-gpt.json "$small" --checkpoint 'h.*' --offload 'h.*' --link 20GB/s
# SageMaker
example same 0 mnist-conv.json "batch=8" --checkpoint fc1
example lower 2 conv-relu.json "batch=8" --checkpoint 'conv?' --checkpoint 'relu?' --strategy contiguous
example same 0 conv-relu.json "batch=8" --checkpoint 'conv?' --checkpoint 'relu?' --strategy each
example lower - byte-gpt.json "$small" --checkpoint 'h.*' --strategy each
# OneFlow
example same 2 oneflow-graph.json ""
example lower - bert-8.json "batch=2 tokens=64 hidden=64 feed_forward=128 vocabulary=512 blocks=4" --checkpoint 'layer.*'
# Function, inputs and parameters: concatenation, norm and ReLU before a layer's first convolution
example lower - densenet-bc-100-12.json "batch=8 size=16 layers=4" --policy 'concat=recompute,batchnorm=recompute,relu=recompute' \
    --keep '*.*.bn2' --keep '*.*.relu2' --keep 'bn?' --keep 'relu?'

# A recomputation has the bits of the first run: what would change them is refused before training.
"$plan" -t 2 --set batch=8 --checkpoint fc1 -o two.json "$models/mlp.json" >two.txt 2>&1 || fail "$(cat two.txt)"
refuse 2 "thread" "$train" -t 1 --set batch=8 --plan two.json "$models/mlp.json"
refuse 2 "batch\|graph\|bytes" "$train" -t 2 --set batch=9 --plan two.json "$models/mlp.json"

# Flags are switched off by name or all together.
"$plan" -t 2 --ignore-flags -o off.json "$models/oneflow-graph.json" >off.txt 2>off.err || fail "$(cat off.err)"
grep -q "^layers .* 0 recomputed" off.txt || fail "--ignore-flags: $(cat off.txt)"
[ ! -s off.err ] || fail "--ignore-flags: $(cat off.err)"
"$plan" -t 2 --keep part1.0 -o half.json "$models/oneflow-graph.json" >half.txt 2>half.err || fail "$(cat half.err)"
grep -q "^layers .* 0 recomputed" half.txt || fail "--keep against the model's flag: $(cat half.txt)"

# A module that automatic partitions split is left out, and named.
"$plan" -t 1 --set batch=8 --pipeline-stages 2 -o split.json "$models/oneflow-graph.json" >split.txt 2>split.err || fail "$(cat split.err)"
grep -q "^ckpt-plan: warning: part[12].0 is split over pipeline partitions (0 and 1): it is not checkpointed" split.err ||
    fail "no word of a split module: $(cat split.txt split.err)"

# The function form with several ranks, and SageMaker's partitions: the choice against keep-all, on as many ranks.
if command -v mpirun >/dev/null && [ -e "$bin_dir/../lib/libckpt_mpi.so" ]; then
    # shellcheck source=tests/support/support_ranks.sh
    . "$source_dir/tests/support/support_ranks.sh"
    sets=(-t 1 --set batch=4 --set size=16 --set layers=3) file=$models/densenet-bc-100-12.json
    choice=(--policy 'concat=recompute,batchnorm=recompute,relu=recompute' --keep '*.*.bn2' --keep '*.*.relu2')
    ranked() { # ranked RANKS NAME plan options...
        local ranks=$1 name=$2
        shift 2
        "$plan" "${sets[@]}" "$@" -o "$name.json" "$file" >"$name.plan" 2>plan.err || fail "$name: $(cat plan.err)"
        rm -f "$name.csv"
        on "$ranks" "$train" "${sets[@]}" --plan "$name.json" --steps 3 --seed 5 --log "$name.csv" "$file" >"$name.txt" || fail "$name: $(cat ranks.all)"
    }
    peaks() { sed -n 's/.*"peak_bytes": \([0-9]*\).*/\1/p' "$1" | head -1; }
    ranked 2 every --replicas 2 --strategy keep-all
    ranked 2 chosen --replicas 2 "${choice[@]}"
    ranked 2 overlapped --replicas 2 --overlap --bucket 64kB "${choice[@]}"
    same_training every chosen
    same_training every overlapped
    [ "$(peaks chosen.json)" -lt "$(peaks every.json)" ] || fail "two ranks: no lower peak"

    # Five modules in two partitions, [a,b|c,d,e]: group_3 makes {a b} and {c d e}.
    module() { echo "{ \"name\": \"$1.fc\", \"op\": \"linear\", \"features\": 64, \"stage\": $2 }, { \"name\": \"$1.act\", \"op\": \"gelu\" },"; }
    cat >five.json <<EOF
{ "format": "ckpt-model/1", "name": "five", "vars": { "batch": 64 },
  "inputs": [ { "name": "x", "shape": ["batch", 64], "dtype": "float32" }, { "name": "y", "shape": ["batch"], "dtype": "int32" } ],
  "layers": [ $(module a 0) $(module b 0) $(module c 1) $(module d 1) $(module e 1)
    { "name": "head", "op": "linear", "features": 10 }, { "name": "loss", "op": "cross_entropy", "in": ["head", "y"] } ] }
EOF
    sets=(-t 1) file=five.json
    ranked 1 whole -m 2 --strategy keep-all
    ranked 2 grouped -m 2 --pipeline-stages 2 --checkpoint '[a-e]' --strategy group_3
    same_training whole grouped
    grep -q "^Partition assignments:" grouped.plan || fail "no partition assignments: $(cat grouped.plan)"
    again() { grep '^    "[^"]*": "recompute"' "$1" | cut -d'"' -f2 | cut -d@ -f1 | awk '!seen[$0]++' | tr '\n' ' '; }
    [ "$(again grouped.stage-0.json)" = "a.fc a.act b.fc " ] || fail "partition 0 recomputes $(again grouped.stage-0.json)"
    [ "$(again grouped.stage-1.json)" = "c.fc c.act d.fc d.act e.fc " ] || fail "partition 1 recomputes $(again grouped.stage-1.json)"
else
    echo "no mpirun, or a build without MPI: nothing tried on several ranks"
fi

# docs/reference/apis.md: every argument of the five APIs has a row; every test that a row names is one of ctest or a function in
# one; a row without a test says that there is no counterpart.
python3 - "$source_dir" <<'EOF' || fail "docs/reference/apis.md (or there is no python3)"
import glob, re, sys
source = sys.argv[1]
text = open(f"{source}/docs/reference/apis.md").read()
arguments = """function *args **kwargs use_reentrant preserve_rng_state context_fn determinism_check debug early_stop
    respect_saved_tensors_hooks functions segments input allow_cache_entry_mutation MUST_SAVE PREFER_SAVE MUST_RECOMPUTE
    PREFER_RECOMPUTE MUST_CPU_OFFLOAD PREFER_CPU_OFFLOAD module offload_to_cpu maintain_forward_counter patch_batchnorm
    strategy="each" strategy="contiguous" strategy="group_N" pack_args_as_tuple allreduce activation_checkpointing inputs
    parameters flag""".split()
tests = {path.rsplit("/", 1)[1].rsplit(".", 1)[0] for kind in ("test_*.c", "cli_*.sh") for path in glob.glob(f"{source}/tests/**/{kind}", recursive=True)}
for path in glob.glob(f"{source}/tests/**/test_*.c", recursive=True):
    tests |= set(re.findall(r"cmocka_unit_test\w*\(\s*(\w+)", open(path).read()))
wrong, rows, first, named = [], 0, "", set()
for number, line in enumerate(text.splitlines(), 1):
    cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    if len(cells) != 3 or cells[2] in ("test", "---"):
        continue
    rows, first = rows + 1, first + cells[0] + "\n"
    found = re.findall(r"`(\w+)`", cells[2])
    if not found and not (cells[2] == "–" and cells[1].startswith("No counterpart")):
        wrong.append(f"line {number}: no test, and no word that there is no counterpart: {cells[2]}")
    wrong += [f"line {number}: no test is called {name}" for name in found if name not in tests]
    named |= set(found)
wrong += [f"no row has {argument}" for argument in arguments if not re.search(r"(?<!\w)" + re.escape(argument) + r"(?!\w)", first)]
print(f"docs/reference/apis.md: {rows} rows, {len(named)} tests")
if rows < 60 or wrong:
    sys.exit("\n".join(wrong) or f"only {rows} rows were read")
EOF

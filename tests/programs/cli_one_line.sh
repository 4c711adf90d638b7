#!/usr/bin/env bash
# A refusal is one line of UTF-8 that a terminal can show, whatever a file holds or is called, and what cannot be printed is
# an error. Arguments: source folder, folder of the programs, work folder.
set -u
export OMP_WAIT_POLICY=passive
source_dir=$1 bin_dir=$2 work_dir=$3
rm -rf "$work_dir" && mkdir -p "$work_dir" && cd "$work_dir" || exit 1
# shellcheck source=tests/support/support_refuse.sh
. "$source_dir/tests/support/support_refuse.sh"
model=$source_dir/models/mlp.json

# Names that are no UTF-8, or hold what a terminal takes for a command; a long one is cut, but not within a character.
readable() { # a line of UTF-8 without control characters
    iconv -f UTF-8 -t UTF-8 refused.err > /dev/null 2>&1 || fail "$1: no UTF-8: $(od -c refused.err | head -5)"
    [ -z "$(LC_ALL=C tr -d '\n\040-\176\200-\377' < refused.err)" ] || fail "$1: control characters: $(od -c refused.err | head -5)"
    ! LC_ALL=C grep -q $'\302[\200-\237]' refused.err || fail "$1: control characters of two bytes: $(od -c refused.err | head -5)"
}
umlauts=$(printf 'ü%.0s' $(seq 120))
for name in $'caf\351.json' $'\033[31m.json' $'a\177b.json' $'a\302\233b.json' $'a\nb.json' "x$umlauts.json" "$umlauts.json"; do
    for command in "ckpt-plan" "ckpt-graph" "ckpt-view" "ckpt-compare $model" "ckpt-profile" "ckpt-train --plan no.json" "ckpt-train $model --plan" "ckpt-profile --import"; do
        # shellcheck disable=SC2086
        refuse 2 . "$bin_dir"/$command "$name"
        readable "$command"
    done
    refuse 2 'unknown option' "$bin_dir/ckpt-plan" "--$name"
    readable "an option"
    refuse 2 'set' "$bin_dir/ckpt-plan" --set "$name" "$model"
    readable "--set"
    printf '{"format": "ckpt-model/1", "name": "%s", "layers": 3}' "$name" > named.json
    refuse 2 'named.json' "$bin_dir/ckpt-graph" named.json
    readable "a name in a file"
done

# Remarks on a file that is refused in the end are not made.
python3 - << 'PYTHON' || fail "python3"
import pickle
entries = [{"action": "strange", "addr": 1, "size": 2, "stream": 0}]
with open("strange.pickle", "wb") as file:
    pickle.dump({"segments": [], "device_traces": [entries]}, file, protocol=4)
with open("plain.pickle", "wb") as file:
    pickle.dump({"segments": [], "device_traces": [[{"action": "alloc", "addr": 1, "size": 2, "stream": 0}] + entries]}, file, protocol=4)
PYTHON
refuse 2 "strange.pickle: found no allocation" "$bin_dir/ckpt-profile" --import strange.pickle -o trace.json
[ ! -e trace.json ] || fail "a refused pickle left a trace"
"$bin_dir/ckpt-profile" --import plain.pickle -o trace.json 2> said || fail "$(cat said)"
grep -q '^ckpt-profile: 1 entries are of another kind, the first "strange": left out$' said || fail "remarks: $(cat said)"

# What goes to a full standard output is an error of every program, --help as well.
if [ -w /dev/full ]; then
    cat > full.sh << 'E2'
"$@" > /dev/full
E2
    for program in "$bin_dir"/ckpt-*; do
        for words in --help --version --help-as=man; do
            refuse 2 "^${program##*/}: cannot write to standard output: No space left on device$" bash full.sh "$program" $words
        done
    done
    refuse 2 "standard output: No space" bash full.sh "$bin_dir/ckpt-plan" --list-strategies
    refuse 2 "standard output: No space" bash full.sh "$bin_dir/ckpt-graph" --list-ops
    refuse 2 "standard output: .*No space" bash full.sh "$bin_dir/ckpt-compare" --list-metrics
    refuse 2 "standard output: .*No space" bash full.sh "$bin_dir/ckpt-graph" "$model"
    refuse 2 "standard output: .*No space" bash full.sh "$bin_dir/ckpt-plan" "$model"
fi
echo "refusals are one line of UTF-8"

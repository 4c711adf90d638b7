#!/usr/bin/env bash
# libckpt.so as others see it: its symbols and versions, the sizes of public structs, what it needs, what it can change
# of the process, and that it gives the bytes that ckpt-plan writes. What is listed in tests/libckpt/abi.txt changes on
# purpose only. Arguments: source folder, folder of the programs, work folder.
set -euo pipefail
source=$1 bin=$2 work=$3
library=$bin/../lib/libckpt.so
fail() { echo "FAILED: $*"; exit 1; }
rm -rf "$work"
mkdir -p "$work"

structs=$(sed -n 's/^} \(ckpt_[a-z_]*\);/\1/p' "$source/include/ckpt.h")
{
    echo '#include <ckpt.h>'
    echo '#include <stdio.h>'
    echo 'int main(void) {'
    for struct in $structs; do echo "printf(\"%zu $struct\\n\", sizeof($struct));"; done
    echo 'return 0; }'
} >"$work/sizes.c"
cc -I "$source/include" -o "$work/sizes" "$work/sizes.c"
{
    nm -D --defined-only "$library" | awk '$2 == "T" { print $3 }' | sort
    "$work/sizes"
} >"$work/abi.txt"
diff "$source/tests/libckpt/abi.txt" "$work/abi.txt" || fail "symbols or sizes are not those of tests/libckpt/abi.txt"
declared=$(sed 's|/\*.*\*/||' "$source/include/ckpt.h" | grep -o '\<ckpt_[a-z_]*(' | tr -d '(' | sort -u)
[ "$declared" = "$(sed -n 's/@@CKPT_.*//p' "$work/abi.txt")" ] || fail "ckpt.h declares other functions than are shown"

needs=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -v '^lib[a-z]*san\.\|^ld-linux' | sort | tr '\n' ' ')
[ "$needs" = "libc.so.6 libm.so.6 " ] || fail "libckpt.so needs $needs"
used=$(nm -D --undefined-only "$library" | awk '{ print $2 }' | sed 's/@.*//')
wrong=$(grep -x 'exit\|_exit\|abort\|printf\|puts\|perror\|signal\|sigaction\|setlocale\|atexit\|setenv\|getenv\|fork' \
    <<<"$used" || true)
[ -z "$wrong" ] || fail "libckpt.so calls $wrong"

# Data that changes: the device memory of libckpt/step_arena.c, under a lock, and the counters of core/base/memory.c: what a
# thread was refused last, and two that are atomic and count for all threads what tests ask for:
# whether everything was freed, and what happens when the n-th allocation fails.
if ! grep -q '^CKPT_SANITIZE:STRING=.' "$bin/../CMakeCache.txt"; then
    data=$(nm "$library" | awk '$2 ~ /^[bBdD]$/ { print $3 }' | while read -r name; do
        readelf -sW "$library" | awk -v name="$name" '$8 == name { print $7, name }'
    done | sort -u | while read -r section name; do
        readelf -SW "$library" | sed 's/\[ */[/' | grep -q "^ *\[$section\] \.\(data\|bss\|tbss\|tdata\) " && echo "$name"
    done | grep -v '^_\|^completed' | tr '\n' ' ' || true)
    [ "$data" = "refused_bytes allowed_blocks device live_blocks " ] || fail "data that changes: $data"
fi

# Numbers in JSON and CSV come from functions that keep to a point whatever the locale is.
wrong=$(cd "$source" && grep -rnE '(\\": |,|text, ")%[-0-9.*]*l?[feg]\>' --include="*.c" core libckpt ops planner programs/plan || true)
[ -z "$wrong" ] || fail "numbers written as the locale has them: $wrong"

# The bytes that ckpt-plan writes, but for the seconds.
cat >"$work/plan.py" <<'PYTHON'
import ctypes
import locale
import os
import sys

if "LOCPATH" in os.environ:
    locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
ckpt = ctypes.CDLL(sys.argv[1])
path, output, *settings = sys.argv[2:]
error = ctypes.create_string_buffer(528)
for name in "options_create", "plan_json", "explanation_json", "sweep_json":
    getattr(ckpt, "ckpt_" + name).restype = ctypes.c_void_p


def call(name, *arguments):
    if getattr(ckpt, "ckpt_" + name)(*arguments, error):
        sys.exit(error.raw[12:].split(b"\0")[0].decode())


options, graph, made = ctypes.c_void_p(ckpt.ckpt_options_create()), ctypes.c_void_p(), ctypes.c_void_p()
for setting in settings:
    name, value = setting.split("=", 1)
    call("options_set", options, name.encode(), value.encode())
with open(path, "rb") as file:
    text = file.read()
call("graph_from_json", path.encode(), text, ctypes.c_size_t(len(text)), options, ctypes.byref(graph))
call("plan_create", graph, options, ctypes.byref(made))
with open(output, "wb") as file:
    file.write(ctypes.string_at(ckpt.ckpt_plan_json(made, None, error)))
explanation, sweep = ctypes.c_void_p(), ctypes.c_void_p()
call("explanation_create", made, graph, options, ctypes.byref(explanation))
with open(output + ".explained", "wb") as file:
    file.write(ctypes.string_at(ckpt.ckpt_explanation_json(explanation, None, error)))
call("sweep_create", graph, options, 3, ctypes.byref(sweep))
with open(output + ".sweep.json", "wb") as file:
    file.write(ctypes.string_at(ckpt.ckpt_sweep_json(sweep, None, error)))
PYTHON
timeless() { sed 's/"\(solver_\)\?seconds": [0-9.e-]*//' "$1"; }
same() { # FILE NAME=VALUE...
    local file=$1 options=() setting
    shift
    for setting in "$@"; do options+=("--${setting%%=*}" "${setting#*=}"); done
    "$bin/ckpt-plan" "${options[@]}" "$file" -o "$work/program.json" --explain --json >"$work/program.json.explained"
    "$bin/ckpt-plan" "${options[@]}" "$file" --sweep 3 -o "$work/program.json.sweep.json"
    python3 "$work/plan.py" "$library" "$file" "$work/library.json" "$@" solver=glpk
    for end in "" .explained .sweep.json; do
        cmp <(timeless "$work/program.json$end") <(timeless "$work/library.json$end") || fail "$file $*: other bytes in $end"
    done
}
if ! grep -q '^CKPT_SANITIZE:STRING=.' "$bin/../CMakeCache.txt"; then # else Python lacks the sanitizer's library
    cd "$source"
    if command -v localedef >/dev/null && mkdir "$work/locales" && localedef -i de_DE -f UTF-8 "$work/locales/de_DE.UTF-8"; then
        export LOCPATH=$work/locales # the library's caller has a comma for the point
    fi
    same models/mlp.json budget=100% effort=0 set=batch=512 micro-batches=2 threads=3 time-limit=500.5
    same models/unet.json budget=90% effort=0 device=h100 link=20GB/s "checkpoint=*"
fi
echo "symbols, sizes, needs and bytes are as wanted"

#!/usr/bin/env bash
# labels: cli long; not under sanitizers
# Graphviz, Pango, GLib and fontconfig ended ckpt-graph and ckpt-view where memory was refused (exit 133 or 139, half a file,
# no line), or drew with other fonts. Every program that draws, in every form, ckpt-plan, ckpt-train, ckpt-profile's
# steps, imports and recorded commands, and libckpt. Sanitizers map terabytes, which no such limit allows.
set -u
export OMP_WAIT_POLICY=passive # spinning threads cost much where other tests share the cores
[ "$(uname)" = Linux ] || { echo "skipped: RLIMIT_AS is looked at on Linux only"; exit 77; }
python3 "$1/tests/programs/little_memory.py" "$@"

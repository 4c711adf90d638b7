#!/usr/bin/env bash
# labels: cli; long under sanitizers
# The commands of the tutorial and of the how-to pages run, and print what the pages show (ckpt-view, ckpt-graph and
# ckpt-compare too). Refresh: scripts/pages BIN
set -euo pipefail
python3 "$1/scripts/pages" --check "$2" "$1"/docs/tutorial.md "$1"/docs/how-to/*.md

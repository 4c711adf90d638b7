#!/usr/bin/env bash
# labels: cli; long under sanitizers
# What the pages say is true: every link leads somewhere, and what is made from programs and headers is what they give
# (ckpt-graph too); the picture of the folders is of these sources. Refresh: scripts/pages BIN; scripts/layers --draw
set -euo pipefail
python3 "$1/tests/programs/docs_check.py" "$1"
python3 "$1/scripts/layers" --drawn "$1/docs/pictures/folders.svg"
python3 "$1/scripts/pages" --check "$2" "$1"/docs/reference/*.md

#!/usr/bin/env bash
# What the pages say of the repository is true: every link leads somewhere.
set -euo pipefail
python3 "$1/tests/programs/docs_check.py" "$1"

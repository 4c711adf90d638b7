#!/usr/bin/env bash
# docs/ops.md is what the op table says. Refresh: ckpt-graph --list-ops > docs/ops.md
set -euo pipefail
diff "$1/docs/ops.md" <("$2/ckpt-graph" --list-ops)

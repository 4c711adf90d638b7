#!/usr/bin/env bash
# docs/reference/ops.md is what the op table says. Refresh: ckpt-graph --list-ops > docs/reference/ops.md
set -euo pipefail
diff "$1/docs/reference/ops.md" <("$2/ckpt-graph" --list-ops)

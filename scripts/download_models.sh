#!/usr/bin/env bash
# Usage: scripts/download_models.sh SETTING [SETTING ...]
# Fetches and converts what a setting needs (weights, tokenizer, prompts); prints the folders.
# Exit 0 when all is there, 2 with a remedy when not.
set -euo pipefail
here="$(cd "$(dirname "$0")/.." && pwd)"
python="${SPECFARM_PYTHON:-}"
if [ -z "$python" ]; then
    if [ -x "$here/.venv/bin/python" ]; then python="$here/.venv/bin/python"; else python=python3; fi
fi
PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}" exec "$python" -m settings.download "$@"

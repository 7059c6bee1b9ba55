#!/usr/bin/env bash
# bench.sh SETTING LABEL {cpu|GPU index}   LABEL's stem names the arm: final-1, stock-2, ar-1
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
[ -x "$python" ] || python=python3
exec "$python" -m farm.bench.cli "$@"

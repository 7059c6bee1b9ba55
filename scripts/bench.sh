#!/usr/bin/env bash
# bench.sh SETTING LABEL {cpu|GPU index} [--out F.json]
# The label's stem names the arm: final-1, stock-2, ar-1. Default: work/bench/LABEL.json
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=$root/.venv/bin/python
[ -x "$python" ] || python=python3
"$python" -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("torch"))' ||
    { echo "bench.sh: no environment yet; run: make setup" >&2; exit 2; }
PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" exec "$python" -m farm.bench.cli "$@"

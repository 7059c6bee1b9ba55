#!/usr/bin/env bash
# stop.sh PORT: end the engine that serve.sh started on that port, and no other.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
[ -x "$python" ] || python=python3
exec "$python" -m engines.stop "$@"

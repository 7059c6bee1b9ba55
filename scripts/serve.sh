#!/usr/bin/env bash
# serve.sh SETTING {final|stock|ar} {cpu|GPU index} [PORT=30000] [--host H] [--other-hardware] [--revoked]
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
[ -x "$python" ] || python=python3
exec "$python" -m engines.serve "$@"

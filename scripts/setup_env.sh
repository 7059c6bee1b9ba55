#!/usr/bin/env bash
# Makes (or reuses) the virtual environment this checkout runs in and links it as .venv.
#   scripts/setup_env.sh [demo|dev|gpu|claude]      default: demo (what `make search` needs)
#   scripts/setup_env.sh sglang-cpu                 another engine's own environment: .venv-sglang-cpu
# A finished environment is cached under ~/.cache/specfarm (or $SPECFARM_VENVS) by the hash of its
# requirement files and Python version, so a second clone installs nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
set_name=${1:-demo}
lock="requirements/$set_name.txt"
[ -f "$lock" ] || { echo "setup_env: no set '$set_name' (have: $(ls requirements | sed 's/\.txt//' | tr '\n' ' '))" >&2; exit 2; }
python=${PYTHON:-}
if [ -z "$python" ]; then
    for candidate in python3.11 python3.12 python3.13 python3; do
        if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            python=$candidate; break
        fi
    done
fi
[ -n "$python" ] || { echo "setup_env: Python >= 3.11 not found; install it or set PYTHON=/path/to/python3" >&2; exit 2; }
lock_files() {
    local file=$1 include
    echo "$file"
    for include in $(sed -n 's/^-r //p' "$file"); do lock_files "requirements/$include"; done
}
hash=$( { "$python" -c 'import sys, platform; print(sys.version_info[:2], platform.machine())'; cat $(lock_files "$lock" | sort -u); } | sha256sum | cut -c1-16)
# An engine's list is whole and leaves out what it pins but does not need here.
link=.venv; closed=()
case $set_name in sglang-*) link=.venv-$set_name; closed=(--no-deps) ;; esac
venv="${SPECFARM_VENVS:-$HOME/.cache/specfarm}/$set_name-$hash"
mkdir -p "$(dirname "$venv")"
exec 9>"$venv.lock"
flock 9
if [ ! -f "$venv/.complete" ]; then
    echo "setup_env: installing $lock into $venv (about 5 minutes the first time)"
    rm -rf "$venv"
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check ${closed[@]+"${closed[@]}"} -r "$lock"
    [ ${#closed[@]} -gt 0 ] || "$venv/bin/python" -m pip check >/dev/null
    touch "$venv/.complete"
fi
if [ -L "$link" ] || [ ! -e "$link" ]; then ln -sfn "$venv" "$link"; else
    echo "setup_env: $link is a folder of your own: leaving it as it is" >&2
fi
echo "setup_env: ready ($venv)"

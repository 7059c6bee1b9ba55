#!/usr/bin/env python3
"""compare.py speed --ar A.json --stock S.json --final F.json (several files = launches)."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv" / "bin" / "python"
if PYTHON.exists() and Path(sys.prefix) != ROOT / ".venv":
    os.execv(PYTHON, [str(PYTHON), *sys.argv])
sys.path.insert(0, str(ROOT))

from farm.bench.compare import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())

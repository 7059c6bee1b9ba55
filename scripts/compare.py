#!/usr/bin/env python3
"""compare.py speed --ar A.json --stock S.json --final F.json (several files = launches)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from farm.bench.compare import main

if __name__ == "__main__":
    sys.exit(main())

"""Training of a parallel drafter for one target: prompts, greedy answers, shards, trainer.

Runs with torch, numpy, safetensors and tokenizers alone (no other room's dependencies).
"""

from __future__ import annotations

import sys
from pathlib import Path

# `python -m engines.training` has the repository root on its path, not the engine's folder.
_ENGINE = str(Path(__file__).resolve().parents[1] / "native")
if _ENGINE not in sys.path:
    sys.path.append(_ENGINE)

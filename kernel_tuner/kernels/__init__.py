"""The engine's CUDA kernels: what there is, whether it is right, how fast it is.

`python -m kernel_tuner.kernels list|check|bench|w12-pack` needs torch, numpy and nvcc only, so it
also runs on a bare GPU machine.
"""

from __future__ import annotations

import sys
from pathlib import Path

try:
    import native_engine  # noqa: F401
except ModuleNotFoundError:  # run from a checkout
    sys.path.insert(0, str(Path(__file__).parents[2] / "engines" / "native"))

from kernel_tuner.kernels.commands import bench_kernels, check_kernels, list_kernels, pack

__all__ = ["bench_kernels", "check_kernels", "list_kernels", "pack"]

"""The environment an engine gets: an allow-list, so that no key and no farm variable reaches it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

_ALLOWED = (
    "LANG",
    "LC_ALL",
    "TZ",
    "CC",
    "CXX",
    "CUDA_HOME",
    "CUDA_VISIBLE_DEVICES",
    "LD_LIBRARY_PATH",
)
_THREAD_COUNTS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "RAYON_NUM_THREADS",
)
# On 4 KB pages the engine launched first gets the scattered ones: it ran 4 to 17 % slower than the
# same tree launched after it, all its life (docs/measuring.md). Every arm gets huge pages instead.
_HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "THP_MEM_ALLOC_ENABLE": "1"}
_REFUSED_PREFIXES = ("SPECFARM_", "SGLANG_SIMULATE_ACC")
# Nobody adds one by mistake either: a driver's and a caller's variables pass here too.
_SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?)$", re.IGNORECASE)


def child_environment(
    *,
    threads: int,
    cache_dir: Path,
    scratch: Path,
    driver: Mapping[str, str],
    extra: Mapping[str, str] | None = None,
    inherited: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Variables of one engine process.

    Args:
        threads: the setting's thread count, for every maths library.
        cache_dir: compile caches, shared by all launches of one tree hash.
        scratch: this launch's own folder (TMPDIR), removed at its end.
        driver: the engine driver's variables.
        extra: the caller's (e.g. CUDA_VISIBLE_DEVICES); they win. Names of the farm's and names
            that end like a secret's are dropped all the same.
        inherited: where allowed variables come from (default os.environ).
    """
    source = os.environ if inherited is None else inherited
    home = cache_dir / "home"
    home.mkdir(parents=True, exist_ok=True)
    env = {name: source[name] for name in _ALLOWED if name in source}
    env["PATH"] = os.pathsep.join(
        [str(Path(sys.executable).parent), source.get("PATH", os.defpath)]
    )
    env |= dict.fromkeys(_THREAD_COUNTS, str(threads)) | _HUGE_PAGES
    env |= {
        "HOME": str(home),
        "TMPDIR": str(scratch),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HOME": str(home / "huggingface"),
        "PYTHONUNBUFFERED": "1",
        "PYTHONNOUSERSITE": "1",
        # Byte code lies beside installed packages already; a prefix of the tree's own would compile
        # torch and transformers anew for every candidate, and no prefix would write into checkouts.
        "PYTHONDONTWRITEBYTECODE": "1",
        "TRITON_CACHE_DIR": str(cache_dir / "triton"),
        "TORCH_EXTENSIONS_DIR": str(cache_dir / "torch_extensions"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache_dir / "inductor"),
        "CUDA_CACHE_PATH": str(cache_dir / "cuda"),
        "TVM_FFI_CACHE_DIR": str(cache_dir / "tvm-ffi"),
        "FLASHINFER_WORKSPACE_BASE": str(cache_dir / "flashinfer"),
    }
    env |= driver
    env |= extra or {}
    return {
        name: value
        for name, value in env.items()
        if not name.startswith(_REFUSED_PREFIXES) and not _SECRET.search(name)
    }

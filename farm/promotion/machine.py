"""Facts about the machine and its software that a number must be read with."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "ray", "mlflow", "triton", "sglang")
_INSTRUCTIONS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "amx_int8", "sve", "bf16")
_FREQUENCY = Path("/sys/devices/system/cpu/cpu0/cpufreq")


def _cpuinfo(field: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == field:
            return value.strip()
    return ""


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _gpus() -> list[str]:
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def versions() -> dict[str, str]:
    """Python and those of PACKAGES that are installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def machine_facts() -> dict[str, Any]:
    """Hardware and software, flat where it can be; keys whose value cannot be read are absent.

    Memory is in GiB, clocks in MHz. Names no host, user or path, and nothing that changes from one
    minute to the next: two calls on one machine agree.
    """
    flags = set((_cpuinfo("flags") or _cpuinfo("Features")).split())
    highest = _read(_FREQUENCY / "cpuinfo_max_freq")
    facts: dict[str, Any] = {
        "cpu": _cpuinfo("model name") or platform.processor() or platform.machine(),
        "cores": psutil.cpu_count(logical=False),
        "logical_cpus": psutil.cpu_count(),
        "usable_cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "instructions": " ".join(name for name in _INSTRUCTIONS if name in flags) or None,
        "clock_max_mhz": int(highest) // 1000 if highest and highest.isdigit() else None,
        "governor": _read(_FREQUENCY / "scaling_governor"),
        "system": f"{platform.system()} {platform.machine()}",
        "gpus": "; ".join(_gpus()) or None,
        **versions(),
    }
    return {key: value for key, value in facts.items() if value is not None}


def environment_hash() -> str:
    """sha256 (hex) of the software versions: part of a unit's key."""
    return _hash(versions())


def hardware_id(facts: Mapping[str, Any]) -> str:
    """sha256 (hex) of the hardware in `machine_facts()`: part of a unit's key."""
    return _hash({k: facts.get(k) for k in ("cpu", "logical_cpus", "memory_gib", "gpus")})


def _hash(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()

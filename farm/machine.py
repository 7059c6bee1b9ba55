"""Facts about the machine and its software that a number must be read with."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "ray", "mlflow", "triton", "sglang")
_INSTRUCTIONS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "amx_int8", "sve", "bf16")
_FREQUENCY = Path("/sys/devices/system/cpu/cpu0/cpufreq")


def _cpuinfo_all(field: str) -> list[str]:
    """The field of every CPU in /proc/cpuinfo; empty where there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []
    pairs = (line.partition(":") for line in lines)
    return [value.strip() for key, _, value in pairs if key.strip() == field]


def _cpuinfo(field: str) -> str:
    return next(iter(_cpuinfo_all(field)), "")


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _query_gpus(fields: str) -> list[str]:
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
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
        "gpus": "; ".join(_query_gpus("name,driver_version,memory.total")) or None,
        **versions(),
    }
    return {key: value for key, value in facts.items() if value is not None}


def moment() -> dict[str, Any]:
    """What does change: UTC time and load averages, to be kept beside a timing."""
    return {
        "utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "load_average": [round(x, 2) for x in os.getloadavg()],
    }


def clocks() -> dict[str, Any]:
    """Clocks as they are now: the mean of the CPUs in MHz; for each GPU its SM and memory clock and
    power limit as NVML states them. What cannot be read is absent; `utc` says when."""
    cpus = [float(mhz) for mhz in _cpuinfo_all("cpu MHz")]
    facts = {
        "utc": moment()["utc"],
        "cpu_mhz": round(sum(cpus) / len(cpus)) if cpus else None,
        "gpus": "; ".join(_query_gpus("clocks.sm,clocks.max.sm,clocks.mem,power.limit")) or None,
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

"""Compile the CUDA sources with nvcc at first use and load them with ctypes.

The library lies in a folder named by the hash of sources, compiler and architecture, below
$TORCH_EXTENSIONS_DIR or ~/.cache, so a changed source never meets an old binary.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parent
ENTRY = SOURCES / "skinny_launch.cu"
ARCHITECTURES = {(9, 0): "sm_90a", (12, 0): "sm_120a"}


class KernelBuildError(RuntimeError):
    """nvcc is missing or refused the sources; the message says which and what to do."""


def find_nvcc() -> str:
    """Path of nvcc: $NVCC, $CUDA_HOME, PATH, /usr/local/cuda."""
    homes = [os.environ.get("CUDA_HOME"), "/usr/local/cuda"]
    candidates = [os.environ.get("NVCC"), shutil.which("nvcc")]
    candidates += [f"{home}/bin/nvcc" for home in homes if home]
    for candidate in candidates:
        if candidate and Path(candidate).is_file():
            return candidate
    raise KernelBuildError("no nvcc: install the CUDA 13 toolkit, or set NVCC or CUDA_HOME")


def cache_root() -> Path:
    root = os.environ.get("TORCH_EXTENSIONS_DIR") or Path.home() / ".cache" / "specfarm"
    return Path(root) / "kernels"


def source_hash(architecture: str) -> str:
    """Hash of everything that decides the binary."""
    digest = hashlib.sha256(architecture.encode())
    version = subprocess.run([find_nvcc(), "--version"], capture_output=True, check=True)
    digest.update(version.stdout)
    for path in sorted([*SOURCES.glob("*.cu"), *SOURCES.glob("*.cuh")]):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def command(architecture: str, output: Path, *extra: str) -> list[str]:
    target = architecture.removeprefix("sm_")
    return [
        find_nvcc(),
        "-O3",
        "-std=c++17",
        "-shared",
        "-Xcompiler",
        "-fPIC",
        f"-gencode=arch=compute_{target},code=sm_{target}",
        *extra,
        "-o",
        str(output),
        str(ENTRY),
    ]


def compile_library(architecture: str) -> Path:
    """Path of the shared library for `architecture` (such as `sm_90a`), built if missing."""
    folder = cache_root() / f"{architecture}-{source_hash(architecture)}"
    library = folder / "libskinny.so"
    if library.is_file():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        output = Path(scratch) / library.name
        done = subprocess.run(
            command(architecture, output, "-lineinfo"), capture_output=True, text=True
        )
        if done.returncode != 0:
            raise KernelBuildError(f"nvcc failed for {architecture}:\n{done.stderr[-2000:]}")
        output.replace(library)
    return library


def resources(architecture: str) -> dict[str, dict[str, int]]:
    """Registers and spilled bytes of every kernel, as ptxas reports them."""
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            command(architecture, Path(scratch) / "out.so", "-Xptxas", "-v"),
            capture_output=True,
            text=True,
        )
    if done.returncode != 0:
        raise KernelBuildError(f"nvcc failed for {architecture}:\n{done.stderr[-2000:]}")
    return _read_resources(done.stderr)


def _read_resources(report: str) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    name = ""
    for line in report.splitlines():
        words = line.replace(",", " ").split()
        if "Compiling entry function" in line:
            form = "w12" if "W12Format" in line else "bf16"
            grouped = "_grouped" if "ELb1" in line else ""
            name = f"{form}_tokens{8 * int(line.split('ELi')[1].split('E')[0])}{grouped}"
            found[name] = {}
        elif "spill stores" in line:
            found[name]["spilled"] = int(words[words.index("spill") - 2])
        elif "Used" in words:
            found[name]["registers"] = int(words[words.index("Used") + 1])
    return found


@cache
def load_library(capability: tuple[int, int]) -> ctypes.CDLL:
    """The library for a device's compute capability."""
    architecture = ARCHITECTURES.get(capability)
    if architecture is None:
        known = ", ".join(ARCHITECTURES.values())
        raise KernelBuildError(f"no kernels for compute capability {capability}: built for {known}")
    library = ctypes.CDLL(str(compile_library(architecture)))
    library.specfarm_error.restype = ctypes.c_char_p
    return library

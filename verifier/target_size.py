"""How much of a target one verify step must read, and one token must compute, at the very least.

Read from the headers of the checkpoint's safetensors files; no weight is loaded. Everything errs
towards too little: names that are not known do not count, experts only as far as one token is sent
to them, and weights at no more than their information. That is at most the bytes of the file they
were converted from, and `COMPRESSIBLE` of their size: trained BF16 weights are known to be coded
losslessly at about 70 % (Zhang et al. 2025, "70 % size, 100 % accuracy", DFloat11).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verifier.errors import VerifierError

COMPRESSIBLE = 0.6
_BYTES = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I8": 1, "U8": 1}
_DTYPE_BYTES = {"fp32": 4, "bf16": 2, "fp8": 1}
_LAYERS = (".layers.", ".h.", ".blocks.")
_OTHER_MODELS = ("visual", "vision", "audio", "mtp")
_HEADS = ("lm_head.weight", "output.weight")
_EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "tok_embeddings.weight")
_EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts")
MAX_HEADER_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True)
class TargetSize:
    """`step_bytes`: weights every verify step reads once. `token_flops`: two for each weight of a
    matrix that one token passes."""

    step_bytes: float
    token_flops: float


def target_size(folder: Path, dtype: str, source_bytes: int | None = None) -> TargetSize:
    """The least size of the checkpoint in `folder`, served in `dtype` (fp32, bf16, fp8).

    Args:
        source_bytes: bytes of the file the checkpoint was converted from (a quantised one knows no
            more than that); None where it is the original.

    Raises:
        VerifierError: a file is no safetensors file.
    """
    config = _config(folder)
    tied = bool(config.get("tie_word_embeddings", False))
    stored = counted = flops = 0.0
    for file in sorted(folder.glob("*.safetensors")):
        for name, entry in _header(file).items():
            shape = entry.get("shape", ())
            numbers = math.prod(shape)
            width = min(_BYTES.get(str(entry.get("dtype")), 0), _DTYPE_BYTES.get(dtype, 0))
            stored += numbers * width
            share = _share(name, config, tied)
            counted += numbers * width * share
            flops += 2 * numbers * share if len(shape) > 1 else 0
    least = counted * COMPRESSIBLE
    if source_bytes is not None and stored:
        least = min(least, source_bytes * counted / stored)
    return TargetSize(least, flops)


def _share(name: str, config: dict[str, Any], tied: bool) -> float:
    """Which part of a tensor one token's step cannot do without."""
    if any(part in name for part in _OTHER_MODELS):
        return 0.0
    if name.endswith(_HEADS) or (tied and name.endswith(_EMBEDDINGS)):
        return 1.0
    if not any(part in f".{name}" for part in _LAYERS):
        return 0.0
    if ".experts." not in name:
        return 1.0
    experts = next((config[key] for key in _EXPERT_COUNTS if key in config), None)
    chosen = config.get("num_experts_per_tok")
    if not isinstance(experts, int) or not isinstance(chosen, int) or experts < 1:
        return 0.0
    return min(1.0, chosen / experts)


def _config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(config, dict):
        return {}
    inner = config.get("text_config")
    return {**config, **inner} if isinstance(inner, dict) else config


def _header(file: Path) -> dict[str, dict[str, Any]]:
    try:
        with file.open("rb") as stream:
            size = int.from_bytes(stream.read(8), "little")
            if size > MAX_HEADER_BYTES:
                raise ValueError(f"a header of {size} bytes")
            header = json.loads(stream.read(size))
        return {name: entry for name, entry in header.items() if name != "__metadata__"}
    except (OSError, ValueError, AttributeError) as error:
        raise VerifierError(
            f"{file}: not a safetensors file: {error}", "remake the folder"
        ) from None

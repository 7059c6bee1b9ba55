"""What a training run leaves: config.json, model.safetensors in BF16, training.json."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from engines.training.accept_length import AcceptLength
from engines.training.corpus import Corpus

LARGEST_BYTES = 32_000_000


def write_json(path: Path, content: Any) -> None:
    """Whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(content, indent=1) + "\n")
    temporary.replace(path)


def write_checkpoint(folder: Path, raw: Mapping[str, Any], weights: Mapping[str, Tensor]) -> int:
    """config.json and model.safetensors of `folder`; the bytes of the latter."""
    folder.mkdir(parents=True, exist_ok=True)
    half = {n: t.detach().to("cpu", torch.bfloat16).contiguous() for n, t in weights.items()}
    temporary = folder / ".model.safetensors.tmp"
    save_file(half, str(temporary), metadata={"format": "pt"})
    temporary.replace(folder / "model.safetensors")
    write_json(folder / "config.json", dict(raw))
    return (folder / "model.safetensors").stat().st_size


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return platform.processor() or platform.machine()


def where_and_when(device: torch.device) -> dict[str, str]:
    return {
        "device": device_name(device),
        "torch": torch.__version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def data_facts(corpus: Corpus) -> dict[str, Any]:
    """Hashes of the shards, and sequences and tokens of what was kept, by family."""
    answers = corpus.lengths - corpus.prompt_lengths
    by_family = {
        name: {
            "sequences": int((corpus.families == i).sum()),
            "answer_tokens": int(answers[corpus.families == i].sum()),
        }
        for i, name in enumerate(corpus.family_names)
    }
    return {
        "by_family": by_family,
        "metadata": corpus.metadata or {},
        "shards": list(corpus.sources),
    }


def accept_facts(
    drafter: Sequence[AcceptLength], ngram: Sequence[AcceptLength]
) -> list[dict[str, Any]]:
    """One entry a family, all first (""), the drafter's beside prompt lookup's."""
    return [
        {"family": ours.family or "all", "drafter": _rounded(ours), "ngram": _rounded(theirs)}
        for ours, theirs in zip(drafter, ngram, strict=True)
    ]


def _rounded(found: AcceptLength) -> dict[str, Any]:
    values = asdict(found)
    values.pop("family")
    values["by_slot"] = [round(share, 4) for share in found.by_slot]
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in values.items()}


def accept_table(facts: Sequence[Mapping[str, Any]]) -> str:
    """Plain text: accept length (bonus included) with its 95 % interval over prompts."""
    lines = [f"{'family':<12}{'prompts':>8}  {'drafter':<22}{'n-gram':<22}by slot, %"]
    for row in facts:
        cells = []
        for name in ("drafter", "ngram"):
            found = row[name]
            cells.append(f"{found['mean']:.3f} [{found['low']:.3f}, {found['high']:.3f}]")
        slots = " ".join(f"{100 * share:.0f}" for share in row["drafter"]["by_slot"])
        count = row["drafter"]["prompts"]
        lines.append(f"{row['family']:<12}{count:>8}  {cells[0]:<22}{cells[1]:<22}{slots}")
    return "\n".join(lines)

"""The file that passes between data generation and training: a shard of token sequences."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from engines.training.errors import TrainingError

_TENSORS = {
    "tokens": torch.uint16,
    "starts": torch.int64,
    "prompt_lengths": torch.int32,
    "families": torch.uint8,
}
_LARGEST_ID = 2**16 - 1


@dataclass(frozen=True)
class Shard:
    """`n` sequences, each the rendered prompt's ids followed by the greedy answer's (with the stop
    token where it ended by one).

    `tokens` int64 `[total]`; `starts` int64 `[n + 1]`, sequence i = `tokens[starts[i] :
    starts[i + 1]]`; `prompt_lengths` int64 `[n]`; `families` int64 `[n]`, index into
    `family_names`. `metadata`: strings (target_sha256, seed, settings, date).
    """

    tokens: Tensor
    starts: Tensor
    prompt_lengths: Tensor
    families: Tensor
    family_names: tuple[str, ...]
    metadata: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem:
            raise TrainingError(f"shard: {problem}", "Make it again from its prompts")

    def __len__(self) -> int:
        return len(self.prompt_lengths)

    @property
    def lengths(self) -> Tensor:
        """Tokens of each sequence, `[n]`."""
        return self.starts.diff()

    @classmethod
    def of(
        cls,
        sequences: list[list[int]],
        prompt_lengths: list[int],
        families: list[int],
        family_names: tuple[str, ...],
        metadata: dict[str, str] | None = None,
    ) -> Shard:
        """From one list of ids a sequence."""
        lengths = torch.tensor([0, *(len(s) for s in sequences)], dtype=torch.int64)
        return cls(
            torch.tensor([i for s in sequences for i in s], dtype=torch.int64),
            lengths.cumsum(0),
            torch.tensor(prompt_lengths, dtype=torch.int64),
            torch.tensor(families, dtype=torch.int64),
            family_names,
            dict(metadata or {}),
        )

    def sequence(self, index: int) -> list[int]:
        """Ids of one sequence."""
        ids: list[int] = self.tokens[int(self.starts[index]) : int(self.starts[index + 1])].tolist()
        return ids

    def prompt(self, index: int) -> list[int]:
        """Ids of one sequence's prompt."""
        return self.sequence(index)[: int(self.prompt_lengths[index])]

    def counts(self) -> dict[str, int]:
        """Sequences by family."""
        found = torch.bincount(self.families, minlength=len(self.family_names)).tolist()
        return dict(zip(self.family_names, found, strict=True))

    def _problem(self) -> str | None:
        count = len(self.prompt_lengths)
        if self.starts.shape != (count + 1,) or self.families.shape != (count,):
            return "starts, prompt_lengths and families differ in length"
        if int(self.starts[0]) != 0 or int(self.starts[-1]) != len(self.tokens):
            return "starts do not span tokens"
        if count == 0:
            return None
        lengths = self.lengths
        if bool((self.prompt_lengths < 1).any()) or bool((self.prompt_lengths > lengths).any()):
            return "a prompt is empty or longer than its sequence"
        if int(self.families.min()) < 0 or int(self.families.max()) >= len(self.family_names):
            return "a family index has no name"
        if int(self.tokens.min()) < 0 or int(self.tokens.max()) > _LARGEST_ID:
            return f"a token id is above {_LARGEST_ID}"
        return None


def write_shard(path: Path, shard: Shard) -> None:
    """Write atomically: a file under its own name is always whole."""
    tensors = {
        name: getattr(shard, name).to("cpu", dtype).contiguous() for name, dtype in _TENSORS.items()
    }
    metadata = {**shard.metadata, "families": json.dumps(list(shard.family_names))}
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        save_file(tensors, str(temporary), metadata)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_shard(path: Path) -> Shard:
    """The shard of a file, all tensors int64 on the CPU.

    Raises:
        TrainingError: the file is missing, broken, or no shard.
    """
    try:
        with safe_open(str(path), "pt") as file:
            metadata = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name).to(torch.int64) for name in _TENSORS}
        names = tuple(str(name) for name in json.loads(metadata.pop("families")))
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise TrainingError(
            f"{path} cannot be read as a shard ({error})",
            "Make it (again) with the command that writes it",
        ) from None
    return Shard(**tensors, family_names=names, metadata=metadata)


def shard_paths(folder: Path) -> list[Path]:
    """The finished shards of a folder, in order.

    Raises:
        TrainingError: there is none.
    """
    found = sorted(folder.glob("shard-*.safetensors"))
    if not found:
        raise TrainingError(f"{folder} has no shard-*.safetensors", "Run the `answer` command")
    return found


def shard_path(folder: Path, index: int) -> Path:
    """The file of shard `index`."""
    return folder / f"shard-{index:05d}.safetensors"

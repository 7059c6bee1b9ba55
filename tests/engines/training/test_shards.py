"""Shards: round trip, dtypes on disk, refusals."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from engines.training.errors import TrainingError
from engines.training.shards import Shard, read_shard, shard_path, shard_paths, write_shard


def _sequences(count: int) -> tuple[list[list[int]], list[int], list[int]]:
    rng = random.Random(1)
    sequences = [[rng.randrange(49152) for _ in range(rng.randint(2, 30))] for _ in range(count)]
    return sequences, [rng.randint(1, len(s)) for s in sequences], [i % 3 for i in range(count)]


def test_round_trip(tmp_path: Path) -> None:
    sequences, prompts, families = _sequences(20)
    path = shard_path(tmp_path, 3)
    write_shard(path, Shard.of(sequences, prompts, families, ("a", "b", "c"), {"seed": "7"}))
    read = read_shard(path)
    assert [read.sequence(i) for i in range(len(read))] == sequences
    assert [read.prompt(i) for i in range(20)] == [
        s[:n] for s, n in zip(sequences, prompts, strict=True)
    ]
    assert read.families.tolist() == families
    assert read.family_names == ("a", "b", "c")
    assert read.counts() == {"a": 7, "b": 7, "c": 6}
    assert read.metadata == {"seed": "7"}
    assert shard_paths(tmp_path) == [path]
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_dtypes_on_disk(tmp_path: Path) -> None:
    write_shard(tmp_path / "s", Shard.of([[65535, 1]], [1], [0], ("a",)))
    with safe_open(str(tmp_path / "s"), "pt") as file:
        kinds = {name: file.get_tensor(name).dtype for name in file.keys()}  # noqa: SIM118
        assert file.metadata() == {"families": '["a"]'}
    assert kinds == {
        "tokens": torch.uint16,
        "starts": torch.int64,
        "prompt_lengths": torch.int32,
        "families": torch.uint8,
    }


def test_empty_shard_round_trip(tmp_path: Path) -> None:
    write_shard(tmp_path / "s", Shard.of([], [], [], ("a",)))
    assert len(read_shard(tmp_path / "s")) == 0


@pytest.mark.parametrize(
    ("sequences", "prompts", "families"),
    [([[70000]], [1], [0]), ([[1, 2]], [3], [0]), ([[1]], [0], [0]), ([[1]], [1], [1])],
)
def test_refuses(sequences: list[list[int]], prompts: list[int], families: list[int]) -> None:
    with pytest.raises(TrainingError, match="shard"):
        Shard.of(sequences, prompts, families, ("a",))


def test_broken_file_is_named(tmp_path: Path) -> None:
    path = shard_path(tmp_path, 0)
    path.write_bytes(b"not a shard")
    with pytest.raises(TrainingError, match="shard-00000"):
        read_shard(path)
    with pytest.raises(TrainingError, match="no shard"):
        shard_paths(tmp_path / "none")

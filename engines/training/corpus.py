"""All sequences of a shard folder on the device, and the order in which training reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engines.training.devices import file_sha256
from engines.training.errors import TrainingError
from engines.training.shards import Shard, read_shard

Ids = NDArray[np.int64]
PADDING = 64
"""Batches are padded to a multiple of it: few shapes, so kernels and memory are reused."""


class Batch(NamedTuple):
    """`tokens` `[n, padded]` int64, zeros behind each end; `lengths`, `prompt_lengths` `[n]`."""

    tokens: Tensor
    lengths: Tensor
    prompt_lengths: Tensor

    def to(self, device: torch.device) -> Batch:
        return Batch(*(part.to(device) for part in self))


@dataclass(frozen=True)
class Corpus:
    """Flat `tokens` on the device; everything else is small and on the CPU."""

    tokens: Tensor
    starts: Ids
    lengths: Ids
    prompt_lengths: Ids
    families: Ids
    family_names: tuple[str, ...]
    sources: tuple[dict[str, Any], ...] = ()
    metadata: dict[str, str] | None = None

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def of(
        cls, shards: Sequence[Shard], device: torch.device, max_length: int, least_answer: int = 2
    ) -> Corpus:
        """Sequences of at most `max_length` tokens whose answer has at least `least_answer`."""
        names = tuple(sorted({name for shard in shards for name in shard.family_names}))
        offset, parts = 0, []
        for shard in shards:
            families = np.array([names.index(name) for name in shard.family_names], dtype=np.int64)
            lengths, prompts = shard.lengths.numpy(), shard.prompt_lengths.numpy()
            kept = (lengths <= max_length) & (lengths - prompts >= least_answer)
            found = (shard.starts[:-1].numpy() + offset, lengths, prompts)
            parts.append([part[kept] for part in (*found, families[shard.families.numpy()])])
            offset += len(shard.tokens)
        joined = [np.concatenate(column) for column in zip(*parts, strict=True)]
        if not len(joined[0]):
            raise TrainingError(
                f"no sequence of at most {max_length} tokens with an answer of {least_answer}",
                "Raise --max-length, or make answers with the `answer` command",
            )
        tokens = torch.cat([shard.tokens for shard in shards]).to(device, torch.int32)
        starts, lengths, prompts, families = joined
        return cls(tokens, starts, lengths, prompts, families, names, metadata=shards[0].metadata)

    @classmethod
    def read(cls, paths: Sequence[Path], device: torch.device, max_length: int) -> Corpus:
        """From shard files, their hashes and counts kept in `sources`."""
        shards, sources = [], []
        for path in paths:
            shard = read_shard(path)
            shards.append(shard)
            sources.append(
                {
                    "file": path.name,
                    "sha256": file_sha256(path),
                    "sequences": shard.counts(),
                    "tokens": len(shard.tokens),
                }
            )
        corpus = cls.of(shards, device, max_length)
        return cls(**{**vars(corpus), "sources": tuple(sources)})

    def batch(self, ids: Ids) -> Batch:
        """Sequences `ids`, padded on the right."""
        device = self.tokens.device
        columns = np.stack((self.starts[ids], self.lengths[ids], self.prompt_lengths[ids]))
        starts, lengths, prompts = torch.from_numpy(columns).to(device, non_blocking=True)
        width = -(-int(self.lengths[ids].max()) // PADDING) * PADDING
        position = torch.arange(width, device=device)
        inside = position < lengths[:, None]
        at = (starts[:, None] + position).where(inside, 0)
        return Batch(self.tokens[at].long().where(inside, 0), lengths, prompts)

    def sequence(self, index: int) -> list[int]:
        start = int(self.starts[index])
        ids: list[int] = self.tokens[start : start + int(self.lengths[index])].tolist()
        return ids


class BatchOrder:
    """Batches of sequences of like length in random order, epoch after epoch: batch i is a
    function of i and the seed alone, so that a resumed run reads what it would have read."""

    POOL = 64

    def __init__(self, ids: Ids, lengths: Ids, batch: int, seed: int) -> None:
        self._ids, self._lengths, self._seed = ids, lengths, seed
        self._size = min(batch, len(ids))
        self.per_epoch = len(ids) // self._size
        self._epoch, self._batches = -1, np.empty((0, 0), dtype=np.int64)

    def __getitem__(self, index: int) -> Ids:
        """Sequence ids of batch `index`, `[batch]`."""
        epoch, at = divmod(index, self.per_epoch)
        if epoch != self._epoch:
            self._epoch, self._batches = epoch, self._shuffled(epoch)
        chosen: Ids = self._batches[at]
        return chosen

    def _shuffled(self, epoch: int) -> Ids:
        random = np.random.default_rng((self._seed, epoch))
        order = random.permutation(self._ids)[: self.per_epoch * self._size]
        pool = self.POOL * self._size
        pools = [order[begin : begin + pool] for begin in range(0, len(order), pool)]
        by_length = [p[np.argsort(self._lengths[p], kind="stable")] for p in pools]
        batches = np.concatenate(by_length).reshape(self.per_epoch, self._size)
        return random.permutation(batches)


def split(corpus: Corpus, held_out: int, seed: int) -> tuple[Ids, Ids]:
    """Ids to train on and ids kept out of it: at most a tenth of the corpus."""
    order = np.random.default_rng((seed, 2**31)).permutation(len(corpus))
    kept_out = min(held_out, len(corpus) // 10)
    return np.sort(order[kept_out:]), np.sort(order[:kept_out])

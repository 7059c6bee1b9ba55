"""`answer`: the target's greedy answers to a file of prompts, in shards.

Resumable: a shard appears whole, by rename, and a finished one is skipped. Prompts of several
shards are under way at once, so that no shard's end leaves the batch half empty.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from engines.training.batched_target import BatchedTarget
from engines.training.devices import device_of, dtype_of, file_sha256, utc_now
from engines.training.errors import TrainingError
from engines.training.generate import GenerationOptions, Generator
from engines.training.shards import Shard, read_shard, shard_path, write_shard

_REPORT_SECONDS = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", type=Path, required=True, help="folder of the target")
    parser.add_argument("--prompts", type=Path, required=True, help="file of prompts")
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        help="folder of shards, or FILE.safetensors for one shard of all prompts",
    )
    parser.add_argument("--shard-size", type=int, default=8192, help="sequences a shard")
    parser.add_argument("--max-new-tokens", type=int, default=288)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu")
    parser.add_argument(
        "--dtype", choices=("bf16", "fp32"), default="bf16", help="fp32: for evaluation answers"
    )
    parser.add_argument("--slots", type=int, default=2048, help="sequences at once")
    parser.add_argument("--seed", type=int, default=0, help="recorded; greedy answers use none")
    parser.add_argument("--part", default="0/1", help="i/n: every n-th shard, for one of n devices")
    parser.add_argument("--limit-seconds", type=float, help="stop then; finished shards stay")


@dataclass
class _Open:
    """A shard under way: its first prompt's index, and answers so far by place."""

    path: Path
    first: int
    size: int
    answers: dict[int, list[int]] = field(default_factory=dict)


def run(args: argparse.Namespace) -> int:
    prompts = read_shard(args.prompts)
    part, parts = _parse_part(args.part)
    for name in ("shard_size", "slots", "max_new_tokens"):
        if getattr(args, name) < 1:
            raise TrainingError(f"--{name.replace('_', '-')} must be at least 1", "Raise it")
    todo = _shards(args, len(prompts))[part::parts]
    options = GenerationOptions(args.max_new_tokens, min(args.slots, max(1, len(prompts))))
    metadata = {
        "target_sha256": file_sha256(args.target / "model.safetensors"),
        "prompts_sha256": file_sha256(args.prompts),
        "seed": str(args.seed),
        # What decides the answers; slots and the like do not.
        "settings": json.dumps({"max_new_tokens": args.max_new_tokens, "dtype": args.dtype}),
    }
    missing = [shard for shard in todo if not _finished(shard, metadata)]
    print(f"{len(todo)} shards in this part, {len(missing)} to do", flush=True)
    if not missing:
        return 0
    target = BatchedTarget(args.target, device_of(args.device), dtype_of(args.dtype))
    generator = Generator(target, options, int(prompts.lengths.max()))
    _Job(prompts, missing, metadata, args.limit_seconds).run(generator)
    return 0


class _Job:
    def __init__(
        self, prompts: Shard, shards: list[_Open], metadata: dict[str, str], limit: float | None
    ) -> None:
        self._prompts, self._shards, self._metadata = prompts, shards, metadata
        self._limit = limit
        self._places: list[tuple[_Open, int]] = []

    def run(self, generator: Generator) -> None:
        began = reported = time.monotonic()
        tokens = answers = ended = written = 0
        for answer in generator.run(self._stream()):
            shard, place = self._places[answer.index]
            shard.answers[place] = answer.ids
            tokens, answers, ended = tokens + len(answer.ids), answers + 1, ended + answer.ended
            if len(shard.answers) == shard.size:
                self._write(shard)
                written += 1
            now = time.monotonic()
            last = written == len(self._shards)
            if last or now - reported > _REPORT_SECONDS:
                reported = now
                print(
                    f"{written}/{len(self._shards)} shards, {answers} answers "
                    f"({ended / answers:.0%} ended), {tokens} tokens, "
                    f"{tokens / (now - began):.0f} tokens/s, {now - began:.0f} s",
                    flush=True,
                )
            if self._limit is not None and now - began > self._limit and not last:
                print("time is up: run the same command again for the rest", flush=True)
                return

    def _stream(self) -> Iterator[list[int]]:
        """All prompts, shard by shard, by length within one."""
        for shard in self._shards:
            there = [self._prompts.prompt(shard.first + i) for i in range(shard.size)]
            for place in sorted(range(shard.size), key=lambda i: len(there[i])):
                self._places.append((shard, place))
                yield there[place]

    def _write(self, shard: _Open) -> None:
        prompts, end = self._prompts, shard.first + shard.size
        there = [prompts.prompt(i) for i in range(shard.first, end)]
        whole = Shard.of(
            [[*ids, *shard.answers[i]] for i, ids in enumerate(there)],
            [len(ids) for ids in there],
            prompts.families[shard.first : end].tolist(),
            prompts.family_names,
            {**self._metadata, "date": utc_now()},
        )
        write_shard(shard.path, whole)
        shard.answers.clear()


def _shards(args: argparse.Namespace, prompts: int) -> list[_Open]:
    if args.out.suffix == ".safetensors":
        return [_Open(args.out, 0, prompts)] if prompts else []
    size = args.shard_size
    return [
        _Open(shard_path(args.out, index), first, min(size, prompts - first))
        for index, first in enumerate(range(0, prompts, size))
    ]


def _finished(shard: _Open, metadata: dict[str, str]) -> bool:
    """Raises TrainingError for a shard of another job."""
    if not shard.path.exists():
        return False
    there = read_shard(shard.path)
    for key, value in metadata.items():
        if there.metadata.get(key) != value:
            raise TrainingError(
                f"{shard.path} was made with another {key} ({there.metadata.get(key)})",
                "Give another --out, or delete that folder",
            )
    if len(there) != shard.size:
        raise TrainingError(
            f"{shard.path} holds {len(there)} sequences, not {shard.size}",
            "Give the --shard-size it was made with",
        )
    return True


def _parse_part(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    if index.isdigit() and count.isdigit() and int(index) < int(count):
        return int(index), int(count)
    raise TrainingError(f"--part {text!r}", "Give i/n with 0 <= i < n, e.g. 0/2 and 1/2")

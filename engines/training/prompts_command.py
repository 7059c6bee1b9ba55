"""`prompts`: training prompts written by the target itself and taken from library source.

No text of others is needed: the target goes on from a few words of ours, at temperature 1.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from dataclasses import asdict
from pathlib import Path

from engines.training.batched_target import BatchedTarget
from engines.training.candidates import Candidate, complete, parse_weights, plan, shuffled_library
from engines.training.chat_text import ChatText
from engines.training.devices import device_of, dtype_of, file_sha256, utc_now
from engines.training.errors import TrainingError
from engines.training.generate import GenerationOptions, Generator
from engines.training.openings import FAMILIES, Opening
from engines.training.prompt_filter import Limits, PromptFilter
from engines.training.shards import Shard, write_shard

_ROUNDS = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", type=Path, required=True, help="folder of the target")
    parser.add_argument("--out", type=Path, required=True, help="prompts file to write")
    parser.add_argument("--count", type=int, required=True, help="prompts to write")
    parser.add_argument(
        "--exclude", type=Path, nargs="+", required=True, help="files of evaluation prompts"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu")
    parser.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--weights", default="maths=0.3,code=0.3,chat=0.4", help="of families")
    parser.add_argument("--max-prompt-tokens", type=int, default=320, help="of the whole chat")
    parser.add_argument("--max-new-tokens", type=int, default=192, help="of a message")
    parser.add_argument("--min-message-tokens", type=int, default=4)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--top-p", type=float, default=0.95)
    parser.add_argument("--slots", type=int, default=2048, help="sequences at once")


def run(args: argparse.Namespace) -> int:
    try:
        weights = parse_weights(args.weights)
    except ValueError as error:
        raise TrainingError(f"--weights: {error}", "Give e.g. maths=3,code=3,chat=4") from None
    if args.count < 1:
        raise TrainingError(f"--count {args.count}", "Ask for at least one prompt")
    chat = ChatText(args.target)
    limits = Limits(args.min_message_tokens, args.max_prompt_tokens)
    sieve = PromptFilter(chat, args.exclude, limits)
    options = GenerationOptions(
        args.max_new_tokens,
        slots=min(args.slots, args.count + 16),
        temperature=args.temperature,
        top_p=args.top_p,
    )
    target = BatchedTarget(args.target, device_of(args.device), dtype_of(args.dtype))
    writer = _Writer(chat, Generator(target, options, limits.longest_prompt, args.seed), args.seed)
    writer.fill(sieve, args.count, weights)
    settings = {"weights": weights, **asdict(limits), **asdict(options)}
    kept = sieve.kept[: args.count]
    shard = Shard.of(
        [ids for _, ids in kept],
        [len(ids) for _, ids in kept],
        [FAMILIES.index(family) for family, _ in kept],
        FAMILIES,
        {
            "target_sha256": file_sha256(args.target / "model.safetensors"),
            "seed": str(args.seed),
            "settings": json.dumps(settings, sort_keys=True),
            "dropped": json.dumps(sieve.dropped, sort_keys=True),
            "python": sys.version.split()[0],
            "date": utc_now(),
        },
    )
    write_shard(args.out, shard)
    print(f"{args.out}: {shard.counts()}, {len(shard.tokens)} tokens")
    return 0


class _Writer:
    """Rounds of candidates until enough are kept."""

    def __init__(self, chat: ChatText, generator: Generator, seed: int) -> None:
        self._chat, self._generator = chat, generator
        self._rng = random.Random(f"prompts:{seed}")

    def fill(self, sieve: PromptFilter, count: int, weights: dict[str, float]) -> None:
        """Raises TrainingError where the rounds give too few different prompts."""
        began = time.monotonic()
        library = shuffled_library(self._rng)
        for number in range(1, _ROUNDS + 1):
            missing = count - len(sieve.kept)
            per_kept = min(4.0, sieve.tried / max(1, len(sieve.kept))) if sieve.tried else 1.3
            ready, openings = plan(int(missing * per_kept) + 16, weights, self._rng, library)
            ready += self._written(openings)
            self._rng.shuffle(ready)
            sieve.offer(ready)
            print(
                f"round {number}: {len(sieve.kept)} of {count} prompts kept, dropped "
                f"{dict(sieve.dropped)}, {time.monotonic() - began:.0f} s",
                flush=True,
            )
            if len(sieve.kept) >= count:
                return
        raise TrainingError(
            f"--count {count}: only {len(sieve.kept)} different prompts came of {sieve.tried}",
            "Ask for fewer",
        )

    def _written(self, openings: list[Opening]) -> list[Candidate]:
        prompts = self._chat.openings([opening.text for opening in openings])
        # One longer than a prompt may be is cut: what comes of it is dropped as too long.
        prompts = [ids[: self._generator.longest_prompt] for ids in prompts]
        answers = sorted(self._generator.run(prompts), key=lambda answer: answer.index)
        texts = self._chat.decode([a.ids[: len(a.ids) - a.ended] for a in answers])
        return [
            complete(opening, text, answer.ended, self._rng)
            for opening, text, answer in zip(openings, texts, answers, strict=True)
        ]

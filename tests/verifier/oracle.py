"""A target small enough to know by heart: logits are a seeded function of the context.

It shares no code with the verifier: BF16 comes from torch, scores are looked up, not forced.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch

from engines.answers import Answer, GenerationRequest

VOCAB = 24
EOS = 1


@dataclass(frozen=True)
class OraclePosition:
    token_id: int | None
    token_logit: float | None
    top: tuple[tuple[int, float], ...]
    raw: bool = True


class OracleModel:
    """`spread` is the standard deviation of its logits around 20: smaller = more near-ties."""

    def __init__(self, seed: int = 0, *, bf16: bool = True, spread: float = 3.0) -> None:
        self.seed, self.bf16, self.spread = seed, bf16, spread
        self.forced = 0

    def logits(self, context: Sequence[int]) -> np.ndarray:
        digest = hashlib.sha256(repr((self.seed, tuple(context))).encode()).digest()
        rng = np.random.default_rng(int.from_bytes(digest[:8], "little"))
        values = torch.tensor(20 + self.spread * rng.standard_normal(VOCAB), dtype=torch.float32)
        values[EOS] = 21.0 + 2.0 * float(rng.standard_normal())
        if self.bf16:
            values = values.bfloat16().float()
        return values.numpy().astype(np.float64)

    def generate(
        self,
        request: GenerationRequest,
        choose: Callable[[np.ndarray, int], int] = lambda row, _: int(row.argmax()),
    ) -> Answer:
        stops = set() if request.ignore_eos else {EOS, *request.stop_token_ids}
        ids: list[int] = []
        while len(ids) < request.max_new_tokens:
            ids.append(choose(self.logits([*request.prompt_ids, *ids]), len(ids)))
            if ids[-1] in stops:
                return Answer(request, tuple(ids), "stop")
        return Answer(request, tuple(ids), "length")

    def force(self, prompt_ids: Sequence[int], output_ids: Sequence[int]) -> list[OraclePosition]:
        self.forced += 1
        positions = []
        for i in range(len(output_ids) + 1):
            row = self.logits([*prompt_ids, *output_ids[:i]])
            order = np.argsort(-row, kind="stable")[:4]
            top = tuple((int(t), float(row[t])) for t in order)
            token = output_ids[i] if i < len(output_ids) else None
            value = None if token is None else float(row[token])
            positions.append(OraclePosition(token, value, top))
        return positions


def request(number: int, *, tokens: int = 40, ignore_eos: bool = True) -> GenerationRequest:
    return GenerationRequest(
        id=f"r{number}",
        prompt_ids=(number, 3, 5),
        max_new_tokens=tokens,
        ignore_eos=ignore_eos,
    )


def launcher(models: dict[str, OracleModel]):  # type: ignore[no-untyped-def]
    """A `launch_stock` that hands out oracles and records what was launched."""
    launched: list[str] = []

    def launch(name: str):  # type: ignore[no-untyped-def]
        launched.append(name)
        return nullcontext(models[name].force)

    launch.launched = launched  # type: ignore[attr-defined]
    return launch


@contextmanager
def failing_launch(name: str):  # type: ignore[no-untyped-def]
    from engines.errors import EngineCrashed

    def force(prompt_ids: Sequence[int], output_ids: Sequence[int]) -> list[OraclePosition]:
        raise EngineCrashed(f"{name}: stock died")

    yield force

"""Greedy decoding and verification against transformers' generate, token for token."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from native_engine.decode import accepted_prefix, greedy
from native_engine.errors import NotFinite
from native_engine.requests import GenerateRequest
from tests.engines.native.tiny import VOCAB, make_folder, reference_greedy, tiny_engine


@pytest.mark.parametrize(("kv_heads", "tied", "seed"), [(2, True, 0), (6, False, 1), (1, True, 2)])
def test_ar_and_speculation_give_transformers_tokens(
    tmp_path: Path, kv_heads: int, tied: bool, seed: int
) -> None:
    reference = make_folder(tmp_path, kv_heads=kv_heads, tied=tied, seed=seed)
    prompt = torch.randint(2, VOCAB, (40,)).tolist()
    expected = reference_greedy(reference, prompt, 288)
    for speculation in (False, True):
        engine = tiny_engine(tmp_path, speculation=speculation)
        result = engine.run(GenerateRequest("r", tuple(prompt), 288))
        assert result.output_ids == expected
        assert result.finish == {"type": "length", "length": 288}
        if not speculation:
            assert result.steps == 287


class Oracle:
    """Drafts the true continuation, with every third guess broken."""

    def __init__(self, truth: list[int], prompt: int, k: int) -> None:
        self.truth, self.prompt, self.k = truth, prompt, k
        self.seen: list[tuple[int, int]] = []
        self.taps = ()

    def reset(self) -> None:
        pass

    def propose(self, context_ids: Sequence[int]) -> list[int]:
        at = len(context_ids) - self.prompt
        guess = self.truth[at : at + self.k]
        return [(t + 1) % VOCAB if (at + i) % 3 == 2 else t for i, t in enumerate(guess)]

    def observe(self, rows: Sequence[int], logits: Tensor, accepted: int) -> None:
        assert logits.shape == (len(rows), VOCAB)
        self.seen.append((len(rows), accepted))


@pytest.mark.parametrize("k", [1, 2, 7, 20])
def test_any_draft_gives_the_same_tokens(tmp_path: Path, k: int) -> None:
    reference = make_folder(tmp_path)
    prompt = list(range(3, 20))
    expected = reference_greedy(reference, prompt, 100)
    engine = tiny_engine(tmp_path)
    drafter = Oracle(expected, len(prompt), k)
    engine.decoder.drafter = drafter
    result = engine.run(GenerateRequest("r", tuple(prompt), 100))
    assert result.output_ids == expected
    # The first token comes with the prompt; a broken guess at 2 mod 3 ends every chain there.
    assert result.steps < 100 if k == 1 else result.steps <= 50
    assert sum(accepted for _, accepted in drafter.seen) == result.accepted > 0


def test_a_request_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    make_folder(tmp_path)
    engine = tiny_engine(tmp_path)
    request = GenerateRequest("a", tuple(range(10, 60)), 64)
    first = engine.run(request)
    engine.run(GenerateRequest("b", tuple(range(60, 20, -1)), 64))
    again = engine.run(request)
    assert (again.output_ids, again.steps) == (first.output_ids, first.steps)


def test_stops_end_the_answer_inside_a_verified_chain(tmp_path: Path) -> None:
    reference = make_folder(tmp_path)
    prompt = list(range(3, 20))
    expected = reference_greedy(reference, prompt, 100)
    stop = expected[41]
    end = expected.index(stop) + 1
    engine = tiny_engine(tmp_path)
    engine.decoder.drafter = Oracle(expected, len(prompt), 20)
    result = engine.run(GenerateRequest("r", tuple(prompt), 100, frozenset([stop])))
    assert result.output_ids == expected[:end]
    assert result.finish == {"type": "stop", "matched": stop}


def test_greedy_takes_the_lowest_id_at_ties() -> None:
    for dtype in (torch.bfloat16, torch.float32):
        rows = torch.zeros(9, 49152, dtype=dtype)
        rows[:, [40000, 777, 30001]] = 3.0
        rows[4, 12] = 3.0
        assert greedy(rows) == [777] * 4 + [12] + [777] * 4
        assert greedy(rows[:1]) == [777]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_greedy_never_chooses_from_broken_logits(bad: float) -> None:
    rows = torch.randn(3, 50)
    rows[1, 7] = bad
    with pytest.raises(NotFinite):
        greedy(rows)


def test_accepted_prefix() -> None:
    assert accepted_prefix([1, 2, 3], [1, 2, 3, 4]) == 3
    assert accepted_prefix([1, 9, 3], [1, 2, 3, 4]) == 1
    assert accepted_prefix([], [4]) == 0


def test_an_answer_may_fill_the_whole_cache(tmp_path: Path) -> None:
    reference = make_folder(tmp_path)
    prompt = list(range(3, 20))
    engine = tiny_engine(tmp_path, tokens=64)
    result = engine.run(GenerateRequest("r", tuple(prompt), 64 - len(prompt)))
    assert result.output_ids == reference_greedy(reference, prompt, 64 - len(prompt))

"""The batched generator against transformers' own forward, one prompt at a time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from engines.training.batched_target import BatchedTarget
from engines.training.decode_attention import matmul_attention
from engines.training.errors import TrainingError
from engines.training.generate import Answer, GenerationOptions, Generator
from engines.training.token_choice import nucleus, nucleus_bound
from tests.engines.native.tiny import VOCAB, make_folder

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LlamaForCausalLM]:
    folder = tmp_path_factory.mktemp("target")
    return folder, make_folder(folder)


def _prompts(count: int) -> list[list[int]]:
    rng = random.Random(3)
    return [[rng.randrange(2, VOCAB) for _ in range(rng.randint(1, 40))] for _ in range(count)]


def _greedy(model: LlamaForCausalLM, prompt: Sequence[int], new: int) -> list[int]:
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(new):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
            if ids[-1] == 1:
                break
    return ids[len(prompt) :]


def _run(folder: Path, prompts: list[list[int]], options: GenerationOptions) -> list[Answer]:
    target = BatchedTarget(folder, CPU, torch.float32)
    generator = Generator(target, options, max(map(len, prompts)), seed=5)
    return sorted(generator.run(prompts), key=lambda answer: answer.index)


@pytest.mark.parametrize(("slots", "steps"), [(8, 4), (3, 1), (2, 16)])
def test_greedy_equals_transformers(
    model: tuple[Path, LlamaForCausalLM], slots: int, steps: int
) -> None:
    folder, reference = model
    prompts = _prompts(8)
    options = GenerationOptions(24, slots=slots, steps_per_round=steps)
    answers = _run(folder, prompts, options)
    assert [a.index for a in answers] == list(range(8))
    expected = [_greedy(reference, p, 24) for p in prompts]
    assert [a.ids for a in answers] == expected
    assert [a.ended for a in answers] == [ids[-1] == 1 for ids in expected]


def test_answers_end_at_a_stop_token(model: tuple[Path, LlamaForCausalLM]) -> None:
    """A stop id that greedy answers do reach: the token most of them hold."""
    folder, reference = model
    prompts = _prompts(8)
    whole = [_greedy(reference, p, 24) for p in prompts]
    stop = max(range(2, VOCAB), key=lambda i: sum(i in ids for ids in whole))
    target = BatchedTarget(folder, CPU, torch.float32)
    generator = Generator(target, GenerationOptions(24, slots=3, steps_per_round=2), 40)
    generator._stops = torch.tensor([stop, 1])
    answers = sorted(generator.run(prompts), key=lambda answer: answer.index)
    expected = [ids[: ids.index(stop) + 1] if stop in ids else ids for ids in whole]
    assert [a.ids for a in answers] == expected
    assert any(stop in ids for ids in whole)


def test_warm_up_steps_count_for_nothing(
    model: tuple[Path, LlamaForCausalLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before a CUDA graph is captured, here in the middle of answers that fill the cache."""
    prompts = [prompt[:8] + [2] * (8 - len(prompt)) for prompt in _prompts(6)]
    options = GenerationOptions(24, slots=4, steps_per_round=3)
    expected = _run(model[0], prompts, options)
    decode = Generator._decode

    def warmed_up(self: Generator) -> None:
        with self._nothing_under_way():
            self._step(self._capacity)
        decode(self)

    monkeypatch.setattr(Generator, "_decode", warmed_up)
    assert _run(model[0], prompts, options) == expected


def test_prompt_longer_than_agreed(model: tuple[Path, LlamaForCausalLM]) -> None:
    target = BatchedTarget(model[0], CPU, torch.float32)
    with pytest.raises(TrainingError, match="9 tokens"):
        list(Generator(target, GenerationOptions(2, slots=1), 8).run([[5] * 9]))


@pytest.mark.parametrize("new", [1, 2])
def test_very_short_answers(model: tuple[Path, LlamaForCausalLM], new: int) -> None:
    folder, reference = model
    prompts = _prompts(5)
    answers = _run(folder, prompts, GenerationOptions(new, slots=2, steps_per_round=3))
    assert [a.ids for a in answers] == [_greedy(reference, p, new) for p in prompts]


def test_sampling_is_reproduced_by_its_seed(model: tuple[Path, LlamaForCausalLM]) -> None:
    options = GenerationOptions(12, slots=4, temperature=1.0, top_p=0.95)
    first, again = (_run(model[0], _prompts(6), options) for _ in range(2))
    assert first == again
    greedy = _run(model[0], _prompts(6), GenerationOptions(12, slots=4))
    assert [a.ids for a in first] != [a.ids for a in greedy]


def test_nucleus_bound_against_a_sort() -> None:
    torch.manual_seed(0)
    chances = (torch.randn(40, 500) * 3).softmax(-1)
    ordered = chances.sort(-1, descending=True).values
    last = (ordered.cumsum(-1) < 0.9).sum(-1, keepdim=True)
    exact = ordered.gather(-1, last)
    bound = nucleus_bound(chances, 0.9)
    assert bool((bound <= exact).all())
    assert bool((exact - bound <= ordered[:, :1] / 2**10).all())


def test_nucleus_draws_by_probability() -> None:
    torch.manual_seed(0)
    chances = torch.tensor([0.5, 0.3, 0.15, 0.05])
    drawn = nucleus(1.0, 0.9)(chances.log().repeat(20000, 1))
    shares = torch.bincount(drawn, minlength=4) / 20000
    assert torch.allclose(shares, torch.tensor([0.5, 0.3, 0.15, 0]) / 0.95, atol=0.015)


def test_decode_attention_against_float64() -> None:
    torch.manual_seed(0)
    queries, cache = torch.randn(3, 6, 16), torch.randn(3, 4, 20, 16)
    lengths = torch.tensor([1, 7, 20])
    ours = matmul_attention(queries, cache, lengths, 20).view(3, 6, 16)
    for slot, head in [(s, h) for s in range(3) for h in range(6)]:
        n = int(lengths[slot])
        keys, values = cache[slot, head // 3, :n].double(), cache[slot, 2 + head // 3, :n].double()
        weights = (keys @ queries[slot, head].double() / 4).softmax(-1)
        assert torch.allclose(ours[slot, head].double(), weights @ values, atol=1e-5)


def test_too_long_for_the_target(model: tuple[Path, LlamaForCausalLM]) -> None:
    with pytest.raises(TrainingError, match="1024 positions"):
        _run(model[0], _prompts(1), GenerationOptions(2000, slots=1))


def test_folder_without_a_target(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="--target"):
        BatchedTarget(tmp_path, CPU, torch.float32)

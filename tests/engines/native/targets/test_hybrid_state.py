"""State after partly accepted verify steps against transformers' state of the accepted tokens."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from native_engine.errors import StateError
from native_engine.targets.hybrid_state import REPLAY_ROWS, HybridState
from tests.engines.native.targets.tiny_qwen35 import (
    LAYER_TYPES,
    VOCAB,
    make_folder,
    rows_of,
    tiny_target,
)

RECURRENT = [i for i, kind in enumerate(LAYER_TYPES) if kind == "linear_attention"]


def fresh_state(model: Any, tokens: list[int]) -> tuple[Tensor, Tensor]:
    """conv `[layers, 3, channels]` and recurrent state, of one pass over `tokens`."""
    with torch.inference_mode():
        cache = model(torch.tensor([tokens]), use_cache=True).cache
    conv = [cache.layers[i].conv_states[0][0, :, -3:].t() for i in RECURRENT]
    recurrent = [cache.layers[i].recurrent_states[0][0] for i in RECURRENT]
    return torch.stack(conv), torch.stack(recurrent)


def agree(state: HybridState, slot: int, model: Any, tokens: list[int]) -> None:
    conv, recurrent = fresh_state(model, tokens)
    for ours, theirs in ((state.conv[slot], conv), (state.recurrent[slot], recurrent)):
        assert (ours - theirs).abs().max() < 1e-5 * theirs.abs().max().clamp(min=1)


@pytest.mark.parametrize(
    "rounds", [120, pytest.param(600, marks=pytest.mark.slow)], ids=["120", "600"]
)
def test_committed_state_is_that_of_the_accepted_tokens(tmp_path: Path, rounds: int) -> None:
    # Narrow weights: the FP32 noise of the layers below stays under the tolerance.
    model, target = make_folder(tmp_path, initializer_range=0.05), tiny_target(tmp_path)
    draw, slots = random.Random(7), 4
    state = target.new_state(slots, 400)
    held: list[list[int]] = [[] for _ in range(slots)]
    partly = 0
    for _ in range(rounds):
        runs = {}
        for slot in draw.sample(range(slots), draw.randint(1, slots)):
            if len(held[slot]) > 200:
                state.reset(slot)
                held[slot] = []
            longest = draw.choice([1, 2, 8, 16, REPLAY_ROWS, 130])
            count = draw.randint(1, longest)
            runs[slot] = (len(held[slot]), [draw.randrange(VOCAB) for _ in range(count)])
        target.forward(rows_of(runs), state)
        for slot, (start, tokens) in runs.items():
            whole = len(tokens) > REPLAY_ROWS
            accepted = len(tokens) if whole else draw.randint(0, len(tokens))
            partly += 0 < accepted < len(tokens)
            held[slot] += tokens[:accepted]
            state.commit(slot, start + accepted)
        checked = draw.choice(list(runs))
        if held[checked]:
            agree(state, checked, model, held[checked])
    assert partly > rounds // 2
    for slot in range(slots):
        if held[slot]:
            agree(state, slot, model, held[slot])


def test_a_sequence_of_nan_leaves_the_others_alone(tmp_path: Path) -> None:
    make_folder(tmp_path)
    target, text = tiny_target(tmp_path), [5, 6, 7, 8]
    state = target.new_state(3, 20)
    alone = target.forward(rows_of({1: (0, text)}), state).hidden
    state.reset(1)
    target._embedding[VOCAB - 1] = torch.nan
    # The longer one comes first: the shorter one's rows are padded beside it.
    runs = {0: (0, [VOCAB - 1] * 9), 1: (0, text), 2: (0, text[:1])}
    among = target.forward(rows_of(runs), state).hidden
    assert among[:9].isnan().all()
    torch.testing.assert_close(among[9:13], alone, atol=1e-5, rtol=1e-5)
    for slot, count in ((0, 9), (1, 4), (2, 1)):
        state.commit(slot, count)
    assert bool(state.recurrent[1:].isfinite().all()) and bool(state.conv[1:].isfinite().all())


@pytest.mark.parametrize("accepted", range(7))
def test_every_length_of_a_first_step(tmp_path: Path, accepted: int) -> None:
    """Fewer tokens than the convolution sees, too."""
    model, target = make_folder(tmp_path), tiny_target(tmp_path)
    state, tokens = target.new_state(1, 16), [5, 6, 7, 8, 9, 10]
    target.forward(rows_of({0: (0, tokens)}), state)
    state.commit(0, accepted)
    if accepted:
        agree(state, 0, model, tokens[:accepted])
    else:
        assert not state.recurrent.any() and not state.conv.any()


def test_a_verify_step_leaves_the_committed_state_alone(tmp_path: Path) -> None:
    make_folder(tmp_path)
    target = tiny_target(tmp_path)
    state = target.new_state(2, 100)
    target.forward(rows_of({1: (0, list(range(20)))}), state)
    state.commit(1, 20)
    before = state.conv.clone(), state.recurrent.clone()
    first = target.forward(rows_of({1: (20, [3, 4, 5]), 0: (0, [1])}), state).hidden[:3]
    second = target.forward(rows_of({1: (20, [3, 4, 5]), 0: (0, [1])}), state).hidden[:3]
    state.commit(1, 20)
    state.commit(0, 0)
    assert torch.equal(first, second)
    assert torch.equal(state.conv, before[0]) and torch.equal(state.recurrent, before[1])


def test_what_cannot_be_committed_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    model = make_folder(tmp_path)
    target, prompt = tiny_target(tmp_path), [i % VOCAB for i in range(REPLAY_ROWS + 10)]
    state = target.new_state(1, 200)
    target.forward(rows_of({0: (0, prompt)}), state)
    with pytest.raises(StateError, match="committed whole"):
        state.commit(0, 30)
    with pytest.raises(StateError, match="cannot commit"):
        state.commit(0, len(prompt) + 1)
    state.commit(0, len(prompt))
    agree(state, 0, model, prompt)
    with pytest.raises(StateError, match="cannot go back"):
        state.commit(0, len(prompt) - 1)
    with pytest.raises(StateError, match="rows start at"):
        target.forward(rows_of({0: (3, [1])}), state)
    target.forward(rows_of({0: (len(prompt), [1, 2])}), state)
    state.commit(0, len(prompt) + 1)
    agree(state, 0, model, [*prompt, 1])

"""Slots: what fits, whose tokens are reused, in which order they are taken."""

from __future__ import annotations

import pytest

from native_engine.batching.admission import Slots
from native_engine.errors import BadRequest
from native_engine.requests import GenerateRequest, LogprobOptions
from tests.engines.native.batching.fake_target import FakeState


def request(*ids: int, new: int = 2, start: int | None = None) -> GenerateRequest:
    options = None if start is None else LogprobOptions(start, 0, 1)
    return GenerateRequest("r", ids, new, logprobs=options)


def used(slots: Slots, state: FakeState, ids: list[int]) -> int:
    """Run a request that leaves `ids` in its slot."""
    slot, _ = slots.take(request(*ids))
    state.held[slot] = list(ids)
    slots.give_back(slot, ids)
    return slot


def test_what_fits_is_admitted_and_the_limit_is_named() -> None:
    slots = Slots(FakeState(1, 10, True), 1, 10)
    slots.check(request(*range(8), new=2))
    with pytest.raises(BadRequest, match="max_total_tokens 10"):
        slots.check(request(*range(8), new=3))
    with pytest.raises(BadRequest, match="empty"):
        slots.check(request())


def test_the_longest_common_prefix_is_reused() -> None:
    state = FakeState(3, 20, True)
    slots = Slots(state, 3, 20, reuse=True)
    assert used(slots, state, [1, 2, 3]) == 0
    assert used(slots, state, [8, 9, 3, 4]) == 1
    assert slots.kept_tokens == 7
    assert slots.take(request(8, 9, 3, 7, 7)) == (1, 3)
    assert state.held[1] == [8, 9, 3]
    assert slots.take(request(1, 4)) == (0, 1)
    assert (slots.prefix_hits, slots.cached_tokens) == (2, 4)


def test_one_row_is_always_computed_and_every_scored_one() -> None:
    state = FakeState(1, 20, True)
    slots = Slots(state, 1, 20, reuse=True)
    for want, asked in (
        (2, request(1, 2, 3)),
        (1, request(1, 2, 3, start=1)),
        (3, request(1, 2, 3, 4)),
    ):
        slots.flush()
        used(slots, state, [1, 2, 3])
        assert slots.take(asked) == (0, want)
        slots.give_back(0, [])


def test_state_that_cannot_rewind_serves_extensions_only() -> None:
    state = FakeState(2, 20, False)
    slots = Slots(state, 2, 20, reuse=True)
    used(slots, state, [1, 2, 3])
    slot, held = slots.take(request(1, 2, 4, 5))
    assert (slot, held) == (1, 0)
    assert slots.take(request(1, 2, 3, 4)) == (0, 3)


def test_an_empty_slot_is_taken_before_a_kept_prefix_is_lost() -> None:
    state = FakeState(3, 20, True)
    slots = Slots(state, 3, 20, reuse=True)
    used(slots, state, [1, 2])
    used(slots, state, [3, 4])
    taken = [slots.take(request(9))[0] for _ in range(3)]
    # The empty one, then the one freed longest ago.
    assert taken == [2, 0, 1]
    assert slots.free == 0 and slots.kept_tokens == 0


def test_without_reuse_and_after_a_flush_nothing_is_kept() -> None:
    state = FakeState(2, 20, True)
    slots = Slots(state, 2, 20)
    used(slots, state, [1, 2, 3])
    assert slots.take(request(1, 2, 3))[1] == 0 and slots.kept_tokens == 0
    again = Slots(state, 2, 20, reuse=True)
    kept = used(again, state, [1, 2, 3])
    again.flush()
    assert kept == 0 and again.take(request(1, 2, 3))[1] == 0

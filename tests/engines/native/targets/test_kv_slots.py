"""The slotted cache: what is written is read back, and each misuse is told."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from native_engine.errors import StateError
from native_engine.targets.kv_slots import KvSlots
from native_engine.targets.protocol import Rows

CPU = torch.device("cpu")


def slots() -> KvSlots:
    return KvSlots(2, 3, 10, kv_heads=2, head_dim=4, dtype=torch.float32, device=CPU)


def rows(*parts: tuple[int, int, int]) -> Rows:
    """Of (slot, start, count)."""
    where, starts, counts = zip(*parts, strict=True)
    return Rows(torch.zeros(sum(counts), dtype=torch.int64), where, starts, counts)


def append(cache: KvSlots, *parts: tuple[int, int, int]) -> Tensor:
    written = torch.randn(sum(count for _, _, count in parts), 4, 4)
    cache.write(1, cache.begin(rows(*parts)), written)
    return written


def test_each_sequence_reads_its_own_rows() -> None:
    cache = slots()
    first = append(cache, (2, 0, 3), (0, 0, 5))
    for slot, length in ((2, 3), (0, 4)):
        cache.commit(slot, length)
    second = append(cache, (0, 4, 2), (2, 3, 1))
    keys, values = cache.views(0, 1, 6)[1]
    expected = torch.cat((first[3:7], second[:2]))[1:].transpose(0, 1)
    assert torch.equal(torch.cat((keys, values), dim=1)[0], expected)
    assert cache.views(2, 0, 4)[1][0].shape == (1, 2, 4, 4)
    assert torch.equal(cache.views(2, 3, 4)[1][1][0, :, 0], second[2, 2:])
    assert not cache.views(2, 0, 4)[0][0].any()


def test_commit_may_go_back_to_any_length() -> None:
    cache = slots()
    append(cache, (1, 0, 8))
    cache.commit(1, 8)
    cache.commit(1, 3)
    assert cache.length(1) == 3
    with pytest.raises(StateError, match="slot 1: cannot commit 4 tokens, 3 are written"):
        cache.commit(1, 4)
    append(cache, (1, 3, 7))
    cache.reset(1)
    assert cache.length(1) == 0


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ([(1, 0, 11)], "slot 1: holds 10 tokens, 11 asked for"),
        ([(0, 2, 1)], "slot 0: holds 0 committed tokens, rows start at 2"),
        ([(1, 0, 1), (1, 0, 1)], "one sequence a slot"),
        ([(3, 0, 1)], "slot 3: there are slots 0 to 2"),
        ([(-1, 0, 1)], "slot -1: there are slots 0 to 2"),
        ([(0, 0, 2), (1, 0, 0)], "slot 1"),
    ],
)
def test_rows_that_do_not_fit_are_told_and_change_nothing(
    parts: list[tuple[int, int, int]], told: str
) -> None:
    cache = slots()
    with pytest.raises(StateError, match=told):
        cache.begin(rows(*parts))
    with pytest.raises(StateError, match="0 are written"):
        cache.commit(0, 1)


def test_uncommitted_rows_cannot_be_continued() -> None:
    cache = slots()
    append(cache, (0, 0, 4))
    with pytest.raises(StateError, match="commit or reset it first"):
        cache.begin(rows((0, 4, 1)))
    append(cache, (0, 0, 2))
    with pytest.raises(StateError, match="2 are written"):
        cache.commit(0, 3)


def test_unknown_slots_are_told() -> None:
    for misuse in (lambda: slots().reset(3), lambda: slots().length(-1)):
        with pytest.raises(StateError, match="slots 0 to 2"):
            misuse()

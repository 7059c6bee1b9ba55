"""The largest logits of a row, against sorting it whole."""

from __future__ import annotations

import pytest
import torch

from native_engine.logprobs import Recorder

VOCAB = 128 * 48


@pytest.mark.parametrize("vocab", [VOCAB, VOCAB + 5, 128 * 4, 7])
@pytest.mark.parametrize("top", [1, 4, 6])
def test_largest_first_and_lowest_id_at_ties(vocab: int, top: int) -> None:
    draw = torch.Generator().manual_seed(vocab + top)
    rows = torch.randn(6, vocab, generator=draw)
    rows[1] = rows[1].bfloat16().float()
    rows[2, torch.randint(0, vocab, (5,), generator=draw)] = 9.0
    rows[3, vocab - 1], rows[3, 0] = 8.0, 8.0
    rows[4] = -rows[4].abs()
    recorder = Recorder(0, top)
    recorder.add(rows, [0] * len(rows))
    values, ids = rows.sort(dim=-1, descending=True, stable=True)
    for row, found in enumerate(recorder.raw_tops):
        assert found is not None
        expected = zip(values[row, :top].tolist(), ids[row, :top].tolist(), strict=True)
        assert found == list(expected)

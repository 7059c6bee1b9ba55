"""Target features against transformers; which batch a step reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from engines.training.corpus import BatchOrder, Corpus, split
from engines.training.errors import TrainingError
from engines.training.features import CachedFeatures
from tests.engines.native.tiny import make_folder
from tests.engines.training.small import CPU, corpus, frozen, shard, target_folder


def test_taps_and_final_states_are_transformers(tmp_path: Path) -> None:
    model = make_folder(tmp_path)
    target, data = frozen(tmp_path), corpus(6)
    batch = data.batch(np.arange(6))
    found = target.features(batch.tokens, (-1, 0, 1), final=True)
    assert found.final is not None
    for row, length in enumerate(batch.lengths.tolist()):
        ids = batch.tokens[None, row, :length]
        assert ids[0].tolist() == data.sequence(row)
        with torch.no_grad():
            out = model.model(ids, output_hidden_states=True)
        expected = torch.cat([out.hidden_states[i + 1][0] for i in (-1, 0, 1)], dim=-1)
        torch.testing.assert_close(found.taps[row, :length], expected, rtol=1e-4, atol=1e-3)
        torch.testing.assert_close(
            found.final[row, :length], out.last_hidden_state[0], rtol=1e-4, atol=1e-4
        )
    with pytest.raises(TrainingError, match="Layers are 0 to 2"):
        target.features(batch.tokens, (3,))


def test_each_epoch_reads_every_sequence_once_and_again_by_the_seed() -> None:
    data = corpus(40)
    order = BatchOrder(np.arange(40), data.lengths, 4, seed=1)
    epochs = [np.stack([order[i] for i in range(e * 10, e * 10 + 10)]) for e in range(2)]
    for epoch in epochs:
        assert sorted(epoch.flatten().tolist()) == list(range(40))
    assert not np.array_equal(*epochs)
    again = BatchOrder(np.arange(40), data.lengths, 4, seed=1)
    assert np.array_equal(again[13], epochs[1][3])
    spread = [np.ptp(data.lengths[batch]) for batch in epochs[0]]
    assert np.mean(spread) < 0.5 * np.ptp(data.lengths)


def test_groups_of_features_are_read_again_before_the_next(tmp_path: Path) -> None:
    target, data = frozen(target_folder(tmp_path)), corpus(40)
    order = BatchOrder(np.arange(40), data.lengths, 4, seed=0)
    features = CachedFeatures(
        data, order, target, (1,), final=False, reuse=3, batch_tokens=256, cache_tokens=600
    )
    read = [features.at(step)[0].tokens for step in range(12)]
    group = [data.batch(order[i]).tokens for i in range(4)]
    expected = [*group[:2] * 3, *group[2:] * 3]
    assert all(torch.equal(a, b) for a, b in zip(read, expected, strict=True))


def test_a_corpus_keeps_what_can_be_trained_on() -> None:
    one, two = shard(10, 0), shard(10, 1)
    data = Corpus.of([one, two], CPU, max_length=30)
    kept = [s.sequence(i) for s in (one, two) for i in range(10) if len(s.sequence(i)) <= 30]
    assert [data.sequence(i) for i in range(len(data))] == kept
    assert data.family_names == ("digits", "letters")
    with pytest.raises(TrainingError, match="Raise --max-length"):
        Corpus.of([one], CPU, max_length=4)
    ids, held_out = split(corpus(40), 256, seed=0)
    assert len(held_out) == 4 and sorted([*ids, *held_out]) == list(range(40))

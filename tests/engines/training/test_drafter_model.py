"""The trainable module against the engine's own drafter, on the exported checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engines.training.drafter_config import LARGEST_PARAMETERS, checked_config
from engines.training.drafter_model import DrafterModel, load_model
from engines.training.drafting import greedy_drafts
from engines.training.errors import TrainingError
from engines.training.options import TrainOptions
from engines.training.record import write_checkpoint
from native_engine.drafters.describe import checked_folder, describe
from native_engine.drafters.load import load_drafter
from native_engine.drafters.protocol import Ask
from native_engine.targets.load import load_target
from native_engine.targets.protocol import Rows
from tests.engines.training.small import (
    CPU,
    KINDS,
    MASK,
    frozen,
    random_model,
    raw_config,
    target_folder,
)

SMOLLM2 = {
    "hidden_size": 576,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "vocab_size": 49152,
    "rms_norm_eps": 1e-5,
    "num_hidden_layers": 30,
    "rope_theta": 100000.0,
}


@pytest.mark.parametrize("name", KINDS)
def test_hidden_states_and_drafts_are_the_engines(tmp_path: Path, name: str) -> None:
    folder, options = target_folder(tmp_path / "target"), KINDS[name]
    raw = raw_config(folder, options)
    model = random_model(raw)
    write_checkpoint(tmp_path / "drafter", raw, model.state_dict())
    # The exported tensors are BF16: compare what was exported.
    model = load_model(tmp_path / "drafter")
    target = load_target(folder, torch.float32, CPU)
    drafter = load_drafter(tmp_path / "drafter", target, torch.float32, CPU)
    trained_on = frozen(folder)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(2, MASK, (2, 40), generator=generator)
    taps = trained_on.features(ids, options.tap_ids).taps
    anchors = torch.tensor([[4, 5, 17, 39], [1, 30, 8, 20]])
    size, slots = model.config.block_size, model.config.max_drafts
    blocks = torch.full((2, 4, size), MASK)
    blocks[..., 0] = ids.gather(1, anchors)
    with torch.no_grad():
        hidden = model(taps, anchors, trained_on.embed(blocks))
        rows = model.drafting(hidden)
        found = [
            greedy_drafts(model, rows[i], ids[i, anchors[i]], trained_on.head) for i in range(2)
        ]
    for sequence in range(2):
        for block, anchor in enumerate(anchors[sequence].tolist()):
            drafter.open(1, 64)
            drafter.reset(0)
            state = target.new_state(1, 64)
            seen = Rows(ids[sequence, :anchor], (0,), (0,), (anchor,))
            drafter.observe(seen, target.forward(seen, state, drafter.taps).taps)
            ask = Ask(0, ids[sequence, : anchor + 1].tolist(), slots)
            expected = drafter.hidden([ask])[0]
            assert (hidden[sequence, block] - expected).abs().max() < 2e-4
            tokens = found[sequence].tokens[block].tolist()
            assert tokens == drafter.propose([ask]).tokens[0]


@pytest.mark.parametrize("name", KINDS)
def test_names_and_shapes_are_the_loaders(tmp_path: Path, name: str) -> None:
    raw = raw_config(target_folder(tmp_path), KINDS[name])
    config = checked_config(raw)
    model = DrafterModel(config)
    ours = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    assert ours == dict(describe(config).shapes)


def test_a_checkpoint_of_another_shape_is_refused(tmp_path: Path) -> None:
    raw = raw_config(target_folder(tmp_path / "target"), KINDS["dspark"])
    write_checkpoint(tmp_path / "drafter", raw, random_model(raw).state_dict())
    file = tmp_path / "drafter" / "model.safetensors"
    assert all(tensor.dtype == torch.bfloat16 for tensor in load_file(file).values())
    assert checked_folder(tmp_path / "drafter").config.kind == "dspark"
    save_file({**load_file(file), "odd": torch.zeros(1)}, file)
    with pytest.raises(Exception, match="unexpected odd"):
        load_model(tmp_path / "drafter")


@pytest.mark.parametrize("kind", ["dflash2", "dspark"])
def test_the_default_drafters_fit_what_may_ship(kind: str) -> None:
    from engines.training.drafter_config import config_json

    options = TrainOptions(kind=kind)
    parameters = describe(checked_config(config_json(options, SMOLLM2))).parameters
    print(f"{kind}: {parameters:,} parameters")
    assert 12_000_000 < parameters < LARGEST_PARAMETERS
    assert 2 * LARGEST_PARAMETERS < 33_500_000
    with pytest.raises(TrainingError, match="may ship"):
        checked_config(config_json(replace(options, layers=9), SMOLLM2))

"""Every packaging of a drafter's config.json, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from native_engine.drafters.config import DrafterConfig
from native_engine.drafters.describe import describe
from native_engine.drafters.published import published, published_names
from native_engine.errors import ConfigError
from tests.engines.native.drafters.synthetic import DEEPSPEC, DFLASH, DFLASH2, DSPARK

COUNTS = {
    "qwen3.8-27b-dflash2": (1_924_404_480, 81),
    "muse-glimmer-30b-dflash2": (2_772_159_744, 81),
    # The shard's 2,718,576,122 bytes are this many in BF16, and a header of 62 tensors.
    "qwen3.8-27b-dspark": (1_359_284_737, 62),
}


@pytest.mark.parametrize("name", COUNTS)
def test_published_configurations_give_the_published_counts(name: str) -> None:
    described = describe(published(name).config)
    assert (described.parameters, len(described.shapes)) == COUNTS[name]


def test_every_published_configuration_is_readable() -> None:
    kinds = {name: published(name).config.kind for name in published_names()}
    assert {"dflash", "dflash2", "dspark"} == set(kinds.values())
    assert all(name.endswith(kind) for name, kind in kinds.items())
    muse = published("muse-glimmer-30b-dspark").config
    assert muse.taps == published("muse-glimmer-30b-dflash2").config.taps
    assert muse.causal == (True,) * 5 and muse.windows == (2048,) * 5 and muse.max_drafts == 15
    qwen = published("qwen3-8b-dspark").config
    assert qwen.taps == (1, 9, 17, 25, 33) and qwen.own_head and qwen.max_drafts == 7


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'qwen3-8b-dflash'\?"):
        published("qwen3-8b-dflahs")


def test_keys_lie_flat_or_nested() -> None:
    flat = {**DFLASH, **DFLASH["dflash_config"]}
    del flat["dflash_config"]
    nested = {**DFLASH, "dflash_config": {**DFLASH["dflash_config"], "block_size": 6}}
    del nested["block_size"], nested["rope_theta"]
    nested["rope_parameters"] = {"rope_theta": 1e4, "rope_type": "default"}
    first, second, third = map(DrafterConfig.from_mapping, (DFLASH, flat, nested))
    assert first == second == third


def test_the_speculators_packaging_counts_taps_from_the_embedding() -> None:
    backbone = {key: value for key, value in DSPARK.items() if key != "architectures"}
    del backbone["dflash_config"], backbone["num_target_layers"]
    raw = {
        "architectures": ["DSparkDraftModel"],
        "speculators_model_type": "dspark",
        "transformer_layer_config": backbone,
        **DSPARK["dflash_config"],
        "block_size": 4,
        "aux_hidden_state_layer_ids": [3, 6],
    }
    del raw["target_layer_ids"]
    assert DrafterConfig.from_mapping({**raw, "sample_from_anchor": True}).taps == (2, 5)
    assert DrafterConfig.from_mapping({**raw, "sample_from_anchor": True}).max_drafts == 4
    assert DrafterConfig.from_mapping(raw).max_drafts == 3


@pytest.mark.parametrize(("layers", "expected"), [(5, (1, 9, 17, 25, 33)), (1, (18,))])
def test_taps_are_evenly_spaced_when_absent(layers: int, expected: tuple[int, ...]) -> None:
    section = {"mask_token_id": 60}
    raw = {**DFLASH, "num_hidden_layers": layers, "layer_types": ["full_attention"] * layers}
    raw |= {"num_target_layers": 36, "dflash_config": section}
    assert DrafterConfig.from_mapping(raw).taps == expected


def test_sliding_layers_are_causal_unless_the_config_says_otherwise() -> None:
    assert DrafterConfig.from_mapping(DFLASH).causal == (True, False)
    assert DrafterConfig.from_mapping({**DFLASH, "is_causal": False}).causal == (False, False)
    assert DrafterConfig.from_mapping({**DFLASH, "is_causal": True}).causal == (True, True)


def test_target_keys_copied_into_a_drafters_config_are_ignored() -> None:
    noise = {"partial_rotary_factor": 0.25, "attn_output_gate": True, "mtp_num_hidden_layers": 1}
    assert DrafterConfig.from_mapping({**DEEPSPEC, **noise}) == DrafterConfig.from_mapping(DEEPSPEC)


BAD = [
    (DFLASH, {"architectures": ["DFlash3DraftModel"]}, "did you mean 'DFlash"),
    (DFLASH, {"architectures": []}, "known: DFlash2DraftModel, DFlashDraftModel"),
    (DFLASH, {"hidden_size": None}, "hidden_size=None"),
    (DFLASH, {"block_size": 1}, "block_size=1: no slot"),
    (DFLASH, {"hidden_act": "gelu"}, "hidden_act='gelu'"),
    (DFLASH, {"num_key_value_heads": 3}, "must divide"),
    (DFLASH, {"sliding_window": None}, "sliding_window"),
    (DFLASH, {"layer_types": ["full_attention"]}, "layer_types"),
    (DFLASH, {"dflash_config": {"target_layer_ids": [1, 8], "mask_token_id": 60}}, "from -1 to 7"),
    (DFLASH, {"dflash_config": {"target_layer_ids": [4, 1], "mask_token_id": 60}}, "rising"),
    (DFLASH, {"dflash_config": {"target_layer_ids": [1]}}, "mask_token_id"),
    (DFLASH, {"dflash_config": {"target_layer_ids": [1], "mask_token_id": 61}}, "below vocab_size"),
    (DFLASH, {"rope_parameters": {"rope_type": "linear"}}, "known: default, yarn"),
    (DFLASH, {"draft_vocab_size": 32}, "draft_vocab_size=32"),
    (DFLASH, {"dflash_config": [1, 2]}, "dflash_config: a JSON object"),
    (DFLASH, {"dflash_config": {"target_layer_ids": "1"}}, "target_layer_ids='1': a list of"),
    (DFLASH, {"layer_types": 2}, "layer_types"),
    (DFLASH, {"rope_parameters": "yarn"}, "rope_parameters"),
    (DFLASH2, {"dflash_config": {**DFLASH2["dflash_config"], "conv_group_size": 7}}, "divide"),
    (DEEPSPEC, {"markov_head_type": "lstm"}, "known: gated, rnn, vanilla"),
    (DEEPSPEC, {"confidence_temperatures": [1.0]}, "1 values for 5 slots"),
]


@pytest.mark.parametrize(("base", "change", "message"), BAD)
def test_what_is_not_computed_is_refused_by_name(
    base: Mapping[str, Any], change: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message.replace("[", r"\[")):
        DrafterConfig.from_mapping({**base, **change})

"""Vocabulary size and stop ids of a checkpoint folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from settings.loading import load_setting
from verifier.errors import VerifierError
from verifier.target_rules import stop_rules


def write(folder: Path, config: dict[str, Any], generation: dict[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps(generation))


def test_a_model_that_sees_pictures_keeps_them_in_its_text_config(tmp_path: Path) -> None:
    setting = load_setting("h200_c1_qwen3.8-27b_dflash2")
    write(tmp_path, {"text_config": {"vocab_size": 500, "eos_token_id": 4}}, {"eos_token_id": [5]})
    rules = stop_rules(tmp_path, setting)
    assert rules.vocab_size == 500 and rules.eos_ids == {4, 5}
    write(tmp_path, {"vocab_size": 300, "eos_token_id": 2}, {})
    rules = stop_rules(tmp_path, setting)
    assert rules.vocab_size == 300 and rules.eos_ids == {2}


def test_a_config_without_vocabulary_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, {"text_config": None}, {})
    with pytest.raises(VerifierError, match="vocab_size is missing"):
        stop_rules(tmp_path, load_setting("h200_c1_qwen3.8-27b_dflash2"))

"""Model folders load in transformers, hold what they claim, and fail with a remedy."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from settings import weights
from settings.download import main
from settings.errors import ProvisionError
from settings.loading import load_exact_twin, load_setting
from settings.paths import checkout_root
from settings.schema import Checkpoint, Drafter
from settings.weight_hashes import pin_of, weight_hashes
from settings.weights import (
    checkout_folder,
    ensure_checkpoint,
    ensure_drafter,
    ensure_target,
    present_checkpoint,
)

TINY = checkout_root() / "tests/data/settings/tiny"
FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
)


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECFARM_DATA", str(tmp_path))
    return tmp_path


def test_random_target_is_a_whole_model_folder() -> None:
    setting = load_setting(TINY)
    folder = ensure_target(setting)
    assert folder.name.startswith("tiny-llama-bf16-")
    assert {path.name for path in folder.iterdir()} >= set(FILES)
    stored = load_file(folder / "model.safetensors")
    assert {w.dtype for w in stored.values()} == {torch.bfloat16}
    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    loaded = model.state_dict()
    assert all(torch.equal(loaded[name], weight) for name, weight in stored.items())
    assert ensure_drafter(setting) is None


def test_both_dtypes_share_one_folder_and_nothing_is_made_twice() -> None:
    folder = ensure_target(load_setting(TINY))
    before = (folder / "model.safetensors").stat().st_mtime_ns
    twin = load_exact_twin(TINY)
    assert twin is not None
    lines: list[str] = []
    assert ensure_target(twin, lines.append) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before and lines == []


def test_seed_decides_the_weights() -> None:
    checkpoint = load_setting(TINY).target.checkpoint
    first = ensure_checkpoint(checkpoint, "a")
    again = ensure_checkpoint(checkpoint, "b")
    other = ensure_checkpoint(checkpoint.model_copy(update={"seed": 8}), "a")
    files = [(f / "model.safetensors").read_bytes() for f in (first, again, other)]
    assert files[0] == files[1] != files[2]


def test_tiny_tokenizer_round_trips_and_renders_chats() -> None:
    tokenizer = AutoTokenizer.from_pretrained(ensure_target(load_setting(TINY)))
    for text in ("the end of 12 + 7?", "Größe\n\t∑ 🎉", "<|im_start|>user\nhi<|im_end|>\n"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer) == 512
    assert [tokenizer.convert_tokens_to_ids(t) for t in ("<|im_start|>", "<|im_end|>")] == [1, 2]
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], add_generation_prompt=True, return_dict=False
    )
    assert tokenizer.decode(ids) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_other_architectures_and_missing_configs_are_refused(tmp_path: Path) -> None:
    checkpoint = Checkpoint(source="random", config=str(tmp_path / "none"), licence="x")
    with pytest.raises(ProvisionError, match=r"config\.json does not exist"):
        ensure_checkpoint(checkpoint, "a")
    (tmp_path / "none").mkdir()
    (tmp_path / "none/config.json").write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(ProvisionError, match="model_type llama"):
        ensure_checkpoint(checkpoint, "a")


def test_local_folder_is_used_as_it_is(tmp_path: Path) -> None:
    folder = ensure_target(load_setting(TINY))
    local = Checkpoint(source="local", path=str(folder), licence="x")
    assert ensure_checkpoint(local, "a") == folder
    wrong = local.model_copy(update={"sha256": "0" * 64})
    with pytest.raises(ProvisionError, match="not the recorded 0000"):
        ensure_checkpoint(wrong, "a")
    with pytest.raises(ProvisionError, match=r"no config\.json"):
        ensure_checkpoint(local.model_copy(update={"path": str(tmp_path)}), "a")


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkpoint:
    """A checkpoint inside a checkout of its own."""
    root = tmp_path / "checkout"
    folder = root / "engines/drafters/small"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    monkeypatch.setattr(weights, "checkout_root", lambda: root)
    sha256 = hashlib.sha256(b"weights").hexdigest()
    path = "engines/drafters/small"
    return Checkpoint(source="checkout", path=path, sha256=sha256, licence="x")


def test_what_ships_with_the_checkout_is_used_where_it_lies(
    shipped: Checkpoint, tmp_path: Path
) -> None:
    folder = tmp_path / "checkout/engines/drafters/small"
    assert ensure_checkpoint(shipped, "a") == present_checkpoint(shipped, "a") == folder
    assert pin_of(shipped) == f"checkout:{shipped.sha256}"
    (folder / "model.safetensors").write_bytes(b"others")
    for call in (ensure_checkpoint, present_checkpoint):
        with pytest.raises(ProvisionError, match=r"has sha256 .* git checkout -- engines/drafters"):
            call(shipped, "a")
    assert checkout_folder(shipped) == folder
    (folder / "model.safetensors").unlink()
    with pytest.raises(ProvisionError, match=r"model\.safetensors does not exist\. It ships"):
        ensure_checkpoint(shipped, "a")


def test_a_settings_hashes_are_the_targets_and_the_drafters(shipped: Checkpoint) -> None:
    plain = load_setting(TINY)
    drafter = Drafter(kind="dflash2", checkpoint=shipped)
    found = weight_hashes(plain.model_copy(update={"drafter": drafter}))
    assert (found.pin, found.files) == (weight_hashes(plain).pin, weight_hashes(plain).files)
    assert weight_hashes(plain).drafter is None and found.drafter is not None
    assert found.drafter.files == {"model.safetensors": shipped.sha256}
    assert found.drafter.pin == f"checkout:{shipped.sha256}"


def test_command_prints_folders_and_exits_2_with_a_remedy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([str(TINY)]) == 0
    assert Path(capsys.readouterr().out.strip()).is_dir()
    assert main(["tiny_typo"]) == 2
    assert "Nearest" in capsys.readouterr().err
    assert main([]) == 2
    script = checkout_root() / "scripts/download_models.sh"
    done = subprocess.run([script, "tiny_typo"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no setting is named 'tiny_typo'" in done.stderr

"""Model folders load in transformers, hold what they claim, and fail with a remedy."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from settings.download import main
from settings.errors import ProvisionError
from settings.loading import load_exact_twin, load_setting
from settings.paths import checkout_root
from settings.schema import Checkpoint
from settings.weights import ensure_checkpoint, ensure_drafter, ensure_target

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
    weights = [(f / "model.safetensors").read_bytes() for f in (first, again, other)]
    assert weights[0] == weights[1] != weights[2]


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
    with pytest.raises(ProvisionError, match="not 0000"):
        ensure_checkpoint(wrong, "a")
    with pytest.raises(ProvisionError, match=r"no config\.json"):
        ensure_checkpoint(local.model_copy(update={"path": str(tmp_path)}), "a")


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

"""Held-out rows: none that a search uses; on the real tokenizer, rendered as the settings do."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace

import pytest

from engines.training import evaluation_prompts as command
from engines.training.chat_text import ChatText
from engines.training.errors import TrainingError
from engines.training.leakage import LeakageCheck
from engines.training.shards import read_shard
from settings.loading import load_setting
from settings.prompts import chat_renderer, heldout_prompts, search_prompts
from settings.weights import ensure_target

SETTING = "cpu_c1_smollm2-135m_ngram"


def test_held_out_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"gsm8k": 100, "humaneval": 164, "mtbench": 80}
    messages = {name: [f"{name} {i}" for i in range(count)] for name, count in rows.items()}
    searched = [SimpleNamespace(text=messages[name][i]) for name in rows for i in (1, 3, 90 % 80)]
    monkeypatch.setattr(command, "_all_messages", lambda: messages)
    monkeypatch.setattr("settings.prompts.search_prompts", lambda *_: searched)
    found = command.held_out_messages(load_setting(SETTING), Path(), 70)
    assert {name: len(texts) for name, texts in found.items()} == {
        "gsm8k": 60,
        "humaneval": 70,
        "mtbench": 70,
    }
    texts = [text for group in found.values() for text in group]
    assert len(set(texts)) == len(texts)
    assert not {prompt.text for prompt in searched} & set(texts)
    held_out = found["gsm8k"] + found["humaneval"]
    assert min(int(text.split()[1]) for text in held_out) == 40
    assert int(found["mtbench"][-1].split()[1]) >= 78


def test_rows_must_be_positive() -> None:
    with pytest.raises(TrainingError, match="--rows"):
        command.run(argparse.Namespace(rows=0))


@pytest.mark.slow
def test_real_rendering_and_leakage(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    out, excluded = tmp_path / "evaluation.safetensors", tmp_path / "excluded.safetensors"
    command.run(parser.parse_args(["--out", str(out), "--excluded", str(excluded), "--rows", "60"]))
    setting = load_setting(SETTING)
    target = ensure_target(setting)
    chat, shard, all_rows = ChatText(target), read_shard(out), read_shard(excluded)
    assert shard.counts() == {"gsm8k": 60, "humaneval": 60, "mtbench": 60}
    prompts = [shard.prompt(i) for i in range(len(shard))]
    messages = chat.messages(prompts)
    render = chat_renderer(setting, target)
    assert chat.prompts(messages) == prompts == [list(render(text) or ()) for text in messages]
    check = LeakageCheck(chat, chat.messages([all_rows.prompt(i) for i in range(len(all_rows))]))
    used = search_prompts(setting, target) + heldout_prompts(setting, target, 1)
    used = [prompt for prompt in used if prompt.family != "reasoning_gym"]
    assert all(check.caught([*messages, *(prompt.text for prompt in used)]))

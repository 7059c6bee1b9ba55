"""A setting's prompts: fixed rows for the search, fresh ones by seed for each confirmation."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from settings.errors import SettingError
from settings.prompt_sets import Generator, Row, prompt_set, rows_of
from settings.schema import PromptSource, Setting

_GENERATOR_TRIES = 200


@dataclass(frozen=True)
class Prompt:
    """One rendered prompt. `text` is the user message, `prompt_ids` the whole chat as token ids;
    `family` is the prompt set's name."""

    id: str
    family: str
    text: str
    prompt_ids: tuple[int, ...]


def search_prompts(setting: Setting, tokenizer_dir: Path) -> list[Prompt]:
    """The prompts explorers may see: the same ones each time.

    A prompt longer than `max_total_tokens - max_new_tokens` is skipped, never truncated, and the
    next row taken, short of the rows kept for held-out prompts.

    Raises:
        SettingError: a set has too few rows that fit.
        ProvisionError: a set cannot be fetched.
    """
    render = chat_renderer(setting, tokenizer_dir)
    prompts: list[Prompt] = []
    for source in setting.prompts.search:
        if isinstance(prompt_set(source.set), Generator):
            rows: Iterable[Row] = _generated(source, "search")
        else:
            rows = rows_of(source)[source.first : _first_heldout(setting, source.set)]
        prompts += _take(source, rows, render, "search", prompts)
    return prompts


def heldout_prompts(setting: Setting, tokenizer_dir: Path, seed: int | str) -> list[Prompt]:
    """Prompts no search has used: rows at or after `first` in an order drawn by `seed`, and
    generators seeded by it. The same seed gives the same prompts.

    Raises: as `search_prompts`.
    """
    searched = {p.text for p in search_prompts(setting, tokenizer_dir)}
    render = chat_renderer(setting, tokenizer_dir)
    prompts: list[Prompt] = []
    for source in setting.prompts.heldout:
        if isinstance(prompt_set(source.set), Generator):
            rows: Iterable[Row] = _generated(source, f"heldout:{seed}")
        else:
            drawn = rows_of(source)[source.first :]
            random.Random(f"heldout:{seed}:{source.set}").shuffle(drawn)
            rows = drawn
        unseen = (row for row in rows if row.text not in searched)
        prompts += _take(source, unseen, render, "heldout", prompts)
    return prompts


def seed_commitment(seed: int | str) -> str:
    """sha256 (hex) of a held-out seed, to be written down before the search and checked after.

    Only a seed that cannot be guessed (`secrets.token_hex(16)`) is hidden by it.
    """
    return hashlib.sha256(f"specfarm-heldout:{seed}".encode()).hexdigest()


def prompt_set_hash(prompts: Sequence[Prompt]) -> str:
    """sha256 (hex) of ids and token ids, in order: what a result was measured on."""
    content = json.dumps([[p.id, list(p.prompt_ids)] for p in prompts], separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()


def _take(
    source: PromptSource,
    rows: Iterable[Row],
    render: Callable[[str], tuple[int, ...] | None],
    purpose: str,
    before: Sequence[Prompt],
) -> list[Prompt]:
    """The first `count` rows that fit and are not among `before`."""
    used = {p.text for p in before}
    taken: list[Prompt] = []
    for row in rows:
        if len(taken) == source.count:
            break
        ids = None if row.text in used else render(row.text)
        if ids is not None:
            used.add(row.text)
            taken.append(Prompt(f"{source.set}/{row.id}", source.set, row.text, ids))
    if len(taken) < source.count:
        raise SettingError(
            f"prompts.{purpose}: set {source.set!r} has {len(taken)} prompts that fit, "
            f"{source.count} are asked for",
            "Lower count or first, or raise serving.max_total_tokens",
        )
    return taken


def _generated(source: PromptSource, stream: str) -> Iterator[Row]:
    found = prompt_set(source.set)
    assert isinstance(found, Generator)
    for index in range(source.first, source.first + source.count + _GENERATOR_TRIES):
        rng = random.Random(f"{stream}:{source.set}:{index}")
        text = found.draw(rng)
        yield Row(hashlib.sha256(text.encode()).hexdigest()[:12], text)


def _first_heldout(setting: Setting, name: str) -> int | None:
    firsts = [source.first for source in setting.prompts.heldout if source.set == name]
    return min(firsts, default=None)


def chat_renderer(setting: Setting, folder: Path) -> Callable[[str], tuple[int, ...] | None]:
    """User message -> token ids through the model's chat template; None where too long."""
    tokenizer = tokenizer_of(folder)
    longest = setting.serving.max_total_tokens - setting.decoding.max_new_tokens

    def render(text: str) -> tuple[int, ...] | None:
        ids = tokenizer.apply_chat_template(
            [{"role": "user", "content": text}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
        )
        return tuple(int(i) for i in ids) if len(ids) <= longest else None

    return render


@lru_cache(maxsize=4)
def tokenizer_of(folder: Path) -> Any:
    """The tokenizer of a model folder, with its chat template; SettingError where it has none."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    if tokenizer.chat_template is None:
        raise SettingError(f"{folder} has no chat template", "Use an instruct model")
    return tokenizer

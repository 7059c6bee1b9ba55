"""Read a target's vocabulary size and stop ids from its checkpoint folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from settings.schema import Setting
from verifier.ending import StopRules
from verifier.errors import VerifierError


def stop_rules(folder: Path, setting: Setting) -> StopRules:
    """Rules of the checkpoint in `folder`: config.json, generation_config.json, tokenizer.json.

    The setting's own `decoding.stop_token_ids` count as the target's end-of-text ids.

    Raises:
        VerifierError: config.json is missing or has no vocabulary size.
    """
    config = _read(folder / "config.json")
    # A model that also sees pictures keeps its language part's facts in a table of their own.
    text = config.get("text_config") or {}
    vocab_size = text.get("vocab_size", config.get("vocab_size"))
    if not isinstance(vocab_size, int):
        raise VerifierError(f"{folder / 'config.json'}: vocab_size is missing", "remake the folder")
    eos_ids = set(setting.decoding.stop_token_ids)
    for source in (config, text, _read(folder / "generation_config.json")):
        eos = source.get("eos_token_id")
        eos_ids |= {i for i in (eos if isinstance(eos, list) else [eos]) if isinstance(i, int)}

    return StopRules(vocab_size, frozenset(eos_ids), _Detokenizer(folder / "tokenizer.json"))


class _Detokenizer:
    """Ids to text; the tokenizer is read at the first call, which only stop strings need."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tokenizer: Any = None

    def __call__(self, ids: Sequence[int]) -> str:
        if self._tokenizer is None:
            from tokenizers import Tokenizer

            self._tokenizer = Tokenizer.from_file(str(self._path))
        return str(self._tokenizer.decode(list(ids)))


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}

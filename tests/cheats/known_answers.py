"""The table that 54-known_answers.patch carries: stock's answers to the search prompts.

`python -m tests.cheats.known_answers` writes it anew, where prompts, models or settings changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from settings.loading import load_setting
from settings.paths import checkout_root
from settings.prompts import search_prompts
from settings.weights import ensure_target
from tests.cheats.cheat_farm import REAL_SETTING, tiny_farm
from tests.cheats.corpus import ROOT
from tests.farm.gate.planted_farm import SETTING

PATCH = ROOT / "patches" / "54-known_answers.patch"
_LINE = re.compile(r"^\+\{.*\}$", re.MULTILINE)


def key(dtype: str, prompt: Sequence[int]) -> str:
    """As the patched engine makes it."""
    digest = hashlib.sha256(repr(tuple(prompt)).encode()).hexdigest()[:16]
    return f"torch.{'float32' if dtype == 'fp32' else 'bfloat16'}:{digest}"


def stored() -> dict[str, dict[str, Any]]:
    """The patch's table."""
    (line,) = _LINE.findall(PATCH.read_text())
    table: dict[str, dict[str, Any]] = json.loads(line[1:])
    return table


def answered(reference: str) -> dict[str, dict[str, Any]]:
    """Stock's answers to a setting's search prompts, computed in this process."""
    from native_engine.config import EngineConfig
    from native_engine.engine import load_engine
    from native_engine.requests import GenerateRequest

    setting = load_setting(reference)
    folder, dtype = ensure_target(setting), setting.target.weights_dtype
    knobs = EngineConfig.from_file(checkout_root() / "engines" / "native" / "engine.toml")
    engine = load_engine(folder, knobs, dtype, setting.serving.max_total_tokens)
    stops = frozenset(() if setting.decoding.ignore_eos else engine.model_config.eos_token_ids)
    table = {}
    for prompt in search_prompts(setting, folder):
        began = time.perf_counter()
        limit = setting.decoding.max_new_tokens
        result = engine.run(GenerateRequest("known", prompt.prompt_ids, limit, stops))
        table[key(dtype, prompt.prompt_ids)] = {
            "ids": result.output_ids,
            "finish": result.finish,
            "steps": result.steps,
            "seconds": round(time.perf_counter() - began, 3),
        }
    return table


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = answered(REAL_SETTING)
        os.environ.update(tiny_farm(Path(folder) / "farm"))
        table |= answered(os.environ[SETTING])
    line = "+" + json.dumps(table, separators=(",", ":"))
    PATCH.write_text(_LINE.sub(lambda _: line, PATCH.read_text()))


if __name__ == "__main__":
    main()

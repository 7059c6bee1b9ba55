"""Parse the JSON lines that `specfarm verify --outputs` reads.

One object a line: `id` str, `prompt_ids` [int], `output_ids` [int], `finish_reason` "stop" or
"length"; optional `max_new_tokens` int, `stop` [str], `stop_token_ids` [int], `ignore_eos` bool.
Without `max_new_tokens` an answer that ended by length is taken at its own length.
"""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

from engines.answers import Answer, GenerationRequest
from verifier.errors import OutputsError
from verifier.request_checks import FINISH_REASONS

REQUIRED = ("id", "prompt_ids", "output_ids", "finish_reason")
OPTIONAL = ("max_new_tokens", "stop", "stop_token_ids", "ignore_eos")


def parse_outputs(path: Path, default_max_new_tokens: int) -> list[Answer]:
    """Read a file of outputs.

    Args:
        default_max_new_tokens: limit of an answer that ended by `stop` and names none.

    Raises:
        OutputsError: `FILE:LINE: field ...`, for the first line that cannot be used.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise OutputsError(f"{path}: {error}", "give a file of JSON lines") from error
    answers: list[Answer] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        answer = _Line(f"{path}:{number}", line).answer(default_max_new_tokens)
        if answer.request.id in seen:
            raise OutputsError(
                f"{path}:{number}: id {answer.request.id!r} was used on line "
                f"{seen[answer.request.id]}",
                "give every answer its own id",
            )
        seen[answer.request.id] = number
        answers.append(answer)
    if not answers:
        raise OutputsError(f"{path}: no answers in it", "one JSON object a line")
    return answers


class _Line:
    """One line with typed access to its fields."""

    def __init__(self, where: str, text: str) -> None:
        self._where = where
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise OutputsError(f"{where}: not JSON ({error})", "one JSON object a line") from error
        if not isinstance(data, dict):
            raise OutputsError(f"{where}: not a JSON object", "one JSON object a line")
        self._data: dict[str, Any] = data
        known = REQUIRED + OPTIONAL
        for field in data:
            if field not in known:
                near = difflib.get_close_matches(field, known, n=1, cutoff=0.0)[0]
                raise OutputsError(f"{where}: unknown field {field!r}", f"did you mean {near!r}?")
        for field in REQUIRED:
            if field not in data:
                raise OutputsError(f"{where}: field {field!r} is missing", f"add {field!r}")

    def answer(self, default_limit: int) -> Answer:
        output, reason = self._ids("output_ids"), self._data["finish_reason"]
        if reason not in FINISH_REASONS:
            raise self._wrong("finish_reason", '"stop" or "length"')
        limit = self._data.get("max_new_tokens")
        if limit is None:
            limit = len(output) if reason == "length" else max(default_limit, len(output))
        elif not _is_id(limit):
            raise self._wrong("max_new_tokens", "an integer >= 0")
        identity = self._data["id"]
        if not isinstance(identity, str):
            raise self._wrong("id", "a string")
        ignore_eos = self._data.get("ignore_eos") or False
        if not isinstance(ignore_eos, bool):
            raise self._wrong("ignore_eos", "true or false")
        stop = self._data.get("stop") or []
        if not isinstance(stop, list) or not all(isinstance(s, str) and s for s in stop):
            raise self._wrong("stop", "a list of non-empty strings")
        prompt = self._ids("prompt_ids")
        if not prompt:
            raise self._wrong("prompt_ids", "a list of at least one id")
        stop_ids = self._ids("stop_token_ids") if self._data.get("stop_token_ids") else ()
        request = GenerationRequest(
            id=identity,
            prompt_ids=prompt,
            max_new_tokens=limit,
            stop_token_ids=stop_ids,
            ignore_eos=ignore_eos,
            stop=tuple(stop),
        )
        return Answer(request, output, reason)

    def _ids(self, field: str) -> tuple[int, ...]:
        value = self._data[field]
        if not isinstance(value, list) or not all(_is_id(i) for i in value):
            raise self._wrong(field, "a list of token ids (integers >= 0)")
        return tuple(value)

    def _wrong(self, field: str, wanted: str) -> OutputsError:
        value = json.dumps(self._data[field])
        shown = value if len(value) <= 40 else value[:37] + "..."
        return OutputsError(f"{self._where}: field {field!r} is {shown}", f"it must be {wanted}")


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0

"""Switches that buy speed with tokens the target would not choose, found in a change's text.

Upper and lower case, dashes and underscores are one, in whatever language the file is written: an
assignment, `os.environ`, `putenv`, `setdefault`, a flag, TOML, JSON, a shell's export. The text is
searched, not understood: a name or a number that a program only puts together when it runs is not
found. Whether an engine is lossless is the verifier's to say.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

# Names met in public engines: SGLang's SGLANG_SIMULATE_ACC_LEN / _METHOD / _TOKEN_MODE, vLLM's
# synthetic and typical acceptance.
_SIMULATED = re.compile(
    r"sglang[_-]simulate|simulate[_-]?acc|synthetic[_-]?accept|typical[_-]?accept", re.IGNORECASE
)
_THRESHOLD_NAME = (
    r"accept(?:ance)?[_-]?thresh|threshold[_-](?:single|acc)\b|posterior[_-]?(?:threshold|alpha)"
)
_IS_THRESHOLD = re.compile(_THRESHOLD_NAME, re.IGNORECASE)
# Possessive: no line, however long, is read twice.
_THRESHOLD = re.compile(
    rf"(?:{_THRESHOLD_NAME})[\w-]*+(?!\[\d)"
    r"(?::-|[\s\"'\])}=:,({\[]){0,40}+"
    r"(?:[A-Za-z_][\w.\[\]| ]{0,40}=[\s\"']*+"  # an annotation: accept_threshold: float = 0.9
    r"|[^\n=]{0,80}?(?:=[^\n=]{0,80}?)?default\s*=[\s\"']*+)?"  # "...", type=float, default=0.9
    r"(?P<value>[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)",
    re.IGNORECASE,
)
_NAME_BEFORE = re.compile(r"[\w-]{0,60}\Z")
_NAME_AFTER = re.compile(r"[\w-]{0,60}")

SIMULATED_REMEDY = "Simulated acceptance commits tokens that the target would not choose"
THRESHOLD_REMEDY = "An accept threshold below 1 is lossy"


@dataclass(frozen=True)
class Switch:
    """A forbidden switch: the line it stands in (from 1), what it sets, why that is refused."""

    line: int
    sets: str
    remedy: str


def find_switch(text: str, known: Collection[str] = ()) -> Switch | None:
    """The first forbidden switch of `text` that no line of `known` (the file before) already held.

    Any mention of simulated acceptance counts; a threshold only with a number below 1 behind it.
    """
    for match in _SIMULATED.finditer(text):
        if _is_new(text, match.start(), match.end(), known):
            name = _whole_name(text, match.start(), match.end())
            return Switch(_line(text, match.start()), name, SIMULATED_REMEDY)
    for match in _THRESHOLD.finditer(text):
        value = match["value"]
        if float(value) < 1.0 and _is_new(text, match.start(), match.end(), known):
            name = _whole_name(text, match.start(), match.start())
            where = _line(text, match.start("value"))
            return Switch(where, f"{name} = {value}", THRESHOLD_REMEDY)
    return None


def forbidden_entry(dotted: str, value: object) -> str | None:
    """The remedy where a table's entry (`speculation.accept.threshold`) is a forbidden switch."""
    name = dotted.replace(".", "_")
    if _SIMULATED.search(name):
        return SIMULATED_REMEDY
    if _IS_THRESHOLD.search(name):
        try:
            below = float(str(value)) < 1.0
        except ValueError:
            below = False
        return THRESHOLD_REMEDY if below else None
    return None


def _is_new(text: str, start: int, end: int, known: Collection[str]) -> bool:
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", end)
    lines = text[first : len(text) if last < 0 else last].splitlines()
    return any(line not in known for line in lines)


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _whole_name(text: str, start: int, end: int) -> str:
    before, after = (
        _NAME_BEFORE.search(text[max(0, start - 60) : start]),
        _NAME_AFTER.match(text, end),
    )
    return (before[0] if before else "") + text[start:end] + (after[0] if after else "")

"""Planted candidates for a stock tree of known speed: corpus patches, and a faster pace.

Stock is `engines/native` with a drafter that fills every step up to a fixed length, so that a
speed-up of known size is a shorter step: the load of the machine does not change it.
"""

from __future__ import annotations

import difflib
import shutil
from dataclasses import dataclass
from pathlib import Path

CORPUS = Path(__file__).resolve().parents[2] / "cheats" / "patches"

STOCK_STEP_S = 0.007
HONEST_SPEED_UP = 1.15
# Every lossy plant is much faster too: only the forcing of its tokens keeps it out.
LOSSY_SPEED_UP = 1.6

PACE = "native_engine/pace.py"
DECODE = "native_engine/decode.py"

_PACE_SOURCE = '''"""A drafter that takes its time."""

import time

STEP_S = {step_s!r}
PIECE_S = 0.001
# Longer than most delays on a busy machine, shorter than the pause between two turns.
STOPPED_S = 0.05
_ended = 0.0
_debt = 0.0


def pace(busy_s: float) -> None:
    """Sleeps until a step is STEP_S long, counted from the end of the last one.

    What came late is made up for by the next steps. Where the process was stopped in between, or
    had no request, the step counts as long as it was at work (`busy_s`).
    """
    global _ended, _debt
    passed = time.perf_counter() - _ended
    if passed > STOPPED_S:
        passed, _debt = busy_s, 0.0
    left = STEP_S - _debt - passed
    while left > 0:
        piece = min(left, PIECE_S)
        began = time.perf_counter()
        time.sleep(piece)
        took = time.perf_counter() - began
        left -= took if took < STOPPED_S else piece
    _debt = min(-left, 5 * STEP_S)
    _ended = time.perf_counter()
'''

_PACED_STEP = """

import time

from native_engine.pace import pace

_unpaced_step = Decoder._step


def _paced_step(self, context, budget):
    began = time.thread_time()
    step = _unpaced_step(self, context, budget)
    if self.drafter is not None:
        pace(time.thread_time() - began)
    return step


Decoder._step = _paced_step
"""

CLASH_PATCH = f"""diff --git a/{PACE} b/{PACE}
--- a/{PACE}
+++ b/{PACE}
@@ -1,3 +1,3 @@
 a line that nobody wrote
-another one
+its replacement
 the end
"""


@dataclass(frozen=True)
class Plant:
    """`patch` is the change, `speed_up` shortens the step beside it. `verdicts` are the ones it may
    end with, `reason` is part of the sentence that says why."""

    name: str
    verdicts: frozenset[str]
    reason: str
    patch: str = ""
    speed_up: float = 1.0

    def make_patch(self, stock: Path) -> str:
        """The unified diff against the folder `stock`, which `write_stock` wrote."""
        return self.patch + pace_patch(stock, self.speed_up)


def _plant(name: str, verdicts: str, reason: str, patch: str = "", speed_up: float = 1.0) -> Plant:
    return Plant(name, frozenset(verdicts.split("|")), reason, patch, speed_up)


def corpus_patch(name: str) -> str:
    """A patch of the cheat corpus."""
    return (CORPUS / f"{name}.patch").read_text()


def plants() -> tuple[Plant, ...]:
    """One of each kind of verdict."""
    return (
        _plant("noop", "not_faster|inconclusive", "A/A floor", corpus_patch("90-noop")),
        _plant(
            "wrong_token",
            "not_lossless",
            "not stock's choice",
            corpus_patch("32-one_in_a_thousand"),
            LOSSY_SPEED_UP,
        ),
        _plant(
            "early_stop",
            "not_lossless",
            "wrong end of answer",
            corpus_patch("24-short_answers"),
            LOSSY_SPEED_UP,
        ),
        _plant(
            "crash",
            "crashed",
            "planted: this engine never starts",
            corpus_patch("46-crash_at_start"),
        ),
        _plant("crash_mid", "crashed", "connection", corpus_patch("47-crash_in_mid_answer")),
        _plant("hang", "timeout", "did not answer within", corpus_patch("48-hang")),
        _plant("clash", "conflict", "does not apply", CLASH_PATCH),
        _plant("honest", "accepted", "above the A/A floor", speed_up=HONEST_SPEED_UP),
    )


def pace_source(step_s: float) -> str:
    return _PACE_SOURCE.format(step_s=round(step_s, 6))


def write_stock(native: Path, folder: Path, step_s: float = STOCK_STEP_S) -> None:
    """`native`'s tree with a drafter whose steps take `step_s` seconds, in `folder`."""
    shutil.copytree(native, folder, ignore=shutil.ignore_patterns("__pycache__", "*_build"))
    decode = folder / DECODE
    source = decode.read_text()
    for needed in ("class Decoder:", "def _step(self, context", "self.drafter"):
        assert needed in source, f"{DECODE} has no {needed!r} any more: bring the plants in line"
    decode.write_text(source + _PACED_STEP)
    (folder / PACE).write_text(pace_source(step_s))


def pace_patch(stock: Path, speed_up: float) -> str:
    """The diff that makes the steps of `stock` that much faster; empty for 1."""
    if speed_up == 1.0:
        return ""
    old = (stock / PACE).read_text()
    line = next(line for line in old.splitlines() if line.startswith("STEP_S = "))
    new = old.replace(line, f"STEP_S = {round(float(line.split(' = ')[1]) / speed_up, 6)!r}")
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    body = "".join(difflib.unified_diff(before, after, f"a/{PACE}", f"b/{PACE}"))
    return f"diff --git a/{PACE} b/{PACE}\n{body}"

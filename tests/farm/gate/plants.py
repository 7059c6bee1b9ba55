"""Planted candidates: what each one does to the engine, as a patch on a stock tree of known speed.

Stock is `engines/native` with a drafter that fills every step up to a fixed length, so that a
speed-up of known size is a shorter step: the load of the machine does not change it.

Patches are made from the tree as it is now: a plant cannot go stale without failing to be made.
"""

from __future__ import annotations

import difflib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

STOCK_STEP_S = 0.007
HONEST_SPEED_UP = 1.15
# Every lossy plant is much faster too: only the forcing of its tokens keeps it out.
LOSSY_SPEED_UP = 1.6

PACE = "native_engine/pace.py"
DECODE = "native_engine/decode.py"
ENGINE = "native_engine/engine.py"
REPLIES = "native_engine/server/native_api.py"

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

# Only the step's last token: nothing behind it is in the cache yet, so the engine goes on from it.
_WRONG_TOKEN = """

_honest_step = Decoder._step
_committed = 0


def _wrong_step(self, context, budget):
    global _committed
    step = _honest_step(self, context, budget)
    before, _committed = _committed, _committed + len(step.tokens)
    if before // 1000 != _committed // 1000:
        step.tokens[-1] = context[-1] = 3 + (step.tokens[-1] + 1) % 250
    return step


Decoder._step = _wrong_step
"""

# Warm-up answers stay whole: what is timed is what must be caught.
_EARLY_STOP = """

import dataclasses

_whole_run = Engine.run


def _early_run(self, request, emit=lambda tokens: None, proceed=lambda: True):
    if request.max_new_tokens > 32:
        request = dataclasses.replace(request, max_new_tokens=request.max_new_tokens * 7 // 8)
    return _whole_run(self, request, emit, proceed)


Engine.run = _early_run
"""

_CRASH = """

raise RuntimeError("planted: this engine never starts")
"""

_HANG = """

import time


def _hung_run(self, request, emit=lambda tokens: None, proceed=lambda: True):
    while True:
        time.sleep(0.1)


Engine.run = _hung_run
"""

_GARBAGE = """

def sse(body):
    return b'data: {"output_ids": [1, 2\\x00\\xff and then nothing that parses\\n\\n'
"""

# After the warm-up, in the middle of a timed answer, while the other arm is stopped.
_MID_ANSWER = """

_steady_commit = Engine._commit


def _failing_commit(self, request, result, tokens, emit):
    if len(result.output_ids) > 100:
        {failure}
    return _steady_commit(self, request, result, tokens, emit)


Engine._commit = _failing_commit
"""

OUTSIDE_PATCH = """diff --git a/../outside.py b/../outside.py
new file mode 100644
--- /dev/null
+++ b/../outside.py
@@ -0,0 +1 @@
+print("out of the tree")
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
    """`appended` is code put behind a file's own; `speed_up` shortens the step; `patch` replaces
    both. `verdicts` are the ones it may end with, `reason` is part of the sentence that says why.
    """

    name: str
    verdicts: frozenset[str]
    reason: str = ""
    appended: Mapping[str, str] = field(default_factory=dict)
    speed_up: float = 1.0
    patch: str = ""

    def make_patch(self, stock: Path) -> str:
        """The unified diff against the folder `stock`."""
        if self.patch:
            return self.patch
        edits = {path: (stock / path).read_text() + code for path, code in self.appended.items()}
        if self.speed_up != 1.0:
            edits[PACE] = pace_source(self.speed_up)
        return "".join(_diff(stock, path, new) for path, new in sorted(edits.items()))


def _plant(name: str, verdict: str, reason: str = "", **kwargs: object) -> Plant:
    return Plant(name, frozenset(verdict.split("|")), reason, **kwargs)  # type: ignore[arg-type]


EVERYDAY = (
    _plant(
        "noop", "not_faster|inconclusive", "A/A floor", appended={PACE: "\n# Changes nothing.\n"}
    ),
    _plant(
        "wrong_token",
        "not_lossless",
        "not stock's choice",
        appended={DECODE: _WRONG_TOKEN},
        speed_up=LOSSY_SPEED_UP,
    ),
    _plant(
        "early_stop",
        "not_lossless",
        "wrong end of answer",
        appended={ENGINE: _EARLY_STOP},
        speed_up=LOSSY_SPEED_UP,
    ),
    _plant("crash", "crashed", "planted: this engine never starts", appended={ENGINE: _CRASH}),
    _plant("hang", "timeout", "did not answer within", appended={ENGINE: _HANG}),
    _plant("garbage", "crashed", "/generate", appended={REPLIES: _GARBAGE}),
    _plant("outside", "refused", "leaves the tree", patch=OUTSIDE_PATCH),
    _plant("clash", "conflict", "does not apply", patch=CLASH_PATCH),
    _plant("honest", "accepted", "above the A/A floor", speed_up=HONEST_SPEED_UP),
)

MID_ANSWER = (
    _plant(
        "hang_mid",
        "timeout",
        "did not answer within",
        appended={ENGINE: _MID_ANSWER.format(failure="import time; time.sleep(3600)")},
    ),
    _plant(
        "crash_mid",
        "crashed",
        "connection",
        appended={ENGINE: _MID_ANSWER.format(failure="import os; os._exit(9)")},
    ),
)


def pace_source(speed_up: float) -> str:
    return _PACE_SOURCE.format(step_s=round(STOCK_STEP_S / speed_up, 6))


def write_stock(native: Path, folder: Path) -> None:
    """`native`'s tree with a drafter that takes its time, in `folder`."""
    shutil.copytree(native, folder, ignore=shutil.ignore_patterns("__pycache__", "*_build"))
    decode = folder / DECODE
    source = decode.read_text()
    for needed in ("class Decoder:", "def _step(self, context", "self.drafter"):
        assert needed in source, f"{DECODE} has no {needed!r} any more: bring the plants in line"
    decode.write_text(source + _PACED_STEP)
    (folder / PACE).write_text(pace_source(1.0))


def _diff(stock: Path, path: str, new: str) -> str:
    old = (stock / path).read_text().splitlines(keepends=True)
    body = "".join(
        difflib.unified_diff(old, new.splitlines(keepends=True), f"a/{path}", f"b/{path}")
    )
    assert body, f"the plant changes nothing in {path}"
    return f"diff --git a/{path} b/{path}\n{body}"

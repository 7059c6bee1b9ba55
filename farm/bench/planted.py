"""Engines with a planted slow-down of known size, for the estimator study.

The plant is an honest source patch to the native decode loop: after every decode step it busy-waits
a fixed share of the time that step just took. Whatever else slows the machine slows the plant too,
so the true ratio of decode-step times is 1 + share in any noise. Time outside the step (HTTP,
sampling of the response) is not slowed: it is under 3 % of a step here.
"""

from __future__ import annotations

from engines.tree_store import Tree, TreeStore
from farm.bench.errors import MeasurementError

DECODE_FILE = "native_engine/decode.py"
_ANCHOR = "    def _step(self, context: list[int], budget: int) -> Step:"
_PLANT = """

_unslowed_step = Decoder._step


def _slowed_step(self: Decoder, context: list[int], budget: int) -> Step:
    began = perf_counter()
    step = _unslowed_step(self, context, budget)
    until = perf_counter() + {share!r} * (perf_counter() - began)
    while perf_counter() < until:
        pass
    return step


Decoder._step = _slowed_step  # type: ignore[method-assign]
"""


def plant_slowdown(store: TreeStore, base: Tree, share: float) -> Tree:
    """The base tree with every decode step `share` (0.05 = 5 %) longer; share 0 is the base.

    Raises:
        MeasurementError: the base has no such decode loop (not a native tree, or it has changed).
    """
    if share == 0.0:
        return base
    source = store.read_file(base.commit, DECODE_FILE).decode()
    if _ANCHOR not in source or "perf_counter" not in source:
        raise MeasurementError(
            f"{DECODE_FILE} has no decode step to slow down",
            "Bring farm/bench/planted.py in line with the native engine.",
        )
    content = (source + _PLANT.format(share=share)).encode()
    return store.commit_files(base.commit, {DECODE_FILE: content}, f"Slow every step by {share:g}")

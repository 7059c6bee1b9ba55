"""Quiet time by kind of step: a low quantile of each kind's time, pooled over all prompts and
repeats, times how often each prompt's answer takes that kind.

Decides without repeating prompts. A kind is the rows a step verified where the engine states them,
else the tokens it committed. Stated rows are the engine's own claim, and committed tokens do not
tell a skipped draft from a rejected one, so an engine with cheaper steps inside a kind is favoured:
read it beside mean throughput.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farm.bench.estimators.cells import Cells, Side
from farm.bench.steps import DecodeSteps
from farm.statistics.jackknife import jackknife_cells
from farm.statistics.statistic import Components, Floats

QUANTILE = 0.1
FEWEST_STEPS = 20


def statistic(cells: Cells) -> StepKinds:
    """The pooled statistic of both arms; rare kinds are merged alike in both."""
    sides = [
        [(place, getattr(cell, name)) for place, cell in sorted(cells.cells.items())]
        for name in ("numerator", "denominator")
    ]
    steps = [s for side in sides for _, arm in side for s in arm.repeats.values()]
    stated = all(bool((s.rows > 0).all()) for s in steps)
    merged = _merge_rare(np.concatenate([_kind(s, stated) for s in steps]))
    top, bottom = (_pool(cells, side, stated, merged) for side in sides)
    return StepKinds(cells.shape, top, bottom)


def _kind(steps: DecodeSteps, stated: bool) -> NDArray[np.int64]:
    return steps.rows if stated else steps.tokens


@dataclass(frozen=True)
class Pool:
    """One arm. `kinds`: per kind and launch the ascending clean step times and the prompt each
    belongs to. `counts` (launches, prompts, kinds) and `tokens` (launches, prompts)."""

    kinds: tuple[tuple[tuple[Floats, NDArray[np.int64]], ...], ...]
    counts: Floats
    tokens: Floats

    def log_rates(self, weights: Floats) -> tuple[float, float]:
        """Mean over launches of (log tokens a quiet second, log tokens a step)."""
        rates, taus = [], []
        for launch in np.flatnonzero(weights.sum(axis=1)):
            w = weights[launch]
            counts = w @ self.counts[launch]
            low = [_quantile(*kind[launch], w) for kind in self.kinds]
            known = [q for q in low if q is not None]
            if not known:
                continue
            fallback = float(np.median(known))
            seconds = sum(
                c * (fallback if q is None else q) for c, q in zip(counts, low, strict=True)
            )
            tokens = float(w @ self.tokens[launch])
            rates.append(np.log(tokens / seconds))
            taus.append(np.log(tokens / counts.sum()))
        return float(np.mean(rates)), float(np.mean(taus))


@dataclass(frozen=True)
class StepKinds:
    """`Statistic` of two pools."""

    shape: tuple[int, int]
    numerator: Pool
    denominator: Pool

    @property
    def present(self) -> NDArray[np.bool_]:
        return self.numerator.tokens > 0

    def evaluate(self, weights: Floats) -> Components:
        w = np.where(self.present, weights, 0.0)
        top, top_tau = self.numerator.log_rates(w)
        bottom, bottom_tau = self.denominator.log_rates(w)
        ratio, tau = top - bottom, top_tau - bottom_tau
        return Components(ratio, tau, ratio - tau)

    def evaluate_each(self, weights: Floats) -> Floats:
        return np.asarray([self.evaluate(w) for w in weights])

    def cells(self) -> Floats:
        return jackknife_cells(self)


def _quantile(ascending: Floats, prompt: NDArray[np.int64], weights: Floats) -> float | None:
    if not len(ascending):
        return None
    mass = np.cumsum(weights[prompt])
    if mass[-1] <= 0:
        return None
    return float(ascending[np.searchsorted(mass, QUANTILE * mass[-1])])


def _pool(
    cells: Cells,
    sides: list[tuple[tuple[int, int], Side]],
    stated: bool,
    merged: Mapping[int, int],
) -> Pool:
    rows = [
        (launch, prompt, steps)
        for (launch, prompt), side in sides
        for steps in side.repeats.values()
    ]
    launch = np.concatenate([np.full(s.count, at) for at, _, s in rows])
    prompt = np.concatenate([np.full(s.count, at) for _, at, s in rows])
    gap = np.concatenate([s.gap_s for _, _, s in rows])
    clean = np.concatenate([s.clean for _, _, s in rows])
    committed = np.concatenate([s.tokens for _, _, s in rows])
    found = np.concatenate([_kind(s, stated) for _, _, s in rows])
    kind = np.asarray([merged[int(k)] for k in found], dtype=np.int64)
    names = np.unique(kind)
    counts = np.zeros((*cells.shape, len(names)))
    tokens = np.zeros(cells.shape)
    for place, name in enumerate(names):
        np.add.at(counts[:, :, place], (launch[kind == name], prompt[kind == name]), 1.0)
    np.add.at(tokens, (launch, prompt), committed.astype(np.float64))
    kinds = []
    for name in names:
        # Where every step of a kind was straddled by a pause, straddled times are all there is.
        of_kind = kind == name
        usable = of_kind & clean if (of_kind & clean).any() else of_kind
        split = []
        for at in range(cells.shape[0]):
            mine = np.flatnonzero(usable & (launch == at))
            mine = mine[np.argsort(gap[mine])]
            split.append((gap[mine], prompt[mine]))
        kinds.append(tuple(split))
    return Pool(tuple(kinds), counts, tokens)


def _merge_rare(kind: NDArray[np.int64]) -> dict[int, int]:
    """Kinds with too few steps for a quantile join the next smaller kind that has enough."""
    names, counts = np.unique(kind, return_counts=True)
    enough = [int(n) for n, c in zip(names, counts, strict=True) if c >= FEWEST_STEPS]
    first = enough[0] if enough else int(names[0])
    return {int(name): max([n for n in enough if n <= name], default=first) for name in names}

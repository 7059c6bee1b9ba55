"""Thousands of campaigns with a known truth, simulated at the level of steps and kept as cells.

Where farm.statistics.simulate makes recordings for the estimators, this makes the (launch, prompt)
log-ratios that intervals and verdicts start from: vectorised, a campaign a column. A launch is a
line of slots in which the two arms take turns; in each the machine drifts and is busy as it
pleases, every step has its jitter, and a cell is the median over turns of the log ratio of steps a
second (the farm's `slice_median`) plus the counted log ratio of accept lengths.

What it leaves out: prefill, caches, repeats, contention that prefers one arm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from farm.statistics.simulate import NOISY, QUIET, Noise
from farm.statistics.statistic import Floats

PROMPTS = 14
"""Held-out prompts of `cpu_c1_smollm2-135m_ngram`; its 12 search prompts are rounded up to it."""

LAUNCHES_AA = LAUNCHES_CONFIRM = 3
"""The defaults of `measurement.launches_aa` and `measurement.launches_confirm`."""

ACCEPT_LENGTH, TURNS, STEPS_A_TURN, SLOT_S = 1.6, 20, 3, 0.15
"""96 tokens at an accept length of 1.6 and 50 ms a step are 60 steps, 3 s, 20 slices of 0.15 s."""

LAUNCH_SD_QUIET, LAUNCH_SD_BUSY = 0.0023, 0.0128
"""Between launches: the standard deviation of log(stock_b / stock) in tokens a second over the
three A/A launches of docs/benchmarks/embedded-default.md: 33.2/33.1, 30.7/30.6, 28.9/28.7 in the
quieter campaign, 28.6/28.4, 35.5/34.4, 31.3/30.5 beside two busy test suites. Taken whole, though
prompts explain part of it: on the safe side."""

CELL_SD = 0.038
"""One A/A cell: half-widths of 0.022 at 13 degrees of freedom over 14 prompts (three launches of
the quieter campaign, docs/benchmarks/estimators.md): 0.022 / 2.16 x sqrt(14)."""

RESIDUAL_SD = 0.023
"""What such a cell shows beyond the drift, contention and jitter simulated here (pauses, wake-ups,
timestamps), so that a simulated one shows `CELL_SD` on the quiet machine."""

PROMPT_SHARE = 0.7
"""A mechanism's effect differs by prompt: `static_table`, x1.327 [1.170, 1.473] on 14 prompts, has
a standard deviation of 0.20 between prompts, 0.7 of its log-ratio (docs/benchmarks/
embedded-default.md)."""

TIE_SD = 0.2
"""`fused_cpp_ops`, a change of kernels in BF16, x2.153 [1.956, 2.521] on 14 prompts, has a standard
deviation of 0.22 between prompts, nearly all of it in the accept length (the same place)."""

QUIET_MACHINE = replace(QUIET, launch_sd=LAUNCH_SD_QUIET)
BUSY_MACHINE = replace(NOISY, launch_sd=LAUNCH_SD_BUSY)


@dataclass(frozen=True)
class Effect:
    """The truth about a candidate: log-ratios of accept length and of steps a second, and the
    standard deviation of the first between prompts."""

    tau: float = 0.0
    step: float = 0.0
    tau_sd: float = 0.0

    @property
    def ratio(self) -> float:
        return self.tau + self.step


NO_CHANGE = Effect()


def mechanism(log_ratio: float) -> Effect:
    """A change of the draft: all in the accept length, as unequal as the measured one."""
    return Effect(tau=log_ratio, tau_sd=PROMPT_SHARE * abs(log_ratio))


def kernel(log_ratio: float, tie_sd: float = 0.0) -> Effect:
    """A change that leaves the accept length alone, but for what texts that part at near-ties make
    of it on a single prompt (`tie_sd`; 0 in FP32)."""
    return Effect(step=log_ratio, tau_sd=tie_sd)


@dataclass(frozen=True)
class Cells:
    """`values` (campaigns, launches, prompts, 3): log-ratios, their tau and step parts. `gaps`
    (campaigns, launches, prompts, steps, 2): seconds of every step of candidate and stock, where
    they were asked for."""

    values: Floats
    gaps: Floats | None = None


def cells(
    rng: np.random.Generator,
    noise: Noise,
    effects: Effect | list[Effect],
    campaigns: int,
    launches: int,
    *,
    prompts: int = PROMPTS,
    same_prompts: bool = False,
    keep_gaps: bool = False,
) -> Cells:
    """One measurement in each of `campaigns`.

    Args:
        effects: one for all, or one a campaign.
        same_prompts: whether the launches share their prompts (their effects, then).
    """
    many = effects if isinstance(effects, list) else [effects] * campaigns
    step, tau, tau_sd = (
        np.asarray([getattr(effect, name) for effect in many])[:, None, None]
        for name in ("step", "tau", "tau_sd")
    )
    rows = campaigns * launches
    slow = _slowness(rng, noise, rows, prompts * TURNS * 2).reshape(rows, prompts, TURNS, 2)
    # A B, B A, A B, ...: who leads alternates with the turn and with the prompt.
    lead = (np.arange(prompts)[:, None] + np.arange(TURNS)) % 2
    slow = np.where(lead[..., None] == 0, slow, slow[..., ::-1])
    jitter = rng.normal(0.0, noise.jitter, (rows, prompts, TURNS, STEPS_A_TURN, 2))
    gaps = slow[:, :, :, None, :] * np.exp(jitter)
    rates = np.log(gaps.sum(axis=3))
    clock = np.median(rates[..., 1] - rates[..., 0], axis=2).reshape(campaigns, launches, prompts)
    shift = step + rng.normal(0.0, RESIDUAL_SD, clock.shape)
    shift += rng.normal(0.0, noise.launch_sd, (campaigns, launches, 1))
    clock += shift
    asked = (campaigns, 1 if same_prompts else launches, prompts)
    counted = np.broadcast_to(tau + tau_sd * rng.normal(size=asked), clock.shape)
    values = np.stack([clock + counted, counted, clock], axis=-1)
    if not keep_gaps:
        return Cells(values)
    per_step = gaps.reshape(campaigns, launches, prompts, TURNS * STEPS_A_TURN, 2)
    per_step[..., 0] *= np.exp(-shift)[..., None]
    return Cells(values, per_step)


def _slowness(rng: np.random.Generator, noise: Noise, rows: int, slots: int) -> Floats:
    """How much longer a step takes in each slot (rows, slots): drift only ever slows the machine,
    contention comes in spells."""
    keep = math.exp(-SLOT_S / noise.drift_s)
    kicks = rng.normal(0.0, noise.drift_sd * math.sqrt(1.0 - keep * keep), (slots, rows))
    drift = rng.normal(0.0, noise.drift_sd, rows)
    busy = rng.random(rows) < noise.busy_s / (noise.busy_s + noise.idle_s)
    ends = 1.0 - np.exp(-SLOT_S / np.asarray([noise.idle_s, noise.busy_s]))
    turns, part = rng.random((slots, rows)), rng.random((slots, rows))
    slow = np.empty((slots, rows))
    for slot in range(slots):
        drift = drift * keep + kicks[slot]
        flips = turns[slot] < ends[busy.astype(np.int64)]
        share = np.where(flips, np.where(busy, part[slot], 1.0 - part[slot]), busy)
        busy = busy ^ flips
        slow[slot] = np.exp(np.abs(drift)) * (1.0 + (noise.busy_factor - 1.0) * share)
    return slow.T


def flat(values: Floats, same_prompts: bool = False) -> NDArray[np.float64]:
    """One campaign's cells as farm.statistics takes them, (launches, prompts, 3): launches that
    asked prompts of their own have columns of their own, NaN elsewhere."""
    launches, prompts, parts = values.shape
    if same_prompts or launches == 1:
        return values
    table = np.full((launches, launches * prompts, parts), np.nan)
    for launch in range(launches):
        table[launch, launch * prompts : (launch + 1) * prompts] = values[launch]
    return table

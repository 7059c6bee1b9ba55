"""The draws of the hierarchical bootstrap: prompts inside launches, and launches.

A prompt is drawn whole, with all its rounds, slices and steps: these are not independent of each
other, and drawing the cluster whole carries their variance already (Davison & Hinkley, Bootstrap
Methods, 3.8). Launch effects are drawn as residuals scaled to the estimated variance between
launches, so that what prompts explain is not counted twice (the multilevel residual bootstrap of
Carpenter, Goldstein & Rasbash 2003, Applied Statistics 52, 431-443).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from farm.statistics.layout import Flags, layout_of
from farm.statistics.statistic import Floats


def prompt_draws(present: Flags, resamples: int, seed: int) -> Floats:
    """Weights (resamples, launches, prompts), read-only: the same prompts in every launch where
    launches share them, else each launch's own. The same for the same question."""
    return _drawn(present.shape, present.tobytes(), resamples, seed)


@lru_cache(maxsize=4)
def _drawn(shape: tuple[int, int], flags: bytes, resamples: int, seed: int) -> Floats:
    present = np.frombuffer(flags, dtype=np.bool_).reshape(shape)
    rng = np.random.default_rng(seed)
    weights = np.zeros((resamples, *shape))
    if layout_of(present).crossed:
        used = np.flatnonzero(present.any(axis=0))
        weights[:, :, used] = _counts(len(used), resamples, rng)[:, None, :]
    else:
        for launch in np.flatnonzero(present.any(axis=1)):
            used = np.flatnonzero(present[launch])
            weights[:, launch, used] = _counts(len(used), resamples, rng)
    weights *= present
    weights.flags.writeable = False
    return weights


def launch_draws(
    launch_means: Floats, sd: float, resamples: int, rng: np.random.Generator
) -> Floats:
    """Deviations (resamples,) of the mean over launches, each launch's effect having `sd`."""
    effects = launch_means - launch_means.mean()
    size = float(np.sqrt(np.mean(effects**2)))
    if size == 0.0:
        return np.zeros(resamples)
    drawn = rng.choice(effects * (sd / size), (resamples, len(effects)))
    means: Floats = drawn.mean(axis=1)
    return means


def _counts(units: int, resamples: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """How often each unit is drawn, (resamples, units)."""
    drawn = rng.integers(0, units, (resamples, units))
    places = drawn + units * np.arange(resamples)[:, None]
    counts = np.bincount(places.ravel(), minlength=resamples * units)
    return counts.reshape(resamples, units)

"""`python -m farm.statistics.proof [--campaigns N]`: every figure of docs/benchmarks/statistics.md,
from the functions the tests assert on. No engine, no clock: simulation only."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from farm.statistics.proof.any_ratio import RATIOS, any_ratio
from farm.statistics.proof.coverage import CAMPAIGNS, DESIGNS, EFFECTS, MACHINES, coverage
from farm.statistics.proof.gate import gate
from farm.statistics.proof.stopping import stopping
from farm.statistics.simulate_campaigns import NO_CHANGE, kernel, mechanism

OTHERS = 6
"""Candidates without a change beside the one a row of the gate's table is about."""


def _row(*cells: object) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _head(*names: str) -> list[str]:
    return [_row(*names), "|" + "---|" * len(names)]


def _percent(share: float | None, digits: int = 1) -> str:
    return "" if share is None else f"{100 * share:.{digits}f} %"


def coverage_table(campaigns: int) -> Iterator[str]:
    """Line by line, as the rows are computed."""
    yield from _head(
        "machine", "effect", "design", "ratio covered", "width / oracle", "tau", "steps/s", "naive"
    )
    for machine, noise in MACHINES.items():
        for effect_name, effect in EFFECTS.items():
            for design in DESIGNS:
                if not design.placebo and effect_name != "no change":
                    continue
                naive = effect_name == "no change"
                found = coverage(design, noise, effect, campaigns, naive=naive)
                yield _row(
                    machine,
                    effect_name,
                    design.name,
                    _percent(found.ratio),
                    f"{found.width:.2f}",
                    _percent(found.tau),
                    _percent(found.step),
                    _percent(found.naive),
                )


def any_ratio_table(campaigns: int) -> Iterator[str]:
    """Covered, and width over the oracle's, for launch variance / prompt variance of a mean."""
    yield from _head("design", *(f"{ratio:g}" for ratio in RATIOS))
    for design in DESIGNS:
        if not design.same_prompts:
            found = [any_ratio(design, ratio, campaigns) for ratio in RATIOS]
            yield _row(design.name, *(f"{_percent(f.covered)}, {f.width:.2f}" for f in found))


def gate_table(campaigns: int) -> Iterator[str]:
    """What is accepted of each kind of candidate, among six without a change."""
    yield from _head(
        "machine", "candidate", "screened", "accepted at screening", "confirmed", "A/A refuses"
    )
    of_interest = {
        "no change": NO_CHANGE,
        "kernel x1.1": kernel(0.0953),
        "kernel x1.2": kernel(0.1823),
        "draft x1.2": mechanism(0.1823),
        "draft x1.4": mechanism(0.3365),
    }
    for machine, noise in MACHINES.items():
        for name, effect in of_interest.items():
            found = gate(noise, [effect, *[NO_CHANGE] * OTHERS], campaigns, of=effect)
            yield _row(
                machine,
                name,
                found.candidates,
                _percent(found.screened, 2),
                _percent(found.confirmed, 2),
                f"{_percent(found.refused)} (second look {_percent(found.again)})",
            )


def stopping_table(candidates: int) -> Iterator[str]:
    """Every rule on the same mixed population."""
    yield from _head(
        "machine",
        "rule",
        "bench time saved",
        "losers dropped",
        "no change dropped",
        "winners dropped",
        "false accepts",
        "winners confirmed",
    )
    for machine, noise in MACHINES.items():
        for found in stopping(noise, candidates):
            yield _row(
                machine,
                found.rule,
                _percent(found.saved),
                *(_percent(share) for share in found.dropped.values()),
                _percent(found.false_accepts, 2),
                _percent(found.winners),
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints Markdown tables; exit code 0."""
    parser = argparse.ArgumentParser(prog="farm.statistics.proof", description=__doc__)
    parser.add_argument("--campaigns", type=int, default=CAMPAIGNS)
    campaigns = parser.parse_args(arguments).campaigns
    for table in (coverage_table, any_ratio_table, gate_table, stopping_table):
        for line in table(campaigns):
            print(line, flush=True)
        print(flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Compare result files of separate runs: `compare.py speed --ar A --stock S --final F`.

Descriptive, never acceptance: the runs were not interleaved, so drift of the machine between them
stands in the ratio. Several files an arm are several launches, and their spread enters.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from farm.bench.errors import MeasurementError
from farm.bench.estimate import Estimate, estimate
from farm.bench.recording import Recording, merge_launches
from farm.bench.result_file import BenchResult, read_result
from farm.statistics.agreement import Agreement, output_agreement
from settings.errors import SpecfarmError

DISCLAIMER = (
    "Descriptive only: separate runs, not interleaved; never grounds to accept an engine "
    "(that is `specfarm evaluate`)."
)


@dataclass(frozen=True)
class Comparison:
    """Numerator over denominator, and how far their outputs agree."""

    numerator: str
    denominator: str
    estimate: Estimate
    agreement: Agreement


def compare_speed(files: Mapping[str, Sequence[Path]]) -> list[Comparison]:
    """Every ratio among the given arms (stock/ar, final/stock, final/ar).

    Raises:
        MeasurementError: a file is missing or malformed, names another arm or setting than it
            should, or two arms answered other prompts.
    """
    results = {
        arm: [_checked(path, arm) for path in paths] for arm, paths in files.items() if paths
    }
    settings = {r.setting for rs in results.values() for r in rs}
    if len(settings) > 1:
        raise MeasurementError(
            f"field setting differs between the files: {', '.join(sorted(settings))}",
            "Compare runs of one setting.",
        )
    pairs = [("stock", "ar"), ("final", "stock"), ("final", "ar")]
    return [
        _compare(results, top, bottom)
        for top, bottom in pairs
        if top in results and bottom in results
    ]


def _checked(path: Path, arm: str) -> BenchResult:
    result = read_result(path)
    if result.arm != arm:
        raise MeasurementError(
            f"{path}: field arm is {result.arm!r}, given as --{arm}", "Name the right file."
        )
    return result


def _compare(results: Mapping[str, Sequence[BenchResult]], top: str, bottom: str) -> Comparison:
    count = max(len(results[top]), len(results[bottom]))
    launches = [
        _side_by_side(
            results[top][i % len(results[top])], results[bottom][i % len(results[bottom])]
        )
        for i in range(count)
    ]
    merged = merge_launches(launches)
    name = f"{bottom}-{results[bottom][0].tree_hash[:12]}"
    return Comparison(
        top,
        bottom,
        estimate(merged, top, bottom, "mean_throughput", baseline_name=name),
        output_agreement(merged.answers(top), merged.answers(bottom)),
    )


def _side_by_side(top: BenchResult, bottom: BenchResult) -> Recording:
    """One launch of each arm as one recording, runs matched by request."""
    places = {request: i for i, request in enumerate(bottom.recording.requests)}
    moved = [
        replace(run, request=places[top.recording.requests[run.request]], arm=top.arm)
        for run in top.recording.runs
        if top.recording.requests[run.request] in places
    ]
    if not moved:
        raise MeasurementError(
            f"{top.label} and {bottom.label} have no request in common (field recording.requests)",
            "Bench both arms with the same setting and version.",
        )
    runs = [replace(run, arm=bottom.arm) for run in bottom.recording.runs]
    return replace(
        bottom.recording,
        runs=tuple(moved + runs),
        trees={top.arm: top.tree_hash, bottom.arm: bottom.tree_hash},
        notes=(),
    )


def render(comparisons: Sequence[Comparison], files: Mapping[str, Sequence[Path]]) -> str:
    """The printed report."""
    lines = []
    for c in comparisons:
        r, a = c.estimate.ratio, c.agreement
        counts = f"{len(files[c.numerator])} and {len(files[c.denominator])} launches"
        lines += [
            f"{c.numerator} / {c.denominator}  x{r.ratio:.3f}  95 % [{r.low:.3f}, {r.high:.3f}]"
            f"  to {r.baseline}, {r.n} prompts, {counts}",
            f"  accept length {c.estimate.accept_length[c.numerator]:.3f} / "
            f"{c.estimate.accept_length[c.denominator]:.3f} (ratio {c.estimate.tau_ratio:.3f}), "
            f"step rate ratio {c.estimate.step_ratio:.3f}",
            f"  outputs: {a.identical} of {a.pairs} answers identical, "
            f"{a.common_prefix_share:.1%} of tokens before the first difference",
        ]
    return "\n".join([*lines, DISCLAIMER])


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 2 with the file and field on stderr."""
    parser = argparse.ArgumentParser(prog="compare.py", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    speed = commands.add_parser("speed", help="ratios with 95 %% intervals")
    for arm in ("ar", "stock", "final"):
        speed.add_argument(f"--{arm}", type=Path, nargs="+", default=[], metavar="F.json")
    options = parser.parse_args(arguments)
    files = {arm: getattr(options, arm) for arm in ("ar", "stock", "final")}
    try:
        comparisons = compare_speed(files)
        if not comparisons:
            raise MeasurementError(
                "fewer than two arms were given", "Give --ar, --stock or --final, at least two."
            )
    except SpecfarmError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(render(comparisons, files))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Compare result files of separate runs: `compare.py speed --ar A --stock S --final F`.

Descriptive, never acceptance: the runs were not interleaved, so drift of the machine between them
stands in the ratio. Several files an arm are several launches, and their spread enters.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from farm.bench.errors import MeasurementError
from farm.bench.estimate import Estimate, estimate
from farm.bench.recording import Recording, merge_launches
from farm.bench.result_file import BenchResult, read_result
from farm.results import RatioInterval
from farm.statistics.agreement import Agreement, output_agreement
from settings.errors import SpecfarmError
from settings.one_line_parser import OneLineParser

DISCLAIMER = (
    "Descriptive only: separate runs, not interleaved; never grounds to accept an engine "
    "(that is `specfarm evaluate`)."
)

# What a speed hangs on; versions may differ between the arms of one comparison.
_HARDWARE = ("cpu", "logical_cpus", "gpus")


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
        MeasurementError: a file is missing, malformed or given twice, names another arm than it
            should; the files are of several settings, machines or trees of one arm; or two arms
            answered other prompts.
    """
    given = [path for paths in files.values() for path in paths]
    for path in given:
        if given.count(path) > 1:
            raise MeasurementError(f"{path} is given twice", "Each file is a launch of its own")
    results = {
        arm: [_checked(path, arm) for path in paths] for arm, paths in files.items() if paths
    }
    everything = [result for found in results.values() for result in found]
    _agree("setting", [(r, r.setting) for r in everything], "Compare runs of one setting")
    for field in _HARDWARE:
        seen = [(r, str(r.machine.get(field))) for r in everything]
        _agree(f"machine.{field}", seen, "Compare runs of one machine")
    kinds = [(r, "cpu" if r.device == "cpu" else "a GPU") for r in everything]
    _agree("device", kinds, "Compare runs of one kind of device")
    for arms in (("ar", "stock"), ("final",)):
        trees = [(r, r.tree_hash) for arm in arms for r in results.get(arm, ())]
        _agree("tree_hash", trees, "Several files are launches of one engine; ar is stock's tree")
    pairs = [("stock", "ar"), ("final", "stock"), ("final", "ar")]
    return [
        _compare(results, top, bottom)
        for top, bottom in pairs
        if top in results and bottom in results
    ]


def _agree(field: str, values: Sequence[tuple[BenchResult, str]], remedy: str) -> None:
    """Raises MeasurementError unless all files have the same `field`."""
    for result, value in values[1:]:
        first, expected = values[0]
        if value != expected:
            raise MeasurementError(
                f"field {field} differs between the files: {first.label} has {expected}, "
                f"{result.label} has {value}",
                remedy,
            )


def _checked(path: Path, arm: str) -> BenchResult:
    result = read_result(path)
    if result.arm != arm:
        raise MeasurementError(
            f"{path}: field arm is {result.arm!r}, given as --{arm}", "Name the right file"
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
            f"{c.estimate.accept_length[c.denominator]:.3f}, x{_span(c.estimate.tau)}, "
            f"steps/s x{_span(c.estimate.step)}",
            f"  outputs: {a.identical} of {a.pairs} answers identical, "
            f"{a.common_prefix_share:.1%} of tokens before the first difference",
        ]
    return "\n".join([*lines, DISCLAIMER])


def _span(found: RatioInterval) -> str:
    return f"{found.ratio:.3f} [{found.low:.3f}, {found.high:.3f}]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 2 with the file and field on stderr."""
    parser = OneLineParser(prog="compare.py", description=__doc__)
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

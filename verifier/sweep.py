"""What a calibration asks of stock beside its A/A answers: other shapes, borders, restarts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engines.answers import Answer, GenerationRequest
from verifier.errors import CalibrationError
from verifier.forced import Pair, Position
from verifier.report import ForcingReport
from verifier.shapes import ShapeRow

ForceAll = Callable[[Sequence[Pair]], list[Sequence[Position]]]
Generate = Callable[[GenerationRequest], Answer]

# Around multiples of the page sizes in use, 16 and 64 tokens.
BORDERS = (15, 16, 17, 63, 64, 65, 127, 128, 129)
BORDER_TOKENS = 8


@dataclass(frozen=True)
class Shape:
    """One way in which stock can force the same answers; `path` says how its numbers come about."""

    name: str
    path: str
    force: ForceAll


@dataclass(frozen=True)
class Sweeps:
    """`generate` lets stock answer, without speculation; `restarted` are another process's answers
    to the requests that stock answered in the A/A."""

    shapes: Sequence[Shape] = ()
    generate: Generate | None = None
    restarted: Sequence[Answer] = ()


def border_requests(answers: Sequence[Answer]) -> list[GenerationRequest]:
    """The ends of the longest A/A prompts, cut to lengths beside page borders; lengths that no
    prompt reaches are left out."""
    prompts = sorted({a.request.prompt_ids for a in answers}, key=lambda ids: (-len(ids), ids))
    found = []
    for number, length in enumerate(BORDERS):
        fitting = [ids for ids in prompts if len(ids) >= length]
        if fitting:
            ids = fitting[number % len(fitting)][-length:]
            found.append(GenerationRequest(f"border/{length}", ids, BORDER_TOKENS, ignore_eos=True))
    return found


def differing(stock: Sequence[Answer], restarted: Sequence[Answer]) -> list[Answer]:
    """The answers of the restarted process whose ids are not those of the first."""
    first = {answer.request: answer.output_ids for answer in stock}
    return [a for a in restarted if first.get(a.request, a.output_ids) != a.output_ids]


def restart_row(
    setting: str,
    exact: bool,
    stock: Sequence[Answer],
    restarted: Sequence[Answer],
    different: ForcingReport,
) -> ShapeRow | None:
    """Two processes of one tree, asked the same: `near_ties` counts answers that part, `worst_gap`
    is of the parting ones as forced. None where nothing was asked of both.

    Raises:
        CalibrationError: they differ in FP32, where nothing may.
    """
    asked = {answer.request for answer in stock}
    both = [answer for answer in restarted if answer.request in asked]
    if not both:
        return None
    if exact and different.rows:
        raise CalibrationError(
            f"A/A of {setting}: two processes of stock answer {different.rows[0].request_id} "
            "differently in FP32",
            "an engine whose answers depend on the process is broken: repair it before any search",
        )
    return ShapeRow(
        "restart to restart",
        "two processes, the same requests; near-ties count answers that part",
        sum(len(answer.output_ids) for answer in both),
        len(different.rows),
        different.worst_gap_ulps,
        mismatches=different.mismatches,
    )

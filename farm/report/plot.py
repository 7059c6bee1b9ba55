"""The figure of a campaign: each candidate's ratio to stock with its interval.

Verdicts differ in marker as well as in colour (Okabe and Ito's palette, made for colour-blind
readers). The hollow marker is the fresh held-out confirmation; the band is what stock shows against
itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from farm.report import words
from farm.results import CampaignReport, CandidateResult, RatioInterval
from farm.verdicts import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH_IN, DPI = 9.6, 150
_ROW_IN, _FRAME_IN, _BELOW_IN = 0.46, 1.45, 0.6
_LEFT, _SPAN = 0.205, 0.445  # of the figure's width; numbers and verdicts stand right of it
_STYLES: dict[Verdict, tuple[str, str]] = {
    Verdict.ACCEPTED: ("#009E73", "o"),
    Verdict.NOT_FASTER: ("#6E6E6E", "s"),
    Verdict.NOT_LOSSLESS: ("#D55E00", "X"),
    Verdict.CHEATING: ("#CC79A7", "P"),
    Verdict.INCONCLUSIVE: ("#E69F00", "D"),
}
_NAME_CHARS, _INK = 27, "#333333"
_OTHER = ("#0072B2", "v")
_BAND, _HELDOUT_OFFSET = "#56B4E9", 0.24


def size_px(rows: int) -> tuple[int, int]:
    """Width and height in pixels of a figure with `rows` candidates."""
    return round(WIDTH_IN * DPI), round((_FRAME_IN + _ROW_IN * max(rows, 1)) * DPI)


def _bar(axes: Axes, y: float, interval: RatioInterval, verdict: Verdict, hollow: bool) -> None:
    colour, marker = _STYLES.get(verdict, _OTHER)
    axes.errorbar(
        interval.ratio,
        y,
        xerr=[
            [max(interval.ratio - interval.low, 0.0)],
            [max(interval.high - interval.ratio, 0.0)],
        ],
        fmt=marker,
        color=colour,
        markerfacecolor="white" if hollow else colour,
        markersize=5.5 if hollow else 7,
        elinewidth=1.3 if hollow else 2.2,
        capsize=2.5 if hollow else 3.5,
        zorder=3,
    )


def _row(axes: Axes, y: int, candidate: CandidateResult) -> None:
    verdict, search, fresh = (
        candidate.decision.verdict,
        candidate.to_stock,
        candidate.heldout_to_stock,
    )
    shift = _HELDOUT_OFFSET / 2 if fresh is not None else 0.0
    if search is not None:
        _bar(axes, y - shift, search, verdict, hollow=False)
    if fresh is not None:
        _bar(axes, y + shift, fresh, verdict, hollow=True)
    text = words.ratio(search) if search is not None else "not timed"
    if fresh is not None:
        text += f"\nheld-out {words.ratio(fresh)}"
    right = axes.get_yaxis_transform()
    axes.text(1.015, y, text, transform=right, va="center", fontsize=8, color=_INK)
    colour = _STYLES.get(verdict, _OTHER)[0]
    axes.text(
        1.46,
        y,
        verdict.value,
        transform=right,
        va="center",
        fontsize=9,
        color=colour,
        weight="bold",
    )


def _legend(axes: Axes, heldout: bool, band: str, height_in: float) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    def line(label: str, face: str) -> Line2D:
        return Line2D(
            [], [], marker="o", color=_INK, linewidth=1.5, markerfacecolor=face, label=label
        )

    handles: list[Line2D | Patch] = [line("search prompts", _INK)]
    if heldout:
        handles.append(line("fresh held-out prompts", "white"))
    if band:
        handles.append(Patch(facecolor=_BAND, alpha=0.3, label=band))
    axes.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(-0.01, 1.0 + 0.3 / height_in),
        ncols=len(handles),
        frameon=False,
        fontsize=8.5,
        borderaxespad=0.0,
    )


def _draw(
    candidates: Sequence[CandidateResult],
    path: Path,
    heading: str,
    aa: RatioInterval | None,
    aa_floor: float | None,
) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = len(candidates)
    width, height = size_px(rows)
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    inches = height / DPI
    axes = figure.add_axes((_LEFT, _BELOW_IN / inches, _SPAN, 1 - _FRAME_IN / inches))
    for y, candidate in enumerate(candidates):
        _row(axes, y, candidate)
    band = ""
    if aa is not None or aa_floor is not None:
        low = aa.low if aa is not None else 1.0
        high = aa_floor if aa_floor is not None else (aa.high if aa is not None else 1.0)
        axes.axvspan(low, high, color=_BAND, alpha=0.3, linewidth=0, zorder=0)
        axes.axvline(high, color=_BAND, linewidth=1.2, zorder=1)
        band = f"A/A: stock against itself, floor {high:.3f}"
    axes.axvline(1.0, color=_INK, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    axes.set_yticks(
        range(rows), [broken(words.label(c), _NAME_CHARS) for c in candidates], fontsize=9
    )
    axes.set_ylim(max(rows, 1) - 0.5, -0.5)
    axes.margins(x=0.08)
    axes.set_xlabel("speed ratio to stock, 95 % interval (right is faster)", fontsize=9)
    axes.tick_params(axis="x", labelsize=8.5)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.text(0.012, 1 - 0.24 / inches, heading, fontsize=11, weight="bold", va="center")
    _legend(axes, any(c.heldout_to_stock for c in candidates), band, inches - _FRAME_IN)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI, format="png")


def _baseline(candidates: Sequence[CandidateResult]) -> str:
    names = sorted({c.to_stock.baseline for c in candidates if c.to_stock is not None})
    return ", ".join(names) or "stock"


def broken(name: str, width: int) -> str:
    """`name` in lines of at most `width`: between mechanisms and words, else behind a _."""
    parts = re.sub(r"([+])", r"\1 ", name)
    if any(len(part) > width for part in parts.split()):
        parts = parts.replace("_", "_ ")
    lines = wrap(parts, width, break_long_words=True)
    return "\n".join(re.sub(r"(?<=[+_]) ", "", line) for line in lines)


def plot_candidates(candidates: Sequence[CandidateResult], path: Path) -> None:
    """Writes a PNG of `candidates` in the order given, baseline in the title."""
    _draw(candidates, path, f"speed over {_baseline(candidates)}", None, None)


def plot_report(report: CampaignReport, path: Path) -> None:
    """Writes the campaign's PNG: accepted first, then by ratio, with the A/A floor."""
    candidates = words.ordered(report)
    heading = f"{report.setting}: speed over {_baseline(candidates)}"
    _draw(candidates, path, heading, report.aa, report.aa_floor)

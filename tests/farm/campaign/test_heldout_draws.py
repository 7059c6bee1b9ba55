"""The draws of a confirmation: fresh ones ask nothing twice, taken ones are spread evenly."""

from __future__ import annotations

from engines.answers import GenerationRequest
from farm.campaign.heldout_draws import Draw, confirmation_draws, drawn

PROMPTS = {"a": (1, 2, 3, 4), "b": (3, 4, 5, 6), "c": (1, 2, 3, 4, 5, 6, 7, 8)}


def heldout(purpose: str) -> tuple[GenerationRequest, ...]:
    return tuple(GenerationRequest(f"{purpose}{n}", (n,), 8) for n in PROMPTS[purpose])


def ids(*draws: Draw, asked: tuple[tuple[int, ...], ...] = ()) -> list[list[str]]:
    return [[r.id for r in found.requests] for found in drawn(heldout, draws, asked)]


def test_a_prompt_is_asked_once_however_often_it_is_drawn() -> None:
    assert ids(Draw("a"), Draw("b")) == [["a1", "a2", "a3", "a4"], ["b5", "b6"]]
    assert ids(Draw("b"), Draw("a")) == [["b3", "b4", "b5", "b6"], ["a1", "a2"]]


def test_prompts_asked_before_count() -> None:
    assert ids(Draw("a"), asked=((1,), (4,))) == [["a2", "a3"]]


def test_a_taken_draw_is_spread_and_neither_heeds_nor_uses_up_the_others() -> None:
    assert ids(Draw("a"), Draw("c", 4), Draw("b")) == [
        ["a1", "a2", "a3", "a4"],
        ["c1", "c3", "c5", "c7"],
        ["b5", "b6"],
    ]


def test_a_confirmation_draws_by_launch_and_for_the_twin() -> None:
    assert confirmation_draws("x", 2, False) == (Draw("confirm:x:0"), Draw("confirm:x:1"))
    assert confirmation_draws("x", 1, True) == (Draw("confirm:x:0"), Draw("exact:x", 4))

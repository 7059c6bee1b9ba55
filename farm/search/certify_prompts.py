"""The prompts a certificate is run again with: fresh ones to time, its own to force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engines.answers import GenerationRequest
from farm.campaign.context import CampaignContext, spread
from farm.campaign.heldout_draws import Draw, drawn
from farm.promotion.checks import recorded_prompts
from farm.search.prompts import as_requests
from settings.errors import SpecfarmError
from settings.prompts import Prompt
from settings.schema import Setting
from settings.verifier_prompts import VerifierPrompt

# Fewer than a confirmation: the spread between launches is known from the placebo's, too, and the
# own prompts bring the tokens that a third launch would.
LAUNCHES = 2


@dataclass(frozen=True)
class CertifyPrompts:
    """By launch: `placebo` for stock against itself, `timed` for final against stock. `exact` goes
    to the FP32 twin. `own` are the certificate's prompts, each once: final answers them untimed,
    every token is forced."""

    placebo: tuple[tuple[GenerationRequest, ...], ...]
    timed: tuple[tuple[GenerationRequest, ...], ...]
    exact: tuple[GenerationRequest, ...]
    own: tuple[VerifierPrompt, ...]


def certify_prompts(
    ctx: CampaignContext, certificate: Mapping[str, Any], fresh: bool
) -> CertifyPrompts:
    """Drawn from the campaign's own seed. `fresh`: what is timed is new to final, too, and none of
    it is in the certificate, so that an engine that knows those prompts by heart gains nothing;
    else the certificate's prompts are timed.

    Raises:
        SpecfarmError: a launch would have none.
    """
    measurement, heldout = ctx.setting.measurement, ctx.prompts.heldout
    launches = LAUNCHES
    own = own_requests(ctx.setting, certificate)
    timed = tuple(own[n::launches] for n in range(launches))
    if fresh:
        draws = [Draw(f"certify:{n}") for n in range(launches)]
        found = drawn(heldout, draws, [request.prompt_ids for request in own])
        timed = tuple(each.requests for each in found)
    if not all(timed):
        raise SpecfarmError(
            f"{ctx.setting.name}: too few held-out prompts; one of {launches} launches gets none",
            "Raise count in prompts.heldout, or pass --same-prompts",
        )
    return CertifyPrompts(
        placebo=tuple(heldout(f"certify-aa:{n}") for n in range(measurement.launches_aa)),
        timed=timed,
        exact=spread(heldout("certify-exact")) if ctx.exact_setting is not None else (),
        own=tuple(_untimed(request) for request in own),
    )


def own_requests(setting: Setting, certificate: Mapping[str, Any]) -> tuple[GenerationRequest, ...]:
    """The certificate's prompts as requests, each once."""
    distinct = {ids: name for draw in recorded_prompts(certificate) for name, ids in draw}
    prompts = [Prompt(name, name.split("/")[0], "", ids) for ids, name in distinct.items()]
    return as_requests(setting, prompts)


def _untimed(request: GenerationRequest) -> VerifierPrompt:
    return VerifierPrompt(
        id=f"own/{request.id}",
        kind="certificate",
        prompt_ids=request.prompt_ids,
        max_new_tokens=request.max_new_tokens,
        ignore_eos=request.ignore_eos,
    )

"""A setting's prompts as requests: fixed for the search, fresh by the committed seed to confirm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engines.answers import GenerationRequest
from farm.campaign.context import PromptSupply, spread
from settings.prompts import Prompt, heldout_prompts, search_prompts
from settings.schema import Setting
from settings.verifier_prompts import VerifierPrompt, verifier_prompts


def prompt_supply(setting: Setting, tokenizer_dir: Path, seed: str) -> PromptSupply:
    """Requests of a campaign. `heldout(purpose)` and `verifier(purpose)` draw from
    `<seed>:<purpose>`, so every confirmation has prompts of its own and a resumed one draws the
    same again."""

    def heldout(purpose: str) -> tuple[GenerationRequest, ...]:
        return as_requests(setting, heldout_prompts(setting, tokenizer_dir, f"{seed}:{purpose}"))

    def verifier(purpose: str) -> tuple[VerifierPrompt, ...]:
        return verifier_prompts(setting, tokenizer_dir, f"{seed}:{purpose}")

    search = as_requests(setting, search_prompts(setting, tokenizer_dir))
    return PromptSupply(search=search, heldout=heldout, exact=spread(search), verifier=verifier)


def as_requests(setting: Setting, prompts: Sequence[Prompt]) -> tuple[GenerationRequest, ...]:
    """Greedy requests under the setting's decoding rules."""
    return tuple(
        GenerationRequest(
            id=prompt.id,
            prompt_ids=prompt.prompt_ids,
            max_new_tokens=setting.decoding.max_new_tokens,
            stop_token_ids=setting.decoding.stop_token_ids,
            ignore_eos=setting.decoding.ignore_eos,
            family=prompt.family,
        )
        for prompt in prompts
    )

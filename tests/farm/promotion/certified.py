"""A promoted engine on real trees and a real (tiny) target, without the search that finds one.

Its certificate's numbers are invented; its trees, hashes, seed, prompts and weights are real.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from engines.resolve import import_stock, store_for
from farm.campaign.heldout_draws import confirmation_draws, drawn
from farm.promotion.export import export_final
from farm.promotion.harness import harness_hash
from farm.promotion.promote import final_dir
from farm.search.prompts import prompt_supply
from settings.loading import load_setting
from settings.prompts import seed_commitment
from settings.weight_hashes import weight_hashes
from settings.weights import ensure_target
from tests.farm.gate.planted_farm import SETTING, install, prepare
from tests.farm.gate.plants import Plant
from tests.farm.promotion.finals import SEED, evidence
from tests.farm.report.samples import sample_report


@dataclass(frozen=True)
class Certified:
    """`setting` is a path; `final` lies where a search leaves its winner."""

    setting: str
    final: Path
    weights: Path


@contextmanager
def certified_engine(folder: Path, setting: str, mode: str, plant: Plant) -> Iterator[Certified]:
    """`plant` promoted for the tiny `setting`, in a farm of its own below `folder`; the
    environment is the farm's until the block ends."""
    variables = prepare(folder, setting, mode, [plant])
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        install()
        path = variables[SETTING]
        final = _export(path, (folder / "patches" / f"00-{plant.name}.patch").read_text())
        (weights,) = ensure_target(load_setting(path)).glob("*.safetensors")
        yield Certified(path, final, weights)


def _export(path: str, change: str) -> Path:
    setting = load_setting(path)
    store = store_for(setting)
    stock = import_stock(setting, store)
    tree = store.commit_patch(stock.commit, change, "planted")
    accepted = next(c for c in sample_report().candidates if c.candidate_id == "c08")
    row = replace(accepted, tree_hash=tree.tree_hash, commit=tree.commit)
    report = replace(sample_report(), setting=setting.name, stock_tree=stock.tree_hash)
    supply = prompt_supply(setting, ensure_target(setting), SEED)
    draws = confirmation_draws("c08", 2, setting.exact_twin is not None)
    given = evidence(
        engine=setting.engine.name,
        stock_commit=stock.commit,
        harness=harness_hash(),
        seed_commitment=seed_commitment(SEED),
        heldout=drawn(supply.heldout, draws),
        weights=weight_hashes(setting),
        max_new_tokens=setting.decoding.max_new_tokens,
    )
    return export_final(report, row, store, final_dir(setting.name), given)

"""The fused draft step in an engine: transformers' tokens, stock's counts, the mechanisms it
meets."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
import torch

from explorers.catalogue.reduced_draft_vocabulary import make_ids
from native_engine.requests import GenerateRequest
from tests.engines.native.drafters import synthetic
from tests.engines.native.drafters.test_single import prompt_of, write_drafter
from tests.engines.native.tiny import make_folder
from tests.explorers.test_parallel_drafter_mechanisms import (
    DRAFTED,
    FUSED,
    MECHANISMS,
    Trees,
    World,
    block_drafter,
    recorded,
)

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
NAME = "fused_draft_ops"
SPARK, FLASH2 = synthetic.DSPARK, synthetic.DFLASH2


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """As the other mechanisms' tests have it, with drafters whose sizes C++ takes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("target")
    model = make_folder(folder)
    for name, raw in (("dflash", FLASH2), ("dspark", SPARK)):
        inner = dict(raw["dflash_config"])
        inner |= {"conv_group_size": 16} if name == "dflash" else {}
        write_drafter(folder / name, {**raw, "dflash_config": inner}, head_dim=32)
    yield World(folder, model, Trees(tmp_path_factory.mktemp("trees")))
    torch.set_num_threads(before)


KINDS = ("dflash", "dspark")


@pytest.mark.parametrize("name", KINDS)
def test_tokens_are_transformers_and_counts_stocks(world: World, name: str) -> None:
    ours, theirs = world.engine(name, NAME), world.engine(name)
    assert block_drafter(ours)._fused is not None
    drafted = [recorded(engine) for engine in (ours, theirs)]
    assert world.answer(ours) == world.answer(theirs)
    assert drafted[0] == drafted[1]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("order", [1, -1])
def test_a_reduced_vocabulary_is_honoured(world: World, name: str, order: int) -> None:
    """Also where each request has its own."""
    listed = make_ids.listing(DRAFTED)
    other = "reduced_draft_vocabulary"
    ours = world.engine(name, *(other, NAME)[::order], drafted=listed)
    theirs = world.engine(name, other, drafted=listed)
    assert block_drafter(ours)._fused is not None
    drafted = [recorded(engine) for engine in (ours, theirs)]
    assert world.answer(ours) == world.answer(theirs)
    assert drafted[0] == drafted[1]
    for context, draft in drafted[0].items():
        assert set(draft) <= {*DRAFTED, *context}


@pytest.mark.parametrize("name", KINDS)
def test_unsure_drafts_are_cut_as_in_python(world: World, name: str) -> None:
    other = "confident_block_length"
    ours, theirs = world.engine(name, NAME, other), world.engine(name, other)
    drafted = [recorded(engine) for engine in (ours, theirs)]
    assert world.answer(ours) == world.answer(theirs)
    assert drafted[0] == drafted[1]
    assert len({len(draft) for draft in drafted[0].values()}) > 1


@pytest.mark.parametrize("name", KINDS)
def test_with_the_targets_own_forward_pass(world: World, name: str) -> None:
    engine = world.engine(name, NAME, "fused_cpp_ops")
    assert engine.model.fused is not None and block_drafter(engine)._fused is not None
    world.answer(engine)


def test_it_merges_with_every_other_mechanism(world: World) -> None:
    everything = [name for name in (*MECHANISMS, *FUSED) if name != NAME]
    world.trees.merged("dflash", NAME, *everything)
    world.trees.merged("dspark", *everything[::-1], NAME)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_all_together(world: World, name: str) -> None:
    engine = world.engine(name, *MECHANISMS, *FUSED)
    assert engine.model.fused is not None and block_drafter(engine)._fused is not None
    world.answer(engine)


def test_a_cancelled_request_leaves_no_trace(world: World) -> None:
    engine = world.engine("dflash", NAME)
    request = GenerateRequest("r", prompt_of(12), 20)
    first = engine.run(request)
    left = iter([True] * 3)
    engine.run(GenerateRequest("c", prompt_of(33), 30), proceed=lambda: next(left, False))
    again = engine.run(request)
    assert first.output_ids == again.output_ids == world.truth(12)[:20]
    assert (first.steps, first.accepted) == (again.steps, again.accepted)

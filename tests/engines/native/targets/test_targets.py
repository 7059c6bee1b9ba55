"""Every attention-only target against transformers' own forward, in FP32."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from native_engine.targets.protocol import Rows
from tests.engines.native.targets.oracle import TINY, Oracle
from tests.engines.native.targets.runner import Runner, assert_close, ragged_prompts, random_ids

Make = Callable[[str], Oracle]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    made: dict[str, Oracle] = {}

    def of(name: str) -> Oracle:
        if name not in made:
            made[name] = Oracle(name, tmp_path_factory.mktemp(name))
        return made[name]

    return of


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("chunk", [1000, 64, 33, 7])
def test_prefill_whole_and_in_chunks(make: Make, name: str, chunk: int) -> None:
    ids = random_ids(150)
    runner = Runner(make(name).target(), 1, 150)
    parts = [runner.feed({0: ids[i : i + chunk]})[0] for i in range(0, len(ids), chunk)]
    assert_close(torch.cat(parts), make(name).logits(ids))


@pytest.mark.parametrize("name", TINY)
def test_one_token_decode(make: Make, name: str) -> None:
    ids = random_ids(70)
    runner = Runner(make(name).target(), 2, 70)
    runner.feed({1: ids[:20]})
    parts = [runner.feed({1: [token]})[1] for token in ids[20:]]
    assert_close(torch.cat(parts), make(name).logits(ids)[20:])


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("sequences", [1, 8])
def test_verify_with_partial_acceptance(make: Make, name: str, sequences: int) -> None:
    """Rounds of ragged drafts of which some rows stay; the rows that stay match a fresh replay."""
    oracle = make(name)
    runner = Runner(oracle.target(), sequences, 400)
    kept = {slot: [rows] for slot, rows in runner.feed(ragged_prompts(sequences)).items()}
    random = torch.Generator().manual_seed(3)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=random))

    for _ in range(24):
        drafts = {slot: random_ids(draw(1, 9)) for slot in kept if sequences == 1 or draw(0, 4)}
        if not drafts:
            continue
        for slot, rows in runner.forward(drafts).items():
            accepted = draw(0, len(drafts[slot]))
            kept[slot].append(rows[:accepted])
            runner.commit(slot, drafts[slot][:accepted])
    for slot, parts in kept.items():
        assert_close(torch.cat(parts), oracle.logits(runner.tokens[slot]))


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("sequences", [1, 8])
def test_greedy_tokens(make: Make, name: str, sequences: int) -> None:
    assert_greedy(make(name), sequences, 96)


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("sequences", [1, 8])
def test_greedy_tokens_of_512_steps(make: Make, name: str, sequences: int) -> None:
    assert_greedy(make(name), sequences, 512)
    runner = Runner(make(name).target(), 1, 600)
    prompt = random_ids(40)
    assert runner.greedy({0: prompt}, 512)[0] == make(name).greedy(prompt, 512)


def assert_greedy(oracle: Oracle, sequences: int, steps: int) -> None:
    """Each token is the argmax of transformers' logits after the tokens before it, which is what
    its own greedy decoding would have chosen."""
    prompts = ragged_prompts(sequences)
    chosen = Runner(oracle.target(), sequences, 64 + steps).greedy(prompts, steps)
    for slot, prompt in prompts.items():
        logits = oracle.logits(prompt + chosen[slot][:-1])
        assert chosen[slot] == logits[len(prompt) - 1 :].argmax(-1).tolist()


@pytest.mark.parametrize("name", TINY)
def test_other_sequences_do_not_matter(make: Make, name: str) -> None:
    """Alone and among seven others (prefill, decode and verify in one pass): 1e-5."""
    target = make(name).target()
    prompt, pieces = random_ids(45), [random_ids(n) for n in (1, 8, 1, 33, 3)]
    alone, among = Runner(target, 1, 200), Runner(target, 8, 200)
    alone.feed({0: prompt})
    among.feed({**{s: random_ids(3 * s + 1) for s in range(5)}, 5: prompt})
    for i, piece in enumerate(pieces):
        others = {s: random_ids(1 + (s * 5 + i) % 40) for s in (7, 2, 0, 6)}
        got = among.feed({**others, 5: piece, 3: random_ids(2)})[5]
        assert_close(got, alone.feed({0: piece})[0], 1e-5)


@pytest.mark.parametrize("name", TINY)
def test_taps_are_layer_outputs(make: Make, name: str) -> None:
    target, ids = make(name).target(), random_ids(50)
    expected = make(name).hidden_states(ids)
    taps = (2, -1, 0)
    out = target.forward(Rows(torch.tensor(ids), (0,), (0,), (50,)), target.new_state(1, 50), taps)
    for tap, ours in zip(taps, out.taps, strict=True):
        assert_close(ours, expected[tap + 1])
    normed = expected[0]
    if name == "muse":
        assert (target.embed(torch.tensor(ids)) - normed).abs().max() > 0.1
    else:
        assert_close(target.embed(torch.tensor(ids)), normed)


@pytest.mark.parametrize("name", TINY)
def test_a_slot_used_again_holds_no_trace(make: Make, name: str) -> None:
    target, ids = make(name).target(), random_ids(40)
    runner = Runner(target, 2, 90)
    fresh = runner.feed({0: ids})[0]
    runner.feed({1: random_ids(80)})
    runner.state.reset(1)
    runner.tokens[1] = []
    assert torch.equal(runner.feed({1: ids})[1], fresh)


@pytest.mark.parametrize("name", ["llama", "qwen3", "muse"])
def test_bf16_is_as_near_as_transformers_bf16(make: Make, name: str, tmp_path: Path) -> None:
    """BF16 is no oracle: our error against FP32 is held to transformers' own, plus a half."""
    ids = random_ids(120)
    exact = make(name).logits(ids)
    ours = Runner(make(name).target(torch.bfloat16), 1, 120).feed({0: ids})[0]
    theirs = type(make(name).model).from_pretrained(make(name).folder, dtype=torch.bfloat16)
    with torch.no_grad():
        rounded = theirs(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    allowed = (rounded.float() - exact).square().mean().sqrt()
    assert (ours - exact).square().mean().sqrt() < 1.5 * allowed

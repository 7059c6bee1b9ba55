"""Rejection sampling against direct sampling (chi-square), warping against transformers, ties."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from native_engine.batching.sampling import Draft, target_distribution, verify, verify_sampled
from native_engine.errors import NativeEngineError, NotFinite
from native_engine.requests import SamplingOptions

V, DRAWS, MOST_POSITIONS = 5, 50_000, 3
PLAIN = SamplingOptions(1.0)


def tables(seed: int, zeros: bool = False) -> list[Tensor]:
    """P(next | all tokens so far) for 0, 1, 2, ... tokens: `[V, ..., V]`, rows sum to 1."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for depth in range(MOST_POSITIONS + 2):
        table = torch.randn(*[V] * (depth + 1), generator=generator).mul_(1.5).softmax(-1)
        if zeros:
            # A candidate set of three, a different one after every context.
            keep = torch.rand(table.shape, generator=generator).topk(3, -1).indices
            table = torch.zeros_like(table).scatter(-1, keep, table.gather(-1, keep))
            table /= table.sum(-1, keepdim=True)
        found.append(table)
    return found


def speculate(
    p: list[Tensor], q: list[Tensor] | None, generator: torch.Generator, positions: int
) -> Tensor:
    """`positions` tokens of each of DRAWS sequences, two drafted a round: `[DRAWS, positions]`.

    Without q the drafter is greedy: a function of the context, here the least likely token."""
    texts: list[list[int]] = [[] for _ in range(DRAWS)]
    while short := [text for text in texts if len(text) < positions]:
        short.sort(key=len)
        drafts, rows = [], []
        for length in sorted({len(text) for text in short}):
            group = [text for text in short if len(text) == length]
            context = torch.tensor(group, dtype=torch.long).view(len(group), length)
            target_rows, drafter_rows = [at(p, context)], []
            for _ in range(2):
                rule = at(p if q is None else q, context)
                if q is None:
                    guess = rule.argmin(-1, keepdim=True)
                else:
                    guess = torch.multinomial(rule, 1, generator=generator)
                context = torch.cat((context, guess), 1)
                drafter_rows.append(rule)
                target_rows.append(at(p, context))
            laws = torch.stack(drafter_rows, 1)
            for tokens, law in zip(context[:, length:].tolist(), laws, strict=True):
                drafts.append(Draft(0, tokens, None if q is None else law, PLAIN, generator))
            rows.append(torch.stack(target_rows, 1).flatten(0, 1))
        for text, new in zip(short, verify_sampled(torch.cat(rows), drafts), strict=True):
            assert isinstance(new, list)
            text.extend(new)
    return torch.tensor([text[:positions] for text in texts])


def at(law: list[Tensor], context: Tensor) -> Tensor:
    """The distribution after each context `[n, length]`: `[n, V]`."""
    return law[context.shape[1]][tuple(context.T)].expand(len(context), V)


def p_value(tokens: Tensor, p: list[Tensor]) -> float:
    """Pearson's chi-square of the joint counts of all positions against the product of p."""
    joint, cells = p[0], tokens[:, 0]
    for depth in range(1, tokens.shape[1]):
        joint = joint[..., None] * p[depth]
        cells = cells * V + tokens[:, depth]
    counts = torch.bincount(cells, minlength=joint.numel()).double()
    expected = joint.flatten().double() * len(tokens)
    # Cells too rare for the approximation are pooled.
    rare = expected < 5
    counts = torch.cat((counts[~rare], counts[rare].sum()[None]))
    expected = torch.cat((expected[~rare], expected[rare].sum()[None]))
    if expected[-1] == 0:
        assert counts[-1] == 0
        counts, expected = counts[:-1], expected[:-1]
    statistic = ((counts - expected) ** 2 / expected).sum()
    freedom = torch.tensor((len(counts) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, statistic / 2))


@pytest.mark.parametrize(("kind", "positions"), [("one_hot", 2), ("candidates", 3), ("dense", 2)])
def test_speculation_has_the_targets_joint_distribution(kind: str, positions: int) -> None:
    p = tables(1)
    q = None if kind == "one_hot" else tables(2, zeros=kind == "candidates")
    tokens = speculate(p, q, torch.Generator().manual_seed(3), positions)
    assert p_value(tokens, p) > 1e-3
    # The same test notices a distribution as near as p sharpened by a tenth.
    sharper = [(t**1.1) / (t**1.1).sum(-1, keepdim=True) for t in p]
    assert p_value(tokens, sharper) < 1e-6


def test_an_identical_drafter_is_always_accepted() -> None:
    p = torch.randn(60, 30).softmax(-1)
    generator = torch.Generator().manual_seed(0)
    drafts = []
    for row in p.view(30, 2, 30):
        token = int(torch.multinomial(row[0], 1, generator=generator))
        drafts.append(Draft(0, [token], row[:1], PLAIN, generator))
    for draft, tokens in zip(drafts, verify_sampled(p, drafts), strict=True):
        assert isinstance(tokens, list) and len(tokens) == 2 and tokens[0] == draft.tokens[0]


def test_a_guess_that_q_denies_is_an_error_of_that_sequence() -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.full((3, 4), 0.25)
    q = torch.tensor([[0.0, 1.0, 0.0, 0.0]])
    bad, good = verify_sampled(
        p, [Draft(0, [0], q, PLAIN, generator), Draft(1, [], None, PLAIN, generator)]
    )
    assert isinstance(bad, NativeEngineError) and isinstance(good, list)


@pytest.mark.parametrize(
    "options",
    [
        SamplingOptions(0.7),
        SamplingOptions(1.3, 0.8),
        SamplingOptions(1.0, 1.0, 5),
        SamplingOptions(0.4, 0.5, 9),
        SamplingOptions(1.0, 1e-6),
        SamplingOptions(1.0, 1.0, 500),
    ],
)
def test_the_target_distribution_is_transformers(options: SamplingOptions) -> None:
    logits = torch.randn(200, 60, generator=torch.Generator().manual_seed(4)) * 3
    logits[3, [5, 9]] = 11.0
    ids = torch.zeros(200, 1, dtype=torch.long)
    expected = TemperatureLogitsWarper(options.temperature)(ids, logits)
    if options.top_k:
        expected = TopKLogitsWarper(options.top_k)(ids, expected)
    if options.top_p < 1:
        expected = TopPLogitsWarper(options.top_p)(ids, expected)
    found = target_distribution(logits, Draft(0, [], None, options))
    torch.testing.assert_close(found, expected.softmax(-1), atol=1e-6, rtol=1e-5)


def test_a_very_cold_distribution_is_the_argmax() -> None:
    logits = torch.randn(9, 40) * 30
    p = target_distribution(logits, Draft(0, [], None, SamplingOptions(1e-30)))
    assert torch.equal(p.argmax(-1), logits.argmax(-1)) and bool((p.max(-1).values == 1).all())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_greedy_chains_of_many_sequences(dtype: torch.dtype) -> None:
    logits = torch.zeros(7, 9000, dtype=dtype)
    for row, token in enumerate([5, 6, 7, 8, 20, 30, 40]):
        logits[row, [token, 8999]] = 3.0
    drafts = [Draft(0, [5, 6]), Draft(1, []), Draft(2, [20, 31])]
    assert verify(logits, drafts) == [[5, 6, 7], [8], [20, 30]]
    # A wrong first guess; the later, right one counts for nothing.
    assert verify(logits[:3], [Draft(0, [4, 6])]) == [[5]]


def broken(rows: int, at: int, bad: float) -> Tensor:
    logits = torch.randn(rows, 12)
    if bad == -math.inf:
        logits[at] = bad
    else:
        logits[at, 7] = bad
    return logits


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_broken_rows_end_their_sequence_only(bad: float) -> None:
    logits = broken(6, 2, bad)
    generator = torch.Generator().manual_seed(0)
    truth = logits.argmax(-1).tolist()
    first, failed, sampled = verify(
        logits,
        [Draft(0, truth[:1]), Draft(1, [3]), Draft(2, [1], None, PLAIN, generator)],
    )
    assert first == truth[:2]
    assert isinstance(failed, NotFinite)
    assert isinstance(sampled, list)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_finite_rows_chose_is_committed(bad: float) -> None:
    """The broken row is met again as the first of the next step, unless a guess was refused."""
    logits = broken(4, 2, bad)
    truth = logits.argmax(-1).tolist()
    wrong = [(token + 1) % 12 for token in truth]
    assert verify(logits, [Draft(0, truth[:3])]) == [truth[:2]]
    assert verify(logits, [Draft(0, [truth[0], truth[1], wrong[2]])]) == [truth[:2]]
    assert verify(logits, [Draft(0, [truth[0], wrong[1], 4])]) == [truth[:2]]
    assert verify(logits, [Draft(0, [wrong[0], 4, 4])]) == [truth[:1]]


def test_a_guess_before_a_broken_row_is_drawn_as_ever() -> None:
    """The rows after token 2 are broken: it must come no more rarely than p says."""
    p, q = torch.tensor([0.2, 0.3, 0.5]), torch.tensor([0.25, 0.35, 0.4])
    generator = torch.Generator().manual_seed(1)
    guesses = torch.multinomial(q, 20_000, True, generator=generator).tolist()
    rows = torch.stack([p.log(), p.log()]).repeat(20_000, 1)
    for i, guess in enumerate(guesses):
        if guess == 2:
            rows[2 * i + 1] = math.nan
    outcomes = verify(rows, [Draft(0, [guess], q[None], PLAIN, generator) for guess in guesses])
    first = [outcome[0] for outcome in outcomes if isinstance(outcome, list)]
    assert len(first) == len(guesses) and p_value(torch.tensor(first)[:, None], [p]) > 1e-3
    lengths = {len(o) for g, o in zip(guesses, outcomes, strict=True) if g == 2}  # type: ignore[arg-type]
    assert lengths == {1}

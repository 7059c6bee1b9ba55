"""Forbidden switches by every way of writing them, each beside an allowed neighbour."""

from __future__ import annotations

import pytest

from engines.forbidden_switches import find_switch, forbidden_entry

# One per language and per way of setting a variable.
REFUSED = [
    "os.environ['SGLANG_SIMULATE_ACC_LEN'] = '4'",
    "os.environ.setdefault('SGLANG_SIMULATE_ACC_METHOD', 'match-expected')",
    "os.putenv('SGLANG_SIMULATE_ACC_TOKEN_MODE', 'fixed')",
    "os.environ.update(SGLANG_SIMULATE_ACC_LEN='3')",
    "os.environ.update({'sglang_simulate_acc_len': '3'})",
    "export SGLANG_SIMULATE_ACC_LEN=3",
    "env SGLANG_SIMULATE_ANYTHING=1 python -m server",
    '{"simulate_acc_len": 3}',
    "simulate-acc-method: multinomial",
    "simulateAccLen = 3",
    'setenv("SIMULATE_ACC_LEN", "3", 1);',
    "synthetic_acceptance_rate = 0.9",
    "--spec-decoding-acceptance-method typical_acceptance_sampler",
    "--speculative-accept-threshold-single 0.9",
    "--speculative-accept-threshold-acc=0.9",
    'args += ["--speculative-accept-threshold-single", "0.5"]',
    "speculative_accept_threshold_acc=.5,",
    "speculative_accept_threshold_single: float = 0.99",
    "accept_threshold = 5e-1",
    "ACCEPT_THRESHOLD=0.5",
    "acceptThreshold: 0.5",
    '"acceptance-threshold": "0.5"',
    "os.environ['SPECULATIVE_ACCEPT_THRESHOLD_ACC'] = '0.1'",
    "os.putenv('ACCEPT_THRESHOLD', '0.1')",
    "os.environ.setdefault('ACCEPT_THRESHOLD', '0')",
    "export ACCEPT_THRESHOLD=${ACCEPT_THRESHOLD:-0.5}",
    'parser.add_argument("--speculative-accept-threshold-acc", type=float, default=0.9)',
    "threshold_single=0.3",
    "kernel(draft, threshold_acc=0.7)",
    "posterior_threshold = 0.09",
    "posterior_alpha=0.3",
    'args = ["--speculative-accept-threshold-single",\n        "0.9"]',
]
ALLOWED = [
    "accept_threshold = 1.0",
    "--speculative-accept-threshold-single 1.0",
    "speculative_accept_threshold_acc: float = 1.0",
    'parser.add_argument("--speculative-accept-threshold-acc", type=float, default=1.0)',
    "accept_threshold = other",
    "if accept_threshold < 0.5:",
    "threshold_acc[0]",
    "accepted = 0.5",
    "threshold = 0.5",
    "simulate(arm, 0.5)",
    "simulation_accuracy = 3",
    "access = simulated",
]


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str) -> None:
    assert find_switch(f"first = 1\n{text}\nlast = 2\n") is not None


@pytest.mark.parametrize("text", ALLOWED)
def test_allowed(text: str) -> None:
    assert find_switch(f"first = 1\n{text}\nlast = 2\n") is None


def test_the_line_and_the_name_are_said() -> None:
    found = find_switch("a = 1\nb = 2\nenv['MY_SGLANG_SIMULATE_ACC_LEN'] = '4'\n")
    assert found is not None
    assert (found.line, found.sets) == (3, "MY_SGLANG_SIMULATE_ACC_LEN")
    assert "would not choose" in found.remedy
    found = find_switch('a = 1\nargs = ["--speculative-accept-threshold-acc",\n  "0.9"]\n')
    assert found is not None
    assert (found.line, found.sets) == (3, "--speculative-accept-threshold-acc = 0.9")


def test_what_stood_there_before_is_not_the_changes_doing() -> None:
    text = "SGLANG_SIMULATE_ACC_LEN = EnvInt(0)\naccept_threshold = 0.5\n"
    assert find_switch(text, text.splitlines()) is None
    assert find_switch(text + "more = 1\n", text.splitlines()) is None
    # The name stays, the number on the next line is new.
    split = '["--accept-threshold",\n "{}"]\n'
    before = split.format("1.0").splitlines()
    assert find_switch(split.format("0.9"), before) is not None


def test_a_long_line_takes_no_long_time() -> None:
    """Quadratic reading of a megabyte would run into the suite's own limit."""
    assert find_switch("x" * 1_000_000 + "accept_threshold" + " " * 1_000_000) is None
    assert find_switch("accept_threshold=" * 50_000) is None


@pytest.mark.parametrize(
    ("dotted", "value", "refused"),
    [
        ("speculation.accept_threshold", 0.5, True),
        ("speculation.accept.threshold", 0.5, True),
        ("Speculation.Accept-Threshold-Single", "0.5", True),
        ("a.b.c.threshold_acc", 0, True),
        ("anything.simulate_acc_len", 3, True),
        ("anything.simulate.acc_len", 3, True),
        ("speculation.accept_threshold", 1, False),
        ("speculation.accept_threshold", "strict", False),
        ("speculation.threshold", 0.5, False),
        ("speculation.draft_tokens", 0, False),
    ],
)
def test_table_entries(dotted: str, value: object, refused: bool) -> None:
    assert (forbidden_entry(dotted, value) is not None) is refused

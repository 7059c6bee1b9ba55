"""Choosing a level, and saying what it stops; a machine's facilities are made up here."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import pytest

from engines.sandbox import active_level
from engines.sandbox.errors import SandboxUnavailable
from engines.sandbox.level import NAMES, Facilities, choose, facilities
from settings.paths import checkout_root

BARE = Facilities(0, False, None, False)
FULL = Facilities(7, True, "/usr/bin/bwrap")


@pytest.mark.parametrize(
    ("found", "best"),
    [
        (FULL, "bubblewrap"),
        (Facilities(2, True, None), "landlock"),
        (Facilities(0, True, "/usr/bin/bwrap"), "bubblewrap"),
        (Facilities(0, True, None), "rlimits"),
        (BARE, "rlimits"),
    ],
)
def test_the_best_is_taken(found: Facilities, best: str) -> None:
    assert choose("auto", found).name == best


@pytest.mark.parametrize("name", NAMES)
def test_a_lower_one_can_be_asked_for(name: str) -> None:
    assert choose(name, FULL).name == name


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("landlok", "Did you mean 'landlock'"),
        ("none", "Known: auto, bubblewrap, landlock, rlimits"),
        ("bubblewrap", "apt-get install bubblewrap"),
        ("landlock", r"Linux 5\.19"),
    ],
)
def test_what_cannot_be_had_is_an_environment_error(asked: str, words: str) -> None:
    with pytest.raises(SandboxUnavailable, match=words) as caught:
        choose(asked, BARE)
    assert caught.value.exit_code == 2


def test_the_variable_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECFARM_SANDBOX", "rlimits")
    assert active_level().name == "rlimits"
    monkeypatch.setenv("SPECFARM_SANDBOX", "best")
    with pytest.raises(SandboxUnavailable, match="SPECFARM_SANDBOX='best'"):
        active_level()
    monkeypatch.setenv("SPECFARM_SANDBOX", "")
    assert active_level() == choose("auto", facilities())


def test_both_lists_hold_the_same_things_together() -> None:
    words = [
        set(level.enforced) | set(level.not_enforced)
        for found in (BARE, FULL, Facilities(2, False, None))
        for level in [choose("auto", found)]
        if not set(level.enforced) & set(level.not_enforced)
    ]
    assert len(words) == 3 and words[0] == words[1] == words[2]


def test_more_facilities_never_stop_less() -> None:
    steps = [
        BARE,
        Facilities(0, True, None, False),
        Facilities(0, True, None),
        Facilities(2, True, None),
        Facilities(4, True, None),
        Facilities(6, True, None),
        Facilities(6, True, "/usr/bin/bwrap"),
    ]
    sizes = [set(choose("auto", found).enforced) for found in steps]
    assert all(less < more or less == more for less, more in pairwise(sizes))
    assert choose("auto", steps[-1]).not_enforced == ()


def test_an_engine_that_connects_is_stopped_less() -> None:
    old = Facilities(3, True, None)
    assert "TCP connections" in choose("auto", old).enforced
    assert "TCP connections" in choose("auto", old, connects=True).not_enforced
    assert "TCP connections" in choose("auto", FULL, connects=True).enforced


def test_the_summary_is_one_line() -> None:
    text = choose("landlock", FULL).summary
    assert text.startswith("landlock (Landlock ABI 7, seccomp): file system, TCP connections")
    assert text.endswith("; not: other processes' CPUs")
    assert choose("auto", FULL).summary.count("not:") == 0


def test_the_confined_side_needs_no_package() -> None:
    """It runs with -S, before any environment is set up."""
    code = (
        f"import sys; sys.path.insert(0, {str(checkout_root())!r}); import engines.exec_child; "
        "print([m for m in sys.modules if m.split('.')[0] in ('settings', 'pydantic', 'torch')])"
    )
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"

"""Procedural prompts: nobody has seen the one a fresh seed gives."""

from __future__ import annotations

import random

from settings.errors import ProvisionError

REASONING_TASKS = (
    "basic_arithmetic",
    "calendar_arithmetic",
    "chain_sum",
    "family_relationships",
    "gcd",
    "knights_knaves",
    "leg_counting",
    "letter_counting",
    "number_sorting",
    "prime_factorization",
    "simple_equations",
    "syllogism",
    "time_intervals",
    "word_sorting",
)
_THINGS = ("apples", "books", "coins", "letters", "stamps", "tickets")
_NAMES = ("Ada", "Alan", "Emmy", "Grace", "Kurt", "Sofia")


def reasoning_gym(rng: random.Random) -> str:
    """One task of the reasoning-gym package (extra `demo`), of a kind chosen by `rng`."""
    try:
        import reasoning_gym as gym
    except ImportError:
        raise ProvisionError(
            "prompt set 'reasoning_gym' needs the package reasoning-gym",
            "Install it: pip install 'specfarm[demo]'",
        ) from None
    task = rng.choice(REASONING_TASKS)
    dataset = gym.create_dataset(task, size=1, seed=rng.getrandbits(31))
    return str(dataset[0]["question"])


def arithmetic(rng: random.Random) -> str:
    """A short word sum; needs no package and no file."""
    name, thing = rng.choice(_NAMES), rng.choice(_THINGS)
    first, second, third = (rng.randint(2, 9999) for _ in range(3))
    return (
        f"{name} has {first} {thing}, gets {second} more and gives {third} away. "
        f"How many {thing} are left?"
    )

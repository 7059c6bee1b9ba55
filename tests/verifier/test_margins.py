import math

import pytest
import torch

from verifier.margins import bf16_ulp, gap, usual_magnitude


def spacing_by_stepping(value: float) -> float:
    """Distance to the next BF16 upwards, by stepping the bit pattern."""
    here = torch.tensor(value, dtype=torch.bfloat16)
    bits = here.view(torch.int16) + 1
    return float(bits.view(torch.bfloat16).double() - here.double())


def test_ulp_equals_stepping_for_every_finite_bf16() -> None:
    # Positive patterns up to the last but one: the step above the greatest is infinity.
    patterns = torch.arange(0, 0x7F7F, dtype=torch.int32).to(torch.int16)
    values = patterns.view(torch.bfloat16).double().tolist()
    above = (patterns + 1).view(torch.bfloat16).double().tolist()
    for value, following in zip(values, above, strict=True):
        assert bf16_ulp(value) == following - value
        assert bf16_ulp(-value) == bf16_ulp(value)


@pytest.mark.parametrize("value", [0.0, 1e-40, 0.1, 1.0, 15.99, 16.0, 31.9, 32.0, 1000.0])
def test_ulp_of_values_between(value: float) -> None:
    rounded_down = float(torch.tensor(value, dtype=torch.bfloat16))
    if rounded_down > value:
        rounded_down -= spacing_by_stepping(rounded_down) / 2
    assert bf16_ulp(value) == spacing_by_stepping(rounded_down)


def test_documented_spacings() -> None:
    assert (bf16_ulp(16.0), bf16_ulp(31.99), bf16_ulp(32.0)) == (0.125, 0.125, 0.25)


def test_gap_is_taken_at_the_magnitude_of_the_top_value() -> None:
    assert gap(32.0, 31.75, "bf16_ulp") == 1.0
    assert gap(31.75, 31.5, "bf16_ulp") == 2.0
    assert gap(-1.0, -1.25, "nats") == 0.25
    assert gap(20.0, 20.0, "bf16_ulp") == 0.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_not_finite_is_infinitely_far(bad: float) -> None:
    assert gap(20.0, bad, "bf16_ulp") == math.inf
    assert gap(bad, 20.0, "nats") == math.inf
    with pytest.raises(ValueError):
        bf16_ulp(bad)


def test_ulps_are_never_finer_than_at_the_usual_magnitude() -> None:
    assert gap(3.0, 2.5, "bf16_ulp") == 32.0
    assert gap(3.0, 2.5, "bf16_ulp", least_magnitude=27.9) == 4.0
    assert gap(-3.0, -3.5, "bf16_ulp", least_magnitude=27.9) == 4.0
    assert gap(40.0, 39.0, "bf16_ulp", least_magnitude=27.9) == 4.0
    assert gap(3.0, 2.5, "nats", least_magnitude=27.9) == 0.5
    assert usual_magnitude([-3.0, 20.0, math.inf, math.nan, 30.0]) == 20.0
    assert usual_magnitude([]) == 0.0

"""Block-FP8 matrices against an FP64 oracle that looks each scale up by its block."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from native_engine.errors import ConfigError
from native_engine.targets.fp8 import Fp8Format, Fp8Linear, dequantise, round_activations

SIZES = [(128, 128), (256, 384), (130, 128), (128, 200), (5, 7), (300, 129)]


def draw(out: int, width: int) -> tuple[Tensor, Tensor]:
    """A random e4m3 matrix (every exponent occurs) and bf16 scales."""
    weight = (torch.randn(out, width) * torch.rand(out, width).mul(6).exp()).clamp(-448, 448)
    scale = torch.rand(-(-out // 128), -(-width // 128)).add(0.1).mul(0.02).to(torch.bfloat16)
    return weight.to(torch.float8_e4m3fn), scale


def oracle_weight(weight: Tensor, scale: Tensor) -> Tensor:
    rows = torch.arange(weight.shape[0]) // 128
    columns = torch.arange(weight.shape[1]) // 128
    return weight.double() * scale.double()[rows][:, columns]


def oracle_activations(x: Tensor) -> Tensor:
    out = torch.empty_like(x, dtype=torch.float64)
    for row in range(x.shape[0]):
        for begin in range(0, x.shape[1], 128):
            group = x[row, begin : begin + 128].float()
            scale = group.abs().max().clamp(min=1e-10) / 448
            e4m3 = (group / scale).to(torch.float8_e4m3fn)
            out[row, begin : begin + 128] = e4m3.double() * scale.double()
    return out


@pytest.mark.parametrize("size", SIZES)
def test_dequantised_weights_are_exact(size: tuple[int, int]) -> None:
    weight, scale = draw(*size)
    exact = oracle_weight(weight, scale)
    assert torch.equal(dequantise(weight, scale).double(), exact)
    assert torch.equal(dequantise(weight, scale, torch.bfloat16), exact.to(torch.bfloat16))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rows", [1, 9])
def test_products_agree_with_float64(
    rows: int, size: tuple[int, int], dynamic: bool, dtype: torch.dtype
) -> None:
    weight, scale = draw(*size)
    more, more_scale = draw(64, size[1])
    x = torch.randn(rows, size[1]).to(dtype)
    wide = oracle_activations(x) if dynamic else x.double()
    matrix = torch.cat([oracle_weight(weight, scale), oracle_weight(more, more_scale)]).t()
    expected = wide @ matrix
    linear = Fp8Linear([(weight, scale), (more, more_scale)], dynamic)
    got = linear(x)
    assert got.dtype == dtype
    unit = torch.finfo(dtype).eps
    bound = unit * expected.abs() + 1e-6 * (wide.abs() @ matrix.abs())
    assert ((got - expected).abs() <= bound).all()
    residual = torch.randn(rows, got.shape[1]).to(dtype)
    kept = residual.clone()
    assert torch.equal(linear.add(x, residual), got + residual)
    assert torch.equal(residual, kept)


def test_activations_round_row_by_row() -> None:
    x = torch.randn(6, 200) * torch.tensor([1e-30, 1e-3, 1.0, 50.0, 1e4, 0.0])[:, None]
    together = round_activations(x)
    expected = oracle_activations(x)
    assert ((together - expected).abs() <= 2.0**-24 * expected.abs()).all()
    assert torch.equal(together, torch.cat([round_activations(row[None]) for row in x]))
    assert not together[5].any()


def config(**changes: object) -> dict[str, object]:
    fields = {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "weight_block_size": [128, 128],
        "activation_scheme": "dynamic",
        "modules_to_not_convert": ["lm_head", "model.layers.1", "in_proj_a", r"model\.visual\..*"],
    }
    return {"quantization_config": fields | changes}


def test_modules_not_to_convert_are_kept() -> None:
    form = Fp8Format.from_config(config())
    assert form is not None and form.dynamic_activations
    assert not form.converts("model.layers.1.mlp.up_proj")
    assert form.converts("model.layers.11.mlp.up_proj")
    assert not form.converts("model.layers.3.linear_attn.in_proj_a")
    assert form.converts("model.layers.3.linear_attn.in_proj_qkv")
    assert not form.converts("model.visual.blocks.0.attn.qkv")
    assert Fp8Format.from_config({}) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"quant_method": "gptq"},
        {"fmt": "e5m2"},
        {"weight_block_size": [64, 64]},
        {"weight_block_size": None},
        {"activation_scheme": "static"},
    ],
)
def test_another_format_is_refused_by_name(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes))):
        Fp8Format.from_config(config(**changes))

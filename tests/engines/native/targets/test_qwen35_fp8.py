"""A block-FP8 hybrid against transformers on its dequantised weights, in FP32."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from native_engine.errors import ConfigError, WeightsError
from native_engine.server.__main__ import build_state, parse_args
from native_engine.server.admin_api import describe
from tests.engines.native.targets.test_fp8 import oracle_activations, oracle_weight
from tests.engines.native.targets.tiny_qwen35 import (
    VOCAB,
    make_folder,
    reference_logits,
    rows_of,
    tiny_target,
)

KEPT = ["lm_head", "in_proj_a", "in_proj_b", "model.layers.2.mlp"]


def quantise(weight: Tensor) -> tuple[Tensor, Tensor]:
    """e4m3 and bf16 scales of a matrix, block by block."""
    out, width = weight.shape
    scale = torch.empty(-(-out // 128), -(-width // 128), dtype=torch.bfloat16)
    e4m3 = torch.empty(out, width, dtype=torch.float8_e4m3fn)
    for i in range(scale.shape[0]):
        for j in range(scale.shape[1]):
            at = slice(128 * i, 128 * i + 128), slice(128 * j, 128 * j + 128)
            scale[i, j] = weight[at].abs().max() / 400
            e4m3[at] = (weight[at] / scale[i, j].float()).to(torch.float8_e4m3fn)
    return e4m3, scale


def make_fp8_folder(folder: Path, scheme: str, kept: list[str]) -> nn.Module:
    """Sizes that are no multiples of 128; transformers' model holds the dequantised weights."""
    model = make_folder(folder, hidden_size=160, intermediate_size=200)
    tensors = load_file(folder / "model.safetensors")
    for name, module in model.named_modules():
        skipped = any(name.endswith(k) or name.startswith(f"{k}.") for k in kept)
        if not isinstance(module, nn.Linear) or skipped:
            continue
        weight, scale = quantise(module.weight.detach())
        tensors[f"{name}.weight"], tensors[f"{name}.weight_scale_inv"] = weight, scale
        module.weight.data = oracle_weight(weight, scale).float()
        if scheme == "dynamic":
            module.register_forward_pre_hook(
                lambda _, x: oracle_activations(x[0][0]).float().unsqueeze(0)
            )
    save_file(tensors, folder / "model.safetensors")
    path = folder / "config.json"
    fp8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
    fp8 |= {"activation_scheme": scheme, "modules_to_not_convert": kept}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": fp8}))
    return model


@pytest.mark.parametrize("scheme", ["none", "dynamic"])
def test_logits_are_those_of_the_dequantised_model(tmp_path: Path, scheme: str) -> None:
    reference = make_fp8_folder(tmp_path, scheme, KEPT)
    target = tiny_target(tmp_path)
    ids = torch.randint(0, VOCAB, (24,), generator=torch.Generator().manual_seed(0))
    expected = reference_logits(reference, ids)
    state = target.new_state(1, 32)
    whole = target.logits(target.forward(rows_of({0: (0, ids.tolist())}), state).hidden)
    assert (whole - expected).abs().max() < 1e-4 * expected.abs().max()


def test_rejected_rows_of_a_ragged_batch_leave_no_trace(tmp_path: Path) -> None:
    reference, target = make_fp8_folder(tmp_path, "none", KEPT), tiny_target(tmp_path)
    draw = torch.Generator().manual_seed(1)
    texts = [torch.randint(0, VOCAB, (n,), generator=draw).tolist() for n in (30, 19)]
    expected = [reference_logits(reference, torch.tensor(text)) for text in texts]
    state, held = target.new_state(2, 48), [0, 0]
    while held != [len(text) for text in texts]:
        # Up to five true rows, then two wrong ones that are not kept.
        runs = {
            slot: (at, [*text[at : at + 2 + 3 * slot], 7, 8])
            for slot, (at, text) in enumerate(zip(held, texts, strict=True))
            if at < len(text)
        }
        rows = rows_of(runs)
        logits = target.logits(target.forward(rows, state).hidden)
        for slot, start, begin, end in rows.spans:
            held[slot] = start + end - begin - 2
            state.commit(slot, held[slot])
            wanted = expected[slot][start : held[slot]]
            found = logits[begin : end - 2]
            assert (found - wanted).abs().max() < 1e-4 * expected[slot].abs().max()


def test_fp8_stays_fp8_in_memory_and_modules_not_to_convert_do_not(tmp_path: Path) -> None:
    make_fp8_folder(tmp_path, "dynamic", KEPT)
    layers = tiny_target(tmp_path)._decoder
    kinds = [type(layer.mlp.gate_up).__name__ for layer in layers]
    assert kinds == ["Fp8Linear", "Fp8Linear", "PlainLinear", "Fp8Linear"]
    assert {w.dtype for w, _ in layers[0].mlp.down.parts} == {torch.float8_e4m3fn}


def test_fused_matrices_of_two_kinds_and_missing_scales_are_named(tmp_path: Path) -> None:
    make_fp8_folder(tmp_path / "split", "dynamic", ["lm_head", "in_proj_a", "in_proj_b", "up_proj"])
    with pytest.raises(ConfigError, match=r"modules_to_not_convert.*up_proj"):
        tiny_target(tmp_path / "split")
    make_fp8_folder(tmp_path / "bare", "dynamic", KEPT)
    file = tmp_path / "bare" / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.layers.1.self_attn.k_proj.weight_scale_inv"]
    save_file(tensors, file)
    with pytest.raises(WeightsError, match=r"k_proj\.weight_scale_inv"):
        tiny_target(tmp_path / "bare")


@pytest.mark.parametrize("dtype", ["fp8", "bf16"])
def test_server_info_says_what_the_weights_are(tmp_path: Path, dtype: str) -> None:
    make_fp8_folder(tmp_path, "dynamic", KEPT)
    flags = ["--dtype", dtype, "--max-total-tokens", "16", "--speculation", "off"]
    state = build_state(parse_args(["--model-dir", str(tmp_path), *flags]))
    try:
        info = describe(state)
    finally:
        state.scheduler.close()
    assert (info["dtype"], info["weights_dtype"]) == (dtype, "fp8")

"""The target's forward pass for many sequences at once, each in a slot of one static KV cache."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from engines.training.decode_attention import decode_attention
from engines.training.errors import TrainingError
from native_engine.config import ModelConfig
from native_engine.errors import NativeEngineError
from native_engine.rope import RopeTable, rotate_
from native_engine.weights import Weights, load_weights

# (layer, rotated heads [rows, heads + 2 * kv_heads, head_dim]) -> [rows, heads * head_dim]
_Attend = Callable[[int, Tensor], Tensor]


class BatchedTarget:
    """A Llama checkpoint on one device. `dtype` is that of weights, cache and activations."""

    def __init__(self, folder: Path, device: torch.device, dtype: torch.dtype) -> None:
        """Raises TrainingError where the folder holds no Llama checkpoint."""
        try:
            self.config = ModelConfig.from_folder(folder)
            weights = load_weights(folder, self.config, dtype)
        except NativeEngineError as error:
            raise TrainingError(
                f"--target {folder}: {error}", "Give the folder of the converted target"
            ) from None
        self.device, self.dtype = device, dtype
        # One table for good: captured graphs keep reading it.
        rope = RopeTable(self.config, self.config.max_positions, dtype)
        self._rope = rope.cos.to(device), rope.sin.to(device)
        self._weights = _moved(weights, device)
        self._attend = decode_attention(device, dtype)
        self._sums_in_fp32 = _sums_in_fp32(device, dtype)
        # Answers in FP32 must be the CPU's: no TF32.
        torch.backends.cuda.matmul.allow_tf32 = False

    @property
    def needs_span(self) -> bool:
        """Whether the cost of a step grows with `span` (plain torch) or with the true lengths."""
        return self._attend.__name__ == "matmul_attention"

    def cache(self, slots: int, capacity: int) -> Tensor:
        """`[layers, slots, 2 * kv_heads, capacity, head_dim]`, keys before values."""
        c = self.config
        if capacity > c.max_positions:
            raise TrainingError(
                f"prompt and answer take up to {capacity} tokens, the target has "
                f"{c.max_positions} positions",
                "Lower --max-new-tokens",
            )
        shape = (c.layers, slots, 2 * c.kv_heads, capacity, c.head_dim)
        return torch.zeros(shape, device=self.device, dtype=self.dtype)

    def prefill(self, ids: Tensor, cache: Tensor, slots: Tensor) -> Tensor:
        """Read prompts `ids` `[n, tokens]`, padded on the right, into `slots` `[n]`; final normed
        hidden states `[n, tokens, hidden]`. What stands after a prompt's end is to be ignored."""
        c = self.config
        n, tokens = ids.shape
        cos, sin = (t[:tokens].repeat(n, 1, 1) for t in self._rope)

        def attend(layer: int, heads: Tensor) -> Tensor:
            by_head = heads.view(n, tokens, -1, c.head_dim).transpose(1, 2)
            cache[layer, :, :, :tokens][slots] = by_head[:, c.heads :]
            q, k, v = by_head.tensor_split((c.heads, c.heads + c.kv_heads), dim=1)
            with self._exact():
                mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            return mixed.transpose(1, 2).reshape(n * tokens, -1)

        return self._layers(ids.reshape(-1), cos, sin, attend).view(n, tokens, -1)

    def step(
        self, ids: Tensor, positions: Tensor, lengths: Tensor, cache: Tensor, span: int
    ) -> Tensor:
        """Append token `ids[b]` at `positions[b]` to slot b, for all slots: final normed hidden
        states `[slots, hidden]`. Slot b attends to its first `lengths[b]` tokens."""
        c = self.config
        cos, sin = (t[positions] for t in self._rope)
        rows = torch.arange(len(ids), device=self.device)

        def attend(layer: int, heads: Tensor) -> Tensor:
            cache[layer][rows, :, positions] = heads[:, c.heads :]
            return self._attend(heads[:, : c.heads], cache[layer], lengths, span)

        return self._layers(ids, cos, sin, attend)

    def logits(self, hidden: Tensor) -> Tensor:
        """FP32 logits `[rows, vocab]` of normed hidden states `[rows, hidden]`."""
        head = self._weights.head
        if self._sums_in_fp32:
            return torch.mm(hidden, head.t(), out_dtype=torch.float32)
        return F.linear(hidden, head).float()

    def _exact(self) -> AbstractContextManager[None]:
        # In FP32 on CUDA the other kernels of attention may round to TF32.
        if self.dtype == torch.float32 and self.device.type == "cuda":
            return sdpa_kernel(SDPBackend.MATH)
        return nullcontext()

    def _layers(self, ids: Tensor, cos: Tensor, sin: Tensor, attend: _Attend) -> Tensor:
        c, w = self.config, self._weights
        norm_shape, eps = (c.hidden_size,), c.rms_norm_eps
        x = F.embedding(ids, w.embedding)
        for index, layer in enumerate(w.layers):
            qkv = F.linear(F.rms_norm(x, norm_shape, layer.input_norm, eps), layer.qkv)
            heads = qkv.view(len(ids), -1, c.head_dim)
            rotate_(heads[:, : c.heads + c.kv_heads], cos, sin)
            x = torch.addmm(x, attend(index, heads), layer.o.t())
            inner = F.linear(F.rms_norm(x, norm_shape, layer.post_norm, eps), layer.gate_up)
            gate, up = inner.chunk(2, dim=-1)
            x = torch.addmm(x, F.silu(gate) * up, layer.down.t())
        return F.rms_norm(x, norm_shape, w.final_norm, eps)


def _sums_in_fp32(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether BF16 products may keep their FP32 sums: logits in BF16 tie often."""
    if device.type != "cuda" or dtype != torch.bfloat16:
        return False
    try:
        row = torch.ones(16, 16, device=device, dtype=dtype)
        torch.mm(row, row, out_dtype=torch.float32)
    except (RuntimeError, TypeError, NotImplementedError) as error:
        print(f"logits in BF16 ({error})", file=sys.stderr, flush=True)
        return False
    return True


def _moved(weights: Weights, device: torch.device) -> Weights:
    def move(part: object) -> dict[str, Tensor]:
        held = {f.name: getattr(part, f.name) for f in fields(part)}  # type: ignore[arg-type]
        return {k: v.to(device) for k, v in held.items() if isinstance(v, Tensor)}

    layers = tuple(replace(layer, **move(layer)) for layer in weights.layers)
    return replace(weights, layers=layers, **move(weights))

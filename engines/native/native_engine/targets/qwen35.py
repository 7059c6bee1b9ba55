"""Qwen3.5/3.6/3.8 dense hybrids (qwen3_5): gated delta nets, and a full attention every fourth.

Text part; vision and `mtp.` tensors of a checkpoint are not read. FP32 where transformers has it:
norms, the decay of the delta net, its recurrence and its gated norm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from native_engine.errors import ConfigError
from native_engine.linear import Linear
from native_engine.rope import rotate_
from native_engine.targets.decoder import DecoderShape, DecoderTarget, Step
from native_engine.targets.fp8 import Fp8Linear, take_fp8
from native_engine.targets.gated_delta import DeltaShape, DeltaWeights
from native_engine.targets.hf_config import HfConfig
from native_engine.targets.hybrid_state import HybridState
from native_engine.targets.modules import GatedMlp, Pack, Reader, RmsNorm
from native_engine.targets.protocol import Rows, TargetState
from native_engine.targets.qwen35_config import FULL, Qwen35Config
from native_engine.targets.source import TensorSource

Mixer = Callable[[Tensor, Step], Tensor]
"""Mixes rows along their sequences, before the output projection: `[total, width]`."""


@dataclass(frozen=True)
class GatedAttention:
    """Full attention: unit-norm q and k, RoPE on the first dimensions of a head, and a sigmoid gate
    per output, which q_proj makes beside q, head by head. `index` counts attention layers."""

    index: int
    shape: DecoderShape
    rotary_dims: int
    qkv: Linear
    q_norm: RmsNorm
    k_norm: RmsNorm

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        c, total = self.shape, x.shape[0]
        q, kv = torch.split(self.qkv(x), [2 * c.q_width, 2 * c.kv_width], dim=-1)
        q, gate = q.view(total, c.heads, 2 * c.head_dim).chunk(2, dim=-1)
        k, v = kv.view(total, 2 * c.kv_heads, c.head_dim).chunk(2, dim=1)
        q, k = self.q_norm(q), self.k_norm(k)
        for heads in (q, k):
            rotate_(heads[..., : self.rotary_dims], step.cos, step.sin)
        mixed = step.attend(self.index, q.flatten(1), torch.cat((k, v), dim=1))
        return mixed * gate.flatten(1).sigmoid()


@dataclass(frozen=True)
class GatedDeltaNet:
    """Linear attention, its output normed per head and gated by z. `index` counts these layers."""

    index: int
    shape: DeltaShape
    qkvz: Linear
    ba: Linear
    norm: RmsNorm

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        assert step.mix is not None
        projected = self.qkvz(x)
        mixed, z = projected[:, : self.shape.channels], projected[:, self.shape.channels :]
        out = step.mix(self.index, mixed, self.ba(x))
        gated = self.norm(out.float()).flatten(1).mul_(F.silu(z.float()))
        return gated.to(x.dtype)


class Layer(NamedTuple):
    input_norm: RmsNorm
    mixer: Mixer
    out: Linear
    post_norm: RmsNorm
    mlp: GatedMlp

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        x = self.out.add(self.mixer(self.input_norm(x), step), x)
        return self.mlp.add(self.post_norm(x), x)


class Qwen35(DecoderTarget):
    """`weights` of all recurrent layers, stacked."""

    def __init__(
        self,
        config: Qwen35Config,
        table: Tensor,
        layers: Sequence[Layer],
        weights: DeltaWeights,
        norm: RmsNorm,
        head: Linear,
    ) -> None:
        theta, dims = config.rope_theta, config.rotary_dims
        super().__init__(config.shape, table, layers, norm, head, theta, rotary_dims=dims)
        self._attentions = config.kinds.count(FULL)
        self._delta, self._weights = config.delta, weights

    def new_state(self, slots: int, capacity: int) -> HybridState:
        kv = self._new_kv(self._attentions, slots, capacity)
        return HybridState(kv, self._delta, self._weights, slots, self.dtype)

    def _begin(self, rows: Rows, state: TargetState) -> Step:
        assert isinstance(state, HybridState)
        # The KV cache refuses rows that do not continue their slots before anything is changed.
        step = self._attending(rows, state.kv)
        return step._replace(mix=partial(state.mix, state.begin(rows)))


class _Reader(Reader):
    """Layers of a hybrid, FP8 where the checkpoint has them so."""

    def __init__(self, config: Qwen35Config, source: TensorSource, pack: Pack) -> None:
        super().__init__(source, pack, config.shape.rms_norm_eps, centred=True)
        self.config = config
        self.delta: list[DeltaWeights] = []
        self._attentions = 0

    def linear(self, at: str, outs: Mapping[str, int], width: int) -> Linear:
        form = self.config.fp8
        sizes = {f"{at}.{name}": out for name, out in outs.items()}
        fp8 = {form is not None and form.converts(name) for name in sizes}
        if len(fp8) > 1:
            text = "config.json modules_to_not_convert: all or none of "
            raise ConfigError(text + ", ".join(sizes))
        if form is None or fp8 == {False}:
            return super().linear(at, outs, width)
        parts = [take_fp8(self.source, name, out, width) for name, out in sizes.items()]
        return Fp8Linear(parts, form.dynamic_activations)

    def layer(self, index: int) -> Layer:
        c, at = self.config, f"{self.config.prefix}.layers.{index}"
        d, inner = c.shape.hidden_size, c.shape.intermediate_size
        input_norm = self.norm(f"{at}.input_layernorm", d)
        if c.kinds[index] == FULL:
            mixer, out = self._attention(f"{at}.self_attn")
        else:
            mixer, out = self._delta(f"{at}.linear_attn")
        post_norm = self.norm(f"{at}.post_attention_layernorm", d)
        return Layer(input_norm, mixer, out, post_norm, self.mlp(f"{at}.mlp", d, inner))

    def _attention(self, at: str) -> tuple[Mixer, Linear]:
        c = self.config.shape
        projections = {"q_proj": 2 * c.q_width, "k_proj": c.kv_width, "v_proj": c.kv_width}
        self._attentions += 1
        mixer = GatedAttention(
            index=self._attentions - 1,
            shape=c,
            rotary_dims=self.config.rotary_dims,
            qkv=self.linear(at, projections, c.hidden_size),
            q_norm=self.norm(f"{at}.q_norm", c.head_dim),
            k_norm=self.norm(f"{at}.k_norm", c.head_dim),
        )
        return mixer, self.linear(at, {"o_proj": c.hidden_size}, c.q_width)

    def _delta(self, at: str) -> tuple[Mixer, Linear]:
        c, s, wide = self.config.shape, self.config.delta, torch.float32
        values, heads = s.value_heads * s.value_dim, s.value_heads
        take = self.source.take
        kernel = take(f"{at}.conv1d.weight", s.channels, 1, s.conv_rows + 1, dtype=wide)
        rate = -take(f"{at}.A_log", heads, dtype=wide).exp()
        dt_bias = take(f"{at}.dt_bias", heads, dtype=wide)
        self.delta.append(DeltaWeights(kernel.squeeze(1).t().contiguous(), rate, dt_bias))
        projections = {"in_proj_qkv": s.channels, "in_proj_z": values}
        mixer = GatedDeltaNet(
            index=len(self.delta) - 1,
            shape=s,
            qkvz=self.linear(at, projections, c.hidden_size),
            ba=self.linear(at, {"in_proj_b": heads, "in_proj_a": heads}, c.hidden_size),
            norm=RmsNorm(take(f"{at}.norm.weight", s.value_dim, dtype=wide), c.rms_norm_eps),
        )
        return mixer, self.linear(at, {"out_proj": c.hidden_size}, values)


def load(config: HfConfig, source: TensorSource, pack: Pack) -> Qwen35:
    """The target a config.json describes, from `source` (targets/load.py)."""
    c = Qwen35Config.read(config)
    reader, size = _Reader(c, source, pack), (c.shape.vocab_size, c.shape.hidden_size)
    table = source.take(f"{c.prefix}.embed_tokens.weight", *size)
    layers = [reader.layer(index) for index in range(len(c.kinds))]
    weights = DeltaWeights(*(torch.stack(parts) for parts in zip(*reader.delta, strict=True)))
    norm = reader.norm(f"{c.prefix}.norm", c.shape.hidden_size)
    head = table if c.tied_head else source.take("lm_head.weight", *size)
    return Qwen35(c, table, layers, weights, norm, pack(head))

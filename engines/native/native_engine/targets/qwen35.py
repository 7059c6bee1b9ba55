"""Qwen3.5/3.6/3.8 dense hybrids (qwen3_5): gated delta nets, and a full attention every fourth.

Text part; vision and `mtp.` tensors of a checkpoint are not read. FP32 where transformers has it:
norms, the decay of the delta net, its recurrence and its gated norm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from native_engine.errors import ConfigError
from native_engine.linear import Linear
from native_engine.llama import swiglu
from native_engine.rope import rotate_
from native_engine.targets.attention import CausalMasks, RaggedAttention
from native_engine.targets.fp8 import Fp8Linear, take_fp8
from native_engine.targets.gated_delta import DeltaShape, DeltaWeights
from native_engine.targets.hf_config import HfConfig
from native_engine.targets.hybrid_state import Group, HybridState
from native_engine.targets.kv_slots import KvSlots
from native_engine.targets.mlp import Pack
from native_engine.targets.norms import RmsNorm
from native_engine.targets.protocol import Forward, Rows, TargetState
from native_engine.targets.qwen35_config import FULL, Qwen35Config
from native_engine.targets.rotary import Rotary
from native_engine.targets.source import TensorSource


class Step(NamedTuple):
    """What the layers of one forward pass share. cos, sin: `[total, 1, rotary_dims]`."""

    attention: RaggedAttention
    cos: Tensor
    sin: Tensor
    state: HybridState
    groups: list[Group]


class Mixer(Protocol):
    """Mixes rows along their sequences, before the output projection: `[total, width]`."""

    def __call__(self, x: Tensor, step: Step) -> Tensor: ...


@dataclass(frozen=True)
class GatedAttention:
    """Full attention: unit-norm q and k, RoPE on the first dimensions of a head, and a sigmoid gate
    per output, which q_proj makes beside q, head by head. `index` counts attention layers."""

    index: int
    config: Qwen35Config
    qkv: Linear
    q_norm: RmsNorm
    k_norm: RmsNorm

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        c, total = self.config, x.shape[0]
        q_width = 2 * c.heads * c.head_dim
        q, kv = torch.split(self.qkv(x), [q_width, 2 * c.kv_heads * c.head_dim], dim=-1)
        q, gate = q.view(total, c.heads, 2 * c.head_dim).chunk(2, dim=-1)
        k, v = kv.view(total, 2 * c.kv_heads, c.head_dim).chunk(2, dim=1)
        q, k = self.q_norm(q), self.k_norm(k)
        for heads in (q, k):
            rotate_(heads[..., : c.rotary_dims], step.cos, step.sin)
        mixed = step.attention(self.index, q.flatten(1), torch.cat((k, v), dim=1))
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
        projected = self.qkvz(x)
        mixed, z = projected[:, : self.shape.channels], projected[:, self.shape.channels :]
        out = step.state.mix(step.groups, self.index, mixed, self.ba(x))
        gated = self.norm(out.float()).flatten(1).mul_(F.silu(z.float()))
        return gated.to(x.dtype)


class Layer(NamedTuple):
    input_norm: RmsNorm
    mixer: Mixer
    out: Linear
    post_norm: RmsNorm
    gate_up: Linear
    down: Linear


class Qwen35:
    """The `Target` of this module (protocol.Target)."""

    def __init__(
        self,
        config: Qwen35Config,
        table: Tensor,
        layers: Sequence[Layer],
        delta: DeltaWeights,
        norm: RmsNorm,
        head: Linear,
    ) -> None:
        self.config = config
        self.vocab_size, self.hidden_size = config.vocab_size, config.hidden_size
        self.layers = len(layers)
        self.dtype, self.device = table.dtype, table.device
        self._table, self._layers, self._delta = table, layers, delta
        self._norm, self._head = norm, head
        self._rotary = Rotary(config.rotary_dims, config.rope_theta, self.device, self.dtype)
        self._masks = CausalMasks(config.heads // config.kv_heads, self.dtype, self.device)

    def new_state(self, slots: int, capacity: int) -> HybridState:
        c = self.config
        kv = KvSlots(
            c.kinds.count(FULL), slots, capacity, c.kv_heads, c.head_dim, self.dtype, self.device
        )
        return HybridState(kv, c.delta, self._delta, slots, self.dtype)

    def forward(self, rows: Rows, state: TargetState, taps: Sequence[int] = ()) -> Forward:
        assert isinstance(state, HybridState)
        if not all(-1 <= tap < self.layers for tap in taps):
            raise ConfigError(f"taps {list(taps)}: layers are 0 to {self.layers - 1}, -1 embedding")
        # The KV cache refuses rows that do not continue their slots before anything is changed.
        attention = RaggedAttention(rows, state.kv, self._masks)
        step = Step(attention, *self._rotary.at(rows.positions), state, state.begin(rows))
        x = self.embed(rows.ids)
        outputs = {-1: x}
        for index, layer in enumerate(self._layers):
            x = layer.out.add(layer.mixer(layer.input_norm(x), step), x)
            x = layer.down.add(swiglu(layer.gate_up(layer.post_norm(x))), x)
            if index in taps:
                outputs[index] = x
        return Forward(x, tuple(outputs[tap] for tap in taps))

    def embed(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self._table)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.head(self._norm(hidden))

    def head(self, normed: Tensor) -> Tensor:
        return self._head(normed)


class _Reader:
    """Takes layers from a source, fusing matrices that read the same rows."""

    def __init__(self, config: Qwen35Config, source: TensorSource, pack: Pack) -> None:
        self.config, self.source, self._pack = config, source, pack
        self.delta: list[DeltaWeights] = []
        self._attentions = 0

    def norm(self, name: str, dim: int) -> RmsNorm:
        return RmsNorm(self.source.take(f"{name}.weight", dim), self.config.eps, centred=True)

    def linear(self, at: str, modules: Mapping[str, int], width: int) -> Linear:
        """`modules` of `at` with their output widths, one matrix below the other."""
        sizes = {f"{at}.{name}": out for name, out in modules.items()}
        form = self.config.fp8
        fp8 = {form is not None and form.converts(name) for name in sizes}
        if len(fp8) > 1:
            raise ConfigError(
                "config.json modules_to_not_convert: all or none of " + ", ".join(sizes)
            )
        if form is not None and fp8 == {True}:
            parts = [take_fp8(self.source, name, out, width) for name, out in sizes.items()]
            return Fp8Linear(parts, form.dynamic_activations)
        weights = [self.source.take(f"{name}.weight", n, width) for name, n in sizes.items()]
        return self._pack(torch.cat(weights) if len(weights) > 1 else weights[0])

    def layer(self, index: int) -> Layer:
        c, at = self.config, f"{self.config.prefix}.layers.{index}"
        d, ff = c.hidden_size, c.intermediate_size
        input_norm = self.norm(f"{at}.input_layernorm", d)
        if c.kinds[index] == FULL:
            mixer, out = self._attention(f"{at}.self_attn")
        else:
            mixer, out = self._delta(f"{at}.linear_attn")
        return Layer(
            input_norm=input_norm,
            mixer=mixer,
            out=out,
            post_norm=self.norm(f"{at}.post_attention_layernorm", d),
            gate_up=self.linear(f"{at}.mlp", {"gate_proj": ff, "up_proj": ff}, d),
            down=self.linear(f"{at}.mlp", {"down_proj": d}, ff),
        )

    def _attention(self, at: str) -> tuple[Mixer, Linear]:
        c = self.config
        q, kv = c.heads * c.head_dim, c.kv_heads * c.head_dim
        self._attentions += 1
        mixer = GatedAttention(
            index=self._attentions - 1,
            config=c,
            qkv=self.linear(at, {"q_proj": 2 * q, "k_proj": kv, "v_proj": kv}, c.hidden_size),
            q_norm=self.norm(f"{at}.q_norm", c.head_dim),
            k_norm=self.norm(f"{at}.k_norm", c.head_dim),
        )
        return mixer, self.linear(at, {"o_proj": c.hidden_size}, q)

    def _delta(self, at: str) -> tuple[Mixer, Linear]:
        c, s, wide = self.config, self.config.delta, torch.float32
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
            norm=RmsNorm(take(f"{at}.norm.weight", s.value_dim, dtype=wide), c.eps),
        )
        return mixer, self.linear(at, {"out_proj": c.hidden_size}, values)


def load(config: HfConfig, source: TensorSource, pack: Pack) -> Qwen35:
    """The target a config.json describes, from `source` (targets/load.py)."""
    c = Qwen35Config.read(config)
    reader = _Reader(c, source, pack)
    table = source.take(f"{c.prefix}.embed_tokens.weight", c.vocab_size, c.hidden_size)
    layers = [reader.layer(index) for index in range(len(c.kinds))]
    delta = DeltaWeights(*(torch.stack(parts) for parts in zip(*reader.delta, strict=True)))
    norm = reader.norm(f"{c.prefix}.norm", c.hidden_size)
    if not c.tied_head:
        head = source.take("lm_head.weight", c.vocab_size, c.hidden_size)
    return Qwen35(c, table, layers, delta, norm, pack(table if c.tied_head else head))

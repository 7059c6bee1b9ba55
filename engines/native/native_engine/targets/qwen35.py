"""Qwen3.5/3.6/3.8 dense hybrids (qwen3_5): gated delta nets, and a full attention every fourth.

Text part; vision and `mtp.` tensors of a checkpoint are not read. FP32 where transformers has it:
norms, the decay of the delta net, its recurrence and its gated norm."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from native_engine.errors import ConfigError
from native_engine.linear import Linear
from native_engine.rope import rotate_
from native_engine.targets.decoder import DecoderTarget, Step
from native_engine.targets.fp8 import Fp8Linear, take_fp8
from native_engine.targets.gated_delta import DeltaWeights
from native_engine.targets.hf_config import HfConfig
from native_engine.targets.hybrid_state import HybridState
from native_engine.targets.modules import Pack, Reader, RmsNorm
from native_engine.targets.protocol import Rows, TargetState
from native_engine.targets.qwen35_config import FULL, Qwen35Config
from native_engine.targets.source import TensorSource


class HybridReader(Reader):
    """Modules of a hybrid, FP8 where the checkpoint has them so. delta: weights of the recurrent
    layers that were taken."""

    def __init__(self, config: Qwen35Config, source: TensorSource, pack: Pack) -> None:
        super().__init__(source, pack, config.shape.rms_norm_eps, centred=True)
        self.config = config
        self.delta: list[DeltaWeights] = []

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


class GatedAttention:
    """Full attention: unit-norm q and k, RoPE on the first dimensions of a head, and a sigmoid gate
    per output, which q_proj makes beside q, head by head. `index` counts these layers."""

    def __init__(self, reader: HybridReader, at: str, index: int) -> None:
        c = reader.config.shape
        self._index, self._shape, self._rotary_dims = index, c, reader.config.rotary_dims
        projections = {"q_proj": 2 * c.q_width, "k_proj": c.kv_width, "v_proj": c.kv_width}
        self._qkv = reader.linear(at, projections, c.hidden_size)
        self._q_norm = reader.norm(f"{at}.q_norm", c.head_dim)
        self._k_norm = reader.norm(f"{at}.k_norm", c.head_dim)
        self._o = reader.linear(at, {"o_proj": c.hidden_size}, c.q_width)

    def __call__(self, x: Tensor, step: Step, residual: Tensor) -> Tensor:
        c, total = self._shape, x.shape[0]
        q, kv = torch.split(self._qkv(x), [2 * c.q_width, 2 * c.kv_width], dim=-1)
        q, gate = q.view(total, c.heads, 2 * c.head_dim).chunk(2, dim=-1)
        k, v = kv.view(total, 2 * c.kv_heads, c.head_dim).chunk(2, dim=1)
        q, k = self._q_norm(q), self._k_norm(k)
        for heads in (q, k):
            rotate_(heads[..., : self._rotary_dims], step.cos, step.sin)
        mixed = step.attend(self._index, q.flatten(1), torch.cat((k, v), dim=1))
        return self._o.add(mixed * gate.flatten(1).sigmoid(), residual)


class GatedDeltaNet:
    """Linear attention, its output normed per head and gated by z. `index` counts these layers."""

    def __init__(self, reader: HybridReader, at: str, index: int) -> None:
        c, s, wide = reader.config.shape, reader.config.delta, torch.float32
        values, heads, take = s.value_heads * s.value_dim, s.value_heads, reader.source.take
        kernel = take(f"{at}.conv1d.weight", s.channels, 1, s.conv_rows + 1, dtype=wide)
        rate = -take(f"{at}.A_log", heads, dtype=wide).exp()
        dt_bias = take(f"{at}.dt_bias", heads, dtype=wide)
        reader.delta.append(DeltaWeights(kernel.squeeze(1).t().contiguous(), rate, dt_bias))
        self._index, self._channels = index, s.channels
        projections = {"in_proj_qkv": s.channels, "in_proj_z": values}
        self._qkvz = reader.linear(at, projections, c.hidden_size)
        self._ba = reader.linear(at, {"in_proj_b": heads, "in_proj_a": heads}, c.hidden_size)
        gain = take(f"{at}.norm.weight", s.value_dim, dtype=wide)
        self._norm = RmsNorm(gain, c.rms_norm_eps)
        self._out = reader.linear(at, {"out_proj": c.hidden_size}, values)

    def __call__(self, x: Tensor, step: Step, residual: Tensor) -> Tensor:
        assert step.mix is not None
        projected = self._qkvz(x)
        mixed, z = projected[:, : self._channels], projected[:, self._channels :]
        out = step.mix(self._index, mixed, self._ba(x))
        gated = self._norm(out.float()).flatten(1).mul_(F.silu(z.float()))
        return self._out.add(gated.to(x.dtype), residual)


class Layer:
    def __init__(self, reader: HybridReader, index: int) -> None:
        c, at = reader.config, f"{reader.config.prefix}.layers.{index}"
        kind, hidden = c.kinds[index], c.shape.hidden_size
        before = c.kinds[:index].count(kind)
        self._input_norm = reader.norm(f"{at}.input_layernorm", hidden)
        self._mixer: GatedAttention | GatedDeltaNet
        if kind == FULL:
            self._mixer = GatedAttention(reader, f"{at}.self_attn", before)
        else:
            self._mixer = GatedDeltaNet(reader, f"{at}.linear_attn", before)
        self._post_norm = reader.norm(f"{at}.post_attention_layernorm", hidden)
        self.mlp = reader.mlp(f"{at}.mlp", hidden, c.shape.intermediate_size)

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        x = self._mixer(self._input_norm(x), step, x)
        return self.mlp.add(self._post_norm(x), x)


class Qwen35(DecoderTarget):
    """The target a config.json describes, from `source`."""

    def __init__(self, config: HfConfig, source: TensorSource, pack: Pack) -> None:
        c = Qwen35Config(config)
        reader, size = HybridReader(c, source, pack), (c.shape.vocab_size, c.shape.hidden_size)
        table = source.take(f"{c.prefix}.embed_tokens.weight", *size)
        layers = [Layer(reader, index) for index in range(len(c.kinds))]
        stacks = [torch.stack(parts) for parts in zip(*reader.delta, strict=True)]
        norm = reader.norm(f"{c.prefix}.norm", c.shape.hidden_size)
        head = pack(table if c.tied_head else source.take("lm_head.weight", *size))
        theta, dims = c.rope_theta, c.rotary_dims
        super().__init__(c.shape, table, layers, norm, head, theta, rotary_dims=dims)
        self._attentions, self._delta = c.kinds.count(FULL), c.delta
        self._weights = DeltaWeights(*stacks)

    def new_state(self, slots: int, capacity: int) -> HybridState:
        kv = self._new_kv(self._attentions, slots, capacity)
        return HybridState(kv, self._delta, self._weights, slots, self.dtype)

    def _begin(self, rows: Rows, state: TargetState) -> Step:
        assert isinstance(state, HybridState)
        # The KV cache refuses rows that do not continue their slots before anything is changed.
        step = self._attending(rows, state.kv)
        return step._replace(mix=partial(state.mix, state.begin(rows)))

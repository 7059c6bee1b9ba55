"""The drafters' equations, said again slowly in float64: no cache, no batch, no fused matrices.

Everything is recomputed from the taps of all committed positions for every block. Written from the
papers' equations (DFlash arXiv 2602.06036, DSpark arXiv 2607.05147), not from the engine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]


class Reference:
    """One drafter; `embedding` and `head` are `[vocab, hidden]`."""

    def __init__(
        self, raw: Mapping[str, Any], weights: Weights, embedding: Tensor, head: Tensor
    ) -> None:
        self.raw = dict(raw) | dict(raw.get("dflash_config", {}))
        self.w = {name: tensor.double() for name, tensor in weights.items()}
        self.embedding = self.w.get("embed_tokens.weight", embedding.double())
        self.head = self.w.get("lm_head.weight", head.double())
        self.block_size = self.raw["block_size"]
        self.taps = self.raw["target_layer_ids"]
        self.spark = "DSpark" in self.raw["architectures"][0]
        self.frequencies, self.rope_scale = self._rope_parameters()

    def _rope_parameters(self) -> tuple[Tensor, float]:
        rope = self.raw.get("rope_parameters") or {"rope_theta": self.raw["rope_theta"]}
        dim = self.raw["head_dim"]
        if rope.get("rope_type", "default") == "default":
            pairs = [rope["rope_theta"] ** (-2 * j / dim) for j in range(dim // 2)]
            return torch.tensor(pairs, dtype=torch.float64), 1.0
        from transformers import Qwen3Config
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        config = Qwen3Config(head_dim=dim, rope_parameters=dict(rope))
        frequencies, scale = ROPE_INIT_FUNCTIONS["yarn"](config, torch.device("cpu"))
        return frequencies.double(), scale

    def rms(self, x: Tensor, gain: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        out = [
            row / math.sqrt(float((row * row).sum()) / len(row) + self.raw["rms_norm_eps"]) * gain
            for row in rows
        ]
        return torch.stack(out).view_as(x)

    def rotate(self, x: Tensor, position: int) -> Tensor:
        """`[heads, head_dim]` at one position: pairs (j, j + half) are complex numbers."""
        half = x.shape[-1] // 2
        turned = torch.complex(x[:, :half], x[:, half:]) * torch.polar(
            torch.full((half,), self.rope_scale, dtype=torch.float64), position * self.frequencies
        )
        return torch.cat((turned.real, turned.imag), dim=-1)

    def sees(self, layer: int, query: int, key: int) -> bool:
        kind = self.raw.get("layer_types", ["full_attention"] * 9)[layer]
        sliding = kind == "sliding_attention"
        if sliding and abs(query - key) >= self.raw["sliding_window"]:
            return False
        return key <= query or not self.raw.get("is_causal", sliding)

    def key_value(self, layer: int, x: Tensor, position: int) -> tuple[Tensor, Tensor]:
        at, shape = f"layers.{layer}.self_attn", (-1, self.raw["head_dim"])
        key = self.rms(
            (self.w[f"{at}.k_proj.weight"] @ x).view(shape), self.w[f"{at}.k_norm.weight"]
        )
        return self.rotate(key, position), (self.w[f"{at}.v_proj.weight"] @ x).view(shape)

    def convolve(self, name: str, half: int, normed: Tensor, x: Tensor) -> Tensor:
        """Equation of the two-tap convolution, channel by channel; identity where there is none."""
        if f"{name}.base_kernel" not in self.w:
            return x
        base = self.w[f"{name}.base_kernel"].tolist()
        group, taps = self.raw["conv_group_size"], self.raw["conv_kernel_size"]
        rows, width = x.shape
        groups = width // group
        values, out = x.tolist(), [[0.0] * width for _ in range(rows)]
        for t in range(rows):
            dynamic = (self.w[f"{name}.kernel_projection.weight"] @ normed[t]).tolist()
            for channel in range(width):
                for o in range(taps):
                    index = (half * taps + o) * groups + channel // group
                    coefficient = base[half][o][channel] + dynamic[index]
                    if t - o >= 0:
                        out[t][channel] += coefficient * values[t - o][channel]
        return torch.tensor(out, dtype=torch.float64)

    def hidden(self, ids: Sequence[int], taps: Sequence[Tensor]) -> Tensor:
        """Final normed hidden states `[block, hidden]` of the block anchored at `ids[-1]`; `taps`:
        one `[len(ids) - 1, hidden]` each."""
        start, size = len(ids) - 1, self.block_size
        features = []
        for position in range(start):
            joined = torch.cat([tap[position].double() for tap in taps])
            fused = self.w["fc.weight"] @ joined
            features.append(self.rms(fused, self.w["hidden_norm.weight"]))
        tokens = [ids[-1]] + [self.raw["mask_token_id"]] * (size - 1)
        x = self.embedding[torch.tensor(tokens)]
        for layer in range(self.raw["num_hidden_layers"]):
            x = x + self.attention(layer, x, features, start)
            x = x + self.mlp(layer, x)
        return self.rms(x, self.w["norm.weight"])

    def attention(self, layer: int, x: Tensor, features: list[Tensor], start: int) -> Tensor:
        at, dim = f"layers.{layer}", self.raw["head_dim"]
        normed = self.rms(x, self.w[f"{at}.input_layernorm.weight"])
        inner = self.convolve(f"{at}.attention_conv", 0, normed, normed)
        rows = features + list(inner)
        pairs = [self.key_value(layer, row, position) for position, row in enumerate(rows)]
        heads = self.raw["num_attention_heads"]
        shared = heads // self.raw["num_key_value_heads"]
        out = []
        for t, row in enumerate(inner):
            position = start + t
            query = (self.w[f"{at}.self_attn.q_proj.weight"] @ row).view(heads, dim)
            query = self.rms(query, self.w[f"{at}.self_attn.q_norm.weight"])
            query = self.rotate(query, position)
            seen = [p for p in range(len(rows)) if self.sees(layer, position, p)]
            mixed = []
            for head in range(heads):
                keys = torch.stack([pairs[p][0][head // shared] for p in seen])
                values = torch.stack([pairs[p][1][head // shared] for p in seen])
                weights = torch.softmax(keys @ query[head] / math.sqrt(dim), dim=0)
                mixed.append(weights @ values)
            out.append(self.w[f"{at}.self_attn.o_proj.weight"] @ torch.cat(mixed))
        return self.convolve(f"{at}.attention_conv", 1, normed, torch.stack(out))

    def mlp(self, layer: int, x: Tensor) -> Tensor:
        at = f"layers.{layer}"
        normed = self.rms(x, self.w[f"{at}.post_attention_layernorm.weight"])
        inner = self.convolve(f"{at}.mlp_conv", 0, normed, normed)
        out = []
        for row in inner:
            gate = self.w[f"{at}.mlp.gate_proj.weight"] @ row
            up = self.w[f"{at}.mlp.up_proj.weight"] @ row
            out.append(self.w[f"{at}.mlp.down_proj.weight"] @ (gate * torch.sigmoid(gate) * up))
        return self.convolve(f"{at}.mlp_conv", 1, normed, torch.stack(out))

    def unary(self, hidden: Tensor) -> Tensor:
        """Logits of one slot, `[vocab]`."""
        logits = self.head @ hidden * self.raw.get("output_multiplier", 1.0)
        cap = self.raw.get("final_logit_softcapping")
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def slots(self, hidden: Tensor) -> Tensor:
        """The rows that draft: all of them in DSpark, all but the anchor's in DFlash."""
        return hidden if self.spark else hidden[1:]

    def scores(self, hidden: Tensor, anchor: int, tokens: Sequence[int]) -> list[Tensor]:
        """Logits `[vocab]` of each drafting slot when `tokens` were chosen before it (-inf for
        what the candidate selector rules out)."""
        found, state = [], torch.zeros(self.raw.get("markov_rank", 0), dtype=torch.float64)
        for k, (row, before) in enumerate(zip(self.slots(hidden), [anchor, *tokens], strict=False)):
            logits = self.unary(row)
            if "candidate_selector.predecessor_codebook" in self.w:
                logits = self._selected(logits, row, before)
            if "markov_head.markov_w1.weight" in self.w:
                bias, state = self._markov(row, before, state)
                logits = logits + bias
            assert k < self.block_size
            found.append(logits)
        return found

    def _selected(self, unary: Tensor, row: Tensor, before: int) -> Tensor:
        at = "candidate_selector"
        projected = self.w[f"{at}.hidden_projection.weight"] @ row
        out = torch.full_like(unary, -math.inf)
        for b in torch.argsort(unary, descending=True)[: self.raw["selector_top_k"]].tolist():
            path = self.w[f"{at}.predecessor_codebook"][before] * projected
            out[b] = unary[b] + float((path * self.w[f"{at}.successor_codebook"][b]).sum())
        return out

    def _markov(self, row: Tensor, before: int, state: Tensor) -> tuple[Tensor, Tensor]:
        embedded = self.w["markov_head.markov_w1.weight"][before]
        kind = self.raw.get("markov_head_type")
        latent = embedded
        if kind == "gated":
            joined = torch.cat((row, embedded))
            gate = self.w["markov_head.gate_proj.weight"] @ joined
            latent = torch.sigmoid(gate + self.w["markov_head.gate_proj.bias"]) * embedded
        if kind == "rnn":
            joined = torch.cat((state, embedded, row))
            both = self.w["markov_head.joint_proj.weight"] @ joined
            both = both + self.w["markov_head.joint_proj.bias"]
            rank = len(embedded)
            gate, candidate, output = both[:rank], both[rank : 2 * rank], both[2 * rank :]
            gate = torch.sigmoid(gate)
            state = gate * state + (1 - gate) * torch.tanh(candidate)
            latent = torch.tanh(output)
        return self.w["markov_head.markov_w2.weight"] @ latent, state

    def greedy(self, hidden: Tensor, anchor: int, count: int) -> list[int]:
        tokens: list[int] = []
        for _ in range(count):
            tokens.append(int(self.scores(hidden, anchor, tokens)[len(tokens)].argmax()))
        return tokens

    def confidences(self, hidden: Tensor, anchor: int, tokens: Sequence[int]) -> list[float]:
        temperatures = self.raw.get("confidence_temperatures", [1.0] * self.block_size)
        found = []
        for k, (row, before) in enumerate(zip(hidden, [anchor, *tokens], strict=False)):
            features = torch.cat((row, self.w["markov_head.markov_w1.weight"][before]))
            logit = self.w["confidence_head.proj.weight"][0] @ features
            logit = float(logit + self.w["confidence_head.proj.bias"][0])
            found.append(1 / (1 + math.exp(-logit / temperatures[k])))
        return found

"""The drafter as a trainable module whose state_dict has the published tensor names."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from engines.training.drafter_layers import INITIAL_STD, Angles, DraftLayer, Norm, linear
from native_engine.drafters.config import DrafterConfig
from native_engine.drafters.describe import checked_folder
from native_engine.errors import ConfigError


class CandidateSelector(nn.Module):
    """DFlash2's path scores `<A[a] * (H h), B[b]>`: zero until B is trained."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        assert config.selector is not None
        rank = config.selector.rank
        # Raw parameters: their published names have no `.weight`.
        self.predecessor_codebook = nn.Parameter(torch.randn(config.vocab_size, rank) * INITIAL_STD)
        self.successor_codebook = nn.Parameter(torch.zeros(config.vocab_size, rank))
        self.hidden_projection = linear(config.hidden_size, rank)


class MarkovHead(nn.Module):
    """DSpark's bias `W2 W1[x_{k-1}]` on a slot's logits: zero until W2 is trained."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        assert config.markov is not None
        rank = config.markov.rank
        self.markov_w1 = nn.Embedding(config.vocab_size, rank)
        nn.init.normal_(self.markov_w1.weight, std=INITIAL_STD)
        self.markov_w2 = nn.Linear(rank, config.vocab_size, bias=False)
        nn.init.zeros_(self.markov_w2.weight)


class ConfidenceHead(nn.Module):
    """Logit of P(draft k accepted | those before accepted), of `[h_k; W1 x_{k-1}]`."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        rank = config.markov.rank if config.markov and config.confidence_with_markov else 0
        self.proj = nn.Linear(config.hidden_size + rank, 1)
        nn.init.zeros_(self.proj.weight)
        nn.init.zeros_(self.proj.bias)


_TABLES = (
    ("candidate_selector.predecessor_codebook", "markov_head.markov_w1.weight"),
    ("candidate_selector.successor_codebook", "markov_head.markov_w2.weight"),
)


class DrafterModel(nn.Module):
    """`hidden` of many blocks of each sequence in one pass; the heads are parameters that the
    losses and the greedy rules use."""

    tap_scale: Tensor

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        if config.yarn or any(window is not None for window in config.windows):
            raise ConfigError("training computes full attention and plain RoPE only")
        if config.markov is not None and config.markov.kind != "vanilla":
            raise ConfigError(f"training computes markov_head_type vanilla, not {config.markov}")
        d, eps = config.hidden_size, config.rms_norm_eps
        self.config = config
        self.fc = linear(len(config.taps) * d, d)
        # Channels of the taps differ by a factor of 500: `fc` is trained on scaled ones, and the
        # scale is part of the exported matrix. Not part of the state: a checkpoint's is 1.
        self.register_buffer("tap_scale", torch.ones(len(config.taps) * d), persistent=False)
        self.hidden_norm, self.norm = Norm(d, eps), Norm(d, eps)
        self.layers = nn.ModuleList(DraftLayer(config) for _ in range(config.layers))
        self.candidate_selector = CandidateSelector(config) if config.selector else None
        self.markov_head = MarkovHead(config) if config.markov else None
        self.confidence_head = ConfidenceHead(config) if config.confidence else None

    def forward(self, taps: Tensor, anchors: Tensor, embedded: Tensor) -> Tensor:
        """Final normed hidden states `[batch, blocks, size, hidden]`.

        taps: `[batch, tokens, taps * hidden]`, of every position. anchors: `[batch, blocks]`
        positions. embedded: `[batch, blocks, size, hidden]`, the block's embedded ids."""
        x = embedded.to(taps.dtype)
        features = self.hidden_norm(F.linear(taps, self.fc.weight * self.tap_scale))
        positions = torch.arange(taps.shape[1], device=taps.device)
        at = self._angles(positions[None], features.dtype)
        rows = anchors[..., None] + torch.arange(x.shape[2], device=taps.device)
        angles = self._angles(rows.flatten(1), features.dtype)
        size, tokens = x.shape[2], taps.shape[1]
        masks = {
            causal: block_mask(anchors, size, tokens, causal, features.dtype)
            for causal in set(self.config.causal)
        }
        for causal, layer in zip(self.config.causal, self.layers, strict=True):
            x = layer(x, features, at, angles, masks[causal])
        out: Tensor = self.norm(x)
        return out

    def scale_taps(self, taps: Tensor) -> None:
        """Train on taps of unit mean square by channel; from samples `[rows, taps * hidden]`."""
        self.tap_scale.copy_(taps.float().pow(2).mean(0).clamp(min=1e-12).rsqrt())

    def published(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """`weights` (of this module's names) as a checkpoint has them."""
        return {**weights, "fc.weight": weights["fc.weight"] * self.tap_scale}

    def start_from(self, folder: Path) -> None:
        """Take a checkpoint's weights; errors as `load_model`'s, and of a checkpoint of other
        shapes."""
        other = load_model(folder)
        weights, ours = other.state_dict(), self.state_dict()
        shapes = {name: tensor.shape for name, tensor in weights.items()}
        if (
            other.config.taps != self.config.taps
            or other.config.block_size != self.config.block_size
            or shapes != {name: tensor.shape for name, tensor in ours.items()}
        ):
            raise ConfigError(f"{folder}: taps, block size or shapes are not those of this run")
        weights["fc.weight"] = weights["fc.weight"].to(self.tap_scale.device) / self.tap_scale
        self.load_state_dict(weights)

    def take_layers_of(self, folder: Path) -> None:
        """Take what a drafter of the other kind has in common: taps, layers, norms; its Markov
        tables become the selector's codebooks, or these the Markov head's."""
        other = load_model(folder)
        if other.config.taps != self.config.taps:
            raise ConfigError(f"{folder}: its taps are {other.config.taps}, not those of this run")
        weights, ours = other.state_dict(), self.state_dict()
        for one, another in _TABLES:
            for name, same in ((one, another), (another, one)):
                if name in weights:
                    weights[same] = weights[name]
        shared = {
            name: tensor
            for name, tensor in weights.items()
            if name in ours and ours[name].shape == tensor.shape
        }
        missing = [name for name in ours if name.startswith("layers.0.mlp.") and name not in shared]
        if missing or "fc.weight" not in shared:
            raise ConfigError(f"{folder}: its layers are of another shape than those of this run")
        shared["fc.weight"] = shared["fc.weight"].to(self.tap_scale.device) / self.tap_scale
        self.load_state_dict(shared, strict=False)

    def drafting(self, hidden: Tensor) -> Tensor:
        """The rows that draft: all in DSpark, all but the anchor's in DFlash2."""
        return hidden if self.config.anchor_predicts else hidden[..., 1:, :]

    def _angles(self, positions: Tensor, dtype: torch.dtype) -> Angles:
        """cos and signed sin of `[batch, rows]`, `[batch, rows, 1, head_dim]` each."""
        dim = self.config.head_dim
        half = torch.arange(0, dim, 2, dtype=torch.int64, device=positions.device).float() / dim
        angles = positions.float()[..., None] * (1.0 / self.config.rope_theta**half)
        cos, sin = angles.cos(), angles.sin()
        cos, sin = torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)
        return cos.to(dtype).unsqueeze(2), sin.to(dtype).unsqueeze(2)


def block_mask(anchors: Tensor, size: int, tokens: int, causal: bool, dtype: torch.dtype) -> Tensor:
    """`[batch, 1, blocks * size, tokens + blocks * size]`, 0 or minus infinity: a row sees the
    context before its block's anchor, and its own block (`causal`: no later row of it)."""
    batch, blocks = anchors.shape
    position = torch.arange(tokens, device=anchors.device)
    context = position < anchors.repeat_interleave(size, dim=1)[..., None]
    row = torch.arange(blocks * size, device=anchors.device)
    own = row[:, None] // size == row // size
    if causal:
        own = own & (row <= row[:, None])
    seen = torch.cat((context, own.expand(batch, -1, -1)), dim=-1).unsqueeze(1)
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, -torch.inf)


def load_model(folder: Path) -> DrafterModel:
    """A checkpoint folder's drafter as a module, FP32; errors as the engine's loader's."""
    model = DrafterModel(checked_folder(folder).config)
    state: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        state |= load_file(str(file))
    model.load_state_dict({name: tensor.float() for name, tensor in state.items()})
    return model

"""Which optimiser steps which weights: AdamW, or Muon for the layers' matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from engines.training.drafter_model import DrafterModel
from engines.training.options import TrainOptions


def make_optimisers(model: DrafterModel, options: TrainOptions) -> list[Optimizer]:
    """Each group's `factor` times the schedule's rate is its learning rate.

    Muon (Jordan 2024): momentum orthogonalised, for matrices of the layers and `fc`, with the
    update's size matched to AdamW's (Liu et al., arXiv 2502.16982)."""
    tables: list[nn.Parameter] = []
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        inner = name.startswith(("layers.", "fc.")) and parameter.ndim == 2
        if parameter.shape[0] == model.config.vocab_size:
            tables.append(parameter)
        elif options.muon and inner:
            matrices.append(parameter)
        else:
            others.append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": others, "factor": 1.0},
        {"params": tables, "factor": options.table_lr},
    ]
    fused = model.norm.weight.device.type == "cuda"
    found: list[Optimizer] = [
        torch.optim.AdamW(groups, lr=options.lr, betas=(0.9, 0.95), weight_decay=0.0, fused=fused)
    ]
    if matrices:
        group = {"params": matrices, "factor": options.muon}
        found.append(
            torch.optim.Muon(
                [group], lr=options.lr, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"
            )
        )
    return found


def step_all(optimisers: Sequence[Optimizer], lr: float) -> None:
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["lr"] = lr * group["factor"]
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

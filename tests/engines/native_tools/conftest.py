"""One torch thread: two collapse when the cores are shared."""

from __future__ import annotations

import torch

torch.set_num_threads(1)

"""`python -m transformers_reference.server`: takes the native engine's flags, ignores the rest."""

from __future__ import annotations

import argparse
import os
from pathlib import Path


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="transformers_reference.server", allow_abbrev=False)
    parser.add_argument("--model-dir", type=Path, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--arm", default="ar")
    parser.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--max-total-tokens", type=int, default=2048)
    parser.add_argument("--served-model-name", default="model")
    parser.add_argument("--tree-hash", default="")
    return parser.parse_known_args(arguments)[0]


def main() -> None:
    options = parse_arguments()
    # Before torch is imported: OpenMP reads them once.
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(options.threads)
    os.environ["HF_HUB_OFFLINE"] = "1"

    import torch
    import transformers
    import uvicorn

    from .generation import ReferenceModel
    from .http_api import build_app

    model = ReferenceModel(options.model_dir, options.dtype, options.threads, options.device)
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(options.model_dir))
    info = {
        "engine": "transformers",
        "version": transformers.__version__,
        "torch": torch.__version__,
        "tree_hash": options.tree_hash,
        "arm": options.arm,
        "served_model_name": options.served_model_name,
        "replayed": False,
        "components": {},
        "config": {
            "speculation": "off",
            "dtype": options.dtype,
            "device": options.device,
            "threads": options.threads,
            "attention": model.attention,
            "max_total_tokens": options.max_total_tokens,
            "eos_token_ids": list(model.eos_ids),
            "vocab_size": model.vocab_size,
        },
    }
    app = build_app(model, tokenizer, info, options.max_total_tokens)
    uvicorn.run(
        app,
        host=options.host,
        port=options.port,
        log_level="warning",
        timeout_graceful_shutdown=2,
    )


if __name__ == "__main__":
    main()

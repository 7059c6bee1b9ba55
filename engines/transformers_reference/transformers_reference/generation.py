"""Greedy `generate` of transformers on one worker thread, token ids out as they are made."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.generation.streamers import BaseStreamer

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


class Cancelled(Exception):
    """The client has gone; ends `generate` at the next token."""


class TokenStreamer(BaseStreamer):  # type: ignore[misc]
    """Hands over ids, not text: the first `put` of a generation is the prompt and is dropped."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[int | Exception | None] = queue.SimpleQueue()
        self.cancelled = threading.Event()
        self._prompt_seen = False

    def put(self, value: torch.Tensor) -> None:
        if self.cancelled.is_set():
            raise Cancelled
        if not self._prompt_seen:
            self._prompt_seen = True
            return
        for token in value.flatten().tolist():
            self.events.put(token)

    def end(self) -> None:
        """`generate` is done; the worker closes the queue."""


class ReferenceModel:
    """The model as any user of transformers loads it: eval, KV cache, default attention.

    All calls run on one thread, so that the thread count set there holds for every request.
    """

    def __init__(self, folder: Path, dtype: str, threads: int, device: str = "cpu") -> None:
        self._jobs: queue.SimpleQueue[tuple[TokenStreamer, dict[str, Any]]] = queue.SimpleQueue()
        self._threads = threads
        torch.set_num_threads(threads)
        model = AutoModelForCausalLM.from_pretrained(str(folder), dtype=DTYPES[dtype])
        self._model = model.eval().to(device)
        config = self._model.config
        self.vocab_size = int(config.vocab_size)
        eos = self._model.generation_config.eos_token_id
        listed = eos if isinstance(eos, list) else [] if eos is None else [eos]
        self.eos_ids: tuple[int, ...] = tuple(int(i) for i in listed)
        self.attention = str(getattr(config, "_attn_implementation", "unknown"))
        threading.Thread(target=self._work, name="generate", daemon=True).start()

    def generate(
        self, prompt: tuple[int, ...], max_new_tokens: int, stop_ids: tuple[int, ...]
    ) -> Generator[int]:
        """Yield new ids one by one; a stop id is yielded and ends the answer."""
        if max_new_tokens == 0:
            return
        streamer = TokenStreamer()
        settings = GenerationConfig(
            max_new_tokens=max_new_tokens,
            do_sample=False,
            use_cache=True,
            eos_token_id=list(stop_ids) or None,
            pad_token_id=0,
        )
        ids = torch.tensor([prompt], device=self._model.device)
        arguments = {
            "inputs": ids,
            "attention_mask": torch.ones_like(ids),
            "generation_config": settings,
        }
        self._jobs.put((streamer, arguments))
        try:
            while (event := streamer.events.get()) is not None:
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            streamer.cancelled.set()

    def _work(self) -> None:
        torch.set_num_threads(self._threads)
        while True:
            streamer, arguments = self._jobs.get()
            try:
                with torch.inference_mode():
                    self._model.generate(streamer=streamer, **arguments)
            except Cancelled:
                pass
            except Exception as error:
                streamer.events.put(error)
            streamer.events.put(None)

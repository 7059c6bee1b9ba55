"""SmolLM2-135M-Instruct in FP32 against transformers: logits, greedy tokens, chat template."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from native_engine.config import EngineConfig
from native_engine.engine import load_engine
from native_engine.requests import GenerateRequest
from native_engine.server.__main__ import TREE
from native_engine.tokenizer import Tokenizer
from settings.loading import load_setting
from settings.weights import ensure_target

TEXTS = Path(__file__).parent / "data" / "smollm2_texts.json"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_logits_tokens_and_template_equal_transformers() -> None:
    folder = ensure_target(load_setting("cpu_c1_smollm2-135m_ngram-fp32"))
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    knobs = EngineConfig.from_file(TREE / "engine.toml")
    engine = load_engine(folder, knobs, "fp32", 1024)
    drafter = engine.decoder.drafter
    for text in json.loads(TEXTS.read_text())[2:4]:
        prompt = text["prompt"]
        with torch.no_grad():
            expected = reference(torch.tensor([prompt])).logits[0]
            truth = reference.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                max_new_tokens=256,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
            )[0, len(prompt) :].tolist()
        got: list[torch.Tensor] = []
        last = engine.decoder.start(prompt, 0, lambda at, rows, out=got: out.append(rows.clone()))
        assert last is not None
        assert (torch.cat([*got, last]) - expected).abs().max() < 1e-4 * expected.abs().max()
        for use in (None, drafter):
            engine.decoder.drafter = use
            assert engine.run(GenerateRequest("r", tuple(prompt), 256)).output_ids == truth
    messages = [{"role": "user", "content": "Hello"}]
    rendered = AutoTokenizer.from_pretrained(folder).apply_chat_template(
        messages, add_generation_prompt=True, tokenize=False
    )
    ours = Tokenizer(folder)
    assert ours.chat(messages) == ours.encode(rendered)

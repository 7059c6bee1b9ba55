"""A compact engine for Llama-architecture models: greedy decoding with draft-and-verify.

Needs torch, numpy and safetensors; `native_engine.server` also fastapi, uvicorn, tokenizers and
jinja2. The folder above this package is the whole engine tree: it imports nothing outside itself.
"""

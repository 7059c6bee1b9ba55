"""SGLang's HTTP surface and OpenAI's on the native engine: `python -m native_engine.server`."""

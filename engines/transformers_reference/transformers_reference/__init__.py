"""transformers' own `generate` behind the engine HTTP surface: the yardstick for plain decoding."""

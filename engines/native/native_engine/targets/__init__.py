"""The target models: one forward pass for rows of many sequences, exact against transformers."""

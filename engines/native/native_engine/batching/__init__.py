"""Continuous batching: many requests, one forward pass a step."""

"""Intervals for ratios of few, unequal, noisy units; nothing here knows what an engine is."""

"""Parallel drafters: DFlash, DFlash2 and DSpark in their published checkpoint formats."""

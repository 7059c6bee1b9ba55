"""Proposers of candidates: a protocol, a registry, and the explorers themselves.

An explorer looks at a deployment and at what was measured so far and proposes changes to the
engine's tree. It never measures and never decides: measurement alone does.
"""

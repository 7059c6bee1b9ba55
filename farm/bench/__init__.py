"""The bench client: measures arms from outside, on the client's clock, and says how sure it is.

`measure` records, `estimate` turns recordings into ratios with intervals, `aa_floor` says what the
machine cannot resolve. Nothing here trusts an engine's own statement about time.
"""

"""The campaign: rounds of propose, evaluate, decide, merge, confirm, driven one event at a time."""

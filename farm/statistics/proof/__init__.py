"""What the statistics are worth: simulated campaigns with a known truth (`python -m
farm.statistics.proof`). Tests assert on the figures these functions return."""

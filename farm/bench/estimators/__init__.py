"""Estimators of a speed ratio, one a file, by name."""

from farm.bench.estimators.registry import ESTIMATORS, get_estimator

__all__ = ["ESTIMATORS", "get_estimator"]

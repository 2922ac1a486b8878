r"""Baselines for single graphs, one per file, each called as ``model(x, propagation)``."""

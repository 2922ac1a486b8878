"""Chebyshev-filtered subspace iteration."""

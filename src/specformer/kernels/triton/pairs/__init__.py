"""Kernels over all pairs of nodes in a batch of many small graphs."""

"""Attention kernels that never hold the scores of all pairs."""

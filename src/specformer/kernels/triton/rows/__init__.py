"""Kernels over the rows and columns of a matrix: sums, normalisation, linear maps."""

"""Eigensolvers, one a file. Each is a function ``solve(laplacian, lowest, highest, …)``."""

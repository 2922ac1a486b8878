"""New eigenvalues and signals in, filtered signals out (paper §4.2 and §4.3)."""

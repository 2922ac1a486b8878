"""Spectra without eigenvectors: densities and polynomial filters."""

"""Spectra on disk, and eigenvectors streamed from there."""

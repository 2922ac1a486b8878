"""Eigensolvers, one file or folder each, and the choice between them."""

"""Eigensolvers, one file or folder each, and the choice between them."""

from collections.abc import Callable

#: Called during a solve with the number of converged and of wanted pairs.
Progress = Callable[[int, int], None]

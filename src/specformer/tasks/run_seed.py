r"""The seed that a run's weights are drawn from."""

from __future__ import annotations

#: More than there are runs under one seed.
_APART = 100_003


def run_seed(seed: int, run: int) -> int:
    """That of one of the runs under a seed; runs under another seed have others.

    Example:
        >>> run_seed(0, 7), run_seed(1, 0)
        (7, 100003)
    """
    return _APART * seed + run

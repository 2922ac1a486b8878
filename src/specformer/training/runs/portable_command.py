r"""The command line of a run, as it is kept with its result."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

#: Options that say where things lie on one machine, or how to print: not part of a run's identity.
_LOCAL = ("--out", "--data", "--cache")
_PRINTING = ("--quiet", "-q", "--json")


def portable_command(arguments: Sequence[str]) -> str:
    """The command line that repeats a run anywhere.

    Example:
        >>> portable_command(["table", "1", "--out", "/here", "--seed", "3", "--quiet"])
        'specformer table 1 --seed 3'
    """
    kept: list[str] = []
    skip = False
    for argument in arguments:
        local = argument.partition("=")[0] in _LOCAL
        if not skip and not local and argument not in _PRINTING:
            kept.append(argument)
        skip = local and "=" not in argument
    return shlex.join(["specformer", *kept])

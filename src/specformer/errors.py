"""Errors a user can cause. The command line turns each into one sentence and exit status 2."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable


def nearest(name: str, known: Iterable[str], alike: float = 0.6) -> str | None:
    """The known name most similar to a mistyped one; None if no similarity reaches ``alike``.

    Example:
        >>> nearest("crao", ["cora", "photo"])
        'cora'
    """
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=alike)), None)


def brief(value: object, most: int = 100) -> str:
    """The ``repr`` of a value for an error message, without the middle if it is long.

    Example:
        >>> brief("a" * 10_000, 20)
        "'aaaaaaaa…aaaaaaaa'"
    """
    shown = repr(value)
    half = most // 2 - 1
    return shown if len(shown) <= most else f"{shown[:half]}…{shown[-half:]}"


class SpecformerError(Exception):
    """Base class of all errors that a user can cause and fix."""


class GraphError(SpecformerError):
    """A graph, or a file with graphs, is invalid."""


class SpectrumError(SpecformerError):
    """A decomposition is not possible, or failed its residual and orthogonality checks."""


class ConfigError(SpecformerError):
    """An option, a recipe or a model configuration has an unknown name or a bad value."""


class DataNotFoundError(SpecformerError):
    """A data set was not found in any of the searched folders."""


class RunError(SpecformerError):
    """A run folder or a saved model is missing, incomplete or damaged."""


def system_sentence(error: OSError) -> str:
    """The message and the file of a system error, such as a full disk or a missing permission.

    Example:
        >>> system_sentence(OSError(28, "No space left on device", "run/result.json"))
        'run/result.json: No space left on device.'
    """
    named = f"{error.filename}: " if error.filename else ""
    return f"{named}{error.strerror or error}."


def check_known(what: str, known: Collection[str], *names: str) -> None:
    """Refuse names that are not known.

    Example:
        >>> check_known("model", ["gcn", "gat"], "gnc")
        Traceback (most recent call last):
        specformer.errors.ConfigError: unknown model 'gnc'; choose from gcn, gat.
    """
    for name in names:
        if name not in known:
            raise ConfigError(f"unknown {what} {name!r}; choose from {', '.join(known)}.")

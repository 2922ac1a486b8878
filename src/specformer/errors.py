"""Errors a user can cause. The command line turns each into one sentence and exit status 2."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable


def nearest(name: str, known: Iterable[str], alike: float = 0.6) -> str | None:
    """The known name that a mistyped one is most like, if it is at least ``alike`` to any.

    Example:
        >>> nearest("crao", ["cora", "photo"])
        'cora'
    """
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=alike)), None)


def brief(value: object, most: int = 100) -> str:
    """How a value is shown in an error: as Python writes it, the middle of a long one left out.

    Example:
        >>> brief("a" * 10_000, 20)
        "'aaaaaaaa…aaaaaaaa'"
    """
    shown = repr(value)
    half = most // 2 - 1
    return shown if len(shown) <= most else f"{shown[:half]}…{shown[-half:]}"


class SpecformerError(Exception):
    """Base of every error that names something the caller can put right."""


class GraphError(SpecformerError):
    """A graph, or a file holding one, cannot be used as it is."""


class SpectrumError(SpecformerError):
    """A decomposition was refused or failed its residual and orthogonality checks."""


class ConfigError(SpecformerError):
    """An option, a recipe or a model configuration has an unknown name or a bad value."""


class DataNotFoundError(SpecformerError):
    """A data set is in none of the places that were searched."""


class RunError(SpecformerError):
    """A run folder or a saved model is missing, incomplete or altered."""


def system_sentence(error: OSError) -> str:
    """What the system refuses, with the file: a full disk, a folder that may not be written to.

    Example:
        >>> system_sentence(OSError(28, "No space left on device", "run/result.json"))
        'run/result.json: No space left on device.'
    """
    named = f"{error.filename}: " if error.filename else ""
    return f"{named}{error.strerror or error}."


def check_known(what: str, known: Collection[str], *names: str) -> None:
    """Refuse names of which one is not known.

    Example:
        >>> check_known("model", ["gcn", "gat"], "gnc")
        Traceback (most recent call last):
        specformer.errors.ConfigError: unknown model 'gnc'; choose from gcn, gat.
    """
    for name in names:
        if name not in known:
            raise ConfigError(f"unknown {what} {name!r}; choose from {', '.join(known)}.")

r"""How one column of node features is prepared for a model, fitted on training nodes."""

from __future__ import annotations

from dataclasses import dataclass
from shlex import quote
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from specformer.errors import GraphError

#: The ways to prepare a column.
How = Literal["standard", "robust", "category", "hash", "none", "drop"]

#: A value more than this many quartile ranges from the median is an outlier.
_FAR = 10.0
#: Robust scaling cuts at this many deviations; a normal variable's quartile range in deviations.
_CUT, _QUARTILES = 5.0, 1.349
#: A larger share of values equal to the median does not count in robust scaling.
_SAME = 0.25
#: A word on fewer training nodes than this, or on a smaller share of them, counts as rare.
_RARE, _RARE_SHARE = 2, 0.01
#: More words than this are not categories if most cells differ.
_MANY = 20
#: Other nodes' numbers are in doubt if their median is more than so many deviations away, or their
#: deviation is a smaller share of that in training.
_ELSEWHERE, _NARROW = 5.0, 0.05
#: Columns that the words of a text are hashed into.
_HASHED = 128
#: Most words that a description lists.
_TOLD = 8
#: Stands for a missing word.
_NO_WORD = ""


@dataclass(frozen=True)
class PreparedColumn:
    """How a column is prepared, fitted on training nodes.

    Attributes:
        name: the column's name.
        how: ``"standard"`` and ``"robust"`` subtract ``centre`` and divide by ``scale``, and
            ``"robust"`` then cuts at ±5; ``"none"`` leaves numbers; ``"category"`` makes one column
            per word of ``words``; ``"hash"`` counts the words of a text in 128 columns, chosen by
            the words' hashes, and scales the row to length 1; ``"drop"`` leaves the column out.
        centre: mean or median.
        scale: standard deviation, or that of a normal variable with the same quartile range.
        fill: replaces a missing number.
        marks_missing: whether one more column marks missing numbers.
        words: the categories; "" is a missing word.
        others: whether one more column is for all other words.
        unit: the unit that a file gives its numbers in, if any.
    """

    name: str
    how: How
    centre: float = 0.0
    scale: float = 1.0
    fill: float = 0.0
    marks_missing: bool = False
    words: tuple[str, ...] = ()
    others: bool = False
    unit: str = ""

    @property
    def width(self) -> int:
        """The number of columns it becomes."""
        if self.how == "category":
            return len(self.words) + self.others
        if self.how == "hash":
            return _HASHED
        return (self.how != "drop") + self.marks_missing

    def values(
        self, numbers: NDArray[np.float32], words: tuple[str, ...] | None
    ) -> NDArray[np.float32]:
        """The prepared columns ``[n, width]`` of any nodes' column ``[n]``."""
        if self.how == "category":
            place = {word: number for number, word in enumerate(self.words)}
            beyond = len(self.words)  # for other words, if there is such a column
            places = [place.get(word, beyond) for word in _words_of(numbers, words)]
            return np.eye(beyond + 1, dtype=np.float32)[places][:, : self.width]
        if self.how == "hash":
            from sklearn.feature_extraction.text import HashingVectorizer  # slow to import

            hashed = HashingVectorizer(n_features=_HASHED, alternate_sign=False, dtype=np.float32)
            return np.asarray(hashed.transform(_words_of(numbers, words)).toarray())
        if words is not None and self.width:
            raise GraphError(f"column {self.name!r} holds words, but held numbers in training")
        missing = np.isnan(numbers)
        columns = []
        if self.how != "drop":
            filled = np.where(missing, self.fill, numbers.astype(np.float64))
            scaled = (filled - self.centre) / self.scale
            columns.append(np.clip(scaled, -_CUT, _CUT) if self.how == "robust" else scaled)
        if self.marks_missing:
            columns.append(missing.astype(np.float64))
        if not columns:
            return np.empty((len(numbers), 0), dtype=np.float32)
        return np.stack(columns, axis=1).astype(np.float32)

    def doubt(
        self, numbers: NDArray[np.float32], words: tuple[str, ...] | None, unit: str = ""
    ) -> str | None:
        """Why a column of other nodes may not be the one that was fitted, or None.

        It has another unit, none is known, words are new, or numbers are far away or all close
        together.
        """
        if unit and self.unit and unit != self.unit:
            return f"is in {unit}, but was in {self.unit} in training; convert it"
        known = numbers[~np.isnan(numbers)]
        was_missing = self.marks_missing or _NO_WORD in self.words or self.how == "hash"
        if not len(known) and not was_missing:
            return "is missing everywhere, which it nowhere was in training"
        if self.how == "category":
            new = sum(word not in self.words for word in _words_of(known, words))
            if self.others and 2 * new > len(known):
                return f"has words that are new, or were rare in training, in {new} cells"
            if new and not self.others:
                return f"has words that were not there in training, in {new} of {len(known)} cells"
        if self.how in ("standard", "robust") and len(known):
            middle, spread = np.median(known), known.std(dtype=np.float64)
            far = abs(middle - self.centre) > _ELSEWHERE * self.scale
            narrow = 0 < spread < _NARROW * self.scale and len(known) >= _MANY
            if far or (narrow and self.how == "standard"):
                return (
                    f"has numbers around {middle:.3g} ± {spread:.3g}, but {self.centre:.3g} ± "
                    f"{self.scale:.3g} in training; look at their unit"
                )
        return None

    @property
    def in_short(self) -> str:
        """How the column is prepared, without figures."""
        told = {"category": "a column for each word", "none": "as they are"}
        return told.get(self.how) or str(self).partition(" (")[0].partition(";")[0]

    def __str__(self) -> str:
        """How the column is prepared, in words."""
        if self.how == "category":
            listed = ", ".join(word or "missing" for word in self.words[:_TOLD])
            more = f" and {len(self.words) - _TOLD} more" if len(self.words) > _TOLD else ""
            others = ", and one for all others" if self.others else ""
            return f"one column for each of {listed}{more}{others}"
        if self.how == "hash":
            return f"its words counted in {_HASHED} columns by their hash"
        mark = f"; missing ones are {self.fill:.4g} and marked" if self.marks_missing else ""
        if self.how == "drop":
            return "only marked where missing" if self.marks_missing else "left out"
        if self.how == "none":
            return f"as it is{mark}"
        if self.how == "robust":
            return f"scaled (median {self.centre:.4g}, spread {self.scale:.4g}), cut at ±5{mark}"
        return f"standardised (mean {self.centre:.4g}, deviation {self.scale:.4g}){mark}"


def fit_column(
    name: str,
    numbers: NDArray[np.float32],
    words: tuple[str, ...] | None,
    how: How | None = None,
    *,
    robust: bool = True,
) -> PreparedColumn:
    """Fit a column to training nodes, as asked for or by its content.

    Words are categories; 0 and 1 stay as they are; a column of one value is left out; numbers are
    standardised or, if ``robust`` and one lies more than ten quartile ranges from the median,
    scaled by median and quartile range. Missing ``numbers`` are NaN.

    Example:
        >>> column = fit_column("age", np.float32([20, 40, np.nan]), None)
        >>> print(column)
        standardised (mean 30, deviation 10); missing ones are 30 and marked
        >>> column.values(np.float32([50, np.nan]), None).tolist()
        [[2.0, 0.0], [0.0, 1.0]]
    """
    if how in ("drop", "hash"):
        return PreparedColumn(name, how)
    if how == "category" or (how is None and words is not None):
        return _fit_words(name, numbers, words)
    if words is not None:
        raise GraphError(f"column {name!r} holds words; prepare it as a category, or drop it")
    known = numbers[~np.isnan(numbers)].astype(np.float64)
    missing = len(known) < len(numbers)
    if len(known) == 0 or known.min() == known.max():
        marks = missing and len(known) > 0
        return PreparedColumn(name, "drop", marks_missing=marks)
    fill = float(np.median(known))
    if how is None and np.isin(known, (0.0, 1.0)).all():
        how = "none"
    elif how is None:
        is_far = np.abs(known - fill).max() > _FAR * _spread(known) if robust else False
        how = "robust" if is_far else "standard"
    centre, scale = 0.0, 1.0
    if how == "standard":
        centre, scale = float(known.mean()), float(known.std())
    elif how == "robust":
        others = known[known != fill]  # many zeros say nothing about how far others spread
        told = others if len(others) < (1 - _SAME) * len(known) else known
        centre, scale = fill, _spread(told) / _QUARTILES
    return PreparedColumn(name, how, centre, scale, fill, marks_missing=missing)


def _spread(known: NDArray[np.float64]) -> float:
    """The quartile range; if it is 0, that of the values besides the median; else a deviation.

    Example:
        >>> _spread(np.arange(5.0)), _spread(np.array([0.0] * 19 + [1, 2, 3]))
        (2.0, 1.0)
    """
    for values in (known, known[known != np.median(known)]):
        low, high = np.quantile(values, (0.25, 0.75))
        if high > low:
            return float(high - low)
    return float(known.std()) * _QUARTILES


def _fit_words(
    name: str, numbers: NDArray[np.float32], words: tuple[str, ...] | None
) -> PreparedColumn:
    cells = np.array(_words_of(numbers, words))
    found, counts = np.unique(cells, return_counts=True)
    least = max(_RARE, _RARE_SHARE * len(cells))
    kept = tuple(str(word) for word, count in zip(found, counts, strict=True) if count >= least)
    if len(found) == 1:
        return PreparedColumn(name, "drop")
    if not kept or len(found) > max(_MANY, len(cells) / 2):
        raise GraphError(
            f"column {name!r} is free text, {len(found)} different texts on {len(cells)} training "
            f"nodes; leave it out with --set {quote(f'columns.{name}=drop')}, or count its words "
            f"with --set {quote(f'columns.{name}=hash')}"
        )
    return PreparedColumn(name, "category", words=kept, others=len(kept) < len(found))


def _words_of(numbers: NDArray[np.float32], words: tuple[str, ...] | None) -> list[str]:
    """Each node's word, or its number as text."""

    def word(number: np.float32) -> str:
        if words is not None:
            return words[int(number)]
        return str(int(number)) if float(number).is_integer() else str(number)

    return [_NO_WORD if np.isnan(number) else word(number) for number in numbers]

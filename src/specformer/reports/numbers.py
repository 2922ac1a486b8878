r"""How the numbers of a result are written for people."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import TypeGuard

from specformer.training.evaluation.graph_metrics import METRICS
from specformer.training.evaluation.summaries import interval95

NONE = "–"
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power_of_ten(exponent: int) -> str:
    """``10⁻³`` for -3."""
    return "10" + str(exponent).translate(_SUPERSCRIPT)


def error(value: float | None, like: float | None = None) -> str:
    """An error to three significant digits, scientific below a thousandth and from ten million on.

    ``like``: the mean whose digits an interval follows.

    Example:
        >>> error(0.01234), error(0.0021, like=0.01234), error(1.5e-5), error(1234.5), error(2e30)
        ('0.0123', '0.0021', '1.50×10⁻⁵', '1,230', '2.00×10³⁰')
    """
    if not _known(value):
        return NONE
    leading = value if like is None else like
    exponent = int(f"{leading:.2e}".split("e")[1])  # of the rounded number: 9.999 is 10.0
    if not -3 <= exponent < 7:
        return _minus(f"{value * 10.0**-exponent:,.2f}×{power_of_ten(exponent)}")
    return _minus(f"{round(value, 2 - exponent):,.{max(0, 2 - exponent)}f}")


def r_squared(value: float | None, like: float | None = None) -> str:
    """A coefficient of determination with all its nines, and one digit after them.

    ``like``: the mean whose digits an interval follows.

    Example:
        >>> r_squared(0.95312), r_squared(0.99998765), r_squared(0.004, like=0.98), r_squared(-1.5)
        ('0.9531', '0.999988', '0.0040', '−1.50')
    """
    if not _known(value):
        return NONE
    leading = value if like is None else like
    gap = abs(1.0 - leading)
    decimals = 4 if gap < 1e-9 else min(9, max(4, math.ceil(-math.log10(gap)) + 1))
    return _minus(f"{value:.{2 if leading < 0 else decimals}f}")


def percent(value: float | None, like: float | None = None) -> str:
    """A fraction of 1 as per cent; half the width of an interval (``like``) has no sign.

    Example:
        >>> percent(0.93214), percent(0.0087, like=0.93214)
        ('93.2%', '0.9')
    """
    if not _known(value):
        return NONE
    return f"{100 * value:.1f}" + ("%" if like is None else "")


def share(value: float | None, like: float | None = None) -> str:
    """A figure between 0 and 1, such as ROC-AUC, in the digits of an error."""
    return error(value, like)


def writer(metric: str) -> Callable[..., str]:
    """The function that writes figures of this metric.

    Example:
        >>> writer("accuracy")(0.93), writer("rocauc")(0.93), writer("rmse")(93.0)
        ('93.0%', '0.930', '93.0')
    """
    if metric == "accuracy":
        return percent
    known = METRICS.get(metric)  # those of links, Hits@10 and so on, are shares
    return error if known and known.task == "regression" else share


def spread(write: Callable[..., str], mean: float, ci95: float) -> str:
    """A 95% interval beside its mean; that of a percentage or a share stays within its bounds.

    Example:
        >>> spread(percent, 0.93, 0.0087), spread(percent, 0.97, 0.05), spread(share, 0.97, 0.05)
        ('± 0.9', '(85.3 to 99.4)', '(0.853 to 0.994)')
        >>> spread(error, 0.97, 0.05)
        '± 0.050'
    """
    if write in (percent, share) and not (mean - ci95 >= 0.0 and mean + ci95 <= 1.0):
        low, high = (write(end, like=mean) for end in interval95(mean, ci95))
        return f"({low} to {high})"
    return f"± {write(ci95, like=mean)}"


def factor(ratio: float) -> str:
    """A ratio in two significant digits, from a million on in words.

    Example:
        >>> factor(3.14159), factor(47.3), factor(1234.0)
        ('3.1', '47', '1,200')
    """
    if ratio >= 1e6:
        return "over a million"
    if ratio < 9.95:
        return f"{ratio:.1f}"
    digits = math.floor(math.log10(ratio)) - 1
    return f"{round(ratio, -digits):,.0f}"


def count(value: float | None) -> str:
    """A whole number with separated thousands."""
    return f"{value:,.0f}" if _known(value) else NONE


def scientific(value: float | None) -> str:
    """A small number, two digits.

    Example:
        >>> scientific(3.21e-7), scientific(0.0)
        ('3.2×10⁻⁷', '0')
    """
    if not _known(value):
        return NONE
    if not value:
        return "0"
    digits, exponent = f"{value:.1e}".split("e")
    return f"{digits}×{power_of_ten(int(exponent))}"


def duration(seconds: float | None) -> str:
    """A time in the units that people use.

    Example:
        >>> duration(0.0123), duration(48.31), duration(192), duration(3900)
        ('0.012 s', '48.3 s', '3 min 12 s', '1 h 05 min')
    """
    if not _known(seconds):
        return NONE
    if seconds < 1:
        return f"{seconds:.2g} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def date(created: str | None) -> str:
    """An ISO time as a date for people; anything else unchanged."""
    if not created:
        return NONE
    try:
        time = datetime.fromisoformat(created)
    except ValueError:
        return created
    return f"{time.day} {time:%B %Y, %H:%M} {time.tzname() or ''}".strip()


def _known(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def _minus(text: str) -> str:
    return text.replace("-", "−")

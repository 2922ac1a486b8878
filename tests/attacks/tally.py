"""What became of attacks: counts, and the words of what should not have happened."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from specformer.errors import SpecformerError

#: What the command line ends with one sentence.
SENTENCES = (SpecformerError, OSError, MemoryError)
#: Refused: one sentence. Unaffected: as if there had been no attack. Lost: neither, and said so.
OUTCOMES = ("refused", "unaffected", "wrong", "tracebacks")
_MOST_EXAMPLES = 5


@dataclass
class Tally:
    """The outcomes of one attack on one kind of file or command."""

    attack: str
    on: str
    counts: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    begun: float = field(default_factory=time.perf_counter)
    worked: float = field(default_factory=lambda: _processor_seconds())

    def add(self, outcome: str, example: str = "") -> None:
        assert outcome in OUTCOMES
        self.counts[outcome] += 1
        if outcome in OUTCOMES[2:] and len(self.examples) < _MOST_EXAMPLES:
            self.examples.append(f"{outcome}: {example}"[:400])

    def attempt(self, use: Callable[[], bool], example: str = "") -> None:
        """Count what a use leads to: an error, True where it is as ever, or another outcome."""
        try:
            same = use()
        except SENTENCES:
            self.add("refused")
        except Exception as error:
            self.add("tracebacks", f"{example} {type(error).__name__}: {error}")
        else:
            self.add("unaffected" if same else "wrong", example)

    @property
    def is_good(self) -> bool:
        return not self.counts["wrong"] and not self.counts["tracebacks"]

    def row(self) -> dict[str, Any]:
        """As the ledger has it."""
        return {
            "case": f"{self.attack}: {self.on}",
            "tried": self.counts.total(),
            **{name: self.counts[name] for name in OUTCOMES},
            "seconds": round(time.perf_counter() - self.begun, 1),
            "processor_seconds": round(_processor_seconds() - self.worked, 1),
        }


def _processor_seconds() -> float:
    """Of this process and those that have ended below it, whatever else the machine does."""
    return sum(os.times()[:4])

"""How long a command is silent, against times by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.silence import Silence, listen, silence_of


def test_the_longest_silence_and_the_words_before_it() -> None:
    heard = [(0.5, "Reading.\n"), (1.0, "\x1b[2Kone\ntwo\n"), (3.5, "three"), (4.0, "end\n")]
    assert silence_of(heard, 4.25, 0) == Silence(4.25, 4, 0.5, 2.5, "two", 0.25, 0)
    assert silence_of([], 2.0, 1) == Silence(2.0, 0, 2.0, 0.0, "", 0.0, 1)


@pytest.mark.parametrize("terminal", [False, True])
def test_both_streams_are_heard(terminal: bool, tmp_path: Path) -> None:
    found = listen(["--version"], tmp_path, terminal=terminal)
    assert (found.status, found.lines) == (0, 1)
    assert listen(["train", "nothing.npz"], tmp_path, terminal=terminal).status != 0

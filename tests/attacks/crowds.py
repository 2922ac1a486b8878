"""Four processes at once on one cache, and in one run folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.attacks.altered_files import whole_run
from tests.attacks.same import same
from tests.attacks.scene import TRAIN, call, inside
from tests.attacks.tally import Tally

from specformer.training.runs.folder import RunFolder

_WORDS = [*TRAIN, "--set", "form=paper", "--runs", "1", "--cache", "crowd-cache"]


def at_once(commands: list[list[str]]) -> list[int]:
    """The statuses of commands that run at the same time."""
    children = []
    for words in commands:
        child = os.fork()
        if not child:
            status = 70
            try:
                status = call(*words)
            finally:
                os._exit(status)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def attack(scene: Path, rounds: int) -> Iterator[Tally]:
    with inside(scene):
        assert call(*_WORDS, "--out", "alone") == 0
        truth = _weights(Path("alone"))
        cache = Tally("four at once", "one cache")
        for _ in range(rounds):
            shutil.rmtree("crowd-cache")
            names = [f"crowd-{number}" for number in range(4)]
            statuses = at_once([[*_WORDS, "--out", name] for name in names])
            for name, status in zip(names, statuses, strict=True):
                cache.attempt(lambda n=name, s=status: s == 0 and same(_weights(Path(n)), truth))
                shutil.rmtree(name)
        yield cache
        folder = Tally("four at once", "one run folder")
        for _ in range(rounds):
            statuses = at_once([[*_WORDS, "--out", "crowd"]] * 4)
            whole = "altered" not in RunFolder("crowd").verified().values()
            whole = whole and same(_weights(Path("crowd")), truth)
            for status in statuses:
                refused = statuses.count(0) == 1 and status == 2 and whole
                folder.add(
                    "refused" if refused else "unaffected" if status == 0 and whole else "wrong"
                )
            shutil.rmtree("crowd")
        yield folder


def _weights(run: Path) -> object:
    return whole_run(run)[4]

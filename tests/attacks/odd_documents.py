"""Documents of another shape whose checksums are right: a report or one sentence, never more."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.attacks.scene import call, inside
from tests.attacks.tally import Tally

from specformer.errors import SpecformerError
from specformer.files import json_text
from specformer.files.documents import read_yaml, write_yaml
from specformer.files.sealed import sealed, unsealed
from specformer.tasks.resolve import read_job
from specformer.training.runs.folder import RunFolder

#: What values become.
_ODD = (
    None,
    True,
    -1,
    0,
    10**30,
    1e308,
    "",
    "x" * 1000,
    "../../etc/passwd",
    "<b>",
    [],
    [[]],
    {},
    {"mean": "a"},
)


def changed(document: Any, draw: random.Random) -> Any:
    """A copy in which one thing, at any depth, is gone, is another, or has another name."""
    whole = copy.deepcopy(document)
    inner = [each for each in _inside(whole) if each]
    place = draw.choice(inner)
    key = draw.choice(list(place) if isinstance(place, dict) else range(len(place)))
    match draw.choice(("gone", "odd", "odd", "renamed")):
        case "gone":
            del place[key]
        case "renamed" if isinstance(place, dict):
            place[f"{key}x"] = place.pop(key)
        case _:
            place[key] = copy.deepcopy(draw.choice(_ODD))
    return whole


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        yield value
        for each in value.values() if isinstance(value, dict) else value:
            yield from _inside(each)


def attack(scene: Path, tries: int, seed: int = 2) -> Iterator[Tally]:
    """Change results and configurations, and use them."""
    with inside(scene):
        for name in ("specformer", "gcn"):
            (scene / name / "checksums.json").rename(scene / f"{name}.kept")
        yield _used(
            "report", "specformer/result.json", tries // 4, seed, _command("report", "specformer")
        )
        predict = _command("predict", "gcn", "--device", "cpu", "--out", "predictions.csv")
        yield _used("predict", "gcn/result.json", tries // 4, seed, predict)
        yield _used("predict", "gcn/model/000/features.json", tries // 8, seed, predict)
        yield _used("predict", "gcn/model/000/config.json", tries // 8, seed, predict)
        yield _used(
            "resume", "gcn/config.yaml", tries // 4, seed, lambda: bool(read_job(RunFolder("gcn")))
        )
        for name in ("specformer", "gcn"):
            (scene / f"{name}.kept").rename(scene / name / "checksums.json")


def _command(*words: str) -> Callable[[], bool]:
    """Whether a command ends well; one sentence is raised."""

    def use() -> bool:
        status = call(*words)
        if status == 2:
            raise SpecformerError
        return status == 0

    return use


def _used(attack: str, name: str, tries: int, seed: int, use: Callable[[], bool]) -> Tally:
    tally, draw, path = Tally("odd document", f"{name}, {attack}"), random.Random(seed), Path(name)
    was = path.read_bytes()
    as_yaml = path.suffix == ".yaml"
    document = unsealed(read_yaml(path) if as_yaml else json.loads(was))
    for _ in range(tries):
        odd = sealed(changed(document, draw))
        if as_yaml:
            write_yaml(path, odd)
        else:
            path.write_text(json_text(odd))
        tally.attempt(use)
    path.write_bytes(was)
    return tally

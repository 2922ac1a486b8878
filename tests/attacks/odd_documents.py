"""Documents of another shape whose checksums are right: a report or one sentence, never more."""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.attacks.scene import COMPARE, TRAIN, TUNE, call, inside
from tests.attacks.tally import Tally

from specformer import Spectrum, load
from specformer.errors import SpecformerError
from specformer.files import json_text
from specformer.files.documents import KEY, read_yaml, sealed, unsealed, write_yaml

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
    """Change results, configurations and other documents, and use them."""
    with inside(scene):
        for path in scene.rglob("checksums.json"):
            path.unlink()  # else it speaks first
        for name, (attack, use) in (uses := _uses()).items():
            yield _used(attack, name, -(-tries // len(uses)), seed, use)


def _uses() -> dict[str, tuple[str, Callable[[], bool]]]:
    """By document: how it is used, in words and in deed."""

    def predict(run: str) -> tuple[str, Callable[[], bool]]:
        return "predict", command("predict", run, "--device", "cpu", "--out", "predictions.csv")

    def report(run: str) -> tuple[str, Callable[[], bool]]:
        return "report", command("report", run)

    return {
        "specformer/result.json": report("specformer"),
        "compared/result.json": report("compared"),
        "compared/gcn/result.json": ("compare", command(*COMPARE, "--out", "compared")),
        "links/result.json": report("links"),
        "image/result.json": report("image"),
        "molecules/result.json": predict("molecules"),
        "gcn/result.json": predict("gcn"),
        "gcn/config.yaml": predict("gcn"),
        "gcn/model/000/features.json": predict("gcn"),
        "gcn/model/000/config.json": predict("gcn"),
        "estimator/result.json": ("load", lambda: bool(load("estimator"))),
        "estimator/model/000/targets.json": ("load", lambda: bool(load("estimator"))),
        "stopped/config.yaml": ("resume", _resumed),
        "rows/spectrum.json": ("load", lambda: bool(Spectrum.load("rows"))),
        "tuned/best.yaml": ("train", command(*TRAIN, "--runs", "1", "--recipe", "tuned/best.yaml",
                                             "--out", "odd")),
        "tuned/trials.jsonl": ("tune", command(*TUNE, "--out", "tuned")),
    }  # fmt: skip


def _resumed() -> bool:
    """A stopped run goes on from its configuration, in a copy of its folder."""
    shutil.rmtree("odd", ignore_errors=True)
    shutil.copytree("stopped", "odd")
    return command("resume", "odd", "--quiet")()


def command(*words: str) -> Callable[[], bool]:
    """Whether a command ends well; one sentence is raised."""

    def use() -> bool:
        status = call(*words)
        if status == 2:
            raise SpecformerError
        if status != 0:
            raise AssertionError(f"{words[0]} ended with status {status}")
        return True

    return use


def _used(attack: str, name: str, tries: int, seed: int, use: Callable[[], bool]) -> Tally:
    tally, draw, path = Tally("odd document", f"{name}, {attack}"), random.Random(seed), Path(name)
    content = path.read_bytes()
    was, *others = content.splitlines(True) if path.suffix == ".jsonl" else [content]
    as_yaml = path.suffix == ".yaml"
    document = unsealed(read_yaml(path) if as_yaml else json.loads(was))
    for _ in range(tries):
        odd = sealed(changed(document, draw))
        if as_yaml:
            write_yaml(path, odd)
        else:
            text = json.dumps(odd) if others else json_text(odd)
            path.write_bytes(b"".join([text.strip().encode(), b"\n", *others]))
        tally.attempt(use, json.dumps(_difference(document, odd))[:200])
        shutil.rmtree("odd", ignore_errors=True)
    path.write_bytes(content)
    return tally


def _difference(was: Any, now: Any) -> Any:
    """Of two documents, the innermost part that holds all that was changed."""
    if isinstance(was, dict) and isinstance(now, dict):
        keys = {key for key in {*was, *now} - {KEY} if was.get(key, _ODD) != now.get(key, _ODD)}
        if len(keys) == 1 and (key := keys.pop()) in was and key in now:
            return {key: _difference(was[key], now[key])}
        return {key: now.get(key, "gone") for key in keys}
    return now

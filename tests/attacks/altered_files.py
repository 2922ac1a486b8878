"""Bytes changed in every kind of file: refused, or read as if nothing had happened."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tests.attacks.same import copied, same
from tests.attacks.scene import inside
from tests.attacks.tally import Tally

from specformer import load
from specformer.datasets.parts import read_parts
from specformer.datasets.signals import image_signal
from specformer.errors import SpectrumError
from specformer.graphs import read_graph, read_graph_set, read_npz
from specformer.nn.pretrained import Pretrained
from specformer.paper.recorded import entries
from specformer.spectrum import ManySpectra, Spectrum
from specformer.spectrum.solvers.chebyshev.subspace import saved_state
from specformer.tasks.nodes.node_predict import load_features, load_scales
from specformer.tasks.nodes.node_recipe import node_recipe
from specformer.tasks.tune import read_trials
from specformer.training.runs.checkpoint import Checkpoint
from specformer.training.runs.folder import RunFolder


@dataclass(frozen=True)
class Subject:
    """A kind of file.

    Args:
        name: what to call it.
        files: where it is, or what is in its folder.
        read: all that is ever taken from it.
        share: how many of all alterations it gets.
        knows: whether it can tell that it was altered; text that people write cannot.
        lines: whether it grows by lines. Then fewer of them are what it was before, and go on so.
    """

    name: str
    files: list[Path]
    read: Callable[[], Any]
    share: float
    knows: bool = True
    lines: bool = False

    def agrees(self, truth: Any) -> bool:
        """Whether what is read now is the truth, or an earlier one."""
        found = self.read()
        if not self.lines:
            return same(found, truth) or not self.knows
        return all(any(same(line, known) for known in truth) for line in found)


def models_of(path: Path) -> type[Pretrained]:
    """The class of a run's models."""
    kinds = {kind.__name__: kind for kind in _classes(Pretrained)}
    return kinds[json.loads((path / "model/000/config.json").read_text())["model"]]


def _classes(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        yield each
        yield from _classes(each)


def whole_run(path: Path, kind: type[Pretrained] | None = None) -> Any:
    """Everything that ``report``, ``predict``, ``verify`` and ``results`` take from a run."""
    run, kind = RunFolder.open(path), kind or models_of(path)
    models = [kind.from_pretrained(folder) for folder in run.model_folders()]
    states = [(model.config, dict(model.state_dict())) for model in models]
    beside: list[Any] = []
    if run.result("kind")["kind"] in ("nodes", "links"):
        beside = [each.to_json() for each in load_features(run)]
        beside += [tuple(scale) for scale in load_scales(run)]
    return *documents(path), states, beside


def documents(path: Path) -> tuple[Any, ...]:
    """What any run folder tells, a comparison's too."""
    run = RunFolder.open(path)
    return run.config(), run.result(), run.metrics(), run.outputs()


def _compared(path: Path, kinds: dict[str, type[Pretrained]]) -> Any:
    return documents(path), [whole_run(path / name, kind) for name, kind in kinds.items()]


def _estimator(path: Path, kind: type[Pretrained]) -> Any:
    return whole_run(path, kind), load(path).predict(read_npz(path / "data.npz"))


def _parts(path: Path) -> Any:
    graph = read_parts(path)
    return graph.adjacency.toarray(), graph.x, graph.y, graph.train_mask


def _search_state(path: Path) -> Any:
    found = saved_state(path, 40, torch.float32)
    if found is None:
        raise SpectrumError("the solve starts anew")
    return found


def checkpoint(path: Path) -> Any:
    state = {"weight": torch.zeros(4, 10), "epoch": torch.tensor(0)}
    assert Checkpoint(path, "attack").restore(state, epoch=10)
    return state


def _stopped(path: Path) -> Any:
    """What ``resume`` takes from a run under way."""
    run = RunFolder.open(path)
    return [_without_strays(document) for document in (run.config(), *run.metrics())]


def _trials(path: Path) -> Any:
    """What a search goes on from."""
    return [_without_strays(trial) for trial in read_trials(path).values()]


def _without_strays(document: dict[str, Any]) -> dict[str, Any]:
    """Without a checksum whose own name was altered: a key that nobody reads."""
    stray = re.compile(r"[0-9a-f]{16}")
    return {
        key: value
        for key, value in document.items()
        if not (isinstance(value, str) and stray.fullmatch(value))
    }


def _pairs(path: Path) -> Any:
    found = Spectrum.load(path)
    return found.eigenvalues, found.eigenvectors, found.report


def _many(path: Path) -> Any:
    found = ManySpectra.load(path)
    return found.eigenvalues, found.eigenvectors, found.sizes, found.report


def _under(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def subjects(scene: Path) -> list[Subject]:
    """All kinds, in a folder that :func:`tests.attacks.scene.built` has filled."""
    stopped, ledger = scene / "stopped", scene / "ledger"
    cached = _under(scene / "cache")[0]  # a form of the default may have a spectrum of its own
    (many,) = _under(scene / "many")
    file = partial(Path.joinpath, scene)

    def one(
        name: str, path: Path, read: Callable[[Path], Any], share: float, **more: bool
    ) -> Subject:
        return Subject(name, [path], lambda: read(path), share, **more)

    def folder(
        name: str, path: Path, read: Callable[[Path], Any], share: float, **more: bool
    ) -> Subject:
        return Subject(name, _under(path), lambda: read(path), share, **more)

    def run(name: str, path: Path) -> Subject:
        return folder(f"run folder, {name}", path, partial(whole_run, kind=models_of(path)), 0.01)

    kinds = {name: models_of(file("compared", name)) for name in ("gcn", "mlp")}
    return [
        run("Specformer", file("specformer")),
        run("GCN", file("gcn")),
        run("links", file("links")),
        run("molecules", file("molecules")),
        run("image", file("image")),
        folder("run folder, comparison", file("compared"), partial(_compared, kinds=kinds), 0.01),
        folder("run folder, estimator", file("estimator"),
               partial(_estimator, kind=models_of(file("estimator"))), 0.01),
        Subject("run under way", _under(stopped), lambda: _stopped(stopped), 0.03, lines=True),
        one("checkpoint", file("checkpoint.safetensors"), checkpoint, 0.15),
        one("spectrum", file("own.safetensors"), _pairs, 0.15),
        folder("spectrum in shards", file("rows"), _pairs, 0.1),
        one("state of a search for eigenpairs", file("search.safetensors"), _search_state, 0.05),
        one("cache of spectra", cached, _pairs, 0.1),
        one("cache of many spectra", many, _many, 0.12),
        one("graph, npz", file("own.npz"), read_npz, 0.06),
        one("graph, npz, not compressed", file("stored.npz"), read_npz, 0.06),
        one("graphs, npz", file("molecules.npz"), lambda path: vars(read_graph_set(path)), 0.03),
        one("trials of a search", file("tuned", "trials.jsonl"), _trials, 0.03, lines=True),
        folder("graph in parts, npz", file("parts"), _parts, 0.01),
        Subject("ledger of results", _under(ledger),
                lambda: [_without_strays(entry) for _, entry in entries(ledger)], 0.02),
        one("recipe found by a search", file("tuned", "best.yaml"),
            lambda path: node_recipe(str(path), "own"), 0.015),
        one("recipe by hand", file("recipe.yaml"), lambda path: node_recipe(str(path), "own"),
            0.015, knows=False),
        Subject("tables, CSV", _under(file("table")), lambda: read_graph(file("table")), 0.015,
                knows=False),
        one("image", file("noise.png"), image_signal, 0.005, knows=False),
    ]  # fmt: skip


def altered(content: bytes, draw: random.Random) -> tuple[str, bytes]:
    """An altered version of some bytes, and what was done."""
    place, end = draw.randrange(len(content)), draw.randrange(len(content))
    first, last = sorted((place, end))
    before, after = content[:place], content[place:]
    match draw.choice(("bit", "bit", "bit", "byte", "cut", "left out", "put in", "zeros", "twice")):
        case "bit" as kind:
            changed = before + bytes([after[0] ^ 1 << draw.randrange(8)]) + after[1:]
        case "byte" as kind:
            changed = before + bytes([draw.randrange(256)]) + after[1:]
        case "cut" as kind:
            changed = before
        case "left out" as kind:
            changed = content[:first] + content[last:]
        case "put in" as kind:
            changed = before + draw.randbytes(draw.randrange(1, 9)) + after
        case "zeros" as kind:
            changed = content[:first] + bytes(last - first) + content[last:]
        case kind:
            changed = content[:last] + content[first:]
    if changed == content:
        return altered(content, draw)
    return f"{kind} at {place} of {len(content)}", changed


def put(path: Path, content: bytes) -> None:
    """Replace a file; what is mapped from the old one stays."""
    part = path.with_name(".altered")
    part.write_bytes(content)
    part.replace(path)


def attack(scene: Path, tries: int, seed: int = 0) -> Iterator[Tally]:
    """Alter files that many times, over all kinds."""
    with inside(scene):
        for subject in subjects(scene):
            yield _attacked(subject, max(10, round(tries * subject.share)), seed)


def _attacked(subject: Subject, tries: int, seed: int) -> Tally:
    tally = Tally("altered", subject.name if subject.knows else f"{subject.name} (no checksum)")
    draw = random.Random(seed)
    was = {path: path.read_bytes() for path in subject.files if path.stat().st_size}
    truth = copied(subject.read())
    for number in range(tries):
        # Half over files, half over bytes: small files decide as much as large ones.
        weights = [len(content) for content in was.values()] if number % 2 else None
        (path,) = draw.choices(list(was), weights)
        what, content = altered(was[path], draw)
        put(path, content)
        tally.attempt(lambda: subject.agrees(truth), f"{path.name}, {what}:")
        for gone in was:
            if not gone.exists() or gone == path:  # a cache removes what it refuses
                put(gone, was[gone])
    return tally


def flips(scene: Path, tries: int, seed: int = 1) -> Iterator[Tally]:
    """One bit anywhere in a run folder or in the cache."""
    with inside(scene):
        chosen = ("run folder", "cache", "spectrum in shards")
        flipped = [each for each in subjects(scene) if each.name.startswith(chosen)]
        for subject in flipped:
            yield _flipped(subject, -(-tries // len(flipped)), seed)


def _flipped(subject: Subject, tries: int, seed: int) -> Tally:
    tally = Tally("one bit", subject.name)
    draw = random.Random(seed)
    was = {path: path.read_bytes() for path in subject.files if path.stat().st_size}
    truth = copied(subject.read())
    for _ in range(tries):
        (path,) = draw.choices(list(was), [len(content) for content in was.values()])
        place = draw.randrange(8 * len(was[path]))
        content = bytearray(was[path])
        content[place // 8] ^= 1 << place % 8
        put(path, bytes(content))
        tally.attempt(lambda: subject.agrees(truth), f"{path.name}, bit {place}:")
        put(path, was[path])
    return tally

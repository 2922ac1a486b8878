"""Documents that nobody wrote: a corpus of those that break readers, and what hypothesis draws."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.attacks.odd_documents import command
from tests.attacks.scene import inside
from tests.attacks.tally import Tally

from benchmarks.ledger import check
from specformer.files.documents import sealed
from specformer.graphs import read_graph
from specformer.graphs.formats.molecule_table import read_molecules
from specformer.spectrum import Spectrum
from specformer.tasks.nodes.node_predict import load_features
from specformer.tasks.nodes.node_recipe import node_recipe
from specformer.tasks.resolve import read_job
from specformer.tasks.tune import read_trials
from specformer.training.runs.folder import RunFolder

CORPUS = Path(__file__).parent / "corpus" / "documents"
_WORDS = st.sampled_from(
    ["source", "model", "recipe", "runs", "set", "seed", "device", "settings", "schedule", "epochs",
     "trial", "splits", "score", "checksum", "num_nodes", "shards", "rows", "kind", "test", "mean",
     "gcn", "own.npz", "nodes", "id", "target", "smiles", "C", "1", "", "\x00", "é"]
)  # fmt: skip
_PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | _WORDS | st.text(max_size=8)
_VALUES = st.recursive(
    _PLAIN,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_WORDS, inner, max_size=5),
    max_leaves=15,
)
_CELLS = st.lists(st.lists(_PLAIN.map(str), max_size=4).map(",".join), max_size=5)
#: JSON, which is YAML too, with its checksum or without one; tables; and any text.
TEXTS = (
    _VALUES.map(json.dumps)
    | _VALUES.map(lambda value: json.dumps(sealed(value) if isinstance(value, dict) else value))
    | _CELLS.map("\n".join)
    | st.text(max_size=40)
)


def _features(path: Path) -> Any:
    return load_features(RunFolder(path.parents[2]))


#: By the file that is written: what reads it.
READERS: dict[str, Callable[[Path], Any]] = {
    "stopped/config.yaml": lambda path: read_job(RunFolder(path.parent)),
    "stopped/metrics.jsonl": lambda path: RunFolder(path.parent).metrics(),
    "stopped/result.json": lambda path: command("report", str(path.parent))(),
    "trials.jsonl": read_trials,
    "ledger/entry.json": lambda path: check(path.parent),
    "rows/spectrum.json": lambda path: Spectrum.load(path.parent),
    "gcn/model/000/features.json": _features,
    "tuned/best.yaml": lambda path: node_recipe(str(path), "own"),
    "table/nodes.csv": lambda path: read_graph(path.parent),
    "table/edges.csv": lambda path: read_graph(path.parent),
    "edges.csv": read_graph,
    "molecules.csv": read_molecules,
    "graph.graphml": read_graph,
    "graph.gml": read_graph,
}


def attack(scene: Path, tries: int) -> Iterator[Tally]:
    """The corpus for every reader, and so many documents drawn, over all readers."""
    kept = [path.read_bytes() for path in sorted(CORPUS.iterdir())]
    with inside(scene):
        for name, read in READERS.items():
            yield _read(Path(name), read, kept, -(-tries // len(READERS)))


def _read(path: Path, read: Callable[[Path], Any], kept: list[bytes], tries: int) -> Tally:
    tally = Tally("any document", f"{path} (no checksum)")
    was = path.read_bytes() if path.exists() else None
    path.parent.mkdir(exist_ok=True)

    def use(content: bytes) -> None:
        path.write_bytes(content)
        tally.attempt(lambda: bool(read(path)) or True, repr(content[:80]))

    for content in kept:
        use(content)
    every = list(HealthCheck)
    quiet = settings(max_examples=tries, database=None, derandomize=True, deadline=None,
                     suppress_health_check=every)  # fmt: skip
    quiet(given(TEXTS)(lambda text: use(text.encode("utf-8", "surrogatepass"))))()
    path.unlink()
    if was is not None:
        path.write_bytes(was)
    return tally

r"""Data sets from their public sources, converted to our format and kept in the user's cache.

PyG's and OGB's own classes download and read their sets, and each becomes a
:class:`~specformer.graphs.Graph`. They read some pickled sources (Planetoid's files, Penn94's
splits), so trust those as far as you trust PyG. Our own files are never pickled.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from specformer.datasets.splits import Split
from specformer.errors import DataNotFoundError
from specformer.files import user_cache
from specformer.files.npz_archive import opened
from specformer.graphs import Graph, as_graph, write_npz

#: Platonov et al.'s repository, whose sets are read from their files.
FILTERED_URL = "https://github.com/yandex-research/heterophilous-graphs/raw/main/data"
#: Seconds without a byte after which a download fails; PyG would wait for ever.
PATIENCE = 60.0

#: The environment variable that names a folder of data.
_VARIABLE = "SPECFORMER_DATA"

#: PyG's class of each set, and its arguments.
_PYG: dict[str, tuple[str, dict[str, Any]]] = {
    "cora": ("Planetoid", {"name": "Cora", "split": "geom-gcn"}),
    "citeseer": ("Planetoid", {"name": "CiteSeer", "split": "geom-gcn"}),
    "pubmed": ("Planetoid", {"name": "PubMed", "split": "geom-gcn"}),
    "photo": ("Amazon", {"name": "Photo"}),
    "computers": ("Amazon", {"name": "Computers"}),
    "chameleon": ("WikipediaNetwork", {"name": "chameleon", "geom_gcn_preprocess": True}),
    "squirrel": ("WikipediaNetwork", {"name": "squirrel", "geom_gcn_preprocess": True}),
    "actor": ("Actor", {}),
    "penn94": ("LINKXDataset", {"name": "penn94"}),
    "cornell5": ("LINKXDataset", {"name": "cornell5"}),
    "blogcatalog": ("AttributedGraphDataset", {"name": "BlogCatalog"}),
    "dblp": ("CitationFull", {"name": "DBLP"}),
}


class DownloadError(DataNotFoundError):
    """A set could not be downloaded; the text completes a sentence that names the set."""


def graph_from_ogb(
    graph: Mapping[str, Any], labels: np.ndarray, split: Mapping[str, Any], name: str
) -> Graph:
    """A graph from OGB's ``edge_index``, ``node_feat``, ``num_nodes``, labels ``[n, 1]`` and split.

    ``split`` holds the nodes of ``train``, ``valid`` and ``test``; a missing label, NaN in OGB's
    files, becomes −1.
    """
    classes = np.asarray(labels, dtype=np.float64).reshape(-1)
    edges = as_graph(np.asarray(graph["edge_index"]), num_nodes=int(graph["num_nodes"]), name=name)
    parts = Split.of_numbers(edges.num_nodes, split["train"], split["valid"], split["test"])
    return compact(
        replace(
            edges,
            x=graph["node_feat"],
            y=np.where(np.isnan(classes), -1, classes).astype(np.int64),
            train_mask=parts.train,
            val_mask=parts.val,
            test_mask=parts.test,
        )
    )


def graph_from_platonov(path: Path, name: str) -> Graph:
    """A graph from one of Platonov et al.'s npz files.

    It holds ``edges`` [E, 2], ``node_features`` [n, features], ``node_labels`` [n], and
    ``train_masks``, ``val_masks``, ``test_masks`` [splits, n].
    """
    with opened(path) as file:
        edges = as_graph(file["edges"].T, num_nodes=len(file["node_labels"]), name=name)
        return compact(
            replace(
                edges,
                x=file["node_features"],
                y=file["node_labels"],
                train_mask=file["train_masks"].T,
                val_mask=file["val_masks"].T,
                test_mask=file["test_masks"].T,
            )
        )


def compact(graph: Graph) -> Graph:
    """The graph with features as CSR if most are zero: 8 bytes per non-zero, not 4 per entry."""
    if graph.x is None or issparse(graph.x) or 2 * np.count_nonzero(graph.x) >= graph.x.size:
        return graph
    return replace(graph, x=csr_array(graph.x))


def _from_pyg(name: str, root: Path) -> Graph:
    from torch_geometric import datasets

    kind, arguments = _PYG[name]
    return compact(as_graph(getattr(datasets, kind)(str(root), **arguments)[0], name=name))


def _from_ogb(name: str, root: Path) -> Graph:
    try:
        from ogb.nodeproppred import NodePropPredDataset
    except ImportError:
        raise DownloadError("its download needs OGB (pip install 'specformer[chem]')") from None
    # Not the class for PyG, which unpickles its own cache, and torch >= 2.6 refuses that.
    dataset = NodePropPredDataset(name, root=str(root))
    graph, labels = dataset[0]
    return graph_from_ogb(graph, labels, dataset.get_idx_split(), name)


def _from_platonov(name: str, root: Path) -> Graph:
    file = f"{name.replace('-', '_')}.npz"
    fetch(f"{FILTERED_URL}/{file}", root / file)
    return graph_from_platonov(root / file, name)


#: The function that makes each downloadable set from its name and an empty folder for raw files.
SOURCES: dict[str, Callable[[str, Path], Graph]] = {
    **dict.fromkeys(_PYG, _from_pyg),
    "ogbn-arxiv": _from_ogb,
    **dict.fromkeys(("chameleon-filtered", "squirrel-filtered", "minesweeper"), _from_platonov),
}


def download(name: str) -> Path:
    """Fetch a set, convert it to ``NAME.npz`` in the user's cache, and return that path."""
    if name not in SOURCES:
        raise DownloadError("it cannot be downloaded")
    return converted(name, lambda raw, target: write_npz(target, SOURCES[name](name, raw)))


def converted(name: str, convert: Callable[[Path, Path], None]) -> Path:
    """Convert a set to ``NAME.npz`` in the user's cache, and return that path.

    ``convert(raw, target)`` fetches files into the folder ``raw`` and writes the file ``target``.
    """
    target = user_cache("data") / f"{name}.npz"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        sys.stderr.write(f"Downloading {name} to {target.parent} …\n")
        with (
            tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}.") as raw,
            _quiet_library(),
        ):
            convert(Path(raw), target)
    except DownloadError:
        raise
    # PyG, OGB, fsspec, aiohttp and urllib raise errors of many classes.
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise DownloadError(f"its download failed ({reason})") from error
    return target


def fetch(url: str, path: Path, md5: str | None = None) -> None:
    """Download an address into a file, and check its length and checksum.

    An https address must not redirect to another scheme.
    """
    # Addresses are our own constants, and all of them are https.
    asked = urllib.request.urlopen(url, timeout=PATIENCE)  # nosec B310
    with asked as answer, path.open("wb") as copy:
        if url.startswith("https:") and not answer.url.startswith("https:"):
            raise DownloadError(f"its source redirects to {answer.url}, which is not https")
        shutil.copyfileobj(answer, copy)
        announced = int(answer.headers.get("Content-Length") or copy.tell())
    size = path.stat().st_size
    if size != announced:  # a broken connection looks like the end of the file
        raise DownloadError(f"its download broke off after {size:,} of {announced:,} bytes")
    if md5 is not None:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
        if found.hexdigest() != md5:
            raise DownloadError(f"the file from {url} does not have the checksum of its source")


@contextmanager
def _quiet_library() -> Iterator[None]:
    """Send a library's prints to standard error, and give its sockets a timeout."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(PATIENCE)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        socket.setdefaulttimeout(before)


def data_folders(explicit: str | Path | None = None) -> list[Path]:
    """The folders to search, in order.

    An explicit one, which must exist, ``$SPECFORMER_DATA``, ``./data``, ``../shared/data``, and
    that of the downloads.
    """
    if explicit and not Path(explicit).is_dir():
        raise DataNotFoundError(f"{explicit}: there is no such folder.")
    named = [Path(folder) for folder in (explicit, os.environ.get(_VARIABLE)) if folder]
    return [*named, Path("data"), Path("..") / "shared" / "data", user_cache("data")]


def search(name: str, explicit: str | Path | None = None) -> Path | None:
    """The first file of that name in the folders to search, or None."""
    paths = (folder / name for folder in data_folders(explicit))
    return next((path for path in paths if path.is_file()), None)


def set_file(
    name: str, data: str | Path | None, obtain: Callable[[str], Path] | None = None
) -> Path:
    """The file of a named set; ``obtain`` downloads it if it is in none of the folders."""
    if path := search(f"{name}.npz", data):
        return path
    why = ""
    try:
        if obtain is not None:
            return obtain(name)
    except DownloadError as error:
        why = f", and {error}"
    searched = ", ".join(str(folder) for folder in data_folders(data))
    raise DataNotFoundError(
        f"{name}.npz was not found in {searched}{why}; name its folder with --data or ${_VARIABLE}."
    )

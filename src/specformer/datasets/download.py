r"""Data sets from their public sources, converted to our format and kept in the user's cache.

PyG's and OGB's own classes download and read graphs and ZINC. They read some pickled sources
(Planetoid's files, Penn94's splits, ZINC), so trust those as far as you trust PyG. OGB's sets of
molecules are read from the CSV files in its archives, and no pickle of them is loaded. Our own
files are never pickled.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import multiprocessing
import os
import shutil
import socket
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array, issparse

from specformer.datasets.splits import Split
from specformer.errors import DataNotFoundError, GraphError
from specformer.files import user_cache
from specformer.files.host_memory import gib
from specformer.files.npz_archive import load_arrays
from specformer.graphs import (
    Graph,
    GraphSet,
    as_graph,
    graph_set_from_pyg,
    write_graph_set,
    write_npz,
)
from specformer.graphs.formats.smiles import Molecules, read_smiles
from specformer.graphs.formats.table_file import read_table

#: Platonov et al.'s repository, whose sets are read from their files.
FILTERED_URL = "https://github.com/yandex-research/heterophilous-graphs/raw/main/data"
OGB_URL = "https://snap.stanford.edu/ogb/data/graphproppred/csv_mol_download"
PCQM4MV2_URL = "https://dgl-data.s3-accelerate.amazonaws.com/dataset/OGB-LSC/pcqm4m-v2.zip"
#: As OGB's own class gives it; the other archives have none.
PCQM4MV2_MD5 = "65b742bafca5670be4497499db7d361b"
#: How many molecules a process turns into graphs at a time.
_CHUNK = 50_000
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
    return replace(
        edges,
        x=graph["node_feat"],
        y=np.where(np.isnan(classes), -1, classes).astype(np.int64),
        train_mask=parts.train,
        val_mask=parts.val,
        test_mask=parts.test,
    )


def compact(graph: Graph) -> Graph:
    """The graph with features as CSR if most are zero: 8 bytes per non-zero, not 4 per entry."""
    if graph.x is None or issparse(graph.x) or 2 * np.count_nonzero(graph.x) >= graph.x.size:
        return graph
    return replace(graph, x=csr_array(graph.x))


def _from_pyg(name: str, root: Path) -> Graph:
    from torch_geometric import datasets

    kind, arguments = _PYG[name]
    return as_graph(getattr(datasets, kind)(str(root), **arguments)[0], name=name)


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
    """A graph from one of Platonov et al.'s npz files.

    It holds ``edges`` [E, 2], ``node_features`` [n, features], ``node_labels`` [n], and
    ``train_masks``, ``val_masks``, ``test_masks`` [splits, n].
    """
    path = root / f"{name.replace('-', '_')}.npz"
    fetch(f"{FILTERED_URL}/{path.name}", path)
    file = load_arrays(path)
    edges = as_graph(file["edges"].T, num_nodes=len(file["node_labels"]), name=name)
    masks: dict[str, Any] = {
        f"{part}_mask": file[f"{part}_masks"].T for part in ("train", "val", "test")
    }
    return replace(edges, x=file["node_features"], y=file["node_labels"], **masks)


def graph_set_from_ogb(folder: str | Path, name: str) -> GraphSet:
    """Read the unpacked archive of one of OGB's sets of molecules.

    ``raw/`` holds ``edge``, ``node-feat``, ``edge-feat``, ``num-node-list``, ``num-edge-list`` and
    ``graph-label`` as ``.csv.gz`` without header, an empty label being a missing one;
    ``split/scaffold/`` holds ``train``, ``valid`` and ``test``.
    """
    raw, parts = Path(folder) / "raw", Path(folder) / "split" / "scaffold"
    return GraphSet(
        num_nodes=_csv(raw / "num-node-list.csv.gz", np.int64)[:, 0],
        num_edges=_csv(raw / "num-edge-list.csv.gz", np.int64)[:, 0],
        edge_index=_csv(raw / "edge.csv.gz", np.int32).reshape(-1, 2).T,
        node_feat=_csv(raw / "node-feat.csv.gz", np.int16),
        edge_feat=_csv(raw / "edge-feat.csv.gz", np.int16),
        y=_csv(raw / "graph-label.csv.gz", np.float32),
        train_idx=_csv(parts / "train.csv.gz", np.int64)[:, 0],
        valid_idx=_csv(parts / "valid.csv.gz", np.int64)[:, 0],
        test_idx=_csv(parts / "test.csv.gz", np.int64)[:, 0],
        name=name,
    )


def graph_set_from_pcqm4mv2(folder: str | Path, workers: int | None = None) -> GraphSet:
    """Read the unpacked archive of PCQM4Mv2; its test-dev part, without targets, is the test part.

    ``raw/data.csv.gz`` has the columns ``smiles`` and ``homolumogap``; ``split_dict.pt`` is a
    dictionary of index arrays, loaded with ``weights_only=True``. ``workers`` processes turn SMILES
    into graphs, by default one per core.
    """
    table = read_table(Path(folder) / "raw" / "data.csv.gz")
    smiles = table.columns[table.said("smiles")]
    gap = table.numbers(table.said("homolumogap"), np.float32, missing=True).astype(np.float32)
    graphs, rows = _joined(list(_read_in_chunks(smiles, workers or os.cpu_count() or 1)))
    # Molecules that could not be read are in no part, and the others are numbered without gaps.
    place = np.full(len(smiles), -1)
    place[rows] = np.arange(len(rows))
    splits = _split_dict(Path(folder) / "split_dict.pt")
    index = {}
    for field, part in (("train_idx", "train"), ("valid_idx", "valid"), ("test_idx", "test-dev")):
        moved = place[splits[part]]
        index[field] = moved[moved >= 0]
    return replace(graphs, y=gap[rows], task_names=("homolumogap",), name="pcqm4mv2", **index)


def graph_set_from_zinc(parts: dict[str, Any]) -> GraphSet:
    """Join PyG's ``train``, ``val`` and ``test`` parts of ZINC, in this order."""
    graphs = graph_set_from_pyg([data for part in parts.values() for data in part], name="zinc")
    ends = np.cumsum([len(part) for part in parts.values()])
    train, valid, test = np.split(np.arange(ends[-1]), ends[:-1])
    return replace(graphs, train_idx=train, valid_idx=valid, test_idx=test)


def _zinc(_: str, root: Path) -> GraphSet:
    from torch_geometric.datasets import ZINC

    parts = {part: ZINC(str(root), subset=True, split=part) for part in ("train", "val", "test")}
    return graph_set_from_zinc(parts)


def _ogb_molecules(name: str, root: Path) -> GraphSet:
    archive = name.removeprefix("mol")
    _unpack(f"{OGB_URL}/{archive}.zip", root)
    return graph_set_from_ogb(root / archive, name)


def _pcqm4mv2(_: str, root: Path) -> GraphSet:
    _unpack(PCQM4MV2_URL, root, PCQM4MV2_MD5)
    return graph_set_from_pcqm4mv2(root / "pcqm4m-v2")


#: The function that makes each downloadable set from its name and an empty folder for raw files.
SOURCES: dict[str, Callable[[str, Path], Graph | GraphSet]] = {
    **dict.fromkeys(_PYG, _from_pyg),
    "ogbn-arxiv": _from_ogb,
    **dict.fromkeys(("chameleon-filtered", "squirrel-filtered", "minesweeper"), _from_platonov),
    "zinc": _zinc,
    **dict.fromkeys(("molhiv", "molpcba"), _ogb_molecules),
    "pcqm4mv2": _pcqm4mv2,
}


def download(name: str) -> Path:
    """Fetch a set, convert it to ``NAME.npz`` in the user's cache, and return that path."""
    if name not in SOURCES:
        raise DownloadError("it cannot be downloaded")
    target = user_cache("data") / f"{name}.npz"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        sys.stderr.write(f"Downloading {name} to {target.parent} …\n")
        with (
            tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}.") as raw,
            _quiet_library(),
        ):
            found = SOURCES[name](name, Path(raw))
            if isinstance(found, Graph):
                write_npz(target, compact(found))
            else:
                write_graph_set(target, found)
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


def _unpack(url: str, root: Path, md5: str | None = None) -> None:
    """Fetch a zip archive and unpack it into ``root``, if the disk has room for it."""
    path = root / "archive.zip"
    fetch(url, path, md5)
    with zipfile.ZipFile(path) as archive:
        need = sum(member.file_size for member in archive.infolist())
        free = shutil.disk_usage(root).free
        if need > free:
            raise DownloadError(f"it needs {gib(need)} of disk, and {gib(free)} are free")
        archive.extractall(root)
    path.unlink()


def _csv(path: Path, dtype: Any) -> np.ndarray:
    """Numbers of a gzipped CSV file without header, ``[rows, columns]``; empty cells are NaN."""
    try:
        with gzip.open(path) as file:
            text = file.read()
    except (OSError, EOFError) as error:
        raise GraphError(f"{path}: cannot be read: {error}") from None
    if np.issubdtype(dtype, np.floating):
        text = _with_nan(text)
    if not text.strip():
        return np.empty((0, 1), dtype=dtype)
    try:
        return np.loadtxt(io.BytesIO(text), delimiter=",", dtype=dtype, ndmin=2)
    except ValueError as error:
        raise GraphError(f"{path}: {str(error).partition(chr(10))[0]}") from None


def _with_nan(text: bytes) -> bytes:
    """Write ``nan`` into empty cells, by replacing in the whole text: there are millions."""
    text = b"\n" + text.replace(b"\r\n", b"\n").removesuffix(b"\n") + b"\n"
    for empty, filled in ((b",,", b",nan,"), (b"\n,", b"\nnan,"), (b",\n", b",nan\n")):
        text = text.replace(empty, filled).replace(empty, filled)
    return text.replace(b"\n\n", b"\nnan\n").replace(b"\n\n", b"\nnan\n")


def _split_dict(path: Path) -> dict[str, np.ndarray]:
    """A dictionary of index arrays; nothing but arrays is loaded from the file."""
    rebuild: Any = np.empty(0).__reduce__()[0]  # the constructor that a pickled array names
    # NumPy 1 and 2 have it in different modules.
    addresses = [(rebuild, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")]
    kinds = [type(np.dtype(kind)) for kind in (np.int64, np.int32)]
    try:
        with torch.serialization.safe_globals([*addresses, np.ndarray, np.dtype, *kinds]):
            content = torch.load(path, weights_only=True)
        return {str(part): np.asarray(index, dtype=np.int64) for part, index in content.items()}
    except Exception as error:  # torch raises a pickle error for anything else in the file
        raise GraphError(f"{path}: is not a dictionary of index arrays") from error


def _read_chunk(smiles: list[str], first: int) -> Molecules:
    return read_smiles(smiles, rows=range(first, first + len(smiles)))


def _read_in_chunks(smiles: list[str], workers: int) -> Iterator[Molecules]:
    """Molecules in chunks, read by several processes."""
    starts = range(0, len(smiles), _CHUNK)
    chunks = [smiles[first : first + _CHUNK] for first in starts]
    if min(workers, len(chunks)) < 2:
        yield from map(_read_chunk, chunks, starts)
        return
    spawn = multiprocessing.get_context("spawn")  # a fork does not copy torch's threads
    with ProcessPoolExecutor(min(workers, len(chunks)), mp_context=spawn) as pool:
        yield from pool.map(_read_chunk, chunks, starts)


def _joined(chunks: Sequence[Molecules]) -> tuple[GraphSet, np.ndarray]:
    """All molecules as one set, without their SMILES, and their rows in the source."""
    arrays: dict[str, Any] = {
        field: np.concatenate([getattr(chunk.graphs, field) for chunk in chunks])
        for field in ("num_nodes", "num_edges", "node_feat", "edge_feat")
    }
    ends = np.concatenate([chunk.graphs.edge_index for chunk in chunks], axis=1)
    rows = np.concatenate([chunk.rows for chunk in chunks]).astype(np.int64)
    return GraphSet(**arrays, edge_index=ends), rows


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


def set_file(name: str, data: str | Path | None) -> Path:
    """The file of a named set, which is downloaded if it is in none of the folders."""
    if path := search(f"{name}.npz", data):
        return path
    try:
        return download(name)
    except DownloadError as error:
        why = error
    searched = ", ".join(str(folder) for folder in data_folders(data))
    raise DataNotFoundError(
        f"{name}.npz was not found in {searched}, and {why}; name its folder with --data or "
        f"${_VARIABLE}."
    )

"""Archives: what one byte hides, and what a small file claims, is refused."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from tests.attacks.same import same

from specformer.errors import GraphError
from specformer.files.npz_archive import load_arrays
from specformer.graphs import Graph, as_graph, read_npz, write_npz

ARRAYS = {
    "edge_index": np.array([[0, 1, 2, 3], [1, 2, 3, 4]]),
    "edge_weight": np.array([1.0, 2.0, 3.0, 4.0]),
    "num_nodes": np.array(5),
    "y": np.array([0, 1, 0, 1, -1]),
    "train_mask": np.array([True, True, False, False, False]),
}


def written(path: Path) -> bytes:
    np.savez(path, **ARRAYS)
    return path.read_bytes()


def read_or_refused(path: Path, content: bytes) -> Graph | None:
    path.write_bytes(content)
    try:
        return read_npz(path)
    except GraphError:
        return None


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_no_byte_of_the_directory_hides_an_array(tmp_path, save):
    path = tmp_path / "graph.npz"
    save(path, **{key: ARRAYS[key] for key in ("edge_index", "edge_weight", "num_nodes")})
    content = path.read_bytes()
    whole = read_npz(path)
    directory = content.index(b"PK\x01\x02")
    refused = 0
    for place in range(directory, len(content)):
        for value in {0, content[place] ^ 1, content[place] ^ 0x80} - {content[place]}:
            altered = content[:place] + bytes([value]) + content[place + 1 :]
            found = read_or_refused(path, altered)
            refused += found is None
            assert found is None or same(found, whole)
    assert refused > 150


def test_a_shape_smaller_than_its_data_is_refused(tmp_path):
    """Its checksum is that of all data, which reading the first part alone never compares."""
    path = tmp_path / "graph.npz"
    content = written(path)
    for was, becomes in ((b"(2, 4)", b"(2, 3)"), (b"'shape': (4,)", b"'shape': (3,)")):
        assert content.count(was) == 1
        assert read_or_refused(path, content.replace(was, becomes)) is None


def test_an_array_that_unpacks_to_more_than_memory_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "graph.npz"
    np.savez_compressed(path, x=np.zeros(10**7, np.float32), **ARRAYS)
    assert path.stat().st_size < 10**5
    monkeypatch.setattr("specformer.files.npz_archive.free_bytes", lambda: 2**20)
    with pytest.raises(GraphError, match=r"graph\.npz: .*x unpacks to 0\.0 GiB, but 0\.0 GiB"):
        read_npz(path)


def test_a_header_that_claims_everything_is_refused(tmp_path):
    """60 bytes that say that 10^15 numbers follow."""
    path = tmp_path / "graph.npz"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
    )
    np.savez(path, **ARRAYS)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("x.npy", header.getvalue())
    with pytest.raises(GraphError, match="the file is damaged: x does not fit into memory"):
        read_npz(path)


def test_a_claim_of_many_nodes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("specformer.graphs.checks.free_bytes", lambda: 2**34)
    path = tmp_path / "graph.npz"
    np.savez(path, edge_index=[[0], [1]], num_nodes=3 * 10**8)
    with pytest.raises(GraphError, match=r"graph\.npz: 300,000,000 nodes need about 27\.9 GiB"):
        read_npz(path)


def test_two_arrays_of_one_name_are_refused(tmp_path):
    path = tmp_path / "graph.npz"
    np.savez(path, **ARRAYS)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("y.npy", archive.read("y.npy"))
    with pytest.raises(GraphError, match="two of its arrays have the same name"):
        read_npz(path)


def test_a_comment_after_the_directory_is_none_of_ours(tmp_path):
    path = tmp_path / "graph.npz"
    write_npz(path, as_graph([[0], [1]]))
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"made by hand"
    assert read_npz(path).num_edges == 1


def test_a_cut_archive_is_not_opened(tmp_path):
    path = tmp_path / "graph.npz"
    np.savez(path, x=np.zeros((3, 7)))
    content = path.read_bytes()
    path.write_bytes(content[: content.index(b"PK\x01\x02")])
    with pytest.raises((zipfile.BadZipFile, struct.error)):
        load_arrays(path)


def test_an_archive_with_a_password_is_one_that_cannot_be_read(tmp_path):
    """zipfile raises a RuntimeError of its own for it."""
    path = tmp_path / "graph.npz"
    np.savez(path, edge_index=[[0], [1]], num_nodes=2)
    written = bytearray(path.read_bytes())
    entry = written.find(b"PK\1\2")  # of the directory at its end
    while entry >= 0:
        written[entry + 8] |= 1  # encrypted
        entry = written.find(b"PK\1\2", entry + 1)
    path.write_bytes(written)
    with pytest.raises(GraphError, match=r"graph\.npz: .*encrypted"):
        read_npz(path)

"""One graph over several processes, each with the rows of its nodes, against one with all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.training.engine import node_workers
from tests.training.engine.node_workers import CASES, GRAPH, SPECTRUM, STOPPED

from specformer import Specformer
from specformer.errors import ConfigError
from specformer.spectrum.sharded import ShardedSpectrum
from specformer.training.engine.distributed import ALONE, Share, Workers
from specformer.training.loops.nodes import NodeRuns
from specformer.training.runs.checkpoint import Checkpoint

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> tuple[dict[str, np.ndarray], Path]:
    """What one process finds, and the folder with what it left at epoch 16."""
    out = tmp_path_factory.mktemp("alone")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(NodeRuns.fit.__kwdefaults__, "save_every", 200)  # put back afterwards
        node_workers.main(out)
    return dict(np.load(out / "0.npz")), out


def found_by(size: int, out: Path, *other: Path) -> list[dict[str, np.ndarray]]:
    """What each of so many workers found."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    program = [f"--nproc-per-node={size}", "-m", node_workers.__name__, str(out), *map(str, other)]
    done = subprocess.run(
        [*launcher, *program], cwd=ROOT, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr
    return [dict(np.load(out / f"{rank}.npz")) for rank in range(size)]


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_workers_are_one(size: int, alone, tmp_path: Path) -> None:
    expected, left = alone
    every = found_by(size, tmp_path, left / STOPPED)
    for found in every:
        for case in CASES:
            for part in ("curves", "epochs", "predictions"):
                key = f"{case} {part}"
                np.testing.assert_allclose(found[key], expected[key], 1e-10, 1e-10, err_msg=key)
        for key in (key for key in expected if key.startswith("batches")):
            np.testing.assert_allclose(found[key], expected[key], 1e-9, 1e-10, err_msg=key)
        for name in ("parts", "tables"):
            np.testing.assert_allclose(found[name], expected["parts"])
            assert found[f"{name}: hashes"].tolist() == expected[f"{name}: hashes"].tolist()
            key = f"{name}: curves"
            np.testing.assert_allclose(found[key], expected["parts: curves"], 1e-10, 1e-10)
        # From one process to several, and with dropout all stay together.
        np.testing.assert_allclose(found["resumed"], expected["deep curves"], 1e-10, 1e-10)
        # What Adam makes of rounding must not be seen: 1e-3 where batch norms' idle biases learn.
        key = "deep in float32"
        np.testing.assert_allclose(found[key], expected[key], 1e-4, 1e-5, err_msg=key)
        for key in ("dropped", "dropped batches", "dropped filters"):
            np.testing.assert_array_equal(found[key], every[0][key])
    assert expected["paper epochs"].min() < 30  # it stops on the way
    # From several processes to one.
    again, _, _ = node_workers.fit("deep", ALONE, checkpoint=Checkpoint(tmp_path / STOPPED, "test"))
    np.testing.assert_allclose(again.curves, expected["deep curves"], 1e-10, 1e-10)


def test_shares_are_all_rows() -> None:
    rows = torch.arange(11)
    shares = [Share(Workers(rank, 4), 11).rows for rank in range(4)]
    assert torch.equal(torch.cat([rows[share] for share in shares]), rows)
    assert {len(rows[share]) for share in shares} == {2, 3}
    with pytest.raises(ConfigError, match="12 workers are more than 11 nodes"):
        Share(Workers(0, 12), 11).rows  # noqa: B018


def test_a_sharded_spectrum_by_hand() -> None:
    """Two parts whose sums are added up here, against the whole; and what it says of itself."""
    signal = torch.randn(GRAPH.num_nodes, 3, dtype=torch.float64)
    cut, response = 20, torch.rand(SPECTRUM.num_eigenpairs, 3, dtype=torch.float64)
    halves = [slice(0, cut), slice(cut, GRAPH.num_nodes)]
    sums = [SPECTRUM.eigenvectors[rows].mT @ signal[rows] for rows in halves]
    for own, other in ((0, 1), (1, 0)):
        rows, missing = halves[own], sums[other]
        part = ShardedSpectrum(
            SPECTRUM.eigenvalues,
            SPECTRUM.eigenvectors[rows],
            across=lambda tensor, missing=missing: tensor.add_(missing),
            all_nodes=GRAPH.num_nodes,
        )
        whole = SPECTRUM.filter(signal, response)
        torch.testing.assert_close(part.filter(signal[rows], response), whole[rows])
        torch.testing.assert_close(
            part.streamed(rows=7).filter(signal[rows], response), whole[rows]
        )
        assert part.summary()["num_nodes"] == GRAPH.num_nodes
        assert not part.is_complete
        with pytest.raises(ConfigError, match="bases='ffn' needs all nodes in one process"):
            Specformer(3, 4, 2, bases="ffn").double()(signal[rows], part)

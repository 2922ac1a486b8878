"""One of every file that specformer writes or reads, made by its own commands."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.datasets.test_parts import write_parts

from specformer import NodeRegressor, cli, decompose
from specformer.datasets import csbm
from specformer.files.checked_tensors import write_tensors
from specformer.files.documents import write_yaml
from specformer.graphs import GraphSet, write_graph_set, write_npz
from specformer.spectrum import shards
from specformer.spectrum.many.spectra import decompose_many
from specformer.spectrum.solvers.chebyshev import subspace
from specformer.training.runs.checkpoint import Checkpoint

_RESULTS = Path(__file__).parents[2] / "results"
_FEW = ["--device", "cpu", "--quiet", "--set", "schedule.epochs=4"]
#: A training of a second, with checkpoints on the way; and those of other kinds.
TRAIN = ["train", "own.npz", *_FEW]
LINKS = [*TRAIN, "--task", "links", "--model", "gcn", "--runs", "1"]
MOLECULES = ["train", "chains.csv", *_FEW, "--runs", "1"]
IMAGE = ["train", "noise.png", *_FEW, "--runs", "1"]
COMPARE = ["compare", "own.npz", *_FEW, "--models", "gcn,mlp", "--runs", "2"]
TUNE = ["tune", "own.npz", *_FEW, "--trials", "2", "--splits", "1", "--runs", "1"]
TUNE += ["--finalists", "1"]


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Work in a folder, as commands do."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def call(*arguments: str) -> int:
    """A command within this process, without its words: its exit status."""
    before = sys.argv
    sys.argv = ["specformer", *arguments]
    try:
        with (
            Path(os.devnull).open("w") as nowhere,
            redirect_stdout(nowhere),
            redirect_stderr(nowhere),
        ):
            cli.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    finally:
        sys.argv = before
    return 0


def built(folder: Path) -> Path:
    """The files, in a folder."""
    with inside(folder):
        graph = csbm(0.6, num_nodes=40, num_features=4, seed=3)
        write_npz("own.npz", graph)
        np.savez("stored.npz", **np.load("own.npz"))
        noise = np.random.default_rng(0).integers(0, 256, (8, 8), dtype=np.uint8)
        Image.fromarray(noise).save("noise.png")
        chains = [f"{'C' * length}{end},{length}" for length in range(1, 9) for end in ("O", "N")]
        Path("chains.csv").write_text("\n".join(["smiles,length", *chains]))
        for model in ("specformer", "gcn"):
            words = [*TRAIN, "--model", model, "--runs", "2", "--cache", "cache", "--out", model]
            assert call(*words) == 0
        others = {"links": LINKS, "molecules": MOLECULES, "image": IMAGE, "tuned": TUNE,
                  "compared": COMPARE}  # fmt: skip
        for out, words in others.items():
            assert call(*words, "--cache", "others", "--out", out) == 0, out
        numbers = replace(graph, y=graph.x[:, :1].copy(), class_names=None)
        NodeRegressor("gcn", epochs=3, runs=1).fit(numbers).save("estimator")
        spectrum = decompose(graph, cache="cache")
        spectrum.save("own.safetensors")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shards, "SHARD", 4 * 40 * 15)  # three of them
            spectrum.save("rows/")
        values = spectrum.eigenvalues
        basis = {"basis": spectrum.eigenvectors, "values": values, "residuals": values}
        write_tensors("search.safetensors", basis, subspace.FORMAT, {"state": "[]"})
        molecules = GraphSet([3, 4], [2, 3], [[0, 1, 0, 1, 2], [1, 2, 1, 2, 3]], y=[[0.5], [1.5]])
        write_graph_set("molecules.npz", molecules)
        decompose_many(molecules, cache="many")
        state = {"weight": torch.arange(40.0).view(4, 10), "epoch": torch.tensor(3)}
        Checkpoint("checkpoint.safetensors", "attack").save(state)
        write_yaml("recipe.yaml", {"schedule": {"epochs": 3, "learning_rate": 0.01}})
        Path("table").mkdir()
        Path("table/edges.csv").write_text("source,target,weight\na,b,1.5\nb,c,2\nc,a,0.25\n")
        Path("table/nodes.csv").write_text("id,age,label\na,3,x\nb,4.5,y\nc,,x\n")
        write_parts(Path("parts"))
        Path("stopped").mkdir()  # what is left of a run before its first checkpoint
        for name in ("config.yaml", "metrics.jsonl"):
            shutil.copy(Path("gcn") / name, "stopped")
        shutil.copytree(_RESULTS / "table-4", "ledger")
    return folder

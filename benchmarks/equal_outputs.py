r"""Do two checkouts give the same results? Run a list of commands in both, compare every bit.

``python -m benchmarks.equal_outputs ../before`` compares this checkout with another one. Both run
on a CPU with one thread and an empty cache. ``--save before.json`` saves the results of a checkout,
to compare with them later. Compared are

- of a run folder: ``result.json``, the arrays of ``outputs.npz``, the models' weights and
  every line of ``metrics.jsonl``;
- of a spectrum: eigenvalues and eigenvectors;
- of ``predict``: the CSV file.

Values that always differ are left out: seconds, versions, commits, paths. So is the order of keys.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from safetensors.numpy import load_file
from skimage import data
from skimage.io import imsave
from skimage.transform import resize

from specformer.datasets import csbm
from specformer.graphs import write_npz

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_SMILES = ("CCO", "CCN", "c1ccccc1", "CC(=O)O", "CCCl", "C1CCCCC1", "CC(C)O", "CCOC", "CCCC", "CO")
#: Keys of results that differ between two runs of the same program, by a part of their name.
_VARYING = (
    "created",
    "second",
    "time",
    "version",
    "commit",
    "hardware",
    "path",
    "dir",
    "repeat",
    "checksum",
)

_FEW = "--set schedule.epochs=40"
#: The commands, without ``--out``, and the folder or file that each writes.
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("demo", "demo"),
    "train, nodes, default": (f"train graph.npz --runs 3 {_FEW}", "n"),
    "train, nodes, paper's form": (f"train graph.npz --runs 2 --set form=paper {_FEW}", "p"),
    "train, nodes, GCN": (f"train graph.npz --model gcn {_FEW}", "g"),
    "train, links": (f"train graph.npz --task links --runs 2 {_FEW}", "l"),
    "train, molecules": ("train molecules.csv --runs 2 --set epochs=6", "m"),
    "train, an image": ("train image.png --set schedule.epochs=60", "i"),
    "resume after a kill": (
        "train graph.npz --runs 1 --set form=paper --set schedule.epochs=600 "
        "--set schedule.patience=600",
        "k",
    ),
    "predict, nodes": ("predict n", "n.csv"),
    "predict, molecules": ("predict m --smiles CCCO", "m.csv"),
    "tune": (f"tune graph.npz --trials 3 --splits 1 --finalists 1 {_FEW}", "t"),
    "compare": (f"compare graph.npz --models gcn,mlp --runs 2 {_FEW}", "c"),
    "table 1": (
        "table 1 --images 2 --models specformer,gprgnn --filters comb --set schedule.epochs=20",
        "t1",
    ),
    **{
        f"spectrum, {solver.split()[0]}": (
            f"spectrum graph.npz --solver {solver}",
            f"{solver.split()[0]}.safetensors",
        )
        for solver in ("dense", "lanczos --k 20", "chebyshev --k 20", "slepc --k 20 --ranks 1")
    },
}


def write_inputs(folder: Path) -> None:
    """Write a graph, molecules and an image."""
    write_npz(folder / "graph.npz", csbm(homophily=-0.5, num_nodes=300, num_features=60))
    rows = [f"{text},{number % 7}" for number, text in enumerate(_SMILES * 6)]
    (folder / "molecules.csv").write_text("\n".join(["smiles,target", *rows]))
    small = resize(data.camera(), (20, 20), anti_aliasing=True)
    imsave(folder / "image.png", (255 * small).astype(np.uint8), check_contrast=False)


def run_all(checkout: Path, folder: Path, names: list[str]) -> dict[str, dict[str, str]]:
    """The results of every command: name and digest of each part."""
    write_inputs(folder)
    environment = {
        **os.environ,
        "PYTHONPATH": str(checkout / "src"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "OMP_NUM_THREADS": "1",
        "MPLBACKEND": "Agg",
    }
    found = {}
    for name in names:
        words, out = COMMANDS[name]
        command = [sys.executable, "-m", "specformer", *words.split(), "--out", out]
        if "kill" in name:
            _killed(command, folder, environment, folder / out)
            command = [sys.executable, "-m", "specformer", "resume", out]
        ended = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if ended.returncode:
            found[name] = {"failed": ended.stderr.strip().splitlines()[-1]}
        else:
            found[name] = dict(_parts(folder / out))
    return found


def _killed(command: list[str], folder: Path, environment: dict[str, str], run: Path) -> None:
    """Start a training and kill it once it has a checkpoint."""
    process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL)
    while process.poll() is None and not (run / "checkpoint.safetensors").exists():
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    process.wait()


def _parts(path: Path) -> Iterator[tuple[str, str]]:
    if path.is_file():
        files, root = [path], path.parent
    else:
        files, root = sorted(file for file in path.rglob("*") if file.is_file()), path
    for file in files:
        name = file.relative_to(root).as_posix()
        if file.name == "checksums.json":
            continue
        if file.suffix == ".safetensors":
            arrays: dict[str, np.ndarray] = load_file(file)
        elif file.suffix == ".npz":
            with np.load(file, allow_pickle=False) as archive:
                arrays = dict(archive)
        elif file.suffix == ".json":
            yield (
                name,
                _digest(
                    json.dumps(_settled(json.loads(file.read_text())), sort_keys=True).encode()
                ),
            )
            continue
        elif file.suffix == ".jsonl":
            lines = [_settled(json.loads(line)) for line in file.read_text().splitlines()]
            yield name, _digest(json.dumps(lines, sort_keys=True).encode())
            continue
        elif file.suffix == ".csv":
            yield name, _digest(file.read_bytes())
            continue
        else:
            continue  # pictures, the report, the configuration
        for key, array in sorted(arrays.items()):
            yield f"{name}: {key}", _digest(np.ascontiguousarray(array).tobytes())


def _settled(value: Any) -> Any:
    """A document without the keys that vary."""
    if isinstance(value, dict):
        kept = {key: part for key, part in value.items() if not any(v in key for v in _VARYING)}
        return {key: _settled(part) for key, part in kept.items()}
    return [_settled(part) for part in value] if isinstance(value, list) else value


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def outputs_of(checkout: Path, names: list[str]) -> dict[str, dict[str, str]]:
    """The results of a checkout, or those saved in a file."""
    if checkout.is_file():
        saved: dict[str, dict[str, str]] = json.loads(checkout.read_text())
        return saved
    with tempfile.TemporaryDirectory() as folder:
        return run_all(checkout.resolve(), Path(folder), names)


@app.command()
def main(
    other: Path = typer.Argument(help="The checkout to compare with, or a file written by --save."),
    only: list[str] = typer.Option(
        None, help="Name of a command to run. Repeat it for more. (default: all)"
    ),
    save: Path | None = typer.Option(
        None, help="Only save the results of the other checkout to this file."
    ),
) -> None:
    """Compare the results of this checkout and another one."""
    names = only or list(COMMANDS)
    theirs = outputs_of(other, names)
    if save:
        save.write_text(json.dumps(theirs, indent=1))
        return
    ours = outputs_of(Path(__file__).resolve().parents[1], names)
    table = Table("command", "parts", "outcome")
    differ = False
    for name in names:
        left, right = ours[name], theirs[name]
        unlike = [part for part in {**left, **right} if left.get(part) != right.get(part)]
        outcome = "equal" if not unlike else f"{len(unlike)} differ: {', '.join(unlike[:3])}"
        if "failed" in left:
            outcome = f"failed: {left['failed']}"
        differ |= outcome != "equal"
        table.add_row(name, str(len(left)), outcome)
    Console(width=140).print(table)
    raise typer.Exit(int(differ))


if __name__ == "__main__":
    app()

r"""A job: what a person asks for, with every setting in it; and the place where it is done.

``config.yaml`` of a run folder is a :class:`Job` and nothing else. A stopped run goes on from it
alone, whatever recipes have become since.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import torch

from specformer.datasets import GRAPH_SETS
from specformer.datasets.registry import NODE_SETS, unknown_set
from specformer.datasets.signals import SIGNAL_SETS
from specformer.errors import ConfigError, DataNotFoundError, GraphError, RunError, brief
from specformer.graphs import Columns
from specformer.graphs.formats.graph_set_pyg import holds_many_data
from specformer.graphs.formats.molecule_table import smiles_column
from specformer.graphs.formats.read import GRAPH_FILES, file_ending
from specformer.graphs.formats.table import Table
from specformer.graphs.formats.table_file import bare_name, is_of_molecules, is_table, table_header
from specformer.training.engine.distributed import ALONE, Workers
from specformer.training.runs.progress import Progress, Silent

#: Kinds of jobs, as results name them.
Kind = Literal["filters", "nodes", "links", "molecules"]

#: Fields of a job that ``config.yaml`` leaves out where they have these values.
OPTIONAL: dict[str, Any] = {
    "filter": None, "start": None, "lanes": 1, "tensorboard": False, "deterministic": False,
}  # fmt: skip


@dataclass(frozen=True)
class Request:
    """A job as a person names it.

    Args:
        source: a data set's name, a file or a folder.
        model: the model's name.
        recipe: a recipe's name or file; None for the usual one.
        changes: ``key=value`` changes of the recipe.
        task: of nodes and molecules, ``"regression"`` or ``"classification"``; None to decide by
            the targets. ``"links"`` learns the links of a graph.
        metric: of nodes and molecules, what models are judged by; None for the usual one.
        start: of molecules, the folder of a finished run whose models are trained further.
        filter: of signals, the filter to learn.
        columns: which column of a file is what, where their names do not tell.
    """

    source: str
    model: str = "specformer"
    recipe: str | None = None
    changes: tuple[str, ...] = ()
    task: str | None = None
    metric: str | None = None
    start: str | None = None
    filter: str | None = None
    columns: Columns = field(default_factory=Columns)

    @property
    def given(self) -> dict[str, object]:
        """Options of ``train`` that not every kind has, by name, as far as they are given."""
        named = {"from": self.start, "filter": self.filter}
        return {**self.learned, **named, **dict.fromkeys(self.columns.options, True)}

    @property
    def learned(self) -> dict[str, str]:
        """``task`` and ``metric``, if they are given."""
        given = {"task": self.task, "metric": self.metric}
        return {key: value for key, value in given.items() if value is not None}


@dataclass(frozen=True)
class Job:
    """A training job with every setting in it.

    Args:
        source: a data set's name, a file or a folder.
        kind: what the source is.
        model: the model's name.
        recipe: the name or file that the settings come from.
        settings: the recipe with all changes, a data class of the task.
        changes: what was changed in the recipe, as ``key=value``.
        runs: how many runs; None where the data decide.
        seed: the seed of everything random.
        device: where to train.
        filter, start, columns: see :class:`Request`; targets are among the settings.
        lanes: how many runs train at the same time.
        tensorboard: whether to write event files.
        deterministic: whether to compute with one thread, for the same numbers on any machine.
        repeat: the command that repeats the job.
        idle: settings that the model does not look at; ``config.yaml`` leaves them out.
    """

    source: str
    kind: Kind
    model: str
    recipe: str
    settings: Any
    changes: tuple[str, ...] = ()
    runs: int | None = None
    seed: int = 0
    device: str = "cpu"
    filter: str | None = None
    start: str | None = None
    lanes: int = 1
    tensorboard: bool = False
    deterministic: bool = False
    repeat: str = ""
    columns: Columns = field(default_factory=Columns)
    idle: Sequence[str] = ()

    @property
    def config(self) -> dict[str, Any]:
        """The job as ``config.yaml`` holds it, in plain values."""
        own = {key: getattr(self, key) for key in OPTIONAL}
        settings = asdict(self.settings)
        return {
            "command": "train",
            "source": self.source,
            "kind": self.kind,
            "model": self.model,
            "recipe": self.recipe,
            "runs": self.runs,
            **{key: value for key, value in own.items() if value != OPTIONAL[key]},
            **({"columns": self.columns.said} if self.columns.said else {}),
            "set": list(self.changes),
            "seed": self.seed,
            "device": self.device,
            "repeat": self.repeat,
            "settings": {key: settings[key] for key in settings if key not in self.idle},
        }


def read_columns(config: Mapping[str, Any], where: str) -> Columns:
    """Which column is what, as ``config.yaml`` holds it; ``where`` names the file in errors."""
    said: Mapping[str, Any] = config.get("columns", {})
    known = {each.name: list if each.name == "features" else str for each in fields(Columns)}
    for key, value in said.items():
        if not isinstance(value, known.get(key, ())):
            raise RunError(f"{where}: damaged (columns: {key} is {brief(value)}).")
    return Columns.of(said)


@dataclass(frozen=True)
class Workplace:
    """What surrounds a job and does not change its outcome, beyond a device's rounding.

    Args:
        device: where to train.
        data: the folder with data files; None for the usual places.
        cache: the folder that keeps spectra; None to keep none.
        progress: shows how far the work is.
        workers: the processes that share the work of every batch.
        lanes: how many runs on many graphs train at the same time.
    """

    device: torch.device
    data: Path | None = None
    cache: Path | None = None
    progress: Progress = field(default_factory=Silent)
    workers: Workers = ALONE
    lanes: int = 1

    def __post_init__(self) -> None:
        if self.lanes < 1:
            raise ConfigError(f"--lanes {self.lanes}: at least one is needed.")
        if self.lanes > 1 and self.workers.size > 1:
            raise ConfigError("--lanes: torchrun's processes already train every run together.")


def run_seed(seed: int, run: int) -> int:
    """The seed of one run of a job; jobs of other seeds have other ones."""
    return 100_003 * seed + run  # a factor above any number of runs


IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif")
_NETWORKX = "networkx.write_graphml writes what NetworkX can read of it; "
#: How files of some formats that are not read become files that are.
_CONVERT = {
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "export each sheet as CSV, as edges and nodes; "),
    **dict.fromkeys((".net", ".adjlist", ".graph6", ".gpickle"), _NETWORKX),
    ".npy": "scipy.sparse.save_npz writes a matrix that is; ",
}
_NAMES = (*NODE_SETS, *GRAPH_SETS, *SIGNAL_SETS)


def source_kind(source: str, columns: Columns | None = None) -> Kind:
    """The kind of job that a source is for; of a table, named columns decide.

    A source that does not exist and a file of an unknown format are refused.
    """
    if source in SIGNAL_SETS or source.lower().endswith(IMAGE_SUFFIXES):
        return "filters"
    path = Path(source)
    if source not in _NAMES and not path.exists():
        raise DataNotFoundError(unknown_set(source, _NAMES))
    said = columns or Columns()
    is_named = said.smiles is not None and path.is_file()  # a folder has no column of molecules
    many = is_named or (holds_many(source) and said.source is None)
    known = is_table(path) or not path.suffix or file_ending(path) in GRAPH_FILES
    if not many and path.is_file() and not known:
        convert = _CONVERT.get(file_ending(path), "")
        raise GraphError(
            f"{source}: {path.suffix} files are not read; {convert}pass a folder with edges.csv, a "
            f".csv, .smi or .sdf file of molecules, an image, or one of {', '.join(GRAPH_FILES)}."
        )
    return "molecules" if many else "nodes"


def refuse_missing(source: str, run: Path) -> None:
    """Refuse a run's source that was named from another folder."""
    if source not in _NAMES and not Path(source).exists():
        raise DataNotFoundError(
            f"{source}: not found from this folder. {run} was trained on it: run this command "
            "where it was started, or put the data here."
        )


def holds_many(source: str) -> bool:
    """Whether a source is a set of many graphs: by name, molecules, or a file that holds many."""
    path = Path(source)
    if source in GRAPH_SETS:
        return True
    if is_of_molecules(source):
        return not (is_table(source) and path.is_file() and _is_of_edges(path))
    if path.suffix.lower() == ".pt" and path.is_file():
        return holds_many_data(path)
    if path.suffix.lower() != ".npz" or not (path.is_file() and zipfile.is_zipfile(path)):
        return False
    with zipfile.ZipFile(path) as archive:
        return "num_nodes_list.npy" in archive.namelist()


def _is_of_edges(path: Path) -> bool:
    """Whether a table has the columns of an edge's ends, and none of SMILES."""
    header = table_header(path)
    if smiles_column(header):
        return False
    numbers = len(header) > 1 and all(name.isdigit() for name in header[:2])
    return numbers or Table(path, {name: [] for name in header}, []).endpoints() is not None


def source_name(source: str) -> str:
    """The name of a run on a source: a set's, a folder's, or a file's without its ending."""
    path = Path(source)
    return path.resolve().name if path.is_dir() else bare_name(path)

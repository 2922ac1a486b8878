"""Options that several commands have, each declared once, and what they mean."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from specformer.cli.output import showing_logs, start_heartbeat
from specformer.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from specformer.graphs import Columns
    from specformer.tasks.job import Request, Workplace

_COLUMN = "_column"
#: Options that `--help` lists before a command's own: they say what is learned.
_FIRST = ("model", "task", "metric")


def _column(option: str, told: str) -> Any:
    panel = "Columns of a file (default: recognised by their names)"
    return typer.Option(option, help=told, rich_help_panel=panel)


@dataclass(frozen=True)
class Shared:
    """The options that :func:`shares` gives a command; the others have their defaults."""

    model: Annotated[str, typer.Option(help="The model: specformer, gcn, gat, gprgnn, …")] = (
        "specformer"
    )
    task: Annotated[
        str | None,
        typer.Option(
            help="What to learn. Nodes, molecules: regression or classification. Links of a graph: "
            "links. (default: decided by the labels)"
        ),
    ] = None
    metric: Annotated[
        str | None,
        typer.Option(
            help="Nodes, molecules: the score. Classification: accuracy, f1, rocauc or ap. "
            "Regression: rmse, mae or r2. (default: decided by the task)"
        ),
    ] = None
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change one setting of the recipe. Repeat it for more settings.",
        ),
    ] = None
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with data files. (default: $SPECFORMER_DATA, else data/)"),
    ] = None
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder that keeps computed spectra. (default: inside ~/.cache)"),
    ] = None
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object to stdout, and nothing else.")
    ] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress on stderr.")] = (
        False
    )
    device: Annotated[str, typer.Option(help="Where to compute: auto, cpu or cuda.")] = "auto"
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0
    out: Annotated[
        Path | None, typer.Option(help="Folder to write the run to. (default: a new one in runs/)")
    ] = None
    results: Annotated[
        Path | None, typer.Option(help="Folder of the recorded results. (default: results/)")
    ] = None
    label_column: Annotated[str | None, _column("--label", "Nodes: the column of labels.")] = None
    id_column: Annotated[str | None, _column("--id", "Nodes, molecules: the column of ids.")] = None
    source_column: Annotated[
        str | None, _column("--source", "Edges: the column of the first node.")
    ] = None
    target_column: Annotated[
        str | None, _column("--target", "Edges: the column of the second node.")
    ] = None
    weight_column: Annotated[
        str | None, _column("--weight", "Edges: the column of weights, or none to ignore weights.")
    ] = None
    features_column: Annotated[
        str | None, _column("--features", "Nodes: the columns of features, such as a,b,c.")
    ] = None
    split_column: Annotated[
        str | None,
        _column("--split-column", "Nodes, molecules: the column that says train, valid or test."),
    ] = None
    smiles_column: Annotated[
        str | None, _column("--smiles-column", "Molecules: the column of SMILES.")
    ] = None
    targets_column: Annotated[
        str | None, _column("--targets", "Molecules: the columns to learn, such as a,b.")
    ] = None

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:  # what NumPy takes
            raise ConfigError(f"--seed {self.seed}: choose a number from 0 to {2**32 - 1:,}.")

    @property
    def silent(self) -> bool:
        """Whether no progress is shown."""
        return self.quiet or self.json

    @property
    def changes(self) -> tuple[str, ...]:
        """The values of ``--set``."""
        return tuple(self.assignments or ())

    @property
    def target(self) -> torch.device:
        """The device chosen."""
        from specformer.training.runs.environment import choose_device

        return choose_device(self.device)

    @property
    def spectra(self) -> Path:
        """The folder of cached spectra."""
        from specformer.files import user_cache

        return self.cache or user_cache("spectra")

    @property
    def columns(self) -> Columns:
        """The columns that options name."""
        from specformer.graphs import Columns

        said = {name.removesuffix(_COLUMN): getattr(self, name) for name in _COLUMNS}
        told: dict[str, Any] = {name: each for name, each in said.items() if each is not None}
        for name in ("features", "targets"):
            if name in told:
                told[name] = split_names(told[name]) or []
        if told.get("targets") == []:
            raise ConfigError("--targets: name at least one column.")
        return Columns.of(told)

    def begin(self, text: str) -> None:
        """Say at once what is being done, unless silent."""
        start_heartbeat(text, self.silent)

    def request(
        self,
        source: str,
        recipe: str | None = None,
        start: Path | None = None,
        filter_name: str | None = None,
    ) -> Request:
        """What a command asks for."""
        from specformer.tasks.job import Request

        return Request(
            source=source,
            model=self.model,
            recipe=recipe,
            changes=self.changes,
            task=self.task,
            metric=self.metric,
            start=None if start is None else str(start),
            filter=filter_name,
            columns=self.columns,
        )

    @contextmanager
    def workplace(self, told: bool = True, **more: Any) -> Iterator[Workplace]:
        """The workplace, with progress and, if ``told``, how data are read on standard error."""
        from specformer.cli.progress_display import progress_bars
        from specformer.tasks.job import Workplace

        with progress_bars(self.silent) as progress, showing_logs(self.silent or not told):
            yield Workplace(self.target, self.data, self.spectra, progress, **more)


_COLUMNS = [each.name for each in fields(Shared) if each.name.endswith(_COLUMN)]


def shares(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these shared options, which it takes as one argument, ``shared``.

    ``"columns"`` stands for all options that name columns of a file.
    """
    taken = [each for name in names for each in (_COLUMNS if name == "columns" else [name])]
    of_shared = get_type_hints(Shared, include_extras=True)
    added = [
        Parameter(
            name, Parameter.KEYWORD_ONLY, default=getattr(Shared, name), annotation=of_shared[name]
        )
        for name in taken
    ]

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        own = [
            each.replace(annotation=hints[name])
            for name, each in signature(command).parameters.items()
            if name != "shared"
        ]

        @functools.wraps(command)
        def whole(**given: Any) -> None:
            shared = Shared(**{name: given.pop(name) for name in taken})
            command(**given, shared=shared)

        every = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in (*own, *added)]
        every.sort(key=lambda each: each.name not in _FIRST)
        whole.__signature__ = Signature(every)  # type: ignore[attr-defined]
        whole.__annotations__ = {each.name: each.annotation for each in every}
        return whole

    return decorated


def split_names(text: str | None) -> list[str] | None:
    """``a,b`` as a list, each name once; None if there is no name."""
    names = (name.strip() for name in (text or "").split(","))
    return list(dict.fromkeys(name for name in names if name)) or None

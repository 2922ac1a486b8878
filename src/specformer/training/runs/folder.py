r"""A run on disk: its configuration, its readings and its result."""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from specformer.errors import RunError, SpecformerError, nearest
from specformer.files import json_text, write_json, write_text
from specformer.files.atomic import locked
from specformer.files.documents import (
    MALFORMED,
    State,
    file_states,
    read_json,
    read_json_lines,
    read_yaml,
    sealed,
    unsealed,
    write_manifest,
    write_yaml,
)
from specformer.files.npz_archive import DAMAGE, load_arrays, write_arrays
from specformer.nn.pretrained import CONFIG as MODEL_CONFIG
from specformer.nn.pretrained import Pretrained
from specformer.training.runs.curves import plot_losses, readings, run_table
from specformer.training.runs.environment import environment

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CONFIG = "config.yaml"
METRICS = "metrics.jsonl"
OUTPUTS = "outputs.npz"
RESULT = "result.json"
REPORT = "report.html"
MODEL = "model"
#: The data of a run on data in memory.
DATA = "data.npz"
FEATURES = "features.json"
TARGETS = "targets.json"
CHECKPOINT = "checkpoint.safetensors"
CHECKSUMS = "checksums.json"
#: Types of a result's keys that are read back; a summary is a mean with its values.
_SUMMARY = "summary"
_SCHEMA: dict[str, Any] = {
    **dict.fromkeys(("kind", "dataset", "model", "metric"), str),
    **dict.fromkeys(("settings", "seen"), dict),
    **dict.fromkeys(("classes", "targets", "nodes", "links", "molecules", "filters"), list),
    **dict.fromkeys(("parameters", "num_features"), int),
    "seconds": int | float,
    "recipe": str | None,
    **dict.fromkeys(("test", "val"), _SUMMARY),
}
#: Settings that may differ when a stopped run goes on.
_CARRIED_OVER = {"repeat", "device", "lanes", "tensorboard"}


class RunFolder:
    """The files of one run.

    ``config.yaml`` (the job), ``metrics.jsonl`` (one line per reading), ``outputs.npz`` (arrays to
    draw), ``model/`` (weights and, of nodes, how features are prepared),
    ``result.json`` and ``report.html``. Documents carry a checksum, and of a finished run
    ``checksums.json`` has those of all files but the report: what was altered is refused.

    Example:
        >>> import tempfile
        >>> run = RunFolder.create(Path(tempfile.mkdtemp()) / "run", {"seed": 0})
        >>> run.config()
        {'seed': 0}
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @classmethod
    def create(cls, path: str | Path, config: Mapping[str, Any]) -> RunFolder:
        """Start a run in ``path``. A finished run already there is refused, not overwritten.

        So is a stopped training run of other settings, which could not be resumed without them.
        """
        run = cls(path)
        run.refuse_taken()
        stopped = run.config() if run.has_checkpoint and (run.path / CONFIG).exists() else {}
        changed = (key for key in {*stopped, *config} if stopped.get(key) != config.get(key))
        # A table's checkpoints have names of their own.
        if stopped.get("command") == "train" and not _CARRIED_OVER.issuperset(changed):
            raise RunError(
                f"{run.path}: holds a stopped run of other settings{run._go_on()}, or choose "
                "another --out."
            )
        write_yaml(run.path / CONFIG, sealed(config))
        return run

    def _go_on(self) -> str:
        """How to go on with a stopped run of ``train``; empty for other commands."""
        if self.config().get("command") != "train":
            return ""
        return f"; go on with specformer resume {shlex.quote(str(self.path))}"

    @property
    def is_finished(self) -> bool:
        """Whether the run has its result."""
        return (self.path / RESULT).exists()

    @property
    def has_checkpoint(self) -> bool:
        """Whether a stopped run can go on from somewhere."""
        return any(self._checkpoints())

    def discard_checkpoints(self) -> None:
        """Remove all checkpoints."""
        for checkpoint in list(self._checkpoints()):
            checkpoint.unlink()

    def withdraw(self) -> None:
        """Remove the folder if it holds no checkpoint, model or result."""
        files = {path for path in self.path.rglob("*") if not path.is_dir()}
        if files <= {self.path / CONFIG, self.path / METRICS}:
            shutil.rmtree(self.path)

    def refuse_taken(self) -> None:
        """Refuse a folder that no run can start in; ask before hours of training."""
        if self.is_finished:
            raise RunError(f"{self.path}: holds a finished run; choose another --out.")
        if (self.path / CONFIG).exists() and "command" not in self.config():
            raise RunError(f"{self.path / CONFIG}: is not a run's; choose another --out.")
        self.refuse_unwritable()

    def refuse_unwritable(self) -> None:
        """Refuse a path that cannot be written: a file is in the way, or a folder is read-only."""
        there = [folder for folder in (self.path, *self.path.parents) if folder.exists()]
        for folder in there:
            if not folder.is_dir():
                raise RunError(f"{folder}: is a file, not a folder.")
        if there and not os.access(there[0], os.W_OK | os.X_OK):
            raise RunError(f"{there[0]}: may not be written to.")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder, so that files of two processes do not mix.

        The system releases the lock when the process ends, for whatever reason.
        """
        with locked(self.path) as free:
            if not free:
                raise RunError(f"{self.path}: another process is at work here.")
            yield

    @classmethod
    def fresh(cls, parent: str | Path, name: str, config: Mapping[str, Any]) -> RunFolder:
        """Start a run in ``parent/name``, or ``name-2``, ``name-3``, … if that is taken."""
        cls(parent).refuse_unwritable()
        Path(parent).mkdir(parents=True, exist_ok=True)
        for number in count(1):
            path = Path(parent) / (name if number == 1 else f"{name}-{number}")
            with suppress(FileExistsError):
                path.mkdir()  # of runs that start at the same time, one succeeds
                break
        return cls.create(path, config)

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """A run that exists."""
        run = cls(path)
        if not run.path.exists():
            runs = [found.parent.name for found in run.path.parent.glob(f"*/{CONFIG}")]
            close = nearest(run.path.name, runs, alike=0.4)
            meant = f"; did you mean {run.path.with_name(close)}?" if close else "."
            raise RunError(f"{run.path}: there is no such run folder{meant}")
        if not (run.path / CONFIG).is_file():
            is_model = (run.path / MODEL_CONFIG).is_file()
            hint = "; load the model in it by its class's from_pretrained" if is_model else ""
            raise RunError(f"{run.path}: not a run folder ({CONFIG} is missing){hint}.")
        return run

    def config(self) -> dict[str, Any]:
        path = self._unaltered(CONFIG)
        try:
            return dict(unsealed(read_yaml(path)) or {})
        except (OSError, TypeError, ValueError) as error:
            raise RunError(f"{path}: missing or damaged ({error}).") from error

    def write_metrics(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write all readings, one JSON object per line."""
        write_text(self.path / METRICS, "".join(json.dumps(sealed(row)) + "\n" for row in rows))

    def append_metrics(self, reading: Mapping[str, Any]) -> None:
        """Add one reading of a run under way; a number that is not finite becomes null."""
        known = {
            name: None if isinstance(value, float) and not np.isfinite(value) else value
            for name, value in reading.items()
        }
        path = self.path / METRICS
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(sealed(known)) + "\n")
        except OSError as error:  # a full disk does not say of which file
            raise OSError(error.errno, error.strerror, str(path)) from error

    def metrics(self) -> list[dict[str, Any]]:
        path = self._unaltered(METRICS)
        if not path.is_file():
            return []
        try:
            return [unsealed(line, needed=True) for line in read_json_lines(path)]
        except ValueError as error:
            raise RunError(f"{path}: damaged ({error}).") from error

    def write_outputs(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep arrays that the report draws."""
        write_arrays(self.path / OUTPUTS, arrays)

    def outputs(self) -> dict[str, np.ndarray]:
        path = self._unaltered(OUTPUTS)
        try:
            return load_arrays(path)
        except DAMAGE as error:
            raise RunError(f"{path}: missing or damaged ({error}).") from error

    def model_folder(self, run: int) -> Path:
        """Where the model of one of its runs is kept."""
        return self.path / MODEL / f"{run:03d}"

    def write_models(
        self, models: Sequence[nn.Module], beside: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Keep every run's model in ``model/NNN``, beside it JSON documents by file name."""
        for number, model in enumerate(models):
            assert isinstance(model, Pretrained)
            model.save_pretrained(self.model_folder(number))
        for number, documents in enumerate(beside):
            for name, document in documents.items():
                write_json(self.model_folder(number) / name, sealed(document))

    def model_folders(self) -> list[Path]:
        """Those of all runs, in their order."""
        folders = sorted((self.path / MODEL).glob("[0-9][0-9][0-9]"))
        if not folders:
            raise RunError(f"{self.path}: no saved models ({MODEL}/000 is missing).")
        return folders

    def _unaltered(self, name: str) -> Path:
        """The path of a file; refused if it was altered since the run ended."""
        try:
            states = file_states(self.path / CHECKSUMS, name) if self.is_finished else {}
        except (OSError, ValueError) as error:
            raise RunError(f"{self.path / CHECKSUMS}: damaged ({error}); remove it.") from error
        if states.get(name) == "altered":
            raise RunError(
                f"{self.path / name}: was altered or damaged since the run ended; put the file "
                f"back as it was, or remove {CHECKSUMS} to use it as it is."
            )
        return self.path / name

    @contextmanager
    def answering_for_files(self, what: str) -> Iterator[None]:
        """Turn an error within the block into a :class:`RunError` if files were changed.

        ``what`` says what cannot be done. If all checksums hold, the mistake is ours and is shown.
        """
        try:
            yield
        except (SpecformerError, OSError, MemoryError):
            raise
        except Exception as error:
            if self._is_intact:
                raise
            why = f"{type(error).__name__}: {str(error)[:200]}"
            raise RunError(
                f"{self.path}: {what}; its files are not as a run wrote them ({why})."
            ) from error

    @property
    def _is_intact(self) -> bool:
        try:
            states = set(file_states(self.path / CHECKSUMS).values())
        except (OSError, ValueError):
            return False
        return states == {"intact"}

    def verified(self) -> dict[str, State]:
        """The state of every file that a finished run wrote, but for its report.

        Of a comparison, also those of the compared models, under their folders' names.
        """
        if not self.is_finished:
            raise RunError(f"{self.path}: the run is not finished{self._go_on()}.")
        try:
            states = file_states(self.path / CHECKSUMS)
        except (OSError, ValueError) as error:
            raise RunError(f"{self.path / CHECKSUMS}: damaged ({error}).") from error
        if not states:
            raise RunError(f"{self.path}: has no {CHECKSUMS}, so that it cannot be verified.")
        for name in [name for name in states if name.endswith(f"/{CHECKSUMS}")]:
            if states[name] != "missing":
                folder = Path(name).parent
                below = RunFolder(self.path / folder).verified()
                states |= {f"{folder}/{each}": state for each, state in below.items()}
        return states

    def _repr_html_(self) -> str:
        """A table of the result, or of the configuration of an unfinished run."""
        if self.is_finished:
            return run_table(str(self.path), self.result())
        return run_table(f"{self.path} (not finished)", self.config())

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw training losses by epoch, the median over runs, on these axes or on new ones."""
        return plot_losses(self.outputs(), axes)

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write ``result.json``: from here on the run counts as finished."""
        write_json(self.path / RESULT, sealed(result))

    def finish(
        self,
        kind: str,
        result: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray],
        *,
        command: str,
        seed: int,
        device: torch.device,
    ) -> dict[str, Any]:
        """Write all files of a run, ``result.json`` last; then remove its checkpoints."""
        complete = {
            "kind": kind,
            **result,
            "command": command,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "seed": seed,
            "environment": environment(device),
        }
        self.write_metrics(readings(arrays, str(result.get("metric") or "accuracy")))
        self.write_outputs(arrays)
        # Before the result, so that no finished run is without them.
        content = json_text(sealed(complete)).encode()
        files = {**dict.fromkeys(self._written()), RESULT: content}
        write_manifest(self.path / CHECKSUMS, files)
        self.write_result(complete)
        self.discard_checkpoints()
        return complete

    def _written(self) -> list[str]:
        """The files of a run by name, without its result and its report."""
        models = (path for path in (self.path / MODEL).rglob("*") if path.is_file())
        kept = (path.relative_to(self.path).as_posix() for path in models)
        data = [DATA] if (self.path / DATA).is_file() else []
        below = (f"{path.parent.name}/{CHECKSUMS}" for path in self.path.glob(f"*/{CHECKSUMS}"))
        return [CONFIG, METRICS, OUTPUTS, *data, *sorted(kept), *sorted(below)]

    def _checkpoints(self) -> Iterator[Path]:
        return self.path.glob(f"{Path(CHECKPOINT).stem}*.safetensors")

    def result(self, *needed: str) -> dict[str, Any]:
        """``result.json``; refused if a needed key is missing or of another type."""
        path = self._unaltered(RESULT)
        try:
            found = dict(unsealed(read_json(path)))
        except FileNotFoundError as error:
            raise RunError(
                f"{self.path}: the run is not finished ({RESULT} is missing){self._go_on()}."
            ) from error
        except (OSError, TypeError, ValueError) as error:
            raise RunError(f"{path}: damaged ({error}).") from error
        for key in needed:
            if key not in found:
                raise RunError(f"{path}: damaged ({key} is missing).")
            kind = _SCHEMA.get(key, object)
            good = _is_summary(found[key]) if kind is _SUMMARY else isinstance(found[key], kind)
            if not good:
                raise RunError(f"{path}: damaged ({key} is not what a run writes).")
        return found


def _is_summary(value: Any) -> bool:
    """Whether a figure has its mean, interval and values, all of them numbers."""
    try:
        numbers = [value["mean"], value["ci95"] or 0.0, *value["values"]]
        return all(map(math.isfinite, numbers))
    except MALFORMED:
        return False

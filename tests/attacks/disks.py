"""Disks that are full or read-only: one sentence, and no file that is half written."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.attacks.kills import COMMANDS, forked
from tests.attacks.scene import call, inside
from tests.attacks.tally import SENTENCES, Tally

from specformer.spectrum import Spectrum
from specformer.tasks.tune import read_trials
from specformer.training.runs.folder import RunFolder


@contextmanager
def disk(scene: Path, pages: int | None) -> Iterator[Path | None]:
    """A disk with what commands read and so many free pages, or read-only; None without mounts."""
    folder = scene / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(words, capture_output=True).returncode == 0
    try:
        if mounted:
            shutil.copy(scene / "own.npz", folder)
            shutil.copytree(scene / "gcn", folder / "gcn")
            if pages is None:
                subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
            else:
                free = os.statvfs(folder)
                (folder / "filler").write_bytes(bytes((free.f_bfree - pages) * free.f_bsize))
        yield folder if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)
        folder.rmdir()


def attack(scene: Path, sizes: int) -> Iterator[Tally]:
    """Every command on disks with more and more free pages, and on one that is read-only."""
    for name, command in COMMANDS.items():
        words = command.words
        rooms = sorted({round(1.2**number) - 1 for number in range(sizes)})
        yield _tried(scene, Tally("full disk", name), words, rooms)
        yield _tried(scene, Tally("read-only disk", name), words, [None])


def _tried(scene: Path, tally: Tally, words: list[str], rooms: Sequence[int | None]) -> Tally:
    for room in rooms:
        with disk(scene, room) as folder:
            if folder is not None:
                use = partial(_ends_well, folder, words)
                tally.attempt(use, f"{room} pages free:")
    return tally


def _ends_well(folder: Path, words: list[str]) -> bool:
    """Whether a command did its work; one sentence is raised, and every file must be whole."""
    with inside(folder):
        status = forked(lambda: call(*words))
    if status not in (0, 2):
        raise AssertionError(f"{words[0]} ended with status {status}")
    _read_all(folder)
    parts = [path.name for path in folder.rglob("*.part")]
    assert not parts, parts
    if status == 2:
        raise OSError
    return True


def _read_all(folder: Path) -> None:
    """Read what is there; an error of any kind is one of ours."""
    try:
        for path in folder.rglob("*.safetensors"):
            if path.parent.name == "own-cache" or path.name == "saved.safetensors":
                Spectrum.load(path)
        for path in folder.rglob("spectrum.json"):
            Spectrum.load(path.parent)
        for path in folder.rglob("trials.jsonl"):
            read_trials(path)
        for path in folder.rglob("config.yaml"):
            run = RunFolder(path.parent)
            run.config()
            run.metrics()
            if run.is_finished:
                assert "altered" not in run.verified().values()
    except SENTENCES as error:
        raise AssertionError(f"left behind: {error}") from error

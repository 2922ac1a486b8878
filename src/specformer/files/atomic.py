"""Atomic writes: a reader sees either the whole new file or the old one, never a part."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any


def make_folder(path: str | Path) -> None:
    """Make a folder and those above it, unless it exists."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:  # it exists, but is a file
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), error.filename) from error


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it there if the block succeeds.

    Temporary files that a killed process left for the same ``path`` are removed. If ``path`` is a
    link, its target is replaced; to a device or a pipe the bytes are written.

    Example:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "note.txt"
        >>> with replacing(target) as part:
        ...     _ = part.write_text("whole")
        >>> target.read_text()
        'whole'
    """
    target = Path(path)
    if is_special(target):
        with _written_through(target) as part:
            yield part
        return
    if target.is_symlink():
        target = Path(os.path.realpath(target))
        if target.is_symlink():  # links that go in a circle
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    make_folder(target.parent)
    if target.is_dir():
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    with suppress(FileNotFoundError):
        target.lstat()  # a name that is too long fails before the work, not after
    here = _here()
    # A name may have 255 bytes; leave room for what follows.
    prefix = f".{os.fsencode(target.name)[:200].decode(errors='ignore')}."
    if here is not None:
        prefix += f"{here}-"
        with suppress(OSError):  # a folder may be writable but not readable
            _remove_abandoned(target.parent, prefix)
        prefix += f"{os.getpid()}."
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=prefix, suffix=".part")
    except OSError as error:  # name the file that was asked for, not the temporary one
        raise OSError(error.errno, error.strerror, str(target)) from error
    os.close(handle)
    part = Path(name)
    try:
        yield part
        with part.open("rb") as written:
            os.fsync(written.fileno())
        # mkstemp makes private files; give the result the permissions a plain open() would.
        mask = os.umask(0)
        os.umask(mask)
        part.chmod(0o666 & ~mask)
        part.replace(target)
    except OSError as error:  # such as a full disk: it names no file, or the temporary one
        if error.errno is None or error.filename not in (None, name):
            raise
        raise OSError(error.errno, error.strerror, str(target)) from error
    finally:
        part.unlink(missing_ok=True)


def is_special(path: Path) -> bool:
    """Whether a path exists and is neither a file nor a folder: a device, a pipe, a socket."""
    try:
        mode = path.stat().st_mode
    except OSError:  # it does not exist, or opening it will say what is wrong
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextmanager
def _written_through(target: Path) -> Iterator[Path]:
    """Yield a temporary path; copy its content into ``target`` if the block succeeds."""
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / "part"
        yield part
        with part.open("rb") as source, target.open("wb", buffering=0) as sink:
            try:
                shutil.copyfileobj(source, sink)
            except OSError as error:  # it names no file
                raise OSError(error.errno, error.strerror, str(target)) from error


def _here() -> str | None:
    """A name shared by the processes that see each other, on one boot of a machine or container.

    None if the system does not say. Process numbers mean nothing elsewhere, and a network disk may
    hold files of many machines.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        numbered = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return None
    return hashlib.sha256(f"{platform.node()} {boot} {numbered}".encode()).hexdigest()[:12]


def _remove_abandoned(folder: Path, prefix: str) -> None:
    """Remove temporary files of processes that have died; process numbers follow the prefix."""
    name = re.compile(rf"{re.escape(prefix)}(\d+)\.\w+\.part")
    for path in folder.iterdir():
        if begun := name.fullmatch(path.name):
            try:
                os.kill(int(begun[1]), 0)
            except ProcessLookupError:
                path.unlink(missing_ok=True)
            except PermissionError:  # it lives, and is somebody else's
                pass


def reserve(file: IO[bytes], size: int) -> None:
    """Give a new file this size and reserve its space on the disk.

    In a sparse file, a full disk shows only when its memory map is written to, and that kills the
    process.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
    else:
        file.truncate(size)


def write_text(path: str | Path, text: str) -> None:
    """Write ``text`` atomically."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def write_json(path: str | Path, content: Any) -> None:
    """Write ``content`` as indented JSON, atomically; NaN and infinity are refused."""
    write_text(path, json_text(content))


def json_text(content: Any) -> str:
    """The text that :func:`write_json` writes."""
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


@contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Lock a folder, which is made if it does not exist; yield False if another process holds it.

    The system releases the lock when the process ends, however it ends. Also yields True where the
    system or a network disk has no locks.
    """
    make_folder(folder)
    if sys.platform == "win32":  # it has no such locks
        yield True
        return
    import fcntl  # not on every system

    handle, free = os.open(folder, os.O_RDONLY), True
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            free = False
        except OSError:
            pass
        yield free
    finally:
        os.close(handle)


def user_cache(kind: str) -> Path:
    """The folder for one kind of files, such as spectra or data, in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = Path(base) if base else Path.home() / ".cache"
    except RuntimeError:  # for example in a container whose user has no name
        why = f"there is no home folder for {kind}; set XDG_CACHE_HOME to a folder of yours"
        raise OSError(errno.ENOENT, why) from None
    return folder / "specformer" / kind

"""How files are written: a reader sees either the whole new file or the old one, never a part."""

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

from safetensors import SafetensorError


def make_folder(path: str | Path) -> None:
    """Make a folder and those above it, unless it is there."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:  # it is there, but as a file
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), error.filename) from error


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it there if the block succeeds.

    One that a killed process left there for the same ``path`` is removed. Where ``path`` is a link,
    what it points to is replaced; a device or a pipe gets the bytes written into it.

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
        target.lstat()  # a name that is too long is told before the work, not after
    here = _here()
    # Of the 255 bytes that a name may have, some are for what follows.
    prefix = f".{os.fsencode(target.name)[:200].decode(errors='ignore')}."
    if here is not None:
        prefix += f"{here}-"
        with suppress(OSError):  # a folder may be written to, but not be listed
            _remove_abandoned(target.parent, prefix)
        prefix += f"{os.getpid()}."
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=prefix, suffix=".part")
    except OSError as error:  # people know the file they asked for, not this one
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
    except OSError as error:  # a full disk, say, which names no file, or only the part
        if error.errno is None or error.filename not in (None, name):
            raise
        raise OSError(error.errno, error.strerror, str(target)) from error
    except SafetensorError as error:  # the same in this library's words
        code = re.search(r"\(os error (\d+)\)", str(error))
        if code is None:
            raise
        number = int(code[1])
        raise OSError(number, os.strerror(number), str(target)) from error
    finally:
        part.unlink(missing_ok=True)


def is_special(path: Path) -> bool:
    """Whether there is something that is no file and no folder: a device, a pipe, a socket."""
    try:
        mode = path.stat().st_mode
    except OSError:  # nothing is there, or what is there is told about later
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextmanager
def _written_through(target: Path) -> Iterator[Path]:
    """Yield a temporary path; write what it holds into ``target`` if the block succeeds."""
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / "part"
        yield part
        with part.open("rb") as source, target.open("wb", buffering=0) as sink:
            try:
                shutil.copyfileobj(source, sink)
            except OSError as error:  # which names no file
                raise OSError(error.errno, error.strerror, str(target)) from error


def _here() -> str | None:
    """A name for the processes that see each other: those of one boot of a machine or container.

    None where the system does not say. Process numbers mean nothing elsewhere, and a network disk
    has files of many machines.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        numbered = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return None
    return hashlib.sha256(f"{platform.node()} {boot} {numbered}".encode()).hexdigest()[:12]


def _remove_abandoned(folder: Path, prefix: str) -> None:
    """Remove the temporary files whose processes have died: their numbers follow the prefix."""
    name = re.compile(rf"{re.escape(prefix)}(\d+)\.\w+\.part")
    for path in folder.iterdir():
        begun = name.fullmatch(path.name)
        if begun and not _lives(int(begun[1])):
            path.unlink(missing_ok=True)


def _lives(process: int) -> bool:
    """Whether there is a process of this number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        pass
    return True


def reserve(file: IO[bytes], size: int) -> None:
    """Make a new file this long, its room on the disk taken.

    Of a file that is long in name only, a full disk is found out when its memory map is written
    to, and that ends the process.
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
    """What :func:`write_json` writes."""
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


@contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Lock a folder, made if need be; False where another process has it.

    The system lets go of it when the process ends, however it does. True also where a system or a
    network disk has no locks.
    """
    make_folder(folder)
    if sys.platform == "win32":  # no such locks
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
    """The folder for a kind of files, spectra or data, in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = Path(base) if base else Path.home() / ".cache"
    except RuntimeError:  # in a container, say, whose user has no name
        why = f"there is no home folder for {kind}; set XDG_CACHE_HOME to a folder of yours"
        raise OSError(errno.ENOENT, why) from None
    return folder / "specformer" / kind

"""Free memory of the host for this process, and the factor on limits of what is read."""

from __future__ import annotations

import errno
import math
import os
import sys
from pathlib import Path, PurePosixPath

_OWN = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")
#: By version of Linux's control groups: the file with the limit, the file with the usage, and the
#: prefix of the entries for cached files that include the groups below.
_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    2: ("memory.max", "memory.current", ""),
}


def raised(limit: int) -> int:
    """A limit on what is read, times the environment variable ``SPECFORMER_LIMITS`` if it is set.

    Example:
        >>> raised(50)
        50
    """
    given = os.environ.get("SPECFORMER_LIMITS", "1")
    try:
        factor = float(given)
    except ValueError:
        factor = math.nan
    if not 0 < factor < math.inf:
        raise OSError(errno.EINVAL, f"SPECFORMER_LIMITS={given[:50]}: give a number, such as 2")
    return int(limit * factor)


def free_bytes() -> int:
    """Free memory now, at most what a scheduler or a container grants to this process."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = int(dict(line.split(":", 1) for line in lines)["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        free = _installed_bytes()
    return min(free, granted_bytes())


def _installed_bytes() -> int:
    """All memory of the machine; ``sys.maxsize`` if that is unknown."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return sys.maxsize


def gib(count: float) -> str:
    """A number of bytes in GiB, for people to read."""
    return f"{count / 2**30:.1f} GiB"


def granted_bytes(own: Path = _OWN, mount: Path = _MOUNT) -> int:
    """Memory left in the control groups of this process; ``sys.maxsize`` if it is in no group.

    The groups above have limits too; the smallest remainder counts. Cached files count as free,
    because the kernel drops them first. ``own`` lists the groups the process is in.
    """
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return sys.maxsize
    left = [sys.maxsize]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            version, root = 2, mount
        elif "memory" in controllers.split(","):
            version, root = 1, mount / "memory"
        else:
            continue
        # In a container the path may be the host's; its own group is then the root.
        place = PurePosixPath(path.lstrip("/"))
        left += [_left(root / group, version) for group in (place, *place.parents)]
    return max(0, min(left))


def _left(group: Path, version: int) -> int:
    """Memory left in one group; ``sys.maxsize`` if it has no limit or does not exist."""
    limit, taken, prefix = _FILES[version]
    try:
        room = int((group / limit).read_text()) - int((group / taken).read_text())
        entries = (line.split() for line in (group / "memory.stat").read_text().splitlines())
        stat = {name: int(count) for name, count in entries}
    except (OSError, ValueError):  # such as "max"
        return sys.maxsize
    return room + sum(stat.get(f"{prefix}{kind}_file", 0) for kind in ("active", "inactive"))

r"""Memory that a scheduler or a container leaves to this process, however much the machine has."""

from __future__ import annotations

import sys
from pathlib import Path, PurePosixPath

_OWN = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")
#: By version of Linux's control groups: files of the limit and of what is taken, and what the words
#: for cached files begin with, all groups below included.
_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    2: ("memory.max", "memory.current", ""),
}


def granted_bytes(own: Path = _OWN, mount: Path = _MOUNT) -> int:
    """What is left in the control groups of this process; no limit where there are none.

    Every group above its own has a limit too, and the least that is left in any of them counts.
    Cached files are free: the kernel gives them up first.

    Args:
        own: which groups the process is in.
        mount: where groups are.
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
    """What is left in one group; no limit where it has none or is not there."""
    limit, taken, prefix = _FILES[version]
    try:
        room = int((group / limit).read_text()) - int((group / taken).read_text())
        entries = (line.split() for line in (group / "memory.stat").read_text().splitlines())
        stat = {name: int(count) for name, count in entries}
    except (OSError, ValueError):  # such as "max"
        return sys.maxsize
    return room + sum(stat.get(f"{prefix}{kind}_file", 0) for kind in ("active", "inactive"))

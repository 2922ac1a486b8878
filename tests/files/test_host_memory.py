"""Control groups: the least that any of them leaves, whatever the version."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from specformer import decompose
from specformer.datasets import csbm
from specformer.errors import SpectrumError
from specformer.files.host_memory import granted_bytes
from specformer.spectrum import devices

GIB = 2**30


def first(folder: Path, limit: int, taken: int, cached: int = 0) -> None:
    """A group of version 1."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.limit_in_bytes").write_text(f"{limit}\n")
    (folder / "memory.usage_in_bytes").write_text(f"{taken}\n")
    stat = f"cache 1\ninactive_file 1\ntotal_inactive_file {cached}\ntotal_active_file {cached}\n"
    (folder / "memory.stat").write_text(stat)


def second(folder: Path, limit: int | str, taken: int, cached: int = 0) -> None:
    """A group of version 2."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{taken}\n")
    (folder / "memory.stat").write_text(f"anon 7\ninactive_file {cached}\nactive_file {cached}\n")


def own(folder: Path, text: str) -> Path:
    (folder / "own").write_text(text)
    return folder / "own"


def test_a_job_of_a_scheduler(tmp_path: Path) -> None:
    groups = own(tmp_path, "0::/slurm/job_7/step_0\n")
    second(tmp_path / "slurm", "max", 90 * GIB)
    second(tmp_path / "slurm" / "job_7", 16 * GIB, 5 * GIB, cached=GIB)
    second(tmp_path / "slurm" / "job_7" / "step_0", "max", 4 * GIB)
    assert granted_bytes(groups, tmp_path) == (16 - 5 + 2) * GIB
    second(tmp_path / "slurm" / "job_7" / "step_0", 6 * GIB, 4 * GIB)
    assert granted_bytes(groups, tmp_path) == 2 * GIB
    second(tmp_path / "slurm" / "job_7" / "step_0", 4 * GIB, 5 * GIB)
    assert granted_bytes(groups, tmp_path) == 0


def test_the_older_groups(tmp_path: Path) -> None:
    groups = own(tmp_path, "5:cpu,cpuacct:/job\n4:hugetlb,memory:/job\n0::/\n")
    first(tmp_path / "memory", 9223372036854771712, 90 * GIB)
    first(tmp_path / "memory" / "job", 8 * GIB, 7 * GIB, cached=GIB)
    assert granted_bytes(groups, tmp_path) == 3 * GIB


@pytest.mark.parametrize("make", [first, second])
def test_a_container_sees_its_own_group_as_the_root(tmp_path: Path, make) -> None:
    older = make is first
    groups = own(tmp_path, "4:memory:/docker/abc\n" if older else "0::/../abc\n")
    make(tmp_path / "memory" if older else tmp_path, 3 * GIB, GIB)
    assert granted_bytes(groups, tmp_path) == 2 * GIB


def test_no_groups_are_no_limit(tmp_path: Path) -> None:
    assert granted_bytes(tmp_path / "absent", tmp_path) == sys.maxsize
    assert granted_bytes(own(tmp_path, "0::/\n3:cpu:/\n"), tmp_path) == sys.maxsize


def test_what_is_granted_bounds_a_solve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specformer.files.host_memory.granted_bytes", lambda: 1000)
    assert devices.available_bytes(torch.device("cpu")) == 1000
    with pytest.raises(SpectrumError, match="needs about"):
        decompose(csbm(0.5, num_nodes=1500))  # of much smaller ones nobody asks
